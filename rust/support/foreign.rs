// SPDX-License-Identifier: GPL-2.0

//! Shared objects that C code holds as a context pointer.

use core::ptr::NonNull;
use kernel::{
    ffi::c_void,
    sync::Arc, //
};

/// A value that a C object keeps as a pointer, and whose memory the C side reads and writes
/// meanwhile.
///
/// # Safety
///
/// The memory that [`Self::memory`] returns stays at its place until the value is dropped or changed,
/// also while it is a pointer.
pub(crate) unsafe trait Lent: Send + Sized {
    /// Converts the value to a pointer.
    fn into_ptr(self) -> NonNull<c_void>;

    /// Converts the pointer back to the value.
    ///
    /// # Safety
    ///
    /// `ptr` must be from [`Self::into_ptr`], and not be used again.
    unsafe fn from_ptr(ptr: NonNull<c_void>) -> Self;

    /// Returns the memory of the value.
    fn memory(&mut self) -> &mut [u8];
}

/// One reference to an `Arc<T>` that a C object keeps as its context pointer.
///
/// The type of the object is erased, so that owners of C objects need not be generic. The
/// reference is given back when this is dropped, which the owner does after the C object can
/// call back no more.
///
/// # Invariants
///
/// `ptr` came from `Arc::<T>::into_raw` and `release` is `release_arc::<T>` of the same `T`.
pub(crate) struct Context {
    ptr: *const c_void,
    release: unsafe fn(*const c_void),
}

// SAFETY: `Context::new` takes only `Arc`s of types that may be shared between threads.
unsafe impl Send for Context {}
// SAFETY: a shared `Context` gives out nothing but the pointer, and `new` takes only `Sync` types.
unsafe impl Sync for Context {}

/// # Safety
///
/// `ptr` must come from `Arc::<T>::into_raw`, and its reference must not be used afterwards.
unsafe fn release_arc<T>(ptr: *const c_void) {
    // SAFETY: the caller promises that `ptr` came from `Arc::into_raw` and is not used again.
    drop(unsafe { Arc::from_raw(ptr.cast::<T>()) });
}

impl Context {
    /// Keeps `object` for a C object.
    pub(crate) fn new<T: Send + Sync + 'static>(object: Arc<T>) -> Self {
        // INVARIANT: pointer and release function are of the same `T`.
        Self {
            ptr: Arc::into_raw(object).cast(),
            release: release_arc::<T>,
        }
    }

    /// Returns the pointer for the C side.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.ptr.cast_mut()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: by the type invariant; a drop happens once.
        unsafe { (self.release)(self.ptr) };
    }
}
