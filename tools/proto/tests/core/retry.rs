// SPDX-License-Identifier: GPL-2.0

//! Reactions to errors.

use rpcrdma_proto::proto::error::ErrorReport;
use rpcrdma_proto::proto::plan::{plan, Buf, CallShape, Conveyance, Limits, Part};
use rpcrdma_proto::proto::retry::{react, Attempts, Reaction, Refusals, Retry, Sent};
use rpcrdma_proto::proto::types::Version;

const SENT: Sent<'_> = Sent {
    long: false,
    read_chunks: 1,
    write_chunks: &[100, 200],
    reply_chunk: 300,
    segments: 20,
};

fn once(report: ErrorReport, sent: &Sent<'_>) -> Reaction {
    react(Version::V2, report, sent, &mut Attempts::default(), 10_000)
}

const fn write(chunk_index: u32, length_needed: u32) -> ErrorReport {
    ErrorReport::WriteResource {
        chunk_index,
        length_needed,
    }
}

//= V2-105, V2-107, V2-163, V2-165, D-05 (test)
#[test]
fn most_errors_are_permanent() {
    for report in [
        ErrorReport::Version { low: 1, high: 2 },
        ErrorReport::BadXdr,
        ErrorReport::InvalHtype,
        ErrorReport::InvalFlag,
        ErrorReport::System,
        ErrorReport::Unknown(99),
    ] {
        assert_eq!(once(report, &SENT), Reaction::Terminate);
    }
}

//= V1-098, D-41, NFS-005, NFS-007, NFS-015, NFS-046 (test)
#[test]
fn version_1_never_tries_again() {
    for report in [
        ErrorReport::BadXdr,
        ErrorReport::ReplyResource { length_needed: 500 },
    ] {
        let mut attempts = Attempts::default();
        let reaction = react(Version::V1, report, &SENT, &mut attempts, 10_000);
        assert_eq!(reaction, Reaction::Terminate);
    }
}

//= V2-151, V2-152, D-06 (test)
#[test]
fn read_chunks_become_one_or_none() {
    let reaction = |max_chunks, sent| once(ErrorReport::ReadChunks { max_chunks }, sent);
    assert_eq!(reaction(1, &SENT), Reaction::Retry(Retry::LongCall));
    assert_eq!(reaction(0, &SENT), Reaction::Retry(Retry::Continuation));
    let long = Sent { long: true, ..SENT };
    assert_eq!(reaction(1, &long), Reaction::Terminate);
    assert_eq!(reaction(0, &long), Reaction::Terminate);
    let none = Sent {
        read_chunks: 0,
        ..SENT
    };
    assert_eq!(reaction(1, &none), Reaction::Terminate);
}

//= V2-155, V2-157, D-06, D-07 (test)
#[test]
fn write_chunks_and_segments_become_fewer() {
    let reaction = |max_chunks, sent| once(ErrorReport::WriteChunks { max_chunks }, sent);
    for max_chunks in [0, 1] {
        let expected = Reaction::Retry(Retry::ReplyChunkOnly);
        assert_eq!(reaction(max_chunks, &SENT), expected);
    }
    let none = Sent {
        write_chunks: &[],
        ..SENT
    };
    assert_eq!(reaction(1, &none), Reaction::Terminate);
    let reaction = |max_segments| once(ErrorReport::Segments { max_segments }, &SENT);
    assert_eq!(reaction(19), Reaction::Retry(Retry::FewerSegments(19)));
    assert_eq!(reaction(20), Reaction::Terminate);
    assert_eq!(reaction(0), Reaction::Terminate);
}

//= V2-105, V2-159, V2-161, D-06 (test)
#[test]
fn chunks_grow_when_that_can_help() {
    let larger = |index, length| Reaction::Retry(Retry::LargerWriteChunk { index, length });
    assert_eq!(once(write(1, 101), &SENT), larger(0, 101));
    assert_eq!(once(write(2, 201), &SENT), larger(1, 201));
    for (index, length) in [(0, 101), (1, 0), (1, 100), (3, 500), (1, 10_001)] {
        assert_eq!(once(write(index, length), &SENT), Reaction::Terminate);
    }
    let reply = |length_needed| once(ErrorReport::ReplyResource { length_needed }, &SENT);
    assert_eq!(reply(301), Reaction::Retry(Retry::LargerReplyChunk(301)));
    for length in [0, 300, 10_001] {
        assert_eq!(reply(length), Reaction::Terminate);
    }
}

//= D-06, NFS-006 (test)
#[test]
fn nothing_is_tried_without_end() {
    let mut attempts = Attempts::default();
    let mut next = |report| react(Version::V2, report, &SENT, &mut attempts, 10_000);
    assert!(matches!(next(write(1, 500)), Reaction::Retry(_)));
    assert_eq!(next(write(1, 600)), Reaction::Terminate);
    let fewer = ErrorReport::Segments { max_segments: 3 };
    assert!(matches!(next(fewer), Reaction::Retry(_)));
    let reads = ErrorReport::ReadChunks { max_chunks: 1 };
    assert_eq!(next(reads), Reaction::Terminate);
}

//= V2-151, V2-155, V2-157, V2-161, D-06 (test)
#[test]
fn the_next_plan_obeys() {
    let part = |len| Part {
        len,
        page_offset: 0,
    };
    let buf = Buf {
        head: part(100),
        pages: part(20_000),
        tail: part(0),
    };
    let items = [buf.page_item()];
    let call = CallShape {
        send: buf,
        arguments: &items,
        receive: buf,
        results: &items,
        protected: false,
    };
    let limits = Limits {
        version: Version::V2,
        continued_send: 1 << 20,
        continued_recv: 1 << 20,
        segment_pages: 2,
        ..Limits::v1(4096, 4096)
    };
    let planned = |retry: Retry| {
        let mut limits = limits;
        retry.apply(&mut limits);
        plan(&call, &limits).unwrap()
    };
    let normal = plan(&call, &limits).unwrap();
    assert!(normal.reads.contains(0) && normal.writes.contains(0) && normal.segments() == 6);
    let continued = planned(Retry::Continuation);
    assert_eq!(continued.conveyance, Conveyance::Continued);
    assert!(continued.reads.is_empty());
    let reply_chunk = planned(Retry::ReplyChunkOnly);
    assert!(reply_chunk.writes.is_empty() && reply_chunk.reply_chunk);
    let fewer = planned(Retry::FewerSegments(3));
    assert!(fewer.segments() <= 3, "{fewer:?}");
    let mut v1 = limits;
    v1.continued_send = 0;
    Retry::LongCall.apply(&mut v1);
    let long = plan(&call, &v1).unwrap();
    assert_eq!(long.conveyance, Conveyance::Long);
    assert!(long.reads.is_empty());
}

//= V2-154, V2-155, V2-161, D-06, D-07 (test)
#[test]
fn a_peer_without_write_chunks_gets_a_reply_chunk() {
    let sent = Sent {
        reply_chunk: 0,
        ..SENT
    };
    for length_needed in [0, 200, 5000] {
        let report = ErrorReport::ReplyResource { length_needed };
        assert_eq!(once(report, &sent), Reaction::Retry(Retry::ReplyChunkOnly));
    }
    let plain = Sent {
        write_chunks: &[],
        ..sent
    };
    let report = |length_needed| ErrorReport::ReplyResource { length_needed };
    assert_eq!(once(report(0), &plain), Reaction::Terminate);
    let larger = Reaction::Retry(Retry::LargerReplyChunk(500));
    assert_eq!(once(report(500), &plain), larger);
}

/// A page list cannot grow.
//= V2-159, D-06 (test)
#[test]
fn no_longer_chunk_than_there_is_memory_is_offered() {
    let reaction = react(
        Version::V2,
        write(1, 101),
        &SENT,
        &mut Attempts::default(),
        100,
    );
    assert_eq!(reaction, Reaction::Terminate);
}

/// A Reply that could come in parts goes to the Reply chunk that was asked for.
//= V2-155, V2-161 (test)
#[test]
fn a_reply_chunk_that_was_asked_for_is_offered() {
    let part = |len| Part {
        len,
        page_offset: 0,
    };
    let buf = |pages| Buf {
        head: part(100),
        pages: part(pages),
        tail: part(0),
    };
    let items = [buf(10_000).page_item()];
    let limits = Limits {
        version: Version::V2,
        continued_recv: 1 << 20,
        ..Limits::v1(4096, 4096)
    };
    for (results, retry) in [
        (&items[..], Retry::ReplyChunkOnly),
        (&[], Retry::LargerReplyChunk(10_000)),
    ] {
        let call = CallShape {
            send: buf(0),
            arguments: &[],
            receive: buf(10_000),
            results,
            protected: false,
        };
        assert!(!plan(&call, &limits).unwrap().reply_chunk);
        let mut next = limits;
        retry.apply(&mut next);
        let plan = plan(&call, &next).unwrap();
        assert!(plan.reply_chunk && plan.writes.is_empty(), "{retry:?}");
    }
}

/// A Call goes again if it was planned before its refusal was known, and comes to an end.
//= D-06 (test)
#[test]
fn what_was_planned_before_a_refusal_goes_again() {
    let mut refusals = Refusals::default();
    assert_eq!(refusals.count(), 0);
    assert!(refusals.goes_again(Retry::ReplyChunkOnly, 0));
    assert_eq!(refusals.count(), 1);
    // Another that was under way, and one that was planned since.
    assert!(refusals.goes_again(Retry::ReplyChunkOnly, 0));
    assert!(!refusals.goes_again(Retry::ReplyChunkOnly, 1));
    assert!(refusals.goes_again(Retry::LongCall, 1));
    assert_eq!(refusals.count(), 2);
    assert!(refusals.goes_again(Retry::FewerSegments(3), 2));
    for known in 0..6 {
        let again = refusals.goes_again(Retry::FewerSegments(2), known);
        assert_eq!(again, known < 3, "{known}");
    }
}

/// A client gives each form of a Call up once, and for good.
//= V2-151, V2-155, V2-157, D-06 (test)
#[test]
fn refusals_come_to_an_end() {
    let mut refusals = Refusals::default();
    for retry in [
        Retry::LongCall,
        Retry::Continuation,
        Retry::ReplyChunkOnly,
        Retry::LargerReplyChunk(100),
        Retry::FewerSegments(3),
    ] {
        assert!(refusals.add(retry), "{retry:?}");
        assert!(!refusals.add(retry), "{retry:?}");
    }
    assert!(!refusals.add(Retry::FewerSegments(2)));
    let longer = Retry::LargerWriteChunk {
        index: 0,
        length: 100,
    };
    assert!(!refusals.add(longer));

    let limits = Limits {
        version: Version::V2,
        continued_recv: 1 << 20,
        ..Limits::v1(4096, 4096)
    };
    let narrowed = |retry| {
        let mut refusals = Refusals::default();
        refusals.add(retry);
        let mut narrowed = limits;
        refusals.apply(&mut narrowed);
        narrowed
    };
    let long = narrowed(Retry::LongCall);
    assert!(long.read_chunks == 0 && long.long_call && long.write_chunks != 0);
    assert!(!narrowed(Retry::Continuation).long_call);
    assert_eq!(narrowed(Retry::ReplyChunkOnly).write_chunks, 0);
    assert_eq!(narrowed(Retry::LargerReplyChunk(1)).continued_recv, 0);
    assert_eq!(narrowed(Retry::FewerSegments(3)).header_segments, 3);
}
