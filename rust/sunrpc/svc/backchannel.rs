// SPDX-License-Identifier: GPL-2.0

//! Calls to a client on the connection that it made: the transport class `rdma backchannel`.
//!
//! The core's RPC client sends them, so there is a `struct rpc_xprt` beside the `svc_xprt`. It is
//! connected from the start, never connects again, and has no resources of its own: the
//! [`SvcConnection`](super::SvcConnection) sends its messages. It lives at least as long as the `svc_xprt`, which
//! keeps a reference (`xpt_bc_xprt`). It may live longer, but then no message is sent over it, because the
//! sender (nfsd) has a reference to the `svc_xprt`.

use super::{
    Called,
    Service,
    SvcHandle,
    SvcInstance,
    SvcPart, //
};
use crate::{
    bindings,
    sunrpc::{
        class::{
            self,
            set,
            Class,
            Netids,
            NewXprt,
            RegisteredClass, //
        },
        xdr_buf::{
            CallBuf,
            ReplyBuf, //
        },
        xprt::connect::default_timeout, //
    },
    support::errno, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::atomic::Atomic, //
};

/// The number of Calls to a client that may be outstanding.
pub(crate) const SLOTS: u32 = 2;

/// The registration of the class.
pub(crate) type BackchannelRegistration<T> = class::ClassRegistration<Caller<T>>;

/// The class of the transports for Calls to clients of `T`. It has no netids, so it is not found by name.
pub(crate) struct Caller<T: Service>(PhantomData<T>);

static REGISTERED: RegisteredClass = Atomic::new(core::ptr::null_mut());

impl<T: Service> Class for Caller<T> {
    const IDENT: c_int = bindings::xprt_transports_XPRT_TRANSPORT_BC_RDMA;
    const NAME: &'static CStr = c"rdma backchannel";
    const NETIDS: Netids = [c""; 3];

    fn registered() -> &'static RegisteredClass {
        &REGISTERED
    }

    /// Makes the transport for Calls on a connection.
    fn setup(args: &bindings::xprt_create) -> Result<NewXprt> {
        if args.bc_xprt.is_null() {
            return Err(EBADF);
        }
        let size = size_of::<bindings::rpc_xprt>();
        // SAFETY: these are the arguments of `setup`.
        let new = unsafe { NewXprt::new::<Self>(args, size, SLOTS, SLOTS) }?;
        let raw = new.as_raw().as_ptr();
        set! { raw,
            ops: BackchannelVTable::<T>::get(),
            timeout: default_timeout(),
            bind_timeout: 0,
            reestablish_timeout: 0,
            idle_timeout: 0,
            prot: bindings::xprt_transports_XPRT_TRANSPORT_BC_RDMA,
            max_payload: crate::support::memory::PAGE_SIZE as usize,
            bc_xprt: args.bc_xprt,
        }
        // SAFETY: an atomic operation on `state` of the new transport.
        unsafe { bindings::xprt_set_bound(raw) };
        // SAFETY: an atomic operation on `state` of the new transport.
        unsafe { bindings::xprt_set_connected(raw) };
        // The `svc_xprt` has a reference from now on, which svc_xprt_free() gives back.
        // SAFETY: the caller of rpc_create() (nfsd) holds the `svc_xprt`.
        if !unsafe { bindings::rpcrdma_svc_xprt_set_backchannel(args.bc_xprt, raw) } {
            // nfsd makes one for each of its clients that calls for it (cl_callback_wq), and looks
            // for one before (rpc_create): two that have a session on this connection may both find
            // none. It finds this one when it tries again.
            return Err(EEXIST);
        }
        Ok(new)
    }
}

/// The operations of the transport for Calls to clients of `T`.
struct BackchannelVTable<T: Service>(PhantomData<T>);

impl<T: Service> BackchannelVTable<T> {
    const OPS: bindings::rpc_xprt_ops = bindings::rpc_xprt_ops {
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(bindings::xprt_alloc_slot),
        free_slot: Some(bindings::xprt_free_slot),
        release_request: Some(bindings::xprt_release_rqst_cong),
        wait_for_reply_request: Some(bindings::xprt_wait_for_reply_request_def),
        connect: Some(Self::connect_callback),
        buf_alloc: Some(Self::buf_alloc_callback),
        buf_free: Some(Self::buf_free_callback),
        send_request: Some(Self::send_request_callback),
        close: Some(Self::close_callback),
        destroy: Some(Self::destroy_callback),
        print_stats: Some(Self::print_stats_callback),
        inject_disconnect: Some(Self::inject_disconnect_callback),
        ..pin_init::zeroed()
    };

    fn get() -> *const bindings::rpc_xprt_ops {
        &Self::OPS
    }

    /// # Safety
    ///
    /// Called by xprt_connect() with the send lock, for a transport of ours whose connection has
    /// ended, and on whose queue the task waits.
    unsafe extern "C" fn connect_callback(
        xprt: *mut bindings::rpc_xprt,
        _task: *mut bindings::rpc_task,
    ) {
        // Only the client can connect: waiting tasks get an error.
        // SAFETY: an atomic operation on `state` of a transport that is alive during the call.
        unsafe { bindings::xprt_clear_connecting(xprt) };
        let error = errno::not_connected().to_errno();
        // SAFETY: the core calls with a transport that is alive. xprt_wake_pending_tasks() takes the lock of the
        // queue.
        unsafe { bindings::xprt_wake_pending_tasks(xprt, error) };
    }

    /// # Safety
    ///
    /// Called by call_allocate() only: `task` has a request, which is not encoded yet.
    unsafe extern "C" fn buf_alloc_callback(task: *mut bindings::rpc_task) -> c_int {
        // SAFETY: `tk_rqstp` is the task's alone, until xprt_request_enqueue_transmit() queues it.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: set by call_allocate() before.
        let (call, reply) = unsafe { ((*rqst).rq_callsize, (*rqst).rq_rcvsize) };
        // SAFETY: rpcrdma_rpc_kzalloc() only allocates, with the flags of the current task.
        let buffer = unsafe { bindings::rpcrdma_rpc_kzalloc(call + reply) };
        if buffer.is_null() {
            return ENOMEM.to_errno();
        }
        // SAFETY: `tk_rqstp` is the task's alone, until xprt_request_enqueue_transmit() queues it.
        unsafe { (*rqst).rq_buffer = buffer };
        // SAFETY: `tk_rqstp` is the task's alone, until xprt_request_enqueue_transmit() queues it.
        unsafe { (*rqst).rq_rbuffer = buffer.wrapping_byte_add(call) };
        0
    }

    /// # Safety
    ///
    /// Called by xprt_release() only: the request of `task` is on no queue, and not pinned.
    unsafe extern "C" fn buf_free_callback(task: *mut bindings::rpc_task) {
        // SAFETY: the task has its request until xprt_release() ends.
        let buffer = unsafe { (*(*task).tk_rqstp).rq_buffer };
        // SAFETY: allocated by `buf_alloc_callback`, and not used any more.
        unsafe { bindings::kfree(buffer) };
    }

    /// # Safety
    ///
    /// Called by xprt_request_transmit() only: `rqst` is encoded and pinned, and its transport,
    /// one of ours, is locked.
    unsafe extern "C" fn send_request_callback(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: `rq_xprt` is alive: the task has a reference (`tk_xprt`) until the request is released.
        let xprt = unsafe { (*rqst).rq_xprt };
        // SAFETY: xprt_request_get_cong() takes `transport_lock` itself. The request is pinned (xprt_pin_rqst()).
        if !unsafe { bindings::xprt_request_get_cong(xprt, rqst) } {
            return errno::no_slot().to_errno();
        }
        // SAFETY: set by `setup` and constant. The sender holds a reference to the `svc_xprt`.
        let svc = unsafe { (*xprt).bc_xprt };
        // SAFETY: a server transport of `T`, which has called us.
        let part = unsafe { SvcInstance::<T>::part(svc) };
        let Some(SvcPart::Connection(connection)) = part else {
            return errno::not_connected().to_errno();
        };
        // SAFETY: reads the clock, in any context (kernel/time/timekeeping.c).
        let now = unsafe { bindings::ktime_get() };
        // SAFETY: xprt_lookup_rqst reads it for a request that was sent; this one is being sent.
        unsafe { (*rqst).rq_xtime = now };
        // SAFETY: set by xprt_request_init() and constant while the request is in use.
        let xid = u32::from_be_bytes(unsafe { (*rqst).rq_xid }.to_ne_bytes());
        // SAFETY: call_encode() has made the message. The request is pinned (xprt_pin_rqst()), so the message does
        // not change during the call.
        let call = unsafe { CallBuf::from_raw(&raw const (*rqst).rq_snd_buf) };
        // SAFETY: `rq_xprt` is alive: the task has a reference (`tk_xprt`). The helper takes `transport_lock`.
        let alone = || unsafe { bindings::rpcrdma_xprt_has_one_request(xprt) };
        match connection.call(xid, &call, alone) {
            Ok(()) => {
                // SAFETY: `rq_xmit_bytes_sent` is the sender's while the request is pinned (xprt_pin_rqst()).
                unsafe { (*rqst).rq_xmit_bytes_sent += (*rqst).rq_snd_buf.len as usize };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by svc_delete_xprt() and by the core's autoclose, with a transport of ours.
    unsafe extern "C" fn close_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: the core calls with a transport that is alive. xprt_disconnect_done() takes `transport_lock`
        // itself.
        unsafe { bindings::xprt_disconnect_done(xprt) };
    }

    /// # Safety
    ///
    /// Called by xprt_destroy_cb(), once, with a transport of ours that is not used any more.
    unsafe extern "C" fn destroy_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: made by `setup`, and not used any more, as the core promises.
        unsafe { class::free(xprt) };
    }

    /// # Safety
    ///
    /// Called by rpc_clnt_show_stats() with a transport of ours.
    unsafe extern "C" fn print_stats_callback(
        _xprt: *mut bindings::rpc_xprt,
        _seq: *mut bindings::seq_file,
    ) {
        // No mount has such a transport.
    }

    /// # Safety
    ///
    /// Called by xprt_inject_disconnect() with a transport of ours.
    unsafe extern "C" fn inject_disconnect_callback(_xprt: *mut bindings::rpc_xprt) {
        // The connection is the server's to break (svc_process).
    }
}

/// A Call to the client whose Reply is being handled. Dropped unfinished, it goes on waiting.
///
/// # Invariants
///
/// The request was pinned once for this object (`xprt_pin_rqst`).
pub(crate) struct PinnedCall(NonNull<bindings::rpc_rqst>);

// SAFETY: the C transports pass pinned requests between contexts, too. Changes through this are made under
// `queue_lock`, or in the receive buffer that the pin freezes.
unsafe impl Send for PinnedCall {}

impl SvcHandle {
    /// Finds the Call to the client that waits for a Reply with this XID, and pins it.
    ///
    /// Not to be called after the transport was detached: from then on there may be no backchannel.
    /// Context: process, does not sleep. Takes the queue lock.
    pub(crate) fn lookup(&self, xid: u32) -> Option<PinnedCall> {
        // SAFETY: alive by the type invariant; the helper loads `xpt_bc_xprt`, which is set once
        // and stays until the transport's last reference is given back, after it was detached.
        let rqst = unsafe { bindings::rpcrdma_svc_xprt_lookup_call(self.as_raw(), xid.to_be()) };
        // INVARIANT: pinned just now.
        NonNull::new(rqst).map(PinnedCall)
    }
}

impl PinnedCall {
    /// Copies the Reply to where the Call expects it and wakes its task; the client lets `credits`
    /// Calls be outstanding from now on. A Reply that is too long fails it.
    ///
    /// Context: process, does not sleep. Takes the transport lock and the queue lock.
    pub(crate) fn complete(self, reply: &[u8], credits: u32) {
        // SAFETY: xprt_wait_on_pinned_rqst() keeps the task from the buffers while the request is pinned. This is
        // the only handler of the Reply (xprt_lookup_rqst() finds a request once).
        let written = unsafe { ReplyBuf::new(self.0) }.write(0, reply);
        if written.is_err() {
            return self.fail(EIO);
        }
        // SAFETY: `rq_xprt` of a pinned request is alive. The helper takes `transport_lock`.
        unsafe { bindings::rpcrdma_xprt_set_window((*self.0.as_ptr()).rq_xprt, credits as usize) };
        let rqst = self.0.as_ptr();
        // The helper gives the pin back.
        core::mem::forget(self);
        // SAFETY: pinned once for this object, which is gone; the helper takes `queue_lock`. The length is
        // at most the length of the receive buffer, far below `i32::MAX`.
        unsafe { bindings::rpcrdma_xprt_complete_and_unpin(rqst, reply.len() as i32) };
    }

    /// Ends the Call without a usable Reply. Context: process, does not sleep. Takes the queue lock.
    pub(crate) fn fail(self, error: Error) {
        let rqst = self.0.as_ptr();
        // The helper gives the pin back.
        core::mem::forget(self);
        // SAFETY: pinned once for this object, which is gone; the helper takes `queue_lock`. Until it
        // gives the pin back, the task cannot end: xprt_request_dequeue_xprt() waits for that.
        unsafe { bindings::rpcrdma_xprt_fail_and_unpin(rqst, error.to_errno()) };
    }
}

impl Drop for PinnedCall {
    fn drop(&mut self) {
        // SAFETY: pinned once for this object; the helper takes `queue_lock`.
        unsafe { bindings::rpcrdma_xprt_unpin(self.0.as_ptr()) };
    }
}
