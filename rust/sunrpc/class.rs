// SPDX-License-Identifier: GPL-2.0

//! The transport class: how the core finds us by name and by netid.

use super::ops::Transport;
use super::xprt::{
    Shared,
    XprtBox,
    XprtHandle, //
};
use super::{
    address,
    connect,
    ops, //
};
use crate::bindings;
use crate::support::errno;
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

/// `struct xprt_class` with room for our netids: in C the array is flexible.
///
/// The core walks the array until an empty string, so there must be one.
#[repr(C)]
struct Class {
    class: bindings::xprt_class,
    netid: [*const kernel::ffi::c_char; 3],
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

// SAFETY: the class is only read, but for its list head, which the core protects by its own lock.
unsafe impl<T: Transport> Send for Registration<T> {}
// SAFETY: as above.
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
                netid: [
                    address::NETID.as_char_ptr(),
                    address::NETID6.as_char_ptr(),
                    c"".as_char_ptr(),
                ],
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
        // SAFETY: registered in `new`. The core drops references to the class under its lock.
        unsafe { bindings::xprt_unregister_transport(self.class.get().cast()) };
    }
}

impl<T: Transport> Registered<T> {
    /// Creates a transport.
    ///
    /// # Safety
    ///
    /// Called by xprt_create_transport only, which passes valid arguments and holds a reference
    /// to the class' owner.
    unsafe extern "C" fn setup_callback(
        args: *mut bindings::xprt_create,
    ) -> *mut bindings::rpc_xprt {
        // SAFETY: valid for the duration of the call.
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
        // SAFETY: nobody else knows of the transport yet.
        unsafe { address::free_strings(self.0.as_ptr()) };
        // SAFETY: as above; allocated by xprt_alloc.
        unsafe { bindings::xprt_free(self.0.as_ptr()) };
    }
}

fn setup<T: Transport>(args: &bindings::xprt_create) -> Result<NonNull<bindings::rpc_xprt>> {
    // SAFETY: the core passes a valid address of `addrlen` bytes.
    let family = unsafe { (*args.dstaddr).sa_family };
    if args.addrlen > core::mem::size_of::<bindings::__kernel_sockaddr_storage>() {
        return Err(EBADF);
    }
    let module = ModuleRef::get()?;
    let slots = T::slot_count();
    // SAFETY: allocates and initialises; the net namespace is valid.
    let xprt =
        unsafe { bindings::xprt_alloc(args.net, core::mem::size_of::<XprtBox<T>>(), 0, slots) };
    let xprt = from_err_ptr(xprt)?;
    let xprt = NonNull::new(xprt).ok_or(ENOMEM)?;
    let unfinished = Unfinished(xprt);
    let raw = xprt.as_ptr();

    // SAFETY: nobody else knows of the transport yet, so all of it is ours to write.
    let fields = unsafe { &mut *raw };
    fields.ops = ops::VTable::<T>::get();
    fields.xprt_class = CLASS.load(Acquire);
    fields.timeout = connect::default_timeout();
    fields.connect_timeout = connect::TIMEOUT;
    fields.max_reconnect_timeout = connect::TIMEOUT;
    fields.bind_timeout = connect::BIND_TIMEOUT;
    fields.reestablish_timeout = connect::FIRST_BACKOFF;
    fields.idle_timeout = connect::IDLE_TIMEOUT;
    // Side protocols that look at the transport's address shall use TCP.
    fields.prot = bindings::IPPROTO_TCP as i32;
    fields.max_payload = T::MAX_PAYLOAD;
    fields.addrlen = args.addrlen;
    // SAFETY: both have `addrlen` bytes, checked above, and do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(
            args.dstaddr.cast::<u8>(),
            (&raw mut (*raw).addr).cast::<u8>(),
            args.addrlen,
        )
    };
    // SAFETY: the address was copied and the strings are still empty.
    unsafe { address::format_strings(raw, family) }?;
    // SAFETY: the address was copied.
    if unsafe { bindings::rpc_get_port(args.dstaddr) } != 0 {
        // SAFETY: the transport is valid.
        unsafe { bindings::xprt_set_bound(raw) };
    }

    let this: *mut XprtBox<T> = raw.cast();
    // SAFETY: the memory is large enough for an `XprtBox<T>` and pinned; the work is uninitialised.
    unsafe { connect::init_work::<T>(this) };
    // SAFETY: valid from here on; `destroy` drops the transport before it frees this.
    let transport = T::create(unsafe { XprtHandle::new(xprt) })?;
    let slots = super::slot::SlotTable::new(slots, T::new_slot)?;
    let shared = KBox::try_pin_init(
        try_pin_init!(Shared {
            slots <- slots,
            transport,
        }? Error),
        GFP_KERNEL,
    )?;
    // SAFETY: the object is not moved out of the box: it is only borrowed until `destroy`.
    let shared = KBox::into_raw(unsafe { Pin::into_inner_unchecked(shared) });
    // SAFETY: as for the other fields.
    unsafe { (*this).shared = shared };

    core::mem::forget(unfinished);
    module.keep();
    Ok(xprt)
}

/// Our own module.
fn this_module() -> *mut bindings::module {
    // SAFETY: has no preconditions.
    unsafe { bindings::this_module() }
}

/// A reference to our module, which every transport keeps.
pub(super) struct ModuleRef(*mut bindings::module);

impl ModuleRef {
    fn get() -> Result<Self> {
        // SAFETY: our own module is valid while its code runs.
        if unsafe { bindings::try_module_get(this_module()) } {
            Ok(Self(this_module()))
        } else {
            Err(EIO)
        }
    }

    fn keep(self) {
        core::mem::forget(self);
    }

    /// Takes back the reference that a transport kept.
    ///
    /// # Safety
    ///
    /// To be called once for each [`Self::keep`].
    pub(super) unsafe fn kept() -> Self {
        Self(this_module())
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: a reference was taken.
        unsafe { bindings::module_put(self.0) };
    }
}

/// The address family is none that RDMA can reach.
pub(super) fn bad_family() -> Error {
    pr_err!("the server's address is neither IPv4 nor IPv6\n");
    errno::protocol()
}
