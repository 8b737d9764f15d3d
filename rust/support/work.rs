// SPDX-License-Identifier: GPL-2.0

//! Work that is done later, in process context.
//!
//! C header: `include/linux/workqueue.h`. The kernel crate's work items keep themselves alive by
//! a reference and cannot be waited for; a module has to be able to wait, or its code would go
//! away below them.

use crate::bindings;
use kernel::{
    prelude::*,
    types::Opaque, //
};

/// What a [`Job`] does.
pub(crate) trait Run: Send + Sync + 'static {
    /// Does it. Context: a workqueue, may sleep.
    fn run(&self);
}

/// Work that can be asked for from any context. It runs once for all requests that come before it
/// begins, and never twice at a time.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct Job<T: Run> {
    #[pin]
    work: Opaque<bindings::work_struct>,
    target: T,
}

// SAFETY: `struct work_struct` does not belong to a task (kernel/workqueue.c).
unsafe impl<T: Run> Send for Job<T> {}
// SAFETY: it is changed by the workqueue's own functions only, which take its pool's lock.
unsafe impl<T: Run> Sync for Job<T> {}

impl<T: Run> Job<T> {
    /// A job that nobody has asked for.
    pub(crate) fn new(target: T) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is uninitialised memory that stays pinned; INIT_WORK writes all of it.
            work <- Opaque::ffi_init(|slot| unsafe {
                bindings::init_work(slot, Some(run_callback::<T>))
            }),
            target,
        })
    }

    /// What the job works on.
    pub(crate) fn target(&self) -> &T {
        &self.target
    }

    /// Asks for the job. Context: any.
    pub(crate) fn request(&self) {
        // SAFETY: initialised by `new`; drop waits for it. The queue exists as long as the kernel.
        unsafe { bindings::schedule_work(self.work.get()) };
    }
}

#[pinned_drop]
impl<T: Run> PinnedDrop for Job<T> {
    /// Waits until the job does not run and will not. Context: process, sleeps.
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: initialised by `new`, and nobody asks for it any more: `self` is borrowed alone.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
    }
}

/// # Safety
///
/// The workqueue calls it with the `work` of a [`Job<T>`] that has not been dropped, since
/// dropping waits for this (cancel_work_sync).
unsafe extern "C" fn run_callback<T: Run>(work: *mut bindings::work_struct) {
    // SAFETY: `work` is the first field of a `#[repr(C)]` struct that is alive, see above.
    let job = unsafe { &*work.cast::<Job<T>>() };
    job.target.run();
}
