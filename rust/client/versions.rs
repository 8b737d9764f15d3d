// SPDX-License-Identifier: GPL-2.0

//! The opening of a connection, and the memory of in-band negotiation.
//!
//! By default the announcement of the server says which version a connection is opened with, and nothing
//! is remembered. In-band negotiation remembers servers without version 2, and servers that a Call has
//! to ask for it, for some minutes, so that an upgraded server is noticed. All transports share the
//! memory. The number of places is fixed: a server may take the place of another, which is asked again
//! then.

use super::connection::Client;
use crate::{
    endpoint::{
        self,
        Endpoint, //
    },
    proto::connection::negotiate::{
        Opening,
        PeerVersionMemo,
        Time,
        Versions, //
    },
    support::{
        net::{
            Net,
            SockAddr, //
        },
        sysctl::Count, //
    },
};
use core::net::IpAddr;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The number of servers that are remembered.
const PLACES: usize = 64;

/// The memory, by a hash of the server's address. An entry has the upper half of the hash, a flag for a
/// server that is asked [by a Call](BY_CALL), and the second until which it is not asked in another way.
pub(super) struct VersionCache([Atomic<u64>; PLACES]);

/// The flag of a server that is asked for version 2 by a Call. An entry without the flag is a server without
/// version 2.
const BY_CALL: u64 = 1 << 31;

pub(super) static KNOWN: VersionCache = VersionCache([const { Atomic::new(0) }; PLACES]);

/// The value of the setting: the number of remembered servers. Writing zero clears the memory.
impl Count for VersionCache {
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

/// Returns the time until which the memory of a server's version is valid.
fn until(known: u64) -> Time {
    Time((known & (BY_CALL - 1)) * 1_000)
}

/// Returns a hash of a server's address and its network namespace. After a collision, or after the reuse of a
/// namespace, the client does not ask the other server for its version for a while.
fn server_hash(net: Net, server: &SockAddr) -> u64 {
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

fn cache_slot(number: u64) -> &'static Atomic<u64> {
    &KNOWN.0[number as usize % PLACES]
}

fn memory(number: u64) -> PeerVersionMemo {
    let known = cache_slot(number).load(Relaxed);
    let is_this = known >> 32 == number >> 32;
    PeerVersionMemo::new(
        is_this.then_some(until(known)),
        is_this && known & BY_CALL != 0,
    )
}

/// Returns the way to open a connection whose version is negotiated in-band, and whether a Call opens it even
/// in version 2. `proof` is true if the server has to prove its identity.
pub(super) fn opening(
    net: Net,
    server: &SockAddr,
    versions: Versions,
    proof: bool,
) -> (Opening, bool) {
    if proof {
        // Only a CONNPROP of version 2 can carry a proof, so the memory is not asked.
        return (Opening::InBand(versions.high), false);
    }
    let (memory, now) = (memory(server_hash(net, server)), endpoint::now());
    let first = memory.first(now, versions);
    (Opening::InBand(first), memory.opens_by_call(now))
}

/// Updates the memory when a connection is over, as [`remember`] does: a server that was addressed in
/// version 1 may have asked for version 2. A server that has accepted version 1 counts as a server of
/// version 1 from the time when it was asked, so that it is asked again after an update of its kernel.
pub(super) fn remember_end(net: Net, server: &SockAddr, endpoint: &Endpoint<Client>) {
    let state = endpoint.shared().lock();
    let is_version2 = state
        .protocol()
        .is_some_and(|protocol| protocol.is_version2());
    drop(state);
    if is_version2 {
        remember(net, server, endpoint);
    }
}

/// Remembers which version the server of a connection speaks, if it was negotiated in-band.
pub(super) fn remember(net: Net, server: &SockAddr, endpoint: &Endpoint<Client>) {
    if !endpoint.shared().role.negotiates_in_band {
        return;
    }
    let number = server_hash(net, server);
    let before = memory(number);
    let mut memory = before;
    if let Some(protocol) = endpoint.shared().lock().protocol() {
        protocol.remember(endpoint::now(), &mut memory);
    }
    if memory != before {
        let until = memory.until().map_or(0, |until| until.0 / 1_000);
        let by_call = if memory.by_call() { BY_CALL } else { 0 };
        let upper = number & !u64::from(u32::MAX);
        cache_slot(number).store(upper | by_call | (until & (BY_CALL - 1)), Relaxed);
    }
}
