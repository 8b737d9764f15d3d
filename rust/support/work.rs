// SPDX-License-Identifier: GPL-2.0

//! Deferred work in process context, on a workqueue of the module.
//!
//! Memory reclaim may wait for work of the module, and work of the module may wait for a peer. No
//! workqueue of the system allows both. The module's queue is unbound, and its rescuer thread runs the work
//! when there is no memory for another thread (`WQ_MEM_RECLAIM`).
//!
//! C header: `include/linux/workqueue.h`. The kernel crate's work items keep themselves alive by
//! a reference and cannot be waited for. A module has to wait for its work items before it is unloaded.

use crate::bindings;
use kernel::{
    ffi::c_ulong,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque, //
};

/// The module's queue, while there is a [`Workqueue`].
static QUEUE: Atomic<*mut bindings::workqueue_struct> = Atomic::new(core::ptr::null_mut());

/// The module's queue. It must be made before any work is queued, and dropped after all work has been
/// cancelled.
pub(crate) struct Workqueue(());

impl Workqueue {
    /// Makes the queue, once. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        // SAFETY: the name is a C string, which alloc_workqueue() copies.
        let queue = unsafe { bindings::rpcrdma_alloc_long_queue(name.as_char_ptr()) };
        if queue.is_null() {
            return Err(ENOMEM);
        }
        QUEUE.store(queue, Release);
        Ok(Self(()))
    }
}

impl Drop for Workqueue {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, of which there is one; nothing is queued any more.
        unsafe { bindings::destroy_workqueue(queue()) };
    }
}

fn queue() -> *mut bindings::workqueue_struct {
    QUEUE.load(Acquire)
}

/// Queues `work` to run after `delay` jiffies, or changes the delay of work that is queued. Context: any.
///
/// # Safety
///
/// `work` must be initialised, and be cancelled before its memory goes.
pub(crate) unsafe fn start_delayed(work: &Opaque<bindings::delayed_work>, delay: c_ulong) {
    // SAFETY: the caller vouches for the work; the queue exists while the module has anything.
    unsafe { bindings::mod_delayed_work(queue(), work.get(), delay) };
}

/// The work of a [`Job`].
pub(crate) trait Run: Send + Sync + 'static {
    /// Does the work. Context: process, may sleep.
    fn run(&self);
}

/// Work that can be requested from any context. It runs once for all requests before it begins, and
/// never twice at a time.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct Job<T: Run> {
    #[pin]
    work: Opaque<bindings::work_struct>,
    target: T,
}

// SAFETY: `struct work_struct` does not belong to a task (kernel/workqueue.c).
unsafe impl<T: Run> Send for Job<T> {}
// SAFETY: `work_struct` is changed by functions of the workqueue only, which take `pool->lock`.
unsafe impl<T: Run> Sync for Job<T> {}

impl<T: Run> Job<T> {
    /// Makes a job that is not requested.
    pub(crate) fn new(target: T) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is uninitialised memory that stays pinned; INIT_WORK writes all of it.
            work <- Opaque::ffi_init(|slot| unsafe {
                bindings::init_work(slot, Some(run_callback::<T>))
            }),
            target,
        })
    }

    /// Returns the object that the job works on.
    pub(crate) fn target(&self) -> &T {
        &self.target
    }

    /// Requests the job. Context: any.
    pub(crate) fn request(&self) {
        // SAFETY: initialised by `new`; drop waits for it. The queue exists while the module has
        // anything.
        unsafe { bindings::queue_work(queue(), self.work.get()) };
    }

    /// Waits until the job does not run, and disables it. Context: process, may sleep. Not from the job.
    pub(crate) fn stop(&self) {
        // SAFETY: initialised by `new`, and drop waits for it.
        unsafe { bindings::disable_work_sync(self.work.get()) };
    }
}

#[pinned_drop]
impl<T: Run> PinnedDrop for Job<T> {
    /// Cancels the job, and waits until it does not run. Context: process, may sleep.
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: initialised by `new`. `self` is borrowed alone, so no request follows.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
    }
}

/// The work of a [`Clock`].
pub(crate) trait Tick: Send + Sync + 'static {
    /// Does the work. Returns the time until the next run in milliseconds, or `None` to stop the clock.
    /// Context: process, may sleep.
    fn tick(&self) -> Option<Msecs>;
}

/// Periodic work, which never runs twice at a time.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct Clock<T: Tick> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    target: T,
}

// SAFETY: `struct delayed_work` does not belong to a task (kernel/workqueue.c).
unsafe impl<T: Tick> Send for Clock<T> {}
// SAFETY: `work_struct` is changed by functions of the workqueue only, which take `pool->lock`.
unsafe impl<T: Tick> Sync for Clock<T> {}

impl<T: Tick> Clock<T> {
    /// Makes a clock that is not started.
    pub(crate) fn new(target: T) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is uninitialised memory that stays pinned; INIT_DELAYED_WORK writes
            // all of it.
            work <- Opaque::ffi_init(|slot| unsafe {
                bindings::init_delayed_work(slot, Some(tick_callback::<T>))
            }),
            target,
        })
    }

    /// Starts the clock: the next run is after `delay` milliseconds, instead of at an earlier start's
    /// time. Context: any.
    pub(crate) fn start(&self, delay: Msecs) {
        // SAFETY: initialised by `new`; drop waits for it.
        unsafe { start_delayed(&self.work, msecs_to_jiffies(delay)) };
    }
}

#[pinned_drop]
impl<T: Tick> PinnedDrop for Clock<T> {
    /// Stops the clock, and waits until its work does not run. Context: process, may sleep.
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: initialised by `new`; the work may start itself until this returns
        // (`__cancel_work_sync` disables it meanwhile). `self` is borrowed alone, so no other task
        // starts it.
        unsafe { bindings::cancel_delayed_work_sync(self.work.get()) };
    }
}

/// # Safety
///
/// The workqueue calls it with the `work` of a [`Clock<T>`] that has not been dropped, since
/// dropping waits for this (cancel_delayed_work_sync).
unsafe extern "C" fn tick_callback<T: Tick>(work: *mut bindings::work_struct) {
    // SAFETY: `work` is the first field of the `delayed_work`, which is the first field of a
    // `#[repr(C)]` struct that is alive, see above.
    let clock = unsafe { &*work.cast::<Clock<T>>() };
    if let Some(delay) = clock.target.tick() {
        clock.start(delay);
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
