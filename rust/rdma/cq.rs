// SPDX-License-Identifier: GPL-2.0

//! Completion queues, `struct ib_cq`, and the interface for completion handlers.
//!
//! A queue pair has one completion queue for both its queues, polled by one work item
//! (`ib_cq_poll_work`). A work item runs on one CPU at a time, so data that only completions use need
//! no lock.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{
    cm::CmId,
    ledger::Ledger,
    proof::QpId,
    qp::{
        QpEvent,
        QpRef, //
    },
    recv::RecvBatch,
    Handler, //
};
use crate::{
    bindings,
    support::{
        memalloc::GFP_NORETRY,
        racy::Racy,
        work::{
            Job,
            Run, //
        },
    },
};
use core::{
    cell::UnsafeCell,
    ptr::NonNull, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// The data that the completions of a queue pair share with the tasks that post to it. `ib_cq.cq_context`
/// and `ib_qp.qp_context` point to it.
pub(super) struct CqShared<H: Handler> {
    handler: Arc<H>,
    /// Work requests in the send queue that asked for a completion which has not come.
    pub(super) owed: Atomic<u32>,
    /// The queue pair was connected: the device has its state.
    pub(super) connected: Atomic<bool>,
    /// The boxes that have been posted.
    pub(super) ledger: Arc<Ledger>,
    /// Tells the handler of an event of the queue pair. Dropping it waits for that.
    pub(super) event: Pin<KBox<Job<EventOf<H>>>>,
    /// The number of Receives that are posted again together, when completions give them back.
    pub(super) recv_batch: Racy<u32>,
    own: UnsafeCell<Own<H>>,
}

/// The last serious event of a queue pair, and the handler of such events.
pub(super) struct EventOf<H: Handler> {
    handler: Arc<H>,
    event: Atomic<u32>,
}

impl<H: Handler> EventOf<H> {
    /// Notes an event. Context: any.
    pub(super) fn note(&self, event: bindings::ib_event_type) {
        self.event.store(event, Relaxed);
    }
}

impl<H: Handler> Run for EventOf<H> {
    fn run(&self) {
        self.handler
            .queue_pair_event(QpEvent::new(self.event.load(Relaxed)));
    }
}

impl<H: Handler> CqShared<H> {
    /// Returns the handler of the completions of this queue.
    pub(super) fn handler(&self) -> &H {
        &self.handler
    }
}

/// The data that belong to the completion that is being handled.
pub(super) struct Own<H: Handler> {
    /// Set by [`Cq::set_qp`].
    qp: *mut bindings::ib_qp,
    qp_id: QpId,
    /// Receives that are to be posted together.
    pub(super) receives: RecvBatch<H>,
}

/// The interface for the handler of a completion.
pub(crate) struct Completions<'a, H: Handler>(&'a CqShared<H>);

impl<'a, H: Handler> Completions<'a, H> {
    /// # Safety
    ///
    /// `cq` must be a queue of [`Cq::<H>`], and its poll must have called the caller, which makes
    /// no second one.
    pub(super) unsafe fn of(cq: *mut bindings::ib_cq) -> Self {
        // SAFETY: `cq_context` is set by ib_alloc_cq() to a `CqShared<H>` that `Cq` frees only after
        // ib_free_cq(), which ends the polling.
        Self(unsafe { &*(*cq).cq_context.cast::<CqShared<H>>() })
    }

    /// Returns the handler of this completion.
    pub(super) fn handler(&self) -> &'a H {
        &self.0.handler
    }

    /// Returns the number of work requests that owe a completion.
    pub(super) fn owed(&self) -> &'a Atomic<u32> {
        &self.0.owed
    }

    pub(super) fn own(&mut self) -> &mut Own<H> {
        // SAFETY: completions of one queue are handled by one work item, one after the other, and
        // each makes one `Completions`, which is borrowed for writing here.
        unsafe { &mut *self.0.own.get() }
    }

    /// Returns the identity of the queue pair.
    pub(super) fn qp_id(&mut self) -> QpId {
        self.own().qp_id
    }

    /// Returns the queue pair.
    pub(crate) fn qp(&self) -> &'a QpRef<H> {
        // SAFETY: written before the first work request was posted (`Cq::set_qp`), and not since.
        let qp = unsafe { (*self.0.own.get()).qp };
        // SAFETY: before a queue pair is destroyed its queue is stopped (`Cq::stop`), which waits for
        // the completion that is being handled.
        unsafe { QpRef::from_raw(qp) }
    }
}

/// Returns the number by which tools (rdma) and traces identify a completion queue.
///
/// # Safety
///
/// `cq` must be valid.
pub(super) unsafe fn restrack_id(cq: *mut bindings::ib_cq) -> u32 {
    // SAFETY: the caller's queue is valid; rdma_restrack_add() has set the number when the queue was made.
    unsafe { (*cq).res.id }
}

/// A completion queue, polled from a workqueue.
///
/// # Invariants
///
/// `raw` is a valid queue on the device of `id`; its context is `shared`, a leaked box.
pub(super) struct Cq<H: Handler> {
    raw: NonNull<bindings::ib_cq>,
    shared: NonNull<CqShared<H>>,
    _id: Arc<CmId>,
}

// SAFETY: a completion queue does not belong to a task, and neither does `CqShared`, whose boxes
// and handler are `Send`.
unsafe impl<H: Handler> Send for Cq<H> {}
// SAFETY: shared, a `Cq` gives out pointers for ib_create_qp() only.
unsafe impl<H: Handler> Sync for Cq<H> {}

impl<H: Handler> Cq<H> {
    /// Makes a queue of `entries` on the device that `id` was resolved to.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV`: no device yet. `ENOMEM`, or the error of the driver.
    pub(super) fn new(id: Arc<CmId>, handler: Arc<H>, entries: u32) -> Result<Self> {
        if id.device().is_null() {
            return Err(ENODEV);
        }
        let event = EventOf {
            handler: handler.clone(),
            event: Atomic::new(0),
        };
        let shared = KBox::new(
            CqShared {
                handler,
                owed: Atomic::new(0),
                connected: Atomic::new(false),
                ledger: Ledger::new()?,
                event: KBox::pin_init(Job::new(event), GFP_NORETRY)?,
                recv_batch: Racy::new(1),
                own: UnsafeCell::new(Own {
                    qp: core::ptr::null_mut(),
                    qp_id: QpId::NONE,
                    receives: RecvBatch::new(1),
                }),
            },
            GFP_NORETRY,
        )?;
        let shared = NonNull::from(KBox::leak(shared));
        // The locks of RPC are plain spinlocks, so completions must run in process context.
        // SAFETY: `rdma_cm_id.device` is valid while the id is. The context is freed after ib_destroy_cq_user().
        let raw = unsafe {
            bindings::ib_alloc_cq_any(
                id.device(),
                shared.as_ptr().cast(),
                entries as i32,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
            )
        };
        match from_err_ptr(raw).and_then(|raw| NonNull::new(raw).ok_or(ENOMEM)) {
            // INVARIANT: just allocated, with `shared`.
            Ok(raw) => Ok(Self {
                raw,
                shared,
                _id: id,
            }),
            Err(error) => {
                // SAFETY: leaked above. ib_alloc_cq_any() has failed, so no queue has the pointer.
                drop(unsafe { KBox::from_raw(shared.as_ptr()) });
                Err(error)
            }
        }
    }

    /// Sets the queue pair of the queue.
    ///
    /// # Safety
    ///
    /// `qp` must have been created with this queue, and nothing may have been posted to it.
    pub(super) unsafe fn set_qp(&self, qp: *mut bindings::ib_qp, qp_id: QpId) {
        // SAFETY: valid by the type invariant. Nothing was posted, so no completion uses it now.
        let own = unsafe { &mut *(*self.shared.as_ptr()).own.get() };
        own.qp = qp;
        own.qp_id = qp_id;
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.as_ptr()
    }

    /// Returns the value for `ib_qp.qp_context`.
    pub(super) fn as_context(&self) -> *mut CqShared<H> {
        self.shared.as_ptr()
    }

    /// Returns the state that completions share.
    pub(super) fn shared(&self) -> &CqShared<H> {
        // SAFETY: valid by the type invariant; freed in drop only.
        unsafe { self.shared.as_ref() }
    }

    /// Stops the work item for good: when this returns, no completion is being handled, and no later
    /// completion of the device will be. Context: process, may sleep. Not from a completion.
    pub(super) fn stop(&self) {
        // SAFETY: valid by the type invariant, and polled by a work item (`Self::new`).
        unsafe { bindings::rpcrdma_cq_stop(self.raw.as_ptr()) };
    }
}

impl<H: Handler> Drop for Cq<H> {
    fn drop(&mut self) {
        // SAFETY: the queue pair that used it is destroyed (field order of `Qp`). Waits for the
        // work item to end.
        unsafe { bindings::ib_free_cq(self.raw.as_ptr()) };
        // SAFETY: leaked by `new`; ib_free_cq() was the last to use it.
        drop(unsafe { KBox::from_raw(self.shared.as_ptr()) });
    }
}
