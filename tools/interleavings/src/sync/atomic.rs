// SPDX-License-Identifier: GPL-2.0

//! Atomic operations as the kernel's memory model has them, on atomic variables of loom.
//!
//! An operation with the order [`Full`] has a full barrier on each side (Documentation/atomic_t.txt).

use loom::sync::atomic::{fence, AtomicBool, AtomicPtr, Ordering};
use std::sync::OnceLock;

/// A type that can be in an [`Atomic`].
pub trait AtomicType: Copy {
    /// The variable of loom.
    type Variable;
    /// Makes a variable.
    fn variable(self) -> Self::Variable;
    /// Loads the value.
    fn load(variable: &Self::Variable, order: Ordering) -> Self;
    /// Stores a value.
    fn store(variable: &Self::Variable, value: Self, order: Ordering);
    /// Exchanges the value.
    fn swap(variable: &Self::Variable, value: Self, order: Ordering) -> Self;
    /// Exchanges the value if it is `old`.
    fn compare_exchange(
        variable: &Self::Variable,
        old: Self,
        new: Self,
        order: Ordering,
    ) -> Result<Self, Self>;
}

macro_rules! atomic_type {
    ([$($generics:tt)*] $type:ty, $variable:ty) => {
        impl<$($generics)*> AtomicType for $type {
            type Variable = $variable;
            fn variable(self) -> $variable {
                <$variable>::new(self)
            }
            fn load(variable: &$variable, order: Ordering) -> Self {
                variable.load(order)
            }
            fn store(variable: &$variable, value: Self, order: Ordering) {
                variable.store(value, order);
            }
            fn swap(variable: &$variable, value: Self, order: Ordering) -> Self {
                variable.swap(value, order)
            }
            fn compare_exchange(
                variable: &$variable,
                old: Self,
                new: Self,
                order: Ordering,
            ) -> Result<Self, Self> {
                variable.compare_exchange(old, new, order, Ordering::Relaxed)
            }
        }
    };
}

atomic_type!([] bool, AtomicBool);
atomic_type!([T] *mut T, AtomicPtr<T>);

/// An order of memory accesses.
pub trait Order {
    /// The order of a load in C11's terms.
    const LOAD: Ordering;
    /// The order of a store.
    const STORE: Ordering;
    /// The order of an exchange.
    const EXCHANGE: Ordering;
    /// An exchange has a full barrier on each side.
    const IS_FULL: bool = false;

    /// Calls `exchange`, with full barriers if the order has them.
    fn around<R>(exchange: impl FnOnce() -> R) -> R {
        if Self::IS_FULL {
            fence(Ordering::SeqCst);
        }
        let result = exchange();
        if Self::IS_FULL {
            fence(Ordering::SeqCst);
        }
        result
    }
}

/// No order.
pub struct Relaxed;
/// Accesses before a store are visible when the store is.
pub struct Release;
/// A full barrier on each side.
pub struct Full;

impl Order for Relaxed {
    const LOAD: Ordering = Ordering::Relaxed;
    const STORE: Ordering = Ordering::Relaxed;
    const EXCHANGE: Ordering = Ordering::Relaxed;
}
impl Order for Release {
    const LOAD: Ordering = Ordering::Relaxed;
    const STORE: Ordering = Ordering::Release;
    const EXCHANGE: Ordering = Ordering::Release;
}
impl Order for Full {
    const LOAD: Ordering = Ordering::Acquire;
    const STORE: Ordering = Ordering::Release;
    const EXCHANGE: Ordering = Ordering::AcqRel;
    const IS_FULL: bool = true;
}

/// An atomic variable, as the kernel crate's.
///
/// Loom cannot make its variables in a `const fn`, so the first use makes them.
pub struct Atomic<T: AtomicType> {
    first: T,
    variable: OnceLock<T::Variable>,
}

// SAFETY: loom runs its threads one at a time, and `first` does not change.
unsafe impl<T: AtomicType> Sync for Atomic<T> {}
// SAFETY: as above.
unsafe impl<T: AtomicType> Send for Atomic<T> {}

impl<T: AtomicType> Atomic<T> {
    /// Makes a variable.
    pub const fn new(value: T) -> Self {
        Self {
            first: value,
            variable: OnceLock::new(),
        }
    }

    fn variable(&self) -> &T::Variable {
        self.variable.get_or_init(|| self.first.variable())
    }

    /// Loads the value.
    pub fn load<O: Order>(&self, _order: O) -> T {
        T::load(self.variable(), O::LOAD)
    }

    /// Stores a value.
    pub fn store<O: Order>(&self, value: T, _order: O) {
        T::store(self.variable(), value, O::STORE);
    }

    /// Exchanges the value.
    pub fn xchg<O: Order>(&self, value: T, _order: O) -> T {
        O::around(|| T::swap(self.variable(), value, O::EXCHANGE))
    }

    /// Exchanges the value if it is `old`. Without an exchange there is no order.
    ///
    /// # Errors
    ///
    /// The value, if it is another.
    pub fn cmpxchg<O: Order>(&self, old: T, new: T, _order: O) -> Result<T, T> {
        O::around(|| T::compare_exchange(self.variable(), old, new, O::EXCHANGE))
    }
}
