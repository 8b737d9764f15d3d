// SPDX-License-Identifier: GPL-2.0

//! Replies that wait for the client: for room in the send queue, or in version 2 for credits.
//!
//! A client decides when either comes. It may have no Receive, or grant nothing. So no thread of the service
//! waits with a Reply. The Reply waits in the queue of its connection, and is sent by the completion that makes
//! room or by the message that brings a credit. A Reply in several messages always goes this way.
//!
//! While a Reply waits, no Call of the connection is given to a thread. So the Replies that wait are no more
//! than the threads that had a Call when the first of them began to wait, and the Receives of their Calls stay
//! away. If none of them, and no part of one, can be sent for 30 s, the connection is closed.

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
        let response = respond(asked.chunks, &shape, &limits).map_err(|_| failed)?;
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

    /// Sends the Replies that wait, and then lets Calls that wait be taken up. Returns whether there may be work for
    /// a thread of the service.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    fn go_on(&self, state: &mut State<Self>, qp: &QpRef<Shared<Self>>) -> Result<bool, EndReason> {
        let had_replies = !state.role.replies.is_empty();
        let has_gone_on = send(state, qp)?;
        let is_blocked = state.is_blocked();
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
        self.note_waiting(if has_more || queue.calls.is_empty() {
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
}

impl State<Server> {
    /// Returns whether the client lets a message wait.
    fn is_blocked(&self) -> bool {
        let queue = &self.role;
        !queue.replies.is_empty() || !queue.calls.is_empty() && self.lacks_credit()
    }

    /// Starts the time-out for messages that wait for the client: a message begins to wait, or a waiting message
    /// was sent. `is_blocked` is true if a message waits.
    fn wait_from_now(&mut self, is_blocked: bool) {
        self.role.blocked_since = is_blocked.then(now);
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

/// Sends the Replies that wait, in order, as far as there are room and credits. Returns whether a message was
/// sent.
///
/// # Errors
///
/// The connection has to be closed.
fn send(state: &mut State<Server>, qp: &QpRef<Shared<Server>>) -> Result<bool, EndReason> {
    let mut has_gone_on = false;
    while let Some(mut call) = state.role.replies.pop() {
        let Some(mut delayed) = call.note_mut().delayed.take() else {
            return Err(EndReason::NotPosted);
        };
        match delayed.go_on(&call, state, qp, &mut has_gone_on) {
            Ok(Some(composed)) => {
                state.receive_again(qp, call);
                state.post_reply(qp, composed, delayed.write.take(), delayed.invalidate)?;
            }
            waits => {
                call.note_mut().delayed = Some(delayed);
                state.role.replies.push_first(call);
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
        if state.role.replies.is_empty() {
            state.wait_from_now(true);
        }
        let left = pull.and_then(|pull| state.role.idle.push(pull));
        call.note_mut().delayed = Some(delayed);
        state.role.replies.push(call);
        shared.role.note_waiting(Waiting::Replies);
        // A completion that made room before the lock was taken has not seen this Reply.
        shared.role.send_waiting_locked(shared, state, qp);
        drop(left);
        if shared.role.has_waiting_replies() {
            trace::emit(|| trace::SvcrdmaSqFull { cid: self.cid() });
            settings::STARVED.count();
            self.wind_up();
        }
        if let Some(calls) = wanted {
            self.grow(calls, version);
        }
        Ok(())
    }
}
