// SPDX-License-Identifier: GPL-2.0

//! The settings and counters in `/proc/sys/sunrpc/svc_rdma`, under the names of the kernel's own
//! module. Settings are read when a client connects.

use crate::{
    endpoint::hostauth,
    proto::connection::negotiate::Versions,
    support::{
        counter::Counter,
        sysctl::{
            Entry,
            Range,
            Table, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

static MAX_REQUESTS: Atomic<i32> = Atomic::new(128);
static MAX_REQUESTS_RANGE: Range = Range { min: 4, max: 16384 };

static MAX_REQ_SIZE: Atomic<i32> = Atomic::new(4096);
static MAX_REQ_SIZE_RANGE: Range = Range {
    min: 4096,
    max: 65536,
};

static MAX_READS: Atomic<i32> = Atomic::new(16);
static MAX_READS_RANGE: Range = Range { min: 1, max: 255 };

static MAX_VERSION: Atomic<i32> = Atomic::new(2);
static MAX_VERSION_RANGE: Range = Range { min: 1, max: 2 };

// A READ or WRITE of 4 or 8 KiB, the most frequent sizes, fits into a message with its header: that halves
// its cost (performance.rst).
static MAX_MESSAGE: Atomic<i32> = Atomic::new(16384);
static MAX_MESSAGE_RANGE: Range = Range {
    min: 4096,
    max: 65536,
};

// Scripts read these and must go on finding them. Nothing ever counted there.
static UNUSED: Atomic<i32> = Atomic::new(0);
static UNUSED_RANGE: Range = Range { min: 0, max: 0 };

/// Segments read from clients.
pub(crate) static READS: Counter = Counter::new();
/// Messages received from clients.
pub(crate) static RECEIVES: Counter = Counter::new();
/// Segments written to clients.
pub(crate) static WRITES: Counter = Counter::new();
/// Counts Replies that had to wait for room in the send queue or for credits.
pub(crate) static STARVED: Counter = Counter::new();
/// Times that a Call to a client was not sent.
pub(super) static CALLS_UNSENT: Counter = Counter::new();

static ENTRIES: [Entry; 16] = [
    Entry::new(c"max_requests", &MAX_REQUESTS, Some(&MAX_REQUESTS_RANGE)),
    Entry::new(c"max_req_size", &MAX_REQ_SIZE, Some(&MAX_REQ_SIZE_RANGE)),
    Entry::new(
        c"max_outbound_read_requests",
        &MAX_READS,
        Some(&MAX_READS_RANGE),
    ),
    Entry::new(c"max_version", &MAX_VERSION, Some(&MAX_VERSION_RANGE)),
    Entry::new(c"max_message", &MAX_MESSAGE, Some(&MAX_MESSAGE_RANGE)),
    Entry::text(c"host_auth", &hostauth::CLIENTS),
    Entry::counter(c"rdma_stat_read", &READS),
    Entry::counter(c"rdma_stat_recv", &RECEIVES),
    Entry::counter(c"rdma_stat_write", &WRITES),
    Entry::counter(c"rdma_stat_sq_starve", &STARVED),
    Entry::counter(c"rdma_stat_cb_unsent", &CALLS_UNSENT),
    Entry::new(c"rdma_stat_rq_starve", &UNUSED, Some(&UNUSED_RANGE)),
    Entry::new(c"rdma_stat_rq_poll", &UNUSED, Some(&UNUSED_RANGE)),
    Entry::new(c"rdma_stat_rq_prod", &UNUSED, Some(&UNUSED_RANGE)),
    Entry::new(c"rdma_stat_sq_poll", &UNUSED, Some(&UNUSED_RANGE)),
    Entry::new(c"rdma_stat_sq_prod", &UNUSED, Some(&UNUSED_RANGE)),
];

/// Makes settings and counters appear, the version as the module's parameter has it. Context: process,
/// may sleep.
///
/// # Errors
///
/// `EINVAL`: there is no such version. `ENOMEM`.
pub(crate) fn register(max_version: i32) -> Result<Table> {
    MAX_VERSION_RANGE.begin(&MAX_VERSION, max_version, "svc_max_version")?;
    Table::new(c"sunrpc/svc_rdma", &ENTRIES)
}

/// Returns the number of Calls of one client that may be outstanding.
pub(super) fn max_requests() -> u32 {
    MAX_REQUESTS.load(Relaxed).unsigned_abs()
}

/// Returns the maximum length of a message that is sent or received inline in version 1, in bytes.
///
/// The private data have sizes in units of 1,024 bytes (RFC 8797, 4.1), so both sides use multiples
/// of it.
pub(super) fn max_req_size() -> u32 {
    MAX_REQ_SIZE.load(Relaxed).unsigned_abs() / 1024 * 1024
}

/// Returns the maximum length of a message that is sent or received in version 2, in bytes.
pub(super) fn max_message() -> u32 {
    MAX_MESSAGE.load(Relaxed).unsigned_abs() / 1024 * 1024
}

/// Returns the versions of RPC-over-RDMA that clients may speak.
pub(super) fn versions() -> Versions {
    match MAX_VERSION.load(Relaxed) {
        1 => Versions::V1,
        _ => Versions::BOTH,
    }
}

/// Returns the most RDMA Reads that may be outstanding to one client.
pub(super) fn max_reads() -> u8 {
    MAX_READS.load(Relaxed).clamp(1, 255) as u8
}
