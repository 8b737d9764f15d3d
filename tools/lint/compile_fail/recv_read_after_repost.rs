// SPDX-License-Identifier: GPL-2.0

//! A message is gone once its buffer is given up.

use crate::rdma::qp::QpRef;
use crate::rdma::recv::Received;
use crate::rdma::Handler;

fn control<H: Handler>(qp: &QpRef<H>, message: Received<H>) -> usize {
    let len = message.bytes().len();
    let _ = qp.post_recv(message.into_buffer());
    len
}

#[cfg(wrong)]
fn wrong<H: Handler>(qp: &QpRef<H>, message: Received<H>) -> usize {
    let _ = qp.post_recv(message.into_buffer());
    message.bytes().len() //~ E0382
}
