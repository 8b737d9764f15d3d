// SPDX-License-Identifier: GPL-2.0

//! Compares the bindings with the layouts of the C compiler (`layout.c`), for any configuration of the
//! kernel.

use super::*;

include!(concat!(env!("RPCRDMA_BINDINGS"), "/layout_generated.rs"));

// The kernel converts jiffies to milliseconds by these constants (include/generated/timeconst.h).
kernel::static_assert!(
    HZ * HZ_TO_MSEC_NUM as kernel::ffi::c_ulong == 1000 * HZ_TO_MSEC_DEN as kernel::ffi::c_ulong
);
