// SPDX-License-Identifier: GPL-2.0

//! The choice of a version.

use rpcrdma_proto::proto::connection::negotiate::{
    Answer, Negotiation, PeerVersionMemo, Time, Versions,
};
use rpcrdma_proto::proto::wire::cm_private::Announcement;
use rpcrdma_proto::proto::wire::types::{Version, Xid};

const PROBE: Xid = Xid(7);

fn client() -> Negotiation {
    let mut client = Negotiation::client(Versions::BOTH, Version::V2);
    client.note_probe(PROBE);
    client
}

//= V1-005, V1-094, V2-004 (test)
#[test]
fn only_own_versions_are_accepted() {
    assert_eq!(Versions::BOTH.accept(1), Some(Version::V1));
    assert_eq!(Versions::BOTH.accept(2), Some(Version::V2));
    assert_eq!(Versions::V1.accept(2), None);
    assert_eq!(Versions::BOTH.accept(0), None);
    assert_eq!(Versions::BOTH.accept(3), None);
}

//= VA-007, VA-008, D-53 (test)
#[test]
fn the_lower_of_both_highest_versions_is_spoken() {
    let only = |version| Versions {
        low: version,
        high: version,
    };
    for (own, highest, expected) in [
        (Versions::BOTH, 0, Versions::V1),
        (Versions::BOTH, 1, Versions::V1),
        (Versions::BOTH, 2, Versions::BOTH),
        (Versions::BOTH, 3, Versions::BOTH),
        (Versions::BOTH, 255, Versions::BOTH),
        (Versions::V1, 0, Versions::V1),
        (Versions::V1, 1, Versions::V1),
        (Versions::V1, 2, Versions::V1),
        (Versions::V1, 3, Versions::V1),
        // Without version 1 there is nothing else to begin with.
        (only(Version::V2), 1, only(Version::V2)),
        (only(Version::V2), 2, only(Version::V2)),
    ] {
        assert_eq!(own.announced_by(Announcement { highest }), expected);
    }
}

//= V2-061, V2-065, D-32 (test)
#[test]
fn one_fall_back_is_allowed_and_no_more() {
    let mut client = client();
    assert!(client.may_change());
    assert_eq!(
        client.handle_err_vers(PROBE, 1, 1),
        Answer::Use(Version::V1)
    );
    assert_eq!(client.version(), Some(Version::V1));
    assert!(!client.is_settled() && !client.may_change());
    client.note_probe(PROBE);
    let again = client.handle_err_vers(PROBE, 1, 2);
    assert_eq!(again, Answer::NoCommonVersion);
    client.settle(Version::V1);
    assert_eq!(client.handle_err_vers(PROBE, 2, 2), Answer::Settled);
    assert_eq!(client.version(), Some(Version::V1));
    let mut at_once = Negotiation::client(Versions::BOTH, Version::V2);
    at_once.settle(Version::V2);
    assert!(!at_once.may_change());
}

//= V2-061, V2-144, D-05 (test)
//= D-19, D-32 (test)
#[test]
fn the_rejected_version_is_not_tried_again() {
    assert_eq!(
        client().handle_err_vers(PROBE, 1, 2),
        Answer::Use(Version::V1)
    );
    assert_eq!(
        client().handle_err_vers(PROBE, 2, 4),
        Answer::NoCommonVersion
    );
    assert_eq!(
        client().handle_err_vers(PROBE, 3, 4),
        Answer::NoCommonVersion
    );
    assert_eq!(client().handle_err_vers(PROBE, 2, 1), Answer::Ignore);
    assert_eq!(client().handle_err_vers(Xid(8), 1, 1), Answer::Ignore);
    let mut server = Negotiation::server(Versions::BOTH);
    assert_eq!(server.handle_err_vers(PROBE, 1, 1), Answer::Ignore);
}

//= V2-059, V2-064 (test)
#[test]
fn the_first_message_settles_a_server() {
    let mut server = Negotiation::server(Versions::BOTH);
    assert_eq!(server.version(), None);
    server.settle(Version::V1);
    assert_eq!(server.version(), Some(Version::V1));
    assert!(server.is_settled());
}

//= V2-062, D-32 (test)
#[test]
fn a_server_that_did_not_answer_is_remembered() {
    let now = Time(5);
    for (remembered, end) in [
        (true, client()),
        (true, {
            let mut fell_back = client();
            fell_back.handle_err_vers(PROBE, 1, 1);
            fell_back
        }),
        (false, {
            let mut settled = client();
            settled.settle(Version::V2);
            settled
        }),
        (false, Negotiation::client(Versions::BOTH, Version::V1)),
        (false, {
            let mut rose = Negotiation::client(Versions::BOTH, Version::V1);
            rose.note_probe(PROBE);
            let answer = rose.handle_err_vers(PROBE, 2, 2);
            assert_eq!(answer, Answer::Use(Version::V2));
            rose.settle(Version::V2);
            rose
        }),
    ] {
        let mut memory = PeerVersionMemo::default();
        end.remember(now, &mut memory);
        let expected = if remembered { Version::V1 } else { Version::V2 };
        assert_eq!(memory.first(now, Versions::BOTH), expected);
        let later = now.after(PeerVersionMemo::KEEP);
        assert_eq!(memory.first(later, Versions::BOTH), Version::V2);
        assert_eq!(memory.first(later, Versions::V1), Version::V1);
    }
}

//= V2-061, V2-062, D-32 (test)
#[test]
fn a_server_that_asks_for_version_2_is_believed() {
    let now = Time(5);
    let mut memory = PeerVersionMemo::default();
    client().remember(now, &mut memory);
    assert_eq!(memory.first(now, Versions::BOTH), Version::V1);
    let mut rose = Negotiation::client(Versions::BOTH, Version::V1);
    rose.note_probe(PROBE);
    rose.handle_err_vers(PROBE, 2, 2);
    rose.remember(now, &mut memory);
    assert_eq!(memory.first(now, Versions::BOTH), Version::V2);
    // It has not answered a CONNPROP, so a Call comes first.
    assert!(memory.opens_by_call(now));
    let mut unknown = PeerVersionMemo::default();
    rose.remember(now, &mut unknown);
    assert!(!unknown.opens_by_call(now));
    assert_eq!(unknown.first(now, Versions::BOTH), Version::V2);
}
