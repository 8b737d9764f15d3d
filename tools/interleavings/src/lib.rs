// SPDX-License-Identifier: GPL-2.0

//! Tries all interleavings of the module's code that takes no lock, with all values that the memory model lets
//! a load return.
//!
//! The files of the module are compiled as they are. [`sync::atomic`] stands in for the atomic operations of the
//! kernel crate, and [`rdma::mr`] for the registrations.

// The module's files call the kernel crate by its name.
extern crate self as kernel;

pub mod prelude {
    //! The part of the kernel crate's prelude that the files use.
    pub use std::boxed::Box as KBox;
}

pub mod sync {
    //! Synchronisation of the kernel crate.
    pub mod atomic;
}

#[allow(dead_code)]
#[path = "../../../rust/support/box_list.rs"]
mod box_list;
#[allow(dead_code)]
#[path = "../../../rust/client/pool.rs"]
mod pool;
#[allow(dead_code)]
mod rdma {
    pub(crate) mod mr;
}
#[cfg(test)]
mod tests;
