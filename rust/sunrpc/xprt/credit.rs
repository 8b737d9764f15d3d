// SPDX-License-Identifier: GPL-2.0

//! Credits of requests whose task gave up before their Reply came.
//!
//! The peer still works on such a request and owes its Reply, so the credit is not free: sending
//! another Call for it would exceed the grant of the peer (RFC 8166, 3.3.1), and a peer that has
//! no Receive left for it ends the connection for all RPCs. The core would free it with the
//! request (xprt_release_rqst_cong). Here the credit comes back when its Reply arrives, which no request
//! waits for any more, or with the end of the connection. Only this Reply gives it back: with a credit
//! from a stray message, the next Call would be sent although the peer has not answered the last Call.
//!
//! The transport decides whether the Reply is outstanding, with the lock under which it handles
//! Replies. Until then the request keeps its credit ([`Rqst::release_credit`],
//! [`Rqst::keep_credit`]).
//!
//! A peer that never answers must not keep the credits for ever either. If no such Reply comes
//! for as long as a request waits for its own, the connection is given up as it is then.

use super::{
    connect,
    instance::Instance,
    rqst::Rqst,
    slot::Slot,
    transport::Transport,
    LockOf,
    TransportLock,
    Xprt, //
};
use crate::bindings;
use core::{
    cell::UnsafeCell,
    ptr::NonNull, //
};
use kernel::{
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    types::Opaque, //
};

/// Credits that no request has and the peer still counts. Changed with the transport lock.
pub(super) struct Orphans {
    /// The number of these credits.
    count: UnsafeCell<u32>,
    /// One of them came back since the work was queued.
    answered: Atomic<bool>,
    /// Gives the connection up if none comes back.
    work: Opaque<bindings::delayed_work>,
}

/// Initialises the data of a new transport for such credits.
///
/// # Safety
///
/// `this` must be memory of a new `Instance<T>`, zeroed, that stays where it is.
pub(super) unsafe fn init<T: Transport>(this: *mut Instance<T>) {
    // SAFETY: the caller promises memory of a transport; nothing is read.
    let work = Opaque::cast_into(unsafe { &raw const (*this).xprt.orphans.work });
    // SAFETY: uninitialised memory for a work that end() ends before it goes.
    unsafe { bindings::init_delayed_work(work, Some(overdue_callback::<T>)) };
}

/// Waits until the work does not run and will not. No request may be left.
pub(super) fn end(xprt: &Xprt) {
    // SAFETY: initialised by `init`; nothing is queued anew without a request.
    unsafe { bindings::cancel_delayed_work_sync(xprt.orphans.work.get()) };
}

/// Ends the use of the transport by a request.
///
/// # Safety
///
/// Called by xprt_release only, with the transport lock held: `task` has a request of a transport
/// of ours, which is neither queued nor pinned, and its buffer, if it ever had one (`buf_free`
/// comes next).
pub(super) unsafe extern "C" fn release_request_callback<T: Transport>(
    task: *mut bindings::rpc_task,
) {
    // SAFETY: the task has a request until xprt_release has ended.
    let Some(request) = NonNull::new(unsafe { (*task).tk_rqstp }) else {
        return;
    };
    let rqst = request.as_ptr();
    // SAFETY: `rq_cong` is protected by the transport lock, which the caller holds.
    if unsafe { (*rqst).rq_cong } == 0 {
        return;
    }
    // A Reply to a Call of the server is in no slot, and has no credit although the core counts it. It is
    // identified as in xprt_release() (bc_prealloc()).
    // SAFETY: written before the core had the request, and cleared when xprt_release() gives it back, after
    // this (xprt_free_bc_request).
    if unsafe { (*rqst).rq_bc_pa_state } & (1 << bindings::RPC_BC_PA_IN_USE) != 0 {
        return;
    }
    // The Reply may have come since the request left the receive queue. `buf_free`, which may take
    // the lock under which Replies are handled, finds out.
    // SAFETY: `rq_cong` was set by our send operation, so the request is in a slot.
    if unsafe { Slot::<T::Request>::from_rqst(request) }.is_outstanding() {
        return;
    }
    // SAFETY: the transport lock is held, as xprt_release_rqst_cong demands.
    unsafe { bindings::xprt_release_rqst_cong(task) };
}

impl<S> Rqst<S> {
    /// Returns the transport of the request.
    fn xprt(&self) -> &Xprt {
        // SAFETY: `rq_xprt` is alive: the task has a reference (`tk_xprt`) until the request is released.
        let xprt = unsafe { (*self.as_raw()).rq_xprt };
        // SAFETY: a request in a slot belongs to a transport of ours, so the pointer points to an `Xprt`
        // (its type invariant).
        unsafe { &*xprt.cast::<Xprt>() }
    }

    /// Takes the credit from a request whose task gave up and whose Reply the peer owes. The credit
    /// comes back by [`Xprt::put_kept_credit`] or with the end of the connection. Returns whether the
    /// request had a credit.
    ///
    /// Context: process, does not sleep. The request's task calls it when the request is on no
    /// queue. Takes the transport lock.
    #[cold]
    pub(crate) fn keep_credit(&self) -> bool {
        let xprt = self.xprt();
        let mut lock = xprt.lock_transport();
        // SAFETY: `transport_lock`, which is held, protects `rq_cong`.
        let credit = unsafe { &mut (*self.as_raw()).rq_cong };
        if core::mem::take(credit) == 0 {
            return false;
        }
        // `cong` keeps the credit's share.
        let count = lock.orphans();
        *count += 1;
        if *count == 1 {
            xprt.orphans.answered.store(false, Relaxed);
            xprt.orphans.wait();
        }
        true
    }

    /// Gives the credit of a request back, if there is one. Context: process, does not sleep. The
    /// request's task calls it when the request is on no queue. Takes the transport lock.
    #[cold]
    pub(crate) fn release_credit(&self) {
        let _lock = self.xprt().lock_transport();
        // SAFETY: `rq_task` is set by xprt_request_init() and not changed while the task has the request.
        let task = unsafe { (*self.as_raw()).rq_task };
        // SAFETY: the task has this request still, and the transport lock is held, as
        // xprt_release_rqst_cong demands.
        unsafe { bindings::xprt_release_rqst_cong(task) };
    }
}

impl Orphans {
    /// Looks again after the time that a Reply may take.
    fn wait(&self) {
        connect::queue_work(&self.work, connect::TIMEOUT);
    }
}

impl TransportLock<'_> {
    /// Returns the number of credits that no request has.
    fn orphans(&mut self) -> &mut u32 {
        // SAFETY: `transport_lock` protects the count, and there is one such object while the lock is held.
        unsafe { &mut *self.0.orphans.count.get() }
    }

    /// Clears the credits, which have ended with the connection.
    pub(super) fn reset_orphans(&mut self) {
        *self.orphans() = 0;
    }
}

impl Xprt {
    /// Gives back a credit that was [kept](Rqst::keep_credit), because the Reply has come.
    ///
    /// Context: process, does not sleep. Called before the connection is closed. Takes the
    /// transport lock.
    #[cold]
    pub(crate) fn put_kept_credit(&self) {
        let mut lock = self.lock_transport();
        let count = lock.orphans();
        let Some(left) = count.checked_sub(1) else {
            return;
        };
        *count = left;
        self.orphans.answered.store(true, Relaxed);
        put_credit(&lock);
    }

    /// Returns whether the peer owes Replies to requests that were given up, and has sent no such
    /// Reply in time. After such a Reply the time begins again.
    fn owes_replies(&self) -> bool {
        let mut lock = self.lock_transport();
        if *lock.orphans() == 0 {
            return false;
        }
        if self.orphans.answered.xchg(false, Full) {
            self.orphans.wait();
            return false;
        }
        true
    }
}

/// Gives a credit back that no request has, and wakes the sender that waits for it.
fn put_credit(lock: &TransportLock<'_>) {
    // SAFETY: the transport is alive, and its `transport_lock` is held, as the helper demands.
    unsafe { bindings::rpcrdma_xprt_put_credit(lock.xprt().as_raw()) };
}

/// Gives the connection up if no Reply to a request that was given up has come in time.
///
/// # Safety
///
/// Called by the workqueue only, for the work of an `Instance<T>`.
unsafe extern "C" fn overdue_callback<T: Transport>(work: *mut bindings::work_struct) {
    // SAFETY: the work is the `work` of a `delayed_work`.
    let work = unsafe { kernel::container_of!(work, bindings::delayed_work, work) };
    let work: *mut Opaque<bindings::delayed_work> = work.cast();
    // SAFETY: which is the one of the `Orphans` of a live `Instance<T>`: `destroy` cancels it first.
    let this = unsafe { &*kernel::container_of!(work, Instance<T>, xprt.orphans.work) };
    this.shared().transport.overdue(|| this.xprt.owes_replies());
}
