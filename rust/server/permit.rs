// SPDX-License-Identifier: GPL-2.0

//! Sending: room in the send queue, a Send buffer and a credit of the client for a message.

use super::connection::{
    Open,
    Server,
    ServerMessage, //
};
use crate::{
    endpoint::{
        ComposeError,
        EndReason,
        LockedState,
        Protocol,
        Shared,
        State,
        Terms, //
    },
    proto::wire::{
        chunk::{
            Chunks,
            NoChunks, //
        },
        header::Outgoing,
        types::{
            Handle,
            MsgType,
            Version, //
        },
    },
    rdma::{
        qp::{
            Qp,
            QpRef, //
        },
        rw::{
            Remote,
            Write, //
        },
        send::{
            SendBox,
            SendBuf, //
        },
    },
    support::{
        memalloc::NofsScope,
        trace, //
    },
};
use kernel::prelude::*;

/// The reason for which a message cannot be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// There is no room in the send queue, no credit, or an earlier Reply waits for these.
    Waits,
    /// The connection ends, or the send queue is too short for the message.
    Ended,
}

/// A message that was composed, with its length.
pub(super) type Composed = (SendBox<Shared<Server>>, usize);

/// A message for which there is room, under the endpoint's lock: nothing may sleep until it is
/// [posted](Self::post) or dropped.
pub(super) struct SendPermit<'a> {
    qp: &'a Qp<Shared<Server>>,
    state: LockedState<'a, Server>,
    composed: Option<Composed>,
}

impl SendPermit<'_> {
    /// Returns the state of the connection.
    pub(super) fn state(&mut self) -> &mut State<Server> {
        &mut self.state
    }

    /// Returns whether only a Reply can bring a credit for another Call to the client (version 1).
    pub(super) fn needs_reply(&self) -> bool {
        self.state.protocol().is_some_and(Protocol::is_full)
    }

    /// Returns the terms for the message.
    pub(super) fn terms(&self) -> Option<Terms> {
        self.state.protocol().map(Protocol::terms)
    }

    /// Writes header and payload; see [`State::compose`].
    ///
    /// # Errors
    ///
    /// [`ComposeError`]: as for [`State::compose`].
    #[inline(always)]
    pub(super) fn compose<C: Chunks + ?Sized>(
        &mut self,
        outgoing: &Outgoing,
        chunks: &C,
        payload: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Result<(), ComposeError> {
        let state = &mut *self.state;
        self.composed = Some(state.compose(outgoing, 0, chunks, payload)?);
        Ok(())
    }

    /// Adds an RDMA Write of `len` bytes in front of the composed message, and makes `fill` write the bytes. The
    /// permit is for one work request more.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer is too short. The error of `fill`.
    pub(super) fn write_data(
        &mut self,
        len: u32,
        remote: Remote,
        fill: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result {
        let (buffer, message) = self.composed.as_mut().ok_or(EINVAL)?;
        let written = buffer
            .write_data(*message as u32, len, remote)
            .ok_or(EINVAL)
            .and_then(fill);
        if written.is_err() {
            buffer.clear_data();
        }
        written
    }

    /// Posts the buffer of `call`, which this message answers, as a Receive. The client may use the credit as
    /// soon as it has the Reply.
    pub(super) fn receive_again(&mut self, call: ServerMessage) {
        self.state.receive_again(self.qp, call);
    }

    /// Posts the RDMA Writes of `write` and then the composed message. The client's device invalidates the
    /// handle `invalidate`.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    #[inline(always)]
    pub(super) fn post(
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

impl Drop for SendPermit<'_> {
    fn drop(&mut self) {
        if let Some((buffer, _)) = self.composed.take() {
            self.state.sends.push(buffer);
        }
    }
}

impl Open<'_> {
    /// Prepares to send a Reply with `work_requests` in all.
    ///
    /// # Errors
    ///
    /// There is no room for it now, or no credit.
    ///
    /// Context: process, may sleep. Does not wait for the peer.
    #[inline(always)]
    pub(super) fn sending(&self, work_requests: u32) -> Result<SendPermit<'_>, Blocked> {
        Ok(SendPermit {
            state: self.room(work_requests)?,
            qp: self.endpoint().qp(),
            composed: None,
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
    fn room(&self, work_requests: u32) -> Result<LockedState<'_, Server>, Blocked> {
        let shared = self.shared();
        let state = shared.lock();
        if !shared.is_closing()
            && !shared.role.has_unposted()
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
        mut state: LockedState<'a, Server>,
        work_requests: u32,
    ) -> Result<LockedState<'a, Server>, Blocked> {
        let shared = self.shared();
        if work_requests > self.endpoint().qp().max_work_requests() {
            return Err(Blocked::Ended);
        }
        loop {
            if shared.is_closing() {
                return Err(Blocked::Ended);
            }
            if shared.role.has_unposted() || !state.may_post_reply(work_requests) {
                return Err(Blocked::Waits);
            }
            if !state.sends.is_empty() {
                return Ok(state);
            }
            // Each buffer belongs to a Reply under way, which has had a thread.
            let len = self.send_len(&state);
            drop(state);
            let buffer = SendBuf::new(self.endpoint().pd().clone(), len);
            state = shared.lock();
            match buffer {
                Ok(buffer) => state.sends.push(buffer),
                // The buffers in use come back when their Sends end.
                Err(_) => return Err(Blocked::Waits),
            }
        }
    }

    /// Prepares to send a message without RDMA Writes, and does not wait.
    ///
    /// # Errors
    ///
    /// `NotPosted`: the connection ends. `NoRoom`: the send queue has none now.
    ///
    /// Context: process, does not sleep. Does not wait for the peer.
    pub(super) fn sending_now(&self) -> Result<SendPermit<'_>, ComposeError> {
        let shared = self.shared();
        let mut state = shared.lock();
        if state.sends.is_empty() {
            let len = self.send_len(&state);
            drop(state);
            // The task may be one that writes pages back.
            let buffer = {
                let _scope = NofsScope::enter();
                SendBuf::new(self.endpoint().pd().clone(), len)
                    .map_err(|_| ComposeError::NoRoom(0))?
            };
            state = shared.lock();
            state.sends.push(buffer);
        }
        if shared.is_closing() {
            return Err(ComposeError::NotPosted);
        }
        if !state.has_room(0) {
            return Err(ComposeError::NoRoom(0));
        }
        Ok(SendPermit {
            state,
            qp: self.endpoint().qp(),
            composed: None,
        })
    }

    /// Returns the length of another Send buffer.
    fn send_len(&self, state: &State<Server>) -> u32 {
        let is_version2 = state
            .protocol()
            .is_some_and(|protocol| protocol.is_version2());
        self.shared().role.sizes.len(if is_version2 {
            Version::V2
        } else {
            Version::V1
        })
    }
}

/// A Reply, under the endpoint's lock.
impl State<Server> {
    /// Returns whether the client and the send queue take a Reply with `work_requests` now.
    #[inline(always)]
    fn may_post_reply(&self, work_requests: u32) -> bool {
        self.queue.has_room_for(work_requests) && self.may_send(MsgType::Reply, 1)
    }

    /// Returns whether a Reply with `work_requests` can be sent now.
    #[inline(always)]
    pub(super) fn has_room_for_reply(&self, work_requests: u32) -> bool {
        self.may_post_reply(work_requests) && !self.sends.is_empty()
    }

    /// Returns whether the next part of the Reply that was begun can be sent now, with `work_requests` in
    /// all.
    //= V2-038, V2-039
    pub(super) fn has_room_for_part(&self, work_requests: u32) -> bool {
        self.protocol().is_some_and(|protocol| protocol.may_go_on())
            && self.queue.has_room_for(work_requests)
            && !self.sends.is_empty()
    }

    /// Sends a part of a message that is not its last one.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(super) fn send_part(
        &mut self,
        qp: &QpRef<Shared<Server>>,
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
    pub(super) fn post_reply(
        &mut self,
        qp: &QpRef<Shared<Server>>,
        (mut buffer, len): Composed,
        write: Option<Write>,
        invalidate: Option<Handle>,
    ) -> Result<(), EndReason> {
        let invalidate = invalidate.map(|handle| handle.0);
        trace::emit(|| {
            let xid = buffer
                .bytes_mut()
                .first_chunk()
                .copied()
                .unwrap_or_default();
            trace::SvcrdmaPostSend {
                work: trace::WorkId {
                    cid: qp.handler().role.cid,
                    cq_id: qp.cq_id(),
                    completion_id: buffer.number() as i32,
                },
                xid: u32::from_be_bytes(xid),
                len: len as u32,
                num_sge: 1,
                inv_rkey: invalidate.unwrap_or(0),
            }
        });
        // The next message needs a buffer back.
        let last = self.sends.is_empty();
        qp.post_reply(&mut self.queue, write, buffer, len, invalidate, last)
            .map_err(|_| EndReason::NotPosted)
    }
}
