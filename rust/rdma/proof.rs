// SPDX-License-Identifier: GPL-2.0

//! The proofs that memory is out of the peer's reach.
//!
//! Each can be made by one event only, in this folder, and names the queue pair it happened to by
//! a number that no other queue pair ever gets. None can be copied.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The identity of a queue pair, which no earlier or later queue pair has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct QpId(u64);

impl QpId {
    /// The identity of no queue pair.
    pub(super) const NONE: Self = Self(0);

    /// Returns the identity for a new queue pair.
    pub(super) fn next() -> Self {
        static LAST: Atomic<u64> = Atomic::new(0);
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// The proof that a queue pair is destroyed, and that nothing of it is left: it executes no work request, it
/// answers no access of the peer, and no completion of it is handled.
///
/// A queue pair is destroyed first, and then nothing is left to be destroyed but the queue pair itself. But a
/// device that has failed may neither change the state of a queue pair nor give back its work requests. The
/// destruction does not depend on that: when ib_destroy_qp() has returned, a device does not execute work
/// requests of the queue pair (InfiniBand specification, 10.2.4.4), in any state of its queues, and a driver
/// whose device is gone frees its part all the same (irdma_destroy_qp(), bnxt_re_destroy_qp(),
/// destroy_qp_common() of mlx5_ib). It refuses only a queue pair that is attached to a multicast group, or
/// opened twice (`ib_qp.usecnt`), and no reliable connected queue pair of a connection id is.
pub(crate) struct Destroyed {
    qp: QpId,
}

impl Destroyed {
    /// Creates the proof that [`Qp::destroy`](super::qp::Qp::destroy) gives.
    pub(super) fn by_destruction(qp: QpId) -> Self {
        Self { qp }
    }

    /// Returns whether the proof belongs to the queue pair.
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
    /// Creates the proof that a Receive's completion with `IB_WC_WITH_INVALIDATE` gives.
    pub(super) fn by_completion(qp: QpId, key: u32) -> Self {
        Self { qp, key }
    }

    /// Returns the handle by which the peer knew the memory.
    pub(crate) fn handle(&self) -> u32 {
        self.key
    }

    /// Returns whether the proof belongs to the registration on the queue pair.
    pub(super) fn is_of(&self, qp: QpId, key: u32) -> bool {
        self.key == key && self.qp == qp
    }
}

/// The proof that none of the registrations of one Send exposes memory any more.
pub(crate) struct Unexposed(());

impl Unexposed {
    /// Creates the proof that a list of registrations gives which is empty, or whose registrations were all
    /// invalidated.
    pub(super) fn by_end_of_list() -> Self {
        Self(())
    }
}
