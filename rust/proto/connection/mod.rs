// SPDX-License-Identifier: GPL-2.0

//! The state machine of one connection, of either version and either side.
//!
//! [`negotiate`] settles the version. [`credit`] keeps the credits of both sides, and [`continuation`] joins
//! messages in parts. [`hostauth`] says which messages are allowed before the proof of the peer, [`shared_key`]
//! has the proof, and [`host`] the hosts that a key or a setting names. These modules do not depend on
//! [`Connection`]. A [`record::Recorder`] gets all calls that change a connection.
//!
//! [`Connection`] does no I/O. Its methods are of four kinds:
//!
//! * `handle_*` report an event: a message arrived, a Send completed, time passed. Report Send
//!   completions before the messages that arrived after them. Report Receives
//!   ([`handle_posted`](Connection::handle_posted)) when they are posted. Report Receives that stay with
//!   their messages before the next message is composed: a message grants no more credits than there are
//!   Receives (D-10).
//! * Commands ([`send`](Connection::send), [`refuse`](Connection::refuse), …) encode into memory of the
//!   caller. A command that is not possible now is refused.
//! * `poll_*` return work to do: after every other call, call
//!   [`poll_transmit`](Connection::poll_transmit) until it returns `None`, and then
//!   [`poll_timeout`](Connection::poll_timeout). A settled version 1 client transmits only after
//!   [`Event::Refused`], and has no time-out.
//! * All other methods only read.
//!
//! One lock protects all of it: credit words and sequences are in the order of the Sends, so a message of
//! [`send`](Connection::send) is posted before the next message is composed.
//!
//! After an [`Event::Close`] the connection is to be closed; nothing more is sent on it.

use crate::proto::{
    connection::{
        continuation::{
            Assembler,
            Content,
            PlacedPart, //
        },
        credit::{
            CallCredits,
            RecvCredits,
            SendCredits, //
        },
        hostauth::{
            HostAuth,
            Policy,
            Verdict, //
        },
        negotiate::{
            Negotiation,
            Opening,
            PeerVersionMemo,
            Time,
            Versions, //
        },
        record::Recorder,
    },
    requester::plan::Limits,
    wire::{
        cm_private::{
            self,
            Announcement,
            CmPrivate, //
        },
        error::{
            BadHeader,
            ErrorReport,
            NoRoom, //
        },
        header::{
            Conveyed,
            FixedWords,
            Flags, //
        },
        property::{
            self,
            Properties, //
        },
        types::{
            MsgType,
            Version,
            Xid, //
        },
        v2, //
    },
};

pub use crate::proto::wire::types::Side;

pub mod continuation;
pub mod credit;
pub mod host;
pub mod hostauth;
pub mod negotiate;
mod receive;
pub mod record;
pub mod shared_key;
mod transmit;

/// The configuration of this side.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The versions to speak.
    pub versions: Versions,
    /// The private data sent while connecting, for either version.
    pub cm_private: CmPrivate,
    /// The properties to announce in version 2.
    pub properties: Properties,
    /// Version 2: an XID that no RPC of this side has. Property sets go by it. With zero, a client
    /// announces nothing, and opens the connection by a Call: the server is known to say nothing to
    /// a CONNPROP.
    pub xid: Xid,
    /// Version 1: the number of Calls of this side with Receives for their Replies.
    pub calls: u32,
    /// Version 1: the number of Calls of the peer that are accepted at once.
    pub grants: u32,
    /// Version 2: the number of messages with Receives.
    pub ceiling: u16,
    /// The longest RPC message taken in several parts.
    pub continued: u32,
    /// The longest silence of a peer while RPCs wait for it.
    pub keep_alive: Time,
    /// The longest wait for the answer to the first message.
    pub answer: Time,
    /// The policy for the authentication of the peer.
    pub auth: Policy,
}

impl Config {
    /// Returns the private data to send while connecting.
    //= CM-002, VA-001
    pub fn private_data(&self) -> [u8; cm_private::LEN] {
        let announcement = Announcement::of(self.versions.high);
        cm_private::encode(&self.cm_private, announcement)
    }

    /// Returns the length of a Receive that is posted when `version` is settled, or with `None` before a
    /// version is settled.
    ///
    /// The version may change while the first messages are in flight, so the longer of both lengths
    /// applies to them.
    //= V1-045, V1-046, V2-056
    //= V2-067, V2-128, D-24
    pub fn receive_size(&self, version: Option<Version>) -> u32 {
        let v1 = self.cm_private.recv_size.max(Version::V1.default_inline());
        let v2 = self.properties.recv_size.max(Version::V2.default_inline());
        match version {
            Some(Version::V1) => v1,
            Some(Version::V2) => v2,
            None if self.versions.high == Version::V1 => v1,
            None => v1.max(v2),
        }
    }

    /// Returns the length of a Send buffer, which has room for the messages of the version.
    pub fn send_size(&self, version: Option<Version>) -> u32 {
        let (v1, v2) = (self.cm_private.send_size, self.properties.send_size);
        match version {
            Some(Version::V1) => v1,
            Some(Version::V2) => v2,
            None if self.versions.high == Version::V1 => v1,
            None => v1.max(v2),
        }
    }
}

/// The longest property set taken in several parts.
//= D-26
pub const MAX_PROPERTIES: u32 = 65536;

/// The longest message that is no RPC message, unless material of a mechanism that is not here is
/// longer: all properties, with authentication material.
pub const MAX_CONTROL_LEN: usize =
    v2::PREFIX_LEN + property::SET_LEN + property::HOSTAUTH_LEN + shared_key::MAX_LEN;

// Each peer takes a message of this length before its RBSIZ is known.
const _: () = assert!(MAX_CONTROL_LEN <= Properties::MIN_RECV_SIZE as usize);

/// An RPC message that arrived, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// The fixed words of the message.
    pub fixed: FixedWords,
    /// The header and the bytes behind it.
    pub conveyed: Conveyed<'a>,
    /// The place of these bytes in the RPC message.
    pub part: PlacedPart,
    /// More parts follow; the chunk lists are in the last one.
    pub more: bool,
}

impl<'a> Arrived<'a> {
    /// Returns the version that it is of.
    #[inline]
    pub fn version(&self) -> Version {
        Version::from_number(self.fixed.version).unwrap_or(Version::V1)
    }

    /// Returns it as the event that it is, being of that kind.
    #[inline]
    pub const fn into_event(self, kind: MsgType) -> Event<'a> {
        match kind {
            MsgType::Call => Event::Call(self),
            MsgType::Reply => Event::Reply(self),
        }
    }
}

/// The result of an arriving message or of a time-out for the caller.
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
    /// [`reply::check_conveyed`](crate::proto::requester::reply::check_conveyed). A handle that the peer has invalidated
    /// with it must name memory of this RPC: the requester closes the connection if the handle names memory
    /// of another RPC, or if the RPC does not wait for a Reply.
    Reply(Arrived<'a>),
    /// The peer refused a Call of this side; see [`retry::react`](crate::proto::requester::retry::react).
    Error {
        /// The Call.
        xid: Xid,
        /// The refusal.
        report: ErrorReport,
    },
    /// A Reply cannot be used: the RPC ends with an error. It may have invalidated memory like
    /// a good one.
    Failed {
        /// The RPC.
        xid: Xid,
        /// The error in the message.
        why: BadHeader,
    },
    /// RPC messages may be sent from now on. Told once on a version 2 connection, after the first
    /// message that has no event of its own, but not where a Call opens it. A version 1 client may
    /// send at once, and a server when a Call has arrived.
    Ready,
    /// The connection goes on with another version: [`Connection::version`] says which, and
    /// limits are to be [applied](Connection::apply) anew.
    VersionChanged {
        /// A Call that the peer has refused for its version, and that is to be sent again.
        refused: Option<Xid>,
    },
    /// A part of a property set arrived. When it is complete, the joined set is to be given to
    /// [`Connection::handle_properties`].
    Properties {
        /// The fixed words of the message.
        fixed: FixedWords,
        /// Its flags; the set is complete when no more follows.
        flags: Flags,
        /// The offset of these bytes.
        offset: u32,
        /// The bytes.
        octets: &'a [u8],
    },
    /// The peer's authentication material, for the mechanism.
    HostAuth(&'a [u8]),
    /// The connection has to be closed.
    Close {
        /// The reason.
        why: CloseReason,
        /// An RPC that ends with an error, and is not to be sent again.
        fail: Option<Xid>,
    },
}

impl Event<'_> {
    /// Returns the name of an RPC message for traces.
    pub(super) const fn name_of(kind: MsgType) -> &'static str {
        match kind {
            MsgType::Call => "call",
            MsgType::Reply => "reply",
        }
    }

    /// Returns a name for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Dropped => "dropped",
            Self::Refused(_) => "refused",
            Self::Call(_) => Self::name_of(MsgType::Call),
            Self::Reply(_) => Self::name_of(MsgType::Reply),
            Self::Error { .. } => "error",
            Self::Failed { .. } => "failed",
            Self::Ready => "ready",
            Self::VersionChanged { .. } => "version",
            Self::Properties { .. } => "properties",
            Self::HostAuth(_) => "hostauth",
            Self::Close { .. } => "close",
        }
    }

    /// Returns the XID of the RPC that it concerns.
    pub const fn xid(&self) -> Option<Xid> {
        match self {
            Self::Call(arrived) | Self::Reply(arrived) => Some(arrived.fixed.xid),
            Self::Error { xid, .. } | Self::Failed { xid, .. } => Some(*xid),
            Self::VersionChanged { refused: xid } | Self::Close { fail: xid, .. } => *xid,
            _ => None,
        }
    }
}

/// The reason why a connection has to be closed.
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
    /// The peer did not prove its identity.
    NotAuthenticated,
    /// The peer sends bad messages faster than it takes the answers.
    ReportOverflow,
    /// The peer invalidated memory with a message that is no Reply.
    Invalidated,
    /// This side does not finish a message in parts.
    Abandoned,
}

impl CloseReason {
    /// Returns the reason in words, for traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCommonVersion => "no common version",
            Self::VersionChanged => "version changed",
            Self::NoAnswer => "no answer",
            Self::BrokenSequence => "broken sequence",
            Self::SmallReceives => "small receives",
            Self::NotAuthenticated => "not authenticated",
            Self::ReportOverflow => "too many bad messages",
            Self::Invalidated => "invalidated without a Reply",
            Self::Abandoned => "a message was not finished",
        }
    }
}

/// The reason why a message is not sent now.
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
    /// The buffer is too short, or the peer's are.
    NoRoom,
}

impl SendError {
    /// Returns a number for traces; zero is none of them.
    pub const fn number(self) -> u8 {
        match self {
            Self::NotReady => 1,
            Self::NoCredit => 2,
            Self::Busy => 3,
            Self::NotSupported => 4,
            Self::NoRoom => 5,
        }
    }
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

/// Counters of unusual messages of the peer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Messages that were dropped.
    pub dropped: u64,
    /// Messages that were refused, or that failed an RPC.
    pub bad: u64,
    /// Credit words with a half of zero.
    pub zero_grants: u64,
    /// Messages that the peer had no credit for.
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

    #[inline]
    fn is_empty(&self) -> bool {
        matches!(self.queue.first(), None | Some(None))
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

/// The progress of a server with its first message that is no error (version 2).
//= D-12
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FirstMessage {
    /// It is the property set.
    Properties,
    /// A whole Call is the last message of the client and has no answer: the Reply goes first if there
    /// is a single credit.
    Reply,
    /// It has been sent.
    Over,
}

/// The protocol state of one connection. `R` records the calls that change it.
#[derive(Clone, Debug)]
pub struct Connection<R = ()> {
    recorder: R,
    side: Side,
    config: Config,
    negotiation: Negotiation,
    cm: cm_private::Agreement,
    /// The peer has sent the message of RFC 8797.
    has_cm_private: bool,
    calls: CallCredits,
    send: SendCredits,
    recv: RecvCredits,
    /// The announcement of the peer.
    announcement: Option<Announcement>,
    /// The peer's first property set.
    peer: Option<Properties>,
    announced: bool,
    /// [`Event::Ready`] is still to be told.
    control_pending: bool,
    first_message: FirstMessage,
    auth: HostAuth,
    /// The time when this side began.
    began: Time,
    assembler: Assembler,
    /// The message that this side sends in parts.
    sending: Option<(Xid, Content)>,
    reports: Reports,
    unusable: bool,
    /// An error message went out, which cannot give back the credit that it answers.
    owes_grant: bool,
    /// The time of the last grant without payload.
    granted: Time,
    /// The time of the last message in either direction.
    active: Time,
    counters: Counters,
}

impl Connection {
    /// Starts a connection that this side opened, without a recorder.
    ///
    /// `peer` is the private data of the server.
    pub fn client(config: Config, opening: Opening, peer: &[u8], now: Time) -> Self {
        Self::recorded_client((), config, opening, peer, now)
    }

    /// Starts a connection that the peer opened, without a recorder.
    ///
    /// `peer` is the private data of the client.
    pub fn server(config: Config, peer: &[u8], now: Time) -> Self {
        Self::recorded_server((), config, peer, now)
    }
}

impl<R: Recorder> Connection<R> {
    /// Starts a connection that this side opened.
    ///
    /// `peer` is the private data of the server.
    //= V1-043, V2-054, V2-058
    //= V2-062, D-12, D-20
    //= D-32, VA-007, VA-008
    //= VA-009, D-53
    pub fn recorded_client(
        recorder: R,
        mut config: Config,
        opening: Opening,
        peer: &[u8],
        now: Time,
    ) -> Self {
        let given = config;
        let first = match opening {
            Opening::Announced => {
                config.versions = config.versions.announced_by(Announcement::decode(peer));
                config.versions.high
            }
            Opening::InBand(first) => first,
        };
        let by_call = config.xid == Xid(0);
        let negotiation = Negotiation::client(config.versions, first).opening(by_call);
        let in_band = opening != Opening::Announced;
        recorder.began(&given, in_band, negotiation.version(), peer, now);
        let mut client = Self::new(recorder, Side::Client, config, negotiation, peer, now);
        if by_call {
            // The server uses the defaults.
            client.announced = true;
            client.control_pending = false;
            let send_size = Properties::DEFAULT
                .send_size
                .min(config.properties.send_size);
            client.config.properties = Properties {
                send_size,
                ..Properties::DEFAULT
            };
        }
        client
    }

    /// Starts a connection that the peer opened.
    ///
    /// `peer` is the private data of the client.
    //= D-12
    pub fn recorded_server(recorder: R, config: Config, peer: &[u8], now: Time) -> Self {
        let negotiation = Negotiation::server(config.versions);
        recorder.began(&config, false, negotiation.version(), peer, now);
        Self::new(recorder, Side::Server, config, negotiation, peer, now)
    }

    fn new(
        recorder: R,
        side: Side,
        config: Config,
        negotiation: Negotiation,
        peer: &[u8],
        now: Time,
    ) -> Self {
        // The client may send one message before the server says anything.
        let (send, recv) = match side {
            Side::Client => (1, 0),
            Side::Server => (0, 1),
        };
        Self {
            recorder,
            side,
            config,
            negotiation,
            cm: cm_private::Agreement::new(&config.cm_private, &CmPrivate::decode(peer)),
            has_cm_private: CmPrivate::find(peer).is_some(),
            calls: CallCredits::new(config.calls),
            send: SendCredits::new(send),
            recv: RecvCredits::new(config.ceiling, recv),
            announcement: Announcement::find(peer).map(|(_, found)| found),
            peer: None,
            announced: false,
            control_pending: true,
            first_message: FirstMessage::Properties,
            auth: HostAuth::new(config.auth),
            began: now,
            assembler: Assembler::new(),
            sending: None,
            reports: Reports {
                queue: [None; Reports::MAX],
            },
            unusable: false,
            owes_grant: false,
            granted: now,
            active: now,
            counters: Counters::default(),
        }
    }

    // Properties of the connection.

    /// Returns the version, once there is one. It may still change while
    /// [`is_settled`](Self::is_settled) says no.
    #[inline]
    pub const fn version(&self) -> Option<Version> {
        self.negotiation.version()
    }

    /// Returns whether the connection speaks version 2, or tries to.
    #[inline]
    pub fn is_version2(&self) -> bool {
        self.version() == Some(Version::V2)
    }

    /// Returns the configuration of this side.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether the version is final.
    #[inline]
    pub const fn is_settled(&self) -> bool {
        self.negotiation.is_settled()
    }

    /// Returns whether Calls of this side have to wait until the version is settled.
    pub fn is_asking(&self) -> bool {
        !self.is_settled() && !self.negotiation.opens_by_call()
    }

    /// Returns whether the version may still become another one.
    pub fn may_change_version(&self) -> bool {
        self.negotiation.may_change()
    }

    /// Returns whether the peer has proven its identity.
    pub fn is_authenticated(&self) -> bool {
        self.auth.is_proven()
    }

    /// Returns the announcement of the peer, if there was one in its private data.
    pub const fn announcement(&self) -> Option<Announcement> {
        self.announcement
    }

    /// Returns whether the peer is ignored because it has sent an RPC message before its proof.
    pub fn is_given_up(&self) -> bool {
        self.auth.is_given_up()
    }

    /// Returns the counters of unusual messages of the peer.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the Calls of this side on a version 1 connection.
    pub const fn calls(&self) -> &CallCredits {
        &self.calls
    }

    /// Returns the number of Calls of this side that may be in flight, or in version 2 of messages that it may
    /// send now. For records.
    #[cold]
    #[inline(never)]
    pub fn may_send_now(&self) -> u32 {
        match self.version() {
            Some(Version::V2) => self.send.balance(),
            _ => self.calls.limit(),
        }
    }

    /// Returns the credits of this side on a version 2 connection.
    pub const fn send_credits(&self) -> &SendCredits {
        &self.send
    }

    /// Returns the credits of the peer on a version 2 connection.
    pub const fn recv_credits(&self) -> &RecvCredits {
        &self.recv
    }

    /// Returns whether a message of a sequence to be sent is still missing.
    pub const fn is_sending_parts(&self) -> bool {
        self.sending.is_some()
    }

    /// Returns whether the later parts of a message are needed. If not, the caller drops the joined parts.
    //= V2-037, D-15
    pub fn is_joining(&self) -> bool {
        self.assembler.open().is_some_and(|open| !open.has_failed())
    }

    /// Returns the agreement by private data, which only version 1 uses.
    //= CM-032
    pub const fn cm(&self) -> &cm_private::Agreement {
        &self.cm
    }

    /// Returns the effective properties of a version 2 connection. A Call that opens it has to be as short as
    /// in version 1.
    //= V2-057, V2-058, V2-063
    //= V2-119, V2-138, D-20
    pub fn properties(&self) -> property::Effective {
        let peer = self.peer.unwrap_or(Properties::DEFAULT);
        let mut effective = property::Effective::new(&self.config.properties, &peer);
        if self.opens_by_call() {
            effective.inline_send = effective.inline_send.min(Version::V1.default_inline());
        }
        effective
    }

    /// Returns whether a Call opens the connection, or is to: less holds until the version is settled.
    #[inline]
    pub fn opens_by_call(&self) -> bool {
        self.negotiation.opens_by_call()
    }

    /// Returns the most bytes of one Send.
    //= V1-019, V1-044, V1-047
    //= V2-055, V2-057, V2-063
    //= CM-032
    pub fn inline_send(&self) -> u32 {
        match self.version() {
            Some(Version::V2) => self.properties().inline_send,
            _ => self.cm.inline_send,
        }
    }

    /// Returns the most bytes to expect in one Receive.
    //= V1-044, V1-047, V2-055
    //= V2-057, V2-063, CM-032
    pub fn inline_recv(&self) -> u32 {
        match self.version() {
            Some(Version::V2) => self.properties().inline_recv,
            _ => self.cm.inline_recv,
        }
    }

    /// Returns the length of the longest Payload stream in parts, to the peer and from the peer, whose sender
    /// may wait for all credits at once. A receiver grants more credits when less than half of its ceiling is
    /// left, so the sender of a longer stream would wait for ever. 0 in version 1.
    //= V2-037, V2-038, D-11
    pub fn continued_at_once(&self) -> (u32, u32) {
        if self.version() != Some(Version::V2) {
            return (0, 0);
        }
        let bytes = |ceiling: u32, threshold: u32| {
            let each = threshold.saturating_sub(Version::V2.empty_header_len()) & !3;
            // The chunk lists in the last message take some of it.
            (ceiling / 2).saturating_sub(1).saturating_mul(each)
        };
        let most = self.config.continued;
        (
            bytes(self.send.ceiling(), self.inline_send()).min(most),
            bytes(self.recv.ceiling().into(), self.inline_recv()).min(most),
        )
    }

    /// Lowers a device's limits to the limits of the connection.
    //= V1-019, V2-037, V2-055
    //= V2-129, V2-130, V2-131
    //= V2-199, D-25
    pub fn apply(&self, limits: &mut Limits) {
        limits.version = self.version().unwrap_or(Version::V1);
        limits.inline_send = self.inline_send();
        limits.inline_recv = self.inline_recv();
        limits.continued_send = 0;
        limits.continued_recv = 0;
        limits.longest_send = 0;
        limits.longest_recv = 0;
        if limits.version == Version::V2 {
            let properties = self.properties();
            limits.segment_bytes = limits.segment_bytes.min(properties.segment_size);
            limits.header_segments = limits.header_segments.min(properties.segments);
            limits.chunk_segments = limits.chunk_segments.min(properties.segments);
            if !self.opens_by_call() {
                // The first message is not in parts.
                limits.continued_send = self.config.continued;
                // No property has the longest message that the peer joins.
                limits.longest_send = u32::MAX;
            }
            limits.continued_recv = self.config.continued;
            limits.longest_recv = self.config.continued;
        }
        //= D-54
        if limits.version == Version::V1 && self.side == Side::Client && !self.has_cm_private {
            *limits = limits.with_pads();
        }
        //= V1-133, V2-170, D-49
        if self.side == Side::Server {
            // No memory of this side is named in Calls to the client, nor memory for its Replies.
            limits.read_chunks = 0;
            limits.write_chunks = 0;
            limits.chunk_segments = 0;
            limits.long_call = false;
        }
    }

    // Events.

    /// Accounts the completion of the oldest `count` Sends that had taken a credit.
    ///
    /// Sends complete in order, so one completion may stand for all before it. Ask for one when
    /// [`wants_completion`](Self::wants_completion) says so.
    #[inline]
    pub fn handle_sent(&mut self, count: u32) {
        self.recorder.sent(count);
        self.send.handle_sent(count);
    }

    /// Returns whether the message composed last has to have a completion that is reported: without
    /// it, the peer's ceiling would be reached by Sends that completed long ago.
    //= V2-047, D-09
    pub const fn wants_completion(&self) -> bool {
        self.send.wants_completion()
    }

    /// Changes the number of Calls of this side with Receives, from the next Call on.
    //= V1-032
    pub fn set_calls(&mut self, calls: u32) {
        self.config.calls = calls;
        self.calls.set_max(calls);
    }

    /// Changes the number of Calls of this side for whose Replies there are Receives, from the next Call on.
    //= V1-032, V1-122
    pub fn set_ready(&mut self, calls: u32) {
        self.recorder.ready(calls);
        self.calls.set_ready(calls);
    }

    /// Changes the number of Calls of the peer that are accepted at once, from the next Reply on.
    /// When it grows, the Receives for them have been posted already. Returns whether the number has changed.
    #[inline]
    //= V1-033, V1-035
    pub fn set_grants(&mut self, grants: u32) -> bool {
        if grants == self.config.grants {
            return false;
        }
        self.recorder.grants(grants);
        self.config.grants = grants;
        true
    }

    /// Changes the number of messages with Receives, from the next message on.
    //= V2-049
    pub fn set_ceiling(&mut self, ceiling: u16) {
        self.recorder.ceiling(ceiling);
        self.config.ceiling = ceiling;
        self.recv.set_ceiling(ceiling);
    }

    /// Sets the number of posted Receives.
    #[inline]
    pub fn handle_posted(&mut self, posted: u32) {
        if posted != self.recv.posted() {
            self.recorder.posted(posted);
            self.recv.handle_posted(posted);
        }
    }

    /// Accounts the end of a Call of this side, for any reason.
    #[inline]
    pub fn handle_call_ended(&mut self) {
        self.recorder.call_ended();
        self.calls.finish();
    }

    /// Abandons the later parts of an RPC message: its Call was given up, or refused half-way. The parts that
    /// the peer has cannot be taken back, and no other message may be sent before the last part.
    //= V2-040, D-14, D-15
    pub fn abandon(&mut self, xid: Xid) -> Event<'static> {
        match self.sending {
            Some((open, Content::Rpc { .. })) if open == xid => self.close(CloseReason::Abandoned),
            _ => Event::None,
        }
    }

    /// Ends the connection. `memory` is kept for the next connection to the same server.
    ///
    /// An RPC message that was arriving in parts is gone.
    //= V2-062, D-15, D-24
    //= D-32
    pub fn handle_lost(&mut self, now: Time, memory: &mut PeerVersionMemo) {
        self.assembler.abandon();
        self.remember(now, memory);
    }

    /// Updates `memory` with the server's versions, as far as this connection has shown them.
    //= V2-062, D-32
    pub fn remember(&self, now: Time, memory: &mut PeerVersionMemo) {
        self.negotiation.remember(now, memory);
        if self.unusable {
            memory.remember_v1(now);
        }
    }

    /// Handles the time-outs that are due at `now`.
    //= V2-135, D-32, D-50
    pub fn handle_timeout(&mut self, now: Time) -> Event<'static> {
        let event = self.time_out(now);
        self.recorder.timeout(now, event.name());
        event
    }

    fn time_out(&mut self, now: Time) -> Event<'static> {
        if let Some(refused) = self.check_auth() {
            return refused;
        }
        if self.proof_due().is_some_and(|due| now >= due) {
            return self.close(CloseReason::NotAuthenticated);
        }
        match self.answer_due() {
            Some(due) if now >= due => self.close(CloseReason::NoAnswer),
            _ => Event::None,
        }
    }

    /// Handles the verdict of the mechanism about authentication material.
    //= V2-134, V2-135, D-50
    pub fn handle_auth(&mut self, verdict: Verdict) -> Event<'static> {
        self.auth.handle_verdict(verdict);
        match self.check_auth() {
            Some(refused) => refused,
            None => self.report_ready_once(Event::None),
        }
    }

    /// Puts [`Event::Ready`] in the place of nothing, when it is time for it.
    //= D-12, D-20
    fn report_ready_once<'a>(&mut self, event: Event<'a>) -> Event<'a> {
        let v2 = self.is_settled() && self.version() == Some(Version::V2);
        if matches!(event, Event::None) && self.control_pending && v2 && self.auth.may_proceed() {
            self.control_pending = false;
            return Event::Ready;
        }
        event
    }

    fn close(&mut self, why: CloseReason) -> Event<'static> {
        Event::Close { why, fail: None }
    }

    //= V2-135, D-50
    fn check_auth(&mut self) -> Option<Event<'static>> {
        self.is_refused()
            .then(|| self.close(CloseReason::NotAuthenticated))
    }

    /// Returns whether the peer is refused because it has not proven its identity. Before the version is settled, it
    /// may become a version that carries authentication material. A client that has chosen another version is
    /// [ignored](HostAuth::give_up).
    //= VA-012, D-50
    fn is_refused(&self) -> bool {
        let can_carry = self.side == Side::Server || self.version() != Some(Version::V1);
        self.auth.is_refused(can_carry)
    }

    // When something is due.

    /// Returns when [`handle_timeout`](Self::handle_timeout) and then
    /// [`poll_transmit`](Self::poll_transmit) are to be called at the latest.
    ///
    /// `waiting` is true if RPCs of this side wait for the peer. A time that has passed already
    /// means at once, as on a connection on which the peer can never prove its identity.
    //= D-32, D-50, D-51
    pub fn poll_timeout(&self, waiting: bool) -> Option<Time> {
        if self.is_refused() {
            return Some(self.active);
        }
        let answer_due = self.answer_due().or_else(|| self.announcement_due());
        let next = answer_due.or_else(|| self.ping_due().filter(|_| waiting));
        let dues = [next, self.proof_due(), self.grant_due()];
        dues.into_iter().flatten().min()
    }

    /// Returns the time by which the peer must have proven its identity: the time for both first
    /// messages together.
    //= V2-135, D-50
    fn proof_due(&self) -> Option<Time> {
        let answer = self.config.answer;
        (!self.auth.may_proceed()).then(|| self.began.after(answer).after(answer))
    }

    /// Returns the time by which the server's answer to a CONNPROP is due. The Reply to a Call has no such time.
    fn answer_due(&self) -> Option<Time> {
        (self.is_asking() && self.version() == Some(Version::V2))
            .then(|| self.active.after(self.config.answer))
    }

    /// Returns the time at which a server announces its properties although the Reply that precedes them is
    /// missing.
    fn announcement_due(&self) -> Option<Time> {
        let held = self.first_message == FirstMessage::Reply && self.side == Side::Server;
        (held && !self.announced && self.is_settled())
            .then(|| self.active.after(self.config.answer))
    }

    /// Returns when a grant without payload may follow another one, although no message of the peer shows
    /// that it has looked at that.
    //= V2-052, D-11
    fn grant_due(&self) -> Option<Time> {
        let waits = self.owes_credits() && !self.recv.may_grant_alone();
        let due = self.granted.after(self.config.answer);
        self.ping_due().filter(|_| waits).map(|ping| ping.min(due))
    }

    /// Returns whether the peer may be waiting for credits that this side has, or for a lower ceiling.
    //= V2-051, D-11
    fn owes_credits(&self) -> bool {
        self.recv.is_short() || self.owes_grant && self.recv.grantable() != 0
    }

    fn ping_due(&self) -> Option<Time> {
        (self.announced && self.is_settled() && self.version() == Some(Version::V2))
            .then(|| self.active.after(self.config.keep_alive))
    }
}
