// SPDX-License-Identifier: GPL-2.0

//! Replies and RDMA Reads that wait for the client: for room in the send queue, or in version 2 for credits.
//!
//! A client decides when either comes. It may have no Receive, or grant nothing. So no thread of the service
//! waits with a Reply, or with the RDMA Reads of a Call. They wait in the queue of their connection, and are posted
//! by the completion that makes room or by the message that brings a credit, in order: a Call with many RDMA Reads
//! does not wait behind later Calls with few. A Reply in several messages always goes this way.
//!
//! While the queue is not empty, no Call of the connection is given to a thread. So its length is at most the number
//! of threads that had a Call when the first entry began to wait, and the Receives of these Calls stay away. If no
//! entry, and no part of a Reply, can be posted for 30 s, the connection is closed.

use super::{
    connection::{
        Delayed,
        Open,
        Server,
        ServerMessage,
        Waiting, //
    },
    message::{
        copy,
        limits,
        outgoing, //
    },
    permit::Composed,
    settings, //
};
use crate::{
    endpoint::{
        now,
        EndReason,
        LockedState,
        Shared,
        State,
        Terms,
        PEER_TIMEOUT, //
    },
    proto::{
        connection::{
            continuation::{
                part,
                MessagePart,
                PartSplitter, //
            },
            negotiate::Time, //
        },
        requester::plan::Item,
        responder::{
            respond,
            Form,
            ReplyShape,
            Response, //
        },
        wire::{
            header::Outgoing,
            types::{
                Handle,
                Version, //
            },
        },
    },
    rdma::qp::QpRef,
    support::trace, //
};
use kernel::prelude::*;

impl Delayed {
    /// Returns a Reply that has to wait, without the data of its RDMA Writes. `payload` writes the
    /// Payload stream of a Reply that is one message. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL`: `payload` writes another number of bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn new(
        response: &Response<'_>,
        shape: &ReplyShape<'_>,
        terms: &Terms,
        invalidate: Option<Handle>,
        last: u32,
        payload: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Result<KBox<Self>> {
        let len = match response.form {
            Form::Inline => response.payload_len as usize,
            Form::ReplyChunk | Form::Continued => 0,
        };
        let mut bytes = KVec::from_elem(0_u8, len, GFP_KERNEL)?;
        if len != 0 && payload(&mut bytes) != Some(len) {
            return Err(EINVAL);
        }
        let rest = PartSplitter::new(response.payload_len, terms.inline_send, response.header_len);
        let this = Self {
            terms: *terms,
            len: shape.len,
            protected: shape.protected,
            payload: bytes,
            write: None,
            invalidate,
            last,
            rest: (response.form == Form::Continued).then_some(rest),
        };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }

    /// Returns the shape of the Reply, whose `results` may be moved directly.
    fn shape<'a>(&self, results: &'a [Option<Item>]) -> ReplyShape<'a> {
        ReplyShape {
            len: self.len,
            results,
            protected: self.protected,
        }
    }

    /// Sends all messages of the Reply to `call` but the last, and composes that, as far as there are room and
    /// credits. Returns `None` if the Reply has to wait. Sets `has_gone_on` if a message was sent.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    //= V2-040, V2-041, V2-100
    fn go_on(
        &mut self,
        call: &ServerMessage,
        state: &mut State<Server>,
        qp: &QpRef<Shared<Server>>,
        has_gone_on: &mut bool,
    ) -> Result<Option<Composed>, EndReason> {
        let failed = EndReason::NotPosted;
        let note = call.note();
        let (fixed, asked, _) = note.kept.open(call.bytes()).ok_or(failed)?;
        let shape = self.shape(note.results());
        let limits = limits(note.kept.version(), &self.terms);
        let response = respond(&asked.chunks, &shape, &limits).map_err(|_| failed)?;
        let outgoing = outgoing(fixed.xid, &response);
        let mut cut = None;
        while let Some(rest) = &mut self.rest {
            let mut cutter = *rest;
            let MessagePart { range, more } = cutter.next_part().ok_or(failed)?;
            let work_requests = if more { 1 } else { self.last };
            let has_room = match range.start {
                0 => state.has_room_for_reply(work_requests),
                _ => state.has_room_for_part(work_requests),
            };
            if !has_room {
                return Ok(None);
            }
            if !more {
                cut = Some(range);
                break;
            }
            let memory = self.write.as_ref().ok_or(failed)?.memory();
            let pieces = part(response.payload(), range);
            let payload = |out: &mut [u8]| copy(|at, out| memory.read(at, out), pieces, out);
            state.send_part(qp, &Outgoing { more, ..outgoing }, payload)?;
            *has_gone_on = true;
            *rest = cutter;
        }
        if cut.is_none() && !state.has_room_for_reply(self.last) {
            return Ok(None);
        }
        state.end_call(note.held);
        let payload = |out: &mut [u8]| match (cut, &self.write) {
            (Some(range), Some(write)) => {
                let memory = write.memory();
                let pieces = part(response.payload(), range);
                copy(|at, out| memory.read(at, out), pieces, out)
            }
            _ => {
                let len = self.payload.len();
                out.get_mut(..len)?.copy_from_slice(&self.payload);
                Some(len)
            }
        };
        *has_gone_on = true;
        Ok(Some(
            state
                .compose(&outgoing, 0, &response, payload)
                .map_err(|_| failed)?,
        ))
    }
}

impl Server {
    /// Sends the messages that wait for the client, as far as possible. Context: process, may sleep. Does not wait
    /// for completions.
    #[inline]
    pub(super) fn send_waiting(&self, shared: &Shared<Self>, qp: &QpRef<Shared<Self>>) {
        if self.waiting.get() != Waiting::Nothing as u32 {
            self.send_waiting_locked(shared, shared.lock(), qp);
        }
    }

    /// Does the work of [`Self::send_waiting`] with the endpoint's lock, which is given up.
    #[cold]
    #[inline(never)]
    fn send_waiting_locked(
        &self,
        shared: &Shared<Self>,
        mut state: LockedState<'_, Self>,
        qp: &QpRef<Shared<Self>>,
    ) {
        if shared.is_closing() {
            return;
        }
        let sent = self.go_on(&mut state, qp);
        drop(state);
        match sent {
            Ok(true) => self.xprt.enqueue(),
            Ok(false) => {}
            Err(why) => shared.request_close(why),
        }
    }

    /// Posts the Replies and RDMA Reads that wait, and then lets Calls that wait be taken up. Returns whether there
    /// may be work for a thread of the service.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    fn go_on(&self, state: &mut State<Self>, qp: &QpRef<Shared<Self>>) -> Result<bool, EndReason> {
        let had_unposted = !state.role.unposted.is_empty();
        let has_gone_on = send(state, qp)?;
        let is_blocked = state.is_blocked();
        if has_gone_on || !is_blocked {
            state.wait_from_now(is_blocked);
        }
        if !state.role.unposted.is_empty() {
            return Ok(false);
        }
        let may_take = state.may_take_call();
        let queue = &mut state.role;
        queue.retry = true;
        let has_more = queue.has_more(may_take);
        self.note_waiting(if has_more || queue.calls.is_empty() {
            Waiting::Nothing
        } else {
            Waiting::Calls
        });
        if has_more {
            self.xprt.note_work();
        }
        // The core may have work for a thread as well, a Call that it has deferred.
        Ok(has_more || had_unposted)
    }
}

impl State<Server> {
    /// Returns whether the client lets a message wait.
    fn is_blocked(&self) -> bool {
        let queue = &self.role;
        !queue.unposted.is_empty() || !queue.calls.is_empty() && self.lacks_credit()
    }

    /// Starts the time-out for messages that wait for the client: a message begins to wait, or a waiting message
    /// was sent. `is_blocked` is true if a message waits.
    fn wait_from_now(&mut self, is_blocked: bool) {
        self.role.blocked_since = is_blocked.then(now);
    }

    /// Adds a Call whose Reply, or whose RDMA Reads, have to wait.
    pub(super) fn add_unposted(&mut self, call: ServerMessage) {
        if self.role.unposted.is_empty() {
            self.wait_from_now(true);
        }
        self.role.unposted.push(call);
    }

    /// Returns whether the client lets a message wait.
    ///
    /// # Errors
    ///
    /// [`EndReason::Unresponsive`]: the client has let none of the waiting messages go on for too long.
    pub(super) fn check_patience(&mut self, now: Time) -> Result<bool, EndReason> {
        if !self.is_blocked() {
            self.role.blocked_since = None;
            return Ok(false);
        }
        let since = *self.role.blocked_since.get_or_insert(now);
        if now >= since.after(Time(PEER_TIMEOUT.into())) {
            return Err(EndReason::Unresponsive);
        }
        Ok(true)
    }
}

/// Posts the Replies and RDMA Reads that wait, in order, as far as there are room and credits. Returns whether one
/// was posted.
///
/// # Errors
///
/// The connection has to be closed.
fn send(state: &mut State<Server>, qp: &QpRef<Shared<Server>>) -> Result<bool, EndReason> {
    let mut has_gone_on = false;
    while let Some(mut call) = state.role.unposted.pop() {
        let Some(mut delayed) = call.note_mut().delayed.take() else {
            let pull = call.note_mut().pull.take().ok_or(EndReason::NotPosted)?;
            if !state.queue.has_room_for(pull.work_requests()) {
                call.note_mut().pull = Some(pull);
                state.role.unposted.push_first(call);
                return Ok(has_gone_on);
            }
            qp.post_pull(&mut state.queue, pull, call)
                .map_err(|_| EndReason::NotPosted)?;
            has_gone_on = true;
            continue;
        };
        match delayed.go_on(&call, state, qp, &mut has_gone_on) {
            Ok(Some(composed)) => {
                state.receive_again(qp, call);
                state.post_reply(qp, composed, delayed.write.take(), delayed.invalidate)?;
            }
            waits => {
                call.note_mut().delayed = Some(delayed);
                state.role.unposted.push_first(call);
                return waits.map(|_| has_gone_on);
            }
        }
    }
    Ok(has_gone_on)
}

impl Open<'_> {
    /// Sends the Reply to `call` after the Replies that wait: now, or when there are room and a credit for it.
    ///
    /// # Errors
    ///
    /// The connection has to end.
    #[cold]
    #[inline(never)]
    pub(super) fn delay(
        &self,
        mut call: ServerMessage,
        mut delayed: KBox<Delayed>,
        version: Version,
    ) -> Result<(), EndReason> {
        let shared = self.shared();
        let qp = self.endpoint().qp();
        let pull = call.note_mut().pull.take();
        let mut state = shared.lock();
        if shared.is_closing() {
            drop(state);
            if let Some(write) = delayed.write.take() {
                write.cancel(qp);
            }
            return Err(EndReason::NotPosted);
        }
        //= V1-033, V1-035, V1-040
        let wanted = state.update_grant(self.cid(), settings::max_requests());
        let left = pull.and_then(|pull| state.role.idle.push(pull));
        call.note_mut().delayed = Some(delayed);
        let number = call.number();
        state.add_unposted(call);
        shared.role.note_waiting(Waiting::Unposted);
        // A completion that made room before the lock was taken has not seen this Reply.
        shared.role.send_waiting_locked(shared, state, qp);
        drop(left);
        if shared.role.has_unposted() {
            self.note_starved(number);
        }
        if let Some(calls) = wanted {
            self.grow(calls, version);
        }
        Ok(())
    }

    /// Counts a message that waits for the client, of the Call with the Receive `number`, and ends the connection if the client lets it wait for too long.
    pub(super) fn note_starved(&self, number: u32) {
        trace::emit(|| {
            let (avail, depth) = self.shared().lock().queue.room();
            trace::SvcrdmaSqFull {
                work: trace::WorkId {
                    cid: self.cid(),
                    cq_id: self.endpoint().qp().cq_id(),
                    completion_id: number as i32,
                },
                avail: avail as i32,
                depth: depth as i32,
            }
        });
        settings::STARVED.count();
        self.wind_up();
    }
}
