// SPDX-License-Identifier: GPL-2.0

//! A Send consumes the registrations it registers: they cannot be registered again.

use crate::rdma::mr::*;
use crate::rdma::qp::Qp;
use crate::rdma::send::SendWqe;
use crate::rdma::Handler;
use kernel::prelude::*;

fn control<H: Handler>(
    qp: &Qp<H>,
    mapped: MrList<Mapped>,
    buffer: KBox<SendWqe<H>>,
) -> MrList<Registered> {
    qp.send(mapped, buffer, 0).0
}

#[cfg(wrong)]
fn wrong_state<H: Handler>(qp: &Qp<H>, exposed: MrList<Registered>, buffer: KBox<SendWqe<H>>) {
    let _ = qp.send(exposed, buffer, 0); //~ E0308
}

#[cfg(wrong)]
fn wrong_owner<H: Handler>(
    qp: &Qp<H>,
    mapped: MrList<Mapped>,
    first: KBox<SendWqe<H>>,
    second: KBox<SendWqe<H>>,
) {
    let _ = qp.send(mapped, first, 0);
    let _ = qp.send(mapped, second, 0); //~ E0382
}
