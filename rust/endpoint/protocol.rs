// SPDX-License-Identifier: GPL-2.0

//! The protocol's state of a connection, with the calls on it traced.
//!
//! Whoever enables the events `rpcrdma_protocol_*` gets a record that the protocol core can be
//! driven with once more, on any machine (`tools/proto/tests/replay.rs`). Therefore the endpoint
//! and its roles have no other way to a [`Connection`].

use super::{
    hostauth::SharedKey,
    now, //
};
use crate::{
    proto::{
        chunk::Chunks,
        connection::{
            self,
            Arrived,
            Config,
            Connection,
            Event,
            SendError,
            Transmit, //
        },
        error::ErrorReport,
        header::{
            FixedWords,
            Flags,
            Kind,
            Outgoing, //
        },
        hostauth::Policy,
        negotiate::{
            Memory,
            Opening,
            Time, //
        },
        plan::Limits,
        property,
        types::{
            Handle,
            MsgType,
            Version,
            Xid, //
        },
        xdr::Writer, //
    },
    support::trace, //
};
use kernel::prelude::*;

/// How many bytes of an arriving message are recorded: its header, whatever it has.
const RECORDED: usize = 512;

/// The protocol's state of one connection.
pub(crate) struct Protocol {
    cid: u32,
    /// What was granted last.
    grants: u32,
    /// This side's device may be told by the peer to invalidate memory, or tell the peer's.
    remote_invalidation: bool,
    /// The longest message in parts.
    continued: u32,
    connection: Connection,
    /// What the peer has to prove, if anything.
    hostauth: Option<KBox<SharedKey>>,
}

/// What a message to the peer goes by.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// The version of RPC-over-RDMA.
    pub(crate) version: Version,
    /// The most bytes of one Send.
    pub(crate) inline_send: u32,
    /// The most bytes of Payload stream that are sent in several messages.
    pub(crate) continued: u32,
    /// One side may invalidate registrations of the other with its Replies.
    pub(crate) remote_invalidation: bool,
}

/// What holds on a connection, for those who watch it.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    /// The version of RPC-over-RDMA; 0 before there is one.
    pub(crate) version: u32,
    /// What a message to the peer goes by.
    pub(crate) terms: Terms,
    /// The most bytes to expect in one Receive.
    pub(crate) inline_recv: u32,
    /// The highest version that the peer has announced; 0 if it has announced nothing.
    pub(crate) announced: u8,
    /// The peer has proven that it has our key (version 2).
    pub(crate) authenticated: bool,
    /// How many Calls of this side may be in flight.
    pub(crate) credits: u32,
    /// Version 2: the credits for messages.
    pub(crate) messages: Option<Messages>,
}

/// How many messages may be sent and may arrive now, and at a time.
#[derive(Clone, Copy)]
pub(crate) struct Messages {
    /// What this side may send.
    pub(crate) may_send: u32,
    /// What it may have under way.
    pub(crate) send_ceiling: u32,
    /// What the peer may send.
    pub(crate) may_receive: u32,
    /// What it may have under way.
    pub(crate) recv_ceiling: u16,
}

impl Protocol {
    /// As [`Connection::client`], for connection number `cid`.
    pub(crate) fn client(
        cid: u32,
        config: &Config,
        opening: Opening,
        private_data: &[u8],
        now: Time,
    ) -> Self {
        let connection = Connection::client(*config, opening, private_data, now);
        let in_band = opening != Opening::Announced;
        Self::new(cid, config, in_band, connection, private_data, now)
    }

    /// As [`Connection::server`], for connection number `cid`.
    pub(crate) fn server(cid: u32, config: &Config, private_data: &[u8], now: Time) -> Self {
        let connection = Connection::server(*config, private_data, now);
        Self::new(cid, config, false, connection, private_data, now)
    }

    fn new(
        cid: u32,
        config: &Config,
        in_band: bool,
        connection: Connection,
        private_data: &[u8],
        now: Time,
    ) -> Self {
        let first = connection.version().map_or(0, Version::number);
        trace_begin(cid, config, in_band, first, private_data, now);
        Self {
            cid,
            grants: config.grants,
            remote_invalidation: config.cm_private.remote_invalidation,
            continued: config.continued,
            connection,
            hostauth: None,
        }
    }

    /// Goes by `hostauth` in what the configuration of the connection demands of the peer.
    pub(super) fn with(mut self, hostauth: Option<KBox<SharedKey>>) -> Self {
        self.hostauth = hostauth;
        self
    }

    /// Has material of the peer judged; tells the administrator what comes of it.
    #[inline]
    fn authenticate<'a>(&mut self, event: Event<'a>) -> Event<'a> {
        let Some(hostauth) = &mut self.hostauth else {
            return event;
        };
        let event = match event {
            Event::HostAuth(material) => {
                let verdict = hostauth.judge(material);
                if hostauth.pending().is_some() {
                    self.connection.owe_hostauth();
                }
                self.connection.handle_auth(verdict)
            }
            other => other,
        };
        let is_closed = matches!(
            event,
            Event::Close {
                why: connection::CloseReason::NotAuthenticated,
                ..
            }
        );
        if is_closed || self.connection.is_given_up() {
            hostauth.report();
        }
        event
    }

    /// Nobody waits any longer for what the peer has to prove.
    #[cold]
    pub(super) fn give_up(&mut self) {
        let owed = self.settled() == Some(Version::V2) && !self.connection.is_authenticated();
        if let Some(hostauth) = self.hostauth.as_mut().filter(|_| owed) {
            hostauth.report();
        }
    }

    /// Composes a message with what this side has to prove, if it is time for that.
    #[cold]
    fn transmit_proof(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let hostauth = self.hostauth.as_mut()?;
        let len = self
            .connection
            .send_hostauth(out, hostauth.pending()?)
            .ok()?;
        hostauth.sent();
        Some(Transmit {
            len,
            credited: true,
        })
    }

    /// As [`Connection::set_grants`], and for version 2 as [`Connection::set_ceiling`].
    #[inline]
    pub(super) fn set_grants(&mut self, grants: u32) {
        if grants != self.grants {
            trace::svc_credits(|| (self.cid, grants));
            trace::protocol_grants(|| (self.cid, grants));
            self.grants = grants;
            self.connection.set_grants(grants);
            self.set_ceiling(self.messages_for(grants));
        }
    }

    /// As [`Connection::set_ceiling`].
    pub(super) fn set_ceiling(&mut self, messages: u16) {
        trace::protocol_ceiling(|| (self.cid, messages.into()));
        self.connection.set_ceiling(messages);
    }

    /// As [`Connection::refuse`].
    pub(super) fn refuse(
        &mut self,
        fixed: &FixedWords,
        report: ErrorReport,
    ) -> Result<(), connection::CloseReason> {
        trace::protocol_refuse(|| {
            let FixedWords {
                xid,
                version,
                credit,
                htype,
            } = *fixed;
            let [first, second] = report.arguments();
            let code = report.code();
            (self.cid, xid.0, version, credit, htype, code, first, second)
        });
        self.connection.refuse(fixed, report)
    }

    /// As [`Connection::send`].
    #[inline]
    pub(super) fn send<C: Chunks + ?Sized>(
        &mut self,
        now: Time,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        let result = self.connection.send(now, out, message, chunks);
        trace::protocol_send(|| {
            (
                self.cid,
                now.0,
                message.xid.0,
                message.direction == MsgType::Call,
                message.kind == Kind::Nomsg,
                message.more,
                result.map_or_else(|error| error.number().into(), |_| 0),
                result
                    .ok()
                    .and_then(|len| out.get(..len))
                    .unwrap_or_default(),
                self.may_send_now(),
            )
        });
        result
    }

    /// As [`Connection::handle_usual`].
    #[inline(always)]
    pub(super) fn handle_usual<'a>(
        &mut self,
        version: Version,
        kind: MsgType,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Option<Arrived<'a>> {
        let arrived = self
            .connection
            .handle_usual(version, kind, now, message, invalidated)?;
        self.trace_message(
            now,
            message,
            invalidated,
            arrived.into_event(kind).name(),
            arrived.fixed.xid,
        );
        Some(arrived)
    }

    /// As [`Connection::handle_plain_v2`].
    #[inline(always)]
    pub(super) fn handle_plain_v2<'a>(
        &mut self,
        kind: MsgType,
        now: Time,
        message: &'a [u8],
    ) -> Option<Arrived<'a>> {
        let arrived = self.connection.handle_plain_v2(kind, now, message)?;
        self.trace_message(
            now,
            message,
            None,
            arrived.into_event(kind).name(),
            arrived.fixed.xid,
        );
        Some(arrived)
    }

    /// As [`Connection::has_to_tell`].
    #[inline]
    pub(super) fn has_to_tell(&self) -> bool {
        self.connection.has_to_tell()
    }

    /// As [`Connection::handle_message`].
    pub(super) fn handle_message<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Event<'a> {
        let event = self.connection.handle_message(now, message, invalidated);
        let xid = event.xid().unwrap_or(Xid(0));
        self.trace_message(now, message, invalidated, event.name(), xid);
        self.authenticate(event)
    }

    /// Traces a message: from when it is, and what the core has made of it.
    #[inline(always)]
    fn trace_message(
        &self,
        now: Time,
        message: &[u8],
        invalidated: Option<Handle>,
        event: &'static str,
        xid: Xid,
    ) {
        trace::protocol_message(|| {
            (
                self.cid,
                now.0,
                message.len() as u32,
                invalidated.map_or(0, |handle| handle.0),
                message.get(..RECORDED).unwrap_or(message),
                event,
                xid.0,
                self.may_send_now(),
            )
        });
    }

    /// As [`Connection::handle_properties`].
    pub(super) fn handle_properties<'a>(
        &mut self,
        fixed: &FixedWords,
        flags: Flags,
        set: &'a [u8],
    ) -> Event<'a> {
        let event = self.connection.handle_properties(fixed, flags, set);
        self.authenticate(event)
    }

    /// As [`Connection::handle_call_ended`].
    #[inline]
    pub(crate) fn handle_call_ended(&mut self) {
        trace::protocol_ended(|| (self.cid,));
        self.connection.handle_call_ended();
    }

    /// As [`Connection::poll_transmit`], with nothing to wait for.
    pub(super) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let waiting = self.is_waiting();
        let transmit = match self.connection.poll_transmit(now, waiting, false, out) {
            Some(transmit) => transmit,
            None => self.transmit_proof(out)?,
        };
        trace::protocol_transmit(|| {
            let bytes = out.get(..transmit.len).unwrap_or_default();
            (self.cid, now.0, waiting, false, bytes)
        });
        Some(transmit)
    }

    /// Whether Calls of this side wait for their Replies, on a version 2 connection.
    fn is_waiting(&self) -> bool {
        self.is_version2() && self.connection.calls().outstanding() != 0
    }

    /// Whether nothing will ever be due, as in version 1, once that is settled.
    pub(super) fn needs_no_time(&self) -> bool {
        let version1 = self.connection.is_settled() && !self.is_version2();
        version1 && self.poll_timeout().is_none()
    }

    /// As [`Connection::poll_timeout`].
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.connection.poll_timeout(self.is_waiting())
    }

    /// As [`Connection::handle_timeout`].
    pub(super) fn handle_timeout(&mut self, now: Time) -> Event<'static> {
        let event = self.connection.handle_timeout(now);
        trace::protocol_timeout(|| (self.cid, now.0, event.name()));
        self.authenticate(event)
    }

    /// As [`Connection::handle_sent`].
    pub(super) fn handle_sent(&mut self, count: u32) {
        trace::protocol_sent(|| (self.cid, count));
        self.connection.handle_sent(count);
    }

    /// As [`Connection::handle_posted`], when that changes something.
    #[inline]
    pub(super) fn count_posted(&mut self, receives: u32) {
        if receives != self.connection.recv_credits().posted() {
            trace::protocol_posted(|| (self.cid, receives));
            self.connection.handle_posted(receives);
        }
    }

    /// How many messages there are for so many Calls of the peer: those, and Replies to as many
    /// Calls as this side may make.
    pub(super) fn messages_for(&self, calls: u32) -> u16 {
        let replies = self.connection.calls().requested();
        u16::try_from(calls.saturating_add(replies)).unwrap_or(u16::MAX)
    }

    /// How many Sends in a row need no completion, if the protocol counts them.
    pub(super) fn unsignaled(&self) -> Option<u32> {
        let sent = self.connection.send_credits();
        self.is_version2().then(|| sent.unsignaled())
    }

    /// In how many parts a message may be that waits for credits for all of them: the peer gives more
    /// as soon as this side has less than half of its ceiling.
    //= D-11
    pub(crate) fn most_parts(&self) -> u32 {
        self.connection.send_credits().ceiling().div_ceil(2)
    }

    /// As [`Connection::is_joining`].
    pub(super) fn is_joining(&self) -> bool {
        self.connection.is_joining()
    }

    /// As [`Connection::may_go_on`].
    pub(super) fn may_go_on(&self) -> bool {
        self.connection.may_go_on()
    }

    /// As [`Connection::may_send`].
    #[inline]
    pub(super) fn may_send(&self, direction: MsgType, parts: u32) -> bool {
        self.connection.may_send(now, direction, parts)
    }

    /// Calls [`Connection::may_take_call`].
    #[inline]
    pub(super) fn may_take_call(&self, taken: u32) -> bool {
        self.connection.may_take_call(taken)
    }

    /// The version, if it is final.
    fn settled(&self) -> Option<Version> {
        let is_settled = self.connection.is_settled();
        self.connection.version().filter(|_| is_settled)
    }

    /// As [`Connection::opens_by_call`].
    pub(crate) fn opens_by_call(&self) -> bool {
        self.connection.opens_by_call()
    }

    /// As [`Connection::is_asking`].
    pub(super) fn is_asking(&self) -> bool {
        self.connection.is_asking()
    }

    /// The version, if it will not change any more, even if the peer has still to speak it.
    pub(super) fn lasting_version(&self) -> Option<Version> {
        let may_change = self.connection.may_change_version();
        self.connection.version().filter(|_| !may_change)
    }

    /// Whether the connection speaks version 2, or tries to.
    #[inline]
    pub(crate) fn is_version2(&self) -> bool {
        self.connection.version() == Some(Version::V2)
    }

    /// As [`Connection::remember`].
    pub(crate) fn remember(&self, now: Time, memory: &mut Memory) {
        self.connection.remember(now, memory);
    }

    /// How many Calls of this side may be in flight.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        self.connection.calls().limit()
    }

    /// How many Calls of this side may be in flight, or in version 2 how many messages it may send now;
    /// for traces.
    #[cold]
    #[inline(never)]
    fn may_send_now(&self) -> u32 {
        if self.is_version2() {
            self.connection.send_credits().balance()
        } else {
            self.limit()
        }
    }

    /// Whether nothing but a Reply brings a credit for another Call of this side (version 1).
    //= V1-036, V1-037
    pub(super) fn needs_reply(&self) -> bool {
        !self.connection.calls().has_room()
    }

    /// What a message to the peer goes by.
    pub(crate) fn terms(&self) -> Terms {
        let inline_send = self.connection.inline_send();
        if self.is_version2() {
            Terms {
                version: Version::V2,
                inline_send,
                continued: self.continued,
                remote_invalidation: self.remote_invalidation,
            }
        } else {
            Terms {
                version: Version::V1,
                inline_send,
                continued: 0,
                remote_invalidation: self.connection.cm().remote_invalidation,
            }
        }
    }

    /// As [`Connection::is_authenticated`].
    pub(super) fn is_authenticated(&self) -> bool {
        self.connection.is_authenticated()
    }

    /// What holds on the connection.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            version: self.connection.version().map_or(0, Version::number),
            terms: self.terms(),
            inline_recv: self.connection.inline_recv(),
            announced: self
                .connection
                .announcement()
                .map_or(0, |announcement| announcement.highest),
            authenticated: self.connection.is_authenticated(),
            credits: self.limit(),
            messages: self.messages(),
        }
    }

    fn messages(&self) -> Option<Messages> {
        if !self.is_version2() {
            return None;
        }
        let (send, recv) = (
            self.connection.send_credits(),
            self.connection.recv_credits(),
        );
        Some(Messages {
            may_send: send.balance(),
            send_ceiling: send.ceiling(),
            may_receive: recv.balance(),
            recv_ceiling: recv.ceiling(),
        })
    }

    /// As [`Connection::apply`].
    ///
    /// A message in parts is sent when there are credits for all of them, so that nobody has to
    /// finish it.
    pub(crate) fn apply(&self, limits: &mut Limits) {
        self.connection.apply(limits);
        let (send, recv) = self.connection.continued_at_once();
        limits.continued_send = limits.continued_send.min(send);
        limits.longest_send = limits.longest_send.min(send);
        limits.continued_recv = limits.continued_recv.min(recv);
    }
}

/// Traces the begin of a connection. `first` is the version that the connecting side begins with, and 0
/// on the accepting side. `in_band` says that it does not come from the announcement of the server.
fn trace_begin(
    cid: u32,
    config: &Config,
    in_band: bool,
    first: u32,
    private_data: &[u8],
    now: Time,
) {
    let mut set = [0; property::SET_LEN];
    // It has room for all of them.
    let _ = config.properties.encode(&mut Writer::new(&mut set));
    trace::protocol_config(|| {
        (
            cid,
            config.ceiling.into(),
            config.continued,
            config.keep_alive.0,
            config.answer.0,
            config.auth != Policy::Ignore,
            in_band,
            &set[..],
        )
    });
    trace::protocol_connect(|| {
        (
            cid,
            now.0,
            first,
            config.versions.low.number(),
            config.versions.high.number(),
            config.cm_private.remote_invalidation,
            config.cm_private.send_size,
            config.cm_private.recv_size,
            config.calls,
            config.grants,
            config.xid.0,
            private_data,
        )
    });
}

impl Drop for Protocol {
    fn drop(&mut self) {
        trace::protocol_lost(|| (self.cid,));
    }
}
