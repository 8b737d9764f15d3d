// SPDX-License-Identifier: GPL-2.0

//! The operations of a server transport, `struct svc_xprt_ops`.
//!
//! All are called in process context and may sleep, but for `xpo_has_wspace`.

use super::{
    class::registered,
    rqst::{
        with_call,
        SvcReply,
        SvcRqst, //
    },
    Listener,
    Service,
    ServiceFacts,
    SvcConnection,
    SvcHandle,
    SvcInstance,
    SvcPart, //
};
use crate::{
    bindings,
    support::{
        foreign::Lent,
        module::ModuleRef,
        net::{
            Net,
            SockAddr, //
        },
        racy::full_barrier, //
    },
};
use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    ffi::{
        c_int,
        c_uint,
        c_void, //
    },
    prelude::*,
    types::Opaque, //
};

/// The operations of `T`.
pub(super) struct SvcVTable<T: Service>(PhantomData<T>);

/// The type of a Call of a connection of `T`.
type CallOf<T> = <<T as Service>::Connection as SvcConnection>::Call;

impl<T: Service> SvcVTable<T> {
    const OPS: bindings::svc_xprt_ops = bindings::svc_xprt_ops {
        xpo_create: Some(Self::create_callback),
        xpo_accept: Some(Self::accept_callback),
        xpo_has_wspace: Some(Self::has_wspace_callback),
        xpo_recvfrom: Some(Self::recvfrom_callback),
        xpo_sendto: Some(Self::sendto_callback),
        xpo_result_payload: Some(Self::result_payload_callback),
        xpo_release_ctxt: Some(Self::release_ctxt_callback),
        xpo_detach: Some(Self::detach_callback),
        xpo_free: Some(Self::free_callback),
        xpo_kill_temp_xprt: Some(Self::kill_temp_xprt_callback),
        xpo_handshake: None,
    };

    /// Returns the table of operations for `svc_xprt_class`.
    pub(super) fn get() -> *const bindings::svc_xprt_ops {
        &Self::OPS
    }

    /// # Safety
    ///
    /// Called by _svc_xprt_create(): the arguments are valid during the call, and the core has
    /// taken a reference to the module for the transport.
    unsafe extern "C" fn create_callback(
        serv: *mut bindings::svc_serv,
        net: *mut bindings::net,
        address: *mut bindings::sockaddr,
        len: c_int,
        _flags: c_int,
    ) -> *mut bindings::svc_xprt {
        // SAFETY: valid during the call; an address has `len` bytes.
        let result = unsafe { create::<T>(serv, net, address, len) };
        result.unwrap_or_else(|error| error.to_ptr())
    }

    /// # Safety
    ///
    /// Called by svc_handle_xprt() with a listener of `T` that the thread has for itself
    /// (`XPT_BUSY`), and a reference to the module for the transport to come.
    unsafe extern "C" fn accept_callback(xprt: *mut bindings::svc_xprt) -> *mut bindings::svc_xprt {
        // SAFETY: svc_handle_xprt() calls with a listener of ours, to which the thread has a reference.
        let Some(SvcPart::Listener(listener)) = (unsafe { SvcInstance::<T>::part(xprt) }) else {
            return null_mut();
        };
        // A connect request from here on sets the flag again.
        // SAFETY: alive during the call; an atomic operation on `xpt_flags`.
        unsafe { bindings::rpcrdma_svc_xprt_clear_flag(xprt, bindings::XPT_CONN) };
        let Some(request) = listener.next() else {
            return null_mut();
        };
        // SAFETY: alive during the call; an atomic operation on `xpt_flags`. If no other client waits, the
        // thread that comes finds none.
        unsafe { bindings::rpcrdma_svc_xprt_set_flag(xprt, bindings::XPT_CONN) };
        // SAFETY: set by svc_xprt_init() and constant.
        let (serv, net) = unsafe { ((*xprt).xpt_server, (*xprt).xpt_net) };
        // SAFETY: the listener keeps `xpt_server` and `xpt_net`, as svc_xprt_init() has set them.
        unsafe { accept::<T>(serv, net, request) }.unwrap_or(null_mut())
    }

    /// # Safety
    ///
    /// Called by svc_handle_xprt() with the thread's own request, for a connection of `T` that the
    /// thread has for itself (`XPT_BUSY`).
    unsafe extern "C" fn recvfrom_callback(rqst: *mut bindings::svc_rqst) -> c_int {
        // SAFETY: the thread's own request. `rq_xprt` is set from svc_xprt_dequeue() to svc_xprt_release().
        let xprt = unsafe { (*rqst).rq_xprt };
        // SAFETY: `rq_xprt` is a transport of ours, to which svc_xprt_dequeue() has taken a reference for the
        // thread.
        let part = unsafe { SvcInstance::<T>::part(xprt) };
        let (Some(SvcPart::Connection(connection)), Some(rqst)) = (part, NonNull::new(rqst)) else {
            return 0;
        };
        // SAFETY: the thread's own request; no other `SvcRqst` of it exists.
        let rqst = unsafe { SvcRqst::from_raw(rqst) };
        // Work that is not found below sets the flag again. The flag is cleared first, so that no other thread
        // is woken without work.
        // SAFETY: alive during the call; an atomic operation on `xpt_flags`.
        unsafe { bindings::rpcrdma_svc_xprt_clear_flag(xprt, bindings::XPT_DATA) };
        let next = connection.next();
        if next.more {
            // SAFETY: alive during the call; an atomic operation on `xpt_flags`.
            unsafe { bindings::rpcrdma_svc_xprt_set_flag(xprt, bindings::XPT_DATA) };
        }
        // SAFETY: XPT_BUSY gives the thread the transport for itself until here. `rq_xprt` keeps a reference, so
        // the transport stays, and only functions for several threads are called from now on.
        unsafe { bindings::svc_xprt_received(xprt) };
        match next.work {
            Some(work) => connection.work(work, rqst).len() as c_int,
            None => 0,
        }
    }

    /// # Safety
    ///
    /// Called by svc_send() with the thread's own request, after a Call of `T` was delivered to it
    /// and its Reply is complete.
    unsafe extern "C" fn sendto_callback(rqst: *mut bindings::svc_rqst) -> c_int {
        // SAFETY: the thread's own request. `rq_xprt` is set from svc_xprt_dequeue() to svc_xprt_release().
        let xprt = unsafe { (*rqst).rq_xprt };
        // SAFETY: `rq_xprt` is a transport of ours, to which svc_xprt_dequeue() has taken a reference for the
        // thread.
        let part = unsafe { SvcInstance::<T>::part(xprt) };
        let (Some(SvcPart::Connection(connection)), Some(rqst)) = (part, NonNull::new(rqst)) else {
            return ENOTCONN;
        };
        // SAFETY: the thread's own request. `rq_xprt_ctxt` is a Call that was delivered.
        let reply = unsafe { SvcReply::from_raw(rqst) };
        match connection.reply(reply) {
            Ok(()) => 0,
            Err(_) => ENOTCONN,
        }
    }

    /// # Safety
    ///
    /// Called by svc_encode_result_payload() with the thread's own request, after a Call of `T` was
    /// delivered to it, while its Reply is made.
    unsafe extern "C" fn result_payload_callback(
        rqst: *mut bindings::svc_rqst,
        offset: c_uint,
        len: c_uint,
    ) -> c_int {
        // SAFETY: the thread's own request. `rq_xprt` is set from svc_xprt_dequeue() to svc_xprt_release().
        let (xprt, call) = unsafe { ((*rqst).rq_xprt, (*rqst).rq_xprt_ctxt) };
        // SAFETY: `rq_xprt` is a transport of ours, to which svc_xprt_dequeue() has taken a reference for the
        // thread.
        let part = unsafe { SvcInstance::<T>::part(xprt) };
        let (Some(SvcPart::Connection(connection)), Some(call)) = (part, NonNull::new(call)) else {
            return 0;
        };
        let result = |call: &mut CallOf<T>| connection.result(call, offset, len);
        // SAFETY: `rq_xprt_ctxt` is a Call of ours, which the thread alone uses.
        match unsafe { with_call(call, result) } {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by svc_xprt_release() and free_deferred() with the value of `rq_xprt_ctxt`, which is not used
    /// any more.
    unsafe extern "C" fn release_ctxt_callback(xprt: *mut bindings::svc_xprt, call: *mut c_void) {
        let Some(call) = NonNull::new(call) else {
            return;
        };
        // SAFETY: svc_xprt_release() and free_deferred() pass a value of `rq_xprt_ctxt` once; no other code has the
        // Call.
        let call = unsafe { CallOf::<T>::from_ptr(call) };
        // SAFETY: svc_xprt_release() and free_deferred() call with a transport of ours to which they have a
        // reference.
        if let Some(SvcPart::Connection(connection)) = unsafe { SvcInstance::<T>::part(xprt) } {
            connection.drop_call(call);
        }
    }

    /// # Safety
    ///
    /// Called by svc_xprt_ready() with a transport of `T`.
    unsafe extern "C" fn has_wspace_callback(xprt: *mut bindings::svc_xprt) -> c_int {
        // SAFETY: svc_xprt_ready() calls with a transport of ours to which its caller has a reference.
        match unsafe { SvcInstance::<T>::part(xprt) } {
            Some(SvcPart::Connection(connection)) if !connection.has_space() => {
                // The caller may have changed a flag, which smp_rmb() of svc_xprt_ready() does not order before
                // this load. Without the barrier, space that came meanwhile is not seen, and the task that gave the
                // space may not have seen the flag. Pairs with the barrier of `SvcHandle::enqueue`.
                full_barrier();
                connection.has_space().into()
            }
            _ => 1,
        }
    }

    /// # Safety
    ///
    /// Called by svc_delete_xprt(), once, with a transport of `T` that the caller has for itself.
    unsafe extern "C" fn detach_callback(xprt: *mut bindings::svc_xprt) {
        // SAFETY: svc_delete_xprt() calls with a transport of ours, whose reference it puts afterwards.
        match unsafe { SvcInstance::<T>::part(xprt) } {
            Some(SvcPart::Connection(connection)) => connection.detach(),
            Some(SvcPart::Listener(listener)) => listener.detach(),
            None => {}
        }
    }

    /// # Safety
    ///
    /// Called by svc_xprt_free(), once, when there is no reference to the transport any more. The
    /// core does not touch it afterwards.
    unsafe extern "C" fn free_callback(xprt: *mut bindings::svc_xprt) {
        // SAFETY: made by `Unfinished::new` as a box, and the core gives it back.
        let mut this = unsafe { KBox::from_raw(xprt.cast::<SvcInstance<T>>()) };
        // The source of events is dropped before the transport that gets the events.
        this.part = None;
    }

    /// # Safety
    ///
    /// Called by svc_handle_xprt() before it deletes a transport whose address has gone.
    unsafe extern "C" fn kill_temp_xprt_callback(_xprt: *mut bindings::svc_xprt) {
        // A connection ends at once anyway.
    }
}

/// The return value of sendto without a connection; the core only traces it.
const ENOTCONN: c_int = -(bindings::ENOTCONN as c_int);

/// A transport that is being made. Dropping it undoes that.
struct Unfinished<T: Service>(NonNull<SvcInstance<T>>);

impl<T: Service> Unfinished<T> {
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    ///
    /// # Safety
    ///
    /// `net` and `serv` must be valid. The core must have a reference to the module for the
    /// transport.
    unsafe fn new(serv: *mut bindings::svc_serv, net: *mut bindings::net) -> Result<Self> {
        let instance = KBox::new(
            SvcInstance::<T> {
                xprt: Opaque::zeroed(),
                part: None,
            },
            GFP_KERNEL,
        )?;
        let instance = NonNull::from(KBox::leak(instance));
        let xprt = instance.as_ptr().cast();
        // SAFETY: service and namespace are valid, by the caller's promise; the memory is a
        // `svc_xprt` that is not published. Takes a reference to the namespace.
        unsafe { bindings::svc_xprt_init(net, registered(), xprt, serv) };
        // NFSv4 requires a transport with congestion control, as RDMA transports are (RFC 7530, 3.1).
        // SAFETY: initialised just now; an atomic operation on `xpt_flags`.
        unsafe { bindings::rpcrdma_svc_xprt_set_flag(xprt, bindings::XPT_CONG_CTRL) };
        Ok(Self(instance))
    }

    fn as_raw(&self) -> *mut bindings::svc_xprt {
        self.0.as_ptr().cast()
    }

    fn handle(&self) -> SvcHandle {
        // INVARIANT: for the part that is about to be made, which is dropped before the transport.
        SvcHandle(self.0.cast())
    }

    /// Completes the transport.
    fn finish(self, part: SvcPart<T>) -> *mut bindings::svc_xprt {
        let xprt = self.as_raw();
        // SAFETY: the core does not know of the transport yet, and events do not look at the part.
        unsafe { (*self.0.as_ptr()).part = Some(part) };
        core::mem::forget(self);
        xprt
    }
}

impl<T: Service> Drop for Unfinished<T> {
    fn drop(&mut self) {
        // The core gives back its reference to the module when it hears of the failure, and
        // svc_xprt_free() one more.
        if let Ok(module) = ModuleRef::get() {
            module.keep();
        }
        // SAFETY: the reference that svc_xprt_init() has made is the only one.
        unsafe { bindings::svc_xprt_put(self.as_raw()) };
    }
}

/// Makes a listener.
///
/// # Errors
///
/// The error of [`Service::listen`], or `ENOMEM`: there is no memory.
///
/// # Safety
///
/// The arguments must be valid, and `address` have `len` bytes. The core must have a reference to
/// the module for the transport.
unsafe fn create<T: Service>(
    serv: *mut bindings::svc_serv,
    net: *mut bindings::net,
    address: *mut bindings::sockaddr,
    len: c_int,
) -> Result<*mut bindings::svc_xprt> {
    let mut storage = bindings::__kernel_sockaddr_storage::default();
    let len = usize::try_from(len)?.min(size_of_val(&storage));
    // SAFETY: an address has `len` bytes, by the caller's promise, and there is room for them.
    unsafe {
        core::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut storage).cast::<u8>(), len)
    };
    // SAFETY: promised by the caller.
    let unfinished = unsafe { Unfinished::<T>::new(serv, net) }?;
    // SAFETY: svc_xprt_init() took a reference, which the transport keeps.
    let net = unsafe { Net::new(NonNull::new(net).ok_or(EINVAL)?) };
    let listener = T::listen(unfinished.handle(), net, SockAddr::new(storage))?;
    let mut address = listener.address();
    // SAFETY: svc_xprt_init() has initialised the transport, which is not published yet. The helper copies the
    // address.
    unsafe { bindings::rpcrdma_svc_xprt_listens(unfinished.as_raw(), address.as_raw()) };
    Ok(unfinished.finish(SvcPart::Listener(listener)))
}

/// Makes the transport of a client.
///
/// # Errors
///
/// The error of [`Service::accept`], or `ENOMEM`: there is no memory.
///
/// # Safety
///
/// `serv` and `net` must be valid. The core must have a reference to the module for the transport.
unsafe fn accept<T: Service>(
    serv: *mut bindings::svc_serv,
    net: *mut bindings::net,
    request: T::Request,
) -> Result<*mut bindings::svc_xprt> {
    // SAFETY: promised by the caller.
    let unfinished = unsafe { Unfinished::<T>::new(serv, net) }?;
    let facts = ServiceFacts {
        // SAFETY: the service is valid. __svc_create() has set `sv_max_mesg`.
        most: unsafe { (*serv).sv_max_mesg },
        // SAFETY: the service is valid. __svc_create() has set `sv_pools`, which has at least one pool.
        threads: unsafe { bindings::rpcrdma_svc_threads(serv) },
    };
    let (connection, mut who) = T::accept(unfinished.handle(), request, &facts)?;
    // SAFETY: svc_xprt_init() has initialised the transport, and no thread knows it yet. The helper copies the
    // addresses.
    unsafe {
        bindings::rpcrdma_svc_xprt_connects(
            unfinished.as_raw(),
            who.local.as_raw(),
            who.peer.as_raw(),
        )
    };
    Ok(unfinished.finish(SvcPart::Connection(connection)))
}
