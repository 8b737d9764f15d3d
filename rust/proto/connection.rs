// SPDX-License-Identifier: GPL-2.0

//! One connection, of either version and seen from either side.
//!
//! [`Connection`] does no I/O. Its methods are of four kinds, and are to be used like this:
//!
//! * `handle_*` tell it what happened: a message arrived, a Send completed, time passed. Report
//!   Send completions before the messages that arrived after them.
//! * Commands ([`send`](Connection::send), [`refuse`](Connection::refuse), …) are what the caller
//!   wants. Memory to encode into is an argument; what does not fit now is refused.
//! * `poll_*` say what is to be done: call [`poll_transmit`](Connection::poll_transmit) until it
//!   returns `None` after every other call, and [`poll_timeout`](Connection::poll_timeout) when
//!   that is done.
//! * Everything else only looks.
//!
//! After an [`Event::Close`] the connection is to be closed; nothing more is sent on it.

use crate::proto::chunk::Chunks;
use crate::proto::cm_private::{
    self, //
    CmPrivate,
};
use crate::proto::continuation::{
    Assembler,
    Content,
    Part,
    Sequence, //
};
use crate::proto::credit::{
    CallCredits,
    Grant,
    RecvCredits,
    SendCredits, //
};
use crate::proto::error::{
    BadHeader,
    ErrorReport,
    NoRoom, //
};
use crate::proto::header::{
    Body,
    Conveyed,
    FixedWords,
    Flags,
    Kind,
    Outgoing,
    RpcStart, //
};
use crate::proto::hostauth::{
    HostAuth,
    Policy,
    Verdict, //
};
use crate::proto::negotiate::{
    Answer,
    Memory,
    Negotiation,
    Time,
    Versions, //
};
use crate::proto::plan::Limits;
use crate::proto::property::{
    self,
    Properties,
    PropertySet, //
};
use crate::proto::types::{
    MsgType,
    Version,
    Xid, //
};
use crate::proto::v1;
use crate::proto::v2;
use crate::proto::xdr::Writer;

/// Which side opened the connection. It does not change with the direction of an RPC.
//= V1-029, V1-117, V2-168
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// This side did.
    Client,
    /// The peer did.
    Server,
}

/// What this side brings to its connections.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The versions to speak.
    pub versions: Versions,
    /// The private data sent while connecting, whatever the version will be.
    pub cm_private: CmPrivate,
    /// The properties to announce in version 2.
    pub properties: Properties,
    /// Version 1: for how many Calls of this side there are Receives for Replies.
    pub calls: u32,
    /// Version 1: how many Calls of the peer are taken at once.
    pub grants: u32,
    /// Version 2: for how many messages there are Receives.
    pub ceiling: u16,
    /// The longest RPC message taken in several parts.
    pub continued: u32,
    /// How long a peer may be silent while RPCs wait for it.
    pub keep_alive: Time,
    /// How long the answer to the first message may take.
    pub answer: Time,
    /// What is demanded of a peer's authentication.
    pub auth: Policy,
    /// Whether there is a mechanism that can judge authentication material.
    pub mechanism: bool,
}

/// The longest property set taken in several parts.
//= D-26
pub const MAX_PROPERTIES: u32 = 65536;

/// The longest message that this module composes on its own.
pub const MAX_CONTROL_LEN: usize = v2::PREFIX_LEN + property::SET_LEN;

/// An RPC message that arrived, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// The fixed words of the message.
    pub fixed: FixedWords,
    /// The header and the octets behind it.
    pub conveyed: Conveyed<'a>,
    /// Where in the RPC message these octets belong.
    pub part: Part,
    /// More parts follow; the chunk lists are in the last one.
    pub more: bool,
}

/// What an arriving message means to the caller.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Nothing.
    None,
    /// Nothing: the message could not be used and was dropped.
    Dropped,
    /// Nothing: the message was bad, and an error message for it waits to be sent.
    Refused(BadHeader),
    /// An RPC Call arrived, or a part of one. When it is complete, see
    /// [`responder::accept`](crate::proto::responder::accept).
    Call(Arrived<'a>),
    /// An RPC Reply arrived, or a part of one. When it is complete, see
    /// [`reply::check_conveyed`](crate::proto::reply::check_conveyed).
    Reply(Arrived<'a>),
    /// The peer refused a Call of this side; see [`retry::react`](crate::proto::retry::react).
    Error {
        /// The Call.
        xid: Xid,
        /// What the peer says.
        report: ErrorReport,
    },
    /// A Reply cannot be used: the RPC ends with an error.
    Failed {
        /// The RPC.
        xid: Xid,
        /// What is wrong.
        why: BadHeader,
    },
    /// A part of a property set arrived. When it is complete, the joined set is to be given to
    /// [`Connection::handle_properties`].
    Properties {
        /// The fixed words of the message.
        fixed: FixedWords,
        /// Where these octets belong.
        offset: u32,
        /// The octets.
        octets: &'a [u8],
        /// The set is complete.
        complete: bool,
    },
    /// The peer's authentication material, for the mechanism.
    HostAuth(&'a [u8]),
    /// The connection has to be closed.
    Close {
        /// Why.
        why: CloseReason,
        /// An RPC that ends with an error, and is not to be sent again.
        fail: Option<Xid>,
    },
}

/// Why a connection has to be closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// There is no version that both sides speak. Connecting again is of no use.
    NoCommonVersion,
    /// The peer changed the version.
    VersionChanged,
    /// The peer did not answer the first message in time.
    NoAnswer,
    /// The parts of a Reply do not belong together.
    BrokenSequence,
    /// The peer's receive buffers are too small for anything.
    SmallReceives,
    /// The peer did not prove who it is.
    NotAuthenticated,
    /// The peer sends bad messages faster than it takes the answers.
    ReportOverflow,
}

/// Why a message is not sent now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendError {
    /// The connection is not ready for RPCs. Try again after the next event.
    NotReady,
    /// The peer has granted no more. Try again after the next event.
    NoCredit,
    /// Another RPC message is being sent in parts and has to be finished first.
    Busy,
    /// The peer does not take such a message at all.
    NotSupported,
    /// The buffer is too short.
    NoRoom,
}

impl From<NoRoom> for SendError {
    fn from(_: NoRoom) -> Self {
        Self::NoRoom
    }
}

/// A message to be sent that [`Connection::poll_transmit`] composed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transmit {
    /// Its length.
    pub len: usize,
    /// It took a credit: its completion is to be reported with
    /// [`Connection::handle_sent`].
    pub credited: bool,
}

/// What was odd about the peer, counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Messages that were dropped.
    pub dropped: u64,
    /// Messages that were refused, or that failed an RPC.
    pub bad: u64,
    /// Grants of nothing.
    pub zero_grants: u64,
    /// Messages without a credit.
    pub overruns: u64,
}

/// The error messages that wait to be sent, in order.
#[derive(Clone, Copy, Debug)]
struct Reports {
    queue: [Option<(FixedWords, ErrorReport)>; Self::MAX],
}

impl Reports {
    const MAX: usize = 16;

    fn push(&mut self, fixed: FixedWords, report: ErrorReport) -> bool {
        match self.queue.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some((fixed, report));
                true
            }
            None => false,
        }
    }

    fn first(&self) -> Option<(FixedWords, ErrorReport)> {
        self.queue.first().copied().flatten()
    }

    fn pop(&mut self) {
        self.queue.rotate_left(1);
        if let Some(last) = self.queue.last_mut() {
            *last = None;
        }
    }
}

/// The protocol state of one connection.
#[derive(Clone, Debug)]
pub struct Connection {
    side: Side,
    config: Config,
    negotiation: Negotiation,
    own_xid: Xid,
    cm: cm_private::Effective,
    calls: CallCredits,
    send: SendCredits,
    recv: RecvCredits,
    /// What the peer announced in its first property set.
    peer: Option<Properties>,
    announced: bool,
    auth: HostAuth,
    assembler: Assembler,
    /// The RPC message that this side sends in parts.
    sending: Option<(Xid, MsgType)>,
    reports: Reports,
    overflow: bool,
    unusable: bool,
    /// An error message went out, which cannot give back the credit that it answers.
    owes_grant: bool,
    /// The peer has sent something since the last grant message.
    may_grant: bool,
    /// When something was last sent or received.
    active: Time,
    counters: Counters,
}

impl Connection {
    /// Starts a connection that this side opened.
    ///
    /// `first` comes from [`Memory::first`], and `xid` is this side's next XID: the first
    /// message is recognised by it. `peer` is the private data of the server.
    //= V1-043, V2-054, V2-058, V2-062, V2-067, D-12, D-20, D-32
    pub fn client(config: Config, first: Version, xid: Xid, peer: &[u8], now: Time) -> Self {
        let negotiation = Negotiation::client(config.versions, first, xid);
        Self::new(Side::Client, config, negotiation, xid, peer, now)
    }

    /// Starts a connection that the peer opened.
    ///
    /// `xid` is this side's next XID. `peer` is the private data of the client.
    //= D-12
    pub fn server(config: Config, xid: Xid, peer: &[u8], now: Time) -> Self {
        let negotiation = Negotiation::server(config.versions);
        Self::new(Side::Server, config, negotiation, xid, peer, now)
    }

    fn new(
        side: Side,
        config: Config,
        negotiation: Negotiation,
        own_xid: Xid,
        peer: &[u8],
        now: Time,
    ) -> Self {
        // The client may send one message before the server says anything.
        let (send, recv) = match side {
            Side::Client => (1, 0),
            Side::Server => (0, 1),
        };
        Self {
            side,
            config,
            negotiation,
            own_xid,
            cm: cm_private::Effective::new(&config.cm_private, &CmPrivate::decode(peer)),
            calls: CallCredits::new(config.calls),
            send: SendCredits::new(send),
            recv: RecvCredits::new(config.ceiling, recv),
            peer: None,
            announced: false,
            auth: HostAuth::new(config.auth),
            assembler: Assembler::new(),
            sending: None,
            reports: Reports {
                queue: [None; Reports::MAX],
            },
            overflow: false,
            unusable: false,
            owes_grant: false,
            may_grant: true,
            active: now,
            counters: Counters::default(),
        }
    }

    // What holds on the connection.

    /// Returns the version, once there is one. It may still change while
    /// [`is_settled`](Self::is_settled) says no.
    #[inline]
    pub const fn version(&self) -> Option<Version> {
        self.negotiation.version()
    }

    /// Says whether the version is final.
    #[inline]
    pub const fn is_settled(&self) -> bool {
        self.negotiation.is_settled()
    }

    /// Returns what was odd about the peer.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the Calls of this side on a version 1 connection.
    pub const fn calls(&self) -> &CallCredits {
        &self.calls
    }

    /// Returns what this side may still send on a version 2 connection.
    pub const fn send_credits(&self) -> &SendCredits {
        &self.send
    }

    /// Returns what the peer may still send on a version 2 connection.
    pub const fn recv_credits(&self) -> &RecvCredits {
        &self.recv
    }

    /// Says whether a message of a sequence to be sent is still missing.
    pub const fn is_sending_parts(&self) -> bool {
        self.sending.is_some()
    }

    /// Returns what was agreed with the private data. Only version 1 follows it.
    //= CM-032
    pub const fn cm(&self) -> &cm_private::Effective {
        &self.cm
    }

    /// Returns what both sides' properties make of a version 2 connection.
    //= V2-057, V2-063, V2-119, V2-138
    pub fn properties(&self) -> property::Effective {
        let peer = self.peer.unwrap_or(Properties::DEFAULT);
        property::Effective::new(&self.config.properties, &peer)
    }

    /// Returns the most octets of one Send.
    //= V1-019, V1-044, V1-047, V2-055, V2-057, V2-063, CM-032
    pub fn inline_send(&self) -> u32 {
        match self.version() {
            Some(Version::V2) => self.properties().inline_send,
            _ => self.cm.inline_send,
        }
    }

    /// Returns the most octets to expect in one Receive.
    //= V1-044, V1-047, V2-055, V2-057, V2-063, CM-032
    pub fn inline_recv(&self) -> u32 {
        match self.version() {
            Some(Version::V2) => self.properties().inline_recv,
            _ => self.cm.inline_recv,
        }
    }

    /// Narrows a device's limits to those of the connection.
    //= V1-019, V2-037, V2-055, V2-129, V2-130, V2-131, V2-170, V2-199, D-25, D-49
    pub fn apply(&self, limits: &mut Limits) {
        limits.version = self.version().unwrap_or(Version::V1);
        limits.inline_send = self.inline_send();
        limits.inline_recv = self.inline_recv();
        limits.continued_send = 0;
        limits.continued_recv = 0;
        if limits.version == Version::V2 {
            let properties = self.properties();
            limits.segment_bytes = limits.segment_bytes.min(properties.segment_size);
            limits.header_segments = limits.header_segments.min(properties.segments);
            limits.chunk_segments = limits.chunk_segments.min(properties.segments);
            limits.continued_send = self.config.continued;
            limits.continued_recv = self.config.continued;
        }
    }

    // What happened.

    /// A Send that had taken a credit has completed.
    #[inline]
    pub fn handle_sent(&mut self) {
        self.send.handle_sent();
    }

    /// The number of posted Receives has changed to `posted`.
    #[inline]
    pub fn handle_posted(&mut self, posted: u32) {
        self.recv.handle_posted(posted);
    }

    /// A Call of this side has ended, for whatever reason.
    #[inline]
    pub fn handle_call_ended(&mut self) {
        self.calls.finish();
    }

    /// The connection is over. `memory` is kept for the next one to the same server.
    ///
    /// An RPC message that was arriving in parts is gone.
    //= V2-062, D-15, D-24, D-32
    pub fn handle_lost(&mut self, now: Time, memory: &mut Memory) {
        self.assembler.abandon();
        self.negotiation.remember(now, memory);
        if self.unusable {
            memory.remember_v1(now);
        }
    }

    /// Time has passed.
    //= D-32
    pub fn handle_timeout(&mut self, now: Time) -> Event<'static> {
        match self.answer_due() {
            Some(due) if now >= due => self.close(CloseReason::NoAnswer),
            _ => Event::None,
        }
    }

    /// A mechanism has judged authentication material.
    //= V2-134, V2-135, D-50
    pub fn handle_auth(&mut self, verdict: Verdict) -> Event<'static> {
        self.auth.handle_verdict(verdict);
        self.check_auth().unwrap_or(Event::None)
    }

    /// A message arrived.
    #[inline]
    //= V1-004, V1-092, V1-110, V2-004, V2-064, V2-065, D-03, D-46
    pub fn handle_message<'a>(&mut self, now: Time, message: &'a [u8]) -> Event<'a> {
        let Some((fixed, rest)) = FixedWords::split(message) else {
            return self.drop_message();
        };
        let accepted = match self.version() {
            Some(version) => Some(version).filter(|v| v.number() == fixed.version),
            None => self.negotiation.versions().accept(fixed.version),
        };
        let event = match accepted {
            None => self.handle_other_version(&fixed),
            Some(Version::V1) => {
                let body = v1::decode(&fixed, rest);
                self.handle_v1(&fixed, body)
            }
            Some(Version::V2) => match v2::decode(&fixed, rest) {
                Some(message) => self.handle_v2(&fixed, message),
                None => self.drop_message(),
            },
        };
        if accepted.is_some() {
            self.active = now;
        }
        if self.overflow {
            return self.close(CloseReason::ReportOverflow);
        }
        event
    }

    fn drop_message(&mut self) -> Event<'static> {
        self.counters.dropped = self.counters.dropped.saturating_add(1);
        Event::Dropped
    }

    fn close(&mut self, why: CloseReason) -> Event<'static> {
        Event::Close { why, fail: None }
    }

    /// The message is of a version that is not known here, or not the connection's.
    ///
    /// Only the accepting side answers: the flags that say who should cannot be read.
    //= V1-094, V1-099, V2-004, V2-060, V2-065, V2-166, D-03, D-04, D-32
    fn handle_other_version(&mut self, fixed: &FixedWords) -> Event<'static> {
        if v1::is_error(fixed) {
            return self.drop_message();
        }
        match self.side {
            Side::Server => {
                let Versions { low, high } = self.negotiation.versions();
                let report = ErrorReport::Version {
                    low: low.number(),
                    high: high.number(),
                };
                self.refuse(fixed, report);
                Event::Refused(BadHeader::Type)
            }
            Side::Client if self.is_settled() => self.close(CloseReason::VersionChanged),
            Side::Client => self.drop_message(),
        }
    }

    /// The version is final from here on. Returns an event if the peer may not go on.
    fn settle(&mut self, version: Version) -> Option<Event<'static>> {
        if self.is_settled() {
            return None;
        }
        self.negotiation.settle(version);
        self.check_auth()
    }

    //= V2-135, D-50
    fn check_auth(&mut self) -> Option<Event<'static>> {
        let possible = self.config.mechanism && self.version() == Some(Version::V2);
        self.auth
            .is_refused(possible)
            .then(|| self.close(CloseReason::NotAuthenticated))
    }

    // Version 1.

    #[inline]
    //= V1-033, V1-035, V1-092, V1-099, V1-132, D-33
    fn handle_v1<'a>(
        &mut self,
        fixed: &FixedWords,
        body: Result<Body<'a>, BadHeader>,
    ) -> Event<'a> {
        if let Ok(Body::Error(report)) = body {
            return match report {
                Some(report) => self.handle_v1_error(fixed, report),
                None => self.drop_message(),
            };
        }
        if let Some(event) = self.settle(Version::V1) {
            return event;
        }
        let direction = v1_direction(fixed, &body, self.side);
        if direction == MsgType::Reply {
            self.calls.handle_grant(fixed.credit);
        }
        let checked = body.and_then(|body| check_v1(fixed, body, direction, self.side));
        match (checked, direction) {
            (Ok(conveyed), MsgType::Call) if self.auth.may_proceed() => {
                Event::Call(whole(fixed, conveyed))
            }
            (Ok(conveyed), MsgType::Reply) => Event::Reply(whole(fixed, conveyed)),
            (Ok(_), MsgType::Call) => self.refuse_header(fixed, BadHeader::NotAuthenticated),
            (Err(bad), MsgType::Call) => self.refuse_header(fixed, bad),
            (Err(why), MsgType::Reply) => self.fail(fixed.xid, why),
        }
    }

    //= V1-098, V1-099, D-05
    fn handle_v1_error(&mut self, fixed: &FixedWords, report: ErrorReport) -> Event<'static> {
        self.calls.handle_grant(fixed.credit);
        match report {
            ErrorReport::Version { low, high } => self.handle_err_vers(fixed, low, high),
            report => Event::Error {
                xid: fixed.xid,
                report,
            },
        }
    }

    fn fail(&mut self, xid: Xid, why: BadHeader) -> Event<'static> {
        self.counters.bad = self.counters.bad.saturating_add(1);
        Event::Failed { xid, why }
    }

    // Version 2.

    #[inline]
    //= V2-030, V2-044, V2-048, V2-143, D-03, D-10, D-11, D-12, D-13
    fn handle_v2<'a>(&mut self, fixed: &FixedWords, message: v2::Message<'a>) -> Event<'a> {
        if !matches!(message.body, Ok(Body::Grant)) && !self.recv.handle_message() {
            self.counters.overruns = self.counters.overruns.saturating_add(1);
        }
        self.may_grant = true;
        if let Ok(Body::Error(report)) = message.body {
            return self.handle_v2_error(fixed, message.flags.response, report);
        }
        let starting = !self.is_settled();
        let refused = self.settle(Version::V2);
        if message.has_credits() && !self.send.handle_grant(Grant::from_word(fixed.credit)) {
            self.counters.zero_grants = self.counters.zero_grants.saturating_add(1);
        }
        if starting {
            // Whatever the first message was, its sender is ready for one message.
            self.send.ensure_one();
        }
        if let Some(event) = refused {
            return event;
        }
        match message.body {
            Ok(Body::Conveyed(conveyed)) => self.handle_conveyed(fixed, message.flags, conveyed),
            Ok(Body::Properties(octets)) => {
                self.handle_property_part(fixed, message.flags.more, octets)
            }
            Ok(Body::Grant) => Event::None,
            Ok(Body::Error(_)) => self.drop_message(),
            Err(bad) => self.handle_bad(fixed, message.flags.response, bad),
        }
    }

    //= V1-098, V2-143, V2-163, V2-165, V2-166, D-04, D-05, D-12
    fn handle_v2_error(
        &mut self,
        fixed: &FixedWords,
        response: bool,
        report: Option<ErrorReport>,
    ) -> Event<'static> {
        if self.side == Side::Client && !self.is_settled() {
            self.send.ensure_one();
        }
        match report {
            Some(report) if response => match report {
                ErrorReport::Version { low, high } => self.handle_err_vers(fixed, low, high),
                report => Event::Error {
                    xid: fixed.xid,
                    report,
                },
            },
            _ => self.drop_message(),
        }
    }

    //= V1-094, V2-060, V2-061, V2-065, V2-165, D-05, D-32
    fn handle_err_vers(&mut self, fixed: &FixedWords, low: u32, high: u32) -> Event<'static> {
        match self.negotiation.handle_err_vers(fixed.xid, low, high) {
            Answer::Use(_) => {
                self.calls = CallCredits::new(self.config.calls);
                Event::None
            }
            Answer::NoCommonVersion => self.close(CloseReason::NoCommonVersion),
            Answer::Settled => Event::Error {
                xid: fixed.xid,
                report: ErrorReport::Version { low, high },
            },
            Answer::Ignore => self.drop_message(),
        }
    }

    #[inline]
    //= V2-020, V2-025, V2-026, V2-030, V2-032, V2-033, V2-037, V2-169, D-14, D-15, D-17, D-18, D-47
    fn handle_conveyed<'a>(
        &mut self,
        fixed: &FixedWords,
        flags: Flags,
        conveyed: Conveyed<'a>,
    ) -> Event<'a> {
        let response = flags.response;
        let part = match conveyed.kind {
            Kind::Nomsg if self.assembler.open().is_some() => {
                return self.handle_bad(fixed, response, BadHeader::BrokenSequence)
            }
            Kind::Nomsg => Part {
                offset: 0,
                len: 0,
                start: None,
                swallowed: false,
            },
            Kind::Msg => {
                let content = Content::Rpc { response };
                let payload = conveyed.payload;
                match self.assembler.add(fixed.xid, content, payload, flags.more) {
                    Ok(part) => part,
                    Err(bad) => return self.handle_bad(fixed, response, bad),
                }
            }
        };
        if part.swallowed {
            return Event::None;
        }
        if conveyed.kind == Kind::Msg {
            if let Err(bad) = check_start(fixed, part.start, flags) {
                return self.fail_sequence(fixed, response, bad);
            }
        }
        if (flags.more || part.offset != 0) && part.len > self.config.continued {
            return self.fail_sequence(fixed, response, BadHeader::TooLong);
        }
        let arrived = Arrived {
            fixed: *fixed,
            conveyed,
            part,
            more: flags.more,
        };
        if response {
            Event::Reply(arrived)
        } else if self.auth.may_proceed() {
            Event::Call(arrived)
        } else {
            self.fail_sequence(fixed, response, BadHeader::NotAuthenticated)
        }
    }

    /// The RPC message is bad, but its parts are in order: the rest is let pass.
    fn fail_sequence(
        &mut self,
        fixed: &FixedWords,
        response: bool,
        bad: BadHeader,
    ) -> Event<'static> {
        self.assembler.fail();
        if response {
            self.fail(fixed.xid, bad)
        } else {
            self.refuse_header(fixed, bad)
        }
    }

    /// The message is bad. If a sequence is open, it is broken by that.
    ///
    /// A bad message with a Call in it is answered, by whichever side. A bad Reply is not.
    //= V2-011, V2-031, V2-033, V2-034, V2-035, V2-141, V2-145, V2-146, V2-147, D-04, D-15
    fn handle_bad(&mut self, fixed: &FixedWords, response: bool, bad: BadHeader) -> Event<'static> {
        let sequence = self.assembler.abandon();
        let event = if response {
            self.fail(fixed.xid, bad)
        } else {
            self.refuse_header(fixed, bad)
        };
        match sequence {
            None => event,
            Some(sequence) => self.break_sequence(fixed, response, &sequence, event),
        }
    }

    //= V2-033, D-15
    fn break_sequence(
        &mut self,
        fixed: &FixedWords,
        response: bool,
        sequence: &Sequence,
        event: Event<'static>,
    ) -> Event<'static> {
        let why = CloseReason::BrokenSequence;
        if sequence.content == (Content::Rpc { response: true }) {
            let fail = Some(sequence.xid);
            return Event::Close { why, fail };
        }
        if response {
            let fail = Some(fixed.xid);
            return Event::Close { why, fail };
        }
        if sequence.xid != fixed.xid {
            let first = FixedWords {
                xid: sequence.xid,
                ..*fixed
            };
            self.refuse(&first, ErrorReport::InvalFlag);
        }
        event
    }

    // Properties.

    //= V2-032, V2-037, V2-139, D-26
    fn handle_property_part<'a>(
        &mut self,
        fixed: &FixedWords,
        more: bool,
        octets: &'a [u8],
    ) -> Event<'a> {
        let part = match self
            .assembler
            .add(fixed.xid, Content::Properties, octets, more)
        {
            Ok(part) => part,
            Err(bad) => return self.handle_bad(fixed, false, bad),
        };
        if part.swallowed {
            return Event::None;
        }
        if part.offset == 0 && !more {
            return self.handle_properties(fixed, octets);
        }
        if octets.is_empty() {
            return self.fail_sequence(fixed, false, BadHeader::NoPayload);
        }
        if part.len > MAX_PROPERTIES {
            return self.fail_sequence(fixed, false, BadHeader::TooLong);
        }
        Event::Properties {
            fixed: *fixed,
            offset: part.offset,
            octets,
            complete: !more,
        }
    }

    /// A property set is complete; `set` is all of it.
    ///
    /// The first one of a connection counts. Later ones bring authentication material only.
    //= V2-122, V2-123, V2-124, V2-132, V2-134, V2-138, D-21, D-24
    pub fn handle_properties<'a>(&mut self, fixed: &FixedWords, set: &'a [u8]) -> Event<'a> {
        let set = match PropertySet::decode(set) {
            Ok(set) => set,
            Err(bad) => return self.refuse_header(fixed, bad),
        };
        if self.peer.is_none() {
            let peer = Properties::DEFAULT.with(&set);
            if peer.recv_size < Properties::MIN_RECV_SIZE {
                self.unusable = true;
                return self.close(CloseReason::SmallReceives);
            }
            self.peer = Some(peer);
        }
        match set.hostauth {
            Some(material) if self.config.mechanism && self.auth.wants_material() => {
                Event::HostAuth(material)
            }
            _ => Event::None,
        }
    }

    // What the caller wants.

    /// Queues an error message that answers the message with these fixed words.
    //= V1-093, V2-142, V2-148
    pub fn refuse(&mut self, fixed: &FixedWords, report: ErrorReport) {
        self.overflow |= !self.reports.push(*fixed, report);
    }

    fn refuse_header(&mut self, fixed: &FixedWords, bad: BadHeader) -> Event<'static> {
        self.counters.bad = self.counters.bad.saturating_add(1);
        self.refuse(fixed, bad.report());
        Event::Refused(bad)
    }

    /// Writes the header of an RPC message, or of a part of one, and returns its length. The
    /// message is to be sent at once; its completion is to be reported.
    ///
    /// # Errors
    ///
    /// Nothing has happened then.
    #[inline]
    //= V1-006, V1-032, V1-036, V2-038, V2-040, V2-045, V2-047, V2-064, D-12, D-14
    pub fn send<C: Chunks + ?Sized>(
        &mut self,
        now: Time,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        if !self.auth.may_proceed() {
            return Err(SendError::NotReady);
        }
        let len = match self.version() {
            None => return Err(SendError::NotReady),
            Some(Version::V1) => self.send_v1(out, message, chunks)?,
            Some(Version::V2) => self.send_v2(out, message, chunks)?,
        };
        self.active = now;
        Ok(len)
    }

    //= V1-006, V1-032, V1-033, V1-034, V1-119, V1-120, V1-130, V1-131
    fn send_v1<C: Chunks + ?Sized>(
        &mut self,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        let mut calls = self.calls;
        let credit = match message.direction {
            MsgType::Call if !calls.start() => return Err(SendError::NoCredit),
            MsgType::Call => calls.requested(),
            MsgType::Reply => self.config.grants,
        };
        let len = v1::encode(out, message.xid, credit, message.kind, chunks)?;
        self.calls = calls;
        Ok(len)
    }

    //= V2-038, V2-040, V2-047, V2-054, V2-170, D-12, D-14, D-28, D-49
    fn send_v2<C: Chunks + ?Sized>(
        &mut self,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        let this = (message.xid, message.direction);
        if self.sending.is_some_and(|open| open != this) {
            return Err(SendError::Busy);
        }
        if !self.is_settled() || !self.announced && !self.replies_first(message.direction) {
            return Err(SendError::NotReady);
        }
        if self.side == Side::Server && message.direction == MsgType::Call {
            let explicit = message.kind == Kind::Nomsg
                || chunks.reads().next().is_some()
                || chunks.writes().next().is_some()
                || chunks.reply().is_some();
            if !self.properties().reverse.allows(explicit) {
                return Err(SendError::NotSupported);
            }
        }
        let (mut send, mut recv) = (self.send, self.recv);
        if !send.take() {
            return Err(SendError::NoCredit);
        }
        let len = v2::encode(out, message, recv.grant(), chunks)?;
        (self.send, self.recv) = (send, recv);
        self.owes_grant = false;
        self.sending = message.more.then_some(this);
        Ok(len)
    }

    /// With a single credit, a server answers the client's first Call before it announces
    /// anything.
    //= D-12
    fn replies_first(&self, direction: MsgType) -> bool {
        self.side == Side::Server && direction == MsgType::Reply && self.send.balance() == 1
    }

    /// Writes a message with authentication material, and returns its length.
    ///
    /// # Errors
    ///
    /// Nothing has happened then.
    //= V2-134, V2-197, D-50
    pub fn send_hostauth(&mut self, out: &mut [u8], material: &[u8]) -> Result<usize, SendError> {
        if !self.announced || !self.is_settled() {
            return Err(SendError::NotReady);
        }
        if self.sending.is_some() {
            return Err(SendError::Busy);
        }
        let (mut send, mut recv) = (self.send, self.recv);
        if !send.take() {
            return Err(SendError::NoCredit);
        }
        let prefix = v2::encode_properties(out, self.own_xid, recv.grant(), &[], false)?;
        let mut body = Writer::new(out.get_mut(prefix..).unwrap_or_default());
        property::encode_hostauth(&mut body, material)?;
        let len = prefix.saturating_add(body.len());
        (self.send, self.recv) = (send, recv);
        Ok(len)
    }

    // What is to be done.

    /// Returns when [`handle_timeout`](Self::handle_timeout) and then
    /// [`poll_transmit`](Self::poll_transmit) are to be called at the latest.
    ///
    /// `waiting` says whether RPCs of this side wait for the peer.
    //= D-32, D-51
    pub fn poll_timeout(&self, waiting: bool) -> Option<Time> {
        self.answer_due()
            .or_else(|| self.ping_due().filter(|_| waiting))
    }

    fn answer_due(&self) -> Option<Time> {
        (!self.is_settled() && self.version() == Some(Version::V2))
            .then(|| self.active.after(self.config.answer))
    }

    fn ping_due(&self) -> Option<Time> {
        (self.is_settled() && self.version() == Some(Version::V2))
            .then(|| self.active.after(self.config.keep_alive))
    }

    /// Composes the next message that is no RPC message, if one is to be sent now.
    ///
    /// `out` has [`MAX_CONTROL_LEN`] octets. `waiting` says whether RPCs of this side wait for
    /// the peer, and `busy` whether an RPC message is about to be sent, which will carry a grant.
    //= V1-092, V2-038, V2-039, V2-051, V2-116, D-11, D-12, D-14, D-20, D-51
    pub fn poll_transmit(
        &mut self,
        now: Time,
        waiting: bool,
        busy: bool,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let between_parts = self.sending.is_some();
        let transmit = if between_parts {
            None
        } else {
            self.transmit_report(out)
                .or_else(|| self.transmit_properties(out))
        };
        let transmit = transmit.or_else(|| self.transmit_grant(now, waiting, busy, out))?;
        self.active = now;
        Some(transmit)
    }

    //= V1-093, V1-094, V1-095, V2-029, V2-142, V2-143, D-02, D-11
    fn transmit_report(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let (fixed, report) = self.reports.first()?;
        let is_v2 = self.version() == Some(Version::V2);
        let mut send = self.send;
        if is_v2 && !send.take() {
            return None;
        }
        let len = match report {
            ErrorReport::Version { .. } => {
                v1::encode_error(out, &fixed, self.config.grants, report)
            }
            _ if is_v2 => v2::encode_error(out, &fixed, self.recv.no_grant(), report),
            _ => v1::encode_error(out, &fixed, self.config.grants, report),
        };
        let len = len.ok()?;
        self.reports.pop();
        self.send = send;
        self.owes_grant = is_v2;
        Some(Transmit {
            len,
            credited: is_v2,
        })
    }

    /// A client opens with its properties; a server answers the first message with its own.
    //= V2-058, V2-059, V2-136, V2-137, D-12, D-19, D-20
    fn transmit_properties(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let may_start = self.side == Side::Client || self.is_settled();
        if self.announced || !may_start || self.version() != Some(Version::V2) {
            return None;
        }
        let mut send = self.send;
        if !send.take() {
            return None;
        }
        let mut set = [0; property::SET_LEN];
        let mut body = Writer::new(&mut set);
        self.config.properties.encode(&mut body).ok()?;
        let mut recv = self.recv;
        let len = v2::encode_properties(out, self.own_xid, recv.grant(), &set, false).ok()?;
        (self.send, self.recv) = (send, recv);
        self.announced = true;
        self.owes_grant = false;
        Some(Transmit {
            len,
            credited: true,
        })
    }

    /// Grants credits without any payload when the peer runs short of them, when an error
    /// message could not give one back, and to find out whether a silent peer is alive.
    //= V2-051, V2-052, V2-053, D-11, D-51
    fn transmit_grant(
        &mut self,
        now: Time,
        waiting: bool,
        busy: bool,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let due = self.ping_due()?;
        let idle = now >= due;
        let carried = busy && self.send.balance() != 0;
        let short = self.recv.is_short() || self.owes_grant && self.recv.grantable() != 0;
        let useful = short && !carried && self.may_grant;
        if !useful && !(idle && (waiting || short)) {
            return None;
        }
        let mut recv = self.recv;
        let len = v2::encode_grant(out, recv.grant()).ok()?;
        self.recv = recv;
        self.owes_grant = false;
        self.may_grant = false;
        Some(Transmit {
            len,
            credited: false,
        })
    }
}

/// A whole RPC message in one message.
fn whole<'a>(fixed: &FixedWords, conveyed: Conveyed<'a>) -> Arrived<'a> {
    Arrived {
        fixed: *fixed,
        conveyed,
        part: Part {
            offset: 0,
            len: u32::try_from(conveyed.payload.len()).unwrap_or(u32::MAX),
            start: RpcStart::peek(conveyed.payload),
            swallowed: false,
        },
        more: false,
    }
}

/// Says whether a version 1 message concerns a Call of the peer or a Call of this side.
///
/// Its header does not tell, so an inline RPC message has to. What tells nothing counts as what
/// the peer usually sends.
//= V1-132
fn v1_direction(fixed: &FixedWords, body: &Result<Body<'_>, BadHeader>, side: Side) -> MsgType {
    let usual = match side {
        Side::Client => MsgType::Reply,
        Side::Server => MsgType::Call,
    };
    match body {
        Ok(Body::Conveyed(conveyed)) if conveyed.kind == Kind::Msg => {
            match RpcStart::peek(conveyed.payload) {
                // Whose Call it is cannot be told from a Reply that belongs to no RPC.
                Some(start) if start.xid != fixed.xid && side == Side::Server => usual,
                Some(start) => start.msg_type.unwrap_or(usual),
                None => usual,
            }
        }
        _ => usual,
    }
}

/// Checks what version 1 demands of a message beside its header.
//= V1-003, V1-024, V1-095, V1-130, V1-131, V1-133, D-47
fn check_v1<'a>(
    fixed: &FixedWords,
    body: Body<'a>,
    direction: MsgType,
    side: Side,
) -> Result<Conveyed<'a>, BadHeader> {
    let Body::Conveyed(conveyed) = body else {
        return Err(BadHeader::Type);
    };
    let reverse = match side {
        Side::Client => direction == MsgType::Call,
        Side::Server => direction == MsgType::Reply,
    };
    if reverse && !conveyed.chunks.is_empty() {
        return Err(BadHeader::Direction);
    }
    if conveyed.kind == Kind::Msg {
        let start = RpcStart::peek(conveyed.payload).ok_or(BadHeader::Truncated)?;
        if start.xid != fixed.xid {
            return Err(BadHeader::XidMismatch);
        }
        if start.msg_type != Some(direction) {
            return Err(BadHeader::Direction);
        }
    }
    Ok(conveyed)
}

/// Checks the first words of an RPC message against the header, as soon as they are there.
//= V2-014, V2-026, D-18, D-47
fn check_start(fixed: &FixedWords, start: Option<RpcStart>, flags: Flags) -> Result<(), BadHeader> {
    let Some(start) = start else {
        return if flags.more {
            Ok(())
        } else {
            Err(BadHeader::Truncated)
        };
    };
    let announced = if flags.response {
        MsgType::Reply
    } else {
        MsgType::Call
    };
    if start.xid != fixed.xid {
        Err(BadHeader::XidMismatch)
    } else if start.msg_type != Some(announced) {
        Err(BadHeader::Direction)
    } else {
        Ok(())
    }
}
