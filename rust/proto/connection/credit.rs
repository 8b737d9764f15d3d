// SPDX-License-Identifier: GPL-2.0

//! Flow control of both versions.
//!
//! A version 1 credit stands for one RPC: a Reply grants a number of outstanding Calls, separately for each
//! direction of RPC. A version 2 credit stands for one message of any kind: every message grants its
//! receiver a number of further messages.

use crate::proto::{
    connection::negotiate::Time,
    wire::types::Grant, //
};
use core::ops::Range;

/// The Calls of one direction of RPC on a version 1 connection, as their Requester counts them.
//= V1-036, V1-037, V1-038
//= V1-043, V1-119, V1-121
#[derive(Clone, Copy, Debug)]
pub struct CallCredits {
    max: u32,
    ready: u32,
    granted: u32,
    limit: u32,
    outstanding: u32,
}

impl CallCredits {
    /// Starts a connection: one Call until a Reply says more, and never more than `max`.
    //= V1-042, V1-043
    pub const fn new(max: u32) -> Self {
        Self {
            max: if max == 0 { 1 } else { max },
            ready: u32::MAX,
            granted: 1,
            limit: 1,
            outstanding: 0,
        }
    }

    /// Starts again, as a new connection does.
    pub fn restart(&mut self) {
        *self = Self {
            ready: self.ready,
            ..Self::new(self.max)
        };
    }

    /// Changes the most Calls there may be, from the next Call on.
    //= V1-032
    pub fn set_max(&mut self, max: u32) {
        self.max = max.max(1);
        self.handle_grant(self.granted);
    }

    /// Changes the number of Calls for whose Replies there are Receives, from the next Call on. Without this, there are
    /// Receives for all Calls.
    //= V1-032, V1-122
    pub fn set_ready(&mut self, ready: u32) {
        self.ready = ready.max(1);
        self.handle_grant(self.granted);
    }

    /// Returns the number of Calls for whose Replies there are Receives.
    #[inline]
    pub const fn ready(&self) -> u32 {
        self.ready
    }

    /// Returns the number of Calls that may be outstanding.
    #[inline]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the number of Calls that the peer permits to be outstanding.
    #[inline]
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// Returns the credits that a Call requests.
    #[inline]
    //= V1-006, V1-032
    pub const fn requested(&self) -> u32 {
        self.max
    }

    /// Returns the number of outstanding Calls.
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns whether a Call may be sent now.
    #[inline]
    pub const fn has_room(&self) -> bool {
        self.outstanding < self.limit
    }

    /// Counts a Call that is sent; `false` means it has to wait.
    #[inline]
    //= V1-036, V1-037
    pub fn start(&mut self) -> bool {
        if !self.has_room() {
            return false;
        }
        self.outstanding = self.outstanding.saturating_add(1);
        true
    }

    /// Counts a Call whose Reply has come, or whose connection has gone.
    ///
    /// A Call that the Requester has given up goes on counting: its Responder does not know that,
    /// and works on it.
    #[inline]
    pub fn finish(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// Takes over the grant of a Reply, up to the requested credits.
    ///
    /// A peer that grants nothing would stop the connection for good, so zero counts as one.
    #[inline]
    //= V1-033, V1-034, V1-035
    //= V1-038, D-10
    pub fn handle_grant(&mut self, word: u32) {
        self.granted = word.min(self.max).max(1);
        self.limit = self.granted.min(self.ready);
    }
}

/// The number of Calls of the peer at a time, on a version 1 connection that begins with few Receives.
///
/// An idle peer needs no more. A peer that gets a Reply for each of its credits within a second may be waiting
/// for credits, for any latency of the network; then the number is doubled. It is doubled, too, when Calls in
/// progress use more than half of the credits: a file system may let these Calls wait, and the peer needs credits
/// for other Calls. Each granted credit has a Receive, because Receives are posted before the grant.
//= V1-033, V1-035, V1-040
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    most: u32,
    calls: u32,
    coming: bool,
    replies: u32,
    since: Time,
    /// Calls in progress ask for no credits before this time.
    retry: Time,
}

impl Allowance {
    /// The fewest credits at the start of a connection, unless fewer are permitted.
    const FIRST: u32 = 8;
    /// The most credits at the start of a connection.
    const MOST_FIRST: u32 = 64;
    /// A client that uses all credits in this time gets more.
    const WINDOW: Time = Time(1_000);

    /// Returns the credits at the start of a connection to a service with this number of threads.
    ///
    /// Only a Reply of version 1 grants more. With a credit for each thread, Calls that wait in a file system use all
    /// credits only when they use all threads.
    pub fn first(threads: u32) -> u32 {
        threads.clamp(Self::FIRST, Self::MOST_FIRST)
    }

    /// Starts a connection with `first` credits, which has room for the Receives of `most` Calls.
    pub const fn new(first: u32, most: u32, now: Time) -> Self {
        Self {
            most,
            calls: if most < first { most } else { first },
            coming: false,
            replies: 0,
            since: now,
            retry: now,
        }
    }

    /// Returns the number of Calls with Receives: the most that may be granted.
    #[inline]
    pub const fn calls(&self) -> u32 {
        self.calls
    }

    /// Counts a Reply, while `most` Calls may be granted at a time. Returns `old..new` when Receives should be
    /// posted for more Calls; the caller reports the result by [`Self::handle_posted`]. `now` is called once
    /// in a number of Replies that is the number of credits.
    #[inline]
    pub fn handle_reply(&mut self, most: u32, now: impl FnOnce() -> Time) -> Option<Range<u32>> {
        let most = most.min(self.most);
        if self.calls >= most {
            return None;
        }
        self.replies = self.replies.saturating_add(1);
        if self.replies < self.calls {
            return None;
        }
        self.replies = 0;
        let now = now();
        let soon = now.0.saturating_sub(self.since.0) <= Self::WINDOW.0;
        self.since = now;
        if !soon || self.coming {
            return None;
        }
        self.coming = true;
        Some(self.calls..self.calls.saturating_mul(2).min(most))
    }

    /// Checks the number of credits when a Call is taken up, while Calls in progress use `in_progress` credits, and `most`
    /// Calls may be granted at a time. Returns `old..new` when Receives should be posted, as [`Self::handle_reply`] does.
    #[inline]
    pub fn handle_call(
        &mut self,
        in_progress: u32,
        most: impl FnOnce() -> u32,
        now: impl FnOnce() -> Time,
    ) -> Option<Range<u32>> {
        if in_progress <= self.calls / 2 || self.coming {
            return None;
        }
        let most = most().min(self.most);
        if self.calls >= most || now() < self.retry {
            return None;
        }
        self.coming = true;
        Some(self.calls..self.calls.saturating_mul(2).min(most))
    }

    /// Notes that there was no memory for more Receives.
    pub fn handle_no_memory(&mut self, now: Time) {
        self.coming = false;
        self.retry = now.after(Self::WINDOW);
    }

    /// Notes that Receives are posted for `calls` Calls.
    pub fn handle_posted(&mut self, calls: u32) {
        self.coming = false;
        self.calls = calls.min(self.most);
    }
}

/// The credits of this side on a version 2 connection.
///
/// The messages in flight never exceed the peer's ceiling. A Send counts as in flight until its completion is
/// reported; credits that arrive before that are held back. They are not lost: the peer counts them as
/// given and does not give them again.
///
/// A ceiling below the number of Sends in flight applies to the Sends after it. The earlier Sends had
/// credits, so each has a Receive. If they counted, a completion that was not asked for would be the
/// condition for the next Send, and only the next Send can ask for a completion.
//= V2-044, V2-046, V2-047
//= V2-049, V2-172, V2-187
//= D-09, D-11, D-13
#[derive(Clone, Copy, Debug)]
pub struct SendCredits {
    balance: u32,
    outstanding: u32,
    /// The number of Sends that have not completed and that a lower ceiling does not count.
    earlier: u32,
    /// Credits that wait for completions: at most one for each outstanding Send.
    held: u32,
    ceiling: u32,
}

impl SendCredits {
    /// Starts with `balance` credits: a client has one, a server none.
    //= V2-054, D-12
    pub const fn new(balance: u32) -> Self {
        Self {
            balance,
            outstanding: 0,
            earlier: 0,
            held: 0,
            ceiling: balance,
        }
    }

    /// Returns the number of messages that may be sent now.
    #[inline]
    pub const fn balance(&self) -> u32 {
        self.balance
    }

    /// Returns the number of Sends that have not completed and that the ceiling counts.
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns the number of messages that may be in flight.
    #[inline]
    pub const fn ceiling(&self) -> u32 {
        self.ceiling
    }

    /// Takes the credit for one message; `false` means it has to wait for a grant.
    #[inline]
    //= V2-038, V2-047
    pub fn take(&mut self) -> bool {
        let Some(balance) = self.balance.checked_sub(1) else {
            return false;
        };
        self.balance = balance;
        self.outstanding = self.outstanding.saturating_add(1);
        true
    }

    /// Gives back the credits of the oldest `count` Sends that had taken a credit. They have completed.
    #[inline]
    //= D-09
    pub fn handle_sent(&mut self, count: u32) {
        let counted = count.saturating_sub(self.earlier);
        self.earlier = self.earlier.saturating_sub(count);
        self.outstanding = self.outstanding.saturating_sub(counted);
        self.settle(0);
    }

    /// Returns whether a completion has to be asked for: half of the ceiling is in flight.
    //= D-09
    pub const fn wants_completion(&self) -> bool {
        self.outstanding >= self.ceiling.div_ceil(2)
    }

    /// Returns the number of Sends in a row that may go without a completion, so that a completion
    /// is outstanding whenever [`wants_completion`](Self::wants_completion) asks for it.
    //= D-09
    pub const fn unsignaled(&self) -> u32 {
        self.ceiling.div_ceil(2)
    }

    /// Adds credits to the held credits, and frees the credits that the ceiling has room for.
    #[inline]
    fn settle(&mut self, granted: u32) {
        let total = self
            .balance
            .saturating_add(self.held)
            .saturating_add(granted);
        self.balance = total.min(self.ceiling.saturating_sub(self.outstanding));
        self.held = total.saturating_sub(self.balance).min(self.outstanding);
    }

    /// Adds a grant. Returns false if one of its halves is zero: such a grant adds no credit, or leaves the ceiling
    /// unchanged.
    #[inline(always)]
    //= V2-039, V2-045, V2-048
    //= V2-049, V2-053, D-09
    //= D-10
    pub fn handle_grant(&mut self, grant: Grant) -> bool {
        if grant.ceiling != 0 {
            self.set_ceiling(grant.ceiling.into());
        }
        // A ceiling of zero has no meaning; the granted credits have Receives all the same.
        self.ceiling = self.ceiling.max(1);
        self.settle(grant.granted.into());
        grant.granted != 0 && grant.ceiling != 0
    }

    /// Takes over a ceiling.
    #[inline(always)]
    //= V2-049, D-09
    fn set_ceiling(&mut self, ceiling: u32) {
        if ceiling < self.ceiling && ceiling <= self.outstanding {
            self.earlier = self.earlier.saturating_add(self.outstanding);
            self.outstanding = 0;
        }
        self.ceiling = ceiling;
    }

    /// Makes sure that one message can be sent, which the peer always expects while starting.
    ///
    /// A credit that waits for a completion will do; there is no need for another one.
    //= D-10, D-12
    pub fn ensure_one(&mut self) {
        self.ceiling = self.ceiling.max(1);
        if self.held == 0 {
            self.balance = self.balance.max(1);
        }
    }
}

/// The credits of the peer on a version 2 connection, as this side gave them.
///
/// Each credit of the peer has a Receive, from the time when the message that gives the credit is posted. So
/// a message of the peer always finds a Receive. A message never has a ceiling below the credits of the
/// peer, so the peer discards no credit, and both sides count the same.
//= V2-046, V2-047, V2-048
//= V2-052, D-09, D-10
//= D-11
#[derive(Clone, Copy, Debug)]
pub struct RecvCredits {
    ceiling: u16,
    posted: u32,
    balance: u32,
    /// The ceiling that the peer was told last.
    told: u16,
    /// The number of messages that the peer may still send before it looks at the last grant without
    /// payload. The next message after these uses a credit of that grant or of a later message.
    unseen: Option<u32>,
}

impl RecvCredits {
    /// The number of Receives that are reserved for a message that takes no credit.
    //= V2-052, D-11
    const RESERVED: u32 = 1;

    /// Starts with Receives for `ceiling` messages at once, and the peer's starting balance.
    pub const fn new(ceiling: u16, balance: u16) -> Self {
        Self {
            ceiling,
            posted: Self::receives(ceiling),
            balance: balance as u32,
            told: balance,
            unseen: None,
        }
    }

    /// Returns the number of Receives to keep posted for a ceiling: one for each message, and one
    /// for a message that takes no credit.
    //= V2-052, D-11
    pub const fn receives(ceiling: u16) -> u32 {
        (ceiling as u32).saturating_add(Self::RESERVED)
    }

    /// Returns the ceiling.
    pub const fn ceiling(&self) -> u16 {
        self.ceiling
    }

    /// Returns the number of messages that the peer may still send.
    #[inline]
    pub const fn balance(&self) -> u32 {
        self.balance
    }

    /// Returns the number of posted Receives.
    pub const fn posted(&self) -> u32 {
        self.posted
    }

    /// Takes over the number of posted Receives: all Receives without the Receives of messages that this side
    /// keeps.
    ///
    /// Until the first call, the Receives of the ceiling count as posted.
    pub fn handle_posted(&mut self, posted: u32) {
        self.posted = posted;
    }

    /// Changes the number of messages that the peer may have outstanding. A lower ceiling takes
    /// effect as the peer spends its credits.
    //= V2-049
    pub fn set_ceiling(&mut self, ceiling: u16) {
        self.ceiling = ceiling;
    }

    /// Counts a message that takes a credit. Returns `false` if the peer had no credit left.
    #[inline]
    pub fn handle_message(&mut self) -> bool {
        self.unseen = self.unseen.and_then(|left| left.checked_sub(1));
        match self.balance.checked_sub(1) {
            Some(balance) => {
                self.balance = balance;
                true
            }
            None => false,
        }
    }

    /// Returns the number of credits that could be granted now.
    #[inline]
    //= V2-052, V2-187, D-10
    pub fn grantable(&self) -> u32 {
        self.posted
            .saturating_sub(Self::RESERVED)
            .min(self.ceiling.into())
            .saturating_sub(self.balance)
    }

    /// Returns the ceiling to tell the peer while it has `balance` credits.
    #[inline]
    fn ceiling_for(&self, balance: u32) -> u16 {
        let balance = u16::try_from(balance).unwrap_or(u16::MAX);
        self.ceiling.max(balance).max(1)
    }

    /// Returns the credit word of a message about to be sent, and counts its credits: all credits that can be
    /// given, or none.
    #[inline]
    //= V2-045, V2-048, V2-049
    //= D-10
    pub fn grant(&mut self) -> Grant {
        // No more than the ceiling, which has 16 bits.
        let granted = u16::try_from(self.grantable()).unwrap_or(u16::MAX);
        self.balance = self.balance.saturating_add(granted.into());
        self.told = self.ceiling_for(self.balance);
        Grant {
            granted,
            ceiling: self.told,
        }
    }

    /// Returns the credit word of a grant without payload, as [`Self::grant`]. It uses the Receive
    /// that the peer reserves for it.
    //= V2-051, V2-052, D-11
    pub fn grant_alone(&mut self) -> Grant {
        self.unseen = Some(self.balance);
        self.grant()
    }

    /// Returns whether the Receive that the peer reserves for a grant without payload is free again, as
    /// the messages of the peer show.
    #[inline]
    //= V2-052, D-11
    pub const fn may_grant_alone(&self) -> bool {
        self.unseen.is_none()
    }

    /// Returns the credit word of an error message, which gives nothing: its receiver ignores it.
    //= V2-142, V2-143
    pub fn no_grant(&self) -> Grant {
        Grant {
            granted: 1,
            ceiling: self.ceiling.max(1),
        }
    }

    /// Returns whether the peer has less than half of the ceiling that it was told, while there are credits or
    /// a lower ceiling for it: it may be waiting for that number of credits.
    #[inline]
    //= V2-051, D-11
    pub fn is_short(&self) -> bool {
        let half = u32::from(self.told).div_ceil(2);
        self.balance < half && (self.grantable() != 0 || self.ceiling_for(self.balance) < self.told)
    }
}
