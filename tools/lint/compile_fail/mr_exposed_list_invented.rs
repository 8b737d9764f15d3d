// SPDX-License-Identifier: GPL-2.0

//! A list of registrations that the peer may reach comes from a Send. An empty list from elsewhere
//! would prove that an RPC exposes no memory.

use crate::rdma::mr::*;
use crate::rdma::proof::Unexposed;

fn control(exposed: MrList<Registered>) -> Option<Unexposed> {
    exposed.unexposed().ok()
}

#[cfg(wrong)]
fn wrong_new() -> MrList<Registered> {
    MrList::new() //~ E0277
}

#[cfg(wrong)]
fn wrong_default(exposed: &mut MrList<Registered>) -> MrList<Registered> {
    core::mem::take(exposed) //~ E0277
}
