// SPDX-License-Identifier: GPL-2.0

//! The operations of a transport, `struct rpc_xprt_ops`.

use super::backchannel::Backchannel;
use super::class::ModuleRef;
use super::rqst::Rqst;
use super::xdr_buf::XdrBuf;
use super::xprt::{
    Shared,
    Xprt,
    XprtBox,
    XprtHandle, //
};
use super::{
    address,
    backchannel,
    connect, //
};
use crate::bindings;
use crate::support::errno;
use crate::support::net::SockAddr;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::ffi::{
    c_char,
    c_int,
    c_ushort, //
};
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::sync::Arc;

/// A transport: what is left to do when the core's rules are kept for it.
///
/// "Send lock" is the core's `XPRT_LOCKED`: it serialises connect, disconnect and send.
pub(crate) trait Transport: Send + Sync + Sized + 'static {
    /// What the transport keeps for each request.
    type Slot: Send + Sync;

    /// The most octets of payload in one RPC.
    const MAX_PAYLOAD: usize;

    /// How many requests a new transport can have in flight.
    fn slot_count() -> u32;

    /// A new transport, not connected; `xprt` is for its handlers. Context: process, may sleep.
    fn create(xprt: XprtHandle<Self>) -> Result<Arc<Self>>;

    /// The transport's part of a new request slot.
    fn new_slot() -> impl PinInit<Self::Slot, Error>;

    /// Connects. Context: process, may sleep; send lock held; no file system reclaim.
    fn connect(&self, xprt: &Xprt) -> Result;

    /// Whether the last attempt to connect failed.
    fn last_connect_failed(&self) -> bool;

    /// Tears the connection down, if there is one. Afterwards nothing of it refers to any of
    /// `slots`. Context: process, may sleep; send lock held.
    fn disconnect<'a>(&self, xprt: &Xprt, slots: impl Iterator<Item = &'a Self::Slot>);

    /// Sends a request, for which a credit is taken already.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`: the connection is unusable; it is closed and the request sent again.
    /// `EAGAIN` after [`Xprt::wait_for_buffer_space`], `ENOBUFS`: later.
    /// Others end the RPC.
    ///
    /// Context: process; send lock held.
    fn send(&self, rqst: &Rqst<Self::Slot>) -> Result;

    /// The transport's backchannel.
    fn backchannel(&self) -> &Backchannel;

    /// The most octets of a Call of the server, or of its Reply, now.
    fn max_callback(&self) -> usize;

    /// Sends the Reply to a Call of the server. Errors and context as for [`Self::send`].
    fn send_reply(&self, xid: u32, reply: &XdrBuf<'_>) -> Result;

    /// The memory of a request goes back to its owner: nothing of it may be registered any
    /// more when this returns. Context: process, may sleep; send lock not held.
    fn release(&self, rqst: &Rqst<Self::Slot>);

    /// The buffers of a request had to grow by so many bytes.
    fn buffers_grew(&self, bytes: usize);

    /// This side's address of the connection, if there is one. Context: process; no lock held.
    fn source_address(&self) -> Option<SockAddr>;

    /// Breaks the connection, for the fault injection of sunrpc. Context: send lock held.
    fn inject_disconnect(&self);

    /// Prints the `xprt:` line of /proc/self/mountstats. Context: process.
    fn print_stats(&self, xprt: &Xprt, seq: &SeqFile);
}

/// The operations of `T` as the core calls them.
pub(super) struct VTable<T: Transport>(PhantomData<T>);

/// Closes the connection and takes back all credits, those of requests in flight included.
///
/// The send lock must be held.
pub(super) fn disconnect<T: Transport>(this: &XprtBox<T>) {
    let shared = this.shared();
    shared
        .transport
        .disconnect(&this.xprt, shared.slots.iter().map(|slot| slot.data()));
    this.xprt.with_transport_lock(|xprt| {
        for slot in shared.slots.iter() {
            // SAFETY: `rq_cong` and `cong` change together, with the transport lock held.
            unsafe { (*slot.rqst()).rq_cong = 0 };
        }
        // SAFETY: as above.
        unsafe { (*xprt).cong = 0 };
    });
}

/// Closes the connection and tells the core.
///
/// The send lock must be held.
fn close<T: Transport>(this: &XprtBox<T>) {
    disconnect(this);
    let raw = this.xprt.as_raw();
    // SAFETY: these are changed with the send lock only.
    let fields = unsafe { &mut *raw };
    fields.connect_cookie = fields.connect_cookie.wrapping_add(1);
    // SAFETY: the transport is valid.
    unsafe { bindings::xprt_disconnect_done(raw) };
}

fn send<T: Transport>(this: &XprtBox<T>, rqst: &Rqst<T::Slot>) -> Result {
    let xprt = this.xprt.as_raw();
    let raw = rqst.as_raw();
    // SAFETY: these are read with the send lock held, under which they change.
    let (sent_on, connection) = unsafe { ((*raw).rq_connect_cookie, (*xprt).connect_cookie) };
    // A request is sent once on a connection: sending it again would take a second credit, and
    // its memory is registered for the first.
    if !this.xprt.connected() || sent_on == connection {
        return Err(errno::not_connected());
    }
    // SAFETY: the send lock is held.
    if !unsafe { bindings::xprt_request_get_cong(xprt, raw) } {
        return Err(errno::no_slot());
    }
    // SAFETY: has no preconditions.
    unsafe { (*raw).rq_xtime = bindings::ktime_get() };
    this.shared().transport.send(rqst)?;
    // SAFETY: the request stays with its sender while the send lock is held.
    unsafe { (*raw).rq_xmit_bytes_sent += (*raw).rq_snd_buf.len as usize };
    // SAFETY: as above.
    if !unsafe { bindings::rpc_reply_expected((*raw).rq_task) } {
        // Nothing will give the credit back but a new connection.
        return Err(errno::not_connected());
    }
    Ok(())
}

impl<T: Transport> VTable<T> {
    const OPS: bindings::rpc_xprt_ops = bindings::rpc_xprt_ops {
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(Self::alloc_slot_callback),
        free_slot: Some(Self::free_slot_callback),
        release_request: Some(bindings::xprt_release_rqst_cong),
        wait_for_reply_request: Some(bindings::xprt_wait_for_reply_request_def),
        timer: Some(Self::timer_callback),
        rpcbind: Some(bindings::rpcb_getport_async),
        set_port: Some(Self::set_port_callback),
        connect: Some(connect::connect_callback::<T>),
        set_connect_timeout: Some(connect::set_connect_timeout_callback::<T>),
        buf_alloc: Some(Self::buf_alloc_callback),
        buf_free: Some(Self::buf_free_callback),
        send_request: Some(Self::send_request_callback),
        close: Some(Self::close_callback),
        destroy: Some(Self::destroy_callback),
        get_srcaddr: Some(Self::get_srcaddr_callback),
        get_srcport: Some(Self::get_srcport_callback),
        print_stats: Some(Self::print_stats_callback),
        enable_swap: Some(Self::enable_swap_callback),
        disable_swap: Some(Self::disable_swap_callback),
        inject_disconnect: Some(Self::inject_disconnect_callback),
        bc_setup: Some(backchannel::Ops::<T>::setup_callback),
        bc_maxpayload: Some(backchannel::Ops::<T>::maxpayload_callback),
        bc_num_slots: Some(backchannel::Ops::<T>::num_slots_callback),
        bc_free_rqst: Some(backchannel::Ops::<T>::free_rqst_callback),
        bc_destroy: Some(backchannel::Ops::<T>::destroy_callback),
        set_buffer_size: None,
        prepare_request: None,
        abort_send_request: None,
    };

    /// The operations, in memory that lives as long as the module.
    pub(super) fn get() -> *const bindings::rpc_xprt_ops {
        &Self::OPS
    }

    /// # Safety
    ///
    /// `xprt` must be a transport that `setup` made for `T` and `destroy` has not ended.
    unsafe fn this<'a>(xprt: *mut bindings::rpc_xprt) -> &'a XprtBox<T> {
        // SAFETY: promised by the caller.
        unsafe { XprtBox::<T>::from_xprt(xprt) }
    }

    /// # Safety
    ///
    /// Called by xprt_reserve only: `xprt` is a transport of ours and `task` has no slot.
    unsafe extern "C" fn alloc_slot_callback(
        xprt: *mut bindings::rpc_xprt,
        task: *mut bindings::rpc_task,
    ) {
        // SAFETY: the core calls with a transport of ours.
        let slots = &unsafe { Self::this(xprt) }.shared().slots;
        // SAFETY: `task` is ours to change during the call.
        let fields = unsafe { &mut *task };
        if let Some(rqst) = slots.take() {
            fields.tk_rqstp = rqst.as_ptr();
            fields.tk_status = 0;
            return;
        }
        fields.tk_status = EAGAIN.to_errno();
        // SAFETY: `task` is not on a queue.
        unsafe { bindings::xprt_add_backlog_noncongested(xprt, task) };
        // A slot that came free before the task joined the backlog woke nobody: look again.
        // SAFETY: promised by the caller.
        Self::serve_backlog(unsafe { Self::this(xprt) });
    }

    /// Gives free slots to waiting tasks as long as there are both.
    ///
    /// A slot must be back in the table before the queue is looked at, and a task in the queue
    /// before it looks at the table: the table's lock orders the two, so that one of them sees
    /// the other, and no task sleeps beside a free slot.
    fn serve_backlog(this: &XprtBox<T>) {
        let slots = &this.shared().slots;
        while this.xprt.has_backlog() {
            let Some(rqst) = slots.take() else { return };
            // SAFETY: the transport is alive, and the slot ours and unused; a waiter gets it
            // zeroed (__xprt_set_rq).
            if !unsafe { bindings::xprt_wake_up_backlog(this.xprt.as_raw(), rqst.as_ptr()) } {
                // The waiter was killed meanwhile; another may have come.
                // SAFETY: taken above, and given to nobody.
                unsafe { slots.put(rqst) };
            }
        }
    }

    /// # Safety
    ///
    /// Called by xprt_release only: `xprt` is a transport of ours and `rqst` has no user any more.
    unsafe extern "C" fn free_slot_callback(
        xprt: *mut bindings::rpc_xprt,
        rqst: *mut bindings::rpc_rqst,
    ) {
        // SAFETY: promised by the caller.
        let this = unsafe { Self::this(xprt) };
        if let Some(rqst) = NonNull::new(rqst) {
            // SAFETY: the slot is the task's, which gives it up.
            unsafe { this.shared().slots.put(rqst) };
            Self::serve_backlog(this);
        }
    }

    /// The reply to a request is overdue. A reliable connection does not lose messages, so it
    /// is dead or its peer is: give it up, and send everything again on the next.
    ///
    /// When a server stalls, many requests expire together, and this runs for each when its task
    /// does; by then there may be a new connection, which has done nothing wrong.
    ///
    /// # Safety
    ///
    /// Called by xprt_timer only, in the context of `task`, which waits for the reply to a
    /// request that was sent on `xprt`.
    unsafe extern "C" fn timer_callback(
        xprt: *mut bindings::rpc_xprt,
        task: *mut bindings::rpc_task,
    ) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        // SAFETY: the task keeps its request until xprt_release, and the sender wrote the cookie
        // before it took the request off the transmit queue (xprt_request_transmit).
        let sent_on = unsafe { (*(*task).tk_rqstp).rq_connect_cookie };
        if this.xprt.connection() == sent_on {
            this.xprt.force_disconnect();
        }
    }

    /// # Safety
    ///
    /// Called by rpcbind only, while the transport is being bound.
    unsafe extern "C" fn set_port_callback(xprt: *mut bindings::rpc_xprt, port: c_ushort) {
        // SAFETY: the binding task is the only one to change address and strings.
        unsafe { address::set_port(xprt, port) };
    }

    /// # Safety
    ///
    /// Called by call_allocate only.
    unsafe extern "C" fn buf_alloc_callback(task: *mut bindings::rpc_task) -> c_int {
        kernel::error::from_result(|| {
            // SAFETY: the task has a slot of ours.
            let (xprt, rqst) = unsafe { ((*task).tk_xprt, (*task).tk_rqstp) };
            let rqst = NonNull::new(rqst).ok_or(EIO)?;
            // SAFETY: as above.
            let slot = unsafe { super::slot::Slot::<T::Slot>::from_rqst(rqst) };
            // SAFETY: the task owns the slot and has not encoded the request.
            let grown = unsafe { slot.provide_buffers() }.map_err(|_| ENOMEM)?;
            if grown != 0 {
                // SAFETY: the transport is ours.
                let this = unsafe { Self::this(xprt) };
                this.shared().transport.buffers_grew(grown);
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by xprt_release only.
    unsafe extern "C" fn buf_free_callback(task: *mut bindings::rpc_task) {
        // SAFETY: the task has a slot of ours.
        let raw = unsafe { (*task).tk_rqstp };
        let Some(raw) = NonNull::new(raw) else { return };
        // SAFETY: the request belongs to the task until free_slot.
        let rqst = unsafe { Rqst::<T::Slot>::from_raw(raw) };
        // SAFETY: the request's transport is ours.
        let this = unsafe { Self::this((*raw.as_ptr()).rq_xprt) };
        this.shared().transport.release(&rqst);
    }

    /// # Safety
    ///
    /// Called by xprt_request_transmit only, with the send lock held.
    unsafe extern "C" fn send_request_callback(raw: *mut bindings::rpc_rqst) -> c_int {
        let Some(raw) = NonNull::new(raw) else {
            return EIO.to_errno();
        };
        // SAFETY: the request's transport is ours.
        let this = unsafe { Self::this((*raw.as_ptr()).rq_xprt) };
        // SAFETY: the core pins the request during the call.
        let result = if unsafe { (*raw.as_ptr()).rq_buffer.is_null() } {
            // Only the Reply to a Call of the server has no buffer of ours.
            // SAFETY: so it is one that the backchannel handed to the core.
            unsafe { backchannel::Ops::<T>::send_reply(this, raw) }
        } else {
            // SAFETY: a request of the client is in a slot; the core pins it.
            send(this, &unsafe { Rqst::<T::Slot>::from_raw(raw) })
        };
        match result {
            Ok(()) => 0,
            Err(error) => {
                if error == errno::not_connected() {
                    close(this);
                }
                error.to_errno()
            }
        }
    }

    /// # Safety
    ///
    /// Called by the core only, with the send lock held.
    unsafe extern "C" fn close_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: the core calls with a transport of ours.
        close(unsafe { Self::this(xprt) });
    }

    /// # Safety
    ///
    /// Called by xprt_destroy_cb only: nobody uses the transport any more.
    unsafe extern "C" fn destroy_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        connect::cancel(this);
        disconnect(this);
        let shared: *mut Shared<T> = this.shared;
        // SAFETY: made by `setup` with `KBox::into_raw`; released only here.
        drop(unsafe { KBox::from_raw(shared) });
        // SAFETY: the transport is on its way out.
        unsafe { address::free_strings(xprt) };
        // SAFETY: the core leaves it to us to free the transport.
        unsafe { bindings::xprt_free(xprt) };
        // SAFETY: `setup` kept a reference for this transport.
        drop(unsafe { ModuleRef::kept() });
    }

    /// Writes the source address as text; returns its length.
    ///
    /// # Safety
    ///
    /// Called by rpc_sysfs_xprt_srcaddr_show and xprt_info_show only, which hold a reference to
    /// the transport and pass a buffer of `buflen` bytes.
    unsafe extern "C" fn get_srcaddr_callback(
        xprt: *mut bindings::rpc_xprt,
        buf: *mut c_char,
        buflen: usize,
    ) -> c_int {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        kernel::error::from_result(|| {
            let source = this.shared().transport.source_address();
            let source = source.ok_or_else(errno::not_connected)?;
            // SAFETY: rpc_ntop (net/sunrpc/addr.c) reads the address, of a family that it
            // checks, and writes at most `buflen` bytes, which the caller provides.
            let len = unsafe { bindings::rpc_ntop(source.as_ptr().cast(), buf, buflen) };
            Ok(c_int::try_from(len)?)
        })
    }

    /// # Safety
    ///
    /// Called by rpc_sysfs_xprt_info_show only, which holds a reference to the transport.
    unsafe extern "C" fn get_srcport_callback(xprt: *mut bindings::rpc_xprt) -> c_ushort {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        let Some(source) = this.shared().transport.source_address() else {
            return 0;
        };
        // SAFETY: rpc_get_port (include/linux/sunrpc/addr.h) reads an address whose family it
        // checks.
        unsafe { bindings::rpc_get_port(source.as_ptr().cast()) }
    }

    /// # Safety
    ///
    /// Called by rpc_clnt_show_stats only.
    unsafe extern "C" fn print_stats_callback(
        xprt: *mut bindings::rpc_xprt,
        seq: *mut bindings::seq_file,
    ) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        // SAFETY: valid for the duration of the call.
        let seq = unsafe { SeqFile::from_raw(seq) };
        this.shared().transport.print_stats(&this.xprt, seq);
    }

    /// Nothing is prepared for swap; like the kernel's transport, it is not refused either.
    extern "C" fn enable_swap_callback(_xprt: *mut bindings::rpc_xprt) -> c_int {
        0
    }

    extern "C" fn disable_swap_callback(_xprt: *mut bindings::rpc_xprt) {}

    /// # Safety
    ///
    /// Called by the fault injection only, with the send lock held.
    unsafe extern "C" fn inject_disconnect_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: the core calls with a transport of ours.
        unsafe { Self::this(xprt) }
            .shared()
            .transport
            .inject_disconnect();
    }
}
