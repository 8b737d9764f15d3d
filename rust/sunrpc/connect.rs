// SPDX-License-Identifier: GPL-2.0

//! The core's connect protocol, once for every transport.
//!
//! `connect` runs with the send lock and must not block, so it hands the lock (by a cookie) to
//! a worker. The worker must end every attempt in the same order, or requests hang: no longer
//! connecting, connected if so, lock released, sleepers woken. Woken with `EAGAIN` they look at
//! the state again; any other error is theirs to judge (`call_connect_status`).

use super::ops::Transport;
use super::xprt::{
    Xprt,
    XprtBox, //
};
use crate::bindings;
use crate::support::errno;
use crate::support::memalloc::NofsScope;
use kernel::ffi::c_ulong;
use kernel::prelude::*;
use kernel::types::Opaque;

const HZ: c_ulong = bindings::HZ as c_ulong;

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

/// The time-out of a new transport.
pub(super) fn default_timeout() -> *const bindings::rpc_timeout {
    &raw const DEFAULT_TIMEOUT.0
}

/// Initialises the worker of a new transport.
///
/// # Safety
///
/// `this` must be memory of a new `XprtBox<T>` that stays where it is.
pub(super) unsafe fn init_work<T: Transport>(this: *mut XprtBox<T>) {
    // SAFETY: promised by the caller.
    let work = Opaque::cast_into(unsafe { &raw const (*this).connect_work });
    // SAFETY: as above.
    unsafe { bindings::init_delayed_work(work, Some(worker_callback::<T>)) };
}

/// Waits until no attempt to connect runs or will run.
pub(super) fn cancel<T: Transport>(this: &XprtBox<T>) {
    // SAFETY: initialised by `init_work`.
    unsafe { bindings::cancel_delayed_work_sync(this.connect_work.get()) };
}

/// Starts an attempt to connect.
///
/// # Safety
///
/// Called by xprt_connect only, with the send lock held for `task`.
pub(super) unsafe extern "C" fn connect_callback<T: Transport>(
    xprt: *mut bindings::rpc_xprt,
    task: *mut bindings::rpc_task,
) {
    // SAFETY: the core calls with a transport that `setup` made.
    let this = unsafe { XprtBox::<T>::from_xprt(xprt) };
    // SAFETY: `task` holds the send lock, which goes over to the worker.
    if !unsafe { bindings::xprt_lock_connect(xprt, task, xprt.cast()) } {
        // The task has lost the lock; the next to want a connection starts anew.
        // SAFETY: the transport is valid.
        unsafe { bindings::xprt_clear_connecting(xprt) };
        return;
    }
    let delay = if this.shared().transport.last_connect_failed() {
        // SAFETY: the transport is valid.
        let delay = unsafe { bindings::xprt_reconnect_delay(xprt) };
        // SAFETY: as above; the send lock serialises this.
        unsafe { bindings::xprt_reconnect_backoff(xprt, FIRST_BACKOFF) };
        delay
    } else {
        0
    };
    // SAFETY: sunrpc's queue exists while sunrpc is loaded, on which this module depends. It
    // has a rescuer (WQ_MEM_RECLAIM), so connecting makes progress when memory is short.
    let queue = unsafe { bindings::xprtiod_workqueue };
    // SAFETY: the work was initialised in `setup`, and `destroy` cancels it.
    unsafe {
        bindings::queue_delayed_work_on(
            bindings::wq_misc_consts_WORK_CPU_UNBOUND as i32,
            queue,
            this.connect_work.get(),
            delay,
        )
    };
}

/// Connects.
///
/// # Safety
///
/// Called by the workqueue only, for the work of an `XprtBox<T>`.
unsafe extern "C" fn worker_callback<T: Transport>(work: *mut bindings::work_struct) {
    // SAFETY: the work is the `work` of a `delayed_work`.
    let work = unsafe { kernel::container_of!(work, bindings::delayed_work, work) };
    let work: *mut Opaque<bindings::delayed_work> = work.cast();
    // SAFETY: which is the `connect_work` of a live `XprtBox<T>`: `destroy` cancels it first.
    let this = unsafe { &*kernel::container_of!(work, XprtBox<T>, connect_work) };
    let raw = this.xprt.as_raw();
    let _nofs = NofsScope::enter();

    let result = this.shared().transport.connect(&this.xprt);

    // SAFETY: the transport is valid; the worker has the send lock.
    unsafe { bindings::xprt_clear_connecting(raw) };
    let status = match result {
        Ok(()) => {
            connected(&this.xprt);
            EAGAIN
        }
        Err(error) => {
            super::ops::disconnect(this);
            status(&this.xprt, error)
        }
    };
    // SAFETY: the cookie is the one that `connect_callback` locked with.
    unsafe { bindings::xprt_unlock_connect(raw, raw.cast()) };
    // SAFETY: the transport is valid.
    unsafe { bindings::xprt_wake_pending_tasks(raw, status.to_errno()) };
}

/// Tells the core that there is a new connection.
fn connected(xprt: &Xprt) {
    let raw = xprt.as_raw();
    // SAFETY: `jiffies` is a kernel global, read once.
    let now = unsafe { core::ptr::read_volatile(&raw const bindings::jiffies) };
    // SAFETY: these fields are changed with the send lock only, which the worker has.
    let fields = unsafe { &mut *raw };
    fields.connect_cookie = fields.connect_cookie.wrapping_add(1);
    fields.stat.connect_count += 1;
    fields.stat.connect_time = fields
        .stat
        .connect_time
        .wrapping_add(now.wrapping_sub(fields.stat.connect_start));
    // SAFETY: the transport is valid.
    unsafe { bindings::xprt_set_connected(raw) };
}

/// The error by which the core decides what waiting RPCs do (call_connect_status).
///
/// Those that it does not know are final for every waiting RPC, even on a hard mount. None of
/// them may leave: a device that lacks something now, a queue pair, an address or memory, may
/// have it later, or another device may have it. Only a transport that has never been connected
/// says that its device cannot do this at all, for mount(8) to show.
///
/// `ENETUNREACH` does not leave either. It is final for mounts that were made in a network
/// namespace (`RPC_TASK_NETUNREACH_FATAL`), where it says that the namespace's network is gone,
/// and no event of the connection manager says that.
fn status(xprt: &Xprt, error: Error) -> Error {
    let known = [
        errno::connection_refused(),
        errno::protocol(),
        errno::not_connected(),
        errno::timed_out(),
        errno::no_buffers(),
    ];
    if known.contains(&error) || (error == errno::not_supported() && !xprt.was_connected()) {
        error
    } else if error == ENOMEM {
        errno::no_buffers()
    } else {
        errno::protocol()
    }
}

/// Lowers the time-outs of a transport.
///
/// # Safety
///
/// Called by the core only.
pub(super) unsafe extern "C" fn set_connect_timeout_callback<T: Transport>(
    xprt: *mut bindings::rpc_xprt,
    connect_timeout: c_ulong,
    reconnect_timeout: c_ulong,
) {
    // SAFETY: the core calls with a transport that `setup` made.
    let this = unsafe { XprtBox::<T>::from_xprt(xprt) };
    this.xprt.with_transport_lock(|xprt| {
        // SAFETY: the transport lock protects these fields.
        let fields = unsafe { &mut *xprt };
        if connect_timeout < fields.connect_timeout {
            let timeout = this.timeout.get();
            // SAFETY: only changed here, with the lock; its readers take any of its values.
            unsafe {
                *timeout = bindings::rpc_timeout {
                    to_initval: connect_timeout.max(SHORTEST_TIMEOUT),
                    to_maxval: connect_timeout.max(SHORTEST_TIMEOUT),
                    ..*fields.timeout
                }
            };
            fields.timeout = timeout;
            fields.connect_timeout = connect_timeout;
        }
        if reconnect_timeout < fields.max_reconnect_timeout {
            fields.max_reconnect_timeout = reconnect_timeout;
        }
    });
}
