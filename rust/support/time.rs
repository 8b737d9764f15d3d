// SPDX-License-Identifier: GPL-2.0

//! A coarse clock.
//!
//! C header: `include/linux/jiffies.h`.

use crate::bindings;

/// Milliseconds since some point before the boot, in steps of a jiffy. Context: any.
#[inline]
pub(crate) fn milliseconds() -> u64 {
    const HZ: u64 = bindings::HZ as u64;
    // Most kernels need no division.
    if 1000 % HZ == 0 {
        jiffies() * (1000 / HZ)
    } else {
        jiffies() * 1000 / HZ
    }
}

/// `jiffies` wraps around after 49 days, and first after five minutes, if it has 32 bits.
const _: () = assert!(cfg!(CONFIG_64BIT), "rpcrdma needs a kernel of 64 bits");

/// Returns the jiffies since the boot, as get_jiffies_64() counts them.
#[inline]
fn jiffies() -> u64 {
    // SAFETY: `jiffies` (kernel/time/timer.c) is `jiffies_64`, because the kernel has 64 bits. It is written by the
    // timekeeping CPU only, a word at a time; a volatile read sees some value of it.
    unsafe { core::ptr::read_volatile(&raw const bindings::jiffies) as u64 }
}
