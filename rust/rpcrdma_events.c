// SPDX-License-Identifier: GPL-2.0
/* The definitions of the trace events, and their entry points for Rust. */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include <trace/events/rpcrdma_rs.h>
