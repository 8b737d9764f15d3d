// SPDX-License-Identifier: GPL-2.0

//! Nothing that was found in a message outlives it: the device may already write the next one
//! there. Nor is there another way to the bytes of a Receive buffer.

use crate::rdma::cq::Completions;
use crate::rdma::recv::{
    Received,
    RecvWqe, //
};
use crate::rdma::Handler;

fn control<H: Handler>(cx: &mut Completions<'_, H>, message: Received<H>) -> Option<u8> {
    let first = message.bytes().first().copied();
    cx.repost(message);
    first
}

#[cfg(wrong)]
fn wrong<H: Handler>(cx: &mut Completions<'_, H>, message: Received<H>) -> Option<u8> {
    let first = message.bytes().first();
    cx.repost(message); //~ E0505
    first.copied()
}

#[cfg(wrong)]
fn wrong_way<H: Handler>(buffer: &RecvWqe<H>) -> usize {
    buffer.buf.bytes().len() //~ E0616
}
