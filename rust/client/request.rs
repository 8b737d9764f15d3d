// SPDX-License-Identifier: GPL-2.0

//! The requester's data in each request slot, which does not depend on the connection.

use crate::{
    proto::requester::retry::Attempts,
    rdma::edge::EdgePage,
    sunrpc::{
        PinnedRqst,
        Rqst, //
    },
    support::{
        completion::Completion,
        racy::Racy, //
    },
};
use kernel::{
    alloc::flags::GFP_NOWAIT,
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};

/// The requester's part of a request slot.
#[pin_data]
pub(crate) struct Request {
    /// The state of the refusals that the form of the Call considers (version 2). Endpoint's lock held.
    refusals: Racy<u32>,
    /// The XID of the last RPC whose Call was refused (version 2). Endpoint's lock held.
    refused: Racy<u32>,
    /// The number of times that the Call was sent again. Endpoint's lock held.
    attempts: Racy<Attempts>,
    /// Takes the head and the tail of joined Replies. The sender makes it for the first of them.
    edge: SetOnce<Arc<EdgePage>>,
    /// The Reply to the Call that was sent last is joined. Endpoint's lock held to change it.
    is_joined: Racy<bool>,
    /// Ends the wait of a task that gave up its RPC. A slot has one owner, so there is one waiter.
    pub(super) released: Arc<Completion>,
}

/// A request, as its sender has it.
pub(super) type RdmaRqst = Rqst<Request>;
/// A request whose Reply is being handled.
pub(super) type Pinned = PinnedRqst<Request>;

impl Request {
    /// Initializes an unused slot. Context: process, may sleep.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            refusals: Racy::new(0),
            refused: Racy::new(0),
            attempts: Racy::new(Attempts::default()),
            edge: SetOnce::new(),
            is_joined: Racy::new(false),
            released: Arc::pin_init(Completion::new(), GFP_KERNEL)?,
        })
    }

    /// Returns the state of the refusals that the form of the Call considers. Endpoint's lock held.
    pub(super) fn refusals(&self) -> u32 {
        self.refusals.get()
    }

    /// Notes the state of the refusals that the form of the Call considers. Endpoint's lock held.
    #[inline]
    pub(super) fn set_refusals(&self, refusals: u32) {
        self.refusals.set(refusals);
    }

    /// Returns the page for the head and the tail of a joined Reply. Makes it, if there is none yet. Returns `None`
    /// if there is no memory. The send lock is held.
    pub(super) fn make_edge(&self) -> Option<&EdgePage> {
        if self.edge.as_ref().is_none() {
            let edge = Arc::new(EdgePage::new().ok()?, GFP_NOWAIT).ok()?;
            self.edge.populate(edge);
        }
        self.edge.as_ref().map(|edge| &**edge)
    }

    /// Notes whether the Reply to the Call that is sent now is joined. Endpoint's lock held.
    #[inline]
    pub(super) fn set_joined(&self, is_joined: bool) {
        self.is_joined.set(is_joined);
    }

    /// Returns whether the Reply is joined. The request was taken out of the table.
    #[inline]
    pub(super) fn is_joined(&self) -> bool {
        self.is_joined.get()
    }

    /// Returns the page for the head and the tail of a joined Reply.
    pub(super) fn edge(&self) -> Option<Arc<EdgePage>> {
        self.edge.as_ref().cloned()
    }

    /// Calls `f` with the number of times that the Call with this XID was sent again. Endpoint's lock held.
    pub(super) fn with_attempts<T>(&self, xid: u32, f: impl FnOnce(&mut Attempts) -> T) -> T {
        let mut attempts = match self.refused.get() == xid {
            true => self.attempts.get(),
            false => Attempts::default(),
        };
        let result = f(&mut attempts);
        self.refused.set(xid);
        self.attempts.set(attempts);
        result
    }
}
