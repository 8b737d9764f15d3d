// SPDX-License-Identifier: GPL-2.0

//! The core's connect protocol, once for every transport.
//!
//! The core calls `connect` with the send lock, for a task that sleeps on the transport's `pending`
//! queue from then on. Connecting may take more than a minute, and failed attempts are some time
//! apart. The send lock is not held meanwhile, because the destruction of the transport, a change of
//! the server's address, and the end of a connection wait for it. An attempt belongs to a worker and
//! uses nothing of the transport that the send lock protects:
//!
//! 1. `connect` notes the address of the server, and has the worker make an [`Attempt`]. If one is
//!    under way, the task only waits for that.
//! 2. The worker connects, notes the connection as ready, and wakes all tasks of the queue.
//! 3. The first task that calls `connect` again installs the connection with the send lock that it has,
//!    and wakes all other tasks.
//!
//! A task that is woken with `EAGAIN` looks at the state again. `call_connect_status` decides about the RPC
//! for any other error.

use super::{
    instance::Instance,
    now,
    send_lock::SendLock,
    transport::{
        ConnectError,
        Transport, //
    },
    Xprt, //
};
use crate::{
    bindings,
    support::{
        memalloc::NofsScope,
        net::SockAddr,
        trace,
        work, //
    },
};
use core::mem::replace;
use kernel::{
    ffi::{
        c_int,
        c_ulong, //
    },
    new_spinlock,
    prelude::*,
    sync::{
        atomic::Relaxed,
        SpinLock, //
    },
    types::Opaque, //
};

const HZ: c_ulong = bindings::HZ;

/// The time after which an RPC without a Reply ends the connection. There are no retries, since a
/// reliable connection either delivers or breaks. In jiffies, like all times here.
pub(super) const TIMEOUT: c_ulong = 60 * HZ;
/// The time limit for a lookup of the server's port.
pub(super) const BIND_TIMEOUT: c_ulong = 60 * HZ;
/// The wait after the first failed attempt. Each further failure doubles it, up to `TIMEOUT` or the value of
/// the upper layer (NFSv4: half a lease), until a message arrives.
pub(super) const FIRST_BACKOFF: c_ulong = HZ;
/// The number of connections in a row that may end without a Reply before the client pauses.
const MADE_AT_ONCE: u32 = 2;
/// The first of these pauses. Each further connection without a Reply doubles it, up to `FIRST_BACKOFF`.
const FIRST_PAUSE: c_ulong = HZ / 10;
/// An idle connection is closed after this time.
pub(super) const IDLE_TIMEOUT: c_ulong = 5 * 60 * HZ;
/// The shortest time-out that an administrator's shorter connect time-out leads to.
const SHORTEST_TIMEOUT: c_ulong = 10 * HZ;

/// The `struct rpc_timeout` of a transport.
struct Timeout(bindings::rpc_timeout);

// SAFETY: `struct rpc_timeout` is constant data here, without interior mutability.
unsafe impl Sync for Timeout {}

static DEFAULT_TIMEOUT: Timeout = Timeout(bindings::rpc_timeout {
    to_initval: TIMEOUT,
    to_maxval: TIMEOUT,
    to_increment: 0,
    to_retries: 0,
    to_exponential: 0,
});

/// Returns the time-outs of the core, unless its user sets others.
pub(in crate::sunrpc) fn default_timeout() -> *const bindings::rpc_timeout {
    &raw const DEFAULT_TIMEOUT.0
}

/// An attempt to connect.
#[derive(Clone, Copy)]
struct Attempt {
    /// The address of the server when the attempt was asked for.
    peer: SockAddr,
    /// The time of the request for it, in jiffies.
    since: usize,
}

/// The progress of connecting.
enum ConnectStage<C> {
    /// There is no attempt.
    Idle,
    /// The attempt waits for its time, or is being made.
    Trying { attempt: Attempt, given_up: bool },
    /// The attempt has succeeded, and no task has installed the connection yet.
    Ready { attempt: Attempt, connection: C },
}

struct ConnectState<C> {
    stage: ConnectStage<C>,
    /// The server that the last attempt did not reach: the next attempt has to wait.
    failed: Option<SockAddr>,
    /// The number of connections that were installed since the last Reply.
    fruitless: u32,
    /// The number of Replies when the last connection was installed.
    replies: usize,
}

impl<C> ConnectState<C> {
    /// Notes that a connection is being installed, after `replies` Replies.
    fn installed(&mut self, replies: usize) {
        self.fruitless = match self.replies == replies {
            true => self.fruitless.saturating_add(1),
            false => 1,
        };
        self.replies = replies;
    }

    /// Returns the wait before the next connection, after `replies` Replies. A server that ends each connection before
    /// it answers is spared, and a server that works is connected to at once.
    fn pause(&self, replies: usize) -> c_ulong {
        if self.replies != replies {
            return 0;
        }
        match self.fruitless.checked_sub(MADE_AT_ONCE) {
            Some(more) => (FIRST_PAUSE << more.min(HZ.ilog2())).min(FIRST_BACKOFF),
            None => 0,
        }
    }
}

/// The state of connecting of a transport.
#[pin_data]
pub(super) struct Connecting<C> {
    #[pin]
    state: SpinLock<ConnectState<C>>,
}

/// The next step of a task that needs a connection.
enum NextStep<C> {
    /// Wait until the attempt has ended.
    Wait,
    /// Install this connection.
    Install(Attempt, C),
}

impl<C: Unpin> Connecting<C> {
    /// Initializes the state without a connection or an attempt.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(ConnectState {
                stage: ConnectStage::Idle,
                failed: None,
                fruitless: 0,
                replies: 0,
            }),
        })
    }

    /// Takes the connection that is ready. If there is none, has an attempt made unless one is
    /// under way. Context: process, does not sleep. The send lock is held.
    fn next(&self, xprt: &Xprt) -> NextStep<C> {
        let mut state = self.state.lock();
        let replies = read_once!(xprt, stat.recvs);
        match replace(&mut state.stage, ConnectStage::Idle) {
            ConnectStage::Ready {
                attempt,
                connection,
            } => {
                state.installed(replies);
                return NextStep::Install(attempt, connection);
            }
            ConnectStage::Idle => {
                let attempt = Attempt {
                    peer: xprt.peer(),
                    since: read_once!(xprt, stat.connect_start),
                };
                let delay = match state.failed {
                    Some(failed) if failed == attempt.peer => back_off(xprt),
                    _ => state.pause(replies),
                };
                state.stage = ConnectStage::Trying {
                    attempt,
                    given_up: false,
                };
                trace::emit(|| trace::XprtrdmaOpConnect {
                    peer: &attempt.peer,
                    delay,
                });
                if delay != 0 {
                    xprt.attempt_at
                        .store(now().wrapping_add(delay).max(1), Relaxed);
                }
                // SAFETY: `init_work` has initialised the work, and `end` cancels it.
                unsafe { work::start_delayed(&xprt.connect_work, delay) };
            }
            trying => state.stage = trying,
        }
        NextStep::Wait
    }

    /// Returns the attempt that the worker is to make now, unless it was given up.
    fn attempt(&self, xprt: &Xprt) -> Option<Attempt> {
        let mut state = self.state.lock();
        xprt.attempt_at.store(0, Relaxed);
        match state.stage {
            ConnectStage::Trying {
                attempt,
                given_up: false,
            } => return Some(attempt),
            ConnectStage::Trying { .. } => state.stage = ConnectStage::Idle,
            _ => {}
        }
        None
    }

    /// Returns whether the attempt that is being made was given up.
    fn is_given_up(&self) -> bool {
        matches!(
            self.state.lock().stage,
            ConnectStage::Trying { given_up: true, .. }
        )
    }

    /// Notes the result of an attempt, and wakes the tasks that wait for it. Returns a connection that was given
    /// up, which the caller drops.
    ///
    /// The tasks are woken under the lock, before a task can install the connection: a task that waits for the Reply
    /// to a Call on that connection would send its Call again, which ends the connection.
    fn made(&self, xprt: &Xprt, attempt: Attempt, result: Result<C, ConnectError>) -> Option<C> {
        let again = EAGAIN.to_errno();
        let mut state = self.state.lock();
        let given_up = matches!(state.stage, ConnectStage::Trying { given_up: true, .. });
        state.stage = ConnectStage::Idle;
        let (status, left) = match result {
            Ok(connection) if given_up => (again, Some(connection)),
            Ok(connection) => {
                state.failed = None;
                state.stage = ConnectStage::Ready {
                    attempt,
                    connection,
                };
                (again, None)
            }
            Err(error) => {
                // A shortage of this side is no reason to spare the server, and the RPCs wait anyway.
                let is_its = !matches!(error, ConnectError::NoMemory | ConnectError::GivenUp);
                state.failed = is_its.then_some(attempt.peer);
                (if given_up { again } else { error.to_errno() }, None)
            }
        };
        wake_pending(xprt, status);
        left
    }

    /// Gives up a connection that is ready, and an attempt, unless the attempt is to reach `wanted`.
    /// Returns whether the worker is making the attempt, and the connection, which the caller drops.
    fn give_up(&self, xprt: &Xprt, wanted: Option<&SockAddr>) -> (bool, Option<C>) {
        let mut state = self.state.lock();
        match replace(&mut state.stage, ConnectStage::Idle) {
            ConnectStage::Idle => (false, None),
            ConnectStage::Ready { connection, .. } => (false, Some(connection)),
            trying @ ConnectStage::Trying { attempt, .. } if wanted == Some(&attempt.peer) => {
                state.stage = trying;
                (false, None)
            }
            ConnectStage::Trying { attempt, .. } => {
                // SAFETY: `init_work` has initialised the work.
                let was_waiting = unsafe { bindings::cancel_delayed_work(xprt.connect_work.get()) };
                if was_waiting {
                    xprt.attempt_at.store(0, Relaxed);
                } else {
                    state.stage = ConnectStage::Trying {
                        attempt,
                        given_up: true,
                    };
                }
                (!was_waiting, None)
            }
        }
    }
}

/// Returns how long the next attempt has to wait after one that has failed, and doubles that time
/// for the one after it. Context: process, does not sleep. The send lock is held, and the caller is
/// `connect`.
fn back_off(xprt: &Xprt) -> c_ulong {
    // SAFETY: xprt_reconnect_delay() reads `reestablish_timeout` and `stat.connect_start` of a live transport,
    // which only connecting changes.
    let delay = unsafe { bindings::xprt_reconnect_delay(xprt.as_raw()) };
    // SAFETY: writes `reestablish_timeout`; the send lock serialises the calls.
    unsafe { bindings::xprt_reconnect_backoff(xprt.as_raw(), FIRST_BACKOFF) };
    delay
}

/// Initialises the worker of a new transport.
///
/// # Safety
///
/// `this` must be memory of a new `Instance<T>` that stays where it is.
pub(super) unsafe fn init_work<T: Transport>(this: *mut Instance<T>) {
    // SAFETY: the caller promises memory of a transport; nothing is read.
    let work = Opaque::cast_into(unsafe { &raw const (*this).xprt.connect_work });
    // SAFETY: uninitialised memory for a work that `end` cancels before it goes.
    unsafe { bindings::init_delayed_work(work, Some(worker_callback::<T>)) };
}

/// Ends connecting: no attempt is being made or will be, and no connection is left that was not
/// installed. To be called by `destroy`. Context: process, may sleep.
pub(super) fn end<T: Transport>(this: &Instance<T>) {
    give_up(this, None);
    // SAFETY: initialised by `init_work`; there is no task any more that could queue it.
    unsafe { bindings::cancel_delayed_work_sync(this.xprt.connect_work.get()) };
    // The worker may have made a connection before it heard that none is wanted.
    give_up(this, None);
}

/// Closes a connection that was not installed, and gives up an attempt to reach another address
/// than the server has now. To be called when the transport is disconnected. Context: process, may
/// sleep. The send lock is held.
pub(super) fn disconnected<T: Transport>(this: &Instance<T>) {
    give_up(this, Some(&this.xprt.peer()));
}

fn give_up<T: Transport>(this: &Instance<T>, wanted: Option<&SockAddr>) {
    let (under_way, connection) = this.shared().connecting.give_up(&this.xprt, wanted);
    drop(connection);
    if under_way {
        this.shared().transport.give_up();
    }
}

/// Provides a connection for `task`, now or later.
///
/// # Safety
///
/// Called by xprt_connect only, for a transport that `setup` made, with the send lock held for
/// `task`, which is on the `pending` queue, and the transport marked as connecting.
pub(super) unsafe extern "C" fn connect_callback<T: Transport>(
    xprt: *mut bindings::rpc_xprt,
    _task: *mut bindings::rpc_task,
) {
    // SAFETY: xprt_connect passes the transport that it was called for, one of ours.
    let this = unsafe { Instance::<T>::from_raw(xprt) };
    match this.shared().connecting.next(&this.xprt) {
        NextStep::Wait => {
            // A task that finds the mark would keep the send lock while it sleeps.
            // SAFETY: an atomic operation on `state`; this call has set the mark.
            unsafe { bindings::xprt_clear_connecting(xprt) };
        }
        NextStep::Install(attempt, connection) => {
            // SAFETY: the task has the send lock until xprt_connect gives it back.
            let mut lock = unsafe { SendLock::new(&this.xprt) };
            let transport = &this.shared().transport;
            transport.install(&mut lock, &this.xprt, connection);
            // SAFETY: an atomic operation on `state`; this call has set the mark.
            unsafe { bindings::xprt_clear_connecting(xprt) };
            connected(&this.xprt, &lock, attempt.since);
            wake_pending(&this.xprt, EAGAIN.to_errno());
        }
    }
}

/// Makes an attempt to connect.
///
/// # Safety
///
/// Called by the workqueue only, for the work of an `Instance<T>`, which [`Connecting::next`] has
/// queued.
unsafe extern "C" fn worker_callback<T: Transport>(work: *mut bindings::work_struct) {
    // SAFETY: the work is the `work` of a `delayed_work`.
    let work = unsafe { kernel::container_of!(work, bindings::delayed_work, work) };
    let work: *mut Opaque<bindings::delayed_work> = work.cast();
    // SAFETY: which is the `connect_work` of a live `Instance<T>`: `destroy` cancels it first.
    let this = unsafe { &*kernel::container_of!(work, Instance<T>, xprt.connect_work) };
    let _nofs = NofsScope::enter();
    let _reserves = this.xprt.reserves("connecting");
    let shared = this.shared();
    let Some(attempt) = shared.connecting.attempt(&this.xprt) else {
        return wake_pending(&this.xprt, EAGAIN.to_errno());
    };
    let result = shared
        .transport
        .connect(&this.xprt, attempt.peer, || shared.connecting.is_given_up());
    drop(shared.connecting.made(&this.xprt, attempt, result));
}

/// Wakes the tasks that wait on the transport's `pending` queue. Context: process, does not sleep.
fn wake_pending(xprt: &Xprt, status: c_int) {
    // SAFETY: xprt_wake_pending_tasks() takes the lock of the queue. The transport is alive while borrowed.
    unsafe { bindings::xprt_wake_pending_tasks(xprt.as_raw(), status) };
}

/// Queues a work of a transport on sunrpc's queue, to run `delay` jiffies from now, or changes the delay
/// of work that is queued.
pub(super) fn queue_work(work: &Opaque<bindings::delayed_work>, delay: c_ulong) {
    // SAFETY: rpciod_start() sets `xprtiod_workqueue` once, before sunrpc has any transport. It is valid while
    // sunrpc is loaded, on which this module depends.
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

/// Tells the core that there is a new connection, for which an attempt was asked `since`.
fn connected(xprt: &Xprt, lock: &SendLock<'_>, since: usize) {
    let took = now().wrapping_sub(since);
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
        // SAFETY: `timeout` points to a field of this transport that is filled and lives as long as the transport.
        unsafe { core::ptr::write_volatile(&raw mut (*xprt.as_raw()).timeout, timeout) };
        write_once!(&lock, connect_timeout = connect_timeout);
    }
    if reconnect_timeout < read_once!(xprt, max_reconnect_timeout) {
        write_once!(&lock, max_reconnect_timeout = reconnect_timeout);
    }
}
