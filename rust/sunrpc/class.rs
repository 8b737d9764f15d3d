// SPDX-License-Identifier: GPL-2.0

//! Classes of `struct rpc_xprt`, `struct xprt_class`: the registration by name and by netid, and the creation and
//! the end of transports.

use crate::{
    bindings,
    sunrpc::address,
    support::module::{
        this_module,
        ModuleRef, //
    },
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::{
        c_char,
        c_int, //
    },
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    types::Opaque, //
};

/// Netids of a class. The core walks them until an empty one (xprt_class_find_by_netid_locked).
pub(super) type Netids = [&'static CStr; 3];

/// The registered class, for new transports. It is valid as long as the registration lives, and not used
/// at other times.
pub(super) type RegisteredClass = Atomic<*mut bindings::xprt_class>;

/// A kind of transport.
pub(crate) trait Class {
    /// `enum xprt_transports`.
    const IDENT: c_int;
    /// The name of the class.
    const NAME: &'static CStr;
    /// By which mounts name it.
    const NETIDS: Netids;

    /// Returns the place of the registered class.
    fn registered() -> &'static RegisteredClass;

    /// Makes a transport. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// The error with which the creation of the transport fails.
    fn setup(args: &bindings::xprt_create) -> Result<NewXprt>;
}

/// `struct xprt_class` with room for our netids: in C the array is flexible.
#[repr(C)]
struct ClassWithNetids {
    class: bindings::xprt_class,
    netid: [*const c_char; size_of::<Netids>() / size_of::<&CStr>()],
}

kernel::static_assert!(
    core::mem::offset_of!(ClassWithNetids, netid)
        == core::mem::offset_of!(bindings::xprt_class, netid)
);

/// The registration of a class; dropping it unregisters the class.
///
/// Each transport holds a reference to the module, so no transport is left then.
pub(crate) struct ClassRegistration<C: Class> {
    class: Pin<KBox<Opaque<ClassWithNetids>>>,
    _p: PhantomData<C>,
}

// SAFETY: the class is only read, but for its list head, which the core protects by
// `xprt_list_lock`.
unsafe impl<C: Class> Send for ClassRegistration<C> {}
// SAFETY: a shared `ClassRegistration` gives out nothing; the core reads the class.
unsafe impl<C: Class> Sync for ClassRegistration<C> {}

impl<C: Class> ClassRegistration<C> {
    /// Registers the class.
    ///
    /// # Errors
    ///
    /// `EEXIST`: another module has registered it.
    pub(crate) fn new() -> Result<Self> {
        const { assert!(C::NETIDS[C::NETIDS.len() - 1].is_empty()) };
        let mut class = bindings::xprt_class {
            ident: C::IDENT,
            setup: Some(setup_callback::<C>),
            owner: this_module(),
            ..Default::default()
        };
        for (to, from) in class.name.iter_mut().zip(C::NAME.to_bytes()) {
            *to = *from as c_char;
        }
        let class = KBox::pin(
            Opaque::new(ClassWithNetids {
                class,
                netid: C::NETIDS.map(CStr::as_char_ptr),
            }),
            GFP_KERNEL,
        )?;
        let raw: *mut bindings::xprt_class = class.get().cast();
        // SAFETY: `xprt_class.list` is part of pinned memory that lives until xprt_unregister_transport().
        unsafe { bindings::INIT_LIST_HEAD(&raw mut (*raw).list) };
        // Before the core knows the class, since it may call `setup` at once.
        C::registered().store(raw, Release);
        // SAFETY: the class is complete. `drop` calls xprt_unregister_transport() before the class goes.
        to_result(unsafe { bindings::xprt_register_transport(raw) })?;
        Ok(Self {
            class,
            _p: PhantomData,
        })
    }
}

impl<C: Class> Drop for ClassRegistration<C> {
    fn drop(&mut self) {
        // SAFETY: registered in `new`. The core lets go of the class under `xprt_list_lock`.
        unsafe { bindings::xprt_unregister_transport(self.class.get().cast()) };
    }
}

/// # Safety
///
/// Called by xprt_create_transport() only: `args` and the data behind it are valid during the call,
/// and the core holds a reference to the class' owner.
unsafe extern "C" fn setup_callback<C: Class>(
    args: *mut bindings::xprt_create,
) -> *mut bindings::rpc_xprt {
    // SAFETY: valid and constant during the call (rpc_create has it on its stack).
    match C::setup(unsafe { &*args }) {
        Ok(new) => new.finish().as_ptr(),
        Err(error) => error.to_ptr(),
    }
}

/// Sets fields of a transport that is not published yet.
macro_rules! set {
    ($raw:ident, $($field:ident: $value:expr,)*) => {
        $(
            let value = $value;
            // SAFETY: xprt_alloc has just allocated the transport, which is not published yet.
            unsafe { (*$raw).$field = value };
        )*
    };
}
pub(super) use set;

/// A transport that is being made, and is not published yet. Dropping it frees the transport.
///
/// # Invariants
///
/// Made by xprt_alloc(), with a reference to the module of its own.
pub(crate) struct NewXprt(NonNull<bindings::rpc_xprt>);

impl NewXprt {
    /// Allocates `size` bytes that begin with a `struct rpc_xprt` of class `C`, with the address in `args`
    /// and its strings, and with `slots` requests, of which `prepared` are made now.
    ///
    /// # Errors
    ///
    /// `EBADF`: the address is too long. `ENOMEM`: there is no memory. `EAFNOSUPPORT`: the address
    /// is of another family. `EIO`: the module is being unloaded.
    ///
    /// # Safety
    ///
    /// To be called by [`Class::setup`] with its `args`; `size` must be the size of a struct whose first
    /// member is a `struct rpc_xprt`.
    pub(super) unsafe fn new<C: Class>(
        args: &bindings::xprt_create,
        size: usize,
        prepared: u32,
        slots: u32,
    ) -> Result<Self> {
        if args.addrlen > size_of::<bindings::__kernel_sockaddr_storage>() {
            return Err(EBADF);
        }
        // SAFETY: `dstaddr` points to an address of `addrlen` bytes (rpc_create, xprt_create).
        let family = unsafe { (*args.dstaddr).sa_family };
        let module = ModuleRef::get()?;
        // SAFETY: `net` is valid during the call; the transport takes a reference of its own.
        let xprt = unsafe { bindings::xprt_alloc(args.net, size, prepared, slots) };
        let xprt = NonNull::new(from_err_ptr(xprt)?).ok_or(ENOMEM)?;
        module.keep();
        // INVARIANT: made just now, and the reference is kept.
        let this = Self(xprt);
        let raw = xprt.as_ptr();
        set! { raw,
            xprt_class: C::registered().load(Acquire),
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
        // SAFETY: `xprt.addr` was copied, the entries of `address_strings` are null, and the transport is not
        // published yet.
        unsafe { address::format_strings(raw, family) }?;
        Ok(this)
    }

    /// Returns the transport.
    pub(super) fn as_raw(&self) -> NonNull<bindings::rpc_xprt> {
        self.0
    }

    /// Completes the set-up. From now on, [`free`] ends the transport.
    fn finish(self) -> NonNull<bindings::rpc_xprt> {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }
}

impl Drop for NewXprt {
    fn drop(&mut self) {
        // SAFETY: the transport is not published, by the type invariant.
        unsafe { free(self.0.as_ptr()) };
    }
}

/// Frees a transport, and gives its reference to the module back.
///
/// # Safety
///
/// `xprt` must be made by [`NewXprt::new`], and not be used any more.
pub(super) unsafe fn free(xprt: *mut bindings::rpc_xprt) {
    // SAFETY: the strings are the strings of `format_strings`, or null, and not read any more.
    unsafe { address::free_strings(xprt) };
    // SAFETY: allocated by xprt_alloc(), and not used any more, as the caller promises.
    unsafe { bindings::xprt_free(xprt) };
    // SAFETY: `NewXprt::new` kept a reference for this transport.
    drop(unsafe { ModuleRef::kept() });
}
