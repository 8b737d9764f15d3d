// SPDX-License-Identifier: GPL-2.0

//! The protocol's state of a connection, with a trace event for each call on it.
//!
//! The events `rpcrdma_protocol_*` are a record of all calls, which can be replayed on the protocol core
//! on any machine (`tools/proto/tests/replay.rs`). Therefore the endpoint and its roles have no other
//! access to a [`Connection`].

use super::{
    hostauth::SharedKey,
    now, //
};
use crate::{
    proto::{
        connection::{
            self,
            hostauth::Policy,
            negotiate::{
                Opening,
                PeerVersionMemo,
                Time, //
            },
            Arrived,
            Config,
            Connection,
            Event,
            SendError,
            Transmit, //
        },
        requester::plan::Limits,
        wire::{
            chunk::Chunks,
            error::ErrorReport,
            header::{
                FixedWords,
                Flags,
                Kind,
                Outgoing, //
            },
            property,
            types::{
                Handle,
                MsgType,
                Version,
                Xid, //
            },
            xdr::Writer, //
        },
    },
    support::trace, //
};
use kernel::prelude::*;

/// The number of bytes of an arriving message that are recorded: enough for any header.
const RECORDED: usize = 512;

/// The protocol's state of one connection.
pub(crate) struct Protocol {
    cid: u32,
    /// The last grant.
    grants: u32,
    /// This side's device may be told by the peer to invalidate memory, or tell the peer's.
    remote_invalidation: bool,
    /// The longest message in parts.
    continued: u32,
    connection: Connection,
    /// The handshake of host authentication, if the peer has to prove that it holds the key.
    hostauth: Option<KBox<SharedKey>>,
}

/// The terms for messages to the peer.
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

/// The facts about a connection that debugfs shows.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    /// The version of RPC-over-RDMA; 0 before there is one.
    pub(crate) version: u32,
    /// The terms for messages to the peer.
    pub(crate) terms: Terms,
    /// The most bytes to expect in one Receive.
    pub(crate) inline_recv: u32,
    /// The highest version that the peer has announced; 0 if it has announced nothing.
    pub(crate) announced: u8,
    /// The peer has proven that it has our key (version 2).
    pub(crate) authenticated: bool,
    /// The number of Calls of this side that may be in flight.
    pub(crate) credits: u32,
    /// Version 2: the credits for messages.
    pub(crate) messages: Option<Messages>,
}

/// The credits of version 2 in both directions, in messages.
#[derive(Clone, Copy)]
pub(crate) struct Messages {
    /// The messages that this side may send now.
    pub(crate) may_send: u32,
    /// The messages that this side may have in flight.
    pub(crate) send_ceiling: u32,
    /// The messages that the peer may send now.
    pub(crate) may_receive: u32,
    /// The messages that the peer may have in flight.
    pub(crate) recv_ceiling: u16,
}

impl Protocol {
    /// Calls [`Connection::client`], for connection number `cid`.
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

    /// Calls [`Connection::server`], for connection number `cid`.
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

    /// Sets the host authentication that the configuration of the connection requires.
    pub(super) fn with(mut self, hostauth: Option<KBox<SharedKey>>) -> Self {
        self.hostauth = hostauth;
        self
    }

    /// Gives authentication material of the peer to the handshake, and logs the result.
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

    /// Gives up waiting for the proof of the peer.
    #[cold]
    pub(super) fn give_up(&mut self) {
        let owed = self.settled() == Some(Version::V2) && !self.connection.is_authenticated();
        if let Some(hostauth) = self.hostauth.as_mut().filter(|_| owed) {
            hostauth.report();
        }
    }

    /// Composes a message with authentication material, if it is due.
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

    /// Calls [`Connection::set_grants`], and for version 2 [`Connection::set_ceiling`].
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

    /// Calls [`Connection::set_ceiling`].
    pub(super) fn set_ceiling(&mut self, messages: u16) {
        trace::protocol_ceiling(|| (self.cid, messages.into()));
        self.connection.set_ceiling(messages);
    }

    /// Calls [`Connection::refuse`].
    ///
    /// # Errors
    ///
    /// [`connection::CloseReason`]: the connection has to be closed.
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

    /// Calls [`Connection::send`].
    ///
    /// # Errors
    ///
    /// [`SendError`]: the message may not be sent now, or does not fit `out`.
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

    /// Calls [`Connection::handle_fast`].
    #[inline(always)]
    pub(super) fn handle_fast<'a>(
        &mut self,
        version: Version,
        kind: MsgType,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Option<Arrived<'a>> {
        let arrived = self
            .connection
            .handle_fast(version, kind, now, message, invalidated)?;
        self.trace_message(
            now,
            message,
            invalidated,
            arrived.into_event(kind).name(),
            arrived.fixed.xid,
        );
        Some(arrived)
    }

    /// Calls [`Connection::handle_fast_v2`].
    #[inline(always)]
    pub(super) fn handle_fast_v2<'a>(
        &mut self,
        kind: MsgType,
        now: Time,
        message: &'a [u8],
    ) -> Option<Arrived<'a>> {
        let arrived = self.connection.handle_fast_v2(kind, now, message)?;
        self.trace_message(
            now,
            message,
            None,
            arrived.into_event(kind).name(),
            arrived.fixed.xid,
        );
        Some(arrived)
    }

    /// Calls [`Connection::has_control_to_send`].
    #[inline]
    pub(super) fn has_control_to_send(&self) -> bool {
        self.connection.has_control_to_send()
    }

    /// Calls [`Connection::handle_message`].
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

    /// Traces a message, with the time of its arrival and the event of the core.
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

    /// Calls [`Connection::handle_properties`].
    pub(super) fn handle_properties<'a>(
        &mut self,
        fixed: &FixedWords,
        flags: Flags,
        set: &'a [u8],
    ) -> Event<'a> {
        let event = self.connection.handle_properties(fixed, flags, set);
        self.authenticate(event)
    }

    /// Calls [`Connection::handle_call_ended`].
    #[inline]
    pub(crate) fn handle_call_ended(&mut self) {
        trace::protocol_ended(|| (self.cid,));
        self.connection.handle_call_ended();
    }

    /// Calls [`Connection::poll_transmit`] when no message of the role is about to be sent.
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

    /// Returns whether Calls of this side wait for their Replies on a version 2 connection.
    fn is_waiting(&self) -> bool {
        self.is_version2() && self.connection.calls().outstanding() != 0
    }

    /// Returns whether no time-out will ever be due, as in version 1 once it is settled.
    pub(super) fn needs_no_time(&self) -> bool {
        let version1 = self.connection.is_settled() && !self.is_version2();
        version1 && self.poll_timeout().is_none()
    }

    /// Calls [`Connection::poll_timeout`].
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.connection.poll_timeout(self.is_waiting())
    }

    /// Calls [`Connection::handle_timeout`].
    pub(super) fn handle_timeout(&mut self, now: Time) -> Event<'static> {
        let event = self.connection.handle_timeout(now);
        trace::protocol_timeout(|| (self.cid, now.0, event.name()));
        self.authenticate(event)
    }

    /// Calls [`Connection::handle_sent`].
    pub(super) fn handle_sent(&mut self, count: u32) {
        trace::protocol_sent(|| (self.cid, count));
        self.connection.handle_sent(count);
    }

    /// Calls [`Connection::handle_posted`] if the number has changed.
    #[inline]
    pub(super) fn count_posted(&mut self, receives: u32) {
        if receives != self.connection.recv_credits().posted() {
            trace::protocol_posted(|| (self.cid, receives));
            self.connection.handle_posted(receives);
        }
    }

    /// Returns the number of messages for `calls` Calls of the peer: the Calls, and the Replies to all Calls
    /// that this side may make.
    pub(super) fn messages_for(&self, calls: u32) -> u16 {
        let replies = self.connection.calls().requested();
        u16::try_from(calls.saturating_add(replies)).unwrap_or(u16::MAX)
    }

    /// Returns the number of consecutive Sends that need no completion, if the protocol counts Sends.
    pub(super) fn unsignaled(&self) -> Option<u32> {
        let sent = self.connection.send_credits();
        self.is_version2().then(|| sent.unsignaled())
    }

    /// Returns the largest number of parts of a message that waits for credits for all of them: the
    /// peer grants more as soon as this side has less than half of its ceiling.
    //= D-11
    pub(crate) fn most_parts(&self) -> u32 {
        self.connection.send_credits().ceiling().div_ceil(2)
    }

    /// Calls [`Connection::is_joining`].
    pub(super) fn is_joining(&self) -> bool {
        self.connection.is_joining()
    }

    /// Calls [`Connection::may_go_on`].
    pub(super) fn may_go_on(&self) -> bool {
        self.connection.may_go_on()
    }

    /// Calls [`Connection::may_send`].
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

    /// Calls [`Connection::opens_by_call`].
    pub(crate) fn opens_by_call(&self) -> bool {
        self.connection.opens_by_call()
    }

    /// Calls [`Connection::is_asking`].
    pub(super) fn is_asking(&self) -> bool {
        self.connection.is_asking()
    }

    /// The version, if it will not change any more, even if the peer has still to speak it.
    pub(super) fn lasting_version(&self) -> Option<Version> {
        let may_change = self.connection.may_change_version();
        self.connection.version().filter(|_| !may_change)
    }

    /// Returns whether the connection speaks version 2, or tries to.
    #[inline]
    pub(crate) fn is_version2(&self) -> bool {
        self.connection.version() == Some(Version::V2)
    }

    /// Calls [`Connection::remember`].
    pub(crate) fn remember(&self, now: Time, memory: &mut PeerVersionMemo) {
        self.connection.remember(now, memory);
    }

    /// Returns the number of Calls of this side that may be in flight.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        self.connection.calls().limit()
    }

    /// Returns the number of Calls of this side that may be in flight, or in version 2 of messages that it
    /// may send now, for traces.
    #[cold]
    #[inline(never)]
    fn may_send_now(&self) -> u32 {
        if self.is_version2() {
            self.connection.send_credits().balance()
        } else {
            self.limit()
        }
    }

    /// Returns whether only a Reply can bring a credit for another Call of this side (version 1).
    //= V1-036, V1-037
    pub(super) fn needs_reply(&self) -> bool {
        !self.connection.calls().has_room()
    }

    /// Returns the terms for messages to the peer.
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

    /// Calls [`Connection::is_authenticated`].
    pub(super) fn is_authenticated(&self) -> bool {
        self.connection.is_authenticated()
    }

    /// Returns the facts about the connection.
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

    /// Calls [`Connection::apply`].
    ///
    /// A message in parts is sent when there are credits for all parts, so that it never has to be finished
    /// later.
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
