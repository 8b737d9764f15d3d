// SPDX-License-Identifier: GPL-2.0

//! The form of Replies.

use common::{lists_of, segment, v1_message, Lists};
use proptest::prelude::*;
use rpcrdma_proto::proto::requester::plan::Item;
use rpcrdma_proto::proto::responder::{protects, respond, Form, ReplyLimits, ReplyShape, Response};
use rpcrdma_proto::proto::wire::chunk::Chunks;
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::header::Kind;
use rpcrdma_proto::proto::wire::types::{Version, Xid};
use rpcrdma_proto::proto::wire::v1;

fn limits(version: Version) -> ReplyLimits {
    ReplyLimits {
        version,
        inline_send: 4096,
        continued: if version == Version::V2 { 65_536 } else { 0 },
        reply_chunk: true,
    }
}

/// The decision, and the contents of the Reply's header.
type Decision = Result<(Form, Lists, Vec<(u32, std::ops::Range<u32>)>), ErrorReport>;

fn decide(lists: &Lists, len: u32, results: &[Option<Item>], limits: &ReplyLimits) -> Decision {
    let message = v1_message(1, Kind::Msg, lists, &[]);
    let shape = ReplyShape {
        len,
        results,
        protected: false,
    };
    let lists = lists_of(&message);
    let response = respond(&lists, &shape, limits)?;
    check_lengths(&response, len, limits);
    let writes = response
        .writes()
        .map(|(segment, range)| (segment.handle.0, range))
        .collect();
    Ok((response.form, Lists::of(&response), writes))
}

/// Properties of every Reply: the header has the announced length, and all data is conveyed.
fn check_lengths(response: &Response<'_>, len: u32, limits: &ReplyLimits) {
    let mut out = [0; 8192];
    let header = v1::encode(&mut out, Xid(1), 1, response.kind(), response).unwrap() as u32;
    let fixed = limits.version.empty_header_len() - Version::V1.empty_header_len();
    assert_eq!(header + fixed, response.header_len);
    let (mut general, lists) = ([0; 8192], Lists::of(response));
    let len_of_lists = v1::encode(&mut general, Xid(1), 1, response.kind(), &lists).unwrap();
    assert_eq!(out[..header as usize], general[..len_of_lists]);
    let inline: u32 = response.payload().map(|r| r.end - r.start).sum();
    assert_eq!(inline, response.payload_len);
    let is_start = response.payload().eq((inline != 0).then_some(0..inline));
    assert!(is_start || !response.is_start());
    match response.form {
        Form::Inline => assert!(response.header_len + inline <= limits.inline_send),
        Form::Continued => assert!(inline <= limits.continued),
        Form::ReplyChunk => {
            let written: u32 = response.reply_writes().map(|s| s.length).sum();
            assert_eq!(written, inline);
            assert!(response.header_len <= limits.inline_send);
        }
    }
    let written: u32 = response.writes().map(|(s, _)| s.length).sum();
    assert!(inline + written <= len && len - inline - written < 4 * 32);
    let mut writes = response.writes();
    assert!(writes.all(|(s, r)| s.length == r.end - r.start));
}

fn item(offset: u32, len: u32) -> Option<Item> {
    Some(Item { offset, len })
}

fn offer(writes: &[&[u32]], reply: Option<u32>) -> Lists {
    let mut handle = 0;
    let mut next = |length: &u32| {
        handle += 1;
        segment(handle, *length)
    };
    Lists {
        writes: writes
            .iter()
            .map(|chunk| chunk.iter().map(&mut next).collect())
            .collect(),
        reply: reply.map(|length| vec![segment(99, length / 2), segment(98, length / 2)]),
        ..Lists::default()
    }
}

fn lengths(lists: &Lists) -> Vec<Vec<u32>> {
    let chunks = lists.writes.iter();
    chunks
        .map(|chunk| chunk.iter().map(|segment| segment.length).collect())
        .collect()
}

//= V1-064, V1-065, V1-067 (test)
//= V1-069, V1-073, V1-074 (test)
//= V1-075, V2-084, V2-085 (test)
//= V2-086, V2-090, NFS-035 (test)
//= NFS-036, NFS-037, NFS-038 (test)
//= NFS-039, V1-135, D-37 (test)
#[test]
fn write_chunks_pair_with_results_in_order() {
    // Five operations with results, the third without an item, and four chunks, the second empty.
    let lists = offer(&[&[10, 10], &[], &[8], &[100, 4]], None);
    let results = [item(40, 13), item(60, 20), None, item(80, 7), item(100, 12)];
    let (form, returned, writes) = decide(&lists, 120, &results, &limits(Version::V1)).unwrap();
    assert_eq!(form, Form::Inline);
    let expected: [&[u32]; 4] = [&[10, 3], &[], &[0], &[7, 0]];
    assert_eq!(lengths(&returned), expected);
    assert_eq!(writes, [(1, 40..50), (2, 50..53), (4, 80..87)]);
    let handles = |lists: &Lists| -> Vec<_> {
        let segments = lists.writes.iter().flatten();
        segments.map(|s| (s.handle, s.offset)).collect()
    };
    assert_eq!(handles(&returned), handles(&lists));
    assert!(returned.reads().next().is_none() && returned.reply.is_none());
}

//= V1-064, V1-069, V1-073 (test)
//= V2-085 (test)
#[test]
fn the_only_result_takes_a_part_of_the_only_segment() {
    // The Reply ends with the pad of the result, or has bytes behind it.
    for len in [104, 120] {
        for version in [Version::V1, Version::V2] {
            let lists = offer(&[&[64]], None);
            let (form, returned, writes) =
                decide(&lists, len, &[item(40, 61)], &limits(version)).unwrap();
            assert_eq!((form, lengths(&returned)), (Form::Inline, vec![vec![61]]));
            assert_eq!(writes, [(1, 40..101)]);
        }
    }
}

/// A server may report a result and then truncate the operation, which returns an error.
//= NFS-038 (test)
#[test]
fn a_result_behind_the_end_of_the_reply_is_not_there() {
    let lists = offer(&[&[4096]], None);
    for version in [Version::V1, Version::V2] {
        let (form, returned, writes) =
            decide(&lists, 100, &[item(96, 4096)], &limits(version)).unwrap();
        assert_eq!((form, lengths(&returned)), (Form::Inline, vec![vec![0]]));
        assert_eq!(writes, []);
    }
}

//= V1-078, V1-079, V1-083 (test)
//= D-08, D-38 (test)
#[test]
fn v1_uses_a_reply_chunk_whenever_there_is_one() {
    let v1 = limits(Version::V1);
    let (form, returned, _) = decide(&offer(&[], Some(10_000)), 100, &[], &v1).unwrap();
    assert_eq!(form, Form::ReplyChunk);
    let lengths: Vec<_> = returned.reply.unwrap().iter().map(|s| s.length).collect();
    assert_eq!(lengths, [100, 0]);
    let (form, _, _) = decide(&Lists::default(), 4068, &[], &v1).unwrap();
    assert_eq!(form, Form::Inline);
}

//= V2-098, V2-100, V2-101 (test)
//= V2-103, D-08 (test)
#[test]
fn v2_prefers_inline_then_reply_chunk_then_continuation() {
    let v2 = limits(Version::V2);
    let chunk = offer(&[], Some(10_000));
    for (lists, len, form) in [
        (&chunk, 4060, Form::Inline),
        (&chunk, 4064, Form::ReplyChunk),
        (&chunk, 10_004, Form::Continued),
        (&Lists::default(), 4060, Form::Inline),
        (&Lists::default(), 65_536, Form::Continued),
    ] {
        let (found, returned, _) = decide(lists, len, &[], &v2).unwrap();
        assert_eq!(found, form, "{len}");
        assert_eq!(returned.reply.is_some(), form == Form::ReplyChunk);
    }
    let no_chunk = ReplyLimits {
        reply_chunk: false,
        ..v2
    };
    let (form, _, _) = decide(&chunk, 5000, &[], &no_chunk).unwrap();
    assert_eq!(form, Form::Continued);
}

//= V1-081, V1-100, V1-108 (test)
//= V2-104, V2-158, V2-160 (test)
//= NFS-003, NFS-004, NFS-008 (test)
#[test]
fn replies_that_fit_nowhere_are_reported() {
    let (v1, v2) = (limits(Version::V1), limits(Version::V2));
    let small = offer(&[&[100], &[10, 2], &[2]], None);
    let results = [item(40, 50), item(92, 13), item(120, 5)];
    let short = ErrorReport::WriteResource {
        chunk_index: 2,
        length_needed: 13,
    };
    assert_eq!(decide(&small, 65_700, &results, &v2).err(), Some(short));
    let chunk = ErrorReport::BadXdr;
    assert_eq!(decide(&small, 128, &results, &v1).err(), Some(chunk));
    let long = ErrorReport::ReplyResource {
        length_needed: 65_540,
    };
    let reply = offer(&[], Some(1000));
    assert_eq!(decide(&reply, 65_540, &[], &v2).err(), Some(long));
    assert_eq!(decide(&reply, 1004, &[], &v1).err(), Some(chunk));
    assert_eq!(decide(&Lists::default(), 5000, &[], &v1).err(), Some(chunk));
}

/// A Write list that nothing is put into comes back unused.
//= V1-067, V2-086, D-37 (test)
#[test]
fn unused_chunks_are_returned() {
    let lists = offer(&[&[100], &[10, 2]], None);
    for version in [Version::V1, Version::V2] {
        let (_, returned, _) = decide(&lists, 40, &[], &limits(version)).unwrap();
        assert_eq!(lengths(&returned), [vec![0], vec![0, 0]]);
    }
}

/// A result that is too long for its Write chunk goes with the rest of the Reply.
//= V2-093, V2-103, D-08 (test)
#[test]
fn v2_leaves_a_short_write_chunk_unused() {
    let v2 = limits(Version::V2);
    let sizes: [&[u32]; 2] = [&[10, 2], &[7_000]];
    for (reply, len, form) in [
        (None, 3_000, Form::Inline),
        (Some(20_000), 3_000, Form::Inline),
        (None, 20_000, Form::Continued),
        (Some(1_000), 20_000, Form::Continued),
        (Some(20_100), 20_000, Form::ReplyChunk),
    ] {
        let results = [item(40, len), item(60 + len, 7_000)];
        let lists = offer(&sizes, reply);
        let (found, returned, writes) = decide(&lists, len + 7_060, &results, &v2).unwrap();
        assert_eq!(
            (found, lengths(&returned)),
            (form, vec![vec![0, 0], vec![7_000]])
        );
        assert_eq!(writes, [(3, 60 + len..7_060 + len)]);
    }
}

/// Data under RPCSEC_GSS protection is one piece, with any chunks for it.
//= V2-193, D-42 (test)
#[test]
fn protected_results_are_not_reduced() {
    let lists = offer(&[&[5_000]], Some(10_000));
    let message = v1_message(1, Kind::Msg, &lists, &[]);
    for version in [Version::V1, Version::V2] {
        let shape = |protected| ReplyShape {
            len: 5_060,
            results: &[Some(Item {
                offset: 40,
                len: 5_000,
            })],
            protected,
        };
        let form = |shape| {
            let lists = lists_of(&message);
            let response = respond(&lists, &shape, &limits(version)).unwrap();
            (response.payload_len, lengths(&Lists::of(&response)))
        };
        assert_eq!(form(shape(false)), (60, vec![vec![5_000]]));
        assert_eq!(form(shape(true)), (5_060, vec![vec![0]]));
    }
    // AUTH_NONE, AUTH_SYS, RPCSEC_GSS itself, AUTH_TLS; krb5, krb5i, krb5p, and a mechanism of which
    // nothing is known.
    for (flavor, expected) in [
        (0, false),
        (1, false),
        (6, false),
        (7, false),
        (390_003, false),
        (390_004, true),
        (390_005, true),
        (390_010, true),
    ] {
        assert_eq!(protects(flavor), expected, "{flavor}");
    }
}

proptest! {
    //= V1-069, V1-071, V2-077 (test)
    //= V2-085, V2-089, V2-090 (test)
    //= V2-186 (test)
    #[test]
    fn no_reply_exceeds_what_was_offered(
        writes in proptest::collection::vec(proptest::collection::vec(0_u32..3000, 0..4), 0..4),
        reply in proptest::option::of(0_u32..20_000),
        items in proptest::collection::vec(proptest::option::of(0_u32..4000), 1..5),
        tail in 0_u32..2000,
        v2 in any::<bool>(),
    ) {
        let writes: Vec<&[u32]> = writes.iter().map(|chunk| &chunk[..]).collect();
        let lists = offer(&writes, reply);
        let mut at = 40;
        let results: Vec<_> = items.iter().map(|len| len.map(|len| {
            let item = Item { offset: at, len };
            at += len.next_multiple_of(4) + 12;
            item
        })).collect();
        let len = at + tail / 4 * 4;
        let version = if v2 { Version::V2 } else { Version::V1 };
        if let Ok((_, returned, _)) = decide(&lists, len, &results, &limits(version)) {
            let offered = lists.writes.iter().chain(&lists.reply).flatten();
            let written = returned.writes.iter().chain(&returned.reply).flatten();
            for (written, offered) in written.zip(offered) {
                prop_assert!(written.length <= offered.length);
                prop_assert_eq!(written.handle, offered.handle);
            }
            prop_assert_eq!(
                returned.writes.iter().map(Vec::len).collect::<Vec<_>>(),
                lists.writes.iter().map(Vec::len).collect::<Vec<_>>()
            );
        }
    }
}
