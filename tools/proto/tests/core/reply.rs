// SPDX-License-Identifier: GPL-2.0

//! The Requester's check of Replies.

use common::{conveyed, read, rpc, segment, v1_client, v1_message, words, Lists};
use proptest::prelude::*;
use rpcrdma_proto::proto::connection::negotiate::Time;
use rpcrdma_proto::proto::connection::Event;
use rpcrdma_proto::proto::requester::reply::{check_conveyed, check_one, Failure, Payload, Reply};
use rpcrdma_proto::proto::wire::error::{BadHeader, ErrorReport};
use rpcrdma_proto::proto::wire::header::{Kind, RpcStart};
use rpcrdma_proto::proto::wire::types::{Segment, Xid};

use crate::given::{any_bytes, any_lists};

/// A Reply's payload length, or `None` for a Reply in the Reply chunk, and the length of the data
/// in Write chunks.
type Checked = Result<(Option<usize>, u32), Failure>;

fn verdict(message: &[u8], offered: &Lists) -> Checked {
    let mut client = v1_client(32);
    let arrived = match client.handle_message(Time(0), message, None) {
        Event::Reply(arrived) => arrived,
        Event::Failed { why, .. } => return Err(Failure::Header(why)),
        event => panic!("no Reply: {event:?}"),
    };
    let (xid, start) = (arrived.fixed.xid, arrived.part.start);
    let verdict = in_short(check_conveyed(xid, &arrived.conveyed, start, offered));
    if let Some(one) = offered.one() {
        let short = in_short(check_one(xid, &arrived.conveyed, start, &one));
        assert_eq!(short, verdict);
    }
    verdict
}

fn in_short(checked: Result<Reply<'_>, Failure>) -> Checked {
    let reply = checked?;
    match reply.payload {
        Payload::Inline(payload) => Ok((Some(payload.len()), reply.written)),
        Payload::ReplyChunk { len } => {
            assert_eq!(reply.written, 0);
            Ok((None, len))
        }
    }
}

fn writes(lengths: &[&[u32]]) -> Lists {
    let mut handle = 0;
    let mut next = |length: &u32| {
        handle += 1;
        segment(handle, *length)
    };
    let chunk = |chunk: &&[u32]| chunk.iter().map(&mut next).collect();
    Lists {
        writes: lengths.iter().map(chunk).collect(),
        ..Lists::default()
    }
}

//= V1-064, V1-066, V1-067 (test)
//= V1-068, V1-075, V1-109 (test)
//= V2-086, V2-087, D-37 (test)
//= D-44 (test)
#[test]
fn write_chunks_may_be_filled_in_part_or_not_at_all() {
    let offered = writes(&[&[100, 100], &[50]]);
    for (returned, written) in [
        (writes(&[&[100, 100], &[50]]), 250),
        (writes(&[&[100, 7], &[0]]), 107),
        (writes(&[&[0, 0], &[1]]), 1),
        (writes(&[&[0], &[]]), 0),
        (Lists::default(), 0),
    ] {
        let message = v1_message(9, Kind::Msg, &returned, &rpc(9, 1, 24));
        assert_eq!(verdict(&message, &offered), Ok((Some(24), written)));
    }
    let empty = Lists {
        writes: vec![vec![], vec![segment(3, 50)]],
        ..Lists::default()
    };
    let message = v1_message(9, Kind::Msg, &empty, &rpc(9, 1, 24));
    assert_eq!(verdict(&message, &offered), Ok((Some(24), 50)));
}

// Servers of before RFC 8166 return the Segments that they used and no others.
//= V1-065, V1-066, D-37 (test)
#[test]
fn segments_that_are_left_out_are_unused() {
    let write = writes(&[&[100, 100, 100]]);
    let reply = Lists {
        reply: write.writes.first().cloned(),
        ..Lists::default()
    };
    for (lengths, expected) in [
        (&[100][..], Ok(100)),
        (&[100, 100], Ok(200)),
        (&[100, 7], Ok(107)),
        (&[7], Ok(7)),
        (&[99, 1], Err(Failure::Gap)),
        (&[101], Err(Failure::SegmentLength)),
        (&[100, 100, 100, 0], Err(Failure::SegmentCount)),
    ] {
        let returned = writes(&[lengths]);
        let message = v1_message(9, Kind::Msg, &returned, &rpc(9, 1, 24));
        let in_write = expected.map(|octets| (Some(24), octets));
        assert_eq!(verdict(&message, &write), in_write);
        let returned = Lists {
            reply: returned.writes.first().cloned(),
            ..Lists::default()
        };
        let message = v1_message(9, Kind::Nomsg, &returned, &[]);
        let in_reply = expected.map(|octets| (None, octets));
        assert_eq!(verdict(&message, &reply), in_reply);
    }
}

//= V1-065, V1-072, V1-075 (test)
//= V2-107, V2-195 (test)
#[test]
fn what_was_not_offered_is_refused() {
    let offered = writes(&[&[100, 100]]);
    let other = |change: fn(&mut Segment)| {
        let mut lists = writes(&[&[100, 100]]);
        change(&mut lists.writes[0][1]);
        lists
    };
    for (returned, why) in [
        (writes(&[&[100, 100, 0]]), Failure::SegmentCount),
        (writes(&[&[100, 100], &[1]]), Failure::WriteChunks),
        (writes(&[&[99, 1]]), Failure::Gap),
        (writes(&[&[100, 101]]), Failure::SegmentLength),
        (other(|s| s.offset += 1), Failure::SegmentMemory),
        (other(|s| s.handle.0 += 1), Failure::SegmentMemory),
        (
            Lists {
                reads: vec![read(4, 1, 1)],
                ..Lists::default()
            },
            Failure::ReadList,
        ),
        (
            Lists {
                reply: Some(vec![segment(7, 8)]),
                ..Lists::default()
            },
            Failure::ReplyChunk,
        ),
    ] {
        let message = v1_message(9, Kind::Msg, &returned, &rpc(9, 1, 24));
        assert_eq!(verdict(&message, &offered), Err(why));
    }
    let more = writes(&[&[100, 100], &[5]]);
    let message = v1_message(9, Kind::Msg, &offered, &rpc(9, 1, 24));
    assert_eq!(verdict(&message, &more), Err(Failure::WriteChunks));
}

// The chunk has no data, so its handles do not matter.
//= V1-109, V2-107, D-37 (test)
#[test]
fn what_was_not_offered_may_be_returned_unused() {
    for (returned, offered, expected) in [
        (&[&[0][..]][..], &[][..], Ok(0)),
        (&[&[0, 0], &[]], &[], Ok(0)),
        (&[&[7], &[0, 0]], &[&[7][..]], Ok(7)),
        (&[&[0, 1]], &[], Err(Failure::WriteChunks)),
        (&[&[7], &[1]], &[&[7]], Err(Failure::WriteChunks)),
    ] {
        let message = v1_message(9, Kind::Msg, &writes(returned), &rpc(9, 1, 24));
        let expected = expected.map(|written| (Some(24), written));
        assert_eq!(verdict(&message, &writes(offered)), expected);
    }
    for (kind, lengths, expected) in [
        (Kind::Msg, &[0][..], Ok((Some(24), 0))),
        (Kind::Msg, &[], Ok((Some(24), 0))),
        (Kind::Msg, &[0, 4], Err(Failure::ReplyChunk)),
        (Kind::Nomsg, &[0], Err(Failure::ReplyChunk)),
        (Kind::Nomsg, &[24], Err(Failure::ReplyChunk)),
    ] {
        let returned = Lists {
            reply: writes(&[lengths]).writes.pop(),
            ..Lists::default()
        };
        let payload = match kind {
            Kind::Msg => rpc(9, 1, 24),
            Kind::Nomsg => vec![],
        };
        let message = v1_message(9, kind, &returned, &payload);
        assert_eq!(verdict(&message, &Lists::default()), expected);
    }
}

//= V1-017, V1-078, V1-083 (test)
//= V2-102, D-38 (test)
#[test]
fn a_long_reply_is_as_long_as_its_chunk_says() {
    let offered = Lists {
        reply: Some(vec![segment(1, 100), segment(2, 100)]),
        ..Lists::default()
    };
    let reply = |lengths: [u32; 2]| Lists {
        reply: Some(vec![segment(1, lengths[0]), segment(2, lengths[1])]),
        ..Lists::default()
    };
    let long = v1_message(9, Kind::Nomsg, &reply([100, 20]), &[]);
    assert_eq!(verdict(&long, &offered), Ok((None, 120)));
    let unused = v1_message(9, Kind::Msg, &reply([0, 0]), &rpc(9, 1, 24));
    assert_eq!(verdict(&unused, &offered), Ok((Some(24), 0)));
    let inline = v1_message(9, Kind::Msg, &Lists::default(), &rpc(9, 1, 24));
    assert_eq!(verdict(&inline, &offered), Ok((Some(24), 0)));
    for bad in [
        v1_message(9, Kind::Nomsg, &reply([0, 0]), &[]),
        v1_message(9, Kind::Msg, &reply([4, 0]), &rpc(9, 1, 24)),
    ] {
        assert_eq!(verdict(&bad, &offered), Err(Failure::ReplyChunk));
    }
}

//= V1-003, V1-024, V1-095 (test)
//= V1-098, V1-099, D-33 (test)
//= D-47, NFS-055 (test)
#[test]
fn a_bad_reply_fails_its_rpc() {
    let none = Lists::default();
    for (message, why) in [
        (
            v1_message(9, Kind::Msg, &none, &rpc(8, 1, 24)),
            Failure::Header(BadHeader::XidMismatch),
        ),
        (
            v1_message(9, Kind::Msg, &none, &rpc(9, 2, 24)),
            Failure::Header(BadHeader::Direction),
        ),
        (
            v1_message(9, Kind::Msg, &none, &[0; 7]),
            Failure::Header(BadHeader::Truncated),
        ),
        (
            words(&[9, 1, 32, 0, 0, 0]),
            Failure::Header(BadHeader::Truncated),
        ),
    ] {
        assert_eq!(verdict(&message, &none), Err(why));
    }
    // It is no Reply either when it is checked on its own.
    for (payload, why) in [
        (rpc(9, 0, 24), Failure::NotReply),
        (vec![0; 7], Failure::NotReply),
        (rpc(8, 1, 24), Failure::Header(BadHeader::XidMismatch)),
    ] {
        let message = v1_message(9, Kind::Msg, &none, &payload);
        let (fixed, conveyed) = conveyed(&message);
        let start = RpcStart::peek(&payload);
        let found = check_conveyed(fixed.xid, &conveyed, start, &none);
        assert_eq!(found.map(|_| ()), Err(why));
    }
}

//= V1-098, V1-099, NFS-055 (test)
//= D-05 (test)
#[test]
fn an_error_ends_its_rpc_or_says_nothing() {
    for (error, report) in [
        (&[9, 1, 32, 4, 2][..], ErrorReport::BadXdr),
        (&[9, 1, 32, 4, 7], ErrorReport::Unknown(7)),
        (
            &[9, 1, 32, 4, 1, 2, 3],
            ErrorReport::Version { low: 2, high: 3 },
        ),
    ] {
        let message = words(error);
        let event = v1_client(32).handle_message(Time(0), &message, None);
        let same = matches!(event, Event::Error { xid: Xid(9), report: found } if found == report);
        assert!(same, "{event:?}");
    }
    for nothing in [&[9, 1, 32, 4, 1, 3, 2][..], &[9, 1, 32, 4], &[9, 1, 32]] {
        let message = words(nothing);
        let event = v1_client(32).handle_message(Time(0), &message, None);
        assert!(matches!(event, Event::Dropped), "{event:?}");
    }
}

proptest! {
    //= V1-092, V2-186, V2-195 (test)
    #[test]
    fn no_reply_claims_more_than_was_offered(bytes in any_bytes(), offered in any_lists()) {
        if let Event::Reply(arrived) = v1_client(32).handle_message(Time(0), &bytes, None) {
            let (xid, start) = (arrived.fixed.xid, arrived.part.start);
            if let Ok(reply) = check_conveyed(xid, &arrived.conveyed, start, &offered) {
                let sum = |chunk: &Vec<Segment>| chunk.iter().map(|s| u64::from(s.length)).sum::<u64>();
                prop_assert!(u64::from(reply.written) <= offered.writes.iter().map(sum).sum());
                if let Payload::ReplyChunk { len } = reply.payload {
                    prop_assert!(u64::from(len) <= offered.reply.as_ref().map_or(0, sum));
                }
            }
        }
    }

    //= V1-066, V2-087 (test)
    #[test]
    fn a_full_reply_is_taken(offered in any_lists()) {
        let offered = Lists { reads: vec![], reply: None, ..offered };
        let sum: u64 = offered.writes.iter().flatten().map(|s| u64::from(s.length)).sum();
        let message = v1_message(9, Kind::Msg, &offered, &rpc(9, 1, 24));
        match u32::try_from(sum) {
            Ok(sum) => prop_assert_eq!(verdict(&message, &offered), Ok((Some(24), sum))),
            Err(_) => prop_assert_eq!(verdict(&message, &offered), Err(Failure::SegmentLength)),
        }
    }

    /// A Call with a single Segment is checked by the same rules as any other Call.
    #[test]
    fn one_segment_is_checked_as_many(
        role in 0..2_u32,
        kind in prop_oneof![Just(Kind::Msg), Just(Kind::Nomsg)],
        lengths in prop::collection::vec((0..3_u32, 98..102_u32, prop_oneof![Just(7_u32), Just(8)]), 0..3),
        as_reply in any::<bool>(),
        more_writes in any::<bool>(),
    ) {
        let offered = match role {
            0 => Lists { writes: vec![vec![segment(7, 100)]], ..Lists::default() },
            _ => Lists { reply: Some(vec![segment(7, 100)]), ..Lists::default() },
        };
        prop_assert!(offered.one().is_some());
        let returned: Vec<_> = lengths
            .iter()
            .map(|(zero, length, handle)| segment(*handle, if *zero == 0 { 0 } else { *length }))
            .collect();
        let mut lists = match as_reply {
            true => Lists { reply: Some(returned), ..Lists::default() },
            false => Lists { writes: vec![returned], ..Lists::default() },
        };
        if more_writes {
            lists.writes.push(vec![segment(8, 0)]);
        }
        let payload = match kind {
            Kind::Msg => rpc(9, 1, 24),
            Kind::Nomsg => vec![],
        };
        let _ = verdict(&v1_message(9, kind, &lists, &payload), &offered);
    }
}
