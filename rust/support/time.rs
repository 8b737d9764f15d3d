// SPDX-License-Identifier: GPL-2.0

//! A coarse clock.
//!
//! C header: `include/linux/jiffies.h`.

use crate::bindings;

/// Milliseconds since some point before the boot, in steps of a jiffy. Context: any.
#[inline]
pub(crate) fn milliseconds() -> u64 {
    jiffies() * 1000 / bindings::HZ as u64
}

/// Jiffies that do not wrap around, as get_jiffies_64() counts them.
#[cfg(CONFIG_64BIT)]
#[inline]
fn jiffies() -> u64 {
    // SAFETY: `jiffies` (kernel/time/timer.c) is `jiffies_64` here. It is written by the timekeeping CPU
    // only, a word at a time; a volatile read sees some value of it.
    unsafe { core::ptr::read_volatile(&raw const bindings::jiffies) as u64 }
}

/// Jiffies that do not wrap around, as get_jiffies_64() counts them.
#[cfg(not(CONFIG_64BIT))]
fn jiffies() -> u64 {
    // SAFETY: get_jiffies_64() may be called in any context.
    unsafe { bindings::get_jiffies_64() }
}
