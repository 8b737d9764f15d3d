// SPDX-License-Identifier: GPL-2.0

//! Allocations while memory is short: flags, scopes that restrict the allocations of a task, and
//! repeated attempts.

use crate::{
    bindings,
    support::trace, //
};
use kernel::{
    alloc::Flags,
    ffi::c_uint,
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
    types::NotThreadSafe, //
};

/// Flags for an allocation whose failure is handled: it tries reclaim once, and then fails. Without
/// them a small allocation in a [`NofsScope`] never fails: it tries again until other tasks free
/// memory, and these tasks may be waiting for the allocating task.
///
/// The kernel crate has no constant for `__GFP_NORETRY`.
pub(crate) const GFP_NORETRY: Flags = {
    // SAFETY: `Flags` contains a `u32` only, and its operators make any value. The assertion below
    // fails otherwise.
    unsafe { core::mem::transmute::<bindings::gfp_t, Flags>(bindings::GFP_NORETRY) }
};

const _: () = {
    // SAFETY: every value of a `u32` is one of `gfp_t`.
    let raw = unsafe { core::mem::transmute::<Flags, bindings::gfp_t>(GFP_KERNEL) };
    assert!(raw == bindings::GFP_KERNEL);
};

/// The number of attempts to allocate, and the time between them.
const ATTEMPTS: u32 = 50;
const PAUSE: Delta = Delta::from_millis(20);

/// Calls `make`, and calls it again for a second as long as it returns `ENOMEM`.
///
/// For objects that are needed in sets of hundreds: a mild shortage of memory would otherwise make
/// each set fail as a whole.
///
/// Context: process, may sleep.
///
/// # Errors
///
/// The error of the last call of `make`.
pub(crate) fn retry_enomem<T>(mut make: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match make() {
            Err(error) if error == ENOMEM => fsleep(PAUSE),
            result => return result,
        }
    }
    make()
}

/// A scope in which no allocation of the current task enters a file system.
///
/// NFS writeback waits for the transport. Reclaim inside the transport that waits for NFS would
/// deadlock.
pub(crate) struct NofsScope {
    flags: c_uint,
    _task: NotThreadSafe,
}

impl NofsScope {
    /// Enters the scope. Context: process, does not sleep.
    pub(crate) fn enter() -> Self {
        Self {
            // SAFETY: memalloc_flags_save() changes `flags` of the current task only.
            flags: unsafe { bindings::memalloc_nofs_save() },
            _task: NotThreadSafe,
        }
    }
}

impl Drop for NofsScope {
    fn drop(&mut self) {
        // SAFETY: `flags` is the return value of the matching `memalloc_nofs_save` of this task.
        unsafe { bindings::memalloc_nofs_restore(self.flags) };
    }
}

/// A scope in which allocations of the current task may use the reserves of memory, and neither
/// reclaim memory nor wait for it (`PF_MEMALLOC`).
///
/// The reserves are small. Only work that frees memory, and that allocates a bounded amount, may use
/// them.
pub(crate) struct ReserveScope {
    flags: c_uint,
    _task: NotThreadSafe,
}

impl ReserveScope {
    /// Enters the scope, and traces the name of the `work`. Context: process, does not sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter(work: &'static str) -> Self {
        let this = Self {
            // SAFETY: memalloc_flags_save() changes `flags` of the current task only.
            flags: unsafe { bindings::memalloc_noreclaim_save() },
            _task: NotThreadSafe,
        };
        trace::emit(|| trace::RpcrdmaReserves { work });
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

/// A scope in which the current task does not sleep, and so does not wait for memory.
///
/// For a path that memory reclaim may be waiting for. A kernel with `CONFIG_DEBUG_ATOMIC_SLEEP`
/// reports each function that may sleep, whether it sleeps or not. On other kernels the scope has no
/// effect, nor with `CONFIG_PREEMPT_RT`, where the spinlocks of such a path sleep.
pub(crate) struct NoWaitScope(NotThreadSafe);

/// True if the kernel reports functions that may sleep, but not the spinlocks of such a path.
const IS_CHECKED: bool = cfg!(all(CONFIG_DEBUG_ATOMIC_SLEEP, not(CONFIG_PREEMPT_RT)));

impl NoWaitScope {
    /// Enters the scope. Context: process, does not sleep.
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
            // SAFETY: non_block_start() was called by this task, so `non_block_count` is not zero.
            unsafe { bindings::non_block_end() };
        }
    }
}
