// SPDX-License-Identifier: GPL-2.0

//! The Responder's check of Calls.

use common::{conveyed, read, rpc, segment, v1_message, words, Lists};
use proptest::prelude::*;
use rpcrdma_proto::proto::responder::{
    accept, check_long, slice, splits_credential, CallLimits, ParsedCall, Source, CALL_START,
};
use rpcrdma_proto::proto::wire::chunk::ChunkLists;
use rpcrdma_proto::proto::wire::error::{BadHeader, ErrorReport};
use rpcrdma_proto::proto::wire::header::{Body, FixedWords, Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{
    Grant, Handle, MsgType, Position, ReadSegment, Segment, Version, Xid,
};
use rpcrdma_proto::proto::wire::v1;
use rpcrdma_proto::proto::wire::v2;

use crate::given::any_lists;

fn limits(version: Version) -> CallLimits {
    CallLimits {
        version,
        read_chunks: 2,
        write_chunks: 2,
        segments: 40,
        segment_bytes: 1 << 20,
        call_bytes: 4 << 20,
    }
}

fn reads(reads: &[ReadSegment]) -> Lists {
    Lists {
        reads: reads.to_vec(),
        ..Lists::default()
    }
}

fn try_accept(
    kind: Kind,
    lists: &Lists,
    len: usize,
    limits: &CallLimits,
) -> Result<(u32, Vec<Source>), ErrorReport> {
    let message = v1_message(1, kind, lists, &vec![0; len]);
    let (_, conveyed) = conveyed(&message);
    let call = accept(&conveyed, len as u32, limits)?;
    Ok((call.len, call.sources().collect()))
}

//= V1-056, V1-057, V1-061 (test)
//= V2-078, V2-079, NFS-033 (test)
//= D-40 (test)
#[test]
fn chunks_return_to_their_positions() {
    let lists = reads(&[read(32, 7, 5), read(8, 1, 6), read(32, 8, 4), read(8, 2, 3)]);
    let (len, sources) = try_accept(Kind::Msg, &lists, 24, &limits(Version::V1)).unwrap();
    let expected = [
        Source::Stream(0..8),
        Source::Read(segment(1, 6)),
        Source::Read(segment(2, 3)),
        Source::Pad(3),
        Source::Stream(8..20),
        Source::Read(segment(7, 5)),
        Source::Read(segment(8, 4)),
        Source::Pad(3),
        Source::Stream(20..24),
    ];
    assert_eq!(sources, expected);
    assert_eq!(len, 24 + 12 + 12);
}

//= V1-082, V1-085, V1-086 (test)
//= V2-095, V2-099, NFS-041 (test)
//= NFS-044 (test)
#[test]
fn a_position_zero_chunk_may_have_others_beside_it() {
    let lists = reads(&[read(0, 1, 100), read(40, 2, 10), read(0, 3, 20)]);
    let (len, sources) = try_accept(Kind::Nomsg, &lists, 0, &limits(Version::V1)).unwrap();
    let expected = [
        Source::Stream(0..40),
        Source::Read(segment(2, 10)),
        Source::Pad(2),
        Source::Stream(40..120),
    ];
    assert_eq!(sources, expected);
    assert_eq!(len, 132);
}

//= V1-062, D-39, D-43 (test)
#[test]
fn empty_segments_and_padded_chunks_are_taken() {
    let lists = reads(&[read(8, 1, 0), read(8, 2, 8), read(16, 3, 0)]);
    let (len, sources) = try_accept(Kind::Msg, &lists, 8, &limits(Version::V1)).unwrap();
    let expected = [Source::Stream(0..8), Source::Read(segment(2, 8))];
    assert_eq!((len, &sources[..]), (16, &expected[..]));
}

//= V1-017, V1-095, V1-111 (test)
//= V2-013, V2-109, V2-147 (test)
//= D-30, D-40 (test)
#[test]
fn misplaced_chunks_are_refused() {
    for (kind, lists, len) in [
        (Kind::Msg, reads(&[read(12, 1, 4)]), 8),
        (Kind::Msg, reads(&[read(8, 1, 9), read(16, 2, 4)]), 40),
        (Kind::Msg, reads(&[read(0, 1, 9)]), 40),
        (Kind::Nomsg, reads(&[read(4, 1, 9)]), 0),
        (
            Kind::Nomsg,
            Lists {
                reply: Some(vec![segment(1, 100)]),
                ..Lists::default()
            },
            0,
        ),
    ] {
        for version in [Version::V1, Version::V2] {
            let refused = try_accept(kind, &lists, len, &limits(version));
            assert_eq!(refused, Err(ErrorReport::BadXdr), "{lists:?}");
        }
    }
}

//= V2-071, V2-148, V2-149 (test)
//= V2-150, V2-153, V2-154 (test)
//= V2-156, V2-185, D-07 (test)
//= D-25, D-43, NFS-045 (test)
#[test]
fn what_is_too_much_is_told_in_the_words_of_the_version() {
    let many = |count: u32| (1..=count).map(|n| read(8 * n, n, 4)).collect::<Vec<_>>();
    let writes = |count: usize| Lists {
        writes: vec![vec![segment(1, 4)]; count],
        ..Lists::default()
    };
    let segments = Lists {
        writes: vec![vec![segment(1, 4); 41]],
        ..Lists::default()
    };
    let none = CallLimits {
        read_chunks: 0,
        write_chunks: 0,
        ..limits(Version::V2)
    };
    let v2 = limits(Version::V2);
    for (lists, limits, report) in [
        (
            reads(&many(3)),
            v2,
            ErrorReport::ReadChunks { max_chunks: 2 },
        ),
        (
            reads(&many(1)),
            none,
            ErrorReport::ReadChunks { max_chunks: 0 },
        ),
        (writes(3), v2, ErrorReport::WriteChunks { max_chunks: 2 }),
        (
            writes(1),
            none,
            ErrorReport::ReplyResource { length_needed: 0 },
        ),
        (segments, v2, ErrorReport::Segments { max_segments: 40 }),
        (reads(&[read(8, 1, (1 << 20) + 1)]), v2, ErrorReport::System),
        (reads(&[read(8, 1, 1 << 20); 5]), v2, ErrorReport::System),
    ] {
        let refused = try_accept(Kind::Msg, &lists, 40, &limits);
        assert_eq!(refused, Err(report));
        let v1 = CallLimits {
            version: Version::V1,
            ..limits
        };
        let refused = try_accept(Kind::Msg, &lists, 40, &v1);
        assert_eq!(refused, Err(ErrorReport::BadXdr));
    }
    let zero = reads(&[read(0, 1, 40)]);
    let refused = try_accept(Kind::Nomsg, &zero, 0, &none);
    assert_eq!(refused, Err(ErrorReport::ReadChunks { max_chunks: 0 }));
    let long = try_accept(
        Kind::Msg,
        &Lists::default(),
        9,
        &CallLimits {
            call_bytes: 8,
            ..v2
        },
    );
    assert_eq!(long, Err(ErrorReport::System));
}

//= V1-133, V2-171, D-49 (test)
//= NFS-052 (test)
#[test]
fn reverse_calls_have_no_chunks() {
    for (version, ignores_reply_chunk) in [(Version::V1, true), (Version::V2, true)] {
        let limits = CallLimits::reverse(version, 4096);
        let reply = Lists {
            reply: Some(vec![segment(1, 100)]),
            ..Lists::default()
        };
        let taken = try_accept(Kind::Msg, &reply, 40, &limits).is_ok();
        assert_eq!(taken, ignores_reply_chunk);
        assert!(try_accept(Kind::Msg, &Lists::default(), 40, &limits).is_ok());
        assert!(try_accept(Kind::Msg, &reads(&[read(8, 1, 4)]), 40, &limits).is_err());
        assert!(try_accept(Kind::Nomsg, &reads(&[read(0, 1, 4)]), 0, &limits).is_err());
    }
}

//= V2-186 (test)
#[test]
fn slices_stay_within_their_segments() {
    let segments = [segment(1, 10), segment(2, 0), segment(3, 10)];
    let part = |range| slice(segments.into_iter(), range).collect::<Vec<_>>();
    let at = |handle, skip: u64, length| Segment {
        offset: segment(handle, 0).offset + skip,
        ..segment(handle, length)
    };
    assert_eq!(part(0..20), [at(1, 0, 10), at(3, 0, 10)]);
    assert_eq!(part(4..12), [at(1, 4, 6), at(3, 0, 2)]);
    assert_eq!(part(12..99), [at(3, 2, 8)]);
    assert_eq!(part(5..5), []);
}

proptest! {
    //= V1-057, V1-061, V1-111 (test)
    //= V2-079, V2-109, V2-186 (test)
    //= V2-195 (test)
    #[test]
    fn an_accepted_call_is_put_together_from_all_of_it(
        lists in any_lists(),
        len in 0_usize..200,
        nomsg in any::<bool>(),
    ) {
        let kind = if nomsg { Kind::Nomsg } else { Kind::Msg };
        let generous = CallLimits {
            read_chunks: 32,
            write_chunks: 32,
            segment_bytes: u32::MAX,
            call_bytes: u32::MAX,
            ..limits(Version::V1)
        };
        if nomsg && lists == Lists::default() {
            return Ok(());
        }
        if let Ok((total, sources)) = try_accept(kind, &lists, len, &generous) {
            let (mut at, mut used, mut read) = (0_u64, 0, 0_u64);
            for source in &sources {
                at += match source {
                    Source::Stream(range) => {
                        prop_assert_eq!(range.start, used);
                        used = range.end;
                        u64::from(range.end - range.start)
                    }
                    Source::Read(segment) => {
                        read += u64::from(segment.length);
                        segment.length.into()
                    }
                    Source::Pad(len) => {
                        prop_assert!((1..4).contains(len));
                        prop_assert_eq!((at + u64::from(*len)) % 4, 0);
                        u64::from(*len)
                    }
                };
            }
            prop_assert_eq!(at, u64::from(total));
            let normal = lists.reads.iter().filter(|read| read.position.0 != 0);
            let expected: u64 = normal.map(|read| u64::from(read.segment.length)).sum();
            prop_assert_eq!(read, expected);
        }
    }
}

/// The first words of an RPC message are compared with the header before there are chunks.
//= V1-003, V2-014, V2-026 (test)
//= D-47 (test)
#[test]
fn no_chunk_takes_the_place_of_xid_and_type() {
    for (kind, lists, len) in [
        (Kind::Msg, reads(&[read(4, 1, 4)]), 40),
        (Kind::Nomsg, reads(&[read(0, 1, 40), read(4, 2, 4)]), 0),
        (Kind::Nomsg, reads(&[read(0, 1, 0)]), 0),
        (Kind::Nomsg, reads(&[read(0, 1, 3), read(0, 2, 4)]), 0),
    ] {
        let refused = try_accept(kind, &lists, len, &limits(Version::V2));
        assert_eq!(refused, Err(ErrorReport::BadXdr), "{lists:?}");
    }
    let long = reads(&[read(0, 1, 8)]);
    assert!(try_accept(Kind::Nomsg, &long, 0, &limits(Version::V2)).is_ok());
    let check = |message: &[u8]| check_long(Version::V2, Xid(9), message, &ChunkLists::EMPTY);
    assert_eq!(check(&rpc(9, 0, 40)), Ok(()));
    for (message, report) in [
        (rpc(8, 0, 40), ErrorReport::BadXdr),
        (rpc(9, 1, 40), ErrorReport::InvalFlag),
        (vec![0; 7], ErrorReport::BadXdr),
    ] {
        assert_eq!(check(&message), Err(report));
    }
}

/// The procedures whose results a Write chunk may take: READ, READLINK and COMPOUND.
//= V1-108 (test)
#[test]
fn results_are_eligible_in_read_readlink_and_compound() {
    const NFS: u32 = 100_003;
    let lists = Lists {
        writes: vec![vec![segment(1, 100)]],
        ..Lists::default()
    };
    let takes = |program, version, procedure| {
        let message = words(&[9, 0, 2, program, version, procedure]);
        let message = v1_message(9, Kind::Msg, &lists, &message);
        accept(&conveyed(&message).1, 24, &limits(Version::V1)).is_ok()
    };
    for version in 0..6 {
        for procedure in 0..22 {
            let expected = match version {
                2 | 3 => matches!(procedure, 5 | 6),
                4 => procedure == 1,
                _ => false,
            };
            assert_eq!(takes(NFS, version, procedure), expected);
            assert!(!takes(NFS + 1, version, procedure));
        }
    }
}

/// Calls for which version 1 has an error are refused before they are processed, inline and Long.
//= V1-100, V1-108 (test)
#[test]
fn chunks_without_a_use_are_refused_first() {
    let call = |procedure| words(&[9, 0, 2, 100_003, 3, procedure]);
    let (lookup, get) = (call(3), call(6));
    let write = |len| Lists {
        writes: vec![vec![segment(1, len)]],
        ..Lists::default()
    };
    let reply = |lengths: &[u32]| Lists {
        reply: Some(lengths.iter().map(|len| segment(2, *len)).collect()),
        ..Lists::default()
    };
    for (message, lists, is_good) in [
        (&lookup, write(100), false),
        (&lookup, write(0), false),
        (&get, write(100), true),
        (&get[..20].to_vec(), write(100), true),
        (&lookup, reply(&[]), false),
        (&lookup, reply(&[4, 15]), false),
        (&lookup, reply(&[4, 16]), true),
    ] {
        for version in [Version::V1, Version::V2] {
            let good = is_good || version == Version::V2;
            let expected = if good {
                Ok(())
            } else {
                Err(ErrorReport::BadXdr)
            };
            let inline = v1_message(9, Kind::Msg, &lists, message);
            let (_, conveyed) = conveyed(&inline);
            let call = accept(&conveyed, message.len() as u32, &limits(version));
            assert_eq!(call.map(|_| ()), expected, "{version:?} {lists:?}");
            let start = &message[..CALL_START.min(message.len())];
            let long = check_long(version, Xid(9), start, &conveyed.chunks);
            assert_eq!(long, expected, "{version:?} {lists:?}");
        }
    }
}

/// With any limits, a Read list is walked a bounded number of times.
//= V2-150, V2-185, D-25 (test)
#[test]
fn the_work_for_one_header_is_bounded() {
    let unlimited = CallLimits {
        read_chunks: u32::MAX,
        segments: u32::MAX,
        ..limits(Version::V2)
    };
    let chunks = |count: u32| {
        let chunks: Vec<_> = (1..=count).map(|n| read(8 * n, n, 4)).collect();
        try_accept(
            Kind::Msg,
            &reads(&chunks),
            4 * count as usize + 8,
            &unlimited,
        )
    };
    assert!(chunks(32).is_ok());
    assert_eq!(chunks(33), Err(ErrorReport::ReadChunks { max_chunks: 32 }));
}

//= V2-156, D-25 (test)
#[test]
fn segments_of_the_reply_chunk_count() {
    let lists = Lists {
        reply: Some(vec![segment(1, 4); 41]),
        ..Lists::default()
    };
    let refused = try_accept(Kind::Msg, &lists, 40, &limits(Version::V2));
    assert_eq!(refused, Err(ErrorReport::Segments { max_segments: 40 }));
}

//= V1-058, V2-080 (test)
#[test]
fn no_position_is_unaligned() {
    for position in [1, 2, 3, 9, 10, 11] {
        let message = v1_message(1, Kind::Msg, &reads(&[read(position, 1, 4)]), &[0; 40]);
        let (fixed, rest) = FixedWords::split(&message).unwrap();
        assert_eq!(v1::decode(&fixed, rest).err(), Some(BadHeader::Unaligned));
    }
}

/// The first `len` bytes of a Call whose credential has a body of `credential` bytes.
fn stream(credential: u32, len: usize) -> Vec<u8> {
    let mut stream = words(&[1, 0, 2, 100_003, 3, 7, 6, credential]);
    stream.resize(len, 0xff);
    stream
}

#[test]
fn a_chunk_in_the_credential_is_known() {
    for (credential, end) in [(0, 32), (1, 36), (4, 36), (24, 56), (400, 432)] {
        for at in (8..end + 9).step_by(4) {
            let split = splits_credential(Position(at), &stream(credential, 1000));
            assert_eq!(split, at < end, "{credential} {at}");
        }
    }
    // The length of the credential is in the chunk, or makes no sense.
    for len in [8, 28, 31] {
        assert!(splits_credential(Position(len as u32), &stream(24, len)));
    }
    assert!(!splits_credential(Position(56), &stream(24, 32)));
    assert!(splits_credential(
        Position(u32::MAX),
        &stream(u32::MAX, 100)
    ));
}

const LENIENT: CallLimits = CallLimits {
    version: Version::V1,
    read_chunks: 32,
    write_chunks: 32,
    segments: 1000,
    segment_bytes: u32::MAX,
    call_bytes: u32::MAX,
};

/// Any lists, but with Read chunks that can be taken.
fn lists_of_a_call() -> impl Strategy<Value = Lists> {
    let pieces = prop::collection::vec((1_u32..10, 0_u32..3), 0..4);
    (any_lists(), pieces).prop_map(|(lists, pieces)| Lists {
        // Of whole words, and none reaches the next Position.
        reads: pieces
            .iter()
            .map(|&(at, len)| read(at * 64, 1, len * 4))
            .collect(),
        ..lists
    })
}

proptest! {
    // One chunk, and the same with another of no bytes behind it, which does not change the message.
    //= V1-061, V1-111, D-40 (test)
    #[test]
    fn one_chunk_is_treated_as_several_are(
        words in 0_u32..20, len in 0_u32..2000, stream in 0_usize..80, cut in 0_u32..3,
    ) {
        let at = words * 4;
        let parts = [read(at, 1, len / 2 + cut), read(at, 2, len - len / 2)];
        let end = at + (len + cut).next_multiple_of(4);
        // That is elsewhere, too.
        let more = if end == at { 4 } else { 0 };
        let several = [parts[0], parts[1], read(end + more, 3, 0)];
        for limits in [LENIENT, CallLimits { read_chunks: 0, ..LENIENT }] {
            let one = try_accept(Kind::Msg, &reads(&parts), stream, &limits);
            let again = try_accept(Kind::Msg, &reads(&several), stream + more as usize, &limits);
            match (one, again) {
                (Ok((one_len, sources)), Ok((other_len, _))) => {
                    prop_assert_eq!(one_len + more, other_len);
                    let total: u32 = sources.iter().map(|source| match source {
                        Source::Stream(range) => range.end - range.start,
                        Source::Read(segment) => segment.length,
                        Source::Pad(len) => *len,
                    }).sum();
                    prop_assert_eq!(total, one_len);
                }
                (one, again) => prop_assert_eq!(one.err(), again.err()),
            }
        }
    }
}

//= V2-111 (test)
#[test]
fn a_call_of_version_2_is_opened_again() {
    let lists = Lists {
        writes: vec![vec![segment(5, 4096)]],
        ..Lists::default()
    };
    let outgoing = Outgoing {
        xid: Xid(7),
        direction: MsgType::Call,
        kind: Kind::Msg,
        more: false,
        inv_handle: Handle(5),
    };
    let grant = Grant::from_word(0x0010_0001);
    let mut message = vec![0; 256];
    let len = v2::encode(&mut message, &outgoing, grant, &lists).unwrap();
    message.truncate(len);
    message.extend(rpc(7, 0, 40));
    let (fixed, rest) = FixedWords::split(&message).unwrap();
    let Ok(Body::Conveyed(first)) = v2::decode(&fixed, rest, true).unwrap().body else {
        panic!()
    };
    let call = accept(&first, 40, &limits(Version::V2)).unwrap();
    let (again, opened, payload) = ParsedCall::of(Version::V2, &call).open(&message).unwrap();
    assert_eq!((again, payload), (fixed, first.payload));
    assert_eq!(Lists::of(&opened.chunks), lists);
    assert_eq!(ParsedCall::inv_handle(&message), Handle(5));
    assert_eq!(ParsedCall::inv_handle(&message[..20]), Handle::NONE);
}

proptest! {
    #[test]
    fn a_call_is_the_same_when_it_is_opened_again(
        mut lists in lists_of_a_call(), len in 640_usize..700, cut in 0_usize..9,
    ) {
        if let Some(reply) = &mut lists.reply {
            // A Reply chunk has room for some Reply.
            reply.push(segment(9, 20));
        }
        let message = v1_message(7, Kind::Msg, &lists, &vec![1; len]);
        let (fixed, first) = conveyed(&message);
        let call = accept(&first, len as u32, &LENIENT).unwrap();
        let kept = ParsedCall::of(Version::V1, &call);
        let (fixed_again, again, payload) = kept.open(&message).unwrap();
        prop_assert_eq!(fixed_again, fixed);
        prop_assert_eq!(Lists::of(&again.chunks), Lists::of(&call.chunks));
        prop_assert_eq!(again.only_read_chunk(), call.only_read_chunk());
        prop_assert_eq!(
            (again.kind, again.stream_len, again.len),
            (call.kind, call.stream_len, call.len)
        );
        prop_assert_eq!(payload, first.payload);
        // A message that has lost its end is not opened as another.
        let header = message.len() - len;
        prop_assert_eq!(kept.open(&message[..header]).map(|opened| opened.2), Some(&[][..]));
        prop_assert!(kept.open(&message[..header - 1 - cut.min(header - 1)]).is_none());
    }
}
