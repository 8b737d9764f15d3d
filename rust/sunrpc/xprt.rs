// SPDX-License-Identifier: GPL-2.0

//! The generic transport, `struct rpc_xprt`, and the memory it is embedded in.

use super::connect::FIRST_BACKOFF;
use super::ops::Transport;
use super::rqst::PinnedRqst;
use super::slot::SlotTable;
use crate::bindings;
use crate::support::net::{
    Net,
    SockAddr, //
};
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;

/// One credit, in the units of the congestion window (`RPC_CWNDSCALE` of net/sunrpc/xprt.c).
const CREDIT: usize = 1 << bindings::RPC_CWNDSHIFT;

/// A transport of the RPC client.
#[repr(transparent)]
pub(crate) struct Xprt(Opaque<bindings::rpc_xprt>);

// SAFETY: the core shares `struct rpc_xprt` between tasks; what is changed here is changed
// under the lock that include/linux/sunrpc/xprt.h and net/sunrpc/xprt.c name for it.
unsafe impl Sync for Xprt {}

/// What `xprt_alloc` allocates for a transport of type `T`, and `xprt_free` frees.
///
/// The core frees this memory itself (kfree_rcu), so no destructor runs on it: everything that
/// needs one hangs off `shared`, which the `destroy` operation gives back.
#[repr(C)]
pub(super) struct XprtBox<T: Transport> {
    pub(super) xprt: Xprt,
    pub(super) connect_work: Opaque<bindings::delayed_work>,
    pub(super) timeout: Opaque<bindings::rpc_timeout>,
    pub(super) shared: *mut Shared<T>,
}

/// The parts of a transport that have destructors.
#[pin_data]
pub(super) struct Shared<T: Transport> {
    pub(super) transport: Arc<T>,
    #[pin]
    pub(super) slots: SlotTable<T::Slot>,
}

impl<T: Transport> XprtBox<T> {
    /// The box around a transport that the core passed to one of our operations.
    ///
    /// # Safety
    ///
    /// `xprt` must be embedded in an `XprtBox<T>` that was set up completely and not destroyed.
    pub(super) unsafe fn from_xprt<'a>(xprt: *mut bindings::rpc_xprt) -> &'a Self {
        // SAFETY: `xprt` is the first field of a `#[repr(C)]` struct, by the caller's promise.
        unsafe { &*xprt.cast::<Self>() }
    }

    /// The parts with destructors.
    pub(super) fn shared(&self) -> &Shared<T> {
        // SAFETY: set in `setup` before the core learns of the transport and released in
        // `destroy`, after which the core calls no operation any more.
        unsafe { &*self.shared }
    }
}

macro_rules! field {
    ($self:ident.$($field:ident).+) => {
        // SAFETY: the transport is alive while borrowed; the field is a plain scalar that the
        // core reads and writes under the locks named at the callers.
        unsafe { (*$self.as_raw()).$($field).+ }
    };
}

impl Xprt {
    /// Wraps a transport of the core.
    ///
    /// # Safety
    ///
    /// `xprt` must be valid for `'a`.
    pub(super) unsafe fn from_raw<'a>(xprt: *mut bindings::rpc_xprt) -> &'a Self {
        // SAFETY: `Xprt` is a transparent wrapper, and the caller promises validity.
        unsafe { &*xprt.cast::<Self>() }
    }

    /// The C object.
    pub(super) fn as_raw(&self) -> *mut bindings::rpc_xprt {
        self.0.get()
    }

    /// The network namespace that the transport was created in.
    pub(crate) fn net(&self) -> Option<Net> {
        NonNull::new(field!(self.xprt_net)).map(|net| {
            // SAFETY: the transport holds a reference to its namespace (xprt_alloc, xprt_free).
            unsafe { Net::new(net) }
        })
    }

    /// The peer's address as it is now; the administrator may change it between connections.
    ///
    /// Context: with the send lock, under which alone it changes (net/sunrpc/sysfs.c).
    pub(crate) fn peer(&self) -> SockAddr {
        SockAddr::new(field!(self.addr))
    }

    /// How many requests the transport may have in flight.
    pub(crate) fn max_reqs(&self) -> u32 {
        field!(self.max_reqs)
    }

    /// Whether tasks wait for a request slot.
    pub(super) fn has_backlog(&self) -> bool {
        // SAFETY: the transport is alive; the queue's own lock protects the count, and a reader
        // without it gets one of its values.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).backlog.qlen) != 0 }
    }

    /// Whether the core takes the transport for connected.
    pub(crate) fn connected(&self) -> bool {
        // SAFETY: tests a bit of a live transport.
        unsafe { bindings::xprt_connected(self.as_raw()) }
    }

    /// Which connection this is: another number on each, and when one is closed.
    pub(super) fn connection(&self) -> u32 {
        // SAFETY: the transport is alive; like xprt_connect_cookie(), which reads it without a
        // lock, this gets one of its values.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).connect_cookie) }
    }

    /// Whether there has ever been a connection.
    pub(super) fn was_connected(&self) -> bool {
        field!(self.stat.connect_count) != 0
    }

    /// Marks the transport as not connected.
    pub(crate) fn clear_connected(&self) {
        // SAFETY: clears a bit of a live transport.
        unsafe { bindings::xprt_clear_connected(self.as_raw()) };
    }

    /// Asks the core to close the connection, soon and from another context (autoclose).
    ///
    /// Context: process; takes the transport lock.
    pub(crate) fn force_disconnect(&self) {
        // SAFETY: the transport is alive while borrowed.
        unsafe { bindings::xprt_force_disconnect(self.as_raw()) };
    }

    /// Starts a connection's flow control: nothing in flight, one credit (RFC 8166, 3.3.3).
    ///
    /// Context: with the send lock, while no request of the connection is in flight.
    pub(crate) fn reset_credits(&self) {
        self.with_transport_lock(|xprt| {
            // SAFETY: `cong` and `cwnd` are protected by the transport lock, which is held.
            unsafe { (*xprt).cong = 0 };
            // SAFETY: as above.
            unsafe { (*xprt).cwnd = CREDIT };
        });
    }

    /// Takes over the number of requests that the peer allows in flight.
    ///
    /// Context: process. Waiters are woken when a request is released, by the core.
    pub(crate) fn set_credits(&self, credits: u32) {
        let window = (credits as usize) << bindings::RPC_CWNDSHIFT;
        if field!(self.cwnd) == window {
            return;
        }
        self.with_transport_lock(|xprt| {
            // SAFETY: `cwnd` is protected by the transport lock, which is held.
            unsafe { (*xprt).cwnd = window };
        });
    }

    /// Lets the sender wait until [`Self::write_space`]. To be called before the sender returns
    /// `EAGAIN`, with the send lock held.
    pub(crate) fn wait_for_buffer_space(&self) {
        // SAFETY: the transport is alive while borrowed.
        unsafe { bindings::xprt_wait_for_buffer_space(self.as_raw()) };
    }

    /// Wakes the sender that waits for send buffers. Context: process.
    pub(crate) fn write_space(&self) {
        // SAFETY: the transport is alive while borrowed.
        unsafe { bindings::xprt_write_space(self.as_raw()) };
    }

    /// A message arrived from the peer: the wait after failed attempts to connect begins anew.
    pub(crate) fn peer_is_alive(&self) {
        if field!(self.reestablish_timeout) != FIRST_BACKOFF {
            // SAFETY: a plain scalar; like the C transports, written without a lock.
            unsafe { (*self.as_raw()).reestablish_timeout = FIRST_BACKOFF };
        }
    }

    /// Whether the upper layer's callback service is there to take Calls of the server.
    ///
    /// Context: process; takes bc_pa_lock.
    pub(super) fn has_callback_service(&self) -> bool {
        let xprt = self.as_raw();
        // SAFETY: xprt_init initialised the lock; it is only taken in process context.
        unsafe { bindings::spin_lock(&raw mut (*xprt).bc_pa_lock) };
        // SAFETY: `bc_serv` is protected by `bc_pa_lock`, which is held.
        let has = unsafe { !(*xprt).bc_serv.is_null() };
        // SAFETY: taken above.
        unsafe { bindings::spin_unlock(&raw mut (*xprt).bc_pa_lock) };
        has
    }

    /// Runs `f` with the queue lock.
    pub(super) fn with_queue_lock<R>(&self, f: impl FnOnce(*mut bindings::rpc_xprt) -> R) -> R {
        let xprt = self.as_raw();
        // SAFETY: the core initialised the lock in xprt_alloc; it is a plain spinlock that is
        // only taken in process context.
        unsafe { bindings::spin_lock(&raw mut (*xprt).queue_lock) };
        let ret = f(xprt);
        // SAFETY: taken above.
        unsafe { bindings::spin_unlock(&raw mut (*xprt).queue_lock) };
        ret
    }

    /// Runs `f` with the transport lock.
    pub(super) fn with_transport_lock<R>(&self, f: impl FnOnce(*mut bindings::rpc_xprt) -> R) -> R {
        let xprt = self.as_raw();
        // SAFETY: as in `with_queue_lock`.
        unsafe { bindings::spin_lock(&raw mut (*xprt).transport_lock) };
        let ret = f(xprt);
        // SAFETY: taken above.
        unsafe { bindings::spin_unlock(&raw mut (*xprt).transport_lock) };
        ret
    }

    /// The counters that the core keeps, in the order of the `xprt:` line of mountstats.
    pub(crate) fn core_stats(&self) -> CoreStats {
        let idle = if self.connected() {
            // SAFETY: `jiffies` is a kernel global, read once.
            let now = unsafe { core::ptr::read_volatile(&raw const bindings::jiffies) };
            now.wrapping_sub(field!(self.last_used)) / bindings::HZ as usize
        } else {
            0
        };
        CoreStats {
            bind_count: field!(self.stat.bind_count),
            connect_count: field!(self.stat.connect_count),
            connect_time: field!(self.stat.connect_time) / bindings::HZ as usize,
            idle_time: idle,
            sends: field!(self.stat.sends),
            recvs: field!(self.stat.recvs),
            bad_xids: field!(self.stat.bad_xids),
            req_u: field!(self.stat.req_u),
            bklog_u: field!(self.stat.bklog_u),
        }
    }
}

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

/// A transport that the completion and event handlers of a `T` refer to.
///
/// # Invariants
///
/// The transport was set up for `T` and is alive: whoever keeps a handle belongs to that `T`,
/// which `destroy` drops, after its connection is torn down, before it frees the `Xprt`.
pub(crate) struct XprtHandle<T> {
    xprt: NonNull<Xprt>,
    _transport: PhantomData<fn() -> T>,
}

// SAFETY: `Xprt` is `Sync`.
unsafe impl<T> Send for XprtHandle<T> {}
// SAFETY: `Xprt` is `Sync`.
unsafe impl<T> Sync for XprtHandle<T> {}

impl<T> Clone for XprtHandle<T> {
    fn clone(&self) -> Self {
        // INVARIANT: that of `self`; both belong to the same `T`.
        Self {
            xprt: self.xprt,
            _transport: PhantomData,
        }
    }
}

impl<T: Transport> XprtHandle<T> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant.
    pub(super) unsafe fn new(xprt: NonNull<bindings::rpc_xprt>) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            xprt: xprt.cast(),
            _transport: PhantomData,
        }
    }

    /// Finds the request that waits for a reply with this XID and pins it.
    ///
    /// Context: process; takes the queue lock.
    pub(crate) fn lookup(&self, xid: u32) -> Option<PinnedRqst<T::Slot>> {
        let xid = u32::from_ne_bytes(xid.to_be_bytes());
        self.with_queue_lock(|xprt| {
            // SAFETY: the queue lock is held, as xprt_lookup_rqst demands.
            let rqst = NonNull::new(unsafe { bindings::xprt_lookup_rqst(xprt, xid) })?;
            // SAFETY: found under the queue lock, which is still held.
            unsafe { bindings::xprt_pin_rqst(rqst.as_ptr()) };
            // SAFETY: pinned just now. A request on the receive queue of a transport for `T` was
            // sent from one of its slots.
            Some(unsafe { PinnedRqst::from_pinned(rqst) })
        })
    }
}

impl<T> core::ops::Deref for XprtHandle<T> {
    type Target = Xprt;

    fn deref(&self) -> &Xprt {
        // SAFETY: alive by the type invariant.
        unsafe { self.xprt.as_ref() }
    }
}
