// SPDX-License-Identifier: GPL-2.0

//! The record of a connection as trace events.
//!
//! The events `rpcrdma_protocol_*` have all calls that change a [`Connection`]. They can be replayed on the
//! protocol core on any machine (`tools/proto/tests/replay.rs`).

use crate::{
    proto::{
        connection::{
            hostauth::Policy,
            negotiate::Time,
            record,
            Config,
            Connection,
            SendError, //
        },
        wire::{
            error::ErrorReport,
            header::{
                FixedWords,
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

/// The number of bytes of an arriving message that are recorded: enough for any header.
const RECORDED: usize = 512;

/// Records the connection with this number.
pub(crate) struct TraceRecorder {
    /// The number of the connection.
    pub(super) cid: u32,
}

impl record::Recorder for TraceRecorder {
    fn began(
        &self,
        config: &Config,
        in_band: bool,
        first: Option<Version>,
        peer: &[u8],
        now: Time,
    ) {
        let mut set = [0; property::SET_LEN];
        // The buffer has room for all properties.
        let _ = config.properties.encode(&mut Writer::new(&mut set));
        trace::protocol_config(|| {
            (
                self.cid,
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
                self.cid,
                now.0,
                first.map_or(0, Version::number),
                config.versions.low.number(),
                config.versions.high.number(),
                config.cm_private.remote_invalidation,
                config.cm_private.send_size,
                config.cm_private.recv_size,
                config.calls,
                config.grants,
                config.xid.0,
                peer,
            )
        });
    }

    #[inline(always)]
    fn send(
        &self,
        connection: &Connection<Self>,
        now: Time,
        message: &Outgoing,
        result: Result<usize, SendError>,
        out: &[u8],
    ) {
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
                connection.may_send_now(),
            )
        });
    }

    #[inline(always)]
    fn message(
        &self,
        connection: &Connection<Self>,
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
                connection.may_send_now(),
            )
        });
    }

    #[inline]
    fn transmit(&self, now: Time, waiting: bool, busy: bool, message: &[u8]) {
        trace::protocol_transmit(|| (self.cid, now.0, waiting, busy, message));
    }

    fn refuse(&self, fixed: &FixedWords, report: ErrorReport) {
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
    }

    fn grants(&self, grants: u32) {
        trace::svc_credits(|| (self.cid, grants));
        trace::protocol_grants(|| (self.cid, grants));
    }

    fn ceiling(&self, ceiling: u16) {
        trace::protocol_ceiling(|| (self.cid, ceiling.into()));
    }

    #[inline]
    fn posted(&self, posted: u32) {
        trace::protocol_posted(|| (self.cid, posted));
    }

    #[inline]
    fn sent(&self, count: u32) {
        trace::protocol_sent(|| (self.cid, count));
    }

    #[inline]
    fn call_ended(&self) {
        trace::protocol_ended(|| (self.cid,));
    }

    fn timeout(&self, now: Time, event: &'static str) {
        trace::protocol_timeout(|| (self.cid, now.0, event));
    }
}

impl Drop for TraceRecorder {
    fn drop(&mut self) {
        trace::protocol_lost(|| (self.cid,));
    }
}
