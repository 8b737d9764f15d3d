// SPDX-License-Identifier: GPL-2.0

//! Private data of the connection manager.

use proptest::prelude::*;
use rpcrdma_proto::proto::wire::cm_private::{self, Agreement, Announcement, CmPrivate};
use rpcrdma_proto::proto::wire::types::Version;

fn peer(remote_invalidation: bool, send_size: u32, recv_size: u32) -> CmPrivate {
    CmPrivate {
        remote_invalidation,
        send_size,
        recv_size,
    }
}

//= CM-011, CM-013, CM-014 (test)
//= CM-015 (test)
#[test]
fn remote_invalidation_needs_both_sides() {
    for (own, other) in [(false, false), (false, true), (true, false), (true, true)] {
        let effective = Agreement::new(&peer(own, 4096, 4096), &peer(other, 4096, 4096));
        assert_eq!(effective.remote_invalidation, own && other);
    }
}

//= CM-008, CM-009, CM-021 (test)
//= CM-022, CM-030, CM-031 (test)
//= V1-044, V1-046, V1-047 (test)
#[test]
fn thresholds_are_the_smaller_of_both_sides() {
    let client = peer(true, 8192, 2048);
    let server = peer(true, 4096, 1024);
    let at_client = Agreement::new(&client, &server);
    let at_server = Agreement::new(&server, &client);
    assert_eq!((at_client.inline_send, at_client.inline_recv), (1024, 2048));
    assert_eq!((at_server.inline_send, at_server.inline_recv), (2048, 1024));
    let silent = Agreement::new(&client, &CmPrivate::decode(&[]));
    assert_eq!((silent.inline_send, silent.inline_recv), (1024, 1024));
}

/// Returns the private data of this module, and the message of RFC 8797 in them.
fn both_messages(highest: u8) -> ([u8; cm_private::LEN], CmPrivate) {
    let own = peer(true, 4096, 4096);
    (cm_private::encode(&own, Announcement { highest }), own)
}

//= VA-001, VA-002, VA-003 (test)
//= VA-004 (test)
#[test]
fn the_announcement_is_behind_the_message_of_rfc_8797() {
    let (data, own) = both_messages(2);
    assert_eq!(data[..8], own.encode());
    assert_eq!(data[8..], [0xd8, 0xcc, 0x59, 0xe2, 1, 2, 0, 0]);
    assert_eq!(Announcement::of(Version::V1).highest, 1);
    assert_eq!(Announcement::of(Version::V2).highest, 2);
    // Neither is found at another place than its own, and there is room for both in a request.
    assert_eq!(CmPrivate::find(&data), Some((0, own)));
    assert_eq!(CmPrivate::find(&data[1..]), None);
    let announcement = Announcement { highest: 2 };
    assert_eq!(Announcement::find(&data), Some((8, announcement)));
    assert_eq!(Announcement::find(&data[9..]), None);
    assert!(data.len() <= 56);
}

//= VA-005, VA-006, D-53 (test)
#[test]
fn what_is_no_announcement_announces_version_1() {
    let (data, own) = both_messages(2);
    let with = |at: usize, octet: u8| {
        let mut data = data;
        data[at] = octet;
        data.to_vec()
    };
    for absent in [
        vec![],
        vec![0; 56],
        own.encode().to_vec(),
        // MessagePart short.
        data[..15].to_vec(),
        data[..9].to_vec(),
        // Another format, or another version of it.
        with(8, 0xd9),
        with(11, 0),
        with(12, 0),
        with(12, 2),
    ] {
        assert_eq!(Announcement::find(&absent), None, "{absent:02x?}");
        assert_eq!(Announcement::decode(&absent), Announcement::of(Version::V1));
    }
    let found = |data: &[u8]| Announcement::decode(data).highest;
    // Without RFC 8797, before it, behind other octets, and with other reserved octets.
    let reserved = [with(14, 0xff), with(15, 0xff)];
    for present in [&data[8..], &[&data[8..], &data[..8]].concat()]
        .into_iter()
        .chain(reserved.iter().map(Vec::as_slice))
    {
        assert_eq!(found(present), 2, "{present:02x?}");
    }
    assert_eq!(found(&[&with(12, 9)[8..], &data[8..]].concat()), 2);
    assert_eq!(found(&both_messages(3).0), 3);
    assert_eq!(found(&both_messages(0).0), 0);
}

proptest! {
    //= VA-005 (test)
    #[test]
    fn an_announcement_is_found_between_other_octets(
        before in proptest::collection::vec(0_u8..0xd8, 0..20),
        after in any::<[u8; 5]>(),
        highest in any::<u8>(),
    ) {
        let announcement = Announcement { highest };
        let mut data = before.clone();
        data.extend(announcement.encode());
        data.extend(after);
        prop_assert_eq!(Announcement::find(&data), Some((before.len(), announcement)));
    }

    //= CM-017, CM-018, CM-019 (test)
    //= CM-024 (test)
    #[test]
    fn what_is_encoded_is_found_between_other_octets(
        before in proptest::collection::vec(0_u8..0xf6, 0..20),
        after in any::<[u8; 5]>(),
        send in 1_u32..256,
        recv in 1_u32..256,
        rest in 0_u32..1024,
        r in any::<bool>(),
    ) {
        let own = peer(r, send * 1024 + rest, recv * 1024 + rest);
        let mut data = before.clone();
        data.extend(own.encode());
        data.extend(after);
        let expected = peer(r, send * 1024, recv * 1024);
        prop_assert_eq!(CmPrivate::find(&data), Some((before.len(), expected)));
    }

    //= CM-031, V2-195 (test)
    #[test]
    fn any_private_data_stays_within_the_own_sizes(data in any::<[u8; 56]>()) {
        let own = peer(true, 4096, 4096);
        let effective = Agreement::new(&own, &CmPrivate::decode(&data));
        prop_assert!((1024..=4096).contains(&effective.inline_send));
        prop_assert!((1024..=4096).contains(&effective.inline_recv));
    }
}
