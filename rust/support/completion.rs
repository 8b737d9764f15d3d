// SPDX-License-Identifier: GPL-2.0

//! A one-shot event with a bounded wait.
//!
//! C header: `include/linux/completion.h`.

use crate::bindings;
use kernel::{
    prelude::*,
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque, //
};

/// An event that happens once. All waiters see it, and so do later waiters.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: `struct completion` does not belong to a task (kernel/sched/completion.c).
unsafe impl Send for Completion {}
// SAFETY: its functions take its own raw spinlock (kernel/sched/completion.c).
unsafe impl Sync for Completion {}

impl Completion {
    /// Makes an event that has not happened.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: contract of `Opaque::ffi_init`: the slot is valid, uninitialised memory that stays pinned.
            inner <- Opaque::ffi_init(|slot| unsafe { bindings::init_completion(slot) }),
        })
    }

    /// Resets the event, which then has not happened. No task may be waiting.
    pub(crate) fn reset(&self) {
        // SAFETY: `inner` was initialised by `new` and is alive.
        unsafe { bindings::reinit_completion(self.inner.get()) };
    }

    /// Completes the event, and wakes all waiters. Context: any.
    pub(crate) fn complete_all(&self) {
        // SAFETY: `inner` was initialised by `new` and is alive.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Waits for the event, not interruptibly. Context: process, may sleep.
    pub(crate) fn wait(&self) {
        // SAFETY: `inner` was initialised by `new` and is alive while `self` is borrowed.
        unsafe { bindings::wait_for_completion(self.inner.get()) };
    }

    /// Waits for the event at most `timeout` milliseconds, not interruptibly. Returns whether it happened.
    ///
    /// Context: process, may sleep.
    pub(crate) fn wait_timeout(&self, timeout: Msecs) -> bool {
        // SAFETY: `inner` was initialised by `new` and is alive while `self` is borrowed.
        let left = unsafe {
            bindings::wait_for_completion_timeout(self.inner.get(), msecs_to_jiffies(timeout))
        };
        left != 0
    }
}
