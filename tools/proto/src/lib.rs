// SPDX-License-Identifier: GPL-2.0

//! The protocol core of the kernel module, built for the host.
//!
//! [`proto`] is compiled from the very files that the module is built from.

#![no_std]
// As in the kernel.
#![deny(missing_docs, unreachable_pub)]

#[path = "../../../rust/proto/mod.rs"]
pub mod proto;
