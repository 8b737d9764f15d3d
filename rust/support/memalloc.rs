// SPDX-License-Identifier: GPL-2.0

//! What to do where memory is short: flags and scopes that say what an allocation may do, and
//! patience.

use crate::bindings;
use crate::support::trace;
use kernel::alloc::Flags;
use kernel::ffi::c_uint;
use kernel::prelude::*;
use kernel::time::delay::fsleep;
use kernel::time::Delta;
use kernel::types::NotThreadSafe;

/// Flags for memory whose lack is handled: the allocation tries reclaim once, and fails then. Without
/// them a small allocation in a [`NofsScope`] never fails: it tries again until other tasks free
/// memory, which may need the very task that waits.
///
/// The kernel crate has no constant for `__GFP_NORETRY`.
pub(crate) const GFP_NORETRY: Flags = {
    // SAFETY: `Flags` is a `u32` alone, and its operators make any value. What is asserted below
    // holds if this is so.
    unsafe { core::mem::transmute::<bindings::gfp_t, Flags>(bindings::GFP_NORETRY) }
};

const _: () = {
    // SAFETY: every value of a `u32` is one of `gfp_t`.
    let raw = unsafe { core::mem::transmute::<Flags, bindings::gfp_t>(GFP_KERNEL) };
    assert!(raw == bindings::GFP_KERNEL);
};

/// How often something is tried for which there is no memory, and the time between.
const ATTEMPTS: u32 = 50;
const PAUSE: Delta = Delta::from_millis(20);

/// What `make` makes. As long as there is no memory for it, it is tried again, for a second.
///
/// For what is one of hundreds that have to be there together: if each failure undid the others,
/// a shortage of which each feels little would leave none.
///
/// Context: process, sleeps.
///
/// # Errors
///
/// The last of `make`.
pub(crate) fn patiently<T>(mut make: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match make() {
            Err(error) if error == ENOMEM => fsleep(PAUSE),
            result => return result,
        }
    }
    make()
}

/// While this lives, no allocation of the current task enters a file system.
///
/// The transport works for NFS writeback: reclaim that waits for NFS inside it would wait for
/// itself.
pub(crate) struct NofsScope {
    flags: c_uint,
    _task: NotThreadSafe,
}

impl NofsScope {
    /// Enters the scope. Context: process.
    pub(crate) fn enter() -> Self {
        Self {
            // SAFETY: changes a flag of the current task only.
            flags: unsafe { bindings::memalloc_nofs_save() },
            _task: NotThreadSafe,
        }
    }
}

impl Drop for NofsScope {
    fn drop(&mut self) {
        // SAFETY: `flags` is what the matching `memalloc_nofs_save` of this task returned.
        unsafe { bindings::memalloc_nofs_restore(self.flags) };
    }
}

/// While this lives, allocations of the current task may use the reserves of memory, and neither reclaim
/// memory nor wait for it (`PF_MEMALLOC`).
///
/// The reserves are small. Work has a right to them if memory comes free by it, and if it takes a bounded
/// amount.
pub(crate) struct ReserveScope {
    flags: c_uint,
    _task: NotThreadSafe,
}

impl ReserveScope {
    /// Enters the scope, and says in a trace event for which `work`. Context: process.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter(work: &'static str) -> Self {
        let this = Self {
            // SAFETY: changes a flag of the current task only.
            flags: unsafe { bindings::memalloc_noreclaim_save() },
            _task: NotThreadSafe,
        };
        trace::reserves(|| (work,));
        this
    }
}

impl Drop for ReserveScope {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: `flags` is the value that the matching `memalloc_noreclaim_save` of this task has
        // returned.
        unsafe { bindings::memalloc_noreclaim_restore(self.flags) };
    }
}

/// While this lives, the current task waits for nothing, and so for no memory.
///
/// For a path that memory reclaim itself may be waiting for. A kernel with
/// `CONFIG_DEBUG_ATOMIC_SLEEP` reports whatever might sleep meanwhile, whether it does or not; on
/// others this is nothing. So it is with `CONFIG_PREEMPT_RT`, where the spinlocks of such a path sleep.
pub(crate) struct NoWaitScope(NotThreadSafe);

/// Whether the kernel can tell waiting from the locks of such a path.
const IS_CHECKED: bool = cfg!(all(CONFIG_DEBUG_ATOMIC_SLEEP, not(CONFIG_PREEMPT_RT)));

impl NoWaitScope {
    /// Enters the scope. Context: process.
    #[inline(always)]
    pub(crate) fn enter() -> Self {
        if IS_CHECKED {
            // SAFETY: changes a counter of the current task only (non_block_count).
            unsafe { bindings::non_block_start() };
        }
        Self(NotThreadSafe)
    }
}

impl Drop for NoWaitScope {
    #[inline(always)]
    fn drop(&mut self) {
        if IS_CHECKED {
            // SAFETY: as this task has entered the scope, its counter is not zero.
            unsafe { bindings::non_block_end() };
        }
    }
}
