// SPDX-License-Identifier: GPL-2.0

//! The proofs that memory is out of the peer's reach.
//!
//! Each can be made by one event only, in this folder, and names the queue pair it happened to by
//! a number that no other queue pair ever gets. None can be copied.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// What tells a queue pair from all others, before it and after it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct QpId(u64);

impl QpId {
    /// That of no queue pair.
    pub(super) const NONE: Self = Self(0);

    /// That of a new queue pair.
    pub(super) fn next() -> Self {
        static LAST: Atomic<u64> = Atomic::new(0);
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// The proof that a queue pair is in the error state and its send queue has been drained: it
/// executes no work request any more and answers no access of the peer's.
pub(crate) struct Drained {
    qp: QpId,
}

impl Drained {
    /// By [`Qp::drain`](super::qp::Qp::drain), when every work request came back.
    pub(super) fn by_drain(qp: QpId) -> Self {
        Self { qp }
    }

    /// Whether this is about that queue pair.
    pub(super) fn is_of(&self, qp: QpId) -> bool {
        self.qp == qp
    }
}

/// The proof that the peer itself has invalidated one registration.
pub(crate) struct Invalidated {
    qp: QpId,
    key: u32,
}

impl Invalidated {
    /// By a Receive's completion that says so (`IB_WC_WITH_INVALIDATE`).
    pub(super) fn by_completion(qp: QpId, key: u32) -> Self {
        Self { qp, key }
    }

    /// The handle by which the peer knew it.
    pub(crate) fn handle(&self) -> u32 {
        self.key
    }

    /// Whether this is about that registration on that queue pair.
    pub(super) fn is_of(&self, qp: QpId, key: u32) -> bool {
        self.key == key && self.qp == qp
    }
}

/// The proof that none of the registrations of one Send exposes memory any more.
pub(crate) struct Unexposed(());

impl Unexposed {
    /// By a list of registrations in which none is left, or all of which were invalidated.
    pub(super) fn by_end_of_list() -> Self {
        Self(())
    }
}
