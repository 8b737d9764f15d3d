// SPDX-License-Identifier: GPL-2.0

//! The transport class, `struct xprt_class`: how the core finds us by name and by netid.

use super::instance::{
    Instance,
    Shared, //
};
use super::transport::Transport;
use super::{
    connect,
    credit,
    ops,
    XprtHandle, //
};
use crate::bindings;
use crate::sunrpc::address;
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
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Release, //
};
use kernel::types::Opaque;

/// Our netids. The core walks them until an empty string (xprt_class_find_by_netid_locked).
const NETIDS: [&CStr; 3] = [address::NETID, address::NETID6, c""];
kernel::static_assert!(NETIDS[NETIDS.len() - 1].is_empty());

/// `struct xprt_class` with room for our netids: in C the array is flexible.
#[repr(C)]
struct Class {
    class: bindings::xprt_class,
    netid: [*const kernel::ffi::c_char; NETIDS.len()],
}

kernel::static_assert!(
    core::mem::offset_of!(Class, netid) == core::mem::offset_of!(bindings::xprt_class, netid)
);

/// The registration of a transport class; dropping it unregisters the class.
///
/// Each transport holds a reference to the module, so no transport is left then.
pub(crate) struct Registration<T: Transport> {
    class: Pin<KBox<Opaque<Class>>>,
    _p: PhantomData<T>,
}

// SAFETY: the class is only read, but for its list head, which the core protects by
// `xprt_list_lock`.
unsafe impl<T: Transport> Send for Registration<T> {}
// SAFETY: a shared `Registration` gives out nothing; the core reads the class.
unsafe impl<T: Transport> Sync for Registration<T> {}

/// The registered class, for `setup`, which the core calls without it; null when there is none.
static CLASS: Atomic<*mut bindings::xprt_class> = Atomic::new(core::ptr::null_mut());

/// `setup` for the transports of type `T`.
struct Registered<T: Transport>(PhantomData<T>);

impl<T: Transport> Registration<T> {
    /// Registers `T` as transport class `rdma` with netids `rdma` and `rdma6`.
    ///
    /// # Errors
    ///
    /// `EEXIST`: another module has registered this class.
    pub(crate) fn new() -> Result<Self> {
        let mut class = bindings::xprt_class {
            ident: bindings::xprt_transports_XPRT_TRANSPORT_RDMA,
            setup: Some(Registered::<T>::setup_callback),
            owner: this_module(),
            ..Default::default()
        };
        for (to, from) in class.name.iter_mut().zip(c"rdma".to_bytes()) {
            *to = *from as kernel::ffi::c_char;
        }
        let class = KBox::pin(
            Opaque::new(Class {
                class,
                //= V1-115
                netid: NETIDS.map(CStr::as_char_ptr),
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

impl<T: Transport> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: registered in `new`. The core lets go of the class under `xprt_list_lock`.
        unsafe { bindings::xprt_unregister_transport(self.class.get().cast()) };
    }
}

impl<T: Transport> Registered<T> {
    /// Creates a transport.
    ///
    /// # Safety
    ///
    /// Called by xprt_create_transport only: `args` and what it points to are valid during the
    /// call, and the core holds a reference to the class' owner.
    unsafe extern "C" fn setup_callback(
        args: *mut bindings::xprt_create,
    ) -> *mut bindings::rpc_xprt {
        // SAFETY: valid during the call, and changed by nobody (rpc_create has it on its stack).
        let args = unsafe { &*args };
        match setup::<T>(args) {
            Ok(xprt) => xprt.as_ptr(),
            Err(error) => error.to_ptr(),
        }
    }
}

/// The parts of a half-made transport, undone unless everything succeeds.
struct Unfinished(NonNull<bindings::rpc_xprt>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // SAFETY: xprt_alloc zeroed the strings, and nobody else knows of the transport yet.
        unsafe { address::free_strings(self.0.as_ptr()) };
        // SAFETY: allocated by xprt_alloc, and known to nobody else.
        unsafe { bindings::xprt_free(self.0.as_ptr()) };
    }
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

fn setup<T: Transport>(args: &bindings::xprt_create) -> Result<NonNull<bindings::rpc_xprt>> {
    // SAFETY: `dstaddr` points to an address of `addrlen` bytes (rpc_create, xprt_create).
    let family = unsafe { (*args.dstaddr).sa_family };
    if args.addrlen > core::mem::size_of::<bindings::__kernel_sockaddr_storage>() {
        return Err(EBADF);
    }
    let module = ModuleRef::get()?;
    let slots = T::slot_count();
    // SAFETY: `net` is valid during the call; the transport takes a reference of its own.
    let xprt =
        unsafe { bindings::xprt_alloc(args.net, core::mem::size_of::<Instance<T>>(), 0, slots) };
    let xprt = from_err_ptr(xprt)?;
    let xprt = NonNull::new(xprt).ok_or(ENOMEM)?;
    let unfinished = Unfinished(xprt);
    let raw = xprt.as_ptr();

    set! { raw,
        ops: ops::VTable::<T>::get(),
        xprt_class: CLASS.load(Acquire),
        timeout: connect::default_timeout(),
        connect_timeout: connect::TIMEOUT,
        max_reconnect_timeout: connect::TIMEOUT,
        bind_timeout: connect::BIND_TIMEOUT,
        reestablish_timeout: connect::FIRST_BACKOFF,
        idle_timeout: connect::IDLE_TIMEOUT,
        // Side protocols that look at the transport's address shall use TCP.
        prot: bindings::IPPROTO_TCP as i32,
        max_payload: T::MAX_PAYLOAD,
        addrlen: args.addrlen,
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
    // SAFETY: `dstaddr` is of a family that has a port, as `format_strings` has seen.
    if unsafe { bindings::rpc_get_port(args.dstaddr) } != 0 {
        // SAFETY: an atomic operation on `state` of the new transport.
        unsafe { bindings::xprt_set_bound(raw) };
    }

    let this: *mut Instance<T> = raw.cast();
    // SAFETY: xprt_alloc allocated an `Instance<T>`, which stays where it is.
    unsafe { connect::init_work::<T>(this) };
    // SAFETY: xprt_alloc allocated an `Instance<T>`, which stays where it is.
    unsafe { credit::init(&raw mut (*this).xprt) };
    // SAFETY: the transport is valid from here on; `destroy` drops the `T` before it frees it.
    let transport = T::create(unsafe { XprtHandle::new(xprt) })?;
    // SAFETY: `id` is set by xprt_alloc and never changes.
    let id = unsafe { (*raw).id };
    let shared = Shared::new(transport, slots, id)?;
    // SAFETY: nobody else knows of the transport.
    unsafe { Instance::provide(this, shared) };

    core::mem::forget(unfinished);
    module.keep();
    Ok(xprt)
}
