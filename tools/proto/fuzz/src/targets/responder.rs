// SPDX-License-Identifier: GPL-2.0

//! Calls with arbitrary chunk lists: an accepted one consists of its Payload stream and its Read
//! chunks, each octet once and in order; a Reply to it stays within the memory it offers.

use rpcrdma_proto::proto::invalidate;
use rpcrdma_proto::proto::requester::plan::Item;
use rpcrdma_proto::proto::responder::{
    accept, respond, slice, Call, CallLimits, Form, ReplyLimits, ReplyShape, Response,
    Source as From,
};
use rpcrdma_proto::proto::wire::chunk::{ChunkSlices, Chunks};
use rpcrdma_proto::proto::wire::header::{Body, Conveyed, FixedWords, Kind};
use rpcrdma_proto::proto::wire::types::{Handle, Position, ReadSegment, Segment, Version, Xid};
use rpcrdma_proto::proto::wire::v1;

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let version = if source.flag() {
        Version::V2
    } else {
        Version::V1
    };
    let kind = if source.flag() {
        Kind::Nomsg
    } else {
        Kind::Msg
    };
    let reads: Vec<_> = (0..source.u8() % 6).map(|_| read(&mut source)).collect();
    let writes: Vec<_> = (0..source.u8() % 4).map(|_| array(&mut source)).collect();
    let writes: Vec<_> = writes.iter().map(Vec::as_slice).collect();
    let reply = source.flag().then(|| array(&mut source));
    let chunks = ChunkSlices {
        reads: &reads,
        writes: &writes,
        reply: reply.as_deref(),
    };
    let limits = CallLimits {
        version,
        read_chunks: source.below(5),
        write_chunks: source.below(5),
        segments: source.below(20),
        segment_bytes: u32::MAX >> source.below(20),
        call_bytes: u32::MAX >> source.below(12),
    };
    let stream_len = source.length(1 << 14);
    let mut message = vec![0; 1024];
    let len = v1::encode(&mut message, Xid(1), 1, kind, &chunks).expect("room");
    let (fixed, rest) = FixedWords::split(&message[..len]).expect("our own");
    let Ok(Body::Conveyed(conveyed)) = v1::decode(&fixed, rest) else {
        return;
    };
    let handle = Handle(source.u8().into());
    let named = invalidate::permitted(true, handle, &conveyed.chunks);
    assert!(named.is_none() || named == Some(handle) && names(&chunks, handle));
    let named = invalidate::permitted_v1(true, &conveyed.chunks);
    assert_eq!(
        named.unwrap_or(Handle::NONE),
        invalidate::offer(true, &chunks)
    );
    if let Ok(call) = accept(&conveyed, stream_len, &limits) {
        check_call(&call, &conveyed, &limits, &reads, stream_len);
    }
    check_response(&mut source, version, &conveyed);
}

fn segment(source: &mut Source<'_>) -> Segment {
    Segment {
        handle: Handle(source.u8().into()),
        length: source.length(1 << 17),
        offset: u64::from(source.u32()) << (source.u8() % 33),
    }
}

fn read(source: &mut Source<'_>) -> ReadSegment {
    ReadSegment {
        position: Position(source.length(1 << 14) & !3),
        segment: segment(source),
    }
}

fn array(source: &mut Source<'_>) -> Vec<Segment> {
    (0..source.u8() % 5).map(|_| segment(source)).collect()
}

fn names<C: Chunks>(chunks: &C, handle: Handle) -> bool {
    let reads = chunks.reads().map(|read| read.segment);
    let writes = chunks.writes().flatten();
    let mut all = reads
        .chain(writes)
        .chain(chunks.reply().into_iter().flatten());
    all.any(|segment| segment.handle == handle)
}

fn check_call(
    call: &Call<'_>,
    conveyed: &Conveyed<'_>,
    limits: &CallLimits,
    reads: &[ReadSegment],
    inline_len: u32,
) {
    let zero: Vec<_> = call.position_zero().collect();
    match conveyed.kind {
        Kind::Msg => assert!(zero.is_empty() && call.stream_len == inline_len),
        Kind::Nomsg => assert_eq!(call.stream_len, zero.iter().map(|s| s.length).sum::<u32>()),
    }
    assert!(call.len <= limits.call_bytes && call.chunks.writes.count() <= 4);
    assert!(segments(conveyed) <= limits.segments as usize);

    // The Read chunks in the order of their Positions, each with its Segments in list order.
    let mut sorted: Vec<_> = reads
        .iter()
        .filter(|read| read.position != Position::ZERO)
        .collect();
    sorted.sort_by_key(|read| read.position);
    let mut expected = sorted.into_iter().filter(|read| read.segment.length != 0);
    let (mut at, mut used, mut pad_allowed) = (0, 0, false);
    for source in call.sources() {
        match source {
            From::Stream(range) => {
                assert_eq!(range.start, used);
                used = range.end;
                at += range.end - range.start;
                pad_allowed = false;
            }
            From::Read(segment) => {
                let read = expected.next().expect("no octets but those named");
                assert_eq!(read.segment, segment);
                assert!(pad_allowed || read.position.0 == at);
                at += segment.length;
                pad_allowed = true;
            }
            From::Pad(len) => {
                assert!(pad_allowed && len < 4);
                at += len;
                assert_eq!(at % 4, 0);
                pad_allowed = false;
            }
        }
    }
    assert!(expected.next().is_none());
    assert_eq!((used, at), (call.stream_len, call.len));
}

fn segments(conveyed: &Conveyed<'_>) -> usize {
    let chunks = conveyed.chunks;
    let arrays = chunks.writes.iter().chain(chunks.reply);
    chunks.reads.count() + arrays.map(|chunk| chunk.count()).sum::<usize>()
}

fn check_response(source: &mut Source<'_>, version: Version, conveyed: &Conveyed<'_>) {
    let mut results = Vec::new();
    let mut at = 24;
    for _ in 0..source.u8() % 4 {
        let len = source.length(1 << 16);
        results.push(source.flag().then_some(Item { offset: at, len }));
        at += len.next_multiple_of(4) + 4;
    }
    let shape = ReplyShape {
        len: at,
        results: &results,
        protected: source.u8() % 4 == 1,
    };
    let limits = ReplyLimits {
        version,
        inline_send: 1024 + source.below(8192),
        continued: if version == Version::V2 {
            source.length(1 << 18)
        } else {
            0
        },
        reply_chunk: source.u8() % 4 != 1,
    };
    let Ok(response) = respond(&conveyed.chunks, &shape, &limits) else {
        return;
    };
    assert_eq!(
        response.form == Form::ReplyChunk,
        response.kind() == Kind::Nomsg
    );
    assert!(response.form != Form::Continued || response.payload_len <= limits.continued);
    let reduced = results.iter().enumerate();
    let reduced = reduced.filter(|(index, _)| response.reduced.contains(*index));
    let octets = reduced
        .map(|(_, item)| u64::from(item.expect("reduced").len))
        .sum();
    check_memory(&response, conveyed, octets);
    let mut at = source.below(100);
    let reply: Vec<_> = conveyed
        .chunks
        .reply
        .iter()
        .flat_map(|chunk| chunk.segments())
        .collect();
    while !source.is_empty() {
        let end = at.saturating_add(source.length(1 << 16));
        let total: u64 = reply.iter().map(|s| u64::from(s.length)).sum();
        let sliced: u64 = slice(reply.iter().copied(), at..end)
            .map(|s| u64::from(s.length))
            .sum();
        assert_eq!(sliced, total.min(end.into()) - total.min(at.into()));
        at = end;
    }
}

/// The Reply returns the lists of the Call, and fills them from the front.
fn check_memory(response: &Response<'_>, conveyed: &Conveyed<'_>, reduced: u64) {
    let offered = conveyed.chunks;
    let check = |returned: Vec<Segment>, offered: Vec<Segment>| {
        assert_eq!(returned.len(), offered.len());
        let mut filled = true;
        for (returned, offered) in returned.iter().zip(&offered) {
            assert_eq!(
                (returned.handle, returned.offset),
                (offered.handle, offered.offset)
            );
            assert!(returned.length <= offered.length);
            assert!(filled || returned.length == 0);
            filled = returned.length == offered.length;
        }
        returned.iter().map(|s| u64::from(s.length)).sum::<u64>()
    };
    let mut written = 0;
    let mut chunks = offered.writes.iter();
    for returned in Chunks::writes(response) {
        let chunk = chunks.next().expect("no more chunks than offered");
        written += check(returned.collect(), chunk.segments().collect());
    }
    assert!(chunks.next().is_none());
    let octets: u64 = response
        .writes()
        .map(|(_, range)| u64::from(range.end - range.start))
        .sum();
    assert_eq!((written, octets), (reduced, reduced));
    if let Some(returned) = response.reply() {
        let offered = offered.reply.expect("offered").segments().collect();
        assert_eq!(
            check(returned.collect(), offered),
            u64::from(response.payload_len)
        );
    }
}
