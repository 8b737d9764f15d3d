// SPDX-License-Identifier: GPL-2.0

//! Remote invalidation.

use common::{read, segment, Lists};
use rpcrdma_proto::proto::invalidate::{offer, permitted, permitted_v1};
use rpcrdma_proto::proto::wire::chunk::NoChunks;
use rpcrdma_proto::proto::wire::types::Handle;

fn lists() -> Lists {
    Lists {
        reads: vec![read(8, 1, 4), read(8, 2, 4)],
        writes: vec![vec![segment(3, 4)], vec![segment(4, 4)]],
        reply: Some(vec![segment(5, 4)]),
    }
}

//= V2-110, V2-114, CM-014 (test)
//= D-23 (test)
#[test]
fn the_last_handle_is_offered_if_the_device_can() {
    assert_eq!(offer(true, &lists()), Handle(5));
    assert_eq!(offer(false, &lists()), Handle::NONE);
    assert_eq!(offer(true, &NoChunks), Handle::NONE);
}

//= V2-111, V2-112, V2-114 (test)
//= V2-115, V2-118, D-22 (test)
#[test]
fn only_an_offered_handle_of_the_call_is_invalidated() {
    for handle in 1..=5 {
        let handle = Handle(handle);
        assert_eq!(permitted(true, handle, &lists()), Some(handle));
        assert_eq!(permitted(false, handle, &lists()), None);
    }
    assert_eq!(permitted(true, Handle(6), &lists()), None);
    assert_eq!(permitted(true, Handle::NONE, &lists()), None);
}

//= CM-011, CM-012, CM-013 (test)
//= CM-015 (test)
#[test]
fn v1_invalidates_a_handle_of_the_call_when_both_agree() {
    assert_eq!(permitted_v1(true, &lists()), Some(Handle(5)));
    assert_eq!(permitted_v1(false, &lists()), None);
    assert_eq!(permitted_v1(true, &NoChunks), None);
}
