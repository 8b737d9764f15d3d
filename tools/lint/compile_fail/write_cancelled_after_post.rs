// SPDX-License-Identifier: GPL-2.0

//! Memory that an RDMA Write reads belongs to the queue pair until the Send behind it has ended.

use crate::rdma::qp::Qp;
use crate::rdma::rw::Write;
use crate::rdma::send::{SendBox, SendQueue};
use crate::rdma::Handler;

fn control<H: Handler>(qp: &Qp<H>, queue: &mut SendQueue<H>, write: Write, buffer: SendBox<H>) {
    let _ = qp.post_reply(queue, Some(write), buffer, 0, None, false);
}

#[cfg(wrong)]
fn wrong<H: Handler>(qp: &Qp<H>, queue: &mut SendQueue<H>, write: Write, buffer: SendBox<H>) {
    let _ = qp.post_reply(queue, Some(write), buffer, 0, None, false);
    write.cancel(qp); //~ E0382
}
