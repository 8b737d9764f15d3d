// SPDX-License-Identifier: GPL-2.0

//! The server's transport class, `struct svc_xprt_class`: the core finds this module by the name of the class.

use super::{
    ops::SvcVTable,
    Service, //
};
use crate::{
    bindings,
    support::module::this_module, //
};
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    types::Opaque, //
};

/// The registration of a server transport class; dropping it unregisters the class.
///
/// Each transport holds a reference to the module, so none is left then.
pub(crate) struct SvcRegistration<T: Service> {
    class: Pin<KBox<Opaque<bindings::svc_xprt_class>>>,
    _p: PhantomData<T>,
}

// SAFETY: the class is only read, but for its list head, which the core protects by
// `svc_xprt_class_lock`.
unsafe impl<T: Service> Send for SvcRegistration<T> {}
// SAFETY: a shared `SvcRegistration` gives out nothing; the core reads the class.
unsafe impl<T: Service> Sync for SvcRegistration<T> {}

/// The registered class, for operations that the core calls without it. It is valid as long as the
/// registration lives, and not used at other times.
static CLASS: Atomic<*mut bindings::svc_xprt_class> = Atomic::new(core::ptr::null_mut());

/// Returns the registered class.
pub(super) fn registered() -> *mut bindings::svc_xprt_class {
    CLASS.load(Acquire)
}

impl<T: Service> SvcRegistration<T> {
    /// Registers `T` as transport class `rdma`.
    ///
    /// # Errors
    ///
    /// `EEXIST`: another module has registered this class.
    pub(crate) fn new() -> Result<Self> {
        let class = KBox::pin(
            Opaque::new(bindings::svc_xprt_class {
                xcl_name: c"rdma".as_char_ptr(),
                xcl_owner: this_module(),
                xcl_ops: SvcVTable::<T>::get(),
                xcl_max_payload: T::MAX_PAYLOAD,
                xcl_ident: bindings::xprt_transports_XPRT_TRANSPORT_RDMA,
                ..Default::default()
            }),
            GFP_KERNEL,
        )?;
        // Before the core knows the class, since it may use it at once.
        CLASS.store(class.get(), Release);
        // SAFETY: the class is complete and pinned. `drop` calls svc_unreg_xprt_class() before it goes.
        to_result(unsafe { bindings::svc_reg_xprt_class(class.get()) })?;
        Ok(Self {
            class,
            _p: PhantomData,
        })
    }
}

impl<T: Service> Drop for SvcRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: registered in `new`; the core lets go of it under `svc_xprt_class_lock`.
        unsafe { bindings::svc_unreg_xprt_class(self.class.get()) };
    }
}
