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
        trace::emit(|| trace::RpcrdmaProtocolConfig {
            cid: self.cid,
            ceiling: config.ceiling.into(),
            continued: config.continued,
            keep: config.keep_alive.0,
            answer: config.answer.0,
            auth: config.auth != Policy::Ignore,
            inband: in_band,
            set: &set[..],
        });
        trace::emit(|| trace::RpcrdmaProtocolConnect {
            cid: self.cid,
            now: now.0,
            first: first.map_or(0, Version::number),
            low: config.versions.low.number(),
            high: config.versions.high.number(),
            inval: config.cm_private.remote_invalidation,
            send: config.cm_private.send_size,
            recv: config.cm_private.recv_size,
            calls: config.calls,
            grants: config.grants,
            xid: config.xid.0,
            peer,
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
        trace::emit(|| trace::RpcrdmaProtocolSend {
            cid: self.cid,
            now: now.0,
            xid: message.xid.0,
            call: message.direction == MsgType::Call,
            nomsg: message.kind == Kind::Nomsg,
            more: message.more,
            result: result.map_or_else(|error| error.number().into(), |_| 0),
            header: result
                .ok()
                .and_then(|len| out.get(..len))
                .unwrap_or_default(),
            limit: connection.may_send_now(),
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
        trace::emit(|| trace::RpcrdmaProtocolMessage {
            cid: self.cid,
            now: now.0,
            len: message.len() as u32,
            inv: invalidated.map_or(0, |handle| handle.0),
            bytes: message.get(..RECORDED).unwrap_or(message),
            event,
            xid: xid.0,
            limit: connection.may_send_now(),
        });
    }

    #[inline]
    fn transmit(&self, now: Time, waiting: bool, busy: bool, message: &[u8]) {
        trace::emit(|| trace::RpcrdmaProtocolTransmit {
            cid: self.cid,
            now: now.0,
            waiting,
            busy,
            bytes: message,
        });
    }

    fn refuse(&self, fixed: &FixedWords, report: ErrorReport) {
        trace::emit(|| {
            let FixedWords {
                xid,
                version,
                credit,
                htype,
            } = *fixed;
            let [first, second] = report.arguments();
            let code = report.code();
            trace::RpcrdmaProtocolRefuse {
                cid: self.cid,
                xid: xid.0,
                vers: version,
                credit,
                htype,
                code,
                first,
                second,
            }
        });
    }

    fn ready(&self, calls: u32) {
        trace::emit(|| trace::RpcrdmaProtocolReady {
            cid: self.cid,
            count: calls,
        });
    }

    fn grants(&self, grants: u32) {
        trace::emit(|| trace::RpcrdmaProtocolGrants {
            cid: self.cid,
            count: grants,
        });
    }

    fn ceiling(&self, ceiling: u16) {
        trace::emit(|| trace::RpcrdmaProtocolCeiling {
            cid: self.cid,
            count: ceiling.into(),
        });
    }

    #[inline]
    fn posted(&self, posted: u32) {
        trace::emit(|| trace::RpcrdmaProtocolPosted {
            cid: self.cid,
            count: posted,
        });
    }

    #[inline]
    fn sent(&self, count: u32) {
        trace::emit(|| trace::RpcrdmaProtocolSent {
            cid: self.cid,
            count,
        });
    }

    #[inline]
    fn call_ended(&self) {
        trace::emit(|| trace::RpcrdmaProtocolEnded { cid: self.cid });
    }

    fn timeout(&self, now: Time, event: &'static str) {
        trace::emit(|| trace::RpcrdmaProtocolTimeout {
            cid: self.cid,
            now: now.0,
            event,
        });
    }
}

impl Drop for TraceRecorder {
    fn drop(&mut self) {
        trace::emit(|| trace::RpcrdmaProtocolLost { cid: self.cid });
    }
}
