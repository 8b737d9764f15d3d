// SPDX-License-Identifier: GPL-2.0

//! Two peers that keep the rules, of any kind and with any order of events: all RPCs end well.

use common::config::{both, small, v1_only};
use common::network::Fabric;
use common::world::{forward, reverse, Action, Fate, Setup, World};
use rpcrdma_proto::proto::wire::types::Version;

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let kind = |source: &mut Source<'_>| {
        let ceiling = 1 + source.u8() % 16;
        [v1_only, both, small][source.below(3) as usize](ceiling.into())
    };
    let configs = [kind(&mut source), kind(&mut source)];
    let mut rpcs = vec![forward(40, 40)];
    for _ in 0..source.u8() % 8 {
        let (call, reply) = (8 + source.below(6000), 8 + source.below(6000));
        let reversed = source.u8() % 4 == 1;
        rpcs.push(if reversed {
            reverse(call, reply)
        } else {
            forward(call, reply)
        });
    }
    let setup = Setup {
        configs,
        rpcs,
        callers: usize::MAX,
        hold: source.flag(),
        fabric: Fabric::Iwarp,
        losses: source.u8() % 2,
        impatience: source.u8() % 2,
        in_band: source.flag(),
    };
    let mut world = World::new(&setup);
    let mut actions = Vec::new();
    let mut steps = 0;
    loop {
        actions.clear();
        world.actions(&setup, &mut actions);
        if source.is_empty() {
            // From now on nothing goes wrong any more.
            actions.retain(|action| !matches!(action, Action::Lose | Action::Impatience));
        }
        if actions.is_empty() {
            break;
        }
        let choice = source.below(u32::try_from(actions.len()).expect("few"));
        world.act(&setup, actions[choice as usize]);
        assert!(world.broken().is_none(), "{:?}", world.broken());
        steps += 1;
        assert!(steps < 10_000, "no end");
    }
    assert!(
        world.is_over(),
        "{:?} of {:?} in {setup:?}",
        world.fates(),
        world.version()
    );
    assert!(world.fates().iter().all(|fate| *fate == Fate::Done));
    let both_speak_v2 = configs
        .iter()
        .all(|config| config.versions.high == Version::V2);
    if both_speak_v2 && setup.losses == 0 && setup.impatience == 0 {
        assert_eq!(world.version(), Some(Version::V2));
    }
}
