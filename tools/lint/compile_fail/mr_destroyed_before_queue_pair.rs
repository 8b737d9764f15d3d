// SPDX-License-Identifier: GPL-2.0

//! Exposed registrations are destroyed only after the queue pair. Only its destruction gives the proof,
//! which cannot be copied, and nothing can be posted to the queue pair any more.

use crate::rdma::mr::*;
use crate::rdma::proof::Destroyed;
use crate::rdma::qp::Qp;
use crate::rdma::recv::RecvBox;
use crate::rdma::Handler;

fn control<H: Handler>(qp: Qp<H>, exposed: MrList<Registered>) {
    let destroyed = qp.destroy();
    exposed.destroy(&destroyed);
}

#[cfg(wrong)]
fn wrong_without(exposed: MrList<Registered>) {
    exposed.destroy(); //~ E0061
}

#[cfg(wrong)]
fn wrong_hope<H: Handler>(qp: &Qp<H>, exposed: MrList<Registered>) {
    exposed.destroy(&qp.destroy()); //~ E0507
}

#[cfg(wrong)]
fn wrong_post<H: Handler>(qp: Qp<H>, buffer: RecvBox<H>) {
    let _destroyed = qp.destroy();
    let _ = qp.post_recv(buffer); //~ E0382
}

#[cfg(wrong)]
fn wrong_forged(exposed: MrList<Registered>) {
    exposed.destroy(&Destroyed(())); //~ E0423
}

#[cfg(wrong)]
fn wrong_copy(destroyed: &Destroyed) -> Destroyed {
    *destroyed //~ E0507
}
