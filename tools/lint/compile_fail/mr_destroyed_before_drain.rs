// SPDX-License-Identifier: GPL-2.0

//! What a peer may reach is destroyed only after the queue pair was drained, and only draining
//! it gives the proof, which there is one of.

use crate::rdma::mr::*;
use crate::rdma::proof::Drained;
use crate::rdma::qp::Qp;
use crate::rdma::Handler;

fn control<H: Handler>(qp: &Qp<H>, exposed: MrList<Registered>) {
    if let Some(drained) = qp.drain() {
        exposed.destroy(&drained);
    }
}

#[cfg(wrong)]
fn wrong_without(exposed: MrList<Registered>) {
    exposed.destroy(); //~ E0061
}

#[cfg(wrong)]
fn wrong_hope<H: Handler>(qp: &Qp<H>, exposed: MrList<Registered>) {
    exposed.destroy(&qp.drain()); //~ E0308
}

#[cfg(wrong)]
fn wrong_forged(exposed: MrList<Registered>) {
    exposed.destroy(&Drained(())); //~ E0423
}

#[cfg(wrong)]
fn wrong_copy(drained: &Drained) -> Drained {
    *drained //~ E0507
}
