// SPDX-License-Identifier: GPL-2.0

//! The core's connect protocol, once for every transport.
//!
//! `connect` runs with the send lock and must not block, so it hands the lock (by a cookie) to
//! a worker. The worker must end every attempt in the same order, or requests hang: no longer
//! connecting, connected if so, lock released, sleepers woken. Woken with `EAGAIN` they look at
//! the state again; any other error is theirs to judge (`call_connect_status`).

use super::instance::Instance;
use super::send_lock::SendLock;
use super::transport::Transport;
use super::{
    now,
    Xprt, //
};
use crate::bindings;
use crate::support::memalloc::NofsScope;
use kernel::ffi::c_ulong;
use kernel::prelude::*;
use kernel::types::Opaque;

const HZ: c_ulong = bindings::HZ;

/// How long an RPC waits for its reply before the connection is given up; no retries, since a
/// reliable connection either delivers or breaks. In jiffies, like all times here.
pub(super) const TIMEOUT: c_ulong = 60 * HZ;
/// How long a lookup of the server's port may take.
pub(super) const BIND_TIMEOUT: c_ulong = 60 * HZ;
/// The wait after the first failed attempt; doubled by each further one, up to `TIMEOUT` or what
/// the upper layer sets (NFSv4: half a lease), until a message arrives.
pub(super) const FIRST_BACKOFF: c_ulong = HZ;
/// An idle connection is closed after this time.
pub(super) const IDLE_TIMEOUT: c_ulong = 5 * 60 * HZ;
/// The shortest time-out that an administrator's shorter connect time-out leads to.
const SHORTEST_TIMEOUT: c_ulong = 10 * HZ;

/// `struct rpc_timeout` as the core wants it for our connections.
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

/// How long the core waits for a Reply, unless its user says otherwise.
pub(in crate::sunrpc) fn default_timeout() -> *const bindings::rpc_timeout {
    &raw const DEFAULT_TIMEOUT.0
}

/// Initialises the worker of a new transport.
///
/// # Safety
///
/// `this` must be memory of a new `Instance<T>` that stays where it is.
pub(super) unsafe fn init_work<T: Transport>(this: *mut Instance<T>) {
    // SAFETY: the caller promises memory of a transport; nothing is read.
    let work = Opaque::cast_into(unsafe { &raw const (*this).xprt.connect_work });
    // SAFETY: uninitialised memory for a work that `cancel` ends before it goes.
    unsafe { bindings::init_delayed_work(work, Some(worker_callback::<T>)) };
}

/// Waits until no attempt to connect runs or will run.
pub(super) fn cancel(xprt: &Xprt) {
    // SAFETY: initialised by `init_work`; `destroy` calls this when there is no task any more
    // that could queue it.
    unsafe { bindings::cancel_delayed_work_sync(xprt.connect_work.get()) };
}

/// Has a work of a transport run `delay` jiffies from now, whether it was queued already or not.
pub(super) fn queue_work(work: &Opaque<bindings::delayed_work>, delay: c_ulong) {
    // SAFETY: set once, before sunrpc has any transport, and valid while sunrpc is loaded, on
    // which this module depends. It has a rescuer (WQ_MEM_RECLAIM), so that connecting makes
    // progress when memory is short.
    let queue = unsafe { bindings::xprtiod_workqueue };
    // SAFETY: `setup` initialises the works of a transport, and `destroy` cancels them.
    unsafe {
        bindings::mod_delayed_work_on(
            bindings::wq_misc_consts_WORK_CPU_UNBOUND as i32,
            queue,
            work.get(),
            delay,
        )
    };
}

/// Starts an attempt to connect.
///
/// # Safety
///
/// Called by xprt_connect only, for a transport that `setup` made, with the send lock held for
/// `task` and the transport marked as connecting.
pub(super) unsafe extern "C" fn connect_callback<T: Transport>(
    xprt: *mut bindings::rpc_xprt,
    task: *mut bindings::rpc_task,
) {
    // SAFETY: xprt_connect passes the transport that it was called for, one of ours.
    let this = unsafe { Instance::<T>::from_raw(xprt) };
    // SAFETY: `task` holds the send lock, which goes over to the worker.
    if !unsafe { bindings::xprt_lock_connect(xprt, task, xprt.cast()) } {
        // The task has lost the lock; the next to want a connection starts anew.
        // SAFETY: an atomic operation on `state`; the mark is that of this attempt.
        unsafe { bindings::xprt_clear_connecting(xprt) };
        return;
    }
    let delay = if this.shared().transport.last_connect_failed() {
        // SAFETY: reads fields of a live transport that only connecting changes.
        let delay = unsafe { bindings::xprt_reconnect_delay(xprt) };
        // SAFETY: writes `reestablish_timeout`; the send lock serialises attempts to connect.
        unsafe { bindings::xprt_reconnect_backoff(xprt, FIRST_BACKOFF) };
        delay
    } else {
        0
    };
    queue_work(&this.xprt.connect_work, delay);
}

/// Connects.
///
/// # Safety
///
/// Called by the workqueue only, for the work of an `Instance<T>`, which `connect_callback` has
/// queued with the send lock.
unsafe extern "C" fn worker_callback<T: Transport>(work: *mut bindings::work_struct) {
    // SAFETY: the work is the `work` of a `delayed_work`.
    let work = unsafe { kernel::container_of!(work, bindings::delayed_work, work) };
    let work: *mut Opaque<bindings::delayed_work> = work.cast();
    // SAFETY: which is the `connect_work` of a live `Instance<T>`: `destroy` cancels it first.
    let this = unsafe { &*kernel::container_of!(work, Instance<T>, xprt.connect_work) };
    let raw = this.xprt.as_raw();
    let _nofs = NofsScope::enter();
    // SAFETY: xprt_lock_connect gave the send lock to this attempt, until it is unlocked below.
    let mut lock = unsafe { SendLock::new(&this.xprt) };

    let result = this.shared().transport.connect(&mut lock, &this.xprt);

    // SAFETY: an atomic operation on `state`; the mark is that of this attempt.
    unsafe { bindings::xprt_clear_connecting(raw) };
    let status = match result {
        Ok(()) => {
            connected(&this.xprt, &lock);
            EAGAIN.to_errno()
        }
        Err(error) => {
            this.close(&mut lock);
            error.to_errno()
        }
    };
    // SAFETY: the cookie is the one that `connect_callback` locked with; `lock` is not used again.
    unsafe { bindings::xprt_unlock_connect(raw, raw.cast()) };
    // SAFETY: the transport is alive: `destroy` waits for this worker.
    unsafe { bindings::xprt_wake_pending_tasks(raw, status) };
}

/// Tells the core that there is a new connection.
fn connected(xprt: &Xprt, lock: &SendLock<'_>) {
    let took = now().wrapping_sub(read_once!(xprt, stat.connect_start));
    write_once!(lock, connect_cookie = xprt.connection().wrapping_add(1));
    write_once!(
        lock,
        stat.connect_count = read_once!(xprt, stat.connect_count).wrapping_add(1)
    );
    write_once!(
        lock,
        stat.connect_time = read_once!(xprt, stat.connect_time).wrapping_add(took)
    );
    // SAFETY: an atomic operation on `state` of a live transport.
    unsafe { bindings::xprt_set_connected(xprt.as_raw()) };
}

/// Lowers the time-outs of a transport.
///
/// # Safety
///
/// Called by rpc_xprt_set_connect_timeout only, for a transport that `setup` made.
pub(super) unsafe extern "C" fn set_connect_timeout_callback<T: Transport>(
    xprt: *mut bindings::rpc_xprt,
    connect_timeout: c_ulong,
    reconnect_timeout: c_ulong,
) {
    // SAFETY: the core calls with a transport of ours, to which its client holds a reference.
    let xprt = &unsafe { Instance::<T>::from_raw(xprt) }.xprt;
    let lock = xprt.lock_transport();
    if connect_timeout < read_once!(xprt, connect_timeout) {
        let limit = connect_timeout.max(SHORTEST_TIMEOUT);
        let timeout = xprt.timeout.get();
        // Clients that have the pointer already read without a lock: field by field, so that
        // each is one value or the other. The other fields stay zero, as in `DEFAULT_TIMEOUT`.
        // SAFETY: `timeout` is only written here, with the transport lock.
        unsafe { core::ptr::write_volatile(&raw mut (*timeout).to_initval, limit) };
        // SAFETY: `timeout` is only written here, with the transport lock.
        unsafe { core::ptr::write_volatile(&raw mut (*timeout).to_maxval, limit) };
        // SAFETY: the pointer's target lives as long as the transport, and is filled.
        unsafe { core::ptr::write_volatile(&raw mut (*xprt.as_raw()).timeout, timeout) };
        write_once!(&lock, connect_timeout = connect_timeout);
    }
    if reconnect_timeout < read_once!(xprt, max_reconnect_timeout) {
        write_once!(&lock, max_reconnect_timeout = reconnect_timeout);
    }
}
