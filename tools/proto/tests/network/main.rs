// SPDX-License-Identifier: GPL-2.0

//! Whole sessions: a client and a server, a network between them, and RPCs in both directions.
//!
//! Everything that the kernel does around the core is done here with vectors for memory: the
//! plan is carried out, memory is "registered", read and written by handle, messages arrive late,
//! completions arrive later, and connections are lost. Every RPC has to come back with the very
//! bytes that its server made.

mod hostile;
mod load;
mod net;
mod rpc;

use common::config::v1_only;
use rpcrdma_proto::proto::connection::negotiate::{Time, Versions};
use rpcrdma_proto::proto::connection::Config;
use rpcrdma_proto::proto::wire::property::Properties;
use rpcrdma_proto::proto::wire::types::{Version, Xid};

use crate::net::{Chunking, Net, Weather};
use crate::rpc::Outcome;

fn v1() -> Config {
    Config {
        xid: Xid(1),
        keep_alive: Time(10_000),
        ..v1_only(16)
    }
}

fn v2() -> Config {
    Config {
        versions: Versions::BOTH,
        // Longer than the messages of version 1.
        properties: Properties {
            send_size: 8192,
            recv_size: 8192,
            segments: 64,
            ..Properties::DEFAULT
        },
        ..v1()
    }
}

fn v2_small() -> Config {
    Config {
        properties: Properties {
            segment_size: 8192,
            segments: 40,
            ..Properties::DEFAULT
        },
        calls: 2,
        grants: 1,
        ceiling: 2,
        continued: 60_000,
        ..v2()
    }
}

/// A peer that does no explicit RDMA at all.
fn v2_plain() -> Config {
    Config {
        ceiling: 3,
        ..v2_small()
    }
}

/// Returns the limits of a peer for one Call, selected by its ceiling.
fn chunking(config: &Config) -> Chunking {
    let most = match config.ceiling {
        2 => 1,
        3 => 0,
        _ => 4,
    };
    Chunking {
        read_chunks: most,
        write_chunks: most,
    }
}

fn pairs() -> impl Iterator<Item = (Config, Config)> {
    let all = [v1(), v2(), v2_small()];
    all.into_iter()
        .flat_map(move |client| all.into_iter().map(move |server| (client, server)))
}

fn expected_version(client: &Config, server: &Config) -> Version {
    client.versions.high.min(server.versions.high)
}

fn session(client: Config, server: Config, weather: Weather, seed: u64, rpcs: u32) -> Net {
    // Both ways to find the version take turns.
    let mut net = Net::new(client, server, weather, seed, seed % 2 == 0);
    for _ in 0..rpcs {
        net.add_rpc();
    }
    net.run();
    net
}

//= V2-020, V2-032, V2-038 (test)
//= V2-040, V2-042, V2-047 (test)
//= V2-055, V2-059, V2-061 (test)
//= V2-200, D-08, D-12 (test)
//= D-20, D-32 (test)
#[test]
fn every_pair_of_peers_completes_every_rpc() {
    for (client, server) in pairs() {
        for seed in 0..8 {
            let net = session(client, server, Weather::Calm, seed, 60);
            assert_eq!(net.version(), Some(expected_version(&client, &server)));
            net.assert_outcomes(|outcome| outcome == Outcome::Done);
        }
    }
}

/// Version 2 is spoken at once with servers that announce it, and no message of it goes to others. Another
/// setting of the server is noticed at the next connection.
//= VA-007, VA-008, VA-009 (test)
//= D-53 (test)
#[test]
fn version_2_is_for_servers_that_announce_it() {
    for (client, server) in pairs() {
        for seed in 600..604 {
            let mut net = Net::new(client, server, Weather::Slow, seed, false);
            for versions in [Versions::V1, Versions::BOTH, Versions::V1, Versions::BOTH] {
                net.set_server_versions(versions);
                net.reconnect();
                let expected = client.versions.high.min(versions.high);
                // Known before anything is sent.
                assert_eq!(net.version(), Some(expected));
                for _ in 0..20 {
                    net.add_rpc();
                }
                net.run();
                net.assert_outcomes(|outcome| outcome == Outcome::Done);
                assert_eq!(net.version(), Some(expected));
                assert_eq!(net.has_sent_version_2(), expected == Version::V2);
            }
            assert_eq!(net.losses(), 0);
        }
    }
}

/// A server without version 1 that says nothing to a CONNPROP is found out, and is not asked that way
/// again: one connection is enough from then on.
//= V2-058, V2-061, V2-062 (test)
//= D-20, D-32 (test)
#[test]
fn a_server_that_is_silent_to_a_connprop_is_opened_by_a_call() {
    let server = Config {
        versions: Versions {
            low: Version::V2,
            high: Version::V2,
        },
        ..v2()
    };
    for seed in 500..508 {
        let mut net = Net::new(v2(), server, Weather::Slow, seed, true).deafen();
        for _ in 0..3 {
            for _ in 0..20 {
                net.add_rpc();
            }
            net.run();
            net.assert_outcomes(|outcome| outcome == Outcome::Done);
            assert_eq!((net.version(), net.losses()), (Some(Version::V2), 2));
            net.reconnect();
        }
    }
}

/// A Call that is refused goes as a Long Call, and when that is refused, too, in parts.
//= V2-105, V2-150, V2-151 (test)
//= V2-154, D-06 (test)
#[test]
fn every_rpc_is_done_by_a_peer_that_takes_no_chunks() {
    for seed in 400..408 {
        let net = session(v2(), v2_plain(), Weather::Slow, seed, 60);
        net.assert_outcomes(|outcome| outcome == Outcome::Done);
        assert!(net.refused() > 20, "{} refusals", net.refused());
    }
}

//= V2-039, V2-051, V2-052 (test)
//= V2-053, D-09, D-10 (test)
//= D-11, D-14 (test)
#[test]
fn late_messages_and_completions_starve_nobody() {
    for (client, server) in pairs() {
        for seed in 100..108 {
            session(client, server, Weather::Slow, seed, 60)
                .assert_outcomes(|outcome| outcome == Outcome::Done);
        }
    }
}

//= V1-102, V2-062, D-15 (test)
//= NFS-061 (test)
#[test]
fn lost_connections_are_replaced_until_every_rpc_is_done() {
    for (client, server) in pairs() {
        for seed in 200..208 {
            session(client, server, Weather::Storm, seed, 60)
                .assert_outcomes(|outcome| outcome == Outcome::Done);
        }
    }
}

//= V1-117, V1-119, V1-133 (test)
//= V2-168, V2-169, V2-172 (test)
#[test]
fn reverse_calls_share_the_connection() {
    for (client, server) in pairs() {
        for seed in 300..304 {
            let mut net = Net::new(client, server, Weather::Slow, seed, seed % 2 == 0);
            for _ in 0..30 {
                net.add_rpc();
                net.add_reverse_rpc();
            }
            net.run();
            net.assert_outcomes(|outcome| outcome == Outcome::Done);
        }
    }
}
