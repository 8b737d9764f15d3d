// SPDX-License-Identifier: GPL-2.0

//! That the peer invalidated a registration is what a Receive's completion says, not a number
//! that somebody read somewhere.

use crate::rdma::mr::*;
use crate::rdma::recv::Received;
use crate::rdma::Handler;

fn control<H: Handler>(
    exposed: &mut MrList<Registered>,
    message: &Received<H>,
) -> Option<Mr<Idle>> {
    exposed.take_invalidated(message.invalidated()?)
}

#[cfg(wrong)]
fn wrong_number(exposed: &mut MrList<Registered>, key: u32) -> Option<Mr<Idle>> {
    exposed.take_invalidated(key) //~ E0308
}

#[cfg(wrong)]
fn wrong_forged(exposed: &mut MrList<Registered>, key: u32) -> Option<Mr<Idle>> {
    exposed.take_invalidated(Invalidated(key)) //~ E0423
}

#[cfg(wrong)]
fn wrong_claim(exposed: &mut MrList<Registered>, key: u32) -> Option<Mr<Idle>> {
    exposed.take_invalidated(Invalidated::by_completion(key)) //~ E0624
}
