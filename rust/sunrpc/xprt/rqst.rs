// SPDX-License-Identifier: GPL-2.0

//! One RPC as the transport sees it, `struct rpc_rqst`: while it is sent, and pinned while its
//! Reply is handled.

use super::{
    slot::Slot,
    transport::XprtSendError,
    XprtHandle, //
};
use crate::{
    bindings,
    sunrpc::xdr_buf::{
        CallBuf,
        ReplyBuf,
        XdrBuf, //
    },
    support::trace,
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
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
    #[inline]
    pub(super) unsafe fn from_raw(raw: NonNull<bindings::rpc_rqst>) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            raw,
            _slot: PhantomData,
        }
    }

    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::rpc_rqst {
        self.raw.as_ptr()
    }

    #[inline]
    pub(super) fn slot(&self) -> &Slot<S> {
        // SAFETY: by the type invariant the request is embedded in a live `Slot<S>`.
        unsafe { Slot::from_rqst(self.raw) }
    }

    /// Returns the transport's data of the request.
    #[inline]
    pub(crate) fn request(&self) -> &S {
        self.slot().request()
    }

    /// Returns the index of the request: below the number of slots, and constant for the life of the transport.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.slot().index()
    }

    /// Returns whether the request was sent on the present connection, and its Reply was not taken.
    ///
    /// Without the transport's own lock, the value is a hint.
    #[inline]
    pub(crate) fn is_outstanding(&self) -> bool {
        self.slot().is_outstanding()
    }

    /// Notes whether a Reply to the request is outstanding. As long as it is, the request's credit
    /// is not given back with the request. Context: process, does not sleep. The lock that orders
    /// sending and Replies is held.
    #[inline]
    pub(crate) fn set_outstanding(&self, outstanding: bool) {
        self.slot().set_outstanding(outstanding);
    }

    /// Returns the XID.
    #[inline]
    pub(crate) fn xid(&self) -> u32 {
        // SAFETY: set by xprt_request_init and constant while the request is in use.
        let xid = unsafe { (*self.as_raw()).rq_xid };
        u32::from_be_bytes(xid.to_ne_bytes())
    }

    /// Returns the numbers of the task and of its RPC client, for traces.
    #[inline(always)]
    pub(crate) fn task(&self) -> trace::TaskId {
        // By value: the request can stay in a register.
        // SAFETY: by the type invariant the request is not released while it is borrowed.
        unsafe { task_of(self.raw) }
    }

    /// Returns the encoded Call.
    #[inline]
    pub(crate) fn call(&self) -> CallBuf<'_> {
        // SAFETY: call_encode has encoded it before the request was queued, and takes the request
        // off the queues, which waits for pins, before it encodes it anew.
        unsafe { CallBuf::from_raw(&raw const (*self.as_raw()).rq_snd_buf) }
    }

    /// Returns the measures of the receive buffer, and its memory for a device to write.
    #[inline]
    pub(crate) fn receive(&self) -> XdrBuf<'_> {
        // SAFETY: call_encode() has laid out `rq_rcv_buf` (rpc_prepare_reply_pages()).
        unsafe { XdrBuf::from_raw(&raw const (*self.as_raw()).rq_rcv_buf) }
    }

    /// Returns whether a GSS checksum or cipher covers the message, so that no item may be reduced.
    #[inline]
    pub(crate) fn is_protected(&self) -> bool {
        // SAFETY: the credential is bound before the request is sent and stays until release, and
        // keeps its flavour (rpcauth_init_cred).
        let auth = unsafe { (*(*self.as_raw()).rq_cred).cr_auth };
        // SAFETY: `cr_auth` is alive with the credential. `au_flags` is set when the flavour is created.
        unsafe { (*auth).au_flags & (1 << bindings::RPCAUTH_AUTH_DATATOUCH) != 0 }
    }

    /// Returns whether the core waits for a Reply (rpc_reply_expected).
    #[inline]
    pub(super) fn expects_reply(&self) -> bool {
        // SAFETY: `rq_task` stays until xprt_release(), which waits for pins (xprt_wait_on_pinned_rqst()).
        let procedure = unsafe { (*(*self.as_raw()).rq_task).tk_msg.rpc_proc };
        // SAFETY: `rpc_proc` is constant data of the upper layer, which has the RPC.
        !procedure.is_null() && unsafe { (*procedure).p_decode }.is_some()
    }

    /// Allocates the pages that a sparse page list lacks (`XDRBUF_SPARSE_PAGES`).
    ///
    /// Context: any. Called by the sender.
    ///
    /// # Errors
    ///
    /// [`XprtSendError::NoMemory`]: a page could not be allocated.
    #[cold]
    pub(super) fn fill_sparse_pages(&self) -> Result<(), XprtSendError> {
        for entry in self.receive().page_entries() {
            // SAFETY: an entry of `rq_rcv_buf.pages`, which is the sender's until the request was sent
            // (XDRBUF_SPARSE_PAGES).
            if unsafe { (*entry).is_null() } {
                let gfp = bindings::GFP_NOWAIT | bindings::__GFP_NOWARN;
                // SAFETY: does not sleep with these flags, and asks nothing else of its caller.
                let page = unsafe { bindings::alloc_pages(gfp, 0) };
                if page.is_null() {
                    return Err(XprtSendError::NoMemory);
                }
                // SAFETY: the entry is the sender's. The upper layer frees the page with the
                // others of the list (XDRBUF_SPARSE_PAGES in include/linux/sunrpc/xdr.h).
                unsafe { *entry = page };
            }
        }
        Ok(())
    }
}

/// Returns the numbers of the task of a request, and of its RPC client.
///
/// # Safety
///
/// The request must be valid, and not be released meanwhile.
#[cold]
unsafe fn task_of(rqst: NonNull<bindings::rpc_rqst>) -> trace::TaskId {
    // SAFETY: `rq_task` stays until xprt_release(), which waits for pins (xprt_wait_on_pinned_rqst()).
    let task = unsafe { (*rqst.as_ptr()).rq_task };
    // SAFETY: rpc_init_task_statistics() has set `tk_pid`, which is constant.
    let task_id = unsafe { (*task).tk_pid };
    // SAFETY: rpc_task_set_client() has set `tk_client`, which rpc_task_release_client() puts after xprt_release().
    let client = unsafe { (*task).tk_client };
    trace::TaskId {
        task_id: task_id.into(),
        client_id: match client.is_null() {
            true => u32::MAX,
            // SAFETY: the task holds a reference to the client; `cl_clid` is constant.
            false => unsafe { (*client).cl_clid },
        },
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

// SAFETY: the C transports pass pinned requests between contexts, too. Changes through this are made under
// `queue_lock`, or in the receive buffer that the pin freezes.
unsafe impl<S: Sync> Send for PinnedRqst<S> {}

impl<S> XprtHandle<S> {
    /// Finds the request that waits for a reply with this XID and pins it.
    ///
    /// Context: process, does not sleep. Takes the queue lock.
    #[inline]
    pub(crate) fn lookup(&self, xid: u32) -> Option<PinnedRqst<S>> {
        let xid = u32::from_ne_bytes(xid.to_be_bytes());
        // SAFETY: the transport is alive; the helper takes `queue_lock` for lookup and pin.
        let found = unsafe { bindings::rpcrdma_xprt_lookup_and_pin(self.as_raw(), xid) };
        let rqst = NonNull::new(found)?;
        // SAFETY: pinned just now. A request on the receive queue of a transport whose requests are `S` was
        // sent from one of its slots.
        // INVARIANT: it is pinned, for this object alone.
        Some(PinnedRqst(unsafe { Rqst::from_raw(rqst) }))
    }
}

impl<S> PinnedRqst<S> {
    /// Returns the receive buffer.
    #[inline]
    pub(crate) fn reply_buf(&mut self) -> ReplyBuf<'_> {
        // SAFETY: xprt_wait_on_pinned_rqst() keeps the task from the buffers while the request is pinned. This is
        // the only handler of the Reply.
        unsafe { ReplyBuf::new(self.0.raw) }
    }

    /// Completes the request with a Reply of `len` bytes that is in place, releases the request, and wakes the
    /// task.
    ///
    /// Context: process, does not sleep. Takes the queue lock.
    #[inline]
    pub(crate) fn complete(self, len: usize) {
        let rqst = self.as_raw();
        // The helper gives the pin back.
        core::mem::forget(self);
        // SAFETY: pinned once for this object, which is gone; the helper takes `queue_lock`. The length is
        // at most the length of the receive buffer, far below `i32::MAX`.
        unsafe { bindings::rpcrdma_xprt_complete_and_unpin(rqst, len as i32) };
    }

    /// Makes the core encode the Call and send it again on the same connection, with the same XID.
    ///
    /// `false`: the sender has not noted yet that it was sent, so that the core would not do it.
    /// The request goes on waiting, and is sent again after the next connect. Context: process,
    /// does not sleep. Takes the queue lock.
    #[cold]
    pub(crate) fn send_again(self) -> bool {
        let rqst = self.as_raw();
        // The helper gives the pin back.
        core::mem::forget(self);
        // SAFETY: pinned once for this object, which is gone; the helper takes `queue_lock`. Its
        // sender has written `rq_connect_cookie` when the helper does, and its task reads it only
        // after it was woken by that, or under `queue_lock`.
        unsafe { bindings::rpcrdma_xprt_send_again_and_unpin(rqst) }
    }

    /// Ends the RPC with `error`, because there is no usable Reply.
    ///
    /// Context: process, does not sleep. Takes the queue lock.
    #[cold]
    pub(crate) fn fail(self, error: Error) {
        let rqst = self.as_raw();
        // The helper gives the pin back.
        core::mem::forget(self);
        // SAFETY: pinned once for this object, which is gone; the helper takes `queue_lock`. Until it
        // gives the pin back, the task cannot end: xprt_request_dequeue_xprt() waits for that.
        unsafe { bindings::rpcrdma_xprt_fail_and_unpin(rqst, error.to_errno()) };
    }
}

impl<S> core::ops::Deref for PinnedRqst<S> {
    type Target = Rqst<S>;

    #[inline]
    fn deref(&self) -> &Rqst<S> {
        &self.0
    }
}

impl<S> Drop for PinnedRqst<S> {
    fn drop(&mut self) {
        // SAFETY: pinned once for this object; the helper takes `queue_lock`.
        unsafe { bindings::rpcrdma_xprt_unpin(self.0.as_raw()) };
    }
}
