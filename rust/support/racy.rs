// SPDX-License-Identifier: GPL-2.0

//! Values that other tasks may read while they change, where an old value does no harm.
//!
//! C header: `include/asm-generic/rwonce.h` (`READ_ONCE`, `WRITE_ONCE`). The kernel crate's atomics
//! do the same with relaxed order, but call a function of the kernel for each access, which is
//! measurable on the path of an RPC.

use crate::bindings;
use core::cell::UnsafeCell;

/// Orders all accesses to memory before the call before all accesses after it. A comment at the call names the
/// barrier that it pairs with. Context: any.
pub(crate) fn full_barrier() {
    // SAFETY: smp_mb() orders accesses to memory and makes none.
    unsafe { bindings::rpcrdma_full_barrier() };
}

/// A value that is read and written whole, without any order to other accesses.
///
/// Writers do not exclude each other: of two increments at a time one may be lost.
pub(crate) struct Racy<T: Copy>(UnsafeCell<T>);

// SAFETY: accesses are volatile and of a size that the processor reads and writes at once, so
// no reader sees half a value (Documentation/memory-barriers.txt, "READ_ONCE()").
unsafe impl<T: Copy + Send> Sync for Racy<T> {}

impl<T: Copy> Racy<T> {
    /// Wraps a value of at most the size of a word.
    pub(crate) const fn new(value: T) -> Self {
        const { assert!(size_of::<T>() <= size_of::<usize>()) };
        Self(UnsafeCell::new(value))
    }

    /// Reads it. Context: any.
    #[inline]
    pub(crate) fn get(&self) -> T {
        // SAFETY: a borrowed `UnsafeCell` is valid and aligned. Concurrent writers write volatile words, as
        // WRITE_ONCE() does.
        unsafe { self.0.get().read_volatile() }
    }

    /// Writes it. Context: any.
    #[inline]
    pub(crate) fn set(&self, value: T) {
        // SAFETY: a borrowed `UnsafeCell` is valid and aligned. Concurrent readers read volatile words, as
        // READ_ONCE() does.
        unsafe { self.0.get().write_volatile(value) }
    }
}
