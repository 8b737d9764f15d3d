// SPDX-License-Identifier: GPL-2.0

//! Time-outs of version 2: a silent peer is asked for a sign of life. A connection is closed if the peer
//! does not answer the first message, or does not finish a message in parts.
//!
//! No timer is started for each message. No time-out is shorter than `SHORTEST`, so it is enough to poll
//! at that interval. Version 1 has no time-outs, so its clock is not started, unless messages of the role wait
//! for the peer ([`Ticker::wind_up`]).

use super::{
    config::SHORTEST,
    now,
    Endpoint,
    Protocol,
    Role, //
};
use crate::support::{
    gate::Entered,
    memalloc::GFP_NORETRY,
    work::{
        Clock,
        Tick, //
    },
};
use kernel::{
    prelude::*,
    time::Msecs, //
};

/// The timeout of the peer in milliseconds, for messages that wait for room in the send queue or for a credit, and
/// for the rest of a message in parts. A message of the peer does not restart it, because a peer can send any number
/// of messages.
pub(crate) const PEER_TIMEOUT: Msecs = 30_000;

/// The clock of a connection, to be dropped before the endpoint is closed.
pub(crate) struct Ticker<R: Role> {
    clock: Pin<KBox<Clock<Ticking<R>>>>,
}

struct Ticking<R: Role> {
    endpoint: Entered<Endpoint<R>>,
}

impl<R: Role> Ticker<R> {
    /// Looks again and again, and when something is due sooner. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    pub(crate) fn new(endpoint: Entered<Endpoint<R>>) -> Result<Self> {
        let clock = KBox::pin_init(Clock::new(Ticking { endpoint }), GFP_NORETRY)?;
        clock.start(SHORTEST);
        Ok(Self { clock })
    }

    /// Starts a clock that has stopped. Context: any.
    pub(crate) fn wind_up(&self) {
        self.clock.start(SHORTEST);
    }
}

impl<R: Role> Tick for Ticking<R> {
    fn tick(&self) -> Option<Msecs> {
        let Self { endpoint } = self;
        let shared = endpoint.shared();
        let mut state = shared.lock();
        let due = match shared.role.tick(&mut state, now()) {
            Ok(waits) if state.protocol().is_some_and(Protocol::needs_no_time) => {
                return waits.then_some(SHORTEST);
            }
            Ok(_) => state.tick(endpoint.qp()),
            Err(why) => Err(why),
        };
        drop(state);
        match due {
            Ok(due) => {
                // A message may have waited for the credits of the grant.
                shared.role.writable(shared, endpoint.qp());
                let left = due.and_then(|due| Msecs::try_from(due.0.saturating_sub(now().0)).ok());
                // A message that is due already waits for something else, such as a credit.
                let soon = left.filter(|left| *left != 0);
                Some(soon.map_or(SHORTEST, |left| left.min(SHORTEST)))
            }
            Err(why) => {
                shared.request_close(why);
                None
            }
        }
    }
}
