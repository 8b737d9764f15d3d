// SPDX-License-Identifier: GPL-2.0

//! The operations of a transport, `struct rpc_xprt_ops`.
//!
//! The documentation of each callback has the guarantees of the core for the call (`net/sunrpc/xprt.c`,
//! unless another file is named). The callbacks are only called for transports that `setup` made.

use super::{
    backchannel, connect,
    instance::Instance,
    now, privacy,
    rqst::Rqst,
    send_lock::SendLock,
    slot::Slot,
    transport::{
        Transport,
        XprtSendError, //
    },
};
use crate::{
    bindings,
    sunrpc::address,
    support::{
        errno,
        memalloc::NoWaitScope,
        racy::full_barrier, //
    },
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    ffi::{
        c_char,
        c_int,
        c_ushort, //
    },
    prelude::*,
    seq_file::SeqFile,
    sync::atomic::Relaxed, //
};

/// The operations of `T` as the core calls them.
pub(super) struct XprtVTable<T: Transport>(PhantomData<T>);

impl<T: Transport> XprtVTable<T> {
    const OPS: bindings::rpc_xprt_ops = bindings::rpc_xprt_ops {
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(Self::alloc_slot_callback),
        free_slot: Some(Self::free_slot_callback),
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
        release_request: None,
        abort_send_request: None,
    };

    /// Returns the operations, in memory that lives as long as the module.
    pub(super) fn get() -> *const bindings::rpc_xprt_ops {
        &Self::OPS
    }

    /// # Safety
    ///
    /// `xprt` must be a transport that `setup` made for `T` and `destroy` has not ended.
    #[inline]
    unsafe fn this<'a>(xprt: *mut bindings::rpc_xprt) -> &'a Instance<T> {
        // SAFETY: the caller promises a transport that was set up for `T` and not destroyed.
        unsafe { Instance::<T>::from_raw(xprt) }
    }

    /// # Safety
    ///
    /// Called by xprt_do_reserve only, in the context of `task`, which has no request.
    unsafe extern "C" fn alloc_slot_callback(
        xprt: *mut bindings::rpc_xprt,
        task: *mut bindings::rpc_task,
    ) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        if let Some(rqst) = this.shared().slots.take() {
            // SAFETY: only the task itself, which runs, changes `tk_rqstp`.
            unsafe { (*task).tk_rqstp = rqst.as_ptr() };
            // SAFETY: only the task itself, which runs, changes `tk_status`.
            unsafe { (*task).tk_status = 0 };
        } else {
            // SAFETY: `task` runs this and has no request.
            unsafe { Self::wait_for_slot(this, task) };
        }
    }

    /// Puts a task to sleep until there is a slot for it.
    ///
    /// # Safety
    ///
    /// As for [`Self::alloc_slot_callback`].
    #[cold]
    unsafe fn wait_for_slot(this: &Instance<T>, task: *mut bindings::rpc_task) {
        // SAFETY: only the task itself, which runs, changes `tk_status`.
        unsafe { (*task).tk_status = EAGAIN.to_errno() };
        // SAFETY: `task` runs, so it is on no queue yet.
        unsafe { bindings::xprt_add_backlog_noncongested(this.xprt.as_raw(), task) };
        // A slot that came free before the task was on the queue woke no task: look again. Pairs
        // with the barrier of `SlotTable::put`.
        full_barrier();
        Self::serve_backlog(this);
    }

    /// Gives free slots to waiting tasks as long as there are both.
    ///
    /// A slot must be back in the table before the queue is looked at, and a task in the queue
    /// before it looks at the table, so that one of the two sees the other, and no task sleeps
    /// beside a free slot.
    #[inline]
    fn serve_backlog(this: &Instance<T>) {
        while this.xprt.has_backlog() {
            let Some(rqst) = this.shared().slots.take() else {
                return;
            };
            // SAFETY: xprt_wake_up_backlog() takes the lock of the queue. The slot is ours and unused; the waiter
            // gets it zeroed (__xprt_set_rq()).
            if !unsafe { bindings::xprt_wake_up_backlog(this.xprt.as_raw(), rqst.as_ptr()) } {
                // The waiter was killed meanwhile; another may have come.
                // SAFETY: contract of `put`: the slot was taken above, and xprt_wake_up_backlog() did not pass it
                // on.
                unsafe { this.shared().slots.put(rqst) };
            }
        }
    }

    /// # Safety
    ///
    /// Called by xprt_release only: `rqst` has no user any more.
    unsafe extern "C" fn free_slot_callback(
        xprt: *mut bindings::rpc_xprt,
        rqst: *mut bindings::rpc_rqst,
    ) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        if let Some(rqst) = NonNull::new(rqst) {
            // SAFETY: contract of `put`: the slot was the task's, which gives it up (xprt_release()).
            unsafe { this.shared().slots.put(rqst) };
            Self::serve_backlog(this);
        }
    }

    /// Gives up a connection on which the Reply to a request is overdue. A reliable connection does not lose
    /// messages, so the connection or its peer is dead. The core sends all requests again on the next
    /// connection.
    ///
    /// When a server stalls, many requests expire together, and this runs for each when its task
    /// does; by then there may be a new connection, which has done nothing wrong.
    ///
    /// # Safety
    ///
    /// Called by xprt_timer only, in the context of `task`, which waits for the reply to a
    /// request that was sent on `xprt`.
    //= NFS-059
    unsafe extern "C" fn timer_callback(
        xprt: *mut bindings::rpc_xprt,
        task: *mut bindings::rpc_task,
    ) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        // SAFETY: the task keeps its request until xprt_release, and the sender wrote the cookie
        // before it took the request off the transmit queue (xprt_request_transmit).
        let sent_on = unsafe { (*(*task).tk_rqstp).rq_connect_cookie };
        let is_overdue = || this.xprt.connection() == sent_on;
        this.shared().transport.overdue(is_overdue);
    }

    /// # Safety
    ///
    /// Called by rpcb_getport_async and its rpcb_getport_done only (`net/sunrpc/rpcb_clnt.c`),
    /// for one task at a time (xprt_test_and_set_binding).
    unsafe extern "C" fn set_port_callback(xprt: *mut bindings::rpc_xprt, port: c_ushort) {
        // SAFETY: XPRT_BINDING makes the binding task the only writer of `addr` and `address_strings`.
        unsafe { address::set_port(xprt, port) };
    }

    /// # Safety
    ///
    /// Called by call_allocate only (`net/sunrpc/clnt.c`): `task` has a request in a slot of ours,
    /// which is not encoded yet.
    unsafe extern "C" fn buf_alloc_callback(task: *mut bindings::rpc_task) -> c_int {
        // SAFETY: `tk_rqstp` is the task's own (call_allocate()).
        let Some(rqst) = NonNull::new(unsafe { (*task).tk_rqstp }) else {
            return EIO.to_errno();
        };
        // SAFETY: `tk_rqstp` came from `alloc_slot`, so it is in a slot of ours.
        let slot = unsafe { Slot::<T::Request>::from_rqst(rqst) };
        // SAFETY: `tk_xprt` is the transport of the request, which is one of ours.
        let this = unsafe { Self::this((*task).tk_xprt) };
        // SAFETY: call_allocate() runs before call_encode(), in the task that owns the slot.
        match unsafe { slot.provide_buffers(&this.xprt) } {
            Ok(0) => 0,
            Ok(grown) => {
                this.shared().transport.buffers_grew(grown);
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by xprt_release only: the request of `task` is on no queue, and not pinned.
    unsafe extern "C" fn buf_free_callback(task: *mut bindings::rpc_task) {
        // SAFETY: the task has its request until xprt_release ends.
        let raw = unsafe { (*task).tk_rqstp };
        let Some(raw) = NonNull::new(raw) else { return };
        // SAFETY: a request with a buffer is in a slot of ours, and the task's until free_slot.
        let rqst = unsafe { Rqst::<T::Request>::from_raw(raw) };
        // SAFETY: `rq_xprt` is alive: the task has a reference (`tk_xprt`). It is one of ours.
        let this = unsafe { Self::this((*raw.as_ptr()).rq_xprt) };
        this.shared().transport.release(&rqst);
    }

    /// # Safety
    ///
    /// Called by xprt_request_transmit only, with the send lock held and the request pinned.
    unsafe extern "C" fn send_request_callback(raw: *mut bindings::rpc_rqst) -> c_int {
        let Some(raw) = NonNull::new(raw) else {
            return EIO.to_errno();
        };
        // SAFETY: `rq_xprt` is alive: the task has a reference (`tk_xprt`). It is one of ours.
        let this = unsafe { Self::this((*raw.as_ptr()).rq_xprt) };
        // SAFETY: the caller holds the send lock, and so do we until we return.
        let mut lock = unsafe { SendLock::new(&this.xprt) };
        // Memory may be short until this very RPC, or one behind it, has written some out.
        let no_wait = NoWaitScope::enter();
        // SAFETY: call_allocate has set the field before the request was queued.
        let result = if unsafe { (*raw.as_ptr()).rq_buffer.is_null() } {
            // Only the Reply to a Call of the server has no buffer of ours.
            if !this.xprt.connected() {
                // The next connection, which may be ready to be installed, has not seen the Call.
                return errno::not_connected().to_errno();
            }
            // SAFETY: so it is one that the backchannel handed to the core, which pins it.
            unsafe { backchannel::Ops::<T>::send_reply(this, &mut lock, raw) }
        } else {
            // SAFETY: a request of the client is in a slot; the core pins it.
            let rqst = unsafe { Rqst::<T::Request>::from_raw(raw) };
            if !this.xprt.connected() || !Self::is_unsent(this, &rqst) {
                Err(XprtSendError::NotConnected)
            } else if this.xprt.waits_for_credit() {
                Err(XprtSendError::NoCredit)
            } else {
                Self::send(this, &mut lock, &rqst)
            }
        };
        drop(no_wait);
        match result {
            Ok(()) => 0,
            // SAFETY: the core pins the request.
            Err(error) => unsafe { Self::not_sent(this, &mut lock, raw, error) },
        }
    }

    /// Returns whether a request has not been sent on this connection. It is sent once on each connection: a
    /// second Send would take a second credit, and its memory is registered for the first Send.
    #[inline]
    fn is_unsent(this: &Instance<T>, rqst: &Rqst<T::Request>) -> bool {
        // SAFETY: written with the send lock only, which the caller holds.
        let sent_on = unsafe { (*rqst.as_raw()).rq_connect_cookie };
        sent_on != this.xprt.connection()
    }

    /// Sends a request, whose buffers are complete. Context: process, may sleep. The send lock is
    /// held.
    ///
    /// # Errors
    ///
    /// [`XprtSendError`]: the Call was not sent. [`XprtSendError::NotConnected`] also if no Reply is
    /// expected.
    #[inline]
    fn send(
        this: &Instance<T>,
        lock: &mut SendLock<'_>,
        rqst: &Rqst<T::Request>,
    ) -> Result<(), XprtSendError> {
        let raw = rqst.as_raw();
        if rqst.receive().is_sparse() {
            rqst.fill_sparse_pages()?;
        }
        if privacy::has_own_pages(rqst) {
            privacy::guard::<T>(rqst);
        }
        // SAFETY: reads the clock, in any context (kernel/time/timekeeping.c).
        let now = unsafe { bindings::ktime_get() };
        // SAFETY: xprt_lookup_rqst reads it for a request that was sent; this one is being sent.
        unsafe { (*raw).rq_xtime = now };
        // SAFETY: the core pins the request that is being sent (xprt_transmit()).
        unsafe { Self::allow_time(raw) };
        this.shared().transport.send(lock, rqst)?;
        // SAFETY: `rq_xmit_bytes_sent` is the sender's while the request is pinned (xprt_pin_rqst()).
        unsafe { (*raw).rq_xmit_bytes_sent += (*raw).rq_snd_buf.len as usize };
        if !rqst.expects_reply() {
            // Nothing will give the credit back but a new connection.
            return Err(XprtSendError::NotConnected);
        }
        Ok(())
    }

    /// Allows a request that is being sent a whole time-out for its Reply. The major time-out began with the task. If
    /// the request has waited for a credit for that time, it would end a connection that works.
    ///
    /// # Safety
    ///
    /// `raw` must be the request that is being sent, and pinned.
    #[inline]
    unsafe fn allow_time(raw: *mut bindings::rpc_rqst) {
        // SAFETY: the caller's request is valid.
        let (timeout, end) =
            unsafe { (&raw const (*raw).rq_timeout, &raw mut (*raw).rq_majortimeo) };
        // SAFETY: a word of the caller's request. Its task may be awake and change it (xprt_adjust_timeout()): either
        // value is a time-out of the request.
        let least = now().wrapping_add(unsafe { timeout.read_volatile() });
        // SAFETY: a word of the caller's request, which xprt_adjust_timeout() may change, too.
        let present = unsafe { end.read_volatile() };
        if (least.wrapping_sub(present) as isize) > 0 {
            // SAFETY: a word of the caller's request. The task reads it when it waits for the Reply
            // (xprt_request_timeout()).
            unsafe { end.write_volatile(least) };
        }
    }

    /// # Safety
    ///
    /// `raw` must be the request that is being sent, and pinned.
    #[cold]
    unsafe fn not_sent(
        this: &Instance<T>,
        lock: &mut SendLock<'_>,
        raw: NonNull<bindings::rpc_rqst>,
        error: XprtSendError,
    ) -> c_int {
        if error.is_final() {
            // An error would end the RPC of the task that holds the send lock, which may send the
            // request of another (xprt_transmit). After success the core takes the request off the
            // transmit queue, and wakes its task.
            // SAFETY: the caller's request, whose task cannot end while it is pinned.
            unsafe { bindings::rpcrdma_xprt_fail(raw.as_ptr(), error.to_errno()) };
            return 0;
        }
        if error == XprtSendError::NotConnected {
            this.disconnect(lock);
        }
        error.to_errno()
    }

    /// # Safety
    ///
    /// Called by xprt_autoclose only, with the send lock held.
    unsafe extern "C" fn close_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        // SAFETY: the caller holds the send lock, and so do we until we return.
        this.disconnect(&mut unsafe { SendLock::new(&this.xprt) });
    }

    /// # Safety
    ///
    /// Called by xprt_destroy_cb only: the transport is not used any more, and xprt_destroy has taken the
    /// send lock for good.
    unsafe extern "C" fn destroy_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        // SAFETY: the core calls this once, and no other operation afterwards.
        unsafe { this.destroy() };
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
    /// Called by rpc_clnt_show_stats only (`net/sunrpc/stats.c`): `seq` is being shown.
    unsafe extern "C" fn print_stats_callback(
        xprt: *mut bindings::rpc_xprt,
        seq: *mut bindings::seq_file,
    ) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        // SAFETY: seq_read_iter has the file locked during the call.
        let seq = unsafe { SeqFile::from_raw(seq) };
        this.shared().transport.print_stats(&this.xprt, seq);
    }

    /// Counts a client of the core that swaps over the transport from now on. The core lets the holder of
    /// the send lock use the reserves of memory then (xprt_needs_memalloc in `net/sunrpc/sched.c`), and
    /// [`Xprt::reserves`](super::Xprt::reserves) the other work of the transport. No other preparation is needed:
    /// unlike a socket, a queue pair has no flag for this.
    ///
    /// # Safety
    ///
    /// Called by xprt_enable_swap only, for rpc_clnt_swap_activate (`net/sunrpc/clnt.c`), which holds a
    /// reference to the transport and no lock.
    unsafe extern "C" fn enable_swap_callback(xprt: *mut bindings::rpc_xprt) -> c_int {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        this.xprt.swapper().fetch_add(1, Relaxed);
        0
    }

    /// Takes back the count of [`Self::enable_swap_callback`]. A transport that a client got while it swapped
    /// was not counted, and stays at zero.
    ///
    /// # Safety
    ///
    /// Called by xprt_disable_swap only, for rpc_clnt_swap_deactivate (`net/sunrpc/clnt.c`), which holds a
    /// reference to the transport and no lock.
    unsafe extern "C" fn disable_swap_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        let swapper = this.xprt.swapper();
        let mut count = swapper.load(Relaxed);
        while count > 0 {
            match swapper.cmpxchg(count, count - 1, Relaxed) {
                Ok(_) => break,
                Err(changed) => count = changed,
            }
        }
    }

    /// # Safety
    ///
    /// Called by xprt_request_transmit and xprt_end_transmit only; by the latter also without the
    /// send lock, when another task has sent the Reply to a Call of the server (call_bc_transmit).
    unsafe extern "C" fn inject_disconnect_callback(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: the core calls with a transport of ours.
        let this = unsafe { Self::this(xprt) };
        this.shared().transport.inject_disconnect();
    }
}
