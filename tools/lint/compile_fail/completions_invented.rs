// SPDX-License-Identifier: GPL-2.0

//! Values for the handlers of completions cannot be made or kept elsewhere.

use crate::rdma::cq::Completions;
use crate::rdma::recv::Received;
use crate::rdma::Handler;

fn control<H: Handler>(cx: &mut Completions<'_, H>, message: Received<H>) {
    cx.repost(message);
}

#[cfg(wrong)]
fn wrong_maker<H: Handler>(cq: *mut crate::bindings::ib_cq) -> Completions<'static, H> {
    unsafe { Completions::of(cq) } //~ E0624
}

#[cfg(wrong)]
fn wrong_copy<'a, H: Handler>(cx: &Completions<'a, H>) -> Completions<'a, H> {
    *cx //~ E0507
}
