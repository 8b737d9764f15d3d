// SPDX-License-Identifier: GPL-2.0

//! The memory of a transport about its connections, for debugfs and for the next connection.

use crate::{
    endpoint,
    proto::{
        connection::negotiate::Time,
        requester::{
            plan::Limits,
            retry::{
                self,
                Refusals,
                Retry, //
            },
        },
        wire::error::ErrorReport, //
    },
    support::net::SockAddr, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

/// The memory, which every connection of the transport shares.
#[pin_data]
pub(super) struct History {
    /// The last events.
    #[pin]
    last: SpinLock<Last>,
    /// The refusals of the server (version 2).
    #[pin]
    refusals: SpinLock<Refusals>,
}

/// The last events of the transport's connections.
#[derive(Clone, Copy)]
pub(super) struct Last {
    /// The server of the last attempt to connect.
    pub(super) peer: Option<SockAddr>,
    /// The result of that attempt: 0 or an error number.
    pub(super) error: i32,
    /// The reason for the close of the last connection.
    pub(super) close: &'static str,
}

impl History {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            last <- new_spinlock!(Last {
                peer: None,
                error: 0,
                close: "none",
            }),
            refusals <- new_spinlock!(Refusals::default()),
        })
    }

    /// Records the end of an attempt to connect. Context: any.
    pub(super) fn tried(&self, peer: SockAddr, error: i32) {
        let mut last = self.last.lock();
        last.peer = Some(peer);
        last.error = error;
    }

    /// Records the end of a connection. Context: process, does not sleep.
    pub(super) fn closed(&self, why: &'static str) {
        self.last.lock().close = why;
    }

    /// Records that the server has refused a Call by `report`, which led to `retry`. Returns whether the Call,
    /// which was planned with that `known` state of the refusals, is sent again. Context: process, does not
    /// sleep. The endpoint's lock may be held.
    pub(super) fn refused(&self, report: ErrorReport, retry: Retry, known: u32) -> bool {
        let keep = retry::keep(report);
        let mut refusals = self.refusals.lock();
        refusals.goes_again(retry, endpoint::now(), keep, known)
    }

    /// Forgets old refusals of the server. Returns whether there were any. Context: any.
    pub(super) fn expire(&self, now: Time) -> bool {
        self.refusals.lock().expire(now)
    }

    /// Removes refused forms of a Call from the limits. Returns the state of the refusals. Context: process,
    /// does not sleep.
    pub(super) fn narrow(&self, limits: &mut Limits) -> u32 {
        let mut refusals = self.refusals.lock();
        refusals.expire(endpoint::now());
        refusals.apply(limits);
        refusals.changes()
    }

    /// Returns the last events. Context: process, does not sleep.
    pub(super) fn last(&self) -> Last {
        *self.last.lock()
    }
}
