// SPDX-License-Identifier: GPL-2.0

//! A Send consumes the registrations it registers: they cannot be registered again.

use crate::rdma::mr::*;
use crate::rdma::qp::Qp;
use crate::rdma::send::{
    SendBox,
    SendQueue, //
};
use crate::rdma::Handler;

fn control<H: Handler>(
    qp: &Qp<H>,
    queue: &mut SendQueue<H>,
    mapped: MrList<Mapped>,
    buffer: SendBox<H>,
) -> MrList<Registered> {
    qp.post_send(queue, mapped, buffer, 0).0
}

#[cfg(wrong)]
fn wrong_state<H: Handler>(
    qp: &Qp<H>,
    queue: &mut SendQueue<H>,
    exposed: MrList<Registered>,
    buffer: SendBox<H>,
) {
    let _ = qp.post_send(queue, exposed, buffer, 0); //~ E0308
}

#[cfg(wrong)]
fn wrong_owner<H: Handler>(
    qp: &Qp<H>,
    queue: &mut SendQueue<H>,
    mapped: MrList<Mapped>,
    first: SendBox<H>,
    second: SendBox<H>,
) {
    let _ = qp.post_send(queue, mapped, first, 0);
    let _ = qp.post_send(queue, mapped, second, 0); //~ E0382
}
