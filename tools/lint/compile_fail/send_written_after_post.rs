// SPDX-License-Identifier: GPL-2.0

//! A Send buffer belongs to the queue pair until the Send's completion, and a Reply is none: it
//! comes back through `Handler::sent` alone.

use crate::rdma::mr::MrList;
use crate::rdma::qp::Qp;
use crate::rdma::send::SendWqe;
use crate::rdma::Handler;
use kernel::prelude::*;

fn control<H: Handler>(qp: &Qp<H>, mut buffer: KBox<SendWqe<H>>) {
    buffer.bytes_mut().fill(0);
    let _ = qp.send(MrList::new(), buffer, 0);
}

#[cfg(wrong)]
fn wrong<H: Handler>(qp: &Qp<H>, mut buffer: KBox<SendWqe<H>>) {
    let _ = qp.send(MrList::new(), buffer, 0);
    buffer.bytes_mut().fill(0); //~ E0382
}

#[cfg(wrong)]
fn wrong_borrow<H: Handler>(qp: &Qp<H>, mut buffer: KBox<SendWqe<H>>) {
    let message = buffer.bytes_mut();
    let _ = qp.send(MrList::new(), buffer, 0); //~ E0505
    message.fill(0);
}
