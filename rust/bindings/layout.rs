// SPDX-License-Identifier: GPL-2.0

//! Sizes and offsets of the C structures that code here depends on, as the Debian kernels have
//! them; a kernel that differs fails the build instead of corrupting memory.
//!
//! The bindings are generated from the very headers that the module is built against, so a
//! difference means that libclang and GCC disagree, or that the structure has changed.

use super::*;
