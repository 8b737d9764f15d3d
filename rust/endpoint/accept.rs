// SPDX-License-Identifier: GPL-2.0

//! The accepting side: connect requests, RDMA Reads and Writes of the peer's memory, and Replies.

use super::{
    now,
    Buffers,
    ComposeError,
    EndReason,
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
        connection::credit::Allowance,
        resources::ResponderResources,
        wire::{
            chunk::{
                Chunks,
                NoChunks, //
            },
            error::ErrorReport,
            header::{
                FixedWords,
                Outgoing, //
            },
            types::{
                Handle,
                MsgType,
                Version, //
            },
        },
    },
    rdma::{
        cm::AcceptParams,
        cq::Completions,
        pull::{
            Pull,
            PullBox, //
        },
        qp::{
            Qp,
            QpRef, //
        },
        recv::{
            Received,
            RecvBatch,
            RecvBuf, //
        },
        rw::Write,
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
    },
};
use core::ops::Range;
use kernel::prelude::*;

/// The reason for which a message cannot be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// There is no room in the send queue, no credit, or an earlier Reply waits for these.
    Waits,
    /// The connection ends, or the send queue is too short for the message.
    Ended,
}

/// The part of a role that the accepting side adds.
pub(crate) trait Responder: Role {
    /// The object that waits for data of the peer.
    type Puller: Send;

    /// RDMA Reads have ended: the data is in `pull`, unless they failed. Returns the waiter if it
    /// is to be dropped without the lock. Context: completion. The endpoint's lock is held.
    fn pulled(
        &self,
        locked: &mut Self::Locked,
        waiter: Self::Puller,
        pull: Option<PullBox<Shared<Self>>>,
    ) -> Option<Self::Puller>;

    /// RDMA Reads have ended. Context: completion.
    fn readable(&self);

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
            state.queue.release(work_requests);
            self.role.pulled(&mut state.role, waiter, pull)
        });
        self.role.readable();
    }
}

/// A message for which there is room, under the endpoint's lock: nothing may sleep until it is
/// [posted](Self::post) or dropped.
pub(crate) struct SendPermit<'a, R: Responder> {
    qp: &'a Qp<Shared<R>>,
    state: LockedState<'a, R>,
    composed: Option<(SendBox<Shared<R>>, usize)>,
}

impl<R: Responder> SendPermit<'_, R> {
    /// Updates the grant for a Reply: the number of Calls that there are Receives for, and `most` at most.
    /// If more Receives are useful, returns the present and the wanted number of Calls: the caller makes
    /// the connection [grow](Endpoint::grow).
    #[inline(always)]
    //= V1-033, V1-035, V1-040
    pub(crate) fn update_grant(&mut self, most: u32) -> Option<Range<u32>> {
        self.state.update_grant(most)
    }

    /// Ends the Call that the message answers, and releases its `held` Receives: its buffer
    /// [receives again](Self::receive_again) before the message is posted.
    pub(crate) fn end_call(&mut self, held: u32) {
        self.state.end_call(held);
    }

    /// Returns the role's data.
    pub(crate) fn role(&mut self) -> &mut R::Locked {
        &mut self.state.role
    }

    /// Returns whether only a Reply can bring a credit for another Call to the peer (version 1).
    pub(crate) fn needs_reply(&self) -> bool {
        self.state.protocol().is_some_and(Protocol::needs_reply)
    }

    /// Returns the terms for the message.
    pub(crate) fn terms(&self) -> Option<Terms> {
        self.state.protocol().map(Protocol::terms)
    }

    /// Writes header and payload; see [`State::compose`].
    ///
    /// # Errors
    ///
    /// [`ComposeError`]: as for [`State::compose`].
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

    /// The buffer of `call`, which this message answers, receives another one: the peer may use the
    /// credit as soon as it has the Reply.
    pub(crate) fn receive_again(&mut self, call: Received<Shared<R>>) {
        self.state.receive_again(self.qp, call);
    }

    /// Posts the RDMA Writes of `write` and then the composed message. The peer's device invalidates the
    /// handle `invalidate`.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn post(
        mut self,
        write: Option<Write>,
        invalidate: Option<Handle>,
    ) -> Result<(), EndReason> {
        let Some(composed) = self.composed.take() else {
            return Err(EndReason::NotPosted);
        };
        self.state.post_reply(self.qp, composed, write, invalidate)
    }
}

impl<R: Responder> Drop for SendPermit<'_, R> {
    fn drop(&mut self) {
        if let Some((buffer, _)) = self.composed.take() {
            self.state.give_back(buffer);
        }
    }
}

impl<R: Responder> Endpoint<R> {
    /// Makes the first buffers and posts the first Receives of a connection that grows up to `most` Calls at
    /// a time. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory. `EIO`: the queue pair does not take the Receives.
    pub(crate) fn make_first_buffers(&self, buffers: &Buffers, most: u32) -> Result {
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
    /// Context: process, may sleep. Called once for each [`SendPermit::update_grant`] that asked for it.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn grow(&self, calls: &Range<u32>, more: &Buffers) -> Result<(), EndReason> {
        let (Ok(mut receives), Ok(mut sends)) = (self.new_receives(more), self.new_sends(more))
        else {
            self.shared.lock().allowance.handle_posted(calls.start);
            return Ok(());
        };
        let mut state = self.shared.lock();
        if receives.post(&self.qp).is_err() {
            return Err(EndReason::NotPosted);
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
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory. `EIO`: the memory cannot be mapped.
    fn new_receives(&self, buffers: &Buffers) -> Result<RecvBatch<Shared<R>>> {
        let mut receives = RecvBatch::new(buffers.receives);
        for _ in 0..buffers.receives {
            receives.add(&self.qp, RecvBuf::new(self.pd.clone(), buffers.recv_len)?);
        }
        Ok(receives)
    }

    /// New Send buffers. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory. `EIO`: the memory cannot be mapped.
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
        let is_version2 = state
            .protocol()
            .is_some_and(|protocol| protocol.is_version2());
        self.shared.role.send_len(if is_version2 {
            Version::V2
        } else {
            Version::V1
        })
    }

    /// Takes the lock to send a Reply with `work_requests` in all.
    ///
    /// # Errors
    ///
    /// There is no room for it now, or no credit.
    ///
    /// Context: process, may sleep. Does not wait for the peer.
    #[inline(always)]
    fn room(&self, work_requests: u32) -> Result<LockedState<'_, R>, Blocked> {
        let state = self.shared.lock();
        if !self.shared.is_closing()
            && !self.shared.has_waiting_replies()
            && state.has_room_for_reply(work_requests)
        {
            return Ok(state);
        }
        self.make_room_for_reply(state, work_requests)
    }

    /// Does the work of [`Self::room`] when there is no room at once: makes a Send buffer, if only that is missing.
    ///
    /// # Errors
    ///
    /// [`Blocked::Ended`]: the connection ends, or the send queue is too short. [`Blocked::Waits`]:
    /// there is no room, no credit or no memory, or a Reply waits.
    #[cold]
    #[inline(never)]
    fn make_room_for_reply<'a>(
        &'a self,
        mut state: LockedState<'a, R>,
        work_requests: u32,
    ) -> Result<LockedState<'a, R>, Blocked> {
        let shared = &*self.shared;
        if work_requests > self.qp.max_work_requests() {
            return Err(Blocked::Ended);
        }
        loop {
            if shared.is_closing() {
                return Err(Blocked::Ended);
            }
            if shared.has_waiting_replies() || !state.may_post_reply(work_requests) {
                return Err(Blocked::Waits);
            }
            if !state.sends.is_empty() {
                return Ok(state);
            }
            // Each buffer belongs to a Reply under way, which has had a thread.
            let len = self.send_len(&state);
            drop(state);
            let buffer = SendBuf::new(self.pd.clone(), len);
            state = shared.lock();
            match buffer {
                Ok(buffer) => state.add_send(buffer),
                // The buffers in use come back when their Sends end.
                Err(_) => return Err(Blocked::Waits),
            }
        }
    }

    /// Prepares to send a Reply with `work_requests` in all.
    ///
    /// # Errors
    ///
    /// There is no room for it now, or no credit.
    ///
    /// Context: process, may sleep. Does not wait for the peer.
    #[inline(always)]
    pub(crate) fn sending(&self, work_requests: u32) -> Result<SendPermit<'_, R>, Blocked> {
        Ok(SendPermit {
            state: self.room(work_requests)?,
            qp: &self.qp,
            composed: None,
        })
    }

    /// Prepares to send a message without RDMA Writes, and does not wait.
    ///
    /// # Errors
    ///
    /// `NotPosted`: the connection ends. `NoRoom`: the send queue has none now.
    ///
    /// Context: process, does not sleep. Does not wait for the peer.
    pub(crate) fn sending_now(&self) -> Result<SendPermit<'_, R>, ComposeError> {
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
        Ok(SendPermit {
            state,
            qp: &self.qp,
            composed: None,
        })
    }

    /// Returns an empty set of RDMA Writes. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn writing(&self) -> Result<Write> {
        let idle = self.shared.lock().writes.pop();
        Write::new(&self.qp, idle)
    }

    /// Answers a Call by an error message. Context: process, does not sleep.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn refuse(&self, fixed: &FixedWords, report: ErrorReport) -> Result<(), EndReason> {
        self.shared.refuse(&self.qp, fixed, report)
    }

    /// A Call is not needed any more that counts as `held` Receives, and gets no Reply: its buffer
    /// receives another. In version 2 the peer is told of that, for this may have been its last credit.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn drop_call(&self, call: Received<Shared<R>>, held: u32) -> Result<(), EndReason> {
        let mut state = self.shared.lock();
        state.end_call(held);
        let posted = state.receives.repost(&self.qp, call);
        let told = match state.protocol() {
            Some(protocol) if protocol.is_version2() => state.transmit(&self.qp),
            _ => Ok(()),
        };
        drop(state);
        // Another Call may have its credit.
        self.shared.send_waiting(&self.qp);
        posted.and(told).map_err(|_| EndReason::NotPosted)
    }

    /// Begins to read the peer's memory; `waiter` comes back with the data. If there is no room in the send
    /// queue, calls `later` under the lock instead, and returns the Pull if that does.
    ///
    /// Context: process, may sleep. Does not wait for the peer.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn pull(
        &self,
        pull: PullBox<Shared<R>>,
        waiter: R::Puller,
        later: impl FnOnce(&mut State<R>, R::Puller, PullBox<Shared<R>>) -> Option<PullBox<Shared<R>>>,
    ) -> Result<Option<PullBox<Shared<R>>>> {
        let mut state = self.shared.lock();
        if self.shared.is_closing() {
            drop(state);
            Pull::cancel(pull, &self.qp);
            return Err(errno::not_connected());
        }
        // A Reply that waits goes first.
        if self.shared.has_waiting_replies() || !state.queue.has_room_for(pull.work_requests()) {
            return Ok(later(&mut state, waiter, pull));
        }
        self.qp.post_pull(&mut state.queue, pull, waiter)?;
        Ok(None)
    }

    /// Begins to end the connection. Context: process, may sleep.
    pub(crate) fn detach(&self) {
        self.shared.request_close(EndReason::Unneeded);
        self.id.disconnect();
    }
}

/// A Reply, under the endpoint's lock.
impl<R: Responder> State<R> {
    /// Counts a Reply, as [`SendPermit::update_grant`] does.
    #[inline(always)]
    pub(crate) fn update_grant(&mut self, most: u32) -> Option<Range<u32>> {
        let wanted = self.allowance.handle_reply(most, now);
        if let Some(protocol) = &mut self.protocol {
            protocol.set_grants(most.min(self.allowance.calls()));
        }
        wanted
    }

    /// Returns whether the peer and the send queue take a Reply with `work_requests` now.
    #[inline(always)]
    fn may_post_reply(&self, work_requests: u32) -> bool {
        self.queue.has_room_for(work_requests) && self.may_send(MsgType::Reply, 1)
    }

    /// Returns whether a Reply with `work_requests` can be sent now.
    #[inline(always)]
    pub(crate) fn has_room_for_reply(&self, work_requests: u32) -> bool {
        self.may_post_reply(work_requests) && !self.sends.is_empty()
    }

    /// Returns whether the next part of the Reply that was begun can be sent now, with `work_requests` in
    /// all.
    //= V2-038, V2-039
    pub(crate) fn has_room_for_part(&self, work_requests: u32) -> bool {
        self.protocol().is_some_and(|protocol| protocol.may_go_on())
            && self.queue.has_room_for(work_requests)
            && !self.sends.is_empty()
    }

    /// Has the buffer of `call` receive another message: the peer may use the credit as soon as it has the
    /// Reply.
    pub(crate) fn receive_again(&mut self, qp: &QpRef<Shared<R>>, call: Received<Shared<R>>) {
        // If that fails the Send cannot help either, but its buffers go where they belong.
        let _ = self.receives.repost(qp, call);
    }

    /// Sends a part of a message that is not its last one.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn send_part(
        &mut self,
        qp: &QpRef<Shared<R>>,
        outgoing: &Outgoing,
        payload: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Result<(), EndReason> {
        let composed = self
            .compose(outgoing, 0, &NoChunks, payload)
            .map_err(|_| EndReason::NotPosted)?;
        self.post_reply(qp, composed, None, None)
    }

    /// Sends a message that was composed, as [`SendPermit::post`] does.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    #[inline(always)]
    pub(crate) fn post_reply(
        &mut self,
        qp: &QpRef<Shared<R>>,
        (buffer, len): (SendBox<Shared<R>>, usize),
        write: Option<Write>,
        invalidate: Option<Handle>,
    ) -> Result<(), EndReason> {
        let invalidate = invalidate.map(|handle| handle.0);
        // The next message needs a buffer back.
        let last = self.sends.is_empty();
        qp.post_reply(&mut self.queue, write, buffer, len, invalidate, last)
            .map_err(|_| EndReason::NotPosted)
    }
}
