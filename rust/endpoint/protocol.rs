// SPDX-License-Identifier: GPL-2.0

//! The protocol's state of a connection, with every call on it traced.
//!
//! Whoever enables the events `rpcrdma_protocol_*` gets a record that the protocol core can be
//! driven with once more, on any machine (`tools/proto/tests/replay.rs`). Therefore the endpoint
//! and its roles have no other way to a [`Connection`].

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
            Kind,
            Outgoing, //
        },
        negotiate::Time,
        plan::Limits,
        types::{
            Handle,
            MsgType,
            Version,
            Xid, //
        }, //
    },
    support::trace, //
};

/// How many bytes of an arriving message are recorded: its header, whatever it has.
const RECORDED: usize = 512;

/// The protocol's state of one connection.
pub(crate) struct Protocol {
    cid: u32,
    /// What was granted last.
    grants: u32,
    connection: Connection,
}

/// What holds on a connection.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    /// The version of RPC-over-RDMA; 0 before there is one.
    pub(crate) version: u32,
    /// The most bytes of one Send.
    pub(crate) inline_send: u32,
    /// The most bytes to expect in one Receive.
    pub(crate) inline_recv: u32,
    /// The peer may invalidate registrations with its Replies.
    pub(crate) remote_invalidation: bool,
    /// How many Calls of this side may be in flight.
    pub(crate) credits: u32,
}

impl Protocol {
    /// As [`Connection::client`], for connection number `cid`.
    pub(crate) fn client(
        cid: u32,
        config: &Config,
        first: Version,
        private_data: &[u8],
        now: Time,
    ) -> Self {
        trace_begin(cid, config, first.number(), private_data, now);
        Self {
            cid,
            grants: config.grants,
            connection: Connection::client(*config, first, private_data, now),
        }
    }

    /// As [`Connection::server`], for connection number `cid`.
    pub(crate) fn server(cid: u32, config: &Config, private_data: &[u8], now: Time) -> Self {
        trace_begin(cid, config, 0, private_data, now);
        Self {
            cid,
            grants: config.grants,
            connection: Connection::server(*config, private_data, now),
        }
    }

    /// As [`Connection::set_grants`].
    #[inline]
    pub(super) fn set_grants(&mut self, grants: u32) {
        if grants != self.grants {
            trace::svc_credits(|| (self.cid, grants));
            trace::protocol_grants(|| (self.cid, grants));
            self.grants = grants;
            self.connection.set_grants(grants);
        }
    }

    /// As [`Connection::refuse`].
    pub(super) fn refuse(
        &mut self,
        fixed: &FixedWords,
        report: ErrorReport,
    ) -> Result<(), connection::CloseReason> {
        trace::protocol_refuse(|| {
            (
                self.cid,
                fixed.xid.0,
                fixed.version,
                fixed.credit,
                fixed.htype,
            )
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
                result.map_or_else(|error| error.number().into(), |_| 0),
                result
                    .ok()
                    .and_then(|len| out.get(..len))
                    .unwrap_or_default(),
                self.limit(),
            )
        });
        result
    }

    /// As [`Connection::handle_reply`].
    #[inline(always)]
    pub(super) fn handle_reply<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Option<Arrived<'a>> {
        let arrived = self.connection.handle_reply(message)?;
        let xid = arrived.fixed.xid;
        trace::protocol_message(|| self.record(now, message, invalidated, "reply", xid));
        Some(arrived)
    }

    /// As [`Connection::handle_message`].
    pub(super) fn handle_message<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Event<'a> {
        let event = self.connection.handle_message(now, message, invalidated);
        trace::protocol_message(|| {
            let xid = event.xid().unwrap_or(Xid(0));
            self.record(now, message, invalidated, event.name(), xid)
        });
        event
    }

    /// What the trace says of a message: from when it is, and what the core has made of it.
    fn record<'a>(
        &self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
        event: &'static str,
        xid: Xid,
    ) -> (u32, u64, u32, u32, &'a [u8], &'static str, u32, u32) {
        (
            self.cid,
            now.0,
            message.len() as u32,
            invalidated.map_or(0, |handle| handle.0),
            message.get(..RECORDED).unwrap_or(message),
            event,
            xid.0,
            self.limit(),
        )
    }

    /// As [`Connection::handle_call_ended`].
    #[inline]
    pub(crate) fn handle_call_ended(&mut self) {
        trace::protocol_ended(|| (self.cid,));
        self.connection.handle_call_ended();
    }

    /// As [`Connection::poll_transmit`], with nothing that waits and nothing to wait for.
    pub(super) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let transmit = self.connection.poll_transmit(now, false, false, out)?;
        trace::protocol_transmit(|| {
            let bytes = out.get(..transmit.len).unwrap_or_default();
            (self.cid, now.0, false, false, bytes)
        });
        Some(transmit)
    }

    /// How many Calls of this side may be in flight.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        self.connection.calls().limit()
    }

    /// What holds on the connection.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            version: self.connection.version().map_or(0, Version::number),
            inline_send: self.connection.inline_send(),
            inline_recv: self.connection.inline_recv(),
            remote_invalidation: self.connection.cm().remote_invalidation,
            credits: self.limit(),
        }
    }

    /// As [`Connection::apply`].
    pub(crate) fn apply(&self, limits: &mut Limits) {
        self.connection.apply(limits);
    }
}

/// A connection begins; `first` is the version that the connecting side begins with, and 0 on the
/// accepting side.
fn trace_begin(cid: u32, config: &Config, first: u32, private_data: &[u8], now: Time) {
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
