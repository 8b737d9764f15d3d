// SPDX-License-Identifier: GPL-2.0

//! Calls to a client on the connection that it made: the transport class `rdma backchannel`.
//!
//! The core's RPC client sends them, so there is a `struct rpc_xprt` beside the `svc_xprt`. It is
//! connected from the start, never connects again, and has nothing of its own: messages go by the
//! [`Connection`]. It lives as long as the `svc_xprt` at least, which keeps a reference
//! (`xpt_bc_xprt`), and may live longer; but nobody sends by it then, for whoever does (nfsd) has a
//! reference to the `svc_xprt`.

use super::{
    Connection,
    Instance,
    Part,
    Service,
    SvcHandle, //
};
use crate::bindings;
use crate::sunrpc::address;
use crate::sunrpc::xdr_buf::{
    CallBuf,
    ReplyBuf, //
};
use crate::support::errno;
use crate::support::module::{
    this_module,
    ModuleRef, //
};
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::error::{
    from_err_ptr,
    to_result, //
};
use kernel::ffi::{
    c_char,
    c_int, //
};
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Release, //
};
use kernel::types::Opaque;

/// How many Calls to a client may be outstanding.
pub(crate) const SLOTS: u32 = 2;

/// How long the core waits for a Reply, unless its user says otherwise, in jiffies.
const TIMEOUT: kernel::ffi::c_ulong = 60 * bindings::HZ as kernel::ffi::c_ulong;

/// `struct rpc_timeout`, constant.
struct Timeout(bindings::rpc_timeout);

// SAFETY: constant data without interior mutability.
unsafe impl Sync for Timeout {}

static DEFAULT_TIMEOUT: Timeout = Timeout(bindings::rpc_timeout {
    to_initval: TIMEOUT,
    to_maxval: TIMEOUT,
    to_increment: 0,
    to_retries: 0,
    to_exponential: 0,
});

/// `struct xprt_class` with an empty list of netids: nobody finds the class by name, but the core
/// looks through the list until it ends.
#[repr(C)]
struct Class {
    class: bindings::xprt_class,
    netid: [*const c_char; 1],
}

kernel::static_assert!(
    core::mem::offset_of!(Class, netid) == core::mem::offset_of!(bindings::xprt_class, netid)
);

/// The registration of the class; dropping it unregisters it.
///
/// Each transport holds a reference to the module, so none is left then.
pub(crate) struct Registration<T: Service> {
    class: Pin<KBox<Opaque<Class>>>,
    _p: PhantomData<T>,
}

// SAFETY: the class is only read, but for its list head, which the core protects by
// `xprt_list_lock`.
unsafe impl<T: Service> Send for Registration<T> {}
// SAFETY: a shared `Registration` gives out nothing; the core reads the class.
unsafe impl<T: Service> Sync for Registration<T> {}

/// The registered class, for `setup`, which the core calls without it; null when there is none.
static CLASS: Atomic<*mut bindings::xprt_class> = Atomic::new(core::ptr::null_mut());

impl<T: Service> Registration<T> {
    /// Registers the class.
    ///
    /// # Errors
    ///
    /// `EEXIST`: another module has registered it.
    pub(crate) fn new() -> Result<Self> {
        let mut class = bindings::xprt_class {
            ident: bindings::xprt_transports_XPRT_TRANSPORT_BC_RDMA,
            setup: Some(VTable::<T>::setup_callback),
            owner: this_module(),
            ..Default::default()
        };
        for (to, from) in class.name.iter_mut().zip(c"rdma backchannel".to_bytes()) {
            *to = *from as c_char;
        }
        let class = KBox::pin(
            Opaque::new(Class {
                class,
                netid: [c"".as_char_ptr()],
            }),
            GFP_KERNEL,
        )?;
        let raw: *mut bindings::xprt_class = class.get().cast();
        // SAFETY: the list head is part of pinned memory that lives until it is unregistered.
        unsafe { bindings::INIT_LIST_HEAD(&raw mut (*raw).list) };
        // Before the core knows the class, since it may call `setup` at once.
        CLASS.store(raw, Release);
        // SAFETY: the class is complete, and unregistered in drop before it goes.
        to_result(unsafe { bindings::xprt_register_transport(raw) })?;
        Ok(Self {
            class,
            _p: PhantomData,
        })
    }
}

impl<T: Service> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: registered in `new`. The core lets go of the class under `xprt_list_lock`.
        unsafe { bindings::xprt_unregister_transport(self.class.get().cast()) };
    }
}

/// A transport that is being made, undone unless everything succeeds.
struct Unfinished(NonNull<bindings::rpc_xprt>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // SAFETY: made by xprt_alloc(), known to nobody else, and connected to nothing yet.
        unsafe { free(self.0.as_ptr()) };
    }
}

/// Frees a transport.
///
/// # Safety
///
/// `xprt` must be from xprt_alloc(), and nobody may use it any more.
unsafe fn free(xprt: *mut bindings::rpc_xprt) {
    // SAFETY: the strings are those of `format_strings`, or null, and nobody reads them.
    unsafe { address::free_strings(xprt) };
    // SAFETY: promised by the caller.
    unsafe { bindings::xprt_free(xprt) };
}

/// Sets fields of a transport that nobody knows of yet.
macro_rules! set {
    ($raw:ident, $($field:ident: $value:expr,)*) => {
        $(
            let value = $value;
            // SAFETY: xprt_alloc has just allocated the transport, and nobody else knows of it.
            unsafe { (*$raw).$field = value };
        )*
    };
}

/// Makes the transport for Calls on a connection.
fn setup<T: Service>(args: &bindings::xprt_create) -> Result<NonNull<bindings::rpc_xprt>> {
    if args.addrlen > size_of::<bindings::__kernel_sockaddr_storage>() || args.bc_xprt.is_null() {
        return Err(EBADF);
    }
    // SAFETY: `dstaddr` points to an address of `addrlen` bytes (rpc_create).
    let family = unsafe { (*args.dstaddr).sa_family };
    let module = ModuleRef::get()?;
    let size = size_of::<bindings::rpc_xprt>();
    // SAFETY: `net` is valid during the call; the transport takes a reference of its own.
    let xprt = unsafe { bindings::xprt_alloc(args.net, size, SLOTS, SLOTS) };
    let xprt = NonNull::new(from_err_ptr(xprt)?).ok_or(ENOMEM)?;
    let unfinished = Unfinished(xprt);
    let raw = xprt.as_ptr();
    set! { raw,
        ops: VTable::<T>::get(),
        xprt_class: CLASS.load(Acquire),
        timeout: &raw const DEFAULT_TIMEOUT.0,
        bind_timeout: 0,
        reestablish_timeout: 0,
        idle_timeout: 0,
        prot: bindings::xprt_transports_XPRT_TRANSPORT_BC_RDMA,
        max_payload: crate::support::memory::PAGE_SIZE as usize,
        addrlen: args.addrlen,
        bc_xprt: args.bc_xprt,
    }
    // SAFETY: both have `addrlen` bytes, checked above, and do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(
            args.dstaddr.cast::<u8>(),
            (&raw mut (*raw).addr).cast::<u8>(),
            args.addrlen,
        )
    };
    // SAFETY: the address was copied, the strings are empty, and nobody else has the transport.
    unsafe { address::format_strings(raw, family) }?;
    // SAFETY: an atomic operation on `state` of the new transport.
    unsafe { bindings::xprt_set_bound(raw) };
    // SAFETY: an atomic operation on `state` of the new transport.
    unsafe { bindings::xprt_set_connected(raw) };
    core::mem::forget(unfinished);
    module.keep();
    // The `svc_xprt` has a reference from now on, which svc_xprt_free() gives back.
    // SAFETY: the caller of rpc_create() (nfsd) holds the `svc_xprt`, which has no such transport
    // yet, and makes one at a time.
    unsafe { bindings::svc_xprt_set_backchannel(args.bc_xprt, raw) };
    Ok(xprt)
}

/// The operations of the transport for Calls to clients of `T`.
struct VTable<T: Service>(PhantomData<T>);

impl<T: Service> VTable<T> {
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
    /// Called by xprt_create_transport() only: `args` and what it points to are valid during the
    /// call, and the core holds a reference to the class' owner.
    unsafe extern "C" fn setup_callback(
        args: *mut bindings::xprt_create,
    ) -> *mut bindings::rpc_xprt {
        // SAFETY: valid during the call, and changed by nobody (rpc_create has it on its stack).
        match setup::<T>(unsafe { &*args }) {
            Ok(xprt) => xprt.as_ptr(),
            Err(error) => error.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// Called by xprt_connect() with the send lock, for a transport of ours whose connection has
    /// ended, and on whose queue the task waits.
    unsafe extern "C" fn connect_callback(
        xprt: *mut bindings::rpc_xprt,
        _task: *mut bindings::rpc_task,
    ) {
        // Only the client can connect: whoever waits is told so.
        // SAFETY: an atomic operation on `state` of a transport that is alive during the call.
        unsafe { bindings::xprt_clear_connecting(xprt) };
        let error = errno::not_connected().to_errno();
        // SAFETY: alive during the call; takes the queue's own lock.
        unsafe { bindings::xprt_wake_pending_tasks(xprt, error) };
    }

    /// # Safety
    ///
    /// Called by call_allocate() only: `task` has a request, which is not encoded yet.
    unsafe extern "C" fn buf_alloc_callback(task: *mut bindings::rpc_task) -> c_int {
        // SAFETY: the task has its request for itself, until it is queued.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: set by call_allocate() before.
        let (call, reply) = unsafe { ((*rqst).rq_callsize, (*rqst).rq_rcvsize) };
        // SAFETY: allocates only; the flags are those of the task that runs.
        let buffer = unsafe { bindings::rpc_kzalloc(call + reply) };
        if buffer.is_null() {
            return ENOMEM.to_errno();
        }
        // SAFETY: the task has its request for itself, until it is queued.
        unsafe { (*rqst).rq_buffer = buffer };
        // SAFETY: the task has its request for itself, until it is queued.
        unsafe { (*rqst).rq_rbuffer = buffer.wrapping_byte_add(call) };
        0
    }

    /// # Safety
    ///
    /// Called by xprt_release() only: the request of `task` is on no queue, and not pinned.
    unsafe extern "C" fn buf_free_callback(task: *mut bindings::rpc_task) {
        // SAFETY: the task has its request until xprt_release() ends.
        let buffer = unsafe { (*(*task).tk_rqstp).rq_buffer };
        // SAFETY: allocated by `buf_alloc_callback`, and nobody uses it any more.
        unsafe { bindings::kfree(buffer) };
    }

    /// # Safety
    ///
    /// Called by xprt_request_transmit() only: `rqst` is encoded and pinned, and its transport,
    /// one of ours, is locked.
    unsafe extern "C" fn send_request_callback(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: a request's transport is alive.
        let xprt = unsafe { (*rqst).rq_xprt };
        // SAFETY: takes the transport lock itself; the request is pinned.
        if !unsafe { bindings::xprt_request_get_cong(xprt, rqst) } {
            return errno::no_slot().to_errno();
        }
        // SAFETY: set by `setup` and constant. Whoever sends holds the `svc_xprt`.
        let svc = unsafe { (*xprt).bc_xprt };
        // SAFETY: a server transport of `T`, which has called us.
        let part = unsafe { Instance::<T>::part(svc) };
        let Some(Part::Connection(connection)) = part else {
            return errno::not_connected().to_errno();
        };
        // SAFETY: reads the clock, in any context (kernel/time/timekeeping.c).
        let now = unsafe { bindings::ktime_get() };
        // SAFETY: xprt_lookup_rqst reads it for a request that was sent; this one is being sent.
        unsafe { (*rqst).rq_xtime = now };
        // SAFETY: set by xprt_request_init() and constant while the request is in use.
        let xid = u32::from_be_bytes(unsafe { (*rqst).rq_xid }.to_ne_bytes());
        // SAFETY: encoded and pinned: nobody changes the message during the call.
        let call = unsafe { CallBuf::from_raw(&raw const (*rqst).rq_snd_buf) };
        match connection.call(xid, &call) {
            Ok(()) => {
                // SAFETY: the request stays with its sender while it is pinned.
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
        // SAFETY: alive during the call; takes the transport lock itself.
        unsafe { bindings::xprt_disconnect_done(xprt) };
    }

    /// # Safety
    ///
    /// Called by xprt_destroy_cb(), once, with a transport of ours that nobody uses any more.
    unsafe extern "C" fn destroy_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: promised by the core.
        unsafe { free(xprt) };
        // SAFETY: `setup` kept a reference for this transport.
        drop(unsafe { ModuleRef::kept() });
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

// SAFETY: the C transports hand pinned requests between contexts, too; what is changed through
// this is changed under `queue_lock`, or is the receive buffer that the pin freezes.
unsafe impl Send for PinnedCall {}

impl SvcHandle {
    /// Finds the Call to the client that waits for a Reply with this XID, and pins it.
    ///
    /// Not to be called after the transport was detached: from then on there may be no
    /// backchannel. Context: process; takes the queue lock.
    pub(crate) fn lookup(&self, xid: u32) -> Option<PinnedCall> {
        // SAFETY: alive by the type invariant; the helper loads `xpt_bc_xprt`, which is set once
        // and stays until the transport's last reference is given back, after it was detached.
        let rqst = unsafe { bindings::svc_xprt_lookup_call(self.as_raw(), xid.to_be()) };
        // INVARIANT: pinned just now.
        NonNull::new(rqst).map(PinnedCall)
    }
}

impl PinnedCall {
    /// Copies the Reply to where the Call expects it and wakes its task; the client lets `credits`
    /// Calls be outstanding from now on. A Reply that is too long fails it.
    ///
    /// Context: process; takes the transport lock and the queue lock.
    pub(crate) fn complete(self, reply: &[u8], credits: u32) {
        // SAFETY: the request is pinned, so the task leaves its buffers alone, and this is its
        // only handler.
        let written = unsafe { ReplyBuf::new(self.0) }.write(0, reply);
        if written.is_err() {
            return self.fail(EIO);
        }
        // SAFETY: a pinned request's transport is alive; the helper takes the transport lock.
        unsafe { bindings::xprt_set_window((*self.0.as_ptr()).rq_xprt, credits as usize) };
        self.finish(reply.len());
    }

    /// There will be no usable Reply. Context: process; takes the queue lock.
    pub(crate) fn fail(self, error: Error) {
        // SAFETY: while the request is pinned and waits for its reply the task is asleep, or
        // about to sleep, and tk_status is the transport's to set (net/sunrpc/xprt.c).
        unsafe { (*(*self.0.as_ptr()).rq_task).tk_status = error.to_errno() };
        self.finish(0);
    }

    fn finish(self, len: usize) {
        let rqst = self.0.as_ptr();
        // The helper gives the pin back.
        core::mem::forget(self);
        // SAFETY: pinned once for this object, which is gone; the helper takes `queue_lock`. The
        // length is at most that of the receive buffer, far below `i32::MAX`.
        unsafe { bindings::xprt_complete_and_unpin(rqst, len as i32) };
    }
}

impl Drop for PinnedCall {
    fn drop(&mut self) {
        // SAFETY: pinned once for this object; the helper takes `queue_lock`.
        unsafe { bindings::xprt_unpin(self.0.as_ptr()) };
    }
}
