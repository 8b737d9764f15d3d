// SPDX-License-Identifier: GPL-2.0

//! Statics that have a value while the module is loaded.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Full,
            Release, //
        },
        Mutex, //
    },
};

/// A static behind a mutex. It is empty until [`set`](Self::set) and after [`take`](Self::take). A task
/// locks one of them at a time.
///
/// # Invariants
///
/// `mutex` is initialised when `done` is set, and is not moved.
pub(crate) struct Global<T> {
    begun: AtomicFlag,
    done: AtomicFlag,
    mutex: UnsafeCell<MaybeUninit<Mutex<Option<T>>>>,
}

// SAFETY: the mutex serializes access to the value, which may be sent; the mutex itself is written once,
// before `done` is set.
unsafe impl<T: Send> Sync for Global<T> {}

impl<T: Unpin + 'static> Global<T> {
    pub(crate) const fn new() -> Self {
        Self {
            begun: AtomicFlag::new(false),
            done: AtomicFlag::new(false),
            mutex: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Sets the value. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST`: it has been set before.
    pub(crate) fn set(&'static self, value: T) -> Result {
        if self.begun.xchg(true, Full) {
            return Err(EEXIST);
        }
        // SAFETY: the memory is static, a single caller passes the exchange above, and `mutex` refers to it
        // only when `done` is set.
        let room = unsafe { &mut *self.mutex.get() };
        match room.write_pin_init(new_mutex!(Some(value))) {
            Ok(_) => {}
            Err(never) => match never {},
        }
        self.done.store(true, Release);
        Ok(())
    }

    /// Returns the mutex, once it is initialised.
    fn mutex(&'static self) -> Option<&'static Mutex<Option<T>>> {
        if !self.done.load(Acquire) {
            return None;
        }
        // SAFETY: initialised by the type invariant, and not written any more.
        Some(unsafe { (*self.mutex.get()).assume_init_ref() })
    }

    /// Calls `f` with the value under the mutex; returns none if the value is not set. Context: process,
    /// may sleep.
    pub(crate) fn with<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut guard = self.mutex()?.lock();
        let value: &mut Option<T> = &mut guard;
        value.as_mut().map(f)
    }

    /// Takes the value. Context: process, may sleep.
    pub(crate) fn take(&'static self) -> Option<T> {
        self.mutex()?.lock().take()
    }
}
