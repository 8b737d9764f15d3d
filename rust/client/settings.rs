// SPDX-License-Identifier: GPL-2.0

//! The settings in `/proc/sys/sunrpc`, under the names of the kernel's own module, which has no
//! version but one.
//!
//! They are read when they count: the slots when a transport is created (a mount), the lengths of
//! messages and the version whenever it connects.

use super::versions::KNOWN;
use crate::{
    endpoint::hostauth,
    proto::connection::negotiate::Versions,
    support::{
        memory::PAGE_SIZE,
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

static SLOTS: Atomic<i32> = Atomic::new(128);
static SLOTS_RANGE: Range = Range { min: 4, max: 16384 };

static INLINE_READ: Atomic<i32> = Atomic::new(4096);
static INLINE_WRITE: Atomic<i32> = Atomic::new(4096);
static INLINE_RANGE: Range = Range {
    min: 1024,
    max: 65536,
};

static MAX_VERSION: Atomic<i32> = Atomic::new(2);
static MAX_VERSION_RANGE: Range = Range { min: 1, max: 2 };

// In-band negotiation: the first message asks each server for version 2.
static NEGOTIATE: Atomic<i32> = Atomic::new(0);
static NEGOTIATE_RANGE: Range = Range { min: 0, max: 1 };

// A READ or WRITE of 4 or 8 KiB, the most frequent sizes, fits into a message with its header: that halves
// its cost (performance.rst).
static MAX_MESSAGE: Atomic<i32> = Atomic::new(16384);
static MAX_MESSAGE_RANGE: Range = Range {
    min: 4096,
    max: 65536,
};

// Scripts set these three and must go on finding them. They mean nothing: no message is padded
// (RFC 8166 has no RDMA_MSGP any more), memory is registered by fast registration work requests
// or not at all, and XDR padding never travels in a chunk.
static PADDING: Atomic<i32> = Atomic::new(0);
static PADDING_RANGE: Range = Range {
    min: 0,
    max: PAGE_SIZE as i32,
};
static STRATEGY: Atomic<i32> = Atomic::new(5);
static STRATEGY_RANGE: Range = Range { min: 0, max: 6 };
static PAD_OPTIMIZE: Atomic<i32> = Atomic::new(0);

static ENTRIES: [Entry; 11] = [
    Entry::new(c"rdma_slot_table_entries", &SLOTS, Some(&SLOTS_RANGE)),
    Entry::new(c"rdma_max_inline_read", &INLINE_READ, Some(&INLINE_RANGE)),
    Entry::new(c"rdma_max_inline_write", &INLINE_WRITE, Some(&INLINE_RANGE)),
    Entry::new(c"rdma_max_version", &MAX_VERSION, Some(&MAX_VERSION_RANGE)),
    Entry::new(c"rdma_negotiate", &NEGOTIATE, Some(&NEGOTIATE_RANGE)),
    Entry::new(c"rdma_max_message", &MAX_MESSAGE, Some(&MAX_MESSAGE_RANGE)),
    Entry::counter(c"rdma_known_servers", &KNOWN),
    Entry::text(c"rdma_host_auth", &hostauth::SERVERS),
    Entry::new(c"rdma_inline_write_padding", &PADDING, Some(&PADDING_RANGE)),
    Entry::new(c"rdma_memreg_strategy", &STRATEGY, Some(&STRATEGY_RANGE)),
    Entry::new(c"rdma_pad_optimize", &PAD_OPTIMIZE, None),
];

/// Registers the settings. The parameters of the module are the first values of two of them. Context:
/// process, may sleep.
///
/// # Errors
///
/// `EINVAL`: a parameter is out of its range. `ENOMEM`.
pub(crate) fn register(max_version: i32, negotiate: i32) -> Result<Table> {
    MAX_VERSION_RANGE.begin(&MAX_VERSION, max_version, "max_version")?;
    NEGOTIATE_RANGE.begin(&NEGOTIATE, negotiate, "negotiate")?;
    Table::new(c"sunrpc", &ENTRIES)
}

/// Returns the number of RPCs that a new transport may have in flight, and of credits that it requests.
pub(crate) fn slots() -> u32 {
    positive(&SLOTS)
}

/// Returns the maximum length of a message that a new connection sends inline in version 1, in bytes.
pub(crate) fn inline_send() -> u32 {
    whole_units(positive(&INLINE_WRITE))
}

/// Returns the maximum length of a message that a new connection has Receives for in version 1, in bytes.
pub(crate) fn inline_recv() -> u32 {
    whole_units(positive(&INLINE_READ))
}

/// Returns the maximum length of a message that a new connection sends or has Receives for in version 2, in
/// bytes.
pub(crate) fn message() -> u32 {
    whole_units(positive(&MAX_MESSAGE))
}

/// Returns the versions of RPC-over-RDMA that a new connection may speak.
pub(crate) fn versions() -> Versions {
    match positive(&MAX_VERSION) {
        1 => Versions::V1,
        _ => Versions::BOTH,
    }
}

/// Returns whether a new connection negotiates its version in-band, and not by the announcement of the
/// server.
pub(crate) fn negotiates_in_band() -> bool {
    NEGOTIATE.load(Relaxed) != 0
}

/// Returns the value of a setting whose range excludes negative numbers.
fn positive(setting: &Atomic<i32>) -> u32 {
    setting.load(Relaxed).unsigned_abs()
}

/// Rounds down to a multiple of 1,024 bytes, which is the unit of sizes in the private data (RFC 8797, 4.1).
fn whole_units(bytes: u32) -> u32 {
    bytes / 1024 * 1024
}
