// SPDX-License-Identifier: GPL-2.0

//! Memory that a device writes has no other owner until the RDMA Reads have ended.

use crate::rdma::pull::PullBox;
use crate::rdma::qp::Qp;
use crate::rdma::send::SendQueue;
use crate::rdma::Pulls;

fn control<H: Pulls>(
    qp: &Qp<H>,
    queue: &mut SendQueue<H>,
    mut pull: PullBox<H>,
    waiter: H::Puller,
) {
    let _ = pull.memory_mut().map(|memory| memory.write(0, b"before"));
    let _ = qp.post_pull(queue, pull, waiter).err();
}

#[cfg(wrong)]
fn wrong<H: Pulls>(qp: &Qp<H>, queue: &mut SendQueue<H>, mut pull: PullBox<H>, waiter: H::Puller) {
    let _ = qp.post_pull(queue, pull, waiter);
    let mut first = [0; 4];
    let _ = pull.memory_mut().map(|memory| memory.read(0, &mut first)); //~ E0382
}

#[cfg(wrong)]
fn wrong_kept<H: Pulls>(
    qp: &Qp<H>,
    queue: &mut SendQueue<H>,
    mut pull: PullBox<H>,
    waiter: H::Puller,
) {
    let memory = pull.memory_mut();
    let _ = qp.post_pull(queue, pull, waiter); //~ E0505
    let _ = memory.map(|memory| memory.write(0, b"after"));
}
