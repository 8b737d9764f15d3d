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
use crate::support::stack::{
    Node,
    Stack, //
};
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

impl<H: Handler> Node for FenceWqe<H> {
    fn link(&self) -> &Option<KBox<Self>> {
        &self.next
    }

    fn link_mut(&mut self) -> &mut Option<KBox<Self>> {
        &mut self.next
    }
}

/// Fences.
pub(crate) type Fences<H> = Stack<FenceWqe<H>>;
