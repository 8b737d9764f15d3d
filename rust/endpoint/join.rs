// SPDX-License-Identifier: GPL-2.0

//! Reassembly: RPC messages and property sets that arrive in several parts (version 2) are joined before
//! the role sees them.
//!
//! A connection joins one message at a time, up to the longest length of its protocol, and for a
//! limited time. Each part is copied when it arrives, so no Receive waits for another part. A
//! joined Call that is kept counts as one Receive for each of its parts: a peer that keeps to its
//! credits gets these credits back with the Reply alone, so its joined Calls take about the memory
//! of its Receives. The budget of all connections of a role limits a peer that does not keep to its
//! credits.

use super::{
    now,
    tick::PEER_TIMEOUT,
    Disposition,
    EndReason,
    LockedState,
    Role,
    Shared,
    State,
    Step, //
};
use crate::{
    proto::{
        connection::{
            negotiate::Time,
            Arrived,
            Event, //
        },
        wire::{
            header::{
                Conveyed,
                FixedWords,
                Flags, //
            },
            types::MsgType, //
        },
    },
    rdma::{
        proof::Invalidated,
        qp::QpRef,
        recv::Received, //
    },
    support::{
        memalloc::{
            NofsScope,
            GFP_NORETRY, //
        },
        memory, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The budget of memory for the reassembly of all connections of a role. There is a budget for each
/// role, so that clients of this machine's server cannot starve its own mounts.
#[derive(Clone, Copy, Default)]
pub(crate) enum ReassemblyQuota {
    /// The budget of the connecting side.
    #[default]
    Requester,
    /// The budget of the accepting side.
    Responder,
}

impl ReassemblyQuota {
    /// The upper limit of the budget in bytes.
    const MOST: usize = 256 << 20;

    /// Returns the size of the budget in bytes: a sixteenth of the machine's memory, up to the limit.
    fn most(self) -> usize {
        (memory::total() / 16).min(Self::MOST)
    }

    /// Returns the number of bytes in use, and the size in bytes.
    pub(super) fn counts(self) -> (usize, usize) {
        (self.in_use().load(Relaxed), self.most())
    }

    /// Returns the counter of the bytes in use.
    fn in_use(self) -> &'static Atomic<usize> {
        static REQUESTER: Atomic<usize> = Atomic::new(0);
        static RESPONDER: Atomic<usize> = Atomic::new(0);
        match self {
            Self::Requester => &REQUESTER,
            Self::Responder => &RESPONDER,
        }
    }
}

/// A message, or its parts that have arrived.
#[derive(Default)]
pub(crate) struct Reassembly {
    bytes: KVVec<u8>,
    parts: u32,
    budget: ReassemblyQuota,
}

impl Reassembly {
    /// Returns the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of its parts.
    pub(crate) fn parts(&self) -> u32 {
        self.parts
    }

    /// Adds the part at `offset`, with memory of `budget`. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: an earlier part is missing. `ENOMEM`: the budget or the memory is exhausted.
    fn add(&mut self, budget: ReassemblyQuota, offset: u32, part: &[u8]) -> Result {
        if offset == 0 {
            *self = Self {
                bytes: KVVec::new(),
                parts: 0,
                budget,
            };
        }
        if offset as usize != self.bytes.len() {
            return Err(EINVAL);
        }
        // Writeback may wait for this Reply, so the allocation does not wait for writeback.
        let _nofs = NofsScope::enter();
        let before = self.bytes.capacity();
        let added = self.bytes.extend_from_slice(part, GFP_NORETRY);
        let grown = self.bytes.capacity() - before;
        let budget = self.budget;
        let in_use = budget.in_use().fetch_add(grown, Relaxed);
        if added.is_err() || in_use.saturating_add(grown) > budget.most() {
            *self = Self::default();
            return Err(ENOMEM);
        }
        self.parts = self.parts.saturating_add(1);
        Ok(())
    }
}

impl Drop for Reassembly {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let in_use = self.budget.in_use();
        in_use.fetch_sub(self.bytes.capacity(), Relaxed);
    }
}

impl<R: Role> State<R> {
    /// Keeps a reassembly to which the part at `offset` was added. Messages are handled one after the
    /// other, so the connection has no other reassembly.
    fn keep_part(&mut self, joined: Reassembly, offset: u32) {
        if offset == 0 {
            self.joining_since = now();
        }
        self.joining = joined;
    }

    /// Returns whether the rest of a message is overdue: its time-out has passed.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.joining.parts != 0 && now >= self.joining_since.after(Time(PEER_TIMEOUT.into()))
    }

    /// Takes the stale reassembly buffer, which the caller drops without the lock.
    pub(super) fn take_useless(&mut self) -> Reassembly {
        if self
            .protocol()
            .is_some_and(|protocol| protocol.is_joining())
        {
            return Reassembly::default();
        }
        core::mem::take(&mut self.joining)
    }
}

impl<R: Role> Shared<R> {
    /// Handles a part of a property set: keeps it, or makes the protocol take the set if the part is the last
    /// one.
    #[cold]
    pub(super) fn join_properties(
        &self,
        mut guard: LockedState<'_, R>,
        qp: &QpRef<Self>,
        (fixed, flags): (FixedWords, Flags),
        (offset, part): (u32, &[u8]),
        message: &Received<Self>,
    ) -> Disposition<R::Pending> {
        let mut joined = core::mem::take(&mut guard.joining);
        drop(guard);
        if joined.add(R::BUDGET, offset, part).is_err() {
            return Disposition::Close(EndReason::NoMemory);
        }
        let mut guard = self.lock();
        if flags.more {
            guard.keep_part(joined, offset);
            return match guard.transmit(qp) {
                Ok(()) => Disposition::Done,
                Err(_) => Disposition::Close(EndReason::NotPosted),
            };
        }
        let Some(protocol) = &mut guard.protocol else {
            return Disposition::Done;
        };
        let event = protocol.handle_properties(&fixed, flags, joined.bytes());
        if let Event::Ready = event {
            self.progress.reached(Step::Settled);
        }
        self.claim(guard, qp, event, message, None, true)
    }

    /// Handles a part of an RPC message: keeps it, or makes the role handle the message if the part is the last
    /// one.
    #[cold]
    pub(super) fn join(
        &self,
        mut guard: LockedState<'_, R>,
        qp: &QpRef<Self>,
        event: Event<'_>,
        part: &Arrived<'_>,
        message: &Received<Self>,
        invalidated: Option<Invalidated>,
    ) -> Disposition<R::Pending> {
        let mut joined = core::mem::take(&mut guard.joining);
        let transmitted = guard.transmit(qp);
        drop(guard);
        if transmitted.is_err() {
            return Disposition::Close(EndReason::NotPosted);
        }
        let kind = match event {
            Event::Call(_) => MsgType::Call,
            _ => MsgType::Reply,
        };
        let offset = part.part.offset;
        match joined.add(R::BUDGET, offset, part.conveyed.payload) {
            Ok(()) if part.more => {
                self.lock().keep_part(joined, offset);
                return Disposition::Done;
            }
            Ok(()) => {}
            // The RPC has not failed: its Call is sent again, on another connection. An error message would end it.
            Err(error) if error == ENOMEM => return Disposition::Close(EndReason::NoMemory),
            // A later part of a message that could not be joined.
            Err(_) => return Disposition::Done,
        }
        let whole = Arrived {
            conveyed: Conveyed {
                payload: joined.bytes(),
                ..part.conveyed
            },
            ..*part
        };
        let event = whole.into_event(kind);
        let fate = self.claim(self.lock(), qp, event, message, invalidated, false);
        if let Disposition::Keep(_) = fate {
            // The role takes it next, with the message.
            self.lock().joined = Some(joined);
        }
        fate
    }
}
