// SPDX-License-Identifier: GPL-2.0

//! Only mapped registrations have regions that a peer could be told of, and only such ones go in
//! front of a Send.

use crate::rdma::mr::*;

fn control(mr: Mr<Mapped>, chunks: &mut MrList<Mapped>) -> Option<Region> {
    chunks.push_last(mr);
    chunks.regions().next()
}

#[cfg(wrong)]
fn wrong_region(free: &MrList<Idle>) -> Option<Region> {
    free.regions().next() //~ E0599
}

#[cfg(wrong)]
fn wrong_list(mr: Mr<Idle>, chunks: &mut MrList<Mapped>) {
    chunks.push_last(mr); //~ E0308
}
