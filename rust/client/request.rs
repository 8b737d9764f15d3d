// SPDX-License-Identifier: GPL-2.0

//! What the requester keeps in each request slot, whatever the connection.

use crate::{
    sunrpc::{
        PinnedRqst,
        Rqst, //
    },
    support::{
        completion::Completion,
        racy::Racy, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The requester's part of a request slot.
#[pin_data]
pub(crate) struct Request {
    /// How many refusals the form of the Call goes by (version 2). Endpoint's lock held.
    refusals: Racy<u32>,
    /// Ends the wait of a task that gave up its RPC. A slot has one owner, so there is one waiter.
    pub(super) released: Arc<Completion>,
}

/// A request, as its sender has it.
pub(super) type RdmaRqst = Rqst<Request>;
/// A request whose Reply is being handled.
pub(super) type Pinned = PinnedRqst<Request>;

impl Request {
    /// The state of an unused slot. Context: may sleep.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            refusals: Racy::new(0),
            released: Arc::pin_init(Completion::new(), GFP_KERNEL)?,
        })
    }

    /// How many refusals the form of the Call goes by. Endpoint's lock held.
    pub(super) fn refusals(&self) -> u32 {
        self.refusals.get()
    }

    /// Notes the number of refusals that the form of the Call considers. Endpoint's lock held.
    #[inline]
    pub(super) fn set_refusals(&self, refusals: u32) {
        self.refusals.set(refusals);
    }
}
