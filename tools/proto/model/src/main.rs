// SPDX-License-Identifier: GPL-2.0

//! Explores everything that two peers can do, within small bounds.
//!
//! Prints one KTAP line for each pair of peers. `--large` takes larger bounds, and minutes.

use std::process::ExitCode;
use std::time::Instant;

use common::config::{both, config, small, v1_only, V2_ONLY};
use common::network::Fabric;
use common::world::{forward, reverse, Action, Fate, Setup, World};
use rpcrdma_proto::proto::wire::types::Version;
use stateright::{Checker, HasDiscoveries, Model, Property};

/// A pair of peers, and the required outcome.
#[derive(Clone)]
struct Case {
    name: &'static str,
    setup: Setup,
    /// The version that can be settled on; `None` when there is no common one.
    version: Option<Version>,
}

/// The required outcome.
const GOAL: &str = "all is well";

impl Model for Case {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setup)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(&self.setup, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        world.act(&self.setup, action);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no rule is broken", |_, world: &World| {
                world.broken().is_none()
            }),
            Property::always("every RPC ends", |case: &Self, world: &World| {
                let mut actions = Vec::new();
                world.actions(&case.setup, &mut actions);
                world.broken().is_some() || !actions.is_empty() || world.is_over()
            }),
            Property::always(
                "RPCs fail only without a version",
                |case: &Self, world: &World| {
                    case.version.is_none() || !world.fates().contains(&Fate::Failed)
                },
            ),
            Property::sometimes(GOAL, |case: &Self, world: &World| {
                let fate = case.version.map_or(Fate::Failed, |_| Fate::Done);
                world.version() == case.version && world.fates().iter().all(|f| *f == fate)
            }),
        ]
    }
}

fn cases(large: bool) -> Vec<Case> {
    let case = |name, configs, rpcs: &[_], version| Case {
        name,
        setup: Setup {
            configs,
            in_band: true,
            rpcs: rpcs.to_vec(),
            callers: usize::MAX,
            hold: false,
            fabric: Fabric::Iwarp,
            losses: 1 + u8::from(large),
            impatience: 1,
        },
        version,
    };
    // A version 2 connection that is lost, or answered late, is followed by one of version 1.
    let steady = |case: Case| Case {
        setup: Setup {
            losses: 0,
            impatience: 0,
            ..case.setup
        },
        ..case
    };
    // The announcement of the server decides the version.
    let announced = |name, case: Case| Case {
        name,
        setup: Setup {
            in_band: false,
            ..case.setup
        },
        ..case
    };
    let held = |case: Case| Case {
        setup: Setup {
            hold: true,
            ..case.setup
        },
        ..case
    };
    let (v1, v2) = (Some(Version::V1), Some(Version::V2));
    let short = forward(40, 40);
    let back = reverse(40, 40);
    let both_ways = [forward(1500, 1500), reverse(1500, 1500), short];
    let calls = &[short; 6][..if large { 6 } else { 4 }];
    let long_calls = &[forward(2900, 40); 3][..if large { 3 } else { 2 }];
    let long_replies = &[forward(40, 2900); 3][..if large { 3 } else { 2 }];
    vec![
        case("v1-v1", [v1_only(2), v1_only(3)], calls, v1),
        steady(case(
            "v1-v1-reverse",
            [v1_only(2), v1_only(2)],
            &[short, short, back, back],
            v1,
        )),
        case("v1-v2", [v1_only(2), both(2)], calls, v1),
        case("v1-small", [v1_only(1), small(1)], calls, v1),
        case("v2-v1", [both(2), v1_only(2)], calls, v1),
        case("small-v1", [small(1), v1_only(1)], calls, v1),
        case("v2-v2", [both(3), both(3)], calls, v2),
        case("v2-v2-one-credit", [both(1), both(1)], calls, v2),
        case("v2-v2-uneven", [both(1), both(4)], calls, v2),
        case(
            "v2-v2-reverse",
            [both(2), both(2)],
            &[short, short, back, back],
            v2,
        ),
        steady(case(
            "v2-v2-both-ways",
            [both(1), both(1)],
            &[short, short, back, back],
            v2,
        )),
        held(case("v2-v2-held", [both(2), both(2)], calls, v2)),
        case("v2-small", [both(2), small(1)], long_calls, v2),
        case("small-v2", [small(1), both(2)], long_replies, v2),
        case(
            "small-small",
            [small(1), small(1)],
            &[forward(2200, 2200), short],
            v2,
        ),
        held(case(
            "small-small-held",
            [small(2), small(2)],
            &[forward(2200, 1500), short],
            v2,
        )),
        steady(case(
            "small-small-both-ways",
            [small(2), small(2)],
            &both_ways,
            v2,
        )),
        // When an answer is lost, the client comes back with version 1, and goes up again.
        case("v2-v2only", [both(1), config(V2_ONLY, 1)], &[short], v2),
        case(
            "v2only-v1",
            [config(V2_ONLY, 1), v1_only(1)],
            &[short],
            None,
        ),
        case(
            "v1-v2only",
            [v1_only(1), config(V2_ONLY, 1)],
            &[short],
            None,
        ),
        announced(
            "v1-v2-announced",
            case("", [v1_only(2), both(2)], calls, v1),
        ),
        announced(
            "v2-v1-announced",
            case("", [both(2), v1_only(2)], calls, v1),
        ),
        announced("v2-v2-announced", case("", [both(3), both(3)], calls, v2)),
        announced(
            "v2-v2only-announced",
            case("", [both(1), config(V2_ONLY, 1)], &[short], v2),
        ),
        announced(
            "v2only-v1-announced",
            case("", [config(V2_ONLY, 1), v1_only(1)], &[short], None),
        ),
    ]
}

/// More states than these means that there is no end of them.
const MOST_STATES: usize = 500_000;

fn explore(case: &Case) -> Result<String, String> {
    let start = Instant::now();
    let checker = case
        .clone()
        .checker()
        .threads(2)
        .target_state_count(MOST_STATES);
    let checker = checker
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    for (name, path) in checker.discoveries() {
        if name != GOAL {
            let last = path.last_state().clone();
            let actions = path.into_actions();
            return Err(format!(
                "{name}: {:?}\n# {actions:?}\n# {last:?}",
                last.broken()
            ));
        }
    }
    let states = checker.unique_state_count();
    if states >= MOST_STATES {
        Err("there is no end of states".into())
    } else if checker.discovery(GOAL).is_none() {
        Err("never does all go well".into())
    } else {
        Ok(format!(
            "{states} states, {:.1} s",
            start.elapsed().as_secs_f32()
        ))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let large = arguments.iter().any(|argument| argument == "--large");
    let wanted = arguments
        .iter()
        .find(|argument| !argument.starts_with("--"));
    let mut cases = cases(large);
    cases.retain(|case| wanted.is_none_or(|wanted| wanted == case.name));
    println!("KTAP version 1\n1..{}", cases.len());
    let mut code = ExitCode::SUCCESS;
    for (number, case) in cases.iter().enumerate() {
        match explore(case) {
            Ok(what) => println!("ok {} {} # {what}", number + 1, case.name),
            Err(why) => {
                println!("# {why}\nnot ok {} {}", number + 1, case.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
