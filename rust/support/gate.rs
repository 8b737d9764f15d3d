// SPDX-License-Identifier: GPL-2.0

//! An object that several tasks use until one task takes it away from the others.

use crate::support::{
    completion::Completion,
    memalloc::GFP_NORETRY, //
};
use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ops::Deref, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
};

/// Each user adds this to [`Gate::users`].
const USER: u32 = 2;
/// Closing the gate adds this to [`Gate::users`].
const CLOSED: u32 = 1;

/// An object with a count of its users. Closing the gate waits for the users, and then hands the object
/// over by value: no reference to it is left.
///
/// # Invariants
///
/// `value` has not been taken as long as [`CLOSED`] is not in `users`, or a user that has entered before
/// has not left.
#[pin_data(PinnedDrop)]
pub(crate) struct Gate<T: Send + Sync> {
    users: Atomic<u32>,
    /// Set by the first call of [`Self::close`].
    closing: Atomic<i32>,
    /// The last user has left a closed gate.
    #[pin]
    left: Completion,
    /// The closing task has ended the object.
    #[pin]
    done: Completion,
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: a shared gate gives out `&T` to tasks, and `T` to the one that closes it.
unsafe impl<T: Send + Sync> Sync for Gate<T> {}
// SAFETY: a gate owns a `T`, which may go to another task.
unsafe impl<T: Send + Sync> Send for Gate<T> {}

impl<T: Send + Sync> Gate<T> {
    /// Makes an open gate. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(value: T) -> Result<Arc<Self>> {
        // INVARIANT: the gate is open.
        Arc::pin_init(
            pin_init!(Self {
                users: Atomic::new(0),
                closing: Atomic::new(0),
                left <- Completion::new(),
                done <- Completion::new(),
                value: UnsafeCell::new(ManuallyDrop::new(value)),
            }),
            GFP_NORETRY,
        )
    }

    /// Adds a user; false once the gate is closed.
    #[inline(always)]
    fn add_user(&self) -> bool {
        if self.users.fetch_add(USER, Full) & CLOSED == 0 {
            return true;
        }
        self.remove_user();
        false
    }

    #[inline(always)]
    fn remove_user(&self) {
        if self.users.fetch_sub(USER, Full) == USER + CLOSED {
            self.left.complete_all();
        }
    }

    /// Uses the object; none once the gate is closed. Context: any.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<Inside<'_, T>> {
        self.add_user().then_some(Inside(self))
    }

    /// Uses the object for longer; none once the gate is closed. Context: any.
    pub(crate) fn enter_owned(this: &Arc<Self>) -> Option<Entered<T>> {
        this.add_user().then(|| Entered(this.clone()))
    }

    /// Closes the gate, waits until all users have left, and calls `end` with the object. If another task
    /// has closed the gate, waits until that task has done so.
    ///
    /// Context: process, may sleep. Not called by a user.
    pub(crate) fn close(&self, end: impl FnOnce(T)) {
        if self.closing.cmpxchg(0, 1, Full).is_err() {
            return self.wait();
        }
        if self.users.fetch_add(CLOSED, Full) != 0 {
            self.left.wait();
        }
        // SAFETY: type invariant: no user is left, no user enters a closed gate, and the first call of `end` takes
        // the object once.
        end(unsafe { ManuallyDrop::take(&mut *self.value.get()) });
        self.done.complete_all();
    }

    /// Waits until a gate that is being closed is closed, and the object gone. Context: process,
    /// may sleep. Not called by a user.
    pub(crate) fn wait(&self) {
        self.done.wait();
    }

    /// # Safety
    ///
    /// The caller is a user of the gate for `'a`.
    #[inline(always)]
    unsafe fn value<'a>(&'a self) -> &'a T {
        // SAFETY: there is a user, so the object has not been taken (type invariant).
        unsafe { &*self.value.get() }
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Gate<T> {
    fn drop(self: Pin<&mut Self>) {
        let this = self.as_ref();
        if this.users.fetch_add(CLOSED, Full) & CLOSED == 0 {
            // SAFETY: the gate was open (type invariant), and is borrowed alone.
            unsafe { ManuallyDrop::drop(&mut *this.value.get()) };
        }
    }
}

/// A user of the object for the length of a borrow.
pub(crate) struct Inside<'a, T: Send + Sync>(&'a Gate<T>);

impl<T: Send + Sync> Deref for Inside<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: type invariant: `self` is a user until it is dropped.
        unsafe { self.0.value() }
    }
}

impl<T: Send + Sync> Drop for Inside<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.remove_user();
    }
}

/// A user of the object that keeps the gate. It must be dropped before the gate can be closed.
pub(crate) struct Entered<T: Send + Sync>(Arc<Gate<T>>);

impl<T: Send + Sync> Entered<T> {
    /// Returns the gate.
    pub(crate) fn gate(&self) -> &Arc<Gate<T>> {
        &self.0
    }
}

impl<T: Send + Sync> Clone for Entered<T> {
    fn clone(&self) -> Self {
        // `self` is a user, so the object is there, even if the gate is being closed meanwhile.
        self.0.users.fetch_add(USER, Full);
        Self(self.0.clone())
    }
}

impl<T: Send + Sync> Deref for Entered<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: type invariant: `self` is a user until it is dropped.
        unsafe { self.0.value() }
    }
}

impl<T: Send + Sync> Drop for Entered<T> {
    fn drop(&mut self) {
        self.0.remove_user();
    }
}
