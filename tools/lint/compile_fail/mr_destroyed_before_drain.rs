// SPDX-License-Identifier: GPL-2.0

//! What a peer may reach is destroyed only after the queue pair was drained, and only draining
//! it gives the proof.

use crate::rdma::mr::*;
use crate::rdma::qp::{
    Drained,
    Qp, //
};
use crate::rdma::Handler;

fn control<H: Handler>(qp: &Qp<H>, exposed: MrList<Registered>) {
    let drained: Drained = qp.drain();
    exposed.destroy(&drained);
}

#[cfg(wrong)]
fn wrong_without(exposed: MrList<Registered>) {
    exposed.destroy(); //~ E0061
}

#[cfg(wrong)]
fn wrong_forged(exposed: MrList<Registered>) {
    exposed.destroy(&Drained(())); //~ E0423
}
