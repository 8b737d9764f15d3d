// SPDX-License-Identifier: GPL-2.0

//! Replies: from a message to the RPC that it completes.
//!
//! The order keeps memory safe: the RPC is looked up and its exposure taken out of the table, the
//! Reply is checked against the provided chunks, the peer's access to the RPC's memory ends (by the
//! peer itself, or by LOCAL_INV), and only then is the Reply copied and the RPC completed.
//!
//! Mutual exclusion:
//!
//! - a second Reply, or one to an RPC that was not sent: the table has nothing to take
//! - a task that ends meanwhile: the request is pinned ([`Pinned`]), and its release waits
//! - the connection that ends meanwhile: it drains the queue pair first, which waits for this
//! - completing before the exposure has ended: [`finish`] demands [`Unexposed`]

use super::{
    connection::Client,
    registrations::{
        Exposed,
        Requests,
        SentRequest, //
    },
    request::{
        Pinned,
        RdmaRqst, //
    },
    stats::Stats, //
};
use crate::{
    endpoint::{
        completion,
        work_id,
        Disposition,
        EndReason,
        Endpoint,
        LockedState,
        Protocol,
        Reassembly,
        ReassemblyQuota,
        Role,
        Shared,
        State, //
    },
    proto::{
        connection::{
            self,
            negotiate::Time,
            Arrived,
            Event, //
        },
        requester::{
            reply::Payload,
            retry::Reaction, //
        },
        responder::{
            self,
            CallLimits, //
        },
        wire::{
            error::{
                BadHeader,
                ErrorReport, //
            },
            header::FixedWords,
            types::{
                MsgType,
                Version,
                Xid, //
            },
            xdr::padded_len, //
        },
    },
    rdma::{
        cq::Completions,
        local_inv::{
            LocalInvBox,
            LocalInvList, //
        },
        mr::{
            Idle,
            Mr,
            MrList,
            Registered, //
        },
        proof::{
            Destroyed,
            Invalidated,
            Unexposed, //
        },
        qp::QpRef,
        recv::Received,
        wqe::{
            CompletionFacts,
            WorkKind, //
        },
        Invalidates, //
    },
    sunrpc::{
        backchannel::CallbackRefused,
        XdrPart, //
    },
    support::{
        completion::Completion,
        memalloc::ReserveScope,
        memory::PAGE_SIZE,
        net::SockAddr,
        trace, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

type ClientMessage = Received<Shared<Client>>;
type Inv = LocalInvBox<Shared<Client>>;

/// The request that a message took out of the table of requests.
pub(crate) enum ReplyClaim {
    /// The message concerns no RPC of ours.
    None,
    /// There is no such RPC, or it was not sent, or has its Reply already.
    Stray(Option<Pinned>),
    /// The RPC that the message is for.
    Taken {
        rqst: Pinned,
        sent: SentRequest,
        /// The number of Calls in flight that the server grants.
        limit: u32,
        /// The server has refused the Call, which goes again in another form.
        again: bool,
    },
}

/// The place of a checked Reply.
#[derive(Clone, Copy)]
pub(crate) enum ReceivedForm {
    /// In the last `len` bytes of the message; `written` bytes of results in the Write chunk.
    Inline { len: usize, written: u32 },
    /// In the Reply chunk.
    ReplyChunk { len: u32 },
    /// There is none: the server has refused the Call, which goes again.
    Again,
    /// It is an error message, or a Reply that does not fit the Call.
    Failed,
}

/// A checked Reply whose RPC still exposes memory.
pub(crate) struct Pending {
    rqst: Pinned,
    form: ReceivedForm,
    exposed: Exposed,
    /// The Reply came in several parts, which are the endpoint's still.
    in_parts: bool,
}

/// An RPC or a task that waits for memory to be invalidated.
pub(crate) enum Waiter {
    /// A Reply that was checked, and the RPC it completes.
    Reply {
        rqst: Pinned,
        form: ReceivedForm,
        message: ClientMessage,
        /// The joined message, if it arrived in several parts; `message` is the last part.
        joined: Option<Reassembly>,
    },
    /// The task of slot `index` gave up its RPC.
    Release { index: u32, done: Arc<Completion> },
}

impl Role for Client {
    type Locked = Requests;
    type Claim = ReplyClaim;
    type Pending = Pending;
    type Note = ();

    const BUDGET: ReassemblyQuota = ReassemblyQuota::Requester;
    const FAST_PATH: MsgType = MsgType::Reply;

    fn tick(&self, _state: &mut State<Self>, now: Time) -> Result<bool, EndReason> {
        if self.history.expire(now) {
            self.peer_limits_changed.set(true);
        }
        // The core has the Calls that wait, with time-outs of its own.
        Ok(false)
    }

    fn writable(&self, _shared: &Shared<Self>, _qp: &QpRef<Shared<Self>>) {
        self.xprt.write_space();
    }

    fn cid(&self) -> u32 {
        self.cid
    }

    #[inline]
    fn reserves(&self) -> Option<ReserveScope> {
        self.xprt.reserves("completion")
    }

    #[inline]
    fn received(&self) {
        self.xprt.peer_is_alive();
    }

    #[cold]
    fn refused(&self, _message: &ClientMessage, _fixed: &FixedWords, _report: &ErrorReport) {
        self.stats.bad_messages.add(1);
    }

    #[inline(always)]
    //= V1-030, V1-031
    fn on_fast_path(
        &self,
        shared: &Shared<Self>,
        mut state: LockedState<'_, Self>,
        arrived: Arrived<'_>,
        mut invalidated: Option<Invalidated>,
    ) -> Disposition<Pending> {
        let xid = arrived.fixed.xid;
        let Some((protocol, requests)) = state.established() else {
            return Disposition::Done;
        };
        let Some(rqst) = self.xprt.lookup(xid.0) else {
            orphaned(self, protocol, requests, xid);
            drop(state);
            return stray(self, xid, arrived.fixed.version, arrived.fixed.htype, None);
        };
        let Some(sent) = take(protocol, requests, &rqst, &mut invalidated) else {
            drop(state);
            return stray(
                self,
                xid,
                arrived.fixed.version,
                arrived.fixed.htype,
                Some(rqst),
            );
        };
        let limit = protocol.granted();
        drop(state);
        granted(self, limit);
        check(shared, &arrived, rqst, sent, invalidated)
    }

    fn claim(
        &self,
        protocol: &mut Protocol,
        requests: &mut Requests,
        event: &Event<'_>,
        invalidated: &mut Option<Invalidated>,
    ) -> ReplyClaim {
        let xid = match event {
            Event::Reply(arrived) => arrived.fixed.xid,
            Event::Error { xid, .. } | Event::Failed { xid, .. } => *xid,
            Event::Close {
                fail: Some(xid), ..
            } => *xid,
            _ => return ReplyClaim::None,
        };
        let Some(rqst) = self.xprt.lookup(xid.0) else {
            orphaned(self, protocol, requests, xid);
            return ReplyClaim::Stray(None);
        };
        let again = match event {
            Event::Error { report, .. } if protocol.is_version2() => {
                do_otherwise(self, requests, &rqst, *report)
            }
            _ => false,
        };
        let Some(sent) = take(protocol, requests, &rqst, invalidated) else {
            return ReplyClaim::Stray(Some(rqst));
        };
        ReplyClaim::Taken {
            rqst,
            sent,
            limit: protocol.granted(),
            again,
        }
    }

    fn arrived(
        &self,
        shared: &Shared<Self>,
        event: Event<'_>,
        claim: ReplyClaim,
        message: &Received<Shared<Self>>,
        invalidated: Option<Invalidated>,
    ) -> Disposition<Pending> {
        if let Event::Close { why, .. } = event {
            trace_version(self, why, message);
        }
        match claim {
            ReplyClaim::Taken {
                rqst,
                sent,
                limit,
                again,
            } => {
                granted(self, limit);
                match event {
                    Event::Reply(arrived) => {
                        return check(shared, &arrived, rqst, sent, invalidated);
                    }
                    Event::Error { xid, report } => {
                        trace::emit(|| trace::XprtrdmaReplyError {
                            cid: self.cid,
                            xid: xid.0,
                            why: report.name(),
                        });
                        trace_refusal(self, &rqst, report);
                    }
                    Event::Failed { why, .. } => {
                        invalid_message(self, message, why.name());
                    }
                    Event::Close { why, .. } => shared.request_close(EndReason::Protocol(why)),
                    _ => {}
                }
                let form = if again {
                    ReceivedForm::Again
                } else {
                    ReceivedForm::Failed
                };
                let nothing = ReplySource {
                    bytes: &[],
                    in_parts: false,
                };
                end_exposure(shared, rqst, sent, form, nothing, invalidated)
            }
            ReplyClaim::Stray(rqst) => {
                if let Event::Close { why, .. } = event {
                    return Disposition::Close(EndReason::Protocol(why));
                }
                let fixed = fixed_words(message);
                stray(self, fixed.xid, fixed.version, fixed.htype, rqst)
            }
            ReplyClaim::None => unclaimed(self, event, message),
        }
    }

    #[inline(always)]
    fn trace_done(&self, kind: WorkKind, facts: impl FnOnce() -> CompletionFacts) {
        match kind {
            WorkKind::Receive => trace::emit(|| {
                let facts = facts();
                trace::XprtrdmaWcReceive {
                    received: facts.bytes,
                    handle: facts.handle,
                    wc: completion(self.cid, &facts),
                }
            }),
            WorkKind::Send => trace::emit(|| trace::XprtrdmaWcSend {
                wc: completion(self.cid, &facts()),
            }),
            WorkKind::LocalInv => trace::emit(|| trace::XprtrdmaWcLiDone {
                wc: completion(self.cid, &facts()),
            }),
            WorkKind::Read => {}
        }
    }

    #[inline(always)]
    fn trace_receives<I: Iterator<Item = u32>>(
        &self,
        qp: &QpRef<Shared<Self>>,
        numbers: impl Fn() -> I,
    ) {
        trace::emit_each(|| {
            numbers().map(|number| trace::XprtrdmaPostRecv {
                work: work_id(self.cid, qp, number),
            })
        });
        trace::emit(|| {
            let count = numbers().count() as u32;
            trace::XprtrdmaPostRecvs {
                cid: self.cid,
                cq_id: qp.cq_id(),
                count,
                posted: (qp.posted_receives() + count) as i32,
                peer: &self.peer,
            }
        });
    }

    fn trace_failed(&self, kind: WorkKind, facts: CompletionFacts) {
        // The event has the status.
        self.trace_done(kind, || facts);
    }

    fn keep(
        &self,
        shared: &Shared<Self>,
        cx: &mut Completions<'_, Shared<Self>>,
        pending: Pending,
        message: Received<Shared<Self>>,
    ) {
        pending.invalidate(shared, cx, message);
    }

    fn trace_removal(&self, name: &str, peer: &SockAddr) {
        trace::emit(|| trace::XprtrdmaDeviceRemoval {
            cid: self.cid,
            name,
            peer,
        });
    }

    fn disconnected(&self, rc: i32, status: i32) {
        trace::emit(|| trace::XprtrdmaDisconnect {
            cid: self.cid,
            peer: &self.peer,
            rc,
            connect_status: status,
        });
    }

    fn ended(&self, why: EndReason) {
        self.history.closed(why.as_str());
    }

    fn lost(&self) {
        self.xprt.force_disconnect();
    }

    fn destroyed(&self, shared: &Shared<Self>, proof: &Destroyed) {
        let mut state = shared.lock();
        let mrs = state.role.retire(&self.pool, proof);
        let mut parked = core::mem::replace(&mut state.role.parked, LocalInvList::new());
        drop(state);
        // Freed without the lock.
        drop(mrs);
        while let Some(inv) = parked.pop() {
            retire(self, inv, proof);
        }
    }
}

impl Invalidates for Shared<Client> {
    type Waiter = Waiter;

    fn invalidated(
        &self,
        cx: &mut Completions<'_, Self>,
        inv: Inv,
        waiter: Waiter,
        mrs: MrList<Idle>,
        proof: Unexposed,
    ) {
        waiter.finish(self, cx, inv, mrs, proof);
    }

    fn invalidation_failed(&self, inv: Inv) {
        park(self, inv);
    }
}

/// Parks an invalidation that was not posted, or was flushed, until the queue pair is destroyed. If the
/// queue pair is destroyed already, the waiter is completed at once. Context: process, may sleep.
fn park(shared: &Shared<Client>, inv: Inv) {
    let mut state = shared.lock();
    // The proof is set before `destroyed` takes the lock to collect parked invalidations.
    match shared.destroyed() {
        Some(proof) => {
            drop(state);
            retire(&shared.role, inv, proof);
        }
        None => {
            state.role.parked.push(inv);
            drop(state);
            shared.request_close(EndReason::NotPosted);
        }
    }
}

/// Completes an invalidation, which the destroyed queue pair stands in for.
fn retire(client: &Client, mut inv: Inv, proof: &Destroyed) {
    if let Some((waiter, proof)) = inv.resolve(proof) {
        waiter.retired(client, proof);
    }
}

/// Takes the request whose Reply has come out of the table. Endpoint's lock held.
///
/// Each credit has a Receive. The Receive of a Reply whose RPC still exposes memory is not posted before
/// the memory is invalidated, so the Call ends then.
#[inline(always)]
fn take(
    protocol: &mut Protocol,
    requests: &mut Requests,
    rqst: &Pinned,
    invalidated: &mut Option<Invalidated>,
) -> Option<SentRequest> {
    let sent = requests.table.take(rqst.index(), invalidated)?;
    rqst.set_outstanding(false);
    if !matches!(sent, SentRequest::Exposed(..)) {
        protocol.handle_call_ended();
    }
    Some(sent)
}

/// Takes back the credit of a Reply that no RPC waits for, such as the Reply to a Call whose task was
/// killed. Endpoint's lock held.
#[cold]
fn orphaned(client: &Client, protocol: &mut Protocol, requests: &mut Requests, xid: Xid) {
    let Some(given_up) = requests.orphaned(xid.0) else {
        return;
    };
    protocol.handle_call_ended();
    if given_up {
        client.xprt.owed_reply_came();
    }
    client.xprt.credit_is_free();
}

/// Checks a Reply against the chunks that the Call provided.
#[inline(always)]
fn check(
    shared: &Shared<Client>,
    arrived: &Arrived<'_>,
    rqst: Pinned,
    sent: SentRequest,
    invalidated: Option<Invalidated>,
) -> Disposition<Pending> {
    let client = &shared.role;
    let xid = arrived.fixed.xid;
    trace::emit(|| trace::XprtrdmaReply {
        cid: client.cid,
        task: rqst.task(),
        xid: xid.0,
        credits: arrived.fixed.credit,
    });
    let form = match sent.check(xid, &arrived.conveyed, arrived.part.start) {
        Ok(reply) => match reply.payload {
            Payload::Inline(payload) => ReceivedForm::Inline {
                len: payload.len(),
                written: reply.written,
            },
            Payload::ReplyChunk { len } => ReceivedForm::ReplyChunk { len },
        },
        Err(why) => {
            let fixed = &arrived.fixed;
            invalid_reply(client, fixed.xid, fixed.version, fixed.htype, why.name());
            ReceivedForm::Failed
        }
    };
    let source = ReplySource {
        bytes: arrived.conveyed.payload,
        in_parts: arrived.part.offset != 0,
    };
    end_exposure(shared, rqst, sent, form, source, invalidated)
}

/// Decides whether a Call that the server has refused is sent again in another form.
//= V2-105, D-06
fn do_otherwise(client: &Client, requests: &Requests, rqst: &Pinned, report: ErrorReport) -> bool {
    let request = rqst.request();
    let reaction = request.with_attempts(rqst.xid(), |attempts| {
        requests.table.react(rqst.index(), report, attempts)
    });
    match reaction {
        Reaction::Retry(retry) => {
            let known = request.refusals();
            let again = client.history.refused(report, retry, known);
            client.peer_limits_changed.set(true);
            again
        }
        Reaction::Terminate => false,
    }
}

/// Notes that the server permits `limit` Calls of this side to be outstanding, and that a Call has ended.
#[inline(always)]
//= V1-036, V1-037
fn granted(client: &Client, limit: u32) {
    client.xprt.show_credits(limit);
    client.xprt.credit_is_free();
    trace::emit(|| trace::XprtrdmaCredits {
        cid: client.cid,
        limit,
    });
}

/// Drops a message for an RPC that does not wait for it.
#[cold]
fn stray(
    client: &Client,
    xid: Xid,
    version: u32,
    proc: u32,
    rqst: Option<Pinned>,
) -> Disposition<Pending> {
    let why = if rqst.is_some() {
        client.stats.bad_messages.add(1);
        "not sent, or answered already"
    } else {
        "no RPC waits for it"
    };
    trace::emit(|| trace::XprtrdmaReplyRqstErr {
        cid: client.cid,
        xid: xid.0,
        version,
        proc,
        peer: &client.peer,
        why,
    });
    Disposition::Done
}

/// Traces that the server has refused a Call by `report`.
#[cold]
fn trace_refusal(client: &Client, rqst: &RdmaRqst, report: ErrorReport) {
    let (cid, task, xid) = (client.cid, rqst.task(), rqst.xid());
    match report {
        ErrorReport::Version { low, high } => trace::emit(|| trace::XprtrdmaErrVers {
            cid,
            task,
            xid,
            min: low,
            max: high,
        }),
        ErrorReport::BadXdr => trace::emit(|| trace::XprtrdmaErrChunk { cid, task, xid }),
        other => trace::emit(|| trace::XprtrdmaErrUnrecognized {
            cid,
            task,
            xid,
            procedure: other.code(),
        }),
    }
}

/// Traces a message that breaks a rule, for the reason `why`.
#[cold]
fn invalid_reply(client: &Client, xid: Xid, version: u32, proc: u32, why: &'static str) {
    trace::emit(|| trace::XprtrdmaReplyHdrErr {
        cid: client.cid,
        xid: xid.0,
        version,
        proc,
        peer: &client.peer,
        why,
    });
}

/// Traces `message`, which breaks a rule, for the reason `why`.
#[cold]
fn invalid_message(client: &Client, message: &ClientMessage, why: &'static str) {
    let fixed = fixed_words(message);
    invalid_reply(client, fixed.xid, fixed.version, fixed.htype, why);
}

/// Traces the version of `message` if `why`, the reason for ending the connection, is a change of the version.
#[cold]
fn trace_version(client: &Client, why: connection::CloseReason, message: &ClientMessage) {
    if why != connection::CloseReason::VersionChanged {
        return;
    }
    let fixed = fixed_words(message);
    trace::emit(|| trace::XprtrdmaReplyVersErr {
        cid: client.cid,
        xid: fixed.xid.0,
        version: fixed.version,
        proc: fixed.htype,
        peer: &client.peer,
        why: BadHeader::Version.name(),
    });
}

/// Traces a message that is dropped.
#[cold]
fn trace_dropped(client: &Client, message: &ClientMessage) {
    let fixed = fixed_words(message);
    if message.bytes().len() >= Version::V1.empty_header_len() as usize {
        return invalid_message(client, message, "dropped");
    }
    trace::emit(|| trace::XprtrdmaReplyShortErr {
        cid: client.cid,
        xid: fixed.xid.0,
        version: fixed.version,
        proc: fixed.htype,
        peer: &client.peer,
        why: BadHeader::Truncated.name(),
    });
}

/// Returns the fixed words of a message for traces, or zeros if the message is too short.
#[cold]
fn fixed_words(message: &ClientMessage) -> FixedWords {
    let none = FixedWords {
        xid: Xid(0),
        version: 0,
        credit: 0,
        htype: 0,
    };
    FixedWords::split(message.bytes()).map_or(none, |(fixed, _)| fixed)
}

/// Drops a message for an unknown RPC.
fn unclaimed(client: &Client, event: Event<'_>, message: &ClientMessage) -> Disposition<Pending> {
    match event {
        //= V1-117, V1-129, V2-118
        //= V2-171, NFS-050, D-49
        Event::Call(call) => {
            let limits = CallLimits::reverse(call.version(), u32::MAX);
            if let Err(report) = responder::accept(&call.conveyed, call.part.len, &limits) {
                return Disposition::Refuse(call.fixed, report);
            }
            let (xid, payload) = (call.fixed.xid.0, call.conveyed.payload);
            trace::emit(|| trace::XprtrdmaCbCall {
                cid: client.cid,
                xid,
                len: payload.len() as u32,
                peer: &client.peer,
            });
            match client.backchannel.receive(&client.xprt, xid, payload) {
                Ok(()) => Disposition::Done,
                // Version 2 has an error for a Call that is not taken.
                Err(_) if call.version() == Version::V2 => {
                    Disposition::Refuse(call.fixed, ErrorReport::System)
                }
                Err(CallbackRefused::NoService) => {
                    client.stats.bad_messages.add(1);
                    Disposition::Done
                }
                Err(CallbackRefused::Excess) => Disposition::Close(EndReason::TooManyCalls),
            }
        }
        Event::Close { why, .. } => Disposition::Close(EndReason::Protocol(why)),
        // The Call is sent again on a connection that begins with the other version, which is remembered
        // when this connection is closed.
        Event::VersionChanged { refused: Some(_) } => {
            Disposition::Close(EndReason::Protocol(connection::CloseReason::VersionChanged))
        }
        // It may have brought properties, late.
        //= V2-138
        Event::None => {
            client.peer_limits_changed.set(true);
            Disposition::Done
        }
        Event::Ready | Event::VersionChanged { refused: None } => Disposition::Done,
        Event::Refused(why) => {
            invalid_message(client, message, why.name());
            client.stats.bad_messages.add(1);
            Disposition::Done
        }
        _ => {
            trace_dropped(client, message);
            client.stats.bad_messages.add(1);
            Disposition::Done
        }
    }
}

/// The Payload stream of a Reply, and whether it came in several messages.
#[derive(Clone, Copy)]
struct ReplySource<'a> {
    bytes: &'a [u8],
    in_parts: bool,
}

/// Ends the peer's access to the RPC's memory, as far as the peer has not, and finishes.
#[inline(always)]
fn end_exposure(
    shared: &Shared<Client>,
    rqst: Pinned,
    sent: SentRequest,
    form: ReceivedForm,
    source: ReplySource<'_>,
    invalidated: Option<Invalidated>,
) -> Disposition<Pending> {
    let client = &shared.role;
    let proof = match sent {
        SentRequest::Inline(_) if invalidated.is_some() => {
            client.stats.bad_messages.add(1);
            return Disposition::Close(EndReason::ForeignInvalidation);
        }
        SentRequest::Inline(proof) => proof,
        SentRequest::Revoked(mr, _) => {
            //= CM-016
            trace::emit(|| trace::XprtrdmaMrReminv {
                cid: client.cid,
                task: rqst.task(),
                xid: rqst.xid(),
                mr: mr.facts(),
            });
            let (mr, proof) = mr.unmap();
            client.give_back(mr);
            proof
        }
        SentRequest::Exposed(exposed, _) => {
            let in_parts = source.in_parts;
            return end_exposure_of_many(shared, rqst, exposed, form, in_parts, invalidated);
        }
    };
    finish(client, rqst, source.bytes, form, proof);
    Disposition::Done
}

/// Does the work of [`end_exposure`] when the peer has not invalidated all registrations: it invalidates one
/// at most.
#[inline(never)]
fn end_exposure_of_many(
    shared: &Shared<Client>,
    rqst: Pinned,
    mut exposed: Exposed,
    form: ReceivedForm,
    in_parts: bool,
    invalidated: Option<Invalidated>,
) -> Disposition<Pending> {
    let client = &shared.role;
    if let Some(by_peer) = invalidated {
        //= V2-117, CM-012, CM-016
        //= D-22
        let note = |mr: &Mr<Idle>| {
            trace::emit(|| trace::XprtrdmaMrReminv {
                cid: client.cid,
                task: rqst.task(),
                xid: rqst.xid(),
                mr: mr.facts(),
            });
        };
        match exposed.mrs.take_invalidated(by_peer, note) {
            Some(mr) => client.give_back(mr),
            None => return foreign(shared, rqst, exposed),
        }
    }
    Disposition::Keep(Pending {
        rqst,
        form,
        exposed,
        in_parts,
    })
}

/// Ends the RPC whose memory the peer has invalidated with a message for another RPC, or for none of this side.
#[cold]
fn foreign(shared: &Shared<Client>, rqst: Pinned, exposed: Exposed) -> Disposition<Pending> {
    shared.lock().role.table.untake(&rqst, exposed);
    shared.role.stats.bad_messages.add(1);
    Disposition::Close(EndReason::ForeignInvalidation)
}

impl Pending {
    /// Invalidates the RPC's memory.
    pub(super) fn invalidate(
        self,
        shared: &Shared<Client>,
        cx: &mut Completions<'_, Shared<Client>>,
        message: ClientMessage,
    ) {
        let Self {
            rqst,
            form,
            exposed,
            in_parts,
        } = self;
        note_local_inv(&shared.role, &rqst, &exposed.mrs);
        let joined = if is_counted(&message) {
            let mut state = shared.lock();
            state.hold(1);
            state.joined.take_if(|_| in_parts)
        } else {
            None
        };
        let waiter = Waiter::Reply {
            rqst,
            form,
            message,
            joined,
        };
        if let Err(inv) = cx.qp().post_local_inv(exposed.inv, exposed.mrs, waiter) {
            park(shared, inv);
        }
    }
}

/// Returns whether the Receive of a message has a credit of the server: in version 2.
//= V2-044
fn is_counted(message: &ClientMessage) -> bool {
    let fixed = FixedWords::split(message.bytes());
    fixed.is_some_and(|(fixed, _)| fixed.version == Version::V2.number())
}

impl Waiter {
    /// Takes back registrations whose memory is invalidated and unmapped. `mrs` can be used again.
    pub(super) fn finish(
        self,
        shared: &Shared<Client>,
        cx: &mut Completions<'_, Shared<Client>>,
        inv: Inv,
        mrs: MrList<Idle>,
        proof: Unexposed,
    ) {
        match self {
            Self::Reply {
                rqst,
                form,
                message,
                joined,
            } => {
                let mut state = shared.lock();
                state.role.table.put_back(rqst.index(), inv);
                if let Some((protocol, _)) = state.established() {
                    protocol.handle_call_ended();
                }
                if is_counted(&message) {
                    state.release(1);
                }
                drop(state);
                shared.role.xprt.credit_is_free();
                shared.role.give_back_all(mrs);
                let source = joined.as_ref().map_or(message.bytes(), Reassembly::bytes);
                finish(&shared.role, rqst, source, form, proof);
                cx.repost(message);
            }
            Self::Release { index, done } => {
                shared.lock().role.table.put_back(index, inv);
                shared.role.give_back_all(mrs);
                done.complete_all();
            }
        }
    }

    /// Ends the exposure after the end of the connection.
    ///
    /// The RPC of a good Reply continues to wait: its pin is dropped, and the core sends it again. The RPC
    /// of a bad Reply fails, whether its connection continues or not.
    pub(super) fn retired(self, client: &Client, proof: Option<Unexposed>) {
        match (self, proof) {
            (
                Self::Reply {
                    rqst,
                    form: ReceivedForm::Failed,
                    ..
                },
                Some(proof),
            ) => finish(client, rqst, &[], ReceivedForm::Failed, proof),
            (Self::Reply { .. }, _) => {}
            (Self::Release { done, .. }, _) => done.complete_all(),
        }
    }
}

/// Counts and traces the LOCAL_INV work requests for these registrations.
fn note_local_inv(client: &Client, rqst: &RdmaRqst, exposed: &MrList<Registered>) {
    let count = exposed.regions().count();
    client.stats.local_inv_needed.add(count as u64);
    trace::emit_each(|| {
        exposed.facts().map(|mr| trace::XprtrdmaMrLocalinv {
            cid: client.cid,
            task: rqst.task(),
            xid: rqst.xid(),
            mr,
        })
    });
}

/// Ends the exposure of the memory of an RPC whose task gives up.
///
/// `endpoint` is the transport's connection. Returns the object to wait for, if any.
#[cold]
//= V1-090, V2-184, V2-188
pub(super) fn abandon(endpoint: &Endpoint<Client>, rqst: &RdmaRqst) -> Option<Arc<Completion>> {
    let shared = endpoint.shared();
    let (index, request) = (rqst.index(), rqst.request());
    let mut state = shared.lock();
    let (_, requests) = state.established()?;
    // Nothing exposed; or the connection has ended and taken it.
    let (mrs, inv) = requests.abandon(&shared.role.xprt, rqst)?.exposed?;
    note_local_inv(&shared.role, rqst, &mrs);
    request.released.reset();
    let done = request.released.clone();
    let waiter = Waiter::Release {
        index,
        done: done.clone(),
    };
    let posted = endpoint.qp().post_local_inv(inv, mrs, waiter);
    drop(state);
    if let Err(inv) = posted {
        park(shared, inv);
    }
    Some(done)
}

/// Completes an RPC whose memory the peer cannot reach any more.
#[inline(always)]
//= V1-089, V1-141, V2-081
//= V2-183
fn finish(client: &Client, mut rqst: Pinned, source: &[u8], form: ReceivedForm, proof: Unexposed) {
    if let ReceivedForm::Again = form {
        return send_again(client, rqst);
    }
    match place(&client.stats, &mut rqst, source, form, &proof) {
        Ok(len) => rqst.complete(len),
        Err(error) => {
            client.stats.bad_reply.add(1);
            rqst.fail(error);
        }
    }
}

/// Makes the core send the Call again: on this connection, unless the refusal has overtaken the end of the
/// sending; then on the next.
#[cold]
//= V2-105
fn send_again(client: &Client, rqst: Pinned) {
    if !rqst.send_again() {
        client.xprt.force_disconnect();
    }
}

/// Puts the Reply where the RPC's decoder expects it, and returns its length.
///
/// The decoder refuses a length that is no multiple of four. Some servers leave XDR pad out of an
/// inline Reply, or pad it wrongly; the bytes that the decoder reads are there all the same.
///
/// # Errors
///
/// `EIO`: the Reply does not fit the buffers of the RPC, or is no complete Reply.
#[inline(always)]
fn place(
    stats: &Stats,
    rqst: &mut Pinned,
    source: &[u8],
    form: ReceivedForm,
    proof: &Unexposed,
) -> Result<usize> {
    match form {
        ReceivedForm::Inline { len, written } => {
            let payload = source
                .len()
                .checked_sub(len)
                .and_then(|start| source.get(start..))
                .ok_or(EIO)?;
            let mut reply = rqst.reply_buf();
            let head = reply.head_len() as usize;
            if written == 0 {
                reply.write(0, payload).map_err(|_| EIO)?;
                if len > head {
                    let in_pages = (len - head).min(reply.page_len() as usize);
                    stats.fixup_copy.add(in_pages as u64);
                }
                return Ok(padded_len(len as u32) as usize);
            }
            // The results are in the page list already; the inline bytes go before and behind them.
            let (before, after) = payload.split_at_checked(head).unwrap_or((payload, &[]));
            reply.write(0, before).map_err(|_| EIO)?;
            if !after.is_empty() {
                let tail = reply.head_len() + reply.page_len();
                reply.write(tail, after).map_err(|_| EIO)?;
            }
            reply.trim_head(len);
            //= V1-068
            stats.total_rdma_reply.add(u64::from(written));
            // The pad may be in the chunk, too.
            let in_pages = written.min(reply.page_len());
            Ok((padded_len(len as u32) + padded_len(in_pages)) as usize)
        }
        ReceivedForm::ReplyChunk { len } => {
            stats.total_rdma_reply.add(u64::from(len));
            if rqst.request().is_joined() {
                take_edges(rqst, len, proof)?;
            }
            Ok(len as usize)
        }
        ReceivedForm::Again | ReceivedForm::Failed => Err(EIO),
    }
}

/// Copies the head and the tail of a joined Reply of `len` bytes, whose other bytes are in the page list already.
///
/// # Errors
///
/// `EIO`: the Reply does not fit the buffers of the RPC.
#[inline(never)]
fn take_edges(rqst: &mut Pinned, len: u32, proof: &Unexposed) -> Result {
    let edge = rqst.request().edge().ok_or(EIO)?;
    let mut reply = rqst.reply_buf();
    let (head, tail) = (reply.head_len(), reply.head_len() + reply.page_len());
    let before = reply
        .part_mut(XdrPart::Head)
        .get_mut(..len.min(head) as usize);
    let start = PAGE_SIZE.checked_sub(head).ok_or(EIO)?;
    edge.read(start, before.ok_or(EIO)?, proof)
        .map_err(|_| EIO)?;
    let behind = len.saturating_sub(tail) as usize;
    let behind = reply.part_mut(XdrPart::Tail).get_mut(..behind);
    edge.read(0, behind.ok_or(EIO)?, proof).map_err(|_| EIO)
}
