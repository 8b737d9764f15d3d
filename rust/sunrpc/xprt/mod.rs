// SPDX-License-Identifier: GPL-2.0

//! The client's transport switch: `struct rpc_xprt` and the objects around it.
//!
//! The core's side of the work is done here once:
//!
//! - [`transport`]: the trait that a transport implements
//! - [`class`]: its class, and the creation of transports
//! - [`instance`]: one transport with its request slots, from setup to destroy
//! - [`ops`]: the core's operations, and the rules around a send
//! - [`connect`]: attempts to connect, and the tasks that wait for them
//! - [`slot`]: request slots and their buffers; [`rqst`]: a request while it is sent, and while
//!   its Reply is handled
//! - [`owed`]: Replies to requests that were given up
//! - [`privacy`]: Calls whose encrypted pages must not go too early
//! - [`backchannel`]: Calls of the server
//! - [`send_lock`]: the send lock as a value
//!
//! Here is the transport itself. The core shares `struct rpc_xprt` with this module and with every task,
//! so no reference to all of it is ever made: fields are read by `read_once!` and written by
//! `write_once!`, which asks for the lock.

use crate::{
    bindings,
    support::{
        memalloc::ReserveScope,
        net::{
            Net,
            SockAddr, //
        },
    },
};
use connect::FIRST_BACKOFF;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    },
};
use owed::OwedReplies;

/// Reads a scalar field of an [`Xprt`] that others may be writing, like READ_ONCE().
macro_rules! read_once {
    ($xprt:expr, $($field:ident).+) => {{
        let xprt: *mut $crate::bindings::rpc_xprt = $crate::sunrpc::xprt::Xprt::as_raw($xprt);
        $crate::sunrpc::xprt::scalar(
            // SAFETY: the `rpc_xprt` is alive while its `Xprt` is borrowed; one load gets one of
            // the values that the field has had.
            unsafe { core::ptr::read_volatile(&raw const (*xprt).$($field).+) },
        )
    }};
}

/// Writes a scalar field of the [`Xprt`] whose lock is given, like WRITE_ONCE(): the lock excludes
/// other writers, but there may be readers without it.
macro_rules! write_once {
    ($lock:expr, $($field:ident).+ = $value:expr) => {{
        let value = $crate::sunrpc::xprt::scalar($value);
        let xprt: *mut $crate::bindings::rpc_xprt =
            $crate::sunrpc::xprt::LockOf::xprt($lock).as_raw();
        // SAFETY: the `rpc_xprt` is alive while its `Xprt` is borrowed; readers get the old value
        // or the new one.
        unsafe { core::ptr::write_volatile(&raw mut (*xprt).$($field).+, value) };
    }};
}

pub(crate) mod backchannel;
pub(crate) mod class;
pub(crate) mod connect;
pub(crate) mod instance;
pub(crate) mod ops;
pub(crate) mod owed;
pub(crate) mod privacy;
pub(crate) mod rqst;
pub(crate) mod send_lock;
pub(crate) mod slot;
pub(crate) mod transport;

/// A value that is loaded and stored at once.
trait Scalar: Copy {}
impl Scalar for u32 {}
impl Scalar for u64 {}
impl Scalar for i64 {}
impl Scalar for usize {}
impl Scalar for u16 {}

/// Lets nothing but scalars through.
#[inline]
fn scalar<T: Scalar>(value: T) -> T {
    value
}

/// A transport of the RPC client: the core's part, and our data beside it for any kind.
///
/// # Invariants
///
/// `raw` is the first field of the memory of xprt_alloc, so a pointer to it is also a pointer to this.
#[repr(C)]
pub(crate) struct Xprt {
    raw: Opaque<bindings::rpc_xprt>,
    connect_work: Opaque<bindings::delayed_work>,
    timeout: Opaque<bindings::rpc_timeout>,
    /// The time at which the attempt to connect that waits begins, in jiffies; 0 if none waits.
    attempt_at: Atomic<usize>,
    owed: OwedReplies,
}

// SAFETY: the core shares `struct rpc_xprt` between tasks; its fields are read by `read_once!`
// and written by `write_once!` with the lock that net/sunrpc/xprt.c names. Works are the
// workqueue's, and `timeout` is written with the transport lock.
unsafe impl Sync for Xprt {}

/// A lock of a transport, held.
trait LockOf {
    /// Returns the transport of the lock.
    fn xprt(&self) -> &Xprt;
}

/// The transport lock (`transport_lock`), held; dropping this releases it.
struct TransportLock<'a>(&'a Xprt, NotThreadSafe);

impl LockOf for TransportLock<'_> {
    fn xprt(&self) -> &Xprt {
        self.0
    }
}

impl Drop for TransportLock<'_> {
    fn drop(&mut self) {
        // SAFETY: taken in `lock_transport`, and released once.
        unsafe { bindings::spin_unlock(&raw mut (*self.0.as_raw()).transport_lock) };
    }
}

/// No lock, for the fields any of whose values is right at any time.
struct Unlocked<'a>(&'a Xprt);

impl LockOf for Unlocked<'_> {
    fn xprt(&self) -> &Xprt {
        self.0
    }
}

impl Xprt {
    /// Returns the C object.
    #[inline]
    fn as_raw(&self) -> *mut bindings::rpc_xprt {
        self.raw.get()
    }

    /// Returns the network namespace that the transport was created in.
    pub(crate) fn net(&self) -> Option<Net> {
        // SAFETY: `xprt_net` is set by xprt_alloc and does not change.
        let net = unsafe { (*self.as_raw()).xprt_net };
        // SAFETY: xprt_alloc took a reference to the namespace, which xprt_free gives back.
        NonNull::new(net).map(|net| unsafe { Net::new(net) })
    }

    /// Returns the peer's current address. The administrator may change it between connections.
    ///
    /// Context: process, does not sleep. The send lock is held, under which alone it changes
    /// (net/sunrpc/sysfs.c).
    fn peer(&self) -> SockAddr {
        // SAFETY: rpc_sysfs_xprt_dstaddr_store() waits for `XPRT_LOCKED` before it writes `addr`,
        // and set_port runs while a bind goes on, before there can be a connection.
        SockAddr::new(unsafe { (*self.as_raw()).addr })
    }

    /// Returns the number of requests that the transport may have in flight.
    pub(crate) fn max_reqs(&self) -> u32 {
        read_once!(self, max_reqs)
    }

    /// Returns the number of tasks that use the transport: RPCs in flight, and RPCs that wait for a slot, a credit
    /// or a connection.
    pub(crate) fn tasks(&self) -> i64 {
        read_once!(self, queuelen.counter)
    }

    /// Returns the number of seconds until the next attempt to connect; 0 if no attempt waits.
    pub(crate) fn next_attempt(&self) -> usize {
        let at = self.attempt_at.load(Relaxed);
        // The difference is large if the time has passed.
        let left = at.wrapping_sub(now());
        if at == 0 || left > connect::TIMEOUT {
            return 0;
        }
        left.div_ceil(bindings::HZ)
    }

    /// Returns whether tasks wait for a request slot.
    #[inline]
    fn has_backlog(&self) -> bool {
        read_once!(self, backlog.qlen) != 0
    }

    /// Returns the counter of the core's clients that swap over the transport (`rpc_clnt.cl_swapper`).
    #[inline]
    fn swapper(&self) -> &Atomic<i32> {
        // SAFETY: an `atomic_t`. The core reads it by atomic_read() (xprt_needs_memalloc), and leaves
        // changes of it to the transport.
        unsafe { Atomic::from_ptr(&raw mut (*self.as_raw()).swapper.counter) }
    }

    /// Returns the number of the core's clients that swap over the transport. A client with several swap files
    /// counts once.
    #[inline]
    pub(crate) fn swappers(&self) -> i32 {
        self.swapper().load(Relaxed)
    }

    /// Lets the current task use the reserves of memory for `work`, as long as the result lives, if
    /// the kernel swaps over the transport: memory reclaim may wait for that work. Context:
    /// process, does not sleep.
    #[inline]
    pub(crate) fn reserves(&self, work: &'static str) -> Option<ReserveScope> {
        (self.swappers() != 0).then(|| ReserveScope::enter(work))
    }

    /// Returns whether the core counts the transport as connected.
    #[inline]
    pub(crate) fn connected(&self) -> bool {
        read_once!(self, state) & (1 << bindings::XPRT_CONNECTED) != 0
    }

    /// Returns the number of the connection, which changes with each connection and when a connection is
    /// closed.
    #[inline]
    fn connection(&self) -> u32 {
        read_once!(self, connect_cookie)
    }

    /// Marks the transport as not connected.
    pub(crate) fn clear_connected(&self) {
        // SAFETY: an atomic operation on `state`; the transport is alive while borrowed.
        unsafe { bindings::xprt_clear_connected(self.as_raw()) };
    }

    /// Asks the core to close the connection, soon and from another context (autoclose).
    ///
    /// Context: process, does not sleep. Takes the transport lock.
    pub(crate) fn force_disconnect(&self) {
        // SAFETY: the transport is alive while borrowed; `task_cleanup` is initialised by
        // xprt_create_transport before there can be a connection.
        unsafe { bindings::xprt_force_disconnect(self.as_raw()) };
    }

    /// Shows the number of requests that the peer allows in flight as the congestion window of the core
    /// (`cong_win` in sysfs). The core counts no request against it: the protocol counts the credits.
    ///
    /// Context: process, does not sleep.
    #[inline]
    pub(crate) fn show_credits(&self, credits: u32) {
        let window = (credits as usize) << bindings::RPC_CWNDSHIFT;
        if read_once!(self, cwnd) != window {
            self.set_window(window);
        }
    }

    #[cold]
    fn set_window(&self, window: usize) {
        let lock = self.lock_transport();
        write_once!(&lock, cwnd = window);
    }

    /// Takes an XID that no request has. Context: process, does not sleep.
    pub(crate) fn take_xid(&self) -> u32 {
        // SAFETY: the transport is alive while borrowed; the helper takes `reserve_lock`.
        let xid = unsafe { bindings::rpcrdma_xprt_take_xid(self.as_raw()) };
        u32::from_be_bytes(xid.to_ne_bytes())
    }

    /// Makes senders of Calls wait until [`Self::credit_is_free`]. Replies to Calls of the server do not wait: the
    /// server may need them to answer the Calls. Afterwards the caller looks once more for a credit, under the
    /// lock with which credits are given back, unless it holds the lock already.
    ///
    /// Context: process, does not sleep. The send lock is held.
    pub(crate) fn wait_for_credit(&self) {
        // SAFETY: an atomic operation on `state`; the transport is alive while borrowed.
        unsafe { bindings::rpcrdma_xprt_wait_for_credit(self.as_raw()) };
    }

    /// Returns whether senders of Calls wait for a credit.
    #[inline]
    fn waits_for_credit(&self) -> bool {
        read_once!(self, state) & (1 << bindings::XPRT_CWND_WAIT) != 0
    }

    /// Wakes the sender that waits for a credit. To be called after a credit was given back. Context: process,
    /// does not sleep.
    #[inline]
    pub(crate) fn credit_is_free(&self) {
        // The check without a lock misses no sender, as in `write_space`.
        if self.waits_for_credit() {
            // SAFETY: the transport is alive while borrowed; the helper takes `transport_lock`.
            unsafe { bindings::rpcrdma_xprt_credit_is_free(self.as_raw()) };
        }
    }

    /// Makes the sender wait until [`Self::write_space`]. To be called before the sender returns
    /// [`XprtSendError::NoBuffer`](transport::XprtSendError), with the send lock held. Afterwards the sender looks
    /// once more for the resource, under the lock with which the resource is given back or behind a full
    /// barrier: a resource that came back before this call woke no task.
    pub(crate) fn wait_for_buffer_space(&self) {
        // SAFETY: an atomic operation on `state`; the transport is alive while borrowed.
        unsafe { bindings::xprt_wait_for_buffer_space(self.as_raw()) };
    }

    /// Wakes the sender that waits for send buffers. To be called after a resource was given back. Context:
    /// process, does not sleep.
    #[inline]
    pub(crate) fn write_space(&self) {
        // Usually no sender waits. The check without a lock misses no sender: a sender that begins to wait looks
        // again, under the lock with which the resource was given back, or behind a barrier that pairs with the
        // barrier of giving it back. If it looked before that, the mark is visible here.
        if read_once!(self, state) & (1 << bindings::XPRT_WRITE_SPACE) == 0 {
            return;
        }
        // SAFETY: xprt_write_space() takes `transport_lock` itself. The transport is alive while borrowed.
        unsafe { bindings::xprt_write_space(self.as_raw()) };
    }

    /// Resets the delay between attempts to connect, because a message of the peer arrived.
    #[inline]
    pub(crate) fn peer_is_alive(&self) {
        if read_once!(self, reestablish_timeout) != FIRST_BACKOFF {
            // As the C transports do when they hear of the peer.
            write_once!(&Unlocked(self), reestablish_timeout = FIRST_BACKOFF);
        }
    }

    /// Returns whether the upper layer has a callback service for Calls of the server.
    ///
    /// Context: process, does not sleep. Takes bc_pa_lock.
    fn has_callback_service(&self) -> bool {
        // SAFETY: the transport is alive while borrowed; the helper takes `bc_pa_lock`.
        unsafe { bindings::rpcrdma_xprt_has_callback_service(self.as_raw()) }
    }

    /// Takes the transport lock. Context: process, does not sleep.
    fn lock_transport(&self) -> TransportLock<'_> {
        // SAFETY: xprt_init initialised the lock, which is only taken in process context.
        unsafe { bindings::spin_lock(&raw mut (*self.as_raw()).transport_lock) };
        TransportLock(self, NotThreadSafe)
    }

    /// Returns the counters that the core keeps, in the order of the `xprt:` line of mountstats.
    pub(crate) fn core_stats(&self) -> CoreStats {
        let idle = if self.connected() {
            seconds_between(read_once!(self, last_used), now())
        } else {
            0
        };
        CoreStats {
            bind_count: read_once!(self, stat.bind_count),
            connect_count: read_once!(self, stat.connect_count),
            connect_time: read_once!(self, stat.connect_time) / bindings::HZ,
            idle_time: idle,
            sends: read_once!(self, stat.sends),
            recvs: read_once!(self, stat.recvs),
            bad_xids: read_once!(self, stat.bad_xids),
            req_u: read_once!(self, stat.req_u),
            bklog_u: read_once!(self, stat.bklog_u),
        }
    }
}

/// Returns the time in jiffies.
fn now() -> usize {
    // SAFETY: `jiffies` is a kernel global that the timer interrupt writes; one load gets one of
    // its values.
    unsafe { core::ptr::read_volatile(&raw const bindings::jiffies) }
}

/// Returns the seconds between two times in jiffies, or 0 if `since` is the later time. Two loads have no order, so a
/// processor may have moved `since` past the value of `now`.
const fn seconds_between(since: usize, now: usize) -> usize {
    let passed = now.wrapping_sub(since);
    if passed > usize::MAX / 2 {
        return 0;
    }
    passed / bindings::HZ
}

const _: () = assert!(seconds_between(1, 0) == 0);
// The jiffies wrap around between the two times.
const _: () = assert!(seconds_between(usize::MAX, bindings::HZ) == 1);

/// Counters of the core; times in seconds.
#[allow(missing_docs)] // The names are the core's.
pub(crate) struct CoreStats {
    pub(crate) bind_count: usize,
    pub(crate) connect_count: usize,
    pub(crate) connect_time: usize,
    pub(crate) idle_time: usize,
    pub(crate) sends: usize,
    pub(crate) recvs: usize,
    pub(crate) bad_xids: usize,
    pub(crate) req_u: u64,
    pub(crate) bklog_u: u64,
}

/// A transport, for its completion and event handlers. Having one means that the transport is
/// alive, and that each of its requests carries an `S`.
///
/// # Invariants
///
/// The transport was set up for a [`Transport`](transport::Transport) whose requests are `S`, and
/// is alive: the owner of a handle belongs to that object, which `destroy` drops, after its
/// connection is closed, before it frees the `Xprt`.
pub(crate) struct XprtHandle<S> {
    xprt: NonNull<Xprt>,
    _request: PhantomData<fn() -> S>,
}

// SAFETY: a handle gives out `&Xprt`, and `Xprt` is `Sync`.
unsafe impl<S> Send for XprtHandle<S> {}
// SAFETY: a handle gives out `&Xprt`, and `Xprt` is `Sync`.
unsafe impl<S> Sync for XprtHandle<S> {}

impl<S> Clone for XprtHandle<S> {
    fn clone(&self) -> Self {
        // INVARIANT: the invariant of `self`; both belong to the same object.
        Self {
            xprt: self.xprt,
            _request: PhantomData,
        }
    }
}

impl<S> XprtHandle<S> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant.
    unsafe fn new(xprt: NonNull<bindings::rpc_xprt>) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            xprt: xprt.cast(),
            _request: PhantomData,
        }
    }
}

impl<S> core::ops::Deref for XprtHandle<S> {
    type Target = Xprt;

    #[inline]
    fn deref(&self) -> &Xprt {
        // SAFETY: the transport is alive by the type invariant.
        unsafe { self.xprt.as_ref() }
    }
}
