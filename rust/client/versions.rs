// SPDX-License-Identifier: GPL-2.0

//! What is known of the versions that servers speak, whichever transport has found it out.
//!
//! Only servers without version 2 are remembered, and those that have to be asked for it by a Call,
//! for some minutes, so that one that was upgraded is noticed. There are places for so many; a server
//! that needs the place of another takes it, and the other is asked again.

use super::role::Client;
use crate::{
    endpoint::{
        self,
        Endpoint,
        Protocol, //
    },
    proto::{
        negotiate::{
            Memory,
            Time,
            Versions, //
        },
        types::Version, //
    },
    support::{
        net::{
            Net,
            SockAddr, //
        },
        sysctl::Count, //
    }, //
};
use core::net::IpAddr;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// How many servers are remembered.
const PLACES: usize = 64;

/// What is known, by a number that stands for the server: the upper half of that number, whether it is
/// asked [by a Call](BY_CALL), and until which second it is not asked in another way.
pub(super) struct Known([Atomic<u64>; PLACES]);

/// The server is asked for version 2 by a Call. Otherwise it counts as one without version 2.
const BY_CALL: u64 = 1 << 31;

pub(super) static KNOWN: Known = Known([const { Atomic::new(0) }; PLACES]);

/// For who looks: of how many servers something is known now. Zero has all of them asked again.
impl Count for Known {
    fn sum(&self) -> usize {
        let now = endpoint::now();
        let is_known = |place: &&Atomic<u64>| until(place.load(Relaxed)) > now;
        self.0.iter().filter(is_known).count()
    }

    fn reset(&self) {
        for place in &self.0 {
            place.store(0, Relaxed);
        }
    }
}

/// Until when something is known of a server.
fn until(known: u64) -> Time {
    Time((known & (BY_CALL - 1)) * 1_000)
}

/// A number for a server, as seen from a network namespace. Two may have the same, or a namespace
/// may take the place of another; then one of them is not asked for its version for a while.
fn number(net: Net, server: &SockAddr) -> u64 {
    // FNV-1a, 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(&net.as_raw().addr().to_ne_bytes());
    if let Some(server) = server.socket() {
        match server.ip() {
            IpAddr::V4(ip) => add(&ip.octets()),
            IpAddr::V6(ip) => add(&ip.octets()),
        }
        add(&server.port().to_ne_bytes());
    }
    hash
}

fn place(number: u64) -> &'static Atomic<u64> {
    &KNOWN.0[number as usize % PLACES]
}

fn memory(number: u64) -> Memory {
    let known = place(number).load(Relaxed);
    let is_this = known >> 32 == number >> 32;
    Memory::new(
        is_this.then_some(until(known)),
        is_this && known & BY_CALL != 0,
    )
}

/// Returns the version to begin a connection with, and whether a Call opens it even in version 2.
pub(super) fn first(net: Net, server: &SockAddr, versions: Versions) -> (Version, bool) {
    let (memory, now) = (memory(number(net, server)), endpoint::now());
    (memory.first(now, versions), memory.opens_by_call(now))
}

/// As [`remember`], when a connection is over: a server that was spoken to in version 1 may have asked
/// for version 2. One that has taken version 1 counts as such since it was asked, and no longer, so
/// that it is asked again when it comes back with another kernel.
pub(super) fn remember_end(net: Net, server: &SockAddr, endpoint: &Endpoint<Client>) {
    let state = endpoint.shared().lock();
    let is_version2 = state.protocol().is_some_and(Protocol::is_version2);
    drop(state);
    if is_version2 {
        remember(net, server, endpoint);
    }
}

/// Remembers what a connection has shown of its server.
pub(super) fn remember(net: Net, server: &SockAddr, endpoint: &Endpoint<Client>) {
    let number = number(net, server);
    let before = memory(number);
    let mut memory = before;
    if let Some(protocol) = endpoint.shared().lock().protocol() {
        Protocol::remember(protocol, endpoint::now(), &mut memory);
    }
    if memory != before {
        let until = memory.until().map_or(0, |until| until.0 / 1_000);
        let by_call = if memory.by_call() { BY_CALL } else { 0 };
        let upper = number & !u64::from(u32::MAX);
        place(number).store(upper | by_call | (until & (BY_CALL - 1)), Relaxed);
    }
}
