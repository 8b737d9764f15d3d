// SPDX-License-Identifier: GPL-2.0

//! A Send buffer belongs to the queue pair until the Send's completion, and a Reply is none: it
//! comes back through `Handler::sent` alone, and only in exchange for the room it took.

use crate::rdma::mr::MrList;
use crate::rdma::qp::Qp;
use crate::rdma::send::{
    SendBox,
    SendBufs,
    SendList,
    SendQueue, //
};
use crate::rdma::Handler;

fn control<H: Handler>(qp: &Qp<H>, queue: &mut SendQueue<H>, mut buffer: SendBox<H>) {
    buffer.bytes_mut().fill(0);
    let _ = qp.post_send(queue, MrList::new(), buffer, 0);
}

fn control_end<H: Handler>(queue: &mut SendQueue<H>, ended: SendBufs<H>) -> SendList<H> {
    queue.ended(ended).0
}

#[cfg(wrong)]
fn wrong<H: Handler>(qp: &Qp<H>, queue: &mut SendQueue<H>, mut buffer: SendBox<H>) {
    let _ = qp.post_send(queue, MrList::new(), buffer, 0);
    buffer.bytes_mut().fill(0); //~ E0382
}

#[cfg(wrong)]
fn wrong_borrow<H: Handler>(qp: &Qp<H>, queue: &mut SendQueue<H>, mut buffer: SendBox<H>) {
    let message = buffer.bytes_mut();
    let _ = qp.post_send(queue, MrList::new(), buffer, 0); //~ E0505
    message.fill(0);
}

#[cfg(wrong)]
fn wrong_end<H: Handler>(ended: SendBufs<H>) -> SendList<H> {
    ended.list //~ E0616
}
