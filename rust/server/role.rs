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
            error::ErrorReport,
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
        proof::{
            Destroyed,
            Invalidated, //
        },
        pull::PullBox,
        qp::QpRef,
        wqe::{
            CompletionFacts,
            WorkKind, //
        },
        Pulls, //
    },
    sunrpc::svc::backchannel::PinnedCall,
    support::trace, //
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
            limit: protocol.limit(),
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

    #[inline]
    fn received(&self) {
        settings::RECEIVES.count();
    }

    #[cold]
    fn refused(&self, message: &FixedWords, report: &ErrorReport) {
        trace::emit(|| trace::SvcrdmaError {
            cid: self.cid,
            xid: message.xid.0,
            why: report.name(),
        });
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
    trace::WorkId {
        cid,
        cq_id: cx.qp().cq_id(),
        completion_id: message.number() as i32,
    }
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
