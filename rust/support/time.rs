// SPDX-License-Identifier: GPL-2.0

//! A coarse clock.
//!
//! C header: `include/linux/jiffies.h`.

use crate::bindings;

/// Milliseconds since some point before the boot, in steps of a jiffy. Context: any.
#[inline]
pub(crate) fn milliseconds() -> u64 {
    // SAFETY: `jiffies` (kernel/time/timer.c) is written by the timekeeping CPU only, a word at a
    // time; a volatile read sees some value of it.
    let now = unsafe { core::ptr::read_volatile(&raw const bindings::jiffies) };
    now as u64 * 1000 / bindings::HZ as u64
}
