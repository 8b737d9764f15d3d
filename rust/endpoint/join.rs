// SPDX-License-Identifier: GPL-2.0

//! RPC messages and property sets that arrive in several parts (version 2) are joined before anybody
//! hears of them.
//!
//! A connection joins one of them at a time, of at most the length that its protocol takes. Parts are
//! copied as they come, so no Receive waits for another part. A Call that is kept counts as as many
//! Receives as it had parts, so the peer gets their credits back with the Reply alone, and what a
//! connection has of joined Calls is no more than what its Receives take. All connections together
//! have so many bytes.

use super::{
    CloseReason,
    Fate,
    Role,
    Shared,
    State,
    Step, //
};
use crate::{
    proto::{
        connection::{
            Arrived,
            Event, //
        },
        error::{
            BadHeader,
            ErrorReport, //
        },
        header::{
            Conveyed,
            FixedWords,
            Flags, //
        }, //
    },
    rdma::{
        proof::Invalidated,
        qp::QpRef,
        recv::Received, //
    },
    support::memalloc::NofsScope, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        lock::{
            spinlock::SpinLockBackend,
            Guard, //
        }, //
    }, //
};

/// How many bytes all that is joined may take.
const MOST: usize = 256 << 20;

/// How many it takes.
static IN_USE: Atomic<usize> = Atomic::new(0);

/// A message, or as much of it as has come.
#[derive(Default)]
pub(crate) struct Joined {
    bytes: KVVec<u8>,
    parts: u32,
}

impl Joined {
    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// In how many parts it came.
    pub(crate) fn parts(&self) -> u32 {
        self.parts
    }

    /// Adds what belongs at `offset`. Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: what belongs before it is not there. `ENOMEM`: there is no more memory for this.
    fn add(&mut self, offset: u32, part: &[u8]) -> Result {
        if offset == 0 {
            *self = Self::default();
        }
        if offset as usize != self.bytes.len() {
            return Err(EINVAL);
        }
        // A Reply may be what writeback waits for.
        let _nofs = NofsScope::enter();
        let before = self.bytes.capacity();
        let added = self.bytes.extend_from_slice(part, GFP_KERNEL);
        let grown = self.bytes.capacity() - before;
        let in_use = IN_USE.fetch_add(grown, Relaxed).saturating_add(grown);
        if added.is_err() || in_use > MOST {
            *self = Self::default();
            return Err(ENOMEM);
        }
        self.parts += 1;
        Ok(())
    }
}

impl Drop for Joined {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.bytes.capacity(), Relaxed);
    }
}

impl<R: Role> Shared<R> {
    /// A part of a property set has come: keeps it, or has the protocol take the set if it is the
    /// last one.
    #[cold]
    pub(super) fn join_properties(
        &self,
        mut guard: Guard<'_, State<R>, SpinLockBackend>,
        qp: &QpRef<Self>,
        (fixed, flags): (FixedWords, Flags),
        (offset, part): (u32, &[u8]),
        message: &Received<Self>,
    ) -> Fate<R::Pending> {
        let mut joined = core::mem::take(&mut guard.joining);
        drop(guard);
        if joined.add(offset, part).is_err() {
            return Fate::Close(CloseReason::NoMemory);
        }
        let mut guard = self.lock();
        if flags.more {
            guard.joining = joined;
            return match guard.transmit(qp) {
                Ok(()) => Fate::Done,
                Err(_) => Fate::Close(CloseReason::NotPosted),
            };
        }
        let Some(protocol) = &mut guard.protocol else {
            return Fate::Done;
        };
        let event = protocol.handle_properties(&fixed, flags, joined.bytes());
        if let Event::Ready = event {
            self.progress.reached(Step::Settled);
        }
        self.claim(guard, qp, event, message, None, true)
    }

    /// A part of an RPC message has come: keeps it, or has the role handle the message if it is the
    /// last one.
    #[cold]
    pub(super) fn join(
        &self,
        mut guard: Guard<'_, State<R>, SpinLockBackend>,
        qp: &QpRef<Self>,
        event: Event<'_>,
        part: &Arrived<'_>,
        message: &Received<Self>,
        invalidated: Option<Invalidated>,
    ) -> Fate<R::Pending> {
        let mut joined = core::mem::take(&mut guard.joining);
        let transmitted = guard.transmit(qp);
        drop(guard);
        if transmitted.is_err() {
            return Fate::Close(CloseReason::NotPosted);
        }
        let call = matches!(event, Event::Call(_));
        let fixed = part.fixed;
        match joined.add(part.part.offset, part.conveyed.payload) {
            Ok(()) if part.more => {
                // Nothing else was joined meanwhile: messages are handled one after the other.
                self.lock().joining = joined;
                return Fate::Done;
            }
            Ok(()) => {}
            Err(error) if error == ENOMEM && call => {
                return Fate::Refuse(fixed, ErrorReport::System);
            }
            Err(error) if error == ENOMEM => {
                let why = BadHeader::TooLong;
                let failed = Event::Failed {
                    xid: fixed.xid,
                    why,
                };
                return self.claim(self.lock(), qp, failed, message, invalidated, false);
            }
            // The rest of what could not be joined.
            Err(_) => return Fate::Done,
        }
        let whole = Arrived {
            conveyed: Conveyed {
                payload: joined.bytes(),
                ..part.conveyed
            },
            ..*part
        };
        let event = if call {
            Event::Call(whole)
        } else {
            Event::Reply(whole)
        };
        let fate = self.claim(self.lock(), qp, event, message, invalidated, false);
        if let Fate::Keep(_) = fate {
            // Whatever keeps the message comes for this next.
            self.lock().joined = Some(joined);
        }
        fate
    }
}
