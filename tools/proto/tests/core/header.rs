// SPDX-License-Identifier: GPL-2.0

//! The two encodings.

use common::{read, rpc, words, Lists};
use proptest::prelude::*;
use rpcrdma_proto::proto::wire::chunk::{ChunkLists, Chunks, NoChunks};
use rpcrdma_proto::proto::wire::error::{BadHeader, ErrorReport, NoRoom};
use rpcrdma_proto::proto::wire::header::{Body, FixedWords, Flags, Kind, Outgoing, RpcStart};
use rpcrdma_proto::proto::wire::types::{
    Grant, Handle, MsgType, ReadSegment, Segment, Version, Xid,
};
use rpcrdma_proto::proto::wire::xdr::{padded_len, Reader, Writer};
use rpcrdma_proto::proto::wire::{v1, v2};

use crate::given::{any_bytes, any_lists};

const GRANT: Grant = Grant {
    granted: 32,
    ceiling: 128,
};

fn outgoing(direction: MsgType, kind: Kind, more: bool) -> Outgoing {
    Outgoing {
        xid: Xid(0x1234_5678),
        direction,
        kind,
        more,
        inv_handle: Handle(77),
    }
}

fn v2_decode(message: &[u8]) -> (FixedWords, v2::Message<'_>) {
    let (fixed, rest) = FixedWords::split(message).unwrap();
    let message = v2::decode(&fixed, rest, false).unwrap();
    (fixed, message)
}

fn v1_decode(message: &[u8]) -> Result<Body<'_>, BadHeader> {
    let (fixed, rest) = FixedWords::split(message).unwrap();
    v1::decode(&fixed, rest)
}

//= V1-001, V1-002, V1-003 (test)
//= V1-005, V1-006, V1-014 (test)
//= V1-027, V2-021 (test)
#[test]
fn empty_v1_header_is_28_octets() {
    let mut out = [0xff; 32];
    let len = v1::encode(&mut out, Xid(9), 32, Kind::Msg, &NoChunks).unwrap();
    assert_eq!(out[..len], words(&[9, 1, 32, 0, 0, 0, 0]));
    assert_eq!(len as u32, Version::V1.empty_header_len());
}

//= V2-001, V2-002, V2-003 (test)
//= V2-005, V2-006, V2-007 (test)
//= V2-012, V2-026 (test)
#[test]
fn empty_v2_header_is_36_octets() {
    let mut out = [0xff; 64];
    let message = outgoing(MsgType::Reply, Kind::Msg, false);
    let len = v2::encode(&mut out, &message, GRANT, &NoChunks).unwrap();
    let expected = [0x1234_5678, 2, 0x0080_0020, 0, 1, 0, 0, 0, 0];
    assert_eq!(out[..len], words(&expected));
    assert_eq!(len as u32, Version::V2.empty_header_len());
}

//= V1-034, V1-120, D-10 (test)
#[test]
fn no_credit_word_of_version_1_is_sent_as_zero() {
    let mut out = [0; 64];
    v1::encode(&mut out, Xid(9), 0, Kind::Msg, &NoChunks).unwrap();
    assert_eq!(out[8..12], [0, 0, 0, 1]);
}

//= V1-008, V1-009, V1-010 (test)
//= V1-011, V1-012, V1-013 (test)
//= V1-025, V2-008, V2-023 (test)
#[test]
fn lists_have_the_shape_of_the_document() {
    let segment = Segment {
        handle: Handle(1),
        length: 2,
        offset: 0x0000_0003_0000_0004,
    };
    let lists = Lists {
        reads: vec![ReadSegment {
            position: rpcrdma_proto::proto::wire::types::Position(8),
            segment,
        }],
        writes: vec![vec![segment, segment], vec![]],
        reply: Some(vec![segment]),
    };
    let mut out = [0; 256];
    let len = v1::encode(&mut out, Xid(9), 5, Kind::Nomsg, &lists).unwrap();
    let expected = [
        9, 1, 5, 1, // fixed words
        1, 8, 1, 2, 3, 4, 0, // Read list
        1, 2, 1, 2, 3, 4, 1, 2, 3, 4, 1, 0, 0, // Write list
        1, 1, 1, 2, 3, 4, // Reply chunk
    ];
    assert_eq!(out[..len], words(&expected));
}

//= V1-015, V1-095, V1-104 (test)
//= V1-106, V1-111 (test)
#[test]
fn bad_v1_headers_are_named_by_their_first_bad_word() {
    for (message, why) in [
        (&[1, 1, 1, 2, 0, 0, 0][..], BadHeader::Type),
        (&[1, 1, 1, 3], BadHeader::Type),
        (&[1, 1, 1, 5, 0, 0, 0], BadHeader::Type),
        (&[1, 1, 1, 0, 0, 0], BadHeader::Truncated),
        (&[1, 1, 1, 0, 2, 0, 0], BadHeader::Presence),
        (&[1, 1, 1, 0, 0, 1, 0x1000_0000, 0, 0], BadHeader::Truncated),
        (
            &[1, 1, 1, 0, 1, 3, 1, 1, 0, 0, 0, 0, 0],
            BadHeader::Unaligned,
        ),
        (
            &[1, 1, 1, 0, 1, 6, 1, 1, 0, 0, 0, 0, 0],
            BadHeader::Unaligned,
        ),
        (
            &[1, 1, 1, 0, 0, 0, 1, 1, 7, 2, u32::MAX, u32::MAX],
            BadHeader::Wrap,
        ),
        (&[1, 1, 1, 1, 0, 0, 0], BadHeader::NoPayload),
    ] {
        let message = words(message);
        assert_eq!(v1_decode(&message).err(), Some(why), "{message:?}");
        assert_eq!(
            why.report().code(),
            if why == BadHeader::Type { 3 } else { 2 }
        );
    }
}

//= V1-010, V1-011, V1-012 (test)
//= V1-013, V1-015, V1-111 (test)
#[test]
fn a_lone_chunk_is_read_as_it_is_behind_a_read_list() {
    fn decode(words: &[u8]) -> (Result<Lists, BadHeader>, &[u8]) {
        let mut reader = Reader::new(words);
        let lists = ChunkLists::decode(&mut reader);
        (lists.map(|lists| Lists::of(&lists)), reader.rest())
    }
    fn check(message: &[u8]) {
        let (found, rest) = decode(message);
        let behind = [&words(&[1, 4, 7, 8, 0, 9])[..], message].concat();
        let (expected, expected_rest) = decode(&behind);
        let expected = expected.map(|mut lists| {
            lists.reads.remove(0);
            lists
        });
        assert_eq!(found, expected, "{message:?}");
        assert!(found.is_err() || rest == expected_rest, "{message:?}");
    }
    // The second Segment would end behind the last address.
    for [high, low] in [[0, 9], [u32::MAX, u32::MAX - 6]] {
        let write = [0, 1, 1, 7, 8, high, low, 0, 0];
        let reply = [0, 0, 1, 1, 7, 8, high, low];
        for lone in [&write[..], &reply] {
            for at in 0..lone.len() {
                for word in [lone[at], 0, 1, 2, u32::MAX] {
                    let mut message = lone.to_vec();
                    message[at] = word;
                    let message = words(&[&message[..], &[5, 6]].concat());
                    for len in 0..=message.len() {
                        check(&message[..len]);
                    }
                }
            }
        }
    }
}

//= V1-017, V1-018, V1-020 (test)
//= V1-099 (test)
#[test]
fn v1_errors_are_read_as_far_as_they_go() {
    for (message, report) in [
        (&[1, 1, 1, 4][..], None),
        (&[1, 1, 1, 4, 1, 1], None),
        (
            &[1, 1, 1, 4, 1, 1, 2],
            Some(ErrorReport::Version { low: 1, high: 2 }),
        ),
        (&[1, 1, 1, 4, 2], Some(ErrorReport::BadXdr)),
        (&[1, 1, 1, 4, 7], Some(ErrorReport::Unknown(7))),
    ] {
        match v1_decode(&words(message)) {
            Ok(Body::Error(found)) => assert_eq!(found, report),
            other => panic!("{other:?}"),
        }
    }
}

//= V1-018, V1-020, V1-021 (test)
//= V1-093, V1-094, V2-029 (test)
//= V2-066, V2-142, V2-164 (test)
//= D-02, D-07 (test)
#[test]
fn errors_copy_xid_and_version() {
    let request = FixedWords {
        xid: Xid(0xabcd),
        version: 3,
        credit: 99,
        htype: 0,
    };
    let mut out = [0; 64];
    let version = ErrorReport::Version { low: 1, high: 2 };
    for len in [
        v1::encode_error(&mut out, &request, 32, version).unwrap(),
        v2::encode_error(&mut out, &request, Grant::from_word(32), version).unwrap(),
    ] {
        assert_eq!(len, v1::MAX_ERROR_LEN);
        assert_eq!(out[..8], words(&[0xabcd, 3]));
        assert_eq!(out[12..len], words(&[4, 1, 1, 2]));
    }
    let len = v1::encode_error(&mut out, &request, 32, ErrorReport::System).unwrap();
    assert_eq!(out[..len], words(&[0xabcd, 3, 32, 4, 2]));
    let request = FixedWords {
        version: 2,
        ..request
    };
    let none = ErrorReport::WriteChunks { max_chunks: 0 };
    let len = v2::encode_error(&mut out, &request, GRANT, none).unwrap();
    assert_eq!(out[..len], words(&[0xabcd, 2, 0x0080_0020, 4, 1, 6, 1]));
}

//= V1-021, V1-110, V2-004 (test)
//= V2-167, D-03, D-46 (test)
#[test]
fn runts_are_no_messages() {
    assert!(FixedWords::split(&[0; 15]).is_none());
    let (fixed, rest) = FixedWords::split(&[0; 19]).unwrap();
    assert!(v2::decode(&fixed, rest, false).is_none());
}

//= V2-009, V2-010, V2-011 (test)
//= V2-031, V2-034, V2-145 (test)
//= V2-146, V2-147, D-01 (test)
//= D-03, D-16, D-31 (test)
#[test]
fn bad_v2_headers_are_named_by_their_first_bad_word() {
    let chunk = [0, 1, 4, 1, 1, 0, 0, 0, 0, 0];
    let join = |start: &[u32], rest: &[u32]| [start, rest].concat();
    for (message, why, report) in [
        (
            vec![1, 2, 1, 2, 4, 0],
            BadHeader::Type,
            ErrorReport::InvalHtype,
        ),
        (
            vec![1, 2, 1, 9, 0],
            BadHeader::Type,
            ErrorReport::InvalHtype,
        ),
        (
            vec![1, 2, 1, 0, 4, 9],
            BadHeader::Flags,
            ErrorReport::InvalFlag,
        ),
        (
            vec![1, 2, 1, 1, 2, 9],
            BadHeader::Flags,
            ErrorReport::InvalFlag,
        ),
        (
            vec![1, 2, 1, 5, 0x8000_0000],
            BadHeader::Flags,
            ErrorReport::InvalFlag,
        ),
        (
            vec![1, 2, 1, 0, 0, 0],
            BadHeader::Truncated,
            ErrorReport::BadXdr,
        ),
        (
            join(&[1, 2, 1, 0, 2], &join(&chunk, &[1])),
            BadHeader::ChunksTooEarly,
            ErrorReport::InvalFlag,
        ),
        (
            join(&[1, 2, 1, 1, 0], &join(&chunk, &[1])),
            BadHeader::Trailing,
            ErrorReport::BadXdr,
        ),
        (
            vec![1, 2, 1, 1, 0, 0, 0, 0, 0],
            BadHeader::NoPayload,
            ErrorReport::BadXdr,
        ),
    ] {
        let message = words(&message);
        let (_, decoded) = v2_decode(&message);
        assert_eq!(decoded.body.err(), Some(why), "{message:?}");
        assert_eq!(why.report(), report);
    }
}

//= V2-015, V2-028, V2-051 (test)
//= D-19, D-30 (test)
#[test]
fn a_grant_is_36_octets_with_xid_zero() {
    let mut out = [0xff; 64];
    let len = v2::encode_grant(&mut out, GRANT).unwrap();
    assert_eq!(len, v2::GRANT_LEN);
    assert_eq!(out[..len], words(&[0, 2, 0x0080_0020, 1, 0, 0, 0, 0, 0]));
    assert!(matches!(v2_decode(&out[..len]).1.body, Ok(Body::Grant)));
}

//= V2-013, V2-025, V2-027 (test)
//= V2-035, V2-036, D-22 (test)
#[test]
fn handles_and_chunks_wait_for_the_last_call_message() {
    let lists = Lists {
        reads: vec![read(8, 77, 5)],
        ..Lists::default()
    };
    let mut out = [0; 128];
    for (direction, more, handle, reads) in [
        (MsgType::Call, false, 77, 1),
        (MsgType::Call, true, 0, 0),
        (MsgType::Reply, false, 0, 1),
        (MsgType::Reply, true, 0, 0),
    ] {
        let message = outgoing(direction, Kind::Msg, more);
        let len = v2::encode(&mut out, &message, GRANT, &lists).unwrap();
        let (_, decoded) = v2_decode(&out[..len + 8]);
        let response = direction == MsgType::Reply;
        assert_eq!(decoded.flags, Flags { response, more });
        let Ok(Body::Conveyed(conveyed)) = decoded.body else {
            panic!("{decoded:?}");
        };
        assert_eq!(conveyed.inv_handle, Handle(handle));
        assert_eq!(conveyed.chunks.reads.count(), reads);
    }
}

//= V2-016, V2-017, V2-018 (test)
//= V2-066, V2-143, V2-144 (test)
//= V2-166, D-02, D-05 (test)
#[test]
fn v2_errors_are_read_in_both_layouts() {
    for (message, report) in [
        (
            &[9, 2, 1, 4, 1, 1, 2][..],
            Some(ErrorReport::Version { low: 1, high: 2 }),
        ),
        (
            &[9, 2, 1, 4, 1, 1, 1, 2],
            Some(ErrorReport::Version { low: 1, high: 2 }),
        ),
        (
            &[9, 2, 1, 4, 1, 5, 3],
            Some(ErrorReport::ReadChunks { max_chunks: 3 }),
        ),
        (&[9, 2, 1, 4, 1, 2], Some(ErrorReport::BadXdr)),
        (
            &[9, 2, 1, 4, 1, 8, 1, 500],
            Some(ErrorReport::WriteResource {
                chunk_index: 1,
                length_needed: 500,
            }),
        ),
        (
            &[9, 2, 1, 4, 1, 7, 16],
            Some(ErrorReport::Segments { max_segments: 16 }),
        ),
        (&[9, 2, 1, 4, 1, 10], Some(ErrorReport::System)),
        (&[9, 2, 1, 4, 1, 99], Some(ErrorReport::Unknown(99))),
        (&[9, 2, 1, 4, 1, 8, 1], None),
        (&[9, 2, 1, 4, 1], None),
    ] {
        let message = words(message);
        let (_, decoded) = v2_decode(&message);
        assert!(decoded.flags.response);
        match decoded.body {
            Ok(Body::Error(found)) => assert_eq!(found, report),
            other => panic!("{other:?}"),
        }
    }
    let message = words(&[9, 2, 1, 4, 0, 2]);
    assert!(!v2_decode(&message).1.flags.response);
}

//= V1-103, V1-105, V2-009 (test)
#[test]
fn only_defined_types_are_sent() {
    let mut out = [0; 64];
    for kind in [Kind::Msg, Kind::Nomsg] {
        v1::encode(&mut out, Xid(1), 1, kind, &NoChunks).unwrap();
        assert!(out[15] <= 1);
        let message = outgoing(MsgType::Call, kind, false);
        v2::encode(&mut out, &message, GRANT, &NoChunks).unwrap();
        assert!(out[15] <= 1);
    }
    let request = FixedWords::split(&[0; 16]).unwrap().0;
    v1::encode_error(&mut out, &request, 1, ErrorReport::BadXdr).unwrap();
    assert_eq!(out[15], 4);
    v2::encode_properties(&mut out, Xid(1), GRANT, &[], false).unwrap();
    assert_eq!(out[15], 5);
}

//= V1-023 (test)
#[test]
fn pad_is_sent_as_zero_and_its_content_ignored() {
    let mut out = [0xff; 8];
    Writer::new(&mut out).opaque(&[1]).unwrap();
    assert_eq!(out, [0, 0, 0, 1, 1, 0, 0, 0]);
    out[7] = 9;
    let mut reader = Reader::new(&out);
    assert_eq!(reader.opaque(), Ok(&[1][..]));
    assert!(reader.rest().is_empty());
    assert_eq!(padded_len(u32::MAX), u32::MAX);
}

//= V1-016, V1-024 (test)
#[test]
fn rpc_messages_tell_call_from_reply() {
    for (number, msg_type) in [
        (0, Some(MsgType::Call)),
        (1, Some(MsgType::Reply)),
        (2, None),
    ] {
        let start = RpcStart::peek(&rpc(5, number, 8)).unwrap();
        assert_eq!(start.xid, Xid(5));
        assert_eq!(start.msg_type, msg_type);
    }
    assert_eq!(RpcStart::peek(&[0; 7]), None);
}

fn same(found: &ChunkLists<'_>, lists: &Lists) -> bool {
    Lists::of(found) == *lists
        && found.reads.count() == lists.reads.len()
        && found.writes.count() == lists.writes.len()
        && found.is_empty()
            == (lists.reads.is_empty() && lists.writes.is_empty() && lists.reply.is_none())
}

proptest! {
    //= V1-001, V1-004, V1-007 (test)
    //= V1-014 (test)
    #[test]
    fn v1_decoding_inverts_encoding(
        lists in any_lists(),
        xid in any::<u32>(),
        credit in 1..=u32::MAX,
        payload in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut out = vec![0; 2048];
        let len = v1::encode(&mut out, Xid(xid), credit, Kind::Msg, &lists).unwrap();
        out.truncate(len);
        prop_assert_eq!(v1::encode(&mut out[..len - 1], Xid(xid), 1, Kind::Msg, &lists), Err(NoRoom));
        let mut out = vec![0; len];
        v1::encode(&mut out, Xid(xid), credit, Kind::Msg, &lists).unwrap();
        out.extend_from_slice(&payload);
        let (fixed, _) = FixedWords::split(&out).unwrap();
        prop_assert_eq!((fixed.xid, fixed.version, fixed.credit), (Xid(xid), 1, credit));
        let Ok(Body::Conveyed(conveyed)) = v1_decode(&out) else { panic!() };
        prop_assert!(same(&conveyed.chunks, &lists));
        prop_assert_eq!(conveyed.payload, &payload[..]);
    }

    //= V2-008, V2-014 (test)
    #[test]
    fn v2_decoding_inverts_encoding(
        lists in any_lists(),
        word in any::<u32>(),
        payload in proptest::collection::vec(any::<u8>(), 1..20),
    ) {
        let mut out = vec![0; 2048];
        let message = outgoing(MsgType::Call, Kind::Msg, false);
        let grant = Grant::from_word(word | 0x0001_0001);
        let len = v2::encode(&mut out, &message, grant, &lists).unwrap();
        out.truncate(len);
        out.extend_from_slice(&payload);
        let (fixed, decoded) = v2_decode(&out);
        prop_assert_eq!(Grant::from_word(fixed.credit), grant);
        let Ok(Body::Conveyed(conveyed)) = decoded.body else { panic!() };
        prop_assert!(same(&conveyed.chunks, &lists));
        prop_assert_eq!(conveyed.payload, &payload[..]);
        prop_assert_eq!(conveyed.inv_handle, Handle(77));
    }

    //= V1-092, V2-178, V2-195 (test)
    #[test]
    fn what_decodes_is_what_is_encoded_again(bytes in any_bytes()) {
        let Some((fixed, rest)) = FixedWords::split(&bytes) else { return Ok(()) };
        let mut out = vec![0; bytes.len()];
        if let Ok(Body::Conveyed(conveyed)) = v1::decode(&fixed, rest) {
            let fixed = FixedWords { credit: fixed.credit.max(1), ..fixed };
            let len = v1::encode(
                &mut out, fixed.xid, fixed.credit, conveyed.kind, &conveyed.chunks,
            ).unwrap();
            prop_assert_eq!(len + conveyed.payload.len(), bytes.len());
            prop_assert_eq!(&out[16..len], &bytes[16..len]);
        }
        if let Some(v2::Message { flags, body: Ok(Body::Conveyed(conveyed)) }) = v2::decode(&fixed, rest, false) {
            let message = Outgoing {
                xid: fixed.xid,
                direction: if flags.response { MsgType::Reply } else { MsgType::Call },
                kind: conveyed.kind,
                more: flags.more,
                inv_handle: conveyed.inv_handle,
            };
            let len = v2::encode(&mut out, &message, GRANT, &conveyed.chunks).unwrap();
            prop_assert_eq!(len + conveyed.payload.len(), bytes.len());
            prop_assert_eq!(&out[24..len], &bytes[24..len]);
        }
    }

    //= V1-111, V2-109, D-43 (test)
    #[test]
    fn decoded_segments_end_within_the_address_space(bytes in any_bytes()) {
        let mut reader = Reader::new(&bytes);
        if let Ok(lists) = ChunkLists::decode(&mut reader) {
            let segments = lists.reads().map(|read| read.segment)
                .chain(lists.writes().flatten())
                .chain(lists.reply().into_iter().flatten());
            for segment in segments {
                let last = u64::from(segment.length.saturating_sub(1));
                prop_assert!(segment.offset.checked_add(last).is_some());
            }
            prop_assert!(lists.reads().all(|read| read.position.0 % 4 == 0));
        }
    }
}
