// SPDX-License-Identifier: GPL-2.0

//! An invalidation, its registrations and the waiting task belong to the queue pair until the
//! completion.

use crate::rdma::local_inv::LocalInvBox;
use crate::rdma::mr::*;
use crate::rdma::qp::QpRef;
use crate::rdma::Invalidates;

fn control<H: Invalidates>(
    qp: &QpRef<H>,
    inv: LocalInvBox<H>,
    exposed: MrList<Registered>,
    waiter: H::Waiter,
) -> bool {
    qp.post_local_inv(inv, exposed, waiter).is_ok()
}

#[cfg(wrong)]
fn wrong<H: Invalidates>(
    qp: &QpRef<H>,
    inv: LocalInvBox<H>,
    exposed: MrList<Registered>,
    waiter: H::Waiter,
) -> (LocalInvBox<H>, MrList<Registered>, H::Waiter) {
    let _posted = qp.post_local_inv(inv, exposed, waiter);
    (
        inv,     //~ E0382
        exposed, //~ E0382
        waiter,  //~ E0382
    )
}
