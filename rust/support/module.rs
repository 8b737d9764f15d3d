// SPDX-License-Identifier: GPL-2.0

//! References to our own module.
//!
//! C header: `include/linux/module.h`.

use crate::bindings;
use kernel::prelude::*;

/// Returns `THIS_MODULE`.
pub(crate) fn this_module() -> *mut bindings::module {
    // SAFETY: THIS_MODULE is an address that the linker knows; nothing is read.
    unsafe { bindings::this_module() }
}

/// Returns the parameter `host_auth`, a text.
pub(crate) fn host_auth() -> &'static CStr {
    // SAFETY: the helper returns a C string, which is not written after parse_args().
    unsafe { CStr::from_char_ptr(bindings::rpcrdma_host_auth()) }
}

/// Returns the parameter `svc_host_auth`, a text.
pub(crate) fn svc_host_auth() -> &'static CStr {
    // SAFETY: the helper returns a C string, which is not written after parse_args().
    unsafe { CStr::from_char_ptr(bindings::rpcrdma_svc_host_auth()) }
}

/// Returns the version of the module, as modinfo prints it.
pub(crate) fn version() -> &'static CStr {
    // SAFETY: the helper returns a constant C string.
    unsafe { CStr::from_char_ptr(bindings::rpcrdma_version()) }
}

/// A reference that keeps our module loaded; dropping it gives the reference back.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference.
    ///
    /// # Errors
    ///
    /// `EIO`: the module is being unloaded.
    pub(crate) fn get() -> Result<Self> {
        // SAFETY: THIS_MODULE is valid while code of the module runs.
        if unsafe { bindings::try_module_get(this_module()) } {
            Ok(Self(()))
        } else {
            Err(EIO)
        }
    }

    /// Keeps the reference beyond this object, for [`Self::kept`].
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }

    /// Takes back a reference.
    ///
    /// # Safety
    ///
    /// To be called once for each [`Self::keep`].
    pub(crate) unsafe fn kept() -> Self {
        Self(())
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: `get` took a reference by try_module_get(), and a drop happens once.
        unsafe { bindings::module_put(this_module()) };
    }
}

/// Leaks `value`, because a device or the peer may still use it. The module stays loaded from then
/// on, since `value` may call its code: its reference count is the number of leaked values.
#[cold]
pub(crate) fn leak<T>(what: &str, value: T) {
    core::mem::forget(value);
    if let Ok(module) = ModuleRef::get() {
        module.keep();
    }
    pr_err!("{what} cannot be given back to the RDMA device, and the module cannot be unloaded any more\n");
}
