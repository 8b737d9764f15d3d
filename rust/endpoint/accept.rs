// SPDX-License-Identifier: GPL-2.0

//! What only the accepting side does: it is asked for a connection, it reads and writes the peer's
//! memory, and its senders may wait for room in the send queue.

use super::{
    now,
    Buffers,
    CloseReason,
    ComposeError,
    Endpoint,
    LockedState,
    Protocol,
    Role,
    Shared,
    State,
    Step,
    Terms, //
};
use crate::{
    proto::{
        chunk::{
            Chunks,
            NoChunks, //
        },
        credit::Allowance,
        error::ErrorReport,
        header::{
            FixedWords,
            Outgoing, //
        },
        resources::ResponderResources,
        types::{
            Handle,
            MsgType,
            Version, //
        }, //
    },
    rdma::{
        cm::AcceptParams,
        cq::Completions,
        qp::{
            Qp,
            QpRef, //
        },
        recv::{
            Received,
            RecvBatch,
            RecvBuf, //
        },
        rw::{
            Pull,
            PullBox,
            Write, //
        },
        send::{
            SendBox,
            SendBuf,
            SendList, //
        },
        Pulls, //
    },
    support::{
        errno,
        memalloc::NofsScope, //
    }, //
};
use core::ops::Range;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        lock::{
            spinlock::SpinLockBackend,
            Guard, //
        },
        CondVar,
        CondVarTimeoutResult, //
    },
    time::{
        msecs_to_jiffies,
        Jiffies,
        Msecs, //
    }, //
};

/// How long the peer may let somebody wait for room in the send queue or for a credit while nothing
/// goes on, or for the rest of a message, in milliseconds. Messages of the peer are nothing that goes
/// on: it can send as many as it likes.
pub(super) const PATIENCE: Msecs = 30_000;

/// What is left of the time for which the peer is waited for.
pub(crate) struct Patience(Jiffies);

impl Patience {
    /// All of it.
    pub(crate) fn new() -> Self {
        Self(msecs_to_jiffies(PATIENCE))
    }

    /// Waits until somebody wakes; false when no time is left. Context: process, sleeps.
    fn wait<T>(&mut self, room: &CondVar, guard: &mut Guard<'_, T, SpinLockBackend>) -> bool {
        match room.wait_interruptible_timeout(guard, self.0) {
            CondVarTimeoutResult::Timeout => return false,
            CondVarTimeoutResult::Woken { jiffies } | CondVarTimeoutResult::Signal { jiffies } => {
                self.0 = jiffies;
            }
        }
        true
    }
}

/// What the accepting role adds.
pub(crate) trait Responder: Role {
    /// What waits for data of the peer.
    type Puller: Send;

    /// RDMA Reads have ended: the data is in `pull`, unless they failed. Returns the waiter if it is
    /// to be dropped without the lock. Context: completion, endpoint's lock held.
    fn pulled(
        &self,
        locked: &mut Self::Locked,
        waiter: Self::Puller,
        pull: Option<PullBox<Shared<Self>>>,
    ) -> Option<Self::Puller>;

    /// RDMA Reads have ended. Context: completion.
    fn readable(&self);

    /// Somebody has to wait for room in the send queue.
    fn starved(&self);

    /// The length of a Send buffer for messages of `version`.
    fn send_len(&self, version: Version) -> u32;
}

impl<R: Responder> Pulls for Shared<R> {
    type Puller = R::Puller;

    fn wait_for_posting(&self) {
        drop(self.lock());
    }

    fn pulled(
        &self,
        cx: &mut Completions<'_, Self>,
        waiter: R::Puller,
        pull: Option<PullBox<Self>>,
        work_requests: u32,
    ) {
        self.make_room(cx.qp(), |state| {
            state.queue.gave_back(work_requests);
            self.role.pulled(&mut state.role, waiter, pull)
        });
        self.role.readable();
    }
}

/// A message for which there is room, under the endpoint's lock: nothing may sleep until it is
/// [posted](Self::post) or dropped.
pub(crate) struct Sending<'a, R: Responder> {
    shared: &'a Shared<R>,
    qp: &'a Qp<Shared<R>>,
    state: LockedState<'a, R>,
    composed: Option<(SendBox<Shared<R>>, usize)>,
    /// Parts of the message have been sent.
    in_parts: bool,
}

impl<R: Responder> Sending<'_, R> {
    /// The message is a Reply. From it on as many Calls are granted at a time as there are Receives
    /// for, but no more than `most`. If more Receives are worth while, returns for how many Calls
    /// there are some and should be: the caller has the connection [grow](Endpoint::grow).
    #[inline(always)]
    //= V1-033, V1-035, V1-040
    pub(crate) fn answer(&mut self, most: u32) -> Option<Range<u32>> {
        let state = &mut *self.state;
        let wanted = state.allowance.handle_reply(most, now);
        if let Some(protocol) = &mut state.protocol {
            protocol.set_grants(most.min(state.allowance.calls()));
        }
        wanted
    }

    /// The Call that the message answers does not count as `held` Receives any more: its buffer
    /// [receives again](Self::receive_again) before the message is posted.
    pub(crate) fn release(&mut self, held: u32) {
        self.state.release(held);
    }

    /// What the role keeps.
    pub(crate) fn role(&mut self) -> &mut R::Locked {
        &mut self.state.role
    }

    /// Whether nothing but a Reply brings a credit for another Call to the peer (version 1).
    pub(crate) fn needs_reply(&self) -> bool {
        self.state.protocol().is_some_and(Protocol::needs_reply)
    }

    /// What the message goes by.
    pub(crate) fn terms(&self) -> Option<Terms> {
        self.state.protocol().map(Protocol::terms)
    }

    /// Writes header and payload; see [`State::compose`].
    #[inline(always)]
    pub(crate) fn compose<C: Chunks + ?Sized>(
        &mut self,
        outgoing: &Outgoing,
        chunks: &C,
        payload: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Result<(), ComposeError> {
        let state = &mut *self.state;
        self.composed = Some(state.compose(outgoing, 0, chunks, payload)?);
        Ok(())
    }

    /// Sends a part of a message that is not its last one.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn send_part(
        &mut self,
        outgoing: &Outgoing,
        payload: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Result<(), CloseReason> {
        let failed = |_| CloseReason::NotPosted;
        self.in_parts = true;
        let state = &mut *self.state;
        let (buffer, len) = state
            .compose(outgoing, 0, &NoChunks, payload)
            .map_err(failed)?;
        // Whoever comes next needs a buffer back, and that is this one first.
        let last = state.sends.is_empty();
        self.qp
            .post_reply(&mut state.queue, None, buffer, len, None, last)
            .map_err(|_| CloseReason::NotPosted)
    }

    /// Waits until the next part can be sent, with `work_requests` in all, but not longer than what
    /// is left of `patience`, which is that for all parts. Nobody else sends an RPC message
    /// meanwhile, so nobody waits for what comes free but those who read.
    ///
    /// # Errors
    ///
    /// The connection ends.
    ///
    /// Context: process, sleeps, with the lock given up.
    #[cold]
    //= V2-038, V2-039
    pub(crate) fn go_on(
        &mut self,
        work_requests: u32,
        patience: &mut Patience,
    ) -> Result<(), CloseReason> {
        let shared = self.shared;
        shared.waiting.fetch_add(1, Full);
        let gone_on = loop {
            if shared.is_closing() {
                break Err(CloseReason::NotPosted);
            }
            let state = &*self.state;
            if state.protocol().is_some_and(Protocol::may_go_on)
                && state.queue.has_room_for(work_requests)
                && !state.sends.is_empty()
            {
                break Ok(());
            }
            if !patience.wait(&shared.room, &mut self.state) {
                break Err(CloseReason::Unresponsive);
            }
        };
        shared.waiting.fetch_sub(1, Relaxed);
        gone_on
    }

    /// The buffer of `call`, which this message answers, receives another one: the peer may use the
    /// credit as soon as it has the Reply.
    pub(crate) fn receive_again(&mut self, call: Received<Shared<R>>) {
        // If that fails the Send cannot help either, but its buffers go where they belong.
        let _ = self.state.receives.repost(self.qp, call);
    }

    /// Sends what was composed, after `write` was written, and has the peer's device take the
    /// handle `invalidate` out of use.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn post(
        mut self,
        write: Option<Write>,
        invalidate: Option<Handle>,
    ) -> Result<(), CloseReason> {
        let state = &mut *self.state;
        let Some((buffer, len)) = self.composed.take() else {
            return Err(CloseReason::NotPosted);
        };
        let invalidate = invalidate.map(|handle| handle.0);
        // Whoever comes next needs a buffer back.
        let last = state.sends.is_empty();
        let posted = self
            .qp
            .post_reply(&mut state.queue, write, buffer, len, invalidate, last)
            .map_err(|_| CloseReason::NotPosted);
        if self.in_parts {
            // Others have waited for the end of this message.
            state.passed = state.passed.wrapping_add(1);
            let shared = self.shared;
            drop(self);
            shared.wake_waiters();
        }
        posted
    }
}

impl<R: Responder> Drop for Sending<'_, R> {
    fn drop(&mut self) {
        if let Some((buffer, _)) = self.composed.take() {
            self.state.give_back(buffer);
        }
    }
}

impl<R: Role> Shared<R> {
    /// Whether somebody waits for room in the send queue. Context: any.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Relaxed) != 0
    }

    /// Wakes those who wait for room, if there are any. Context: process.
    pub(super) fn wake_waiters(&self) {
        if self.waiting.load(Relaxed) != 0 {
            // Whoever looked for room before it was there waits when the lock is free.
            drop(self.lock());
            self.room.notify_all();
        }
    }

    /// Answers a message by an error message, now or when there is room.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(super) fn refuse(
        &self,
        qp: &QpRef<Self>,
        fixed: &FixedWords,
        report: ErrorReport,
    ) -> Result<(), CloseReason> {
        let mut state = self.lock();
        if let Some(protocol) = &mut state.protocol {
            protocol
                .refuse(fixed, report)
                .map_err(CloseReason::Protocol)?;
        }
        state.transmit(qp).map_err(|_| CloseReason::NotPosted)
    }
}

impl<R: Responder> Endpoint<R> {
    /// Makes the first buffers and posts the first Receives, of what will be for `most` Calls at a
    /// time. Context: process, may sleep.
    pub(crate) fn provide_to(&self, buffers: &Buffers, most: u32) -> Result {
        let allowance = Allowance::new(most, now());
        let batch = ResponderResources::recv_batch(allowance.calls());
        let mut state = self.shared.lock();
        state.allowance = allowance;
        state.receives.set_batch(batch);
        drop(state);
        self.make(buffers)
    }

    /// Adds `more` buffers, so that there are Receives for `calls.end` Calls at a time instead of
    /// `calls.start`. Without memory everything stays as it is.
    ///
    /// Context: process, may sleep; once for each [`Sending::answer`] that asked for it.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn grow(&self, calls: &Range<u32>, more: &Buffers) -> Result<(), CloseReason> {
        let (Ok(mut receives), Ok(mut sends)) = (self.new_receives(more), self.new_sends(more))
        else {
            self.shared.lock().allowance.handle_posted(calls.start);
            return Ok(());
        };
        let mut state = self.shared.lock();
        if receives.post(&self.qp).is_err() {
            return Err(CloseReason::NotPosted);
        }
        state
            .receives
            .set_batch(ResponderResources::recv_batch(calls.end));
        while let Some(buffer) = sends.pop() {
            state.add_send(buffer);
        }
        state.allowance.handle_posted(calls.end);
        state.count_receives();
        Ok(())
    }

    /// New Receives, not posted yet. Context: process, may sleep.
    fn new_receives(&self, buffers: &Buffers) -> Result<RecvBatch<Shared<R>>> {
        let mut receives = RecvBatch::new(buffers.receives);
        for _ in 0..buffers.receives {
            receives.add(&self.qp, RecvBuf::new(self.pd.clone(), buffers.recv_len)?);
        }
        Ok(receives)
    }

    /// New Send buffers. Context: process, may sleep.
    fn new_sends(&self, buffers: &Buffers) -> Result<SendList<Shared<R>>> {
        let mut sends = SendList::new();
        for _ in 0..buffers.sends {
            sends.push(SendBuf::new(self.pd.clone(), buffers.send_len)?);
        }
        Ok(sends)
    }

    /// Accepts the peer, whose protocol state is `protocol`. Receives are posted.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// The peer has given up, the local address has moved, or the device goes away.
    pub(crate) fn accept(&self, protocol: Protocol, params: &AcceptParams) -> Result {
        let mut state = self.shared.lock();
        let hostauth = state.hostauth.take();
        state.protocol = Some(protocol.with(hostauth));
        drop(state);
        let progress = &self.shared.progress;
        // An end that comes after this is an event. One that came before is not, and the connection
        // manager does not remember all of them (ADDR_CHANGE).
        progress.reached(Step::Established);
        progress.wait(Step::Established, 0)?;
        self.id.accept(params)
    }

    /// The length of another Send buffer.
    fn send_len(&self, state: &State<R>) -> u32 {
        let is_version2 = state.protocol().is_some_and(Protocol::is_version2);
        self.shared.role.send_len(if is_version2 {
            Version::V2
        } else {
            Version::V1
        })
    }

    /// The lock, when there is room for `work_requests` and a Send buffer, and the peer takes a Reply
    /// if this is for one. Waits in turn.
    ///
    /// None: the connection ends, or the queue will never have as much room.
    ///
    /// Context: process, sleeps.
    #[inline(always)]
    fn room(&self, work_requests: u32, reply: bool) -> Option<LockedState<'_, R>> {
        let state = self.shared.lock();
        if !self.shared.is_closing()
            && state.turn == state.next_turn
            && state.queue.has_room_for(work_requests)
            && (!reply || state.may_send(MsgType::Reply, 1))
            && !state.sends.is_empty()
        {
            return Some(state);
        }
        self.wait_for_room(state, work_requests, reply)
    }

    /// As [`Self::room`], when there is none at once.
    #[cold]
    #[inline(never)]
    fn wait_for_room<'a>(
        &'a self,
        mut state: LockedState<'a, R>,
        work_requests: u32,
        reply: bool,
    ) -> Option<LockedState<'a, R>> {
        let shared = &*self.shared;
        if work_requests > self.qp.most() {
            return None;
        }
        let mut turn = None;
        let mut patience = Patience::new();
        let (mut passed, mut least) = (state.passed, u32::MAX);
        loop {
            if shared.is_closing() {
                break;
            }
            let first = match turn {
                None => state.turn == state.next_turn,
                Some(turn) => state.turn == turn,
            };
            let may_send = !reply || state.may_send(MsgType::Reply, 1);
            if first && may_send && state.queue.has_room_for(work_requests) {
                if !state.sends.is_empty() {
                    break;
                }
                // There are as many as Replies are under way, of which each has a thread.
                let len = self.send_len(&state);
                drop(state);
                let buffer = SendBuf::new(self.pd.clone(), len);
                state = shared.lock();
                match buffer {
                    Ok(buffer) => {
                        state.add_send(buffer);
                        continue;
                    }
                    Err(_) if state.sends_made == 0 => break,
                    Err(_) => {}
                }
            }
            if turn.is_none() {
                turn = Some(state.next_turn);
                state.next_turn = state.next_turn.wrapping_add(1);
                // Whoever ends the connection sees this, or is seen below.
                shared.waiting.fetch_add(1, Full);
                shared.role.starved();
                continue;
            }
            // Whatever ends wakes those who wait, and so does any message of version 2. A peer may let
            // nothing end, by having no Receive, or grant nothing; threads that wait for that are
            // missing for others.
            let in_use = state.queue.in_use();
            if state.passed != passed || may_send && in_use < least {
                patience = Patience::new();
                (passed, least) = (state.passed, in_use);
            }
            if !patience.wait(&shared.room, &mut state) {
                drop(state);
                shared.lose(CloseReason::Unresponsive);
                state = shared.lock();
            }
        }
        if turn.is_some() {
            state.turn = state.turn.wrapping_add(1);
            state.passed = state.passed.wrapping_add(1);
            if shared.waiting.fetch_sub(1, Relaxed) != 1 {
                shared.room.notify_all();
            }
        }
        let fits = !shared.is_closing() && !state.sends.is_empty();
        fits.then_some(state)
    }

    /// Waits until a Reply with `work_requests` in all can be sent, or the first part of one.
    ///
    /// None: the connection ends, or the queue will never have as much room.
    ///
    /// Context: process, sleeps.
    #[inline(always)]
    pub(crate) fn sending(&self, work_requests: u32) -> Option<Sending<'_, R>> {
        Some(Sending {
            state: self.room(work_requests, true)?,
            shared: &self.shared,
            qp: &self.qp,
            composed: None,
            in_parts: false,
        })
    }

    /// As [`Self::sending`] for a message alone, but without any waiting.
    ///
    /// # Errors
    ///
    /// `NotPosted`: the connection ends. `NoRoom`: the send queue has none now.
    ///
    /// Context: process, does not wait for the peer.
    pub(crate) fn sending_now(&self) -> Result<Sending<'_, R>, ComposeError> {
        let mut state = self.shared.lock();
        if state.sends.is_empty() {
            let len = self.send_len(&state);
            drop(state);
            // The task may be one that writes pages back.
            let buffer = {
                let _scope = NofsScope::enter();
                SendBuf::new(self.pd.clone(), len).map_err(|_| ComposeError::NoRoom(0))?
            };
            state = self.shared.lock();
            state.add_send(buffer);
        }
        if self.shared.is_closing() {
            return Err(ComposeError::NotPosted);
        }
        if !state.has_room(0) {
            return Err(ComposeError::NoRoom(0));
        }
        Ok(Sending {
            state,
            shared: &self.shared,
            qp: &self.qp,
            composed: None,
            in_parts: false,
        })
    }

    /// What writes into the peer's memory, with nothing to write yet. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn writing(&self) -> Result<Write> {
        let idle = self.shared.lock().writes.pop();
        Write::new(&self.qp, idle)
    }

    /// Answers a Call by an error message. Context: process.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn refuse(
        &self,
        fixed: &FixedWords,
        report: ErrorReport,
    ) -> Result<(), CloseReason> {
        self.shared.refuse(&self.qp, fixed, report)
    }

    /// A Call is not needed any more that counts as `held` Receives, and gets no Reply: its buffer
    /// receives another. In version 2 the peer is told of that, for this may have been its last credit.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn drop_call(
        &self,
        call: Received<Shared<R>>,
        held: u32,
    ) -> Result<(), CloseReason> {
        let mut state = self.shared.lock();
        state.release(held);
        let posted = state.receives.repost(&self.qp, call);
        let told = match state.protocol() {
            Some(protocol) if protocol.is_version2() => state.transmit(&self.qp),
            _ => Ok(()),
        };
        posted.and(told).map_err(|_| CloseReason::NotPosted)
    }

    /// Starts to read the peer's memory. Context: process, sleeps until there is room.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn pull(&self, pull: PullBox<Shared<R>>, waiter: R::Puller) -> Result {
        let Some(mut state) = self.room(pull.work_requests(), false) else {
            Pull::cancel(pull, &self.qp);
            return Err(errno::not_connected());
        };
        self.qp.post_pull(&mut state.queue, pull, waiter)
    }

    /// Begins to end the connection. Context: process, may sleep.
    pub(crate) fn detach(&self) {
        self.shared.lose(CloseReason::Unneeded);
        self.id.disconnect();
    }
}

/// The protocol's time is that of the endpoint.
impl Protocol {
    /// As [`Protocol::server`], now.
    pub(crate) fn accepted(
        cid: u32,
        config: &crate::proto::connection::Config,
        private_data: &[u8],
    ) -> Self {
        Self::server(cid, config, private_data, now())
    }
}
