// SPDX-License-Identifier: GPL-2.0

//! A Pull and its waiter belong to the queue pair from post to completion.

use crate::rdma::pull::PullBox;
use crate::rdma::qp::Qp;
use crate::rdma::send::SendQueue;
use crate::rdma::Pulls;

fn control<H: Pulls>(qp: &Qp<H>, queue: &mut SendQueue<H>, pull: PullBox<H>, waiter: H::Puller) {
    // Only a queue pair that did not take it gives it back.
    let _ = qp.post_pull(queue, pull, waiter).err();
}

#[cfg(wrong)]
fn wrong<H: Pulls>(
    qp: &Qp<H>,
    queue: &mut SendQueue<H>,
    pull: PullBox<H>,
    waiter: H::Puller,
    other: H::Puller,
) {
    let _ = qp.post_pull(queue, pull, waiter);
    let _ = qp.post_pull(queue, pull, other); //~ E0382
}
