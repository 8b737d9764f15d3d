// SPDX-License-Identifier: GPL-2.0

//! The negotiation of the version of a connection.
//!
//! Both sides announce their highest version while connecting ([`Announcement`]). A client begins with the
//! lower of both, and with version 1 if the server has announced nothing. With in-band negotiation, as the
//! draft has it (4.3.3), a client begins with its own highest version and takes no notice of the
//! announcement.
//!
//! A server that does not know the version answers ERR_VERS, and the client goes on with another
//! version, once, on the same connection. The first message that is no error makes the version final.

use crate::proto::wire::{
    cm_private::Announcement,
    types::{
        Version,
        Xid, //
    },
};

/// A point in time or a span of it, in milliseconds of any steady clock.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time `span` after this one.
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// The versions one side is willing to speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Versions {
    /// The lowest.
    pub low: Version,
    /// The highest.
    pub high: Version,
}

impl Versions {
    /// Version 1 only.
    pub const V1: Self = Self {
        low: Version::V1,
        high: Version::V1,
    };

    /// Both versions.
    pub const BOTH: Self = Self {
        low: Version::V1,
        high: Version::V2,
    };

    /// Returns the version that `number` names, if it is one of these.
    pub fn accept(&self, number: u32) -> Option<Version> {
        Version::from_number(number).filter(|v| (self.low..=self.high).contains(v))
    }

    /// Returns the versions that a peer with this announcement speaks, too. The lowest version stays, since
    /// a client has no other to begin with.
    //= VA-007, VA-008, D-53
    pub fn announced_by(self, peer: Announcement) -> Self {
        let high = [Version::V2, Version::V1]
            .into_iter()
            .find(|v| *v <= self.high && v.number() <= peer.highest.into());
        Self {
            high: high.unwrap_or(Version::V1).max(self.low),
            ..self
        }
    }

    /// Returns the highest of these within `low..=high` that is not `rejected`.
    //= V2-061, D-32
    fn choose(&self, low: u32, high: u32, rejected: Version) -> Option<Version> {
        [Version::V2, Version::V1].into_iter().find(|v| {
            (self.low..=self.high).contains(v)
                && (low..=high).contains(&v.number())
                && *v != rejected
        })
    }
}

/// The way in which a client finds the version that it opens a connection with.
//= VA-008, D-53
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Opening {
    /// By the announcement of the server: the lower of both highest versions.
    Announced,
    /// In-band (4.3.3): this version, which [`PeerVersionMemo::first`] returns, and another one if the server
    /// answers ERR_VERS. The announcement is ignored.
    InBand(Version),
}

/// The memory of a client about a server between connections, with in-band negotiation.
//= V2-062, D-32
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PeerVersionMemo {
    until: Option<Time>,
    /// Until then a Call has to open version 2; if false, the server has no version 2.
    by_call: bool,
}

impl PeerVersionMemo {
    /// The time for which a server counts as a server without version 2.
    pub const KEEP: Time = Time(600_000);

    /// Creates the memory of a server that is not asked for version 2 before `until`, or only by a Call if
    /// `by_call` is set.
    pub const fn new(until: Option<Time>, by_call: bool) -> Self {
        Self { until, by_call }
    }

    /// Returns the time before which the server is not asked.
    pub const fn until(&self) -> Option<Time> {
        self.until
    }

    /// Returns whether a Call opens the connections until then, in version 2.
    pub const fn by_call(&self) -> bool {
        self.by_call
    }

    /// Notes that the server does not speak version 2, or does not survive the question.
    pub fn remember_v1(&mut self, now: Time) {
        *self = Self::new(Some(now.after(Self::KEEP)), false);
    }

    /// Notes that the server speaks version 2 but does not answer a CONNPROP.
    fn remember_by_call(&mut self, now: Time) {
        *self = Self::new(Some(now.after(Self::KEEP)), true);
    }

    /// Notes that the server speaks version 2.
    fn forget(&mut self) {
        *self = Self::default();
    }

    fn holds(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns the version to begin the next connection with.
    pub fn first(&self, now: Time, versions: Versions) -> Version {
        if self.holds(now) && !self.by_call {
            versions.low
        } else {
            versions.high
        }
    }

    /// Returns whether a Call opens the next connection in version 2, instead of a CONNPROP.
    pub fn opens_by_call(&self, now: Time) -> bool {
        self.holds(now) && self.by_call
    }
}

/// The consequence of an ERR_VERS message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The connection goes on with this version.
    Use(Version),
    /// There is no common version, or the common version has already been rejected.
    NoCommonVersion,
    /// The message is malformed, or is no answer to a message of this side.
    Ignore,
    /// The version is settled; the message concerns one RPC, which ends.
    Settled,
}

/// The state of the choice on one connection.
//= V2-058, V2-059, V2-061
//= V2-062, V2-064, V2-065
//= D-32
#[derive(Clone, Copy, Debug)]
pub struct Negotiation {
    versions: Versions,
    current: Option<Version>,
    probe: Option<Xid>,
    settled: bool,
    fell_back: bool,
    /// A Call opens the connection in version 2, too.
    by_call: bool,
}

impl Negotiation {
    /// Starts a connection as its client.
    //= V2-058, V2-063
    pub const fn client(versions: Versions, first: Version) -> Self {
        Self {
            versions,
            current: Some(first),
            probe: None,
            settled: false,
            fell_back: false,
            by_call: false,
        }
    }

    /// Sets whether a Call opens the connection in either version.
    pub const fn opening(self, by_call: bool) -> Self {
        Self { by_call, ..self }
    }

    /// Returns whether a Call opens the connection, or is to: nothing was settled yet.
    pub fn opens_by_call(&self) -> bool {
        !self.settled && (self.by_call || self.current == Some(Version::V1))
    }

    /// Starts a connection as its server, which waits for the client to choose.
    pub const fn server(versions: Versions) -> Self {
        Self {
            versions,
            current: None,
            probe: None,
            settled: false,
            fell_back: false,
            by_call: false,
        }
    }

    /// Returns the version spoken, or `None` on a server that has not heard from its client.
    #[inline]
    pub const fn version(&self) -> Option<Version> {
        self.current
    }

    /// Returns whether the version is final.
    #[inline]
    pub const fn is_settled(&self) -> bool {
        self.settled
    }

    /// Returns whether the version may still become another one. It is changed once at most.
    //= V2-061, V2-065
    pub fn may_change(&self) -> bool {
        !self.settled && !self.fell_back && self.versions.low != self.versions.high
    }

    /// Returns the versions this side is willing to speak.
    pub const fn versions(&self) -> Versions {
        self.versions
    }

    /// Returns whether the version is final, and is `version`.
    #[inline]
    pub fn is_settled_on(&self, version: Version) -> bool {
        self.settled && matches!(self.current, Some(current) if current == version)
    }

    /// Notes the XID of a message that the client sends before the version is final. A server that does not
    /// know the version answers with this XID.
    ///
    /// In version 1, that is whichever Call comes first, and another one when that was given up.
    //= V2-060, D-19, D-32
    pub fn note_probe(&mut self, xid: Xid) {
        self.probe = Some(xid);
    }

    /// Returns whether `xid` is the XID of the last message whose answer can settle the version.
    pub fn is_probe(&self, xid: Xid) -> bool {
        self.probe == Some(xid)
    }

    /// Makes the version final, after a message of `version` that is no error.
    #[inline]
    //= V2-059, V2-064, V2-065
    pub fn settle(&mut self, version: Version) {
        self.current = Some(version);
        self.settled = true;
    }

    /// Handles an ERR_VERS message at the client.
    //= V2-060, V2-061, V2-065
    //= V2-144, D-05, D-19
    //= D-32
    pub fn handle_err_vers(&mut self, xid: Xid, low: u32, high: u32) -> Answer {
        let Some(current) = self.current else {
            return Answer::Ignore;
        };
        if low > high {
            return Answer::Ignore;
        }
        if self.settled {
            return Answer::Settled;
        }
        if !self.is_probe(xid) {
            return Answer::Ignore;
        }
        match self.versions.choose(low, high, current) {
            Some(version) if !self.fell_back => {
                self.fell_back = true;
                self.current = Some(version);
                self.probe = None;
                Answer::Use(version)
            }
            _ => Answer::NoCommonVersion,
        }
    }

    /// Updates `memory` for the next connection, when this connection is over or has changed its version.
    //= V2-062, D-32
    pub fn remember(&self, now: Time, memory: &mut PeerVersionMemo) {
        match (self.current, self.settled) {
            (Some(Version::V2), true) if self.by_call => memory.remember_by_call(now),
            (Some(Version::V2), true) => memory.forget(),
            // It has not been asked.
            (Some(Version::V2), false) if self.by_call && self.probe.is_none() => {}
            // The server has asked for it, but not answered a CONNPROP lately.
            (Some(Version::V2), false) if self.fell_back && memory.holds(now) => {
                memory.remember_by_call(now);
            }
            // The server has asked for it, in its answer to version 1.
            (Some(Version::V2), false) if self.fell_back => memory.forget(),
            (Some(Version::V2), false) => memory.remember_v1(now),
            (Some(Version::V1), _) if self.fell_back => memory.remember_v1(now),
            _ => {}
        }
    }
}
