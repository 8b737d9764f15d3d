// SPDX-License-Identifier: GPL-2.0
/*
 * Static inlines and macros of the kernel's headers, which Rust cannot call.
 * The Rust side calls a helper by its name without the prefix.
 */

#define __rust_helper

#include "rdma.c"
#include "sunrpc.c"
#include "support.c"
