// SPDX-License-Identifier: GPL-2.0

//! A message is gone once its buffer is given up.

use crate::rdma::cq::Completions;
use crate::rdma::recv::Received;
use crate::rdma::Handler;

fn control<H: Handler>(cx: &mut Completions<'_, H>, message: Received<H>) -> usize {
    let len = message.bytes().len();
    cx.repost(message);
    len
}

#[cfg(wrong)]
fn wrong<H: Handler>(cx: &mut Completions<'_, H>, message: Received<H>) -> usize {
    cx.repost(message);
    message.bytes().len() //~ E0382
}
