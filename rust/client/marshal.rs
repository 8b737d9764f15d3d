// SPDX-License-Identifier: GPL-2.0

//! Sending a Call: plan, register, and with the endpoint's lock compose, post and enter it as
//! sent.

use super::{
    buffers::Growth,
    connection::Client,
    pool::Idles,
    registrations::{
        segment,
        Refill, //
    },
    request::RdmaRqst,
    sizes::{
        ClientSizes,
        CONTINUED, //
    },
    stats::Stats, //
};
use crate::{
    endpoint::{
        ComposeError,
        Endpoint,
        Protocol,
        Shared,
        State,
        Ticker, //
    },
    proto::{
        connection::{
            self,
            continuation::{
                part,
                MessagePart,
                PartSplitter, //
            },
        },
        requester::{
            null::null_call,
            plan::{
                plan,
                Buf,
                CallShape,
                ChunkRole,
                Conveyance,
                Item,
                Limits,
                Part,
                PartName,
                Plan,
                Registration, //
            },
        },
        wire::{
            chunk::{
                ChunksOf,
                NoChunks,
                OneSegment, //
            },
            header::{
                Kind,
                Outgoing, //
            },
            types::{
                Handle,
                MsgType,
                Version,
                Xid, //
            },
        },
    },
    rdma::{
        dma::Direction,
        mr::{
            Idle,
            MapError,
            Mapped,
            Mr,
            MrList, //
        },
        send::SendBox,
    },
    sunrpc::{
        self,
        CallBuf,
        Extent,
        Measures,
        Xprt,
        XprtSendError, //
    },
    support::{
        errno,
        gate::{
            Entered,
            Gate, //
        },
        memory::{
            Scratch,
            Span, //
        },
        net::SockAddr,
        trace::{
            self,
            chunk_type,
            TraceEvent, //
        },
        work::Job, //
    },
};
use core::{
    ops::Range,
    slice, //
};
use kernel::{
    prelude::*,
    sync::{
        lock::{
            spinlock::SpinLockBackend,
            Guard, //
        },
        Arc, //
    },
};

/// The sender's part of a connection. The holder of the send lock uses it.
pub(super) struct SendSide {
    endpoint: Entered<Endpoint<Client>>,
    /// The limits of this side.
    own: Limits,
    /// The limits of both sides.
    limits: Limits,
    /// The number of RPCs that may be in flight.
    requests: u32,
    /// The state of the server's refusals for which the limits were made (version 2).
    refusals: u32,
    /// Idle registrations at hand.
    stash: Idles,
    /// Makes more of them.
    refill: Arc<Job<Refill>>,
    /// Makes more buffers.
    growth: Arc<Job<Growth>>,
    /// The most registrations that there may be.
    most_mrs: u32,
    /// The server.
    peer: SockAddr,
    /// Looks after a version 2 connection.
    ticker: Option<Ticker<Client>>,
}

impl SendSide {
    /// Creates the sender's part of a connection to `peer`. Context: any.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`: the connection is closed.
    pub(super) fn new(
        gate: &Arc<Gate<Endpoint<Client>>>,
        sizes: &ClientSizes,
        peer: SockAddr,
        (refill, growth): (Arc<Job<Refill>>, Arc<Job<Growth>>),
    ) -> Result<Self> {
        let endpoint = Gate::enter_owned(gate).ok_or_else(errno::not_connected)?;
        Ok(Self {
            refill,
            growth,
            most_mrs: sizes.mrs,
            peer,
            own: sizes.limits(),
            limits: sizes.limits(),
            requests: sizes.requests,
            refusals: 0,
            stash: Idles::new(),
            ticker: None,
            endpoint,
        })
    }

    /// Takes over the agreed limits of a connection that is established. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    pub(super) fn begin(&mut self) -> Result {
        self.refresh_limits();
        if self.limits.pads {
            self.endpoint
                .shared()
                .role
                .scratch
                .populate(Scratch::new()?);
        }
        if self.limits.version == Version::V2 {
            self.ticker = Some(Ticker::new(self.endpoint.clone())?);
        }
        Ok(())
    }

    /// Computes the limits from the server's properties and from its refusals. Context: process, does not sleep.
    #[cold]
    //= V2-055, V2-057, V2-138
    fn refresh_limits(&mut self) {
        let shared = self.endpoint.shared();
        // The next Call takes over later properties.
        shared.role.peer_limits_changed.set(false);
        let mut limits = self.own;
        if let Some((protocol, _)) = shared.lock().established() {
            protocol.apply(&mut limits);
            // The answer to the first Call allows more.
            if protocol.opens_by_call() {
                shared.role.peer_limits_changed.set(true);
            }
        }
        if limits.version == Version::V2 {
            self.refusals = shared.role.history.narrow(&mut limits);
            // The number of Send buffers that are free once all signaled Sends have completed.
            let room = limits.inline_send - Version::V2.empty_header_len();
            let most = room.saturating_mul(self.requests.saturating_sub(1));
            limits.continued_send = limits.continued_send.min(most).min(CONTINUED);
            limits.longest_send = limits.longest_send.min(most);
            limits.continued_recv = limits.continued_recv.min(CONTINUED);
        }
        self.limits = limits;
    }

    /// Returns the connection.
    pub(super) fn endpoint(&self) -> &Endpoint<Client> {
        &self.endpoint
    }

    /// Returns the gate of the connection.
    pub(super) fn gate(&self) -> &Arc<Gate<Endpoint<Client>>> {
        self.endpoint.gate()
    }

    /// Returns the server's address.
    pub(super) fn peer(&self) -> &SockAddr {
        &self.peer
    }

    /// Starts the flow control of the connection, on which messages are sent from now on. A
    /// connection that has ended already is closed next.
    ///
    /// Context: process, may sleep. The send lock is held, and the connection was entered as the
    /// current connection.
    pub(super) fn start(&self, xprt: &Xprt) {
        let shared = self.endpoint.shared();
        if let Some((protocol, _)) = shared.lock().established() {
            // The server may have granted more since. The lock orders this and the next grant.
            xprt.show_credits(protocol.granted());
        }
        // The transport may have been closed, for want of this connection, since this has ended.
        if shared.is_closing() {
            xprt.force_disconnect();
        }
    }

    /// Sends a Call that a server answers at once, and makes the core's Calls wait for its Reply, which grants
    /// credits. Version 2 grants them before the first Call.
    ///
    /// The connection before has ended because a Call got no Reply in time. The core sends that Call again first, and
    /// a connection of version 1 begins with one credit. A server that hangs over the Call would leave no credit for
    /// any other Call, and so stop all mounts.
    ///
    /// Context: process, does not sleep. The send lock is held, and nothing was sent.
    //= V1-042, V1-043
    pub(super) fn ask_for_credits(&self, xprt: &Xprt) {
        if self.limits.version == Version::V2 {
            return;
        }
        let xid = Xid(xprt.take_xid());
        let outgoing = Outgoing {
            xid,
            direction: MsgType::Call,
            kind: Kind::Msg,
            more: false,
            inv_handle: Handle::NONE,
        };
        let call = null_call(xid);
        let payload = |out: &mut [u8]| {
            out.get_mut(..call.len())?.copy_from_slice(&call);
            Some(call.len())
        };
        let mut state = self.endpoint.shared().lock();
        let Ok(composed) = state.compose(&outgoing, 0, &NoChunks, payload) else {
            return;
        };
        let (_, posted) = state.post(self.endpoint.qp(), MrList::new(), composed);
        // A connection that takes no work request ends.
        if posted.is_ok() {
            state.role.await_orphan(xprt, xid.0);
            xprt.wait_for_credit();
        }
    }

    /// Returns the maximum length of a Call of the server, and of its Reply, in bytes.
    pub(super) fn max_callback(&self) -> u32 {
        let inline = self.limits.inline_send.min(self.limits.inline_recv);
        inline.saturating_sub(self.limits.version.empty_header_len())
    }

    /// Ends the connection. Context: process, may sleep. The send lock is held, or no message was
    /// sent.
    pub(super) fn close(self) {
        let Self {
            endpoint,
            mut stash,
            ticker,
            ..
        } = self;
        drop(ticker);
        // The device may still have the work requests of these registrations. They are freed after the queue pair,
        // as the other registrations of the pool are.
        endpoint.shared().role.pool.put_all(stash.take_all());
        let gate = endpoint.gate().clone();
        drop(endpoint);
        // A task that gives up its RPC may be using it still.
        gate.close(Endpoint::close);
    }

    /// Takes an idle registration for `pages` pages. Without an idle registration, the sender has to wait.
    #[inline]
    fn take_mr(&mut self, pages: u32) -> Option<Mr<Idle>> {
        match self.stash.take(pages) {
            Some(mr) => Some(mr),
            None => self.take_pooled(pages),
        }
    }

    #[inline(never)]
    fn take_pooled(&mut self, pages: u32) -> Option<Mr<Idle>> {
        let client = &self.endpoint.shared().role;
        self.stash.fill_from(&client.pool, pages);
        match self.stash.take(pages) {
            Some(mr) => Some(mr),
            None => self.wait_for_mr(pages),
        }
    }

    /// Takes back the registrations of a request that is not sent: no message names them.
    #[cold]
    fn put_back(&mut self, mrs: MrList<Mapped>) {
        self.stash.put_all(mrs.unmap());
    }

    /// Makes the core let the sender wait, and the pool make more registrations, because no registration is
    /// idle.
    #[cold]
    fn wait_for_mr(&mut self, pages: u32) -> Option<Mr<Idle>> {
        let client = &self.endpoint.shared().role;
        // One of the other size may have to go, to make room for one of this.
        client.pool.put_all(self.stash.take_all());
        client.xprt.wait_for_buffer_space();
        client.pool.want();
        self.stash.fill_from(&client.pool, pages);
        if let Some(mr) = self.stash.take(pages) {
            client.xprt.write_space();
            return Some(mr);
        }
        let most_pages = self.own.segment_pages;
        self.refill.target().note(pages, most_pages, self.most_mrs);
        self.refill.request();
        None
    }
}

/// A connection that stands, and on which nothing is sent yet; dropping it closes it, which sleeps.
pub(crate) struct Made(Option<SendSide>);

impl Made {
    pub(super) fn new(side: SendSide) -> Self {
        Self(Some(side))
    }

    /// Returns the sender's part.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`: there is no connection.
    pub(super) fn sender(&mut self) -> Result<&mut SendSide> {
        self.0.as_mut().ok_or_else(errno::not_connected)
    }

    /// Takes the sender's part, which the caller has to close from now on.
    pub(super) fn into_sender(mut self) -> Option<SendSide> {
        self.0.take()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(side) = self.0.take() {
            side.close();
        }
    }
}

/// Sends a request.
///
/// # Errors
///
/// As for [`crate::sunrpc::Transport::send`].
///
/// If the device cannot join pieces of the memory, sends the request with parts of pages apart from whole
/// pages, and later requests, too: behind swiotlb, the copy of a part has another offset within its page.
#[inline]
pub(super) fn send(side: &mut SendSide, rqst: &RdmaRqst) -> Result<(), XprtSendError> {
    loop {
        match send_once(side, rqst) {
            Err(XprtSendError::Unmappable) if !side.limits.whole_pages => {
                side.own = side.own.of_whole_pages();
                side.limits = side.limits.of_whole_pages();
            }
            result => return result,
        }
    }
}

/// Sends a request as the limits of the connection have it.
///
/// # Errors
///
/// [`XprtSendError::TooLarge`]: no message or chunk can convey the Call. Otherwise the Call can be sent
/// later.
#[inline(always)]
fn send_once(side: &mut SendSide, rqst: &RdmaRqst) -> Result<(), XprtSendError> {
    if side.limits.version == Version::V2 && side.endpoint.shared().role.peer_limits_changed.get() {
        side.refresh_limits();
    }
    let mut items = [Item::default(); 2];
    let call = shape(rqst, &mut items);
    let plan = plan(&call, &side.limits);
    // By reference: a plan is a dozen words.
    let plan = match &plan {
        Ok(plan) => plan,
        Err(error) => {
            let why = error.name();
            return Err(not_marshalled(side, rqst, XprtSendError::TooLarge, why));
        }
    };
    let mrs = if plan.segments() == 0 {
        MrList::new()
    } else {
        match map_chunks(side, rqst, &call, plan) {
            Ok(mrs) => mrs,
            Err((error, mrs)) => {
                side.put_back(mrs);
                return Err(not_marshalled(side, rqst, error, error.as_str()));
            }
        }
    };
    match post(side, rqst, &call, plan, mrs) {
        Ok(()) => {
            count(&side.endpoint.shared().role.stats, &call, plan);
            Ok(())
        }
        Err((error, mrs)) => {
            side.put_back(mrs);
            match error {
                ComposeError::NoRoomForParts(..) => send_in_chunks(side, rqst, &call, error),
                _ => Err(not_composed(side, error)),
            }
        }
    }
}

/// Sends a request by chunks that was to go in parts, because there are not enough credits for the parts. The
/// server may grant more credits late or never, but one message has a credit.
///
/// # Errors
///
/// [`XprtSendError`]: the Call was not sent; `error` if chunks cannot convey it.
#[cold]
#[inline(never)]
//= V2-094, V2-095
fn send_in_chunks(
    side: &mut SendSide,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    error: ComposeError,
) -> Result<(), XprtSendError> {
    let limits = Limits {
        continued_send: 0,
        longest_send: 0,
        ..side.limits
    };
    let Ok(plan) = plan(call, &limits) else {
        // The server reads no memory: the message has to wait for the credits.
        return Err(not_composed(side, error));
    };
    let mrs = match map_many(side, rqst, call, &plan) {
        Ok(mrs) => mrs,
        Err((error, mrs)) => {
            side.put_back(mrs);
            return Err(not_marshalled(side, rqst, error, error.as_str()));
        }
    };
    match post(side, rqst, call, &plan, mrs) {
        Ok(()) => {
            count(&side.endpoint.shared().role.stats, call, &plan);
            Ok(())
        }
        Err((error, mrs)) => {
            side.put_back(mrs);
            Err(not_composed(side, error))
        }
    }
}

/// Composes the message and hands it and its registrations to the device.
///
/// # Errors
///
/// [`ComposeError`] and the registrations: the message was not posted.
#[inline(always)]
fn post(
    side: &mut SendSide,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
    mrs: MrList<Mapped>,
) -> Result<(), (ComposeError, MrList<Mapped>)> {
    let layout = plan.layout();
    let outgoing = Outgoing {
        xid: Xid(rqst.xid()),
        direction: MsgType::Call,
        kind: plan.kind(),
        more: false,
        inv_handle: Handle::NONE,
    };
    let mut state = side.endpoint.shared().lock();
    if !state.role.table.is_idle(rqst.index()) {
        return Err((ComposeError::Protocol(connection::SendError::Busy), mrs));
    }
    if plan.conveyance == Conveyance::Continued {
        return post_parts(side, state, rqst, call, plan, mrs);
    }
    let composed = if plan.segments() == 0 {
        state.compose(&outgoing, 0, &NoChunks, |out| inline(rqst, call, plan, out))
    } else if let (1, Some(region)) = (plan.segments(), mrs.regions().next()) {
        trace_segments(side, rqst, call, plan, &mrs);
        let provided = OneSegment {
            layout,
            segment: segment(region),
        };
        state.compose(&outgoing, 1, &provided, |out| inline(rqst, call, plan, out))
    } else {
        trace_segments(side, rqst, call, plan, &mrs);
        compose_many(&mut state, &outgoing, rqst, call, plan, &mrs)
    };
    let composed = match composed {
        Ok(composed) => composed,
        Err(error) => return Err((error, mrs)),
    };
    let cid = side.endpoint.shared().role.cid;
    trace::emit(|| call_event(cid, rqst, call, plan));
    trace_send(side, &state, rqst, plan.segments(), &composed);
    // The Reply may come before the post returns; its handler waits for the lock.
    let (mrs, posted) = state.post(side.endpoint.qp(), mrs, composed);
    state.role.table.sent(rqst, mrs, layout);
    rqst.request().set_refusals(side.refusals);
    rqst.request().set_joined(plan.is_joined());
    if state.protocol().is_some_and(Protocol::is_full) {
        used_up(side, &state);
    }
    drop(state);
    match posted {
        Ok(()) => Ok(()),
        Err(_) => Err((ComposeError::NotPosted, MrList::new())),
    }
}

/// Composes a Call with several Segments. Endpoint's lock held.
///
/// # Errors
///
/// As for [`State::compose`].
#[inline(never)]
fn compose_many(
    state: &mut State<Client>,
    outgoing: &Outgoing,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
    mrs: &MrList<Mapped>,
) -> Result<(SendBox<Shared<Client>>, usize), ComposeError> {
    let provided = ChunksOf {
        layout: plan.layout(),
        segments: mrs.regions().map(segment),
    };
    state.compose(outgoing, plan.segments(), &provided, |out| {
        inline(rqst, call, plan, out)
    })
}

/// Posts a Call in several messages, when there is room for all of them.
///
/// # Errors
///
/// [`ComposeError`] and the registrations: the messages were not posted.
#[inline(never)]
//= V2-040, V2-041, V2-103
fn post_parts(
    side: &SendSide,
    mut state: Guard<'_, State<Client>, SpinLockBackend>,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
    mrs: MrList<Mapped>,
) -> Result<(), (ComposeError, MrList<Mapped>)> {
    let (layout, segments) = (plan.layout(), plan.segments());
    let mut cutter = PartSplitter::new(plan.payload_len, side.limits.inline_send, plan.header_len);
    let parts = cutter.count();
    if !state.has_room_for_parts(parts, segments) {
        return Err((ComposeError::NoRoomForParts(parts, segments), mrs));
    }
    let cid = side.endpoint.shared().role.cid;
    trace::emit(|| call_event(cid, rqst, call, plan));
    trace_segments(side, rqst, call, plan, &mrs);
    let mut outgoing = Outgoing {
        xid: Xid(rqst.xid()),
        direction: MsgType::Call,
        kind: Kind::Msg,
        more: true,
        inv_handle: Handle::NONE,
    };
    let buf = rqst.call();
    let mut mrs = Some(mrs);
    while let Some(MessagePart { range, more }) = cutter.next_part() {
        outgoing.more = more;
        let payload = |out: &mut [u8]| copy(&buf, part(plan.payload(call), range), out);
        let (now, count) = match mrs.take_if(|_| !more) {
            Some(mrs) => (mrs, segments),
            None => (MrList::new(), 0),
        };
        let composed = if more {
            state.compose(&outgoing, 0, &NoChunks, payload)
        } else {
            let provided = ChunksOf {
                layout,
                segments: now.regions().map(segment),
            };
            state.compose(&outgoing, count, &provided, payload)
        };
        // Parts may have been sent: the connection ends if one is not.
        let Ok(composed) = composed else {
            return Err((ComposeError::NotPosted, mrs.unwrap_or(now)));
        };
        trace_send(side, &state, rqst, count, &composed);
        let (registered, posted) = state.post(side.endpoint.qp(), now, composed);
        if !more {
            state.role.table.sent(rqst, registered, layout);
            rqst.request().set_refusals(side.refusals);
            rqst.request().set_joined(plan.is_joined());
        }
        if posted.is_err() {
            return Err((ComposeError::NotPosted, mrs.unwrap_or_else(MrList::new)));
        }
    }
    Ok(())
}

/// Copies the Payload stream without the data in chunks behind the header.
#[inline]
fn inline(rqst: &RdmaRqst, call: &CallShape<'_>, plan: &Plan, out: &mut [u8]) -> Option<usize> {
    // The data of a Read chunk is in the page list, and often no byte follows it.
    let head_alone = plan.kind() == Kind::Msg && plan.pulled_up(call) == 0;
    if plan.read_segments != 0 && !head_alone {
        return inline_rest(rqst, call, plan, out);
    }
    let len = plan.payload_len as usize;
    rqst.call().read(0, out.get_mut(..len)?).ok()?;
    Some(len)
}

/// Does the work of [`inline`] for Calls with Read chunks that send more than the head inline, or no byte.
#[inline(never)]
fn inline_rest(
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
    out: &mut [u8],
) -> Option<usize> {
    if plan.conveyance == Conveyance::Long {
        return Some(0);
    }
    copy(&rqst.call(), plan.payload(call), out)
}

/// Copies pieces of a Call, and returns how long they are.
fn copy(
    buf: &CallBuf<'_>,
    pieces: impl Iterator<Item = Range<u32>>,
    out: &mut [u8],
) -> Option<usize> {
    let mut len = 0;
    for range in pieces {
        let end = len + (range.end - range.start) as usize;
        buf.read(range.start, out.get_mut(len..end)?).ok()?;
        len = end;
    }
    Some(len)
}

/// Sends the Reply to a Call of the server: always in one message, for the server was told how
/// long it may be.
///
/// # Errors
///
/// As for [`crate::sunrpc::Transport::send_reply`].
//= V1-131, V1-129
pub(super) fn send_reply(
    side: &mut SendSide,
    xid: u32,
    reply: &CallBuf<'_>,
) -> Result<(), XprtSendError> {
    let outgoing = Outgoing {
        xid: Xid(xid),
        direction: MsgType::Reply,
        kind: Kind::Msg,
        more: false,
        inv_handle: Handle::NONE,
    };
    let len = reply.len() as usize;
    if len > side.max_callback() as usize {
        return Err(XprtSendError::TooLarge);
    }
    let result = {
        let mut state = side.endpoint.shared().lock();
        state
            .compose(&outgoing, 0, &NoChunks, |out| {
                reply.read(0, out.get_mut(..len)?).ok()?;
                Some(len)
            })
            .and_then(|composed| {
                let role = &side.endpoint.shared().role;
                trace::emit(|| trace::XprtrdmaCbReply {
                    cid: role.cid,
                    xid,
                    len: len as u32,
                    peer: &role.peer,
                });
                let (_, posted) = state.post(side.endpoint.qp(), MrList::new(), composed);
                posted.map_err(|_| ComposeError::NotPosted)
            })
    };
    result.map_err(|error| not_composed(side, error))
}

/// Makes more buffers, if the Calls in flight use all of them. In version 1, the next Call would be planned and
/// registered in vain, so it waits. Endpoint's lock held.
#[cold]
fn used_up(side: &SendSide, state: &State<Client>) {
    if side.limits.version == Version::V1 {
        side.endpoint.shared().role.xprt.wait_for_credit();
    }
    let ready = state.role.stock.calls;
    let outstanding = state.protocol().map_or(0, Protocol::outstanding);
    if outstanding >= ready && ready < side.requests {
        side.growth.request();
    }
}

/// Returns the error of the core for a message that was planned and not composed.
#[cold]
fn not_composed(side: &mut SendSide, error: ComposeError) -> XprtSendError {
    match error {
        ComposeError::NoRoom(mrs) => {
            side.endpoint.shared().role.stats.empty_sendctx_q.add(1);
            // The room that the message needs. With less room the sender would be woken at once, fail, and be
            // woken again, until a Send ends.
            wait_for(side, |state| state.has_room(mrs))
        }
        ComposeError::NotPosted => XprtSendError::NotConnected,
        ComposeError::NoRoomForParts(parts, mrs) => {
            let state = side.endpoint.shared().lock();
            let most = state.protocol().map_or(0, Protocol::most_parts);
            drop(state);
            if parts > most {
                // The server accepts less than before: the next connection begins with its new limits.
                return XprtSendError::NotConnected;
            }
            // The message may have more parts than there are Send buffers.
            side.growth.request();
            wait_for(side, |state| state.has_room_for_parts(parts, mrs))
        }
        ComposeError::Protocol(connection::SendError::NoCredit)
            if side.limits.version == Version::V2 =>
        {
            wait_for(side, |state| state.may_send(MsgType::Reply, 1))
        }
        ComposeError::Protocol(connection::SendError::NoCredit) => {
            let shared = side.endpoint.shared();
            shared.role.xprt.wait_for_credit();
            // As in `wait_for`.
            if shared.lock().may_send(MsgType::Call, 1) {
                shared.role.xprt.credit_is_free();
            }
            XprtSendError::NoCredit
        }
        ComposeError::Protocol(connection::SendError::NoRoom) | ComposeError::TooLong => {
            XprtSendError::TooLarge
        }
        ComposeError::Protocol(_) => XprtSendError::NotConnected,
    }
}

/// Makes the sender wait for a resource that comes back under the endpoint's lock.
fn wait_for(side: &SendSide, is_there: impl FnOnce(&State<Client>) -> bool) -> XprtSendError {
    let shared = side.endpoint.shared();
    shared.role.xprt.wait_for_buffer_space();
    // A resource that came back before the core noted the waiting task woke no task: look again.
    if is_there(&shared.lock()) {
        shared.role.xprt.write_space();
    }
    XprtSendError::NoBuffer
}

/// Returns the lengths of a request. Writes its items that may be reduced to `items`.
#[inline]
//= V1-137
fn shape<'a>(rqst: &RdmaRqst, [argument, result]: &'a mut [Item; 2]) -> CallShape<'a> {
    let (call, reply) = (rqst.call(), rqst.receive());
    let (send, receive) = (measures(call.measure()), measures(reply.measure()));
    CallShape {
        // Counts and presence words are in head or tail, and stay in the message.
        //= V1-051, V1-053, V1-054
        //= NFS-009, NFS-010, NFS-013
        //= NFS-020, NFS-021, NFS-024
        arguments: if call.is_write_payload() {
            *argument = send.page_item();
            slice::from_ref(argument)
        } else {
            &[]
        },
        //= NFS-011, NFS-012, NFS-018
        //= NFS-022, NFS-023
        results: if reply.is_read_payload() {
            *result = receive.page_item();
            slice::from_ref(result)
        } else {
            &[]
        },
        protected: rqst.is_protected(),
        send,
        receive,
    }
}

/// Returns the measures of a buffer for the plan.
#[inline]
fn measures(of: Measures) -> Buf {
    let part = |extent: Extent| Part {
        len: extent.len,
        page_offset: extent.page_offset,
    };
    Buf {
        head: part(of.head),
        pages: part(of.pages),
        tail: part(of.tail),
    }
}

/// Maps the regions of the plan, in the order of the header, for this RPC only. When a registration is
/// missing or memory cannot be mapped now, the mapped registrations come back with the error.
///
/// # Errors
///
/// [`XprtSendError`] and the registrations that are mapped so far: as for [`map`].
#[inline]
//= V1-026, V1-087, V1-088
//= V2-022, V2-182
fn map_chunks(
    side: &mut SendSide,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
) -> Result<MrList<Mapped>, (XprtSendError, MrList<Mapped>)> {
    if plan.segments() != 1 {
        return map_many(side, rqst, call, plan);
    }
    let mut mapped = MrList::new();
    if let Some(region) = plan.registrations(call).next() {
        match map(side, rqst, region) {
            Ok(mr) => mapped.push_last(mr),
            Err(error) => return Err((error, mapped)),
        }
    }
    Ok(mapped)
}

/// Does the work of [`map_chunks`] for RPCs with several registrations.
///
/// # Errors
///
/// [`XprtSendError`] and the registrations that are mapped so far: as for [`map`].
#[inline(never)]
fn map_many(
    side: &mut SendSide,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
) -> Result<MrList<Mapped>, (XprtSendError, MrList<Mapped>)> {
    let mut mapped = MrList::new();
    for region in plan.registrations(call) {
        match map(side, rqst, region) {
            Ok(mr) => mapped.push_last(mr),
            Err(error) => return Err((error, mapped)),
        }
    }
    Ok(mapped)
}

/// Maps one region of a chunk.
///
/// # Errors
///
/// [`XprtSendError::NoBuffer`]: no registration is idle. [`XprtSendError::NoMemory`]: there is no memory or DMA
/// address at present. [`XprtSendError::Unmappable`]: the device cannot join the pieces.
/// [`XprtSendError::TooLarge`]: the region is not in the buffers.
#[inline(always)]
fn map(
    side: &mut SendSide,
    rqst: &RdmaRqst,
    Registration { chunk, part, range }: Registration,
) -> Result<Mr<Mapped>, XprtSendError> {
    let part = match part {
        PartName::Head => sunrpc::XdrPart::Head,
        PartName::Pages => sunrpc::XdrPart::Pages,
        PartName::Tail => sunrpc::XdrPart::Tail,
        PartName::All => return map_joined(side, rqst),
        PartName::Pad => return map_pad(side, rqst, range.end),
    };
    let (span, direction) = match chunk {
        ChunkRole::Read(_) => (rqst.call().span(part, range), Direction::ToDevice),
        ChunkRole::Write(_) | ChunkRole::Reply => {
            (rqst.receive().span(part, range), Direction::FromDevice)
        }
    };
    match span {
        Ok(span) => map_span(side, rqst, span, direction),
        Err(_) => Err(XprtSendError::TooLarge),
    }
}

/// Maps the memory of a joined Reply.
///
/// # Errors
///
/// As for [`map`].
#[inline(never)]
fn map_joined(side: &mut SendSide, rqst: &RdmaRqst) -> Result<Mr<Mapped>, XprtSendError> {
    let reply = rqst.receive();
    let edge = rqst.request().make_edge().ok_or(XprtSendError::NoMemory)?;
    let pages = reply.span(sunrpc::XdrPart::Pages, 0..reply.page_len());
    let joined = pages.map(|pages| edge.around(reply.head_len(), pages, reply.tail_len()));
    match joined {
        Ok(Some(span)) => map_span(side, rqst, span, Direction::FromDevice),
        _ => Err(XprtSendError::TooLarge),
    }
}

/// Maps the memory for pad.
///
/// # Errors
///
/// As for [`map`].
#[cold]
fn map_pad(side: &mut SendSide, rqst: &RdmaRqst, len: u32) -> Result<Mr<Mapped>, XprtSendError> {
    let shared = side.endpoint.shared().clone();
    match shared
        .role
        .scratch
        .as_ref()
        .and_then(|memory| memory.span(len))
    {
        Some(span) => map_span(side, rqst, span, Direction::FromDevice),
        None => Err(XprtSendError::TooLarge),
    }
}

/// Maps memory for the device.
///
/// # Errors
///
/// As for [`map`].
#[inline(always)]
fn map_span(
    side: &mut SendSide,
    rqst: &RdmaRqst,
    span: Span<'_>,
    direction: Direction,
) -> Result<Mr<Mapped>, XprtSendError> {
    let Some(mr) = side.take_mr(span.page_count()) else {
        trace::emit(|| {
            let role = &side.endpoint.shared().role;
            trace::XprtrdmaNomrsErr {
                cid: role.cid,
                task: rqst.task(),
                peer: &role.peer,
            }
        });
        return Err(XprtSendError::NoBuffer);
    };
    match mr.map(span, direction, rqst.xid()) {
        Ok(mr) => {
            trace::emit(|| trace::XprtrdmaMrMap {
                cid: side.endpoint.shared().role.cid,
                task: rqst.task(),
                xid: rqst.xid(),
                mr: mr.facts(),
            });
            Ok(mr)
        }
        Err((mr, error)) => {
            let error = unmapped(side, rqst, &mr, direction, error);
            side.stash.put(mr);
            Err(error)
        }
    }
}

/// Returns the error of a request whose memory was not mapped for `mr`.
#[cold]
fn unmapped(
    side: &SendSide,
    rqst: &RdmaRqst,
    mr: &Mr<Idle>,
    direction: Direction,
    error: MapError,
) -> XprtSendError {
    let cid = side.endpoint.shared().role.cid;
    let facts = || trace::MrFacts {
        dir: direction.number(),
        ..mr.facts()
    };
    let apart = |nents, num_mapped| {
        trace::emit(|| trace::XprtrdmaFrwrMaperr {
            cid,
            xid: rqst.xid(),
            mr: facts(),
            addr: mr.dma_address(),
            nents,
            num_mapped,
        });
        XprtSendError::Unmappable
    };
    match error {
        MapError::NoSpace { entries } => {
            trace::emit(|| trace::XprtrdmaFrwrSgerr {
                cid,
                xid: rqst.xid(),
                mr: facts(),
                addr: mr.dma_address(),
                nents: entries as i32,
            });
            XprtSendError::NoMemory
        }
        MapError::Apart { mapped, joined } => apart(mapped, joined),
        MapError::Span => apart(0, 0),
    }
}

/// Traces that a Call was not marshalled, for the reason `why`, and returns the error.
#[cold]
fn not_marshalled(
    side: &SendSide,
    rqst: &RdmaRqst,
    error: XprtSendError,
    why: &'static str,
) -> XprtSendError {
    trace::emit(|| trace::XprtrdmaMarshalFailed {
        cid: side.endpoint.shared().role.cid,
        task: rqst.task(),
        xid: rqst.xid(),
        ret: error.to_errno(),
        why,
    });
    error
}

/// Traces the Segments of a Call, and the registrations that its Send registers.
#[inline(always)]
fn trace_segments(
    side: &SendSide,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
    mrs: &MrList<Mapped>,
) {
    let is_traced = trace::XprtrdmaChunkRead::is_enabled()
        || trace::XprtrdmaChunkWrite::is_enabled()
        || trace::XprtrdmaChunkWp::is_enabled()
        || trace::XprtrdmaChunkReply::is_enabled()
        || trace::XprtrdmaMrFastreg::is_enabled();
    if is_traced {
        trace_each_segment(side, rqst, call, plan, mrs.facts());
    }
}

/// Does the work of [`trace_segments`] when an event is enabled.
#[cold]
#[inline(never)]
fn trace_each_segment(
    side: &SendSide,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
    mrs: impl Iterator<Item = trace::MrFacts>,
) {
    let (cid, task) = (side.endpoint.shared().role.cid, rqst.task());
    let mut segments = plan.registrations(call).zip(mrs).peekable();
    while let Some((Registration { chunk, part, .. }, mr)) = segments.next() {
        let xid = rqst.xid();
        trace::emit(|| trace::XprtrdmaMrFastreg { cid, task, xid, mr });
        let next = segments.peek().map(|(next, _)| next);
        let is_last = next.is_none_or(|next| next.chunk != chunk || next.part == PartName::Pad);
        match (chunk, part) {
            (ChunkRole::Read(position), _) => trace::emit(|| trace::XprtrdmaChunkRead {
                cid,
                task,
                pos: position.0,
                mr,
                is_last,
            }),
            (_, PartName::Pad) => trace::emit(|| trace::XprtrdmaChunkWp {
                cid,
                task,
                mr,
                is_last,
            }),
            (ChunkRole::Write(_), _) => trace::emit(|| trace::XprtrdmaChunkWrite {
                cid,
                task,
                mr,
                is_last,
            }),
            (ChunkRole::Reply, _) => trace::emit(|| trace::XprtrdmaChunkReply {
                cid,
                task,
                mr,
                is_last,
            }),
        }
    }
}

/// Traces the Send of a composed message with `mrs` registrations, which is posted next.
#[inline(always)]
fn trace_send(
    side: &SendSide,
    state: &State<Client>,
    rqst: &RdmaRqst,
    mrs: u32,
    (buffer, len): &(SendBox<Shared<Client>>, usize),
) {
    trace::emit(|| {
        let signaled = state.queue.is_next_signaled(mrs);
        send_event(side, rqst, mrs, buffer.number(), *len, signaled)
    });
}

/// Returns the trace event of the Send of `len` bytes with `mrs` registrations, from the buffer `number`.
#[cold]
fn send_event(
    side: &SendSide,
    rqst: &RdmaRqst,
    mrs: u32,
    number: u32,
    len: usize,
    signaled: bool,
) -> trace::XprtrdmaPostSend {
    trace::XprtrdmaPostSend {
        work: trace::WorkId {
            cid: side.endpoint.shared().role.cid,
            cq_id: side.endpoint.qp().cq_id(),
            completion_id: number as i32,
        },
        task: rqst.task(),
        xid: rqst.xid(),
        mrs,
        len: len as u32,
        num_sge: 1,
        signaled,
    }
}

/// Returns the trace event of a Call that was marshalled.
#[cold]
fn call_event(
    cid: u32,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
) -> trace::XprtrdmaMarshal {
    let Buf { head, pages, tail } = call.send;
    let arguments = match (plan.kind(), plan.read_segments) {
        (Kind::Nomsg, 1..) => chunk_type::LONG,
        (_, 1..) => chunk_type::READ,
        (_, 0) => chunk_type::PULLUP,
    };
    let results = match (plan.write_segments, plan.reply_segments) {
        (1.., _) => chunk_type::WRITE,
        (0, 1..) => chunk_type::REPLY,
        (0, 0) => chunk_type::INLINE,
    };
    trace::XprtrdmaMarshal {
        cid,
        task: rqst.task(),
        xid: rqst.xid(),
        hdrlen: plan.header_len,
        headlen: head.len,
        pagelen: pages.len,
        taillen: tail.len,
        rtype: arguments,
        wtype: results,
        reads: plan.read_segments,
        writes: plan.write_segments + plan.reply_segments,
    }
}

/// Counts the bytes of a Call that was sent.
#[inline]
fn count(stats: &Stats, call: &CallShape<'_>, plan: &Plan) {
    if plan.segments() != 0 {
        stats.read_segments.add(plan.read_segments.into());
        stats.bytes_read.add(plan.read_bytes.into());
        stats
            .total_rdma_request
            .add(plan.offered_bytes(call).into());
        stats.write_segments.add(plan.write_segments.into());
        stats.reply_segments.add(plan.reply_segments.into());
        if plan.kind() == Kind::Nomsg {
            stats.nomsg_call.add(1);
        }
    }
    let pulled_up = plan.pulled_up(call);
    if pulled_up != 0 {
        stats.pullup_copy.add(pulled_up.into());
    }
}
