// SPDX-License-Identifier: GPL-2.0

//! Idle registrations, and registrations of requests whose Reply is outstanding.
//!
//! The endpoint's lock protects the requests. One value, [`Exposed`], holds the registrations of a request
//! together with the box for their invalidation, so an invalidation always has its box. The code that
//! takes it out of the [`RequestTable`] ends the exposure: the Reply's handler, a task that gives up, or the end
//! of the connection. Most requests have one registration, which the peer invalidates with its Reply; then
//! no work request is posted, and the box stays where it is.
//!
//! Idle registrations are in the [`Pool`], or with the sender, which takes all of the pool when it has
//! no idle registration. No registration is made while a Call is being sent: when all are in use,
//! [`Refill`] makes more, and the sender waits.

use super::{
    connection::Client,
    pool::{
        Pool,
        SMALL_PAGES, //
    },
    request::{
        RdmaRqst,
        Request, //
    },
    sizes::{
        Start,
        Stock,
        FIRST_STOCK, //
    },
};
use crate::{
    endpoint::{
        Endpoint,
        Shared, //
    },
    proto::{
        requester::{
            reply::{
                self,
                Failure,
                Reply, //
            },
            retry::{
                self,
                Attempts,
                Reaction, //
            },
        },
        wire::{
            chunk::{
                ChunksOf,
                Layout,
                NoChunks,
                OneSegment, //
            },
            error::ErrorReport,
            header::{
                Conveyed,
                RpcStart, //
            },
            types::{
                Handle,
                Segment,
                Version,
                Xid, //
            },
        },
    },
    rdma::{
        local_inv::{
            LocalInv,
            LocalInvBox,
            LocalInvList, //
        },
        mr::{
            Idle,
            Mr,
            MrList,
            Region,
            Registered,
            Revoked, //
        },
        proof::{
            Destroyed,
            Invalidated,
            Unexposed, //
        },
        send::{
            SendMark,
            SendQueue, //
        },
    },
    sunrpc::{
        Xprt,
        XprtHandle, //
    },
    support::{
        errno,
        gate::Gate,
        memalloc::{
            retry_enomem,
            NofsScope,
            GFP_NORETRY, //
        },
        trace,
        work::Run, //
    },
};
use core::{
    mem::take,
    slice, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};

/// The registrations of a request, and the box for their invalidation.
pub(crate) struct Exposed {
    pub(super) mrs: MrList<Registered>,
    pub(super) inv: LocalInvBox<Shared<Client>>,
}

/// Returns the Segment of a registration for the header.
#[inline]
pub(super) fn segment(region: Region) -> Segment {
    Segment {
        handle: Handle(region.key),
        length: region.length,
        offset: region.address,
    }
}

/// A request that was sent and whose Reply is outstanding.
pub(crate) enum SentRequest {
    /// It names no memory.
    Inline(Unexposed),
    /// It named memory by one registration, which the peer has invalidated.
    Revoked(Mr<Revoked>, Layout),
    /// The peer may reach its memory.
    Exposed(Exposed, Layout),
}

impl SentRequest {
    /// Checks a Reply against the provided chunks.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the Reply breaks a rule.
    #[inline(always)]
    pub(super) fn check<'a>(
        &self,
        xid: Xid,
        conveyed: &Conveyed<'a>,
        start: Option<RpcStart>,
    ) -> Result<Reply<'a>, Failure> {
        match self {
            Self::Inline(_) => reply::check_conveyed(xid, conveyed, start, &NoChunks),
            Self::Revoked(mr, layout) => {
                let provided = OneSegment {
                    layout: *layout,
                    segment: segment(mr.region()),
                };
                reply::check_one(xid, conveyed, start, &provided)
            }
            Self::Exposed(exposed, layout) => {
                // A copy for the function that is not inlined: `conveyed` can stay in registers otherwise.
                let conveyed = *conveyed;
                exposed.check(*layout, xid, &conveyed, start)
            }
        }
    }
}

impl Exposed {
    /// Checks a Reply against the chunks of these registrations.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the Reply breaks a rule.
    #[inline(never)]
    fn check<'a>(
        &self,
        layout: Layout,
        xid: Xid,
        conveyed: &Conveyed<'a>,
        start: Option<RpcStart>,
    ) -> Result<Reply<'a>, Failure> {
        let provided = ChunksOf {
            layout,
            segments: self.mrs.regions().map(segment),
        };
        reply::check_conveyed(xid, conveyed, start, &provided)
    }
}

/// The state of a slot's request on this connection.
enum RequestState {
    /// Not sent.
    Idle(LocalInvBox<Shared<Client>>),
    /// Sent without chunks.
    Inline(LocalInvBox<Shared<Client>>, Unexposed),
    /// Sent with chunks.
    Exposed(Exposed),
    /// It was taken, and its box has not come back yet.
    Taken,
}

/// The request of a slot.
struct Row {
    entry: RequestState,
    /// The chunk lists of the Call that was sent last with chunks, in terms of its registrations. It is apart, as `xid`
    /// is, because an entry is moved as a whole.
    layout: Layout,
    /// The XID of the Call that was sent last.
    xid: u32,
    /// The Reply has come after the request left the receive queue: the task is about to give the
    /// request up.
    answered: bool,
}

/// A request that its task has given up.
pub(super) struct Abandoned {
    /// Its registrations, and the box for their LOCAL_INV.
    pub(super) exposed: Option<(MrList<Registered>, LocalInvBox<Shared<Client>>)>,
    /// Its XID, if the peer owes the Reply.
    owed: Option<u32>,
}

/// All requests of a connection, by the index of their slot.
pub(super) struct RequestTable(KVVec<Row>);

impl RequestTable {
    /// Entries for `slots` slots. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    fn new(endpoint: &Endpoint<Client>, slots: u32) -> Result<Self> {
        let mut rows = KVVec::with_capacity(slots as usize, GFP_NORETRY)?;
        for _ in 0..slots {
            let inv = endpoint.retry_enomem(LocalInv::new)?;
            let entry = RequestState::Idle(inv);
            let row = Row {
                entry,
                layout: Layout::default(),
                xid: 0,
                answered: false,
            };
            rows.push(row, GFP_NORETRY)?;
        }
        Ok(Self(rows))
    }

    /// Returns whether the slot's request can be sent: the last RPC in the slot has ended.
    #[inline]
    pub(super) fn is_idle(&self, index: u32) -> bool {
        matches!(
            self.0.get(index as usize).map(|row| &row.entry),
            Some(RequestState::Idle(_))
        )
    }

    /// Enters a request that was sent with `mrs` as its chunks. The request must have been idle.
    #[inline]
    pub(super) fn sent(&mut self, rqst: &RdmaRqst, mrs: MrList<Registered>, layout: Layout) {
        let Some(row) = self.0.get_mut(rqst.index() as usize) else {
            return;
        };
        let entry @ RequestState::Idle(_) = &mut row.entry else {
            return;
        };
        let inv = match core::mem::replace(entry, RequestState::Taken) {
            RequestState::Idle(inv) => inv,
            // The pattern above excludes it. Without a drop, only the box is copied.
            other => return core::mem::forget(other),
        };
        let sent = match mrs.unexposed() {
            Ok(proof) => RequestState::Inline(inv, proof),
            Err(mrs) => {
                row.layout = layout;
                RequestState::Exposed(Exposed { mrs, inv })
            }
        };
        core::mem::forget(core::mem::replace(entry, sent));
        row.xid = rqst.xid();
        row.answered = false;
        rqst.set_outstanding(true);
    }

    /// Takes a request whose Reply is outstanding. `by_peer` is the registration that the peer has
    /// invalidated with the Reply; it is used up if the request has no other registration.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        index: u32,
        by_peer: &mut Option<Invalidated>,
    ) -> Option<SentRequest> {
        // An arm of its own for requests without registrations. It moves only the box, which saves 2 % of a GETATTR.
        let row = self.0.get_mut(index as usize)?;
        if let entry @ RequestState::Inline(..) = &mut row.entry {
            let (inv, proof) = match core::mem::replace(entry, RequestState::Taken) {
                RequestState::Inline(inv, proof) => (inv, proof),
                other => {
                    core::mem::forget(other);
                    return None;
                }
            };
            core::mem::forget(core::mem::replace(entry, RequestState::Idle(inv)));
            return Some(SentRequest::Inline(proof));
        }
        let layout = row.layout;
        self.change(index, |entry| match entry {
            RequestState::Exposed(Exposed { mrs, inv }) => match mrs.into_revoked(by_peer) {
                Ok(mr) => (
                    RequestState::Idle(inv),
                    Some(SentRequest::Revoked(mr, layout)),
                ),
                Err(mrs) => (
                    RequestState::Taken,
                    Some(SentRequest::Exposed(Exposed { mrs, inv }, layout)),
                ),
            },
            other => (other, None),
        })?
    }

    /// Returns the next attempt for a request that the server has refused (version 2).
    #[cold]
    //= V2-105, D-06
    pub(super) fn react(
        &self,
        index: u32,
        report: ErrorReport,
        attempts: &mut Attempts,
    ) -> Reaction {
        let Some(row) = self.0.get(index as usize) else {
            return Reaction::Terminate;
        };
        let (layout, mrs) = match &row.entry {
            RequestState::Inline(..) => (Layout::default(), None),
            RequestState::Exposed(exposed) => (row.layout, Some(&exposed.mrs)),
            _ => return Reaction::Terminate,
        };
        let len = |skip: u32, count: u32| {
            let regions = mrs.into_iter().flat_map(|mrs| mrs.regions());
            let regions = regions.skip(skip as usize).take(count as usize);
            regions.fold(0_u32, |len, region| len.saturating_add(region.length))
        };
        let Layout {
            position,
            reads,
            writes,
            replies,
        } = layout;
        let long = reads != 0 && position.0 == 0;
        let write = len(reads, writes);
        let reply_chunk = len(reads + writes, replies);
        let sent = retry::Sent {
            long,
            read_chunks: u32::from(reads != 0 && !long),
            write_chunks: match writes {
                0 => &[],
                _ => slice::from_ref(&write),
            },
            reply_chunk,
            segments: reads.max(writes).max(replies),
            header_segments: reads + writes + replies,
        };
        // The memory for results is as long as the upper layer made it, but it need not be provided.
        let most = if reply_chunk == 0 { u32::MAX } else { 0 };
        retry::react(Version::V2, report, &sent, attempts, most)
    }

    /// Replaces an entry by the return value of `f`.
    #[inline(always)]
    fn change<T>(
        &mut self,
        index: u32,
        f: impl FnOnce(RequestState) -> (RequestState, T),
    ) -> Option<T> {
        let entry = &mut self.0.get_mut(index as usize)?.entry;
        let (new, result) = f(core::mem::replace(entry, RequestState::Taken));
        // The replaced entry has nothing to drop; without this, the compiler would check it.
        core::mem::forget(core::mem::replace(entry, new));
        Some(result)
    }

    /// Puts back the value of [`take`](Self::take): the message was not a Reply, and the RPC continues to wait.
    pub(super) fn untake(&mut self, rqst: &RdmaRqst, exposed: Exposed) {
        self.change(rqst.index(), |_| (RequestState::Exposed(exposed), ()));
        rqst.set_outstanding(true);
    }

    /// Marks the request that a Reply belongs to for which no RPC waits. Returns whether there is one:
    /// then its task has not given it up yet, but will.
    fn answered(&mut self, reply: u32) -> bool {
        let is_its = |row: &&mut Row| {
            let is_sent = matches!(
                row.entry,
                RequestState::Inline(..) | RequestState::Exposed(_)
            );
            row.xid == reply && is_sent && !row.answered
        };
        match self.0.iter_mut().find(is_its) {
            Some(row) => {
                row.answered = true;
                true
            }
            None => false,
        }
    }

    /// Takes a sent request because its task gives it up, or because the connection has ended.
    fn abandon(&mut self, index: u32) -> Option<Abandoned> {
        let row = self.0.get(index as usize)?;
        let owed = (!row.answered).then_some(row.xid);
        let taken = |exposed| Some(Abandoned { exposed, owed });
        self.change(index, |entry| match entry {
            RequestState::Inline(inv, _) => (RequestState::Idle(inv), taken(None)),
            RequestState::Exposed(Exposed { mrs, inv }) => {
                (RequestState::Taken, taken(Some((mrs, inv))))
            }
            other => (other, None),
        })?
    }

    /// Gives back the box of a request that exposes nothing any more.
    #[inline]
    pub(super) fn put_back(&mut self, index: u32, inv: LocalInvBox<Shared<Client>>) {
        self.change(index, |_| (RequestState::Idle(inv), ()));
    }
}

/// Registrations that make room for others.
///
/// The work request that registered such a registration asked for no completion. The device may look at the registration
/// until a Send behind that work request has ended (qedr counts in it), also when the peer has invalidated the
/// registration before. So the registrations are freed later, all of a group at a time.
pub(super) struct Removed {
    /// The registrations that are freed next, when the send queue has passed the mark.
    first: Option<(SendMark, MrList<Idle>)>,
    /// The registrations that were removed after that mark.
    later: MrList<Idle>,
}

impl Removed {
    const fn new() -> Self {
        Self {
            first: None,
            later: MrList::new(),
        }
    }

    /// Adds a registration. Returns registrations that the device is done with, which the caller frees without the lock.
    fn add(&mut self, mr: Mr<Idle>, queue: &SendQueue<Shared<Client>>) -> MrList<Idle> {
        self.later.push(mr);
        let done_with = match self.first.take() {
            Some((mark, first)) if !queue.has_passed(mark) => {
                self.first = Some((mark, first));
                return MrList::new();
            }
            Some((_, first)) => first,
            None => MrList::new(),
        };
        self.first = Some((queue.mark(), take(&mut self.later)));
        done_with
    }

    /// Takes all registrations, after the queue pair was destroyed.
    fn take_all(&mut self) -> MrList<Idle> {
        let mut all = take(&mut self.later);
        if let Some((_, first)) = self.first.take() {
            all.append(first);
        }
        all
    }
}

/// The data of the client under the endpoint's lock.
pub(crate) struct Requests {
    pub(super) table: RequestTable,
    /// The XIDs of Calls whose Reply the peer owes and no RPC waits for: of requests that were given up, and of the
    /// Call of [`SendSide::ask_for_credits`](super::marshal::SendSide::ask_for_credits). The capacity is the
    /// number of slots, which suffices because each of them has a credit.
    orphans: KVVec<u32>,
    /// The number of registrations, idle or not, without the removed registrations.
    pub(super) mrs: u32,
    removed: Removed,
    /// The buffers of the connection.
    pub(super) stock: Stock,
    /// The configuration of the connection, for buffers that are made later.
    pub(super) start: Option<Start>,
    /// Invalidations that could not be posted, or were flushed: the destroyed queue pair stands in
    /// for them.
    pub(super) parked: LocalInvList<Shared<Client>>,
}

impl Requests {
    /// Returns an empty table, for a connection that the server has not accepted yet.
    pub(super) const fn none() -> Self {
        Self {
            table: RequestTable(KVVec::new()),
            orphans: KVVec::new(),
            mrs: 0,
            removed: Removed::new(),
            stock: FIRST_STOCK,
            start: None,
            parked: LocalInvList::new(),
        }
    }

    /// Returns the table of a connection that the server has accepted. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    pub(super) fn new(endpoint: &Endpoint<Client>, slots: u32, start: Start) -> Result<Self> {
        Ok(Self {
            table: RequestTable::new(endpoint, slots)?,
            orphans: KVVec::with_capacity(slots as usize, GFP_NORETRY)?,
            mrs: 0,
            removed: Removed::new(),
            stock: FIRST_STOCK,
            start: Some(start),
            parked: LocalInvList::new(),
        })
    }

    /// Takes a request whose task gives it up. If the peer owes the Reply, the credit stays with the
    /// Reply.
    #[cold]
    //= V1-036, V1-037
    pub(super) fn abandon(&mut self, xprt: &Xprt, rqst: &RdmaRqst) -> Option<Abandoned> {
        rqst.set_outstanding(false);
        let abandoned = self.table.abandon(rqst.index())?;
        if let Some(xid) = abandoned.owed {
            self.await_orphan(xprt, xid);
        }
        Some(abandoned)
    }

    /// Notes that the peer owes a Reply that no RPC waits for: the credit stays with the Reply.
    #[cold]
    pub(super) fn await_orphan(&mut self, xprt: &Xprt, xid: u32) {
        // Does not allocate: the capacity suffices.
        if self.orphans.push_within_capacity(xid).is_ok() {
            xprt.owes_reply();
        }
    }

    /// Finds the request that a Reply belongs to for which no RPC waits. Returns none if there is no
    /// such request, and otherwise whether its task has given it up already.
    #[cold]
    pub(super) fn orphaned(&mut self, xid: u32) -> Option<bool> {
        match self.orphans.iter().position(|orphan| *orphan == xid) {
            Some(at) => self.orphans.remove(at).ok().map(|_| true),
            None => self.table.answered(xid).then_some(false),
        }
    }

    /// Takes the registrations, including the registrations of `pool`, after the queue pair was destroyed. No
    /// memory is exposed or mapped any more. The caller frees them without the lock.
    pub(super) fn retire(&mut self, pool: &Pool, proof: &Destroyed) -> MrList<Idle> {
        let mut all = pool.take_all();
        all.append(self.removed.take_all());
        for index in 0..self.table.0.len() as u32 {
            let abandoned = self.table.abandon(index);
            if let Some((mrs, inv)) = abandoned.and_then(|abandoned| abandoned.exposed) {
                all.append(mrs.retire(proof));
                self.table.put_back(index, inv);
            }
        }
        all
    }
}

/// The number of small registrations of a new connection.
pub(super) const FIRST_SMALL: u32 = 8;

/// The number of registrations that are made at a time.
const MORE: u32 = 8;

/// The connection of a transport, if there is one.
pub(super) type Current = SpinLock<Option<Arc<Gate<Endpoint<Client>>>>>;

/// Makes registrations when a sender finds too few.
///
/// It belongs to the transport, and enters the connection only to look at it and to add registrations. So
/// closing a connection does not wait for an allocation.
pub(super) struct Refill {
    xprt: XprtHandle<Request>,
    current: Arc<Current>,
    /// The size that is short, in pages.
    short: Atomic<u32>,
    /// The most registrations that may exist, as the send queue has room for their invalidations.
    most: Atomic<u32>,
}

impl Refill {
    pub(super) fn new(xprt: XprtHandle<Request>, current: Arc<Current>) -> Self {
        Self {
            xprt,
            current,
            short: Atomic::new(0),
            most: Atomic::new(0),
        }
    }

    /// Notes that there were too few for `pages` pages. On this connection, a registration has at most
    /// `most_pages` pages, and there may be `most` of them.
    pub(super) fn note(&self, pages: u32, most_pages: u32, most: u32) {
        let size = if pages <= SMALL_PAGES {
            SMALL_PAGES.min(most_pages)
        } else {
            most_pages
        };
        self.most.store(most, Relaxed);
        self.short.store(size, Relaxed);
    }

    /// Sees to it that one more may exist, if need be by removing an idle one of the other size.
    fn make_room(&self, endpoint: &Endpoint<Client>, pages: u32) -> bool {
        let shared = endpoint.shared();
        if shared.lock().role.mrs < self.most.load(Relaxed) {
            return true;
        }
        let (removed, wanted) = shared.role.pool.take_other(pages);
        shared.role.wake_sender(wanted);
        let Some(removed) = removed else {
            return false;
        };
        let mut guard = shared.lock();
        let state = &mut *guard;
        state.role.mrs -= 1;
        let done_with = state.role.removed.add(removed, &state.queue);
        drop(guard);
        // Freed without the lock.
        drop(done_with);
        true
    }

    /// Makes one more, unless the connection ends. Returns whether there may be another.
    fn add(&self, gate: &Gate<Endpoint<Client>>, pages: u32) -> bool {
        let pd = match gate.enter() {
            // Without room all are in use: a Reply that gives one back wakes the sender.
            Some(endpoint) if self.make_room(&endpoint, pages) => endpoint.pd().clone(),
            _ => return false,
        };
        let made = retry_enomem(|| match gate.enter() {
            Some(endpoint) if !endpoint.shared().is_closing() => {
                drop(endpoint);
                Mr::new(pd.clone(), pages)
            }
            _ => Err(errno::not_connected()),
        });
        // A connection that was closed meanwhile has no use for it.
        let Some(endpoint) = gate.enter() else {
            return false;
        };
        match made {
            Ok(mr) => {
                adopt(&endpoint, mr);
                true
            }
            Err(_) => {
                // Perhaps no registration is in use, because a usable registration was freed to make room:
                // the sender has to look again, and ask again.
                let client = &endpoint.shared().role;
                client.wake_sender(client.pool.take_wanted());
                false
            }
        }
    }
}

/// Makes an idle registration for `pages` pages. Context: process, may sleep.
///
/// # Errors
///
/// As for [`Mr::new`].
pub(super) fn add(endpoint: &Endpoint<Client>, pages: u32) -> Result {
    let mr = endpoint.retry_enomem(|| Mr::new(endpoint.pd().clone(), pages))?;
    adopt(endpoint, mr);
    Ok(())
}

/// Traces that `count` registrations were made for a connection.
pub(super) fn trace_made(endpoint: &Endpoint<Client>, count: u32) {
    let client = &endpoint.shared().role;
    trace::emit(|| trace::XprtrdmaCreatemrs {
        cid: client.cid,
        peer: &client.peer,
        count,
    });
}

/// Adds a registration to a connection. Context: process, does not sleep.
fn adopt(endpoint: &Endpoint<Client>, mr: Mr<Idle>) {
    let shared = endpoint.shared();
    shared.role.stats.mrs_allocated.add(1);
    shared.lock().role.mrs += 1;
    shared.role.give_back(mr);
}

impl Run for Refill {
    fn run(&self) {
        let Some(gate) = self.current.lock().clone() else {
            return;
        };
        let _nofs = NofsScope::enter();
        let _reserves = self.xprt.reserves("registrations");
        let pages = self.short.load(Relaxed);
        let made = (0..MORE).take_while(|_| self.add(&gate, pages)).count();
        let endpoint = gate.enter().filter(|_| made != 0);
        if let Some(endpoint) = &endpoint {
            trace_made(endpoint, made as u32);
        }
    }
}
