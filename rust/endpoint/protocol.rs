// SPDX-License-Identifier: GPL-2.0

//! The protocol's state of a connection, with the handshake of host authentication and the numbers that the endpoint
//! derives from it.

use super::{
    hostauth::SharedKey,
    recorder::TraceRecorder, //
};
use crate::proto::{
    connection::{
        negotiate::{
            Opening,
            Time, //
        },
        CloseReason,
        Config,
        Connection,
        Event,
        Transmit, //
    },
    requester::plan::Limits,
    wire::{
        header::{
            FixedWords,
            Flags, //
        },
        types::{
            Handle,
            Version, //
        },
    },
};
use core::ops::{
    Deref,
    DerefMut, //
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print, //
};

/// The protocol's state of one connection. The methods of [`Connection`] are available. The methods of the same
/// name here add the handshake of host authentication.
pub(crate) struct Protocol {
    connection: Connection<TraceRecorder>,
    /// The handshake of host authentication, if the peer has to prove that it holds the key.
    hostauth: Option<KBox<SharedKey>>,
}

impl Deref for Protocol {
    type Target = Connection<TraceRecorder>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.connection
    }
}

impl DerefMut for Protocol {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.connection
    }
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
    /// The number of Calls of this side that the peer permits to be in flight.
    pub(crate) credits: u32,
    /// The number of Calls of this side without a Reply.
    pub(crate) outstanding: u32,
    /// Version 2: the credits for messages.
    pub(crate) messages: Option<Messages>,
}

impl Facts {
    /// Prints the facts; `peer` is `client` or `server`. Context: process, may sleep.
    pub(crate) fn show(&self, seq: &SeqFile, peer: &str) {
        let terms = self.terms;
        seq_print!(seq, "version={}\n", self.version);
        seq_print!(seq, "announced={}\n", self.announced);
        seq_print!(seq, "inline_send={}\n", terms.inline_send);
        seq_print!(seq, "inline_recv={}\n", self.inline_recv);
        let invalidates = u32::from(terms.remote_invalidation);
        seq_print!(seq, "remote_invalidation={invalidates}\n");
        seq_print!(seq, "authenticated={}\n", u32::from(self.authenticated));
        seq_print!(seq, "credits={}\n", self.credits);
        seq_print!(seq, "outstanding={}\n", self.outstanding);
        if let Some(messages) = self.messages {
            seq_print!(seq, "may_send={}\n", messages.may_send);
            seq_print!(seq, "{peer}_ceiling={}\n", messages.send_ceiling);
            seq_print!(seq, "{peer}_may_send={}\n", messages.may_receive);
            seq_print!(seq, "ceiling={}\n", messages.recv_ceiling);
        }
    }
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
    /// Returns the protocol of connection number `cid` that this side opened: see [`Connection::client`].
    pub(crate) fn client(
        cid: u32,
        config: &Config,
        opening: Opening,
        private_data: &[u8],
        now: Time,
    ) -> Self {
        let recorder = TraceRecorder { cid };
        Self::new(Connection::recorded_client(
            recorder,
            *config,
            opening,
            private_data,
            now,
        ))
    }

    /// Returns the protocol of connection number `cid` that the peer opened: see [`Connection::server`].
    pub(crate) fn server(cid: u32, config: &Config, private_data: &[u8], now: Time) -> Self {
        let recorder = TraceRecorder { cid };
        Self::new(Connection::recorded_server(
            recorder,
            *config,
            private_data,
            now,
        ))
    }

    fn new(connection: Connection<TraceRecorder>) -> Self {
        Self {
            connection,
            hostauth: None,
        }
    }

    /// Sets the host authentication that the configuration of the connection requires.
    pub(super) fn with(mut self, hostauth: Option<KBox<SharedKey>>) -> Self {
        self.hostauth = hostauth;
        self
    }

    // Calls of the protocol core with the handshake of host authentication.

    /// Calls [`Connection::handle_message`], and gives authentication material to the handshake.
    pub(super) fn handle_message<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Event<'a> {
        let event = self.connection.handle_message(now, message, invalidated);
        self.authenticate(event)
    }

    /// Calls [`Connection::handle_properties`], and gives authentication material to the handshake.
    pub(super) fn handle_properties<'a>(
        &mut self,
        fixed: &FixedWords,
        flags: Flags,
        set: &'a [u8],
    ) -> Event<'a> {
        let event = self.connection.handle_properties(fixed, flags, set);
        self.authenticate(event)
    }

    /// Calls [`Connection::handle_timeout`], and logs if the peer has not proven its identity in time.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Event<'static> {
        let event = self.connection.handle_timeout(now);
        self.authenticate(event)
    }

    /// Calls [`Connection::poll_transmit`] when no message of the role is about to be sent. Composes a message with
    /// authentication material if there is no other message.
    pub(super) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let waiting = self.is_waiting();
        match self.connection.poll_transmit(now, waiting, false, out) {
            Some(transmit) => Some(transmit),
            None => self.transmit_proof(now, out),
        }
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
                why: CloseReason::NotAuthenticated,
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
        let is_version2 = self.is_settled() && self.is_version2();
        let owed = is_version2 && !self.connection.is_authenticated();
        if let Some(hostauth) = self.hostauth.as_mut().filter(|_| owed) {
            hostauth.report();
        }
    }

    /// Composes a message with authentication material, if it is due.
    #[cold]
    fn transmit_proof(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let hostauth = self.hostauth.as_mut()?;
        let len = self
            .connection
            .send_hostauth(now, out, hostauth.pending()?)
            .ok()?;
        hostauth.sent();
        Some(Transmit {
            len,
            credited: true,
        })
    }

    // Numbers that the endpoint derives.

    /// Calls [`Connection::set_grants`], and for version 2 [`Connection::set_ceiling`]. Returns whether the number has
    /// changed.
    #[inline]
    pub(crate) fn set_grants(&mut self, grants: u32) -> bool {
        let changed = self.connection.set_grants(grants);
        if changed {
            let messages = self.messages_for(grants);
            self.set_ceiling(messages);
        }
        changed
    }

    /// Returns whether Calls of this side wait for their Replies on a version 2 connection.
    fn is_waiting(&self) -> bool {
        self.is_version2() && self.calls().outstanding() != 0
    }

    /// Returns whether no time-out will ever be due, as in version 1 once it is settled.
    pub(super) fn needs_no_time(&self) -> bool {
        let version1 = self.is_settled() && !self.is_version2();
        version1 && self.poll_timeout().is_none()
    }

    /// Calls [`Connection::poll_timeout`].
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.connection.poll_timeout(self.is_waiting())
    }

    /// Returns the number of messages for `calls` Calls of the peer: the Calls, and the Replies to all Calls
    /// that this side may make.
    pub(crate) fn messages_for(&self, calls: u32) -> u16 {
        let replies = self.calls().requested();
        u16::try_from(calls.saturating_add(replies)).unwrap_or(u16::MAX)
    }

    /// Returns the number of consecutive Sends that need no completion, if the protocol counts Sends.
    pub(super) fn unsignaled(&self) -> Option<u32> {
        let sent = self.send_credits();
        self.is_version2().then(|| sent.unsignaled())
    }

    /// Returns the largest number of parts of a message that waits for credits for all of them: the
    /// peer grants more as soon as this side has less than half of its ceiling.
    //= D-11
    pub(crate) fn most_parts(&self) -> u32 {
        self.send_credits().ceiling().div_ceil(2)
    }

    /// Returns the version if it will not change any more, even if the peer has still to speak it.
    pub(super) fn lasting_version(&self) -> Option<Version> {
        let may_change = self.may_change_version();
        self.version().filter(|_| !may_change)
    }

    /// Returns the number of Calls of this side that the peer permits to be in flight.
    #[inline]
    pub(crate) fn granted(&self) -> u32 {
        self.calls().granted()
    }

    /// Returns the number of Calls of this side that may be in flight at a time: of messages in version 2.
    pub(crate) fn most_calls(&self) -> u32 {
        if self.is_version2() {
            self.send_credits().ceiling()
        } else {
            self.calls().limit()
        }
    }

    /// Returns the number of Calls of this side that are in flight.
    pub(crate) fn outstanding(&self) -> u32 {
        self.calls().outstanding()
    }

    /// Returns whether this side can send no further Call: the Calls in flight use all credits of the peer, or all
    /// Receives for Replies. In version 2, a Call needs only the credit for its message.
    //= V1-036, V1-037
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        !self.calls().has_room()
    }

    /// Returns the terms for messages to the peer.
    pub(crate) fn terms(&self) -> Terms {
        let inline_send = self.inline_send();
        if self.is_version2() {
            Terms {
                version: Version::V2,
                inline_send,
                continued: self.config().continued,
                remote_invalidation: self.config().cm_private.remote_invalidation,
            }
        } else {
            Terms {
                version: Version::V1,
                inline_send,
                continued: 0,
                remote_invalidation: self.cm().remote_invalidation,
            }
        }
    }

    /// Returns the facts about the connection.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            version: self.version().map_or(0, Version::number),
            terms: self.terms(),
            inline_recv: self.inline_recv(),
            announced: self
                .announcement()
                .map_or(0, |announcement| announcement.highest),
            authenticated: self.is_authenticated(),
            credits: self.granted(),
            outstanding: self.outstanding(),
            messages: self.messages(),
        }
    }

    fn messages(&self) -> Option<Messages> {
        let (send, recv) = (self.send_credits(), self.recv_credits());
        self.is_version2().then(|| Messages {
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
        let (send, recv) = self.continued_at_once();
        limits.continued_send = limits.continued_send.min(send);
        limits.longest_send = limits.longest_send.min(send);
        limits.continued_recv = limits.continued_recv.min(recv);
    }
}
