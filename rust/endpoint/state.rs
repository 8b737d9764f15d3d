// SPDX-License-Identifier: GPL-2.0

//! The data under the endpoint's lock; composing and posting a message.

use super::{
    hostauth::SharedKey,
    now,
    EndReason,
    Protocol,
    Reassembly,
    Role,
    Shared, //
};
use crate::{
    proto::{
        connection::{
            credit::RecvCredits,
            negotiate::{
                Opening,
                Time, //
            },
            Config,
            Event,
            SendError,
            MAX_CONTROL_LEN, //
        },
        wire::{
            chunk::Chunks,
            header::Outgoing,
            types::MsgType, //
        },
    },
    rdma::{
        mr::{
            Mapped,
            MrList,
            Registered, //
        },
        qp::QpRef,
        rw::IdleWrite,
        send::{
            SendBox,
            SendBufs,
            SendList,
            SendQueue, //
        },
    },
};
use kernel::prelude::*;

/// The state of an endpoint.
pub(crate) struct State<R: Role> {
    /// The protocol's state; `None` before the peer has accepted.
    pub(super) protocol: Option<Protocol>,
    /// The configuration of a connection that this side opens, until the peer has accepted.
    pub(super) opening: Option<(Config, Opening)>,
    /// The handshake of host authentication, until the protocol's state takes it.
    pub(super) hostauth: Option<KBox<SharedKey>>,
    /// Send buffers that hold no message.
    pub(crate) sends: SendList<Shared<R>>,
    /// The send queue.
    pub(crate) queue: SendQueue<Shared<R>>,
    /// The protocol has something to say for which there was no room.
    pub(super) control_pending: bool,
    /// The number of messages of the peer for which there are Receives (version 2).
    messages: u16,
    /// The number of Receives that the role keeps with their messages (version 2).
    held: u32,
    /// The reassembly of a message that arrives in parts.
    pub(super) joining: Reassembly,
    /// The time when the reassembly began.
    pub(super) joining_since: Time,
    /// The parts of the message that the role keeps next, joined.
    pub(crate) joined: Option<Reassembly>,
    /// The role's data.
    pub(crate) role: R::Locked,
}

/// The reason why a message was not composed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComposeError {
    /// All Send buffers are in use, or the send queue has no room for a Send with this number of
    /// registrations.
    NoRoom(u32),
    /// There are too few buffers or credits for a message with this number of parts and this number of
    /// registrations.
    NoRoomForParts(u32, u32),
    /// The protocol does not take it now, or not at all.
    Protocol(SendError),
    /// It does not fit the buffer.
    TooLong,
    /// The queue pair did not take it.
    NotPosted,
}

// A lock gives `&mut` to its data only if the data may be moved, as this data may.
impl<R: Role> Unpin for State<R> {}

impl<R: Role> State<R> {
    pub(super) fn new(role: R::Locked) -> Self {
        Self {
            protocol: None,
            opening: None,
            hostauth: None,
            sends: SendList::new(),
            queue: SendQueue::new(),
            control_pending: false,
            messages: 0,
            held: 0,
            joining: Reassembly::default(),
            joining_since: Time(0),
            joined: None,
            role,
        }
    }

    /// Accounts Sends that have ended, and frees their buffers. The caller drops the return value without the
    /// lock.
    #[inline]
    pub(super) fn sent(&mut self, mut buffers: SendBufs<Shared<R>>) -> Option<IdleWrite> {
        if let Some(protocol) = self.protocol.as_mut().filter(|p| p.is_version2()) {
            protocol.handle_sent(buffers.take_unmarked());
        }
        let (ended, excess) = self.queue.ended(buffers);
        self.sends.append(ended);
        excess
    }

    /// Sets the number of messages of the peer for which there are Receives.
    pub(crate) fn set_messages(&mut self, messages: u16) {
        self.messages = messages;
        self.count_receives();
    }

    /// Counts a message that the role keeps as `receives` Receives.
    #[inline]
    pub(crate) fn hold(&mut self, receives: u32) {
        self.held = self.held.saturating_add(receives);
        self.count_receives();
    }

    /// Reverts [`Self::hold`] for a message. Its buffer has to be posted as a Receive before another message
    /// is posted.
    #[inline]
    pub(crate) fn release(&mut self, receives: u32) {
        self.held = self.held.saturating_sub(receives);
        self.count_receives();
    }

    /// Tells the protocol the number of posted Receives: the number for all messages of the peer, less the
    /// Receives that the role keeps. The queue has more Receives than that. They make up for Receives
    /// that wait to be posted together, and for the Receive whose message is being handled.
    #[inline]
    //= V2-052, D-10
    fn count_receives(&mut self) {
        if let Some(protocol) = self.protocol.as_mut().filter(|p| p.is_version2()) {
            let receives = RecvCredits::receives(self.messages);
            protocol.handle_posted(receives.saturating_sub(self.held));
        }
    }

    /// Returns whether the protocol may have a message to send that it could not send before.
    #[inline]
    pub(super) fn may_have_more(&self) -> bool {
        let protocol = self.protocol.as_ref();
        self.control_pending || protocol.is_some_and(|protocol| protocol.is_version2())
    }

    /// Returns whether the peer's credits allow an RPC message in `parts` parts now.
    #[inline]
    pub(crate) fn may_send(&self, direction: MsgType, parts: u32) -> bool {
        let protocol = self.protocol.as_ref();
        protocol.is_some_and(|protocol| protocol.may_send(now, direction, parts))
    }

    /// Returns whether a Call in `parts` parts, with `mrs` registrations, can be posted now.
    pub(crate) fn has_room_for_parts(&self, parts: u32, mrs: u32) -> bool {
        self.may_send(MsgType::Call, parts)
            && self.idle_sends() >= parts as usize
            && self.queue.has_room_for(parts + mrs)
    }

    /// Returns whether a message with `mrs` registrations can be posted now.
    #[inline]
    pub(crate) fn has_room(&self, mrs: u32) -> bool {
        !self.sends.is_empty() && self.queue.has_room(mrs)
    }

    /// Returns the protocol's state, while the connection stands.
    pub(crate) fn protocol(&self) -> Option<&Protocol> {
        self.protocol.as_ref()
    }

    /// Returns the number of free Send buffers. Counts them one by one.
    pub(crate) fn idle_sends(&self) -> usize {
        self.sends.iter().count()
    }

    /// Returns the protocol's state and the role's, once the connection stands.
    pub(crate) fn established(&mut self) -> Option<(&mut Protocol, &mut R::Locked)> {
        Some((self.protocol.as_mut()?, &mut self.role))
    }

    /// Writes header and payload of an RPC message with `mrs` registrations into a Send buffer. Returns the
    /// buffer, which must be posted next, with the length of the message.
    ///
    /// `payload` writes the bytes behind the header, and returns their number.
    ///
    /// # Errors
    ///
    /// [`ComposeError::NoRoom`]: there is no Send buffer, or no room in the send queue.
    /// [`ComposeError::TooLong`]: the payload does not fit. [`ComposeError::Protocol`]: the
    /// protocol does not permit the message now.
    #[inline(always)]
    pub(crate) fn compose<C: Chunks + ?Sized>(
        &mut self,
        outgoing: &Outgoing,
        mrs: u32,
        chunks: &C,
        payload: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Result<(SendBox<Shared<R>>, usize), ComposeError> {
        let Some(protocol) = &mut self.protocol else {
            return Err(ComposeError::Protocol(SendError::NotReady));
        };
        if !self.queue.has_room(mrs) {
            return Err(ComposeError::NoRoom(mrs));
        }
        let Some(mut buffer) = self.sends.pop() else {
            return Err(ComposeError::NoRoom(mrs));
        };
        let out = buffer.bytes_mut();
        let error = match protocol.send(now(), out, outgoing, chunks) {
            Ok(header) => match out.get_mut(header..).and_then(payload) {
                Some(len) => return Ok((buffer, header + len)),
                None => {
                    if outgoing.direction == MsgType::Call {
                        protocol.handle_call_ended();
                    }
                    ComposeError::TooLong
                }
            },
            Err(error) => ComposeError::Protocol(error),
        };
        self.sends.push(buffer);
        Err(error)
    }

    /// Registers `mrs` and sends a message that was composed.
    ///
    /// From here on the peer may reach the memory, also when this fails; then the connection has
    /// to be closed.
    #[inline]
    pub(crate) fn post(
        &mut self,
        qp: &QpRef<Shared<R>>,
        mrs: MrList<Mapped>,
        (buffer, len): (SendBox<Shared<R>>, usize),
    ) -> (MrList<Registered>, Result) {
        qp.post_send(&mut self.queue, mrs, buffer, len)
    }

    /// Handles the time-outs that are due. Returns the time at which the protocol must be called again.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(super) fn tick(&mut self, qp: &QpRef<Shared<R>>) -> Result<Option<Time>, EndReason> {
        let now = now();
        if self.is_overdue(now) {
            return Err(EndReason::Unfinished);
        }
        let Some(protocol) = &mut self.protocol else {
            return Ok(None);
        };
        if let Event::Close { why, .. } = protocol.handle_timeout(now) {
            return Err(EndReason::Protocol(why));
        }
        if protocol.is_version2() {
            self.transmit(qp).map_err(|_| EndReason::NotPosted)?;
        }
        Ok(self.protocol.as_ref().and_then(Protocol::poll_timeout))
    }

    /// Takes over the number of unsignaled Sends from the protocol. It has to be taken over before the lock
    /// is given up when the peer's ceiling falls: with the old number, a task could post an unsignaled Send
    /// that uses the last credit, and no completion would give another one.
    pub(super) fn limit_unsignaled(&mut self) {
        let unsignaled = self.protocol().and_then(Protocol::unsignaled);
        self.queue.limit_unsignaled(unsignaled.unwrap_or(u32::MAX));
    }

    /// Sends the messages of the protocol itself: errors, and in version 2 properties and credits. A message
    /// without room is sent when a Send has ended.
    ///
    /// # Errors
    ///
    /// `EIO`: the queue pair does not take a message.
    pub(crate) fn transmit(&mut self, qp: &QpRef<Shared<R>>) -> Result {
        self.control_pending = true;
        self.limit_unsignaled();
        while self.queue.has_room(0) {
            let Some(mut buffer) = self.sends.pop() else {
                break;
            };
            let out = buffer.bytes_mut().get_mut(..MAX_CONTROL_LEN);
            let transmit = match (&mut self.protocol, out) {
                (Some(protocol), Some(out)) => protocol.poll_transmit(now(), out),
                _ => None,
            };
            let Some(transmit) = transmit else {
                self.control_pending = false;
                self.sends.push(buffer);
                break;
            };
            if !transmit.credited {
                buffer.mark();
            }
            let last = self.sends.is_empty();
            qp.post_reply(&mut self.queue, None, buffer, transmit.len, None, last)?;
        }
        Ok(())
    }
}
