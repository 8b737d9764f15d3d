// SPDX-License-Identifier: GPL-2.0

//! A Receive buffer belongs to the queue pair from post to completion.

use crate::rdma::qp::QpRef;
use crate::rdma::recv::RecvBox;
use crate::rdma::Handler;

fn control<H: Handler>(qp: &QpRef<H>, buffer: RecvBox<H>) {
    let _ = qp.post_recv(buffer);
}

#[cfg(wrong)]
fn wrong<H: Handler>(qp: &QpRef<H>, buffer: RecvBox<H>) {
    let _ = qp.post_recv(buffer);
    let _ = qp.post_recv(buffer); //~ E0382
}
