// SPDX-License-Identifier: GPL-2.0

//! Flow control.

use proptest::prelude::*;
use rpcrdma_proto::proto::connection::credit::{Allowance, CallCredits, RecvCredits, SendCredits};
use rpcrdma_proto::proto::connection::negotiate::Time;
use rpcrdma_proto::proto::wire::types::Grant;

fn grant(granted: u16, ceiling: u16) -> Grant {
    Grant { granted, ceiling }
}

//= V1-033, V1-034, V1-035 (test)
//= V1-038 (test)
#[test]
fn v1_grants_count_within_what_was_asked_for() {
    for (word, limit) in [(0, 1), (1, 1), (31, 31), (32, 32), (33, 32), (u32::MAX, 32)] {
        let mut calls = CallCredits::new(32);
        calls.handle_grant(word);
        assert_eq!(calls.limit(), limit);
    }
    let mut calls = CallCredits::new(0);
    calls.handle_grant(5);
    assert_eq!(calls.limit(), 1);
}

//= V1-006, V1-032, V1-036 (test)
//= V1-037, V1-038, V1-042 (test)
//= V1-043 (test)
#[test]
fn v1_starts_with_one_call_and_follows_the_grant() {
    let mut calls = CallCredits::new(16);
    assert_eq!(calls.requested(), 16);
    assert!(calls.start());
    assert!(!calls.start());
    calls.handle_grant(3);
    assert!(calls.start() && calls.start() && !calls.start());
    // A lowered grant takes effect as Calls end.
    calls.handle_grant(1);
    calls.finish();
    calls.finish();
    assert!(!calls.start());
    calls.finish();
    assert!(calls.start());
    assert_eq!((calls.limit(), calls.outstanding()), (1, 1));
}

//= V1-032, V1-122 (test)
#[test]
fn v1_calls_wait_for_receives_for_their_replies() {
    let mut calls = CallCredits::new(16);
    calls.set_ready(2);
    // The Call asks for all credits.
    assert_eq!((calls.requested(), calls.ready()), (16, 2));
    calls.handle_grant(16);
    assert!(calls.start() && calls.start() && !calls.start());
    // The grant of the last Reply applies when there are more Receives.
    calls.set_ready(4);
    assert_eq!(calls.limit(), 4);
    assert!(calls.start() && calls.start() && !calls.start());
    calls.handle_grant(3);
    calls.set_ready(8);
    assert_eq!(calls.limit(), 3);
    // The other version begins with the same Receives.
    calls.restart();
    assert_eq!((calls.limit(), calls.outstanding()), (1, 0));
    calls.handle_grant(16);
    assert_eq!((calls.limit(), calls.requested()), (8, 16));
}

/// Replies, one each `apart` milliseconds, until there are to be more Receives, or `most` of them.
fn replies(allowance: &mut Allowance, now: &mut u64, apart: u64, most: u32) -> Option<u32> {
    limited(allowance, u32::MAX, now, apart, most)
}

/// The same, while no more than `limit` Calls may be granted.
fn limited(
    allowance: &mut Allowance,
    limit: u32,
    now: &mut u64,
    apart: u64,
    most: u32,
) -> Option<u32> {
    (0..most).find_map(|_| {
        *now += apart;
        let had = allowance.calls();
        let wanted = allowance.handle_reply(limit, || Time(*now))?;
        assert_eq!(wanted.start, had);
        Some(wanted.end)
    })
}

//= V1-033, V1-035, V1-040 (test)
#[test]
fn credits_grow_with_their_use() {
    let mut now = 5;
    let mut allowance = Allowance::new(8, 100, Time(now));
    for calls in [16, 32, 64, 100] {
        let before = allowance.calls();
        assert_eq!(
            replies(&mut allowance, &mut now, 1, 2 * before),
            Some(calls)
        );
        // Nothing is granted before it is posted, and only one posts.
        assert_eq!(allowance.calls(), before);
        assert_eq!(replies(&mut allowance, &mut now, 1, 200), None);
        allowance.handle_posted(calls);
        assert_eq!(allowance.calls(), calls);
    }
    assert_eq!(replies(&mut allowance, &mut now, 0, 1000), None);
}

//= V1-033, V1-035, V1-040 (test)
#[test]
fn credits_grow_as_far_as_they_may_at_the_time() {
    let mut now = 0;
    let mut allowance = Allowance::new(8, 100, Time(now));
    assert_eq!(limited(&mut allowance, 4, &mut now, 1, 50), None);
    assert_eq!(limited(&mut allowance, 12, &mut now, 1, 8), Some(12));
    allowance.handle_posted(12);
    assert_eq!(limited(&mut allowance, 12, &mut now, 1, 50), None);
    assert_eq!(limited(&mut allowance, 4, &mut now, 1, 50), None);
    assert_eq!(allowance.calls(), 12);
    assert_eq!(limited(&mut allowance, 16384, &mut now, 1, 12), Some(24));
    allowance.handle_posted(24);
    assert_eq!(limited(&mut allowance, 90, &mut now, 1, 24), Some(48));
    allowance.handle_posted(48);
    assert_eq!(limited(&mut allowance, 16384, &mut now, 1, 48), Some(96));
    allowance.handle_posted(96);
    assert_eq!(limited(&mut allowance, 16384, &mut now, 1, 96), Some(100));
}

#[test]
fn an_idle_peer_gets_no_more_credits() {
    let mut now = 0;
    let mut allowance = Allowance::new(8, 128, Time(now));
    assert_eq!(replies(&mut allowance, &mut now, 1000 / 7, 1000), None);
    assert_eq!(replies(&mut allowance, &mut now, 1000 / 8, 16), Some(16));
}

#[test]
fn without_memory_credits_stay_and_are_tried_again() {
    let mut now = 0;
    let mut allowance = Allowance::new(8, 128, Time(now));
    assert_eq!(replies(&mut allowance, &mut now, 1, 8), Some(16));
    allowance.handle_no_memory(Time(now));
    assert_eq!(allowance.calls(), 8);
    assert_eq!(replies(&mut allowance, &mut now, 1, 8), Some(16));
    let few = Allowance::new(8, 3, Time(now));
    assert_eq!(few.calls(), 3);
}

//= V1-033, V1-035, V1-040 (test)
#[test]
fn calls_in_progress_get_credits_for_others() {
    let mut allowance = Allowance::new(8, 50, Time(0));
    for (most_in_progress, calls) in [(4, 16), (8, 32), (16, 50)] {
        for in_progress in 0..=most_in_progress {
            assert_eq!(allowance.handle_call(in_progress, || 128, || Time(0)), None);
        }
        let wanted = allowance.handle_call(most_in_progress + 1, || 128, || Time(0));
        assert_eq!(wanted, Some(allowance.calls()..calls));
        // Nothing is granted before it is posted, and only one posts.
        assert_eq!(
            allowance.handle_call(most_in_progress + 2, || 128, || Time(0)),
            None
        );
        assert_eq!(allowance.handle_reply(128, || Time(0)), None);
        allowance.handle_posted(calls);
    }
    assert_eq!(allowance.handle_call(50, || 128, || Time(0)), None);
}

//= V1-033, V1-035, V1-040 (test)
#[test]
fn calls_in_progress_get_as_many_credits_as_are_permitted() {
    let mut allowance = Allowance::new(8, 50, Time(0));
    let ask = |allowance: &mut Allowance, in_progress, most, now| {
        allowance.handle_call(in_progress, || most, || Time(now))
    };
    assert_eq!(ask(&mut allowance, 8, 8, 0), None);
    assert_eq!(ask(&mut allowance, 8, 4, 0), None);
    assert_eq!(ask(&mut allowance, 8, 12, 5), Some(8..12));
    // Without memory, a Call asks again after a second.
    allowance.handle_no_memory(Time(7));
    assert_eq!(allowance.calls(), 8);
    assert_eq!(ask(&mut allowance, 8, 12, 1006), None);
    assert_eq!(ask(&mut allowance, 8, 12, 1007), Some(8..12));
    allowance.handle_posted(12);
    assert_eq!(ask(&mut allowance, 12, 12, 1008), None);
}

#[test]
fn each_thread_has_a_credit_from_the_start() {
    for (threads, credits) in [(0, 8), (8, 8), (9, 9), (64, 64), (1000, 64)] {
        assert_eq!(Allowance::first(threads), credits);
    }
}

//= V2-044, V2-045, V2-047 (test)
//= V2-048, V2-049, D-09 (test)
//= D-10 (test)
#[test]
fn v2_grants_add_up_to_the_ceiling() {
    let mut send = SendCredits::new(0);
    assert!(!send.take());
    assert!(send.handle_grant(grant(2, 4)));
    assert!(send.take() && send.take() && !send.take());
    // Two messages are on their way: only two more may be.
    assert!(send.handle_grant(grant(9, 4)));
    assert_eq!(send.balance(), 2);
    send.handle_sent(1);
    send.handle_sent(1);
    assert_eq!((send.balance(), send.outstanding()), (4, 0));
    assert!(!send.handle_grant(grant(0, 4)));
    assert!(!send.handle_grant(grant(1, 0)));
    assert_eq!(send.balance(), 4);
    // The peer lowers its ceiling.
    assert!(send.handle_grant(grant(1, 1)));
    assert_eq!(send.balance(), 1);
}

//= V2-049, D-09 (test)
#[test]
fn a_lower_ceiling_does_not_count_the_sends_before_it() {
    let mut send = SendCredits::new(0);
    send.handle_grant(grant(64, 64));
    for _ in 0..5 {
        assert!(send.take());
    }
    // None of the five has asked for a completion. The next Send asks.
    send.handle_grant(grant(1, 4));
    assert_eq!(send.balance(), 4);
    assert!(send.take());
    assert_eq!((send.balance(), send.outstanding()), (3, 1));
    // The earlier Sends complete first, and make no room for more than four.
    send.handle_sent(5);
    assert_eq!((send.balance(), send.outstanding()), (3, 1));
    send.handle_sent(1);
    send.handle_grant(grant(9, 4));
    assert_eq!((send.balance(), send.outstanding()), (4, 0));
    // A ceiling with room for another Send counts the Sends before it.
    assert!(send.take() && send.take());
    send.handle_grant(grant(9, 3));
    assert_eq!((send.balance(), send.outstanding()), (1, 2));
}

//= V2-045, D-09 (test)
#[test]
fn credits_that_arrive_before_completions_are_not_lost() {
    let mut send = SendCredits::new(0);
    send.handle_grant(grant(4, 4));
    for _ in 0..4 {
        assert!(send.take());
    }
    for _ in 0..4 {
        send.handle_grant(grant(1, 4));
    }
    assert_eq!(send.balance(), 0);
    for done in 1..=4 {
        send.handle_sent(1);
        assert_eq!(send.balance(), done);
    }
}

//= V2-047, D-09, D-12 (test)
#[test]
fn starting_gives_no_credit_twice() {
    let mut send = SendCredits::new(1);
    assert!(send.take());
    // The answer overtakes the completion of the message that it answers.
    send.handle_grant(grant(1, 1));
    send.ensure_one();
    assert_eq!(send.balance(), 0);
    send.handle_sent(1);
    assert_eq!(send.balance(), 1);
    let mut send = SendCredits::new(0);
    send.ensure_one();
    assert_eq!(send.balance(), 1);
}

//= V2-046, V2-048, V2-052 (test)
//= V2-187, D-10, D-11 (test)
#[test]
fn receives_bound_what_is_granted() {
    let mut recv = RecvCredits::new(16, 0);
    assert_eq!(RecvCredits::receives(16), 16 + 1);
    assert_eq!(recv.grant(), grant(16, 16));
    assert_eq!(recv.balance(), 16);
    // Nothing is left to give.
    assert_eq!(recv.grant(), grant(0, 16));
    assert_eq!(recv.balance(), 16);
    assert!(recv.handle_message());
    recv.handle_posted(RecvCredits::receives(16) - 1);
    assert_eq!(recv.grantable(), 0);
    recv.handle_posted(RecvCredits::receives(16));
    assert_eq!(recv.grantable(), 1);
    assert!(!recv.is_short());
    for _ in 0..8 {
        assert!(recv.handle_message());
    }
    assert!(recv.is_short());
    assert_eq!(recv.no_grant(), grant(1, 16));
    for _ in 0..7 {
        assert!(recv.handle_message());
    }
    assert!(!recv.handle_message());
    recv.set_ceiling(4);
    assert_eq!(recv.grant(), grant(4, 4));
}

/// One thing that happens between two peers, in one direction of Sends.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    Arrive,
    Complete,
    Grant,
    GrantArrives,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Send),
        3 => Just(Step::Arrive),
        2 => Just(Step::Complete),
        2 => Just(Step::Grant),
        2 => Just(Step::GrantArrives),
    ]
}

proptest! {
    //= V2-038, V2-039, V2-046 (test)
    //= V2-047, V2-053, D-09 (test)
    //= D-10, D-13 (test)
    #[test]
    fn never_more_messages_are_on_their_way_than_receives(
        ceiling in 1_u16..20,
        steps in proptest::collection::vec(any_step(), 0..300),
    ) {
        let mut send = SendCredits::new(0);
        let mut recv = RecvCredits::new(ceiling, 0);
        let (mut way, mut uncompleted, mut granted, mut sent) = (0_u32, 0_u32, 0_u64, 0_u64);
        let mut grants = std::collections::VecDeque::new();
        for step in steps {
            match step {
                Step::Send => if send.take() {
                    way += 1;
                    uncompleted += 1;
                    sent += 1;
                },
                Step::Arrive => if way > 0 {
                    way -= 1;
                    recv.handle_message();
                },
                // A Send completes after its message has arrived.
                Step::Complete => if uncompleted > way {
                    uncompleted -= 1;
                    send.handle_sent(1);
                },
                Step::Grant => {
                    let grant = recv.grant();
                    granted += u64::from(grant.granted);
                    grants.push_back(grant);
                }
                Step::GrantArrives => if let Some(grant) = grants.pop_front() {
                    send.handle_grant(grant);
                },
            }
            prop_assert!(way <= u32::from(ceiling));
            prop_assert!(sent <= granted);
            prop_assert!(recv.balance() <= u32::from(ceiling));
        }
        // Once everything has arrived, another grant opens the way again.
        while way > 0 {
            way -= 1;
            recv.handle_message();
        }
        for _ in 0..uncompleted {
            send.handle_sent(1);
        }
        for grant in grants {
            send.handle_grant(grant);
        }
        // Both sides count the same.
        prop_assert_eq!(send.balance(), recv.balance());
        send.handle_grant(recv.grant());
        prop_assert!(send.balance() > 0);
    }
}
