// SPDX-License-Identifier: GPL-2.0

//! What waits for an invalidation that failed is told only after the queue pair was destroyed: there
//! is no other way to take it out.

use crate::rdma::local_inv::LocalInvBox;
use crate::rdma::proof::Destroyed;
use crate::rdma::Handler;

fn control<H: Handler>(inv: &mut LocalInvBox<H>, destroyed: &Destroyed) -> Option<H::Waiter> {
    inv.resolve(destroyed).map(|(waiter, _)| waiter)
}

#[cfg(wrong)]
fn wrong_without<H: Handler>(inv: &mut LocalInvBox<H>) -> Option<H::Waiter> {
    inv.resolve().map(|(waiter, _)| waiter) //~ E0061
}

#[cfg(wrong)]
fn wrong_way<H: Handler>(inv: &mut LocalInvBox<H>) -> Option<H::Waiter> {
    inv.what.take().map(|(_, waiter)| waiter) //~ E0616
}
