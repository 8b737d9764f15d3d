// SPDX-License-Identifier: GPL-2.0

//! One RPC as the transport sees it, `struct rpc_rqst`.

use super::slot::Slot;
use super::xdr_buf::XdrBuf;
use super::xprt::Xprt;
use crate::bindings;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A request that sits in a slot of the transport and carries an `S` of the transport's own.
///
/// # Invariants
///
/// `raw` is the `rpc_rqst` inside a live [`Slot<S>`], and the request cannot be released while
/// this is borrowed: the core holds it (an operation is running for it), or it is pinned.
pub(crate) struct Rqst<S> {
    raw: NonNull<bindings::rpc_rqst>,
    _slot: PhantomData<S>,
}

impl<S> Rqst<S> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant.
    pub(super) unsafe fn from_raw(raw: NonNull<bindings::rpc_rqst>) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            raw,
            _slot: PhantomData,
        }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::rpc_rqst {
        self.raw.as_ptr()
    }

    /// What the transport keeps for the request.
    pub(crate) fn slot(&self) -> &S {
        // SAFETY: by the type invariant the request is embedded in a live `Slot<S>`.
        unsafe { Slot::from_rqst(self.raw) }.data()
    }

    /// The transport that the request was sent, or is to be sent, on.
    pub(crate) fn xprt(&self) -> &Xprt {
        // SAFETY: a request holds a reference to its transport from xprt_request_init on.
        unsafe { Xprt::from_raw((*self.as_raw()).rq_xprt) }
    }

    /// The XID.
    pub(crate) fn xid(&self) -> u32 {
        // SAFETY: set by xprt_request_init and constant while the request is in use.
        let xid = unsafe { (*self.as_raw()).rq_xid };
        u32::from_be_bytes(xid.to_ne_bytes())
    }

    /// The encoded Call.
    pub(crate) fn call(&self) -> XdrBuf<'_> {
        // SAFETY: the buffer is part of the live request and encoded before it is sent.
        unsafe { XdrBuf::from_raw(&raw mut (*self.as_raw()).rq_snd_buf) }
    }

    /// Where the Reply goes.
    pub(crate) fn reply(&self) -> XdrBuf<'_> {
        // SAFETY: the buffer is part of the live request and prepared before it is sent.
        unsafe { XdrBuf::from_raw(&raw mut (*self.as_raw()).rq_rcv_buf) }
    }

    /// Whether a GSS checksum or cipher covers the message, so that nothing may be reduced.
    pub(crate) fn is_protected(&self) -> bool {
        // SAFETY: the credential is bound before the request is sent and stays until release.
        unsafe { bindings::rpcauth_datatouch(self.as_raw()) }
    }
}

/// A request that is held while its Reply is handled; dropping it lets go without completing it.
///
/// A pinned request cannot be released: a task that gives up waits for the pin
/// (xprt_request_dequeue_xprt). Dropped unfinished, the request goes on waiting and is sent again
/// after the next connect.
///
/// # Invariants
///
/// The request was pinned once for this object (`xprt_pin_rqst`), and lives in a [`Slot<S>`].
pub(crate) struct PinnedRqst<S>(Rqst<S>);

// SAFETY: pinned requests are handed between contexts by the C transports; every access goes
// through the queue lock or concerns data that the pin freezes.
unsafe impl<S: Sync> Send for PinnedRqst<S> {}

impl<S> PinnedRqst<S> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant.
    pub(super) unsafe fn from_pinned(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // SAFETY: a pinned request of ours is in a live slot.
        // INVARIANT: promised by the caller.
        Self(unsafe { Rqst::from_raw(rqst) })
    }

    /// The Reply is in place and `len` bytes long: wakes the task.
    ///
    /// Context: process; takes the queue lock.
    pub(crate) fn complete(self, len: usize) {
        let rqst = self.as_raw();
        self.xprt().with_queue_lock(|_| {
            // SAFETY: the request is pinned and the queue lock is held. The length is at most
            // that of the receive buffer, far below `i32::MAX`.
            unsafe { bindings::xprt_complete_rqst((*rqst).rq_task, len as i32) };
        });
        // The drop releases the pin.
    }

    /// There will be no usable Reply: the RPC fails with `error`.
    ///
    /// Context: process; takes the queue lock.
    pub(crate) fn fail(self, error: Error) {
        let rqst = self.as_raw();
        // SAFETY: while the request is pinned and waits for its reply the task is asleep, or
        // about to sleep, and tk_status is the transport's to set (net/sunrpc/xprt.c).
        unsafe { (*(*rqst).rq_task).tk_status = error.to_errno() };
        self.complete(0);
    }

    /// Results came by RDMA Write: the first `len` bytes of the Reply, its inline part, are all
    /// that precedes them, so the head must end there or the decoder would shift the results.
    pub(crate) fn trim_reply_head(&self, len: usize) {
        let rqst = self.as_raw();
        // SAFETY: the pin keeps the request; only the reply's handler changes its receive buffer.
        let head = unsafe { &mut (*rqst).rq_rcv_buf.head[0] };
        if len < head.iov_len {
            head.iov_len = len;
        }
        let trimmed = head.iov_len;
        // The core compares the two buffers, so the copy must follow (call_decode).
        // SAFETY: as above.
        unsafe { (*rqst).rq_private_buf.head[0].iov_len = trimmed };
    }
}

impl<S> core::ops::Deref for PinnedRqst<S> {
    type Target = Rqst<S>;

    fn deref(&self) -> &Rqst<S> {
        &self.0
    }
}

impl<S> Drop for PinnedRqst<S> {
    fn drop(&mut self) {
        let rqst = self.0.as_raw();
        self.0.xprt().with_queue_lock(|_| {
            // SAFETY: pinned once for this object; the queue lock is held.
            unsafe { bindings::xprt_unpin_rqst(rqst) };
        });
    }
}
