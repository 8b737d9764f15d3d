// SPDX-License-Identifier: GPL-2.0

//! The responder as a role of an endpoint: where each event of a connection goes.

use super::{
    connection::{
        Note,
        Queue,
        Server,
        ServerMessage, //
    },
    settings, //
};
use crate::{
    endpoint::{
        completion,
        work_id,
        Disposition,
        EndReason,
        LockedState,
        Protocol,
        ReassemblyQuota,
        Role,
        Shared,
        State, //
    },
    proto::{
        connection::{
            negotiate::Time,
            Arrived,
            Event, //
        },
        responder::{
            self,
            ParsedCall, //
        },
        wire::{
            error::{
                BadHeader,
                ErrorReport, //
            },
            header::{
                FixedWords,
                Kind, //
            },
            types::{
                MsgType,
                Version, //
            },
        },
    },
    rdma::{
        cq::Completions,
        device::Name,
        proof::{
            Destroyed,
            Invalidated, //
        },
        pull::PullBox,
        qp::{
            QpEvent,
            QpRef, //
        },
        wqe::{
            CompletionFacts,
            WorkKind, //
        },
        Pulls, //
    },
    sunrpc::svc::backchannel::PinnedCall,
    support::{
        net::SockAddr,
        trace::{
            self,
            TraceEvent, //
        },
    },
};
use kernel::prelude::*;

/// A Call to the client whose Reply has come.
pub(crate) struct CallClaim {
    call: PinnedCall,
    /// The number of Calls to the client that may be outstanding.
    limit: u32,
}

impl Role for Server {
    type Locked = Queue;
    type Claim = Option<CallClaim>;
    type Pending = ParsedCall;
    type Note = Note;

    const BUDGET: ReassemblyQuota = ReassemblyQuota::Responder;
    const FAST_PATH: MsgType = MsgType::Call;

    fn cid(&self) -> u32 {
        self.cid
    }

    #[inline(always)]
    fn on_fast_path(
        &self,
        _shared: &Shared<Self>,
        state: LockedState<'_, Self>,
        arrived: Arrived<'_>,
        _invalidated: Option<Invalidated>,
    ) -> Disposition<ParsedCall> {
        drop(state);
        self.check(&arrived)
    }

    fn claim(
        &self,
        protocol: &mut Protocol,
        queue: &mut Queue,
        event: &Event<'_>,
        _invalidated: &mut Option<Invalidated>,
    ) -> Option<CallClaim> {
        let xid = match event {
            Event::Reply(arrived) => arrived.fixed.xid,
            Event::Error { xid, .. } | Event::Failed { xid, .. } => *xid,
            _ => return None,
        };
        // A Call that was given up has its credit back with its Reply, too.
        //= V1-121
        protocol.handle_call_ended();
        if queue.detached {
            return None;
        }
        Some(CallClaim {
            call: self.xprt.lookup(xid.0)?,
            limit: protocol.granted(),
        })
    }

    #[inline(always)]
    fn trace_done(&self, kind: WorkKind, facts: impl FnOnce() -> CompletionFacts) {
        match kind {
            WorkKind::Receive => trace::emit(|| {
                let facts = facts();
                trace::SvcrdmaWcRecv {
                    received: facts.bytes,
                    wc: completion(self.cid, &facts),
                }
            }),
            WorkKind::Send => trace::emit(|| trace::SvcrdmaWcSend {
                work: completion(self.cid, &facts()).id,
            }),
            WorkKind::Read => trace::emit(|| {
                let facts = facts();
                trace::SvcrdmaWcRead {
                    work: completion(self.cid, &facts).id,
                    totalbytes: facts.bytes,
                    read_latency: facts.latency,
                }
            }),
            WorkKind::LocalInv => {}
        }
    }

    #[inline(always)]
    fn trace_receives<I: Iterator<Item = u32>>(
        &self,
        qp: &QpRef<Shared<Self>>,
        numbers: impl Fn() -> I,
    ) {
        trace::emit_each(|| {
            numbers().map(|number| trace::SvcrdmaPostRecv {
                work: work_id(self.cid, qp, number),
            })
        });
    }

    #[cold]
    fn trace_failed(&self, kind: WorkKind, facts: CompletionFacts) {
        let wc = completion(self.cid, &facts);
        match (kind, facts.is_flush()) {
            (WorkKind::Receive, true) => trace::emit(|| trace::SvcrdmaWcRecvFlush { wc }),
            (WorkKind::Receive, false) => trace::emit(|| trace::SvcrdmaWcRecvErr { wc }),
            (WorkKind::Send, true) => trace::emit(|| trace::SvcrdmaWcSendFlush { wc }),
            (WorkKind::Send, false) => trace::emit(|| trace::SvcrdmaWcSendErr { wc }),
            (WorkKind::Read, true) => trace::emit(|| trace::SvcrdmaWcReadFlush { wc }),
            (WorkKind::Read, false) => trace::emit(|| trace::SvcrdmaWcReadErr { wc }),
            (WorkKind::LocalInv, _) => {}
        }
    }

    fn trace_removal(&self, name: &str, peer: &SockAddr) {
        trace::emit(|| trace::SvcrdmaDeviceRemoval {
            cid: self.cid,
            name,
            peer,
        });
    }

    fn trace_queue_pair(&self, event: QpEvent) {
        if !trace::SvcrdmaQpError::is_enabled() {
            return;
        }
        let link = self.removal.target().0.as_ref();
        let Some(endpoint) = link.and_then(|link| link.gate.enter()) else {
            return;
        };
        let ((device, _), peer) = (endpoint.device(), endpoint.peer());
        trace::emit(|| trace::SvcrdmaQpError {
            cid: self.cid,
            event: event.number(),
            device: device.as_ref().map_or("", Name::as_str),
            peer: &peer,
        });
    }

    #[inline]
    fn received(&self) {
        settings::RECEIVES.count();
    }

    #[cold]
    fn refused(&self, message: &ServerMessage, fixed: &FixedWords, report: &ErrorReport) {
        trace::emit(|| trace::SvcrdmaError {
            cid: self.cid,
            xid: fixed.xid.0,
            why: report.name(),
        });
        self.trace_bad(message, None);
        trace_answer(
            self.cid,
            fixed,
            matches!(report, ErrorReport::Version { .. }),
        );
    }

    fn arrived(
        &self,
        _shared: &Shared<Self>,
        event: Event<'_>,
        claim: Option<CallClaim>,
        message: &ServerMessage,
        _invalidated: Option<Invalidated>,
    ) -> Disposition<ParsedCall> {
        match event {
            Event::Call(arrived) => self.check(&arrived),
            other => self.handle_other(other, claim, message),
        }
    }

    #[inline(always)]
    fn keep(
        &self,
        shared: &Shared<Self>,
        cx: &mut Completions<'_, Shared<Self>>,
        kept: ParsedCall,
        mut message: ServerMessage,
    ) {
        message.note_mut().begin(kept);
        trace::emit(|| call_event(work_of(self.cid, cx, &message), &message));
        let mut state = shared.lock();
        if kept.version() == Version::V2 {
            hold(&mut state, message.note_mut());
        }
        state.begin_call(message.note().held);
        state.role.calls.push(message);
        drop(state);
        self.xprt.work_pending();
    }

    fn tick(&self, state: &mut State<Self>, now: Time) -> Result<bool, EndReason> {
        state.check_patience(now)
    }

    #[inline]
    fn writable(&self, shared: &Shared<Self>, qp: &QpRef<Shared<Self>>) {
        self.send_waiting(shared, qp);
    }

    fn lost(&self) {
        self.xprt.close();
    }

    fn device_removed(&self) {
        // No thread of the service need be free for this.
        self.removal.request();
    }

    fn destroyed(&self, shared: &Shared<Self>, _proof: &Destroyed) {
        // Calls that wait for a thread have no connection any more.
        let mut state = shared.lock();
        let detached = state.role.detached;
        let queue = core::mem::replace(&mut state.role, Queue::new());
        state.role.detached = detached;
        drop(state);
        drop(queue);
    }
}

impl Server {
    /// Checks whether a Call may be processed; one beyond the client's grant may, too.
    #[inline(always)]
    //= V1-039, V1-107, NFS-044
    //= NFS-045
    fn check(&self, arrived: &Arrived<'_>) -> Disposition<ParsedCall> {
        let version = arrived.version();
        let limits = match version {
            Version::V1 => &self.limits_v1,
            Version::V2 => &self.limits_v2,
        };
        match responder::accept(&arrived.conveyed, arrived.part.len, limits) {
            Ok(call) => Disposition::Keep(ParsedCall::of(version, &call)),
            Err(report) => Disposition::Refuse(arrived.fixed, report),
        }
    }

    /// Returns the number of the Receive of a message for traces.
    fn receive_of(&self, message: &ServerMessage) -> trace::WorkId {
        let link = self.removal.target().0.as_ref();
        let endpoint = link.and_then(|link| link.gate.enter());
        trace::WorkId {
            cid: self.cid,
            cq_id: endpoint.map_or(0, |endpoint| endpoint.qp().cq_id()),
            completion_id: message.number() as i32,
        }
    }

    /// Traces a message that is answered by an error message, because the header is bad, or for another reason.
    #[cold]
    fn trace_bad(&self, message: &ServerMessage, why: Option<BadHeader>) {
        let Some((fixed, _)) = FixedWords::split(message.bytes()) else {
            return;
        };
        let (xid, vers, proc, credits) = (fixed.xid.0, fixed.version, fixed.htype, fixed.credit);
        match why {
            Some(BadHeader::Version) => trace::emit(|| trace::SvcrdmaDecodeBadversErr {
                work: self.receive_of(message),
                xid,
                vers,
                proc,
                credits,
            }),
            Some(BadHeader::Type) => trace::emit(|| trace::SvcrdmaDecodeBadprocErr {
                work: self.receive_of(message),
                xid,
                vers,
                proc,
                credits,
            }),
            _ => trace::emit(|| trace::SvcrdmaDecodeParseErr {
                work: self.receive_of(message),
                xid,
                vers,
                proc,
                credits,
            }),
        }
    }

    /// Traces a message that is dropped.
    #[cold]
    fn trace_dropped(&self, message: &ServerMessage) {
        let bytes = message.bytes();
        let is_short = bytes.len() < Version::V1.empty_header_len() as usize;
        match FixedWords::split(bytes) {
            Some((fixed, _)) if !is_short => trace::emit(|| trace::SvcrdmaDecodeDropErr {
                work: self.receive_of(message),
                xid: fixed.xid.0,
                vers: fixed.version,
                proc: fixed.htype,
                credits: fixed.credit,
            }),
            _ => trace::emit(|| trace::SvcrdmaDecodeShortErr {
                work: self.receive_of(message),
                hdrlen: bytes.len() as u32,
            }),
        }
    }

    /// Handles a message that is not a Call.
    fn handle_other(
        &self,
        event: Event<'_>,
        claim: Option<CallClaim>,
        message: &ServerMessage,
    ) -> Disposition<ParsedCall> {
        match event {
            Event::Refused(why) => {
                trace::emit(|| trace::SvcrdmaError {
                    cid: self.cid,
                    xid: xid_of(message),
                    why: why.name(),
                });
                self.trace_bad(message, Some(why));
                if let Some((fixed, _)) = FixedWords::split(message.bytes()) {
                    trace_answer(self.cid, &fixed, why == BadHeader::Version);
                }
                Disposition::Done
            }
            Event::Dropped => {
                self.trace_dropped(message);
                Disposition::Done
            }
            Event::Close { why, .. } => Disposition::Close(EndReason::Protocol(why)),
            //= V1-121, NFS-049
            Event::Reply(arrived) => {
                let payload = arrived.conveyed.payload;
                trace::emit(|| trace::SvcrdmaCbReply {
                    cid: self.cid,
                    xid: arrived.fixed.xid.0,
                    len: payload.len() as u32,
                });
                if let Some(CallClaim { call, limit }) = claim {
                    call.complete(payload, limit);
                }
                Disposition::Done
            }
            _ => {
                if let Some(CallClaim { call, .. }) = claim {
                    call.fail(EIO);
                }
                Disposition::Done
            }
        }
    }
}

impl Pulls for Shared<Server> {
    type Puller = ServerMessage;

    fn wait_for_posting(&self) {
        drop(self.lock());
    }

    fn pulled(
        &self,
        cx: &mut Completions<'_, Self>,
        mut call: ServerMessage,
        pull: Option<PullBox<Self>>,
        work_requests: u32,
    ) {
        trace::emit(|| {
            let rc = if pull.is_some() { 0 } else { EIO.to_errno() };
            trace::SvcrdmaReadFinished {
                work: work_of(self.role.cid, cx, &call),
                xid: xid_of(&call),
                rc,
            }
        });
        self.make_room(cx.qp(), |state| {
            state.queue.release(work_requests);
            let queue = &mut state.role;
            queue.pulling -= 1;
            queue.retry = true;
            // Without the data the connection is lost, and the Call with it.
            if pull.is_none() {
                return Some(call);
            }
            call.note_mut().pull = pull;
            queue.pulled.push(call);
            None
        });
        self.role.xprt.work_pending();
    }
}

/// Counts the Receives that a kept Call of version 2 holds: its own, which the endpoint has held since the Call
/// arrived, and the Receives of its earlier parts.
#[inline(always)]
fn hold(state: &mut State<Server>, note: &mut Note) {
    note.held = 1;
    if let Some(joined) = state.joined.take() {
        note.held = joined.parts();
        state.hold(note.held.saturating_sub(1));
        note.joined = Some(joined);
    }
}

/// Traces that an error message answers a message with these fixed words, because of its version or for another
/// reason.
#[cold]
pub(super) fn trace_answer(cid: u32, fixed: &FixedWords, is_version: bool) {
    let xid = fixed.xid.0;
    if is_version {
        trace::emit(|| trace::SvcrdmaErrVers { cid, xid });
    } else {
        trace::emit(|| trace::SvcrdmaErrChunk { cid, xid });
    }
}

/// Returns the XID of a message for traces, or 0 if the message is too short.
#[cold]
fn xid_of(message: &ServerMessage) -> u32 {
    FixedWords::split(message.bytes()).map_or(0, |(fixed, _)| fixed.xid.0)
}

/// Returns the number of the Receive of a Call, for traces.
#[cold]
fn work_of(
    cid: u32,
    cx: &Completions<'_, Shared<Server>>,
    message: &ServerMessage,
) -> trace::WorkId {
    work_id(cid, cx.qp(), message.number())
}

/// Returns the trace event of a Call. It parses the message again, so that a disabled event needs no memory.
#[cold]
fn call_event(work: trace::WorkId, message: &ServerMessage) -> trace::SvcrdmaDecodeRqst<'static> {
    let bytes = message.bytes();
    let Some((fixed, call, stream)) = message.note().kept.open(bytes) else {
        return trace::SvcrdmaDecodeRqst {
            work,
            xid: 0,
            vers: 0,
            proc: 0,
            credits: 0,
            hdrlen: 0,
            len: 0,
            rtype: "nothing",
            reads: 0,
            writes: 0,
            reply: 0,
        };
    };
    let chunks = &call.chunks;
    let form = match call.kind {
        _ if chunks.reads.is_empty() => "inline",
        Kind::Msg => "read list",
        Kind::Nomsg => "*read list",
    };
    let writes: usize = chunks.writes.iter().map(|chunk| chunk.count()).sum();
    trace::SvcrdmaDecodeRqst {
        work,
        xid: fixed.xid.0,
        vers: fixed.version,
        proc: fixed.htype,
        credits: fixed.credit,
        hdrlen: (bytes.len() - stream.len()) as u32,
        len: call.len,
        rtype: form,
        reads: chunks.reads.count() as u32,
        writes: writes as u32,
        reply: chunks.reply.map_or(0, |chunk| chunk.count()) as u32,
    }
}
