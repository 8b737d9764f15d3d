// SPDX-License-Identifier: GPL-2.0

//! Credits of requests whose task gave up before their Reply came.
//!
//! The peer still works on such a request and owes its Reply, so the credit is not free: sending
//! another Call for it would exceed what the peer granted (RFC 8166, 3.3.1), and a peer that has
//! no Receive left for it ends the connection for everybody. The core would free it with the
//! request (xprt_release_rqst_cong). Here it comes back when its Reply arrives, which no request
//! waits for any more, or with the end of the connection. It has to be that Reply: on the credit
//! that any stray message gave back, the next Call would go out although the peer has not
//! answered the last one.
//!
//! A peer that never answers must not keep the credits for ever either. If no such Reply comes
//! for as long as a request waits for its own, the connection is given up as it is then.

use super::instance::Instance;
use super::slot::Slot;
use super::transport::Transport;
use super::{
    connect,
    LockOf,
    TransportLock,
    Xprt, //
};
use crate::bindings;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use kernel::types::{
    NotThreadSafe,
    Opaque, //
};

/// Credits that no request has and the peer still counts. Changed with the transport lock.
pub(super) struct Orphans {
    /// The XIDs of their requests, as on the wire.
    xids: UnsafeCell<KVec<u32>>,
    /// One of them came back since the work was queued.
    answered: Atomic<bool>,
    /// Gives the connection up if none comes back.
    work: Opaque<bindings::delayed_work>,
}

/// Initialises what a new transport has for them.
///
/// # Safety
///
/// `xprt` must be memory of a new transport that stays where it is.
pub(super) unsafe fn init(xprt: *mut Xprt) {
    // SAFETY: the caller promises memory of a new transport, which nobody else knows of.
    unsafe { (&raw mut (*xprt).orphans.xids).write(UnsafeCell::new(KVec::new())) };
    // SAFETY: the caller promises memory of a transport; nothing is read.
    let work = Opaque::cast_into(unsafe { &raw const (*xprt).orphans.work });
    // SAFETY: uninitialised memory for a work that cancel() ends before it goes.
    unsafe { bindings::init_delayed_work(work, Some(overdue_callback)) };
}

/// Waits until the work does not run and will not, and frees what there is. No request may be left.
pub(super) fn end(xprt: &Xprt) {
    // SAFETY: initialised by `init`; nothing is queued anew without a request.
    unsafe { bindings::cancel_delayed_work_sync(xprt.orphans.work.get()) };
    *xprt.lock_transport().orphans() = KVec::new();
}

/// A request is done with its transport.
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
    // A Reply to a Call of the server is in no slot, and has only been said to have a credit. What
    // tells it apart is what xprt_release itself looks at (bc_prealloc()).
    // SAFETY: written before the core had the request, and cleared by whoever takes it back, which
    // xprt_release does after this (xprt_free_bc_request).
    if unsafe { (*rqst).rq_bc_pa_state } & (1 << bindings::RPC_BC_PA_IN_USE) != 0 {
        return;
    }
    // SAFETY: a request with a credit was given it by our send operation, so it is in a slot.
    if unsafe { Slot::<T::Request>::from_rqst(request) }.awaits_reply() {
        // SAFETY: xprt_release holds the transport lock, and the request is in a slot of ours.
        if unsafe { orphan::<T>(rqst) }.is_ok() {
            return;
        }
    }
    // SAFETY: the transport lock is held, as xprt_release_rqst_cong demands.
    unsafe { bindings::xprt_release_rqst_cong(task) };
}

/// Keeps the credit of a request that was given up.
///
/// # Errors
///
/// `ENOMEM`: nothing has changed.
///
/// # Safety
///
/// As for [`release_request_callback`].
#[cold]
unsafe fn orphan<T: Transport>(rqst: *mut bindings::rpc_rqst) -> Result {
    // SAFETY: a request's transport is alive, and one of ours.
    let xprt = &unsafe { Instance::<T>::from_raw((*rqst).rq_xprt) }.xprt;
    // Not ours to release.
    let mut lock = ManuallyDrop::new(TransportLock(xprt, NotThreadSafe));
    let xids = lock.orphans();
    // SAFETY: set by the core before the request is sent, and not changed until it is released.
    xids.push(unsafe { (*rqst).rq_xid }, GFP_ATOMIC)?;
    let first = xids.len() == 1;
    // SAFETY: protected by the transport lock. `cong` keeps the credit's share.
    unsafe { (*rqst).rq_cong = 0 };
    if first {
        xprt.orphans.answered.store(false, Relaxed);
        xprt.orphans.wait();
    }
    Ok(())
}

impl Orphans {
    /// Looks again after the time that a Reply may take.
    fn wait(&self) {
        connect::queue_work(&self.work, connect::TIMEOUT);
    }
}

impl TransportLock<'_> {
    /// The XIDs of the requests that were given up.
    fn orphans(&mut self) -> &mut KVec<u32> {
        // SAFETY: written by `init`. The transport lock protects it, and there is one such object
        // while the lock is held.
        unsafe { &mut *self.0.orphans.xids.get() }
    }

    /// The connection has ended, and with it all credits.
    pub(super) fn reset_orphans(&mut self) {
        self.orphans().clear();
    }
}

impl Xprt {
    /// A Reply came that no request waits for. Says whether it has given a credit back, because
    /// it is the Reply to an RPC whose task had given it up.
    ///
    /// Context: process; takes the transport lock.
    #[cold]
    pub(crate) fn orphan_replied(&self, xid: u32) -> bool {
        let xid = u32::from_ne_bytes(xid.to_be_bytes());
        let mut lock = self.lock_transport();
        let xids = lock.orphans();
        let Some(at) = xids.iter().position(|orphan| *orphan == xid) else {
            return false;
        };
        if xids.remove(at).is_err() {
            return false;
        }
        self.orphans.answered.store(true, Relaxed);
        put_credit(&lock);
        true
    }
}

/// Gives a credit back that no request has, and wakes the sender that waits for it.
fn put_credit(lock: &TransportLock<'_>) {
    // SAFETY: the transport is alive, and its transport lock held, as the helper demands.
    unsafe { bindings::xprt_put_credit(lock.xprt().as_raw()) };
}

/// No Reply has come for the requests that were given up, or not for all.
///
/// # Safety
///
/// Called by the workqueue only, for the work of an [`Xprt`].
unsafe extern "C" fn overdue_callback(work: *mut bindings::work_struct) {
    // SAFETY: the work is the `work` of a `delayed_work`.
    let work = unsafe { kernel::container_of!(work, bindings::delayed_work, work) };
    let work: *mut Opaque<bindings::delayed_work> = work.cast();
    // SAFETY: which is the one of `Orphans`, in a live `Xprt`: `destroy` cancels it first.
    let xprt = unsafe { &*kernel::container_of!(work, Xprt, orphans.work) };
    let mut lock = xprt.lock_transport();
    let orphans = &xprt.orphans;
    if lock.orphans().is_empty() {
        return;
    }
    let answered = orphans.answered.load(Relaxed);
    orphans.answered.store(false, Relaxed);
    drop(lock);
    if answered {
        orphans.wait();
    } else {
        xprt.force_disconnect();
    }
}
