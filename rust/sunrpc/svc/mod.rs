// SPDX-License-Identifier: GPL-2.0

//! The server's transport switch: `struct svc_xprt` and the objects around it.
//!
//! - [`class`]: the transport class that the core finds by name
//! - [`ops`]: the core's operations
//! - [`rqst`]: a request of a server thread, and the pages that go in and out of it
//! - [`backchannel`]: Calls to the client
//!
//! This file has the transport itself, of either kind: a listening transport, and a transport for each
//! client. The core counts references to it. We hold the initial reference, which the core takes over;
//! handles hold no reference ([`SvcHandle`]).
//!
//! # Threads
//!
//! A thread of the service owns a transport (`XPT_BUSY`) from the time when the core gives it the transport
//! until [`ops`] calls svc_xprt_received(). [`ops`] does that as soon as a piece of work is taken from the
//! transport, so threads handle many Calls of one client at a time.

use crate::{
    bindings,
    sunrpc::xdr_buf::CallBuf,
    support::{
        foreign::Lent,
        net::{
            Net,
            SockAddr, //
        },
        racy::full_barrier, //
    },
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    types::Opaque, //
};
use rqst::{
    Delivered,
    SvcReply,
    SvcRqst, //
};

pub(crate) mod backchannel;
pub(crate) mod class;
pub(crate) mod ops;
pub(crate) mod rqst;

/// A kind of server transport.
pub(crate) trait Service: Sized + Send + Sync + 'static {
    /// A listening transport.
    type Listener: Listener<Request = Self::Request>;
    /// A client that wants to connect.
    type Request: Send;
    /// A client that is connected. Dropping it ends the connection: afterwards the handle that it was made
    /// with is not used.
    type Connection: SvcConnection;

    /// The most bytes of data in one RPC.
    const MAX_PAYLOAD: u32;

    /// Listens at `address`. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// The error with which the creation of the listener fails.
    fn listen(xprt: SvcHandle, net: Net, address: SockAddr) -> Result<Self::Listener>;

    /// Accepts a client of `service`. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// The error with which the client is refused.
    fn accept(
        xprt: SvcHandle,
        request: Self::Request,
        service: &ServiceFacts,
    ) -> Result<(Self::Connection, Addresses)>;
}

/// A service, when it accepts a client.
pub(crate) struct ServiceFacts {
    /// The most bytes of its RPC messages.
    pub(crate) most: u32,
    /// The number of its threads, which may change.
    pub(crate) threads: u32,
}

/// The addresses of both ends of a connection.
pub(crate) struct Addresses {
    /// This side's address.
    pub(crate) local: SockAddr,
    /// The peer's address.
    pub(crate) peer: SockAddr,
}

/// A transport that listens for clients.
pub(crate) trait Listener: Send + Sync {
    /// A client that wants to connect.
    type Request;

    /// Returns the address, with the assigned port.
    fn address(&self) -> SockAddr;

    /// Takes the client that waits longest. Context: process, does not sleep.
    fn next(&self) -> Option<Self::Request>;

    /// Ends it: no client is taken any more. Context: process, may sleep.
    fn detach(&self);
}

/// The work that a thread takes from a connection.
pub(crate) struct NextWork<W> {
    /// A piece of work, if there is any.
    pub(crate) work: Option<W>,
    /// There is more.
    pub(crate) more: bool,
}

/// A client that the server can call.
pub(crate) trait Called {
    /// Sends a Call to the client, which is small. `alone` says whether no other waits for its
    /// Reply: it takes the transport lock. Context: process, may sleep. Does not wait for the
    /// client.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`: not now, or the connection ends. `EPERM`: not on this connection.
    fn call(&self, xid: u32, call: &CallBuf<'_>, alone: impl FnOnce() -> bool) -> Result;
}

/// A connected client.
pub(crate) trait SvcConnection: Called + Send + Sync {
    /// A Call, while the core works on it.
    type Call: Lent;
    /// A piece of work for a thread.
    type Work;

    /// Takes the next piece of work. Context: process, does not sleep.
    fn next(&self) -> NextWork<Self::Work>;

    /// Does a piece of work as far as possible without waiting for the peer. Context: process, may sleep.
    fn work(&self, work: Self::Work, rqst: SvcRqst<'_, Self::Call>) -> Delivered;

    /// Notes that the bytes `offset..offset + len` of the Reply are a result that may be moved directly.
    ///
    /// # Errors
    ///
    /// The Reply cannot have it.
    fn result(&self, call: &mut Self::Call, offset: u32, len: u32) -> Result;

    /// Sends the Reply. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// The connection ends.
    fn reply(&self, reply: SvcReply<'_, Self::Call>) -> Result;

    /// Drops a Call that the core has not answered. Context: process, may sleep.
    fn drop_call(&self, call: Self::Call);

    /// Returns whether another Call may be begun. Context: any.
    fn has_space(&self) -> bool;

    /// Begins to end the connection. Context: process, may sleep.
    fn detach(&self);
}

/// A transport, as we allocate it.
#[repr(C)]
struct SvcInstance<T: Service> {
    xprt: Opaque<bindings::svc_xprt>,
    /// The listener or the connection. Set before the transport is published; `None` while it is made.
    part: Option<SvcPart<T>>,
}

/// The kinds of transports.
enum SvcPart<T: Service> {
    Listener(T::Listener),
    Connection(T::Connection),
}

impl<T: Service> SvcInstance<T> {
    /// Returns the listener or connection of a transport that the core passed to one of our operations.
    ///
    /// # Safety
    ///
    /// `xprt` must be embedded in an `SvcInstance<T>` that is made completely, and not freed for `'a`.
    unsafe fn part<'a>(xprt: *mut bindings::svc_xprt) -> Option<&'a SvcPart<T>> {
        let this: *const Self = xprt.cast();
        // SAFETY: `xprt` is the first field, by the caller's promise; the part is not changed
        // once the transport is made.
        unsafe { (*this).part.as_ref() }
    }
}

/// A handle of a transport, for reporting its events.
///
/// # Invariants
///
/// The transport is alive: the owner of a handle belongs to the part of the [`SvcInstance`], which is dropped
/// before the instance is freed, or does not use the handle any more from then on.
#[derive(Clone)]
pub(crate) struct SvcHandle(NonNull<bindings::svc_xprt>);

// SAFETY: the core's functions that are called here take locks of their own, or are atomic.
unsafe impl Send for SvcHandle {}
// SAFETY: the core's functions that are called here take locks of their own, or are atomic.
unsafe impl Sync for SvcHandle {}

impl SvcHandle {
    pub(super) fn as_raw(&self) -> *mut bindings::svc_xprt {
        self.0.as_ptr()
    }

    /// Wakes a thread of the service, because there is work. Context: process, does not sleep.
    pub(crate) fn work_pending(&self) {
        self.note_work();
        self.enqueue();
    }

    /// Notes that there is work for a thread of the service, for which [`Self::enqueue`] asks. Context: any.
    pub(crate) fn note_work(&self) {
        self.set(bindings::XPT_DATA);
    }

    /// Wakes a thread of the service, because a client wants to connect. Context: process, does not sleep.
    pub(crate) fn connection_pending(&self) {
        self.set(bindings::XPT_CONN);
        self.enqueue();
    }

    /// Makes a thread of the service end the connection. Context: process, does not sleep.
    pub(crate) fn close(&self) {
        // SAFETY: alive by the type invariant; sets a flag and queues the transport.
        unsafe { bindings::svc_xprt_deferred_close(self.as_raw()) };
    }

    fn set(&self, flag: u32) {
        // SAFETY: alive by the type invariant; an atomic operation on `xpt_flags`.
        unsafe { bindings::rpcrdma_svc_xprt_set_flag(self.as_raw(), flag) };
    }

    /// Asks for a thread of the service, if there is work for one and the connection [has
    /// space](SvcConnection::has_space). Context: process, does not sleep.
    ///
    /// A task that changes a flag of the transport at the same time asks for a thread, too. Either this call sees the
    /// flag, or that task sees the stores before this call when it asks whether the connection has space.
    pub(crate) fn enqueue(&self) {
        // Between the stores and the read of the flags in svc_xprt_ready(), as in svc_xprt_resource_released(). Pairs
        // with the barrier of `ops::SvcVTable::has_wspace_callback`.
        full_barrier();
        // SAFETY: alive by the type invariant; a transport that is dead stays busy, and is not
        // queued any more.
        unsafe { bindings::svc_xprt_enqueue(self.as_raw()) };
    }
}
