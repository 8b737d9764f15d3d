// SPDX-License-Identifier: GPL-2.0

//! A fence and what it fences belong to the queue pair until the completion.

use crate::rdma::fence::FenceWqe;
use crate::rdma::mr::*;
use crate::rdma::qp::QpRef;
use crate::rdma::Handler;
use kernel::prelude::*;

fn control<H: Handler>(
    qp: &QpRef<H>,
    fence: KBox<FenceWqe<H>>,
    exposed: MrList<Registered>,
    token: H::Fenced,
) -> bool {
    qp.post_fence(fence, exposed, token).is_ok()
}

#[cfg(wrong)]
fn wrong<H: Handler>(
    qp: &QpRef<H>,
    fence: KBox<FenceWqe<H>>,
    exposed: MrList<Registered>,
    token: H::Fenced,
) -> (KBox<FenceWqe<H>>, MrList<Registered>, H::Fenced) {
    let _posted = qp.post_fence(fence, exposed, token);
    (
        fence,   //~ E0382
        exposed, //~ E0382
        token,   //~ E0382
    )
}
