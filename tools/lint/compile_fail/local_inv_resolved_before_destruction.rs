// SPDX-License-Identifier: GPL-2.0

//! A task that waits for a failed invalidation is woken only after the queue pair was destroyed:
//! the waiter cannot be taken out in another way.

use crate::rdma::local_inv::LocalInvBox;
use crate::rdma::proof::Destroyed;
use crate::rdma::Invalidates;

fn control<H: Invalidates>(inv: &mut LocalInvBox<H>, destroyed: &Destroyed) -> Option<H::Waiter> {
    inv.resolve(destroyed).map(|(waiter, _)| waiter)
}

#[cfg(wrong)]
fn wrong_without<H: Invalidates>(inv: &mut LocalInvBox<H>) -> Option<H::Waiter> {
    inv.resolve().map(|(waiter, _)| waiter) //~ E0061
}

#[cfg(wrong)]
fn wrong_way<H: Invalidates>(inv: &mut LocalInvBox<H>) -> Option<H::Waiter> {
    inv.what.take().map(|(_, waiter)| waiter) //~ E0616
}
