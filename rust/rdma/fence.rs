// SPDX-License-Identifier: GPL-2.0

//! Fences: LOCAL_INV work requests, after which the peer cannot reach registered memory.
//!
//! Of a chain only the last asks for a completion. The queue works in order, so when that one is
//! done they all are.

use super::cq::{
    Wc,
    Work,
    Wqe, //
};
use super::mr::{
    MrList,
    Registered, //
};
use super::qp::Drained;
use super::Handler;
use kernel::prelude::*;

/// A fence and what waits for it. Made ahead, since a fence must not fail for lack of memory.
pub(crate) struct Fence<H: Handler> {
    pub(super) mrs: MrList<Registered>,
    pub(super) token: Option<H::Fenced>,
    /// The next of the list this is in.
    next: Option<KBox<FenceWqe<H>>>,
}

/// A fence as it is posted.
pub(crate) type FenceWqe<H> = Wqe<Fence<H>>;

impl<H: Handler> Fence<H> {
    /// A fence for later. Context: may sleep.
    pub(crate) fn new() -> Result<KBox<FenceWqe<H>>> {
        Wqe::new(Self {
            mrs: MrList::new(),
            token: None,
            next: None,
        })
    }

    /// Takes what waited for the fence.
    pub(crate) fn take_token(&mut self) -> Option<H::Fenced> {
        self.token.take()
    }

    /// Does for a failed fence what it should have done: destroys its registrations, now that
    /// the queue pair has been drained, and returns what waited.
    pub(crate) fn resolve(&mut self, proof: &Drained) -> Option<H::Fenced> {
        core::mem::take(&mut self.mrs).destroy(proof);
        self.take_token()
    }
}

impl<H: Handler> Work for Fence<H> {
    type Handler = H;

    fn done(mut wqe: KBox<FenceWqe<H>>, handler: &H, wc: &Wc<'_, H>) {
        match wc.success() {
            Some(success) => {
                let (mrs, proof) = core::mem::take(&mut wqe.mrs).invalidated();
                handler.fenced(success.qp(), wqe, mrs, proof);
            }
            None => handler.fence_failed(wqe),
        }
    }
}

/// A list of fences; made of links in the fences, so it never allocates.
pub(crate) struct Fences<H: Handler> {
    head: Option<KBox<FenceWqe<H>>>,
}

impl<H: Handler> Fences<H> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self { head: None }
    }

    /// Adds a fence.
    pub(crate) fn push(&mut self, mut fence: KBox<FenceWqe<H>>) {
        fence.next = self.head.take();
        self.head = Some(fence);
    }

    /// Takes a fence.
    pub(crate) fn pop(&mut self) -> Option<KBox<FenceWqe<H>>> {
        let mut fence = self.head.take()?;
        self.head = fence.next.take();
        Some(fence)
    }
}

impl<H: Handler> Default for Fences<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: Handler> Drop for Fences<H> {
    fn drop(&mut self) {
        // One by one: dropping a long chain of boxes would recurse too deep for a kernel stack.
        while self.pop().is_some() {}
    }
}
