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
    connection::Open,
    reply::{
        copy,
        limits,
        outgoing, //
    },
    role::{
        Server,
        ServerMessage, //
    },
    settings, //
};
use crate::{
    endpoint::{
        EndReason,
        Endpoint,
        Shared,
        State,
        Terms,
        Waiting, //
    },
    proto::{
        connection::continuation::{
            part,
            MessagePart,
            PartSplitter, //
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
    rdma::{
        qp::QpRef,
        recv::ReceivedList,
        rw::Write,
        send::SendBox, //
    },
    support::trace, //
};
use kernel::prelude::*;

/// A Reply that waits for the client. Its Call is kept with it.
pub(crate) struct Delayed {
    /// The terms for which the form of the Reply was decided.
    terms: Terms,
    /// The length of the RPC Reply.
    len: u32,
    /// RPCSEC_GSS protects its results.
    protected: bool,
    /// The Payload stream, if the Reply is one message.
    payload: KVec<u8>,
    /// The memory of the Reply with the RDMA Writes out of it. The Payload stream of a Reply in several messages
    /// is read from there.
    pub(super) write: Option<Write>,
    /// The handle to be invalidated.
    invalidate: Option<Handle>,
    /// The number of work requests of the last message.
    last: u32,
    /// The messages that are still to be sent, if the Reply is several.
    rest: Option<PartSplitter>,
}

/// A message that was composed, with its length.
type Composed = (SendBox<Shared<Server>>, usize);

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

/// Sends the Replies that wait, in order, as far as there are room and credits. Returns whether a message was
/// sent.
///
/// # Errors
///
/// The connection has to be closed.
pub(super) fn send(
    state: &mut State<Server>,
    qp: &QpRef<Shared<Server>>,
) -> Result<bool, EndReason> {
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

/// Cancels the Replies that wait, before the queue pair is destroyed. Returns their Calls.
pub(super) fn cancel(endpoint: &Endpoint<Server>) -> ReceivedList<Shared<Server>> {
    let mut state = endpoint.shared().lock();
    let mut replies = core::mem::replace(&mut state.role.replies, ReceivedList::new());
    drop(state);
    let mut calls = ReceivedList::new();
    while let Some(mut call) = replies.pop() {
        let delayed = call.note_mut().delayed.take();
        if let Some(write) = delayed.and_then(|mut delayed| delayed.write.take()) {
            write.cancel(endpoint.qp());
        }
        calls.push(call);
    }
    calls
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
        let wanted = state.update_grant(settings::max_requests());
        if state.role.replies.is_empty() {
            state.wait_from_now(true);
        }
        let left = pull.and_then(|pull| state.role.idle.push(pull));
        call.note_mut().delayed = Some(delayed);
        state.role.replies.push(call);
        shared.note_waiting(Waiting::Replies);
        // A completion that made room before the lock was taken has not seen this Reply.
        shared.send_waiting_locked(state, qp);
        drop(left);
        if shared.has_waiting_replies() {
            trace::svc_full(|| (self.cid(),));
            settings::STARVED.count();
            self.wind_up();
        }
        if let Some(calls) = wanted {
            self.grow(calls, version);
        }
        Ok(())
    }
}
