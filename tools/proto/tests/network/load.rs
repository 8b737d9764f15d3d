// SPDX-License-Identifier: GPL-2.0

//! Many callers whose Replies come in several messages, between two peers with receive queues.
//!
//! A Reply in parts takes one credit of the caller and is several messages to it. The server must
//! not grant a credit with each of them: messages of the peer without a Receive would block its
//! later messages, including the credits that the server waits for.

use common::config::config;
use common::network::Fabric;
use common::world::{forward, Action, Fate, Setup, World};
use common::Random;
use rpcrdma_proto::proto::connection::negotiate::Versions;
use rpcrdma_proto::proto::connection::{Config, Side};

/// The Calls of either side's other direction that have Receives.
const CALLBACKS: u16 = 16;

/// A peer with Receives for `calls` Calls, or Replies, and for the messages of the other direction.
fn peer(calls: u16) -> Config {
    Config {
        calls: calls.into(),
        grants: CALLBACKS.into(),
        ..config(Versions::BOTH, calls + CALLBACKS)
    }
}

/// The length of Replies in `count` parts: the default threshold is 4096 bytes.
const fn parts(count: u32) -> u32 {
    4000 * count
}

/// Executes the possible actions in any order until there are none. The frequency of each kind of
/// action depends on the seed: a side may be slow to send, to process messages, or to process
/// completions.
fn run(setup: &Setup, seed: u64) -> World {
    let mut random = Random::new(seed + 1);
    let weights = [(); 6].map(|()| [1, 4, 16][random.below(3) as usize]);
    let weight = |action: &Action| match action {
        Action::Send(side) => weights[usize::from(*side == Side::Server)],
        Action::Receive(side) => weights[2 + usize::from(*side == Side::Server)],
        Action::Complete(side) => weights[4 + usize::from(*side == Side::Server)],
        _ => 1,
    };
    let mut world = World::new(setup);
    let mut actions = Vec::new();
    loop {
        actions.clear();
        world.actions(setup, &mut actions);
        let total: u64 = actions.iter().map(weight).sum();
        if total == 0 {
            return world;
        }
        let mut choice = random.below(total);
        let chosen = actions.iter().find(|action| {
            let weight = weight(action);
            let found = choice < weight;
            choice = choice.saturating_sub(weight);
            found
        });
        world.act(setup, *chosen.expect("one of them"));
    }
}

fn assert_all_done(what: &str, setup: &Setup, seed: u64) {
    let world = run(setup, seed);
    let done = |fate: &&Fate| **fate == Fate::Done;
    let done = world.fates().iter().filter(done).count();
    let (missed, broken) = (world.missed(), world.broken());
    assert!(
        done == setup.rpcs.len() && missed == 0 && broken.is_none(),
        "{what}, {:?}, seed {seed}: {done} of {} RPCs ended well, {missed} messages found no Receive, \
         broken: {broken:?}",
        setup.fabric,
        setup.rpcs.len(),
    );
}

//= V2-037, V2-038, V2-039 (test)
//= V2-047, V2-048, V2-052 (test)
//= D-10, D-11, D-14 (test)
#[test]
fn replies_in_parts_find_receives_and_leave_some() {
    for (max_requests, callers) in [(16, 64), (16, 128), (32, 64), (32, 128)] {
        for fabric in [Fabric::InfiniBand, Fabric::Iwarp] {
            for (seed, count) in [2, 3, 5].into_iter().enumerate() {
                let setup = Setup {
                    configs: [peer(128), peer(max_requests)],
                    rpcs: vec![forward(120, parts(count)); 3 * callers],
                    callers,
                    in_band: false,
                    hold: true,
                    fabric,
                    losses: 0,
                    impatience: 0,
                };
                let what = format!("max_requests {max_requests}, {callers} callers, {count} parts");
                assert_all_done(&what, &setup, seed as u64);
            }
        }
    }
}

/// A client that has 32 Receives of 4096 bytes and offers no memory: a READ of 128 KiB has 33 parts.
//= V2-037, V2-038, V2-039 (test)
//= V2-047, V2-048, V2-052 (test)
//= D-10, D-11, D-14 (test)
#[test]
fn a_client_without_chunks_gets_replies_of_more_parts_than_it_has_receives() {
    for fabric in [Fabric::InfiniBand, Fabric::Iwarp] {
        for (seed, callers) in [32, 40, 64].into_iter().enumerate() {
            let setup = Setup {
                configs: [config(Versions::BOTH, 32), peer(128)],
                rpcs: vec![forward(120, 128 << 10); 2 * callers],
                callers,
                in_band: false,
                hold: true,
                fabric,
                losses: 0,
                impatience: 0,
            };
            assert_all_done(&format!("{callers} READs of 128 KiB"), &setup, seed as u64);
        }
    }
}
