// SPDX-License-Identifier: GPL-2.0

//! Private data of the connection manager.

use proptest::prelude::*;
use rpcrdma_proto::proto::cm_private::{CmPrivate, Effective};

fn peer(remote_invalidation: bool, send_size: u32, recv_size: u32) -> CmPrivate {
    CmPrivate {
        remote_invalidation,
        send_size,
        recv_size,
    }
}

//= CM-011, CM-013, CM-014, CM-015 (test)
#[test]
fn remote_invalidation_needs_both_sides() {
    for (own, other) in [(false, false), (false, true), (true, false), (true, true)] {
        let effective = Effective::new(&peer(own, 4096, 4096), &peer(other, 4096, 4096));
        assert_eq!(effective.remote_invalidation, own && other);
    }
}

//= CM-008, CM-009, CM-021, CM-022, CM-030, CM-031, V1-044, V1-046, V1-047 (test)
#[test]
fn thresholds_are_the_smaller_of_both_sides() {
    let client = peer(true, 8192, 2048);
    let server = peer(true, 4096, 1024);
    let at_client = Effective::new(&client, &server);
    let at_server = Effective::new(&server, &client);
    assert_eq!((at_client.inline_send, at_client.inline_recv), (1024, 2048));
    assert_eq!((at_server.inline_send, at_server.inline_recv), (2048, 1024));
    let silent = Effective::new(&client, &CmPrivate::decode(&[]));
    assert_eq!((silent.inline_send, silent.inline_recv), (1024, 1024));
}

proptest! {
    //= CM-017, CM-018, CM-019, CM-024 (test)
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
        let effective = Effective::new(&own, &CmPrivate::decode(&data));
        prop_assert!((1024..=4096).contains(&effective.inline_send));
        prop_assert!((1024..=4096).contains(&effective.inline_recv));
    }
}
