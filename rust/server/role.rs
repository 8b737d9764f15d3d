// SPDX-License-Identifier: GPL-2.0

//! The responder as a role of an endpoint: where each event of a connection goes.

use super::{
    connection::Removal,
    delayed::{
        self,
        Delayed, //
    },
    settings,
    sizes::ServerSizes, //
};
use crate::{
    endpoint::{
        Disposition,
        EndReason,
        LockedState,
        Protocol,
        Reassembly,
        ReassemblyQuota,
        Responder,
        Role,
        Shared,
        State,
        Waiting, //
    },
    proto::{
        connection::{
            negotiate::Time,
            Arrived,
            Event, //
        },
        requester::plan::{
            Item,
            ItemSet, //
        },
        responder::{
            self,
            Call,
            CallLimits,
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
        local_inv::LocalInvBox,
        mr::{
            Idle,
            MrList, //
        },
        proof::{
            Destroyed,
            Invalidated,
            Unexposed, //
        },
        pull::{
            IdlePulls,
            PullBox, //
        },
        qp::QpRef,
        recv::{
            Received,
            ReceivedList, //
        },
    },
    sunrpc::svc::{
        backchannel::PinnedCall,
        SvcHandle, //
    },
    support::{
        trace,
        work::Job, //
    },
};
use core::convert::Infallible;
use kernel::prelude::*;

/// A message, in the buffer that it was received into.
pub(crate) type ServerMessage = Received<Shared<Server>>;

/// The data that is kept with a Call.
#[derive(Default)]
pub(crate) struct Note {
    /// The result of its check.
    pub(super) kept: ParsedCall,
    /// Its memory stays for the next Call in the same buffer.
    results: KVec<Option<Item>>,
    /// The Pull with the data of its Read chunks; after the delivery, the Pull without them.
    pub(super) pull: Option<PullBox<Shared<Server>>>,
    /// The end of the data that has been read, or is being read, in bytes.
    pub(super) read: u32,
    /// Data behind `read` is missing.
    pub(super) more: bool,
    /// Its Payload stream until it is delivered, if that came in several parts.
    pub(super) joined: Option<Reassembly>,
    /// The number of Receives that it counts as while it is kept. Version 1 does not count them.
    pub(super) held: u32,
    /// Its Reply, while that waits for the client.
    pub(super) delayed: Option<KBox<Delayed>>,
}

impl Note {
    /// Prepares the note for a new Call.
    #[inline(always)]
    fn begin(&mut self, kept: ParsedCall) {
        self.kept = kept;
        self.results.clear();
        self.pull = None;
        self.read = 0;
        self.more = false;
        self.joined = None;
        self.held = 0;
        self.delayed = None;
    }

    /// Opens the Call of `message` again: its fixed words, the Call, and its Payload stream, as far
    /// as that is inline.
    #[inline]
    pub(super) fn open<'a>(
        &'a self,
        message: &'a [u8],
    ) -> Option<(FixedWords, Call<'a>, &'a [u8])> {
        let (fixed, call, stream) = self.kept.open(message)?;
        let stream = self.joined.as_ref().map_or(stream, Reassembly::bytes);
        Some((fixed, call, stream))
    }

    /// Adds a result that may be moved directly. A result beyond the number that a Reply can have is
    /// conveyed with the rest of the Reply.
    ///
    /// The offsets of the results of one Reply rise. An offset that does not belongs to another
    /// Reply to the same Call, which nfsd has deferred and processes once more.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add_result(&mut self, result: Item) -> Result {
        let last = self.results.last().copied().flatten();
        if last.is_some_and(|last| result.offset < last.range().end) {
            self.results.clear();
        }
        if self.results.len() < ItemSet::MAX {
            self.results.push(Some(result), GFP_KERNEL)?;
        }
        Ok(())
    }

    /// The results that may be moved directly, in order.
    pub(super) fn results(&self) -> &[Option<Item>] {
        &self.results
    }
}

/// Calls on their way to a thread, and Calls whose Replies wait for the client.
pub(crate) struct Queue {
    /// Calls that have just arrived. In version 2 they wait for the credits that their Replies take.
    pub(super) calls: ReceivedList<Shared<Server>>,
    /// Calls whose Read chunks have been pulled.
    pub(super) pulled: ReceivedList<Shared<Server>>,
    /// Calls whose Read chunks wait for registrations of the device, or for room in the send queue.
    pub(super) starved: ReceivedList<Shared<Server>>,
    /// The Call that is read in rounds, while it waits for these.
    pub(super) halfway: Option<ServerMessage>,
    /// A Call is read in rounds. There is one at most, because it keeps its pages between rounds.
    pub(super) in_rounds: bool,
    /// Registrations or room came back: a Call that waits for some may try again. While such a Call waits,
    /// this is set, or will be set by the end of a Call that is being pulled, or of a Send.
    pub(super) retry: bool,
    /// The number of Calls whose Read chunks are being pulled, and which may hold registrations of the
    /// device. The end of each Pull lets another Call try.
    pub(super) pulling: u32,
    /// Calls whose Replies wait for the client, in the order of the Replies.
    pub(super) replies: ReceivedList<Shared<Server>>,
    /// Pulls to be used again.
    pub(super) idle: IdlePulls<Shared<Server>>,
    /// The transport is detached: its backchannel may be gone.
    pub(super) detached: bool,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            calls: ReceivedList::new(),
            pulled: ReceivedList::new(),
            starved: ReceivedList::new(),
            halfway: None,
            in_rounds: false,
            retry: false,
            pulling: 0,
            replies: ReceivedList::new(),
            idle: IdlePulls::new(),
            detached: false,
        }
    }
}

/// A Call to the client whose Reply has come.
pub(crate) struct CallClaim {
    call: PinnedCall,
    /// The number of Calls to the client that may be outstanding.
    limit: u32,
}

/// The responder's side of a connection.
pub(crate) struct Server {
    /// The transport whose connection this is.
    pub(super) xprt: SvcHandle,
    /// The number of the connection.
    pub(super) cid: u32,
    /// How large its resources are.
    pub(super) sizes: ServerSizes,
    /// Ends the connection when its device goes away.
    pub(super) removal: Pin<KBox<Job<Removal>>>,
    /// The limits of a Call of each version.
    limits_v1: CallLimits,
    limits_v2: CallLimits,
}

impl Server {
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(xprt: SvcHandle, cid: u32, sizes: ServerSizes) -> Result<Self> {
        Ok(Self {
            xprt,
            cid,
            limits_v1: sizes.call_limits(Version::V1),
            limits_v2: sizes.call_limits(Version::V2),
            sizes,
            removal: KBox::pin_init(Job::new(Removal::new()), GFP_KERNEL)?,
        })
    }
}

impl Role for Server {
    type Locked = Queue;
    type Claim = Option<CallClaim>;
    type Pending = ParsedCall;
    type Waiter = Infallible;
    type Note = Note;

    const BUDGET: ReassemblyQuota = ReassemblyQuota::Responder;
    const FAST_PATH: MsgType = MsgType::Call;

    fn begin(&self, _private_data: &[u8], _now: Time) -> Option<Protocol> {
        // Only the side that connects is told by an event.
        None
    }

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

    #[inline]
    fn received(&self) {
        settings::RECEIVES.count();
    }

    #[cold]
    fn refused(&self, message: &FixedWords, report: &ErrorReport) {
        trace::svc_error(|| (self.cid, message.xid.0, report.name()));
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
        _cx: &mut Completions<'_, Shared<Self>>,
        kept: ParsedCall,
        mut message: ServerMessage,
    ) {
        message.note_mut().begin(kept);
        trace::svc_call(|| trace_fields(self.cid, &message));
        let mut state = shared.lock();
        if kept.version() == Version::V2 {
            hold(&mut state, message.note_mut());
        }
        state.role.calls.push(message);
        drop(state);
        self.xprt.work_pending();
    }

    fn invalidated(
        &self,
        _shared: &Shared<Self>,
        _cx: &mut Completions<'_, Shared<Self>>,
        _inv: LocalInvBox<Shared<Self>>,
        waiter: Infallible,
        _mrs: MrList<Idle>,
        _proof: Unexposed,
    ) {
        match waiter {}
    }

    fn writable(&self) {}

    fn ended(&self, _why: EndReason) {}

    fn lost(&self) {
        self.xprt.close();
    }

    fn device_removed(&self) {
        // No thread of the service need be free for this.
        self.removal.request();
    }

    fn send_waiting(
        &self,
        shared: &Shared<Self>,
        state: &mut State<Self>,
        qp: &QpRef<Shared<Self>>,
    ) -> Result<bool, EndReason> {
        let had_replies = !state.role.replies.is_empty();
        let has_gone_on = delayed::send(state, qp)?;
        let is_blocked = self.is_blocked(state);
        if has_gone_on || !is_blocked {
            state.wait_from_now(is_blocked);
        }
        if !state.role.replies.is_empty() {
            return Ok(false);
        }
        let may_take = state.may_take_call();
        let queue = &mut state.role;
        queue.retry = true;
        let has_more = queue.has_more(may_take);
        shared.note_waiting(if has_more || queue.calls.is_empty() {
            Waiting::Nothing
        } else {
            Waiting::Calls
        });
        if has_more {
            self.xprt.note_work();
        }
        // The core may have work for a thread as well, a Call that it has deferred.
        Ok(has_more || had_replies)
    }

    fn has_work(&self) {
        self.xprt.enqueue();
    }

    fn is_blocked(&self, state: &State<Self>) -> bool {
        let queue = &state.role;
        !queue.replies.is_empty() || !queue.calls.is_empty() && state.lacks_credit()
    }

    fn destroyed(&self, _queue: &mut Queue, _proof: &Destroyed) -> MrList<Idle> {
        MrList::new()
    }

    fn retired(&self, waiter: Infallible, _proof: Option<Unexposed>) {
        match waiter {}
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
                trace::svc_error(|| (self.cid, xid_of(message), why.name()));
                Disposition::Done
            }
            Event::Close { why, .. } => Disposition::Close(EndReason::Protocol(why)),
            //= V1-121, NFS-049
            Event::Reply(arrived) => {
                let payload = arrived.conveyed.payload;
                trace::svc_callback_reply(|| (self.cid, arrived.fixed.xid.0, payload.len() as u32));
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

impl Responder for Server {
    type Puller = ServerMessage;

    fn pulled(
        &self,
        queue: &mut Queue,
        mut call: ServerMessage,
        pull: Option<PullBox<Shared<Self>>>,
    ) -> Option<ServerMessage> {
        queue.pulling -= 1;
        queue.retry = true;
        trace::svc_read_ended(|| {
            let rc = if pull.is_some() { 0 } else { EIO.to_errno() };
            (self.cid, xid_of(&call), rc)
        });
        // Without the data the connection is lost, and the Call with it.
        if pull.is_none() {
            return Some(call);
        }
        call.note_mut().pull = pull;
        queue.pulled.push(call);
        None
    }

    fn readable(&self) {
        self.xprt.work_pending();
    }

    fn send_len(&self, version: Version) -> u32 {
        self.sizes.len(version)
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

/// The XID of a message that has one, for traces.
#[cold]
fn xid_of(message: &ServerMessage) -> u32 {
    FixedWords::split(message.bytes()).map_or(0, |(fixed, _)| fixed.xid.0)
}

/// Returns the fields of a Call's trace event. It parses the message again, so that a disabled event
/// needs no memory.
#[cold]
fn trace_fields(
    cid: u32,
    message: &ServerMessage,
) -> (u32, u32, u32, u32, &'static str, u32, u32, u32) {
    let Some((fixed, call, _)) = message.note().kept.open(message.bytes()) else {
        return (cid, 0, 0, 0, "nothing", 0, 0, 0);
    };
    let chunks = &call.chunks;
    let form = match call.kind {
        _ if chunks.reads.is_empty() => "inline",
        Kind::Msg => "read list",
        Kind::Nomsg => "*read list",
    };
    let writes: usize = chunks.writes.iter().map(|chunk| chunk.count()).sum();
    (
        cid,
        fixed.xid.0,
        fixed.credit,
        call.len,
        form,
        chunks.reads.count() as u32,
        writes as u32,
        chunks.reply.map_or(0, |chunk| chunk.count()) as u32,
    )
}
