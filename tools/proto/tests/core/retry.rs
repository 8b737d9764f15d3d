// SPDX-License-Identifier: GPL-2.0

//! Reactions to errors.

use rpcrdma_proto::proto::connection::negotiate::{PeerVersionMemo, Time};
use rpcrdma_proto::proto::requester::plan::{plan, Buf, CallShape, Conveyance, Limits, Part, Plan};
use rpcrdma_proto::proto::requester::retry::{
    keep, react, Attempts, Reaction, Refusals, Retry, Sent,
};
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::types::Version;

const SENT: Sent<'_> = Sent {
    long: false,
    read_chunks: 1,
    write_chunks: &[100, 200],
    reply_chunk: 300,
    segments: 20,
    header_segments: 25,
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

//= V2-105, V2-107, V2-163 (test)
//= V2-165, D-05 (test)
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

//= V1-098, D-41, NFS-005 (test)
//= NFS-007, NFS-015, NFS-046 (test)
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

/// For any limit: a Position Zero Read chunk comes before parts.
//= V2-151, V2-152, D-06 (test)
#[test]
fn read_chunks_become_one_or_none() {
    let none = Sent {
        read_chunks: 0,
        ..SENT
    };
    let long = Sent { long: true, ..none };
    for max_chunks in [0, 1, 7] {
        let reaction = |sent| once(ErrorReport::ReadChunks { max_chunks }, sent);
        assert_eq!(reaction(&SENT), Reaction::Retry(Retry::LongCall));
        let again = match max_chunks {
            0 => Reaction::Retry(Retry::Continuation),
            _ => Reaction::Terminate,
        };
        assert_eq!(reaction(&long), again);
        assert_eq!(reaction(&none), Reaction::Terminate);
    }
}

//= V2-155, V2-157, D-06 (test)
//= D-07 (test)
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
    // The limit applies to a chunk, and if no chunk exceeds it, to the header.
    let reaction = |max_segments| once(ErrorReport::Segments { max_segments }, &SENT);
    for max in [0, 1, 19] {
        assert_eq!(reaction(max), Reaction::Retry(Retry::FewerSegments(max)));
    }
    for max in [20, 24] {
        assert_eq!(reaction(max), Reaction::Retry(Retry::ShorterHeader(max)));
    }
    assert_eq!(reaction(25), Reaction::Terminate);
}

//= V2-105, V2-159, V2-161 (test)
//= D-06 (test)
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
    // A limit may become lower meanwhile.
    for max_segments in (0..Attempts::MAX.into()).rev() {
        let fewer = ErrorReport::Segments { max_segments };
        assert!(matches!(next(fewer), Reaction::Retry(_)));
    }
    let reads = ErrorReport::ReadChunks { max_chunks: 1 };
    assert_eq!(next(reads), Reaction::Terminate);
}

//= V2-151, V2-155, V2-157 (test)
//= V2-161, D-06 (test)
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
        longest_send: 1 << 20,
        longest_recv: 1 << 20,
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
    let most = |plan: Plan| plan.read_segments.max(plan.write_segments);
    assert!(most(planned(Retry::FewerSegments(2))) <= 2);
    let shorter = planned(Retry::ShorterHeader(3));
    assert!(shorter.segments() <= 3, "{shorter:?}");
    let mut v1 = limits;
    (v1.continued_send, v1.longest_send) = (0, 0);
    Retry::LongCall.apply(&mut v1);
    let long = plan(&call, &v1).unwrap();
    assert_eq!(long.conveyance, Conveyance::Long);
    assert!(long.reads.is_empty());
}

//= V2-154, V2-155, V2-161 (test)
//= D-06, D-07 (test)
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

/// A server that refuses a form of Calls is not asked for it again, by any Call, for ten minutes.
const KEEP: Time = PeerVersionMemo::KEEP;
const NOW: Time = Time(1_000_000);

fn again(refusals: &mut Refusals, retry: Retry, known: u32) -> bool {
    refusals.goes_again(retry, NOW, KEEP, known)
}

fn narrowed(refusals: &Refusals) -> Limits {
    let mut limits = Limits {
        version: Version::V2,
        continued_recv: 1 << 20,
        ..Limits::v1(4096, 4096)
    };
    refusals.apply(&mut limits);
    limits
}

/// A Call goes again if it was planned before its refusal was known, and comes to an end.
//= D-06 (test)
#[test]
fn what_was_planned_before_a_refusal_goes_again() {
    let mut refusals = Refusals::default();
    assert!(again(&mut refusals, Retry::ReplyChunkOnly, 0));
    assert_eq!(refusals.changes(), 1);
    // Another that was under way, and one that was planned since.
    assert!(again(&mut refusals, Retry::ReplyChunkOnly, 0));
    assert!(!again(&mut refusals, Retry::ReplyChunkOnly, 1));
    assert!(again(&mut refusals, Retry::LongCall, 1));
    assert!(again(&mut refusals, Retry::FewerSegments(3), 2));
    assert_eq!(refusals.changes(), 3);
    for known in 0..4 {
        let again = again(&mut refusals, Retry::FewerSegments(3), known);
        assert_eq!(again, known < 3, "{known}");
    }
}

/// Each form of a Call is given up once.
//= V2-151, V2-155, V2-157 (test)
//= D-06 (test)
#[test]
fn refusals_come_to_an_end() {
    for retry in [
        Retry::LongCall,
        Retry::Continuation,
        Retry::ReplyChunkOnly,
        Retry::LargerReplyChunk(100),
        Retry::FewerSegments(3),
        Retry::ShorterHeader(3),
    ] {
        let mut refusals = Refusals::default();
        assert!(again(&mut refusals, retry, 0), "{retry:?}");
        assert!(!again(&mut refusals, retry, 1), "{retry:?}");
    }
    let longer = Retry::LargerWriteChunk {
        index: 0,
        length: 100,
    };
    assert!(!again(&mut Refusals::default(), longer, 0));

    let narrowed = |retry| {
        let mut refusals = Refusals::default();
        again(&mut refusals, retry, 0);
        narrowed(&refusals)
    };
    let long = narrowed(Retry::LongCall);
    assert!(long.read_chunks == 0 && long.long_call && long.write_chunks != 0);
    assert!(!narrowed(Retry::Continuation).long_call);
    assert_eq!(narrowed(Retry::ReplyChunkOnly).write_chunks, 0);
    assert_eq!(narrowed(Retry::LargerReplyChunk(1)).continued_recv, 0);
    let fewer = narrowed(Retry::FewerSegments(3));
    assert_eq!((fewer.chunk_segments, fewer.header_segments), (3, u32::MAX));
    let shorter = narrowed(Retry::ShorterHeader(3));
    assert_eq!((shorter.chunk_segments, shorter.header_segments), (16, 3));
}

/// A server whose limits become lower is obeyed, also for Calls that were planned with its first limit.
//= V2-157, D-06 (test)
#[test]
fn a_lower_limit_replaces_the_first() {
    let mut refusals = Refusals::default();
    assert!(again(&mut refusals, Retry::FewerSegments(8), 0));
    assert!(again(&mut refusals, Retry::FewerSegments(4), 1));
    assert_eq!(narrowed(&refusals).chunk_segments, 4);
    // A higher one, of a Call that was under way, does not.
    assert!(again(&mut refusals, Retry::FewerSegments(6), 1));
    assert_eq!(narrowed(&refusals).chunk_segments, 4);
    assert!(!again(&mut refusals, Retry::FewerSegments(6), 2));
}

/// A server that comes back with other limits is asked again.
//= D-06 (test)
#[test]
fn refusals_age() {
    let mut refusals = Refusals::default();
    assert!(again(&mut refusals, Retry::LongCall, 0));
    let later = NOW.after(Time(60_000));
    assert!(refusals.goes_again(Retry::FewerSegments(4), later, KEEP, 1));
    // A Call that was under way has met the first once more, which lasts from then on.
    assert!(refusals.goes_again(Retry::LongCall, NOW.after(Time(1_000)), KEEP, 0));
    let before = refusals;
    assert!(!refusals.expire(NOW.after(KEEP)));
    assert_eq!(refusals, before);
    assert!(refusals.expire(NOW.after(Time(1_000)).after(KEEP)));
    let limits = narrowed(&refusals);
    assert_eq!((limits.read_chunks, limits.chunk_segments), (1, 4));
    assert_eq!(refusals.changes(), 3);
    assert!(refusals.expire(later.after(KEEP)));
    assert_eq!(narrowed(&refusals).chunk_segments, 16);
    assert!(!refusals.expire(later.after(KEEP).after(KEEP)));
    // A refusal that is remembered for a shorter time does not shorten an earlier one.
    let mut both = Refusals::default();
    assert!(again(&mut both, Retry::ReplyChunkOnly, 0));
    let shorter = Time(10_000);
    both.goes_again(Retry::ReplyChunkOnly, NOW, shorter, 0);
    assert!(!both.expire(NOW.after(shorter)));
    assert_eq!(narrowed(&both).write_chunks, 0);
    assert!(both.expire(NOW.after(KEEP)));
    // A renewed refusal counts as a change.
    let known = refusals.changes();
    assert!(again(&mut refusals, Retry::LongCall, known));
}

/// One Reply that fits nowhere says little about others.
//= V2-154, V2-155, D-06 (test)
#[test]
fn a_reply_that_fits_nowhere_is_soon_forgotten() {
    let fits_nowhere = ErrorReport::ReplyResource { length_needed: 0 };
    assert!(keep(fits_nowhere) <= Time(10_000));
    for report in [
        ErrorReport::ReadChunks { max_chunks: 0 },
        ErrorReport::WriteChunks { max_chunks: 1 },
        ErrorReport::Segments { max_segments: 1 },
    ] {
        assert_eq!(keep(report), KEEP);
    }
    let mut refusals = Refusals::default();
    assert!(refusals.goes_again(Retry::ReplyChunkOnly, NOW, keep(fits_nowhere), 0));
    assert!(refusals.expire(NOW.after(Time(10_000))));
    assert_eq!(narrowed(&refusals).write_chunks, 1);
}
