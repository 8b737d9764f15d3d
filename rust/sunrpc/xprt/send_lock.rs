// SPDX-License-Identifier: GPL-2.0

//! The send lock, the core's `XPRT_LOCKED`, as a value; and data that belongs to its holder.
//!
//! The core takes and gives the bit (xprt_reserve_xprt_cong and xprt_clear_locked in
//! `net/sunrpc/xprt.c`); here it is only shown that it is held.

use super::{
    LockOf,
    Xprt,
    XprtHandle, //
};
use core::{
    cell::UnsafeCell,
    ptr::NonNull, //
};
use kernel::types::NotThreadSafe;

/// Proof that the send lock of one transport is held, as long as this is borrowed.
///
/// # Invariants
///
/// `XPRT_LOCKED` of `xprt` is set for the owner of this value, and there is no other value meanwhile.
pub(crate) struct SendLock<'a> {
    xprt: &'a Xprt,
    _task: NotThreadSafe,
}

impl<'a> SendLock<'a> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant: it is a callback that the core calls with the
    /// send lock held, or the connect worker, and makes one.
    pub(super) unsafe fn new(xprt: &'a Xprt) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            xprt,
            _task: NotThreadSafe,
        }
    }
}

impl LockOf for SendLock<'_> {
    fn xprt(&self) -> &Xprt {
        self.xprt
    }
}

/// Data of the holder of a transport's send lock. Access needs neither another lock nor an atomic
/// operation.
pub(crate) struct SendCell<T> {
    value: UnsafeCell<T>,
    /// Whose send lock; only compared.
    xprt: NonNull<Xprt>,
}

// SAFETY: `value` goes from one holder of `XPRT_LOCKED` to the next, which orders its accesses;
// `xprt` is only compared.
unsafe impl<T: Send> Send for SendCell<T> {}
// SAFETY: a shared `SendCell` gives `value` only to the one holder of `XPRT_LOCKED` (`get`).
unsafe impl<T: Send> Sync for SendCell<T> {}

impl<T> SendCell<T> {
    /// Creates data for the holder of the send lock of `xprt`.
    pub(crate) fn new<S>(xprt: &XprtHandle<S>, value: T) -> Self {
        Self {
            value: UnsafeCell::new(value),
            xprt: NonNull::from(&**xprt),
        }
    }

    /// Returns the data to the holder of the lock, which is borrowed as long as the data.
    ///
    /// # Panics
    ///
    /// If `lock` belongs to another transport, as `kernel::sync::LockedBy` does.
    #[inline]
    pub(crate) fn get<'a>(&'a self, lock: &'a mut SendLock<'_>) -> &'a mut T {
        if !core::ptr::eq(self.xprt.as_ptr(), lock.xprt) {
            wrong_transport();
        }
        // SAFETY: `lock` proves that `XPRT_LOCKED` of this cell's transport is held, and is the
        // only one that does; it is borrowed for `'a`, so there is no other reference meanwhile.
        unsafe { &mut *self.value.get() }
    }
}

#[cold]
fn wrong_transport() -> ! {
    panic!("send lock of another transport")
}
