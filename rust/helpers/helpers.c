// SPDX-License-Identifier: GPL-2.0
/*
 * What Rust cannot call: static inlines and macros of the kernel's headers.
 * Each helper does what its name says and nothing else; the Rust side sees
 * it without the prefix.
 */

#define __rust_helper

#include "rdma.c"
#include "sunrpc.c"
#include "support.c"
