// SPDX-License-Identifier: GPL-2.0

//! One RPC from the Requester's plan to the check of its Reply.
//!
//! For any message and any limits: each byte is conveyed once, no limit is exceeded, the Responder
//! reconstructs the message, and any Reply within the planned maximum can be sent and is accepted.

use std::ops::Range;

use common::{stream_range, Lists};
use rpcrdma_proto::proto::connection::continuation::PartSplitter;
use rpcrdma_proto::proto::requester::plan::{
    plan, Buf, CallShape, ChunkRole, Conveyance, Item, Limits, Part, PartName, Plan, Registration,
};
use rpcrdma_proto::proto::requester::reply::{check_conveyed, Payload};
use rpcrdma_proto::proto::responder::{
    accept, respond, CallLimits, Form, ReplyLimits, ReplyShape, Response, Source as From,
};
use rpcrdma_proto::proto::wire::chunk::ChunkLists;
use rpcrdma_proto::proto::wire::header::{Body, Conveyed, FixedWords, Kind, Outgoing, RpcStart};
use rpcrdma_proto::proto::wire::types::{Grant, Handle, MsgType, Segment, Version, Xid};
use rpcrdma_proto::proto::wire::xdr::padded_len;
use rpcrdma_proto::proto::wire::{v1, v2};

use crate::source::Source;

/// Memory of the message lies here, so that a Segment tells which octets it names.
const CALL_BASE: u64 = 0x1000_0000_0000;
const REPLY_BASE: u64 = 0x2000_0000_0000;
const XID: Xid = Xid(0x1234_5678);

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let limits = limits(&mut source);
    let (send, arguments) = message(&mut source, false);
    let (receive, results) = message(&mut source, limits.joins_reply);
    let call = CallShape {
        send,
        arguments: &arguments,
        receive,
        results: &results,
        protected: source.u8() % 8 == 1,
    };
    let Ok(plan) = plan(&call, &limits) else {
        return;
    };
    check_call(&call, &limits, &plan);
    let request = request(&call, &limits, &plan);
    let message = with_payload(encode(&request, &limits, &plan), plan.kind(), 0);
    let (_, conveyed) = decode(&limits, &message);
    let stream: Vec<_> = plan.payload(&call).collect();
    check_delivery(&call, &limits, &conveyed, &stream);
    check_reply(&mut source, &call, &limits, &request, conveyed.chunks);
}

fn limits(source: &mut Source<'_>) -> Limits {
    let inline_send = 1024 + source.below(8192);
    let inline_recv = 1024 + source.below(8192);
    let mut limits = Limits::v1(inline_send, inline_recv);
    if source.flag() {
        limits.version = Version::V2;
        limits.header_segments = 1 + source.below(80);
        limits.segment_bytes = source.length(1 << 24);
        limits.continued_send = source.length(1 << 20);
        limits.continued_recv = source.length(1 << 20);
        limits.longest_send = 2 * limits.continued_send;
        limits.longest_recv = 2 * limits.continued_recv;
    }
    limits.segment_pages = source.below(300);
    limits.chunk_segments = source.below(40);
    limits.read_chunks = source.below(4);
    limits.write_chunks = source.below(4);
    let flags = source.u8();
    limits.long_call = flags % 4 != 1;
    limits.whole_pages = flags >= 0x80;
    limits.joins_reply = flags & 0x40 != 0;
    limits.reduced_long_call = source.flag();
    limits.write_and_reply = source.flag();
    // Version 2 has no pads, so a Segment has room for a pad.
    limits.pads = source.flag() && limits.version == Version::V1;
    limits
}

/// Draws a message with its eligible items: in order, aligned, not overlapping. With `whole_pages`, its page list has
/// whole pages.
fn message(source: &mut Source<'_>, whole_pages: bool) -> (Buf, Vec<Item>) {
    let head = 24 + 4 * source.length(600);
    let mut pages = source.length(1 << 21);
    if whole_pages {
        pages &= !4095;
    }
    let tail = if source.flag() {
        padded_len(pages) - pages + 4 * source.length(100)
    } else {
        0
    };
    let mut part = |len| Part {
        len,
        page_offset: source.below(4096),
    };
    let mut buf = Buf {
        head: part(head),
        pages: part(pages),
        tail: part(tail),
    };
    if whole_pages {
        buf.pages.page_offset = 0;
    }
    let mut items = Vec::new();
    match source.u8() % 4 {
        0 => {}
        1 | 2 => items.push(buf.page_item()),
        _ => {
            // XID and type are in no chunk.
            let mut at = 8;
            while items.len() < 4 {
                let offset = at + 4 * source.length(2000);
                let len = source.length(1 << 16);
                if offset + len > buf.len() {
                    break;
                }
                items.push(Item { offset, len });
                at = offset + padded_len(len);
            }
        }
    }
    (buf, items)
}

/// The pad of an item, as far as the stream of `len` octets has it.
fn pad(item: &Item, len: u32) -> Range<u32> {
    let range = item.range();
    range.end.min(len)..item.extent().end.min(len)
}

fn check_once(len: u32, mut ranges: Vec<Range<u32>>) {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let end = ranges.iter().fold(0, |at, range| {
        assert_eq!(range.start, at, "octets are lost or conveyed twice");
        range.end
    });
    assert_eq!(end, len);
}

fn check_call(call: &CallShape<'_>, limits: &Limits, plan: &Plan) {
    let len = call.send.len();
    let mut ranges: Vec<_> = plan.payload(call).collect();
    let payload: u32 = ranges.iter().map(|range| range.end - range.start).sum();
    for item in plan.reads.of(call.arguments) {
        ranges.extend([item.range(), pad(&item, len)]);
    }
    check_once(len, ranges);
    match plan.conveyance {
        Conveyance::Inline => assert!(plan.header_len + payload <= limits.inline_send),
        Conveyance::Continued => {
            assert!(payload <= limits.longest_send && limits.version == Version::V2);
            check_cut(payload, limits.inline_send, plan.header_len);
        }
        Conveyance::Long => assert!(limits.long_call),
    }
    assert!(plan.header_len <= limits.inline_send);
    assert!(plan.segments() <= limits.header_segments);
    assert!(plan.reads.count() <= limits.read_chunks && plan.writes.count() <= limits.write_chunks);
    assert!(!call.protected || plan.reads.is_empty() && plan.writes.is_empty());
    let mixed = plan.conveyance == Conveyance::Long && !plan.reads.is_empty();
    assert!(!mixed || limits.reduced_long_call);
    assert!(!plan.reply_chunk || plan.writes.is_empty() || limits.write_and_reply);
}

fn check_cut(len: u32, threshold: u32, last_header: u32) {
    let mut cutter = PartSplitter::new(len, threshold, last_header);
    let mut at = 0;
    while let Some(cut) = cutter.next_part() {
        assert_eq!(cut.range.start, at);
        at = cut.range.end;
        let octets = cut.range.end - cut.range.start;
        let header = if cut.more { 36 } else { last_header };
        assert!(header + octets <= threshold && octets != 0);
        assert!(!cut.more || octets % 4 == 0);
        assert_eq!(cut.more, at != len);
    }
    assert_eq!(at, len);
}

/// The offset of a region, from the start of the first page of its part.
fn place_of(buf: &Buf, region: &Registration) -> (u32, u32) {
    let base = match region.part {
        PartName::Head => buf.head.page_offset,
        PartName::Pages => buf.pages.page_offset,
        PartName::Tail => buf.tail.page_offset,
        PartName::Pad => 0,
        // The head ends with its page.
        PartName::All => 4096 - buf.head.len,
    };
    (base + region.range.start, base + region.range.end)
}

fn pages_of(buf: &Buf, region: &Registration) -> u32 {
    let (start, end) = place_of(buf, region);
    end.div_ceil(4096) - start / 4096
}

/// The chunk lists that the Requester makes for the RPC.
fn request(call: &CallShape<'_>, limits: &Limits, plan: &Plan) -> Lists {
    let mut lists = Lists::default();
    for region in plan.registrations(call) {
        lists.add(region.chunk, register(call, &region, limits));
    }
    lists
}

fn encode(lists: &Lists, limits: &Limits, plan: &Plan) -> Vec<u8> {
    let mut header = vec![0xee; plan.header_len as usize];
    let len = match limits.version {
        Version::V1 => v1::encode(&mut header, XID, 1, plan.kind(), lists),
        Version::V2 => {
            let outgoing = Outgoing {
                xid: XID,
                direction: MsgType::Call,
                kind: plan.kind(),
                more: false,
                inv_handle: Handle::NONE,
            };
            v2::encode(&mut header, &outgoing, Grant::from_word(0x0001_0001), lists)
        }
    };
    assert_eq!(
        len,
        Ok(header.len()),
        "the plan knows the length of the header"
    );
    let arrays = lists.writes.iter().chain(&lists.reply);
    let counts: Vec<_> = arrays.map(Vec::len).collect();
    assert!(counts
        .iter()
        .all(|count| *count <= limits.chunk_segments as usize));
    assert_eq!(
        lists.reads.len() + counts.iter().sum::<usize>(),
        plan.segments() as usize
    );
    assert!(lists.reads.is_sorted_by_key(|read| read.position));
    header
}

fn register(call: &CallShape<'_>, region: &Registration, limits: &Limits) -> Segment {
    let (buf, base) = match region.chunk {
        ChunkRole::Read(_) => (&call.send, CALL_BASE),
        ChunkRole::Write(_) | ChunkRole::Reply => (&call.receive, REPLY_BASE),
    };
    assert!(pages_of(buf, region) <= limits.segment_pages);
    if limits.whole_pages && pages_of(buf, region) > 1 {
        let (start, end) = place_of(buf, region);
        assert!(start % 4096 == 0 && end % 4096 == 0);
    }
    let length = region.range.end - region.range.start;
    assert!(length != 0 && length <= limits.segment_bytes);
    Segment {
        handle: Handle(7),
        length,
        offset: base + u64::from(stream_range(buf, region).start),
    }
}

/// Puts the first words of an RPC message behind the header, if it takes any.
fn with_payload(mut message: Vec<u8>, kind: Kind, msg_type: u32) -> Vec<u8> {
    if kind == Kind::Msg {
        message.extend(XID.0.to_be_bytes());
        message.extend(msg_type.to_be_bytes());
    }
    message
}

fn decode<'a>(limits: &Limits, message: &'a [u8]) -> (FixedWords, Conveyed<'a>) {
    let (fixed, rest) = FixedWords::split(message).expect("our own");
    let body = match limits.version {
        Version::V1 => v1::decode(&fixed, rest),
        Version::V2 => v2::decode(&fixed, rest, false).expect("our own").body,
    };
    match body {
        Ok(Body::Conveyed(conveyed)) => (fixed, conveyed),
        other => panic!("an RPC message became {other:?}"),
    }
}

/// The Responder reconstructs the message from the chunk lists.
fn check_delivery(
    call: &CallShape<'_>,
    limits: &Limits,
    conveyed: &Conveyed<'_>,
    stream: &[Range<u32>],
) {
    let len = call.send.len();
    let stream_len = stream.iter().map(|range| range.end - range.start).sum();
    let call_limits = CallLimits {
        version: limits.version,
        read_chunks: 4,
        write_chunks: 4,
        segments: u32::MAX,
        segment_bytes: u32::MAX,
        call_bytes: u32::MAX,
    };
    let accepted = accept(conveyed, stream_len, &call_limits).expect("our own");
    assert_eq!(accepted.stream_len, stream_len);
    let mut at = 0;
    for source in accepted.sources() {
        match source {
            From::Stream(range) => {
                for piece in within(stream, &range) {
                    assert_eq!(piece.start, at);
                    at = piece.end;
                }
            }
            From::Read(segment) => {
                assert_eq!(segment.offset - CALL_BASE, u64::from(at));
                at += segment.length;
            }
            From::Pad(pad) => {
                at += pad;
                assert_eq!(at % 4, 0);
            }
        }
    }
    // Pad that the message itself lacks is supplied all the same.
    assert!(accepted.len == at && at >= len && at - len < 4);
}

/// The pieces of the message that the octets `range` of its Payload stream are.
fn within(stream: &[Range<u32>], range: &Range<u32>) -> Vec<Range<u32>> {
    let mut before = 0;
    let mut pieces = Vec::new();
    for piece in stream {
        let from = range.start.max(before);
        let to = range.end.min(before + piece.end - piece.start);
        if from < to {
            pieces.push(piece.start + from - before..piece.start + to - before);
        }
        before += piece.end - piece.start;
    }
    pieces
}

/// Draws a Reply no larger than planned for: results may be shorter, or missing.
fn draw_reply(source: &mut Source<'_>, call: &CallShape<'_>) -> (u32, Vec<Option<Item>>) {
    let (mut at, mut end, mut results) = (0, 0, Vec::new());
    for item in call.results {
        at += item.offset - end;
        end = (item.offset + padded_len(item.len)).min(call.receive.len());
        let len = match source.u8() % 4 {
            0 => item.len,
            1 => item.len - item.len.min(source.below(8)),
            2 => source.below(item.len + 1),
            _ => {
                results.push(None);
                continue;
            }
        };
        results.push(Some(Item { offset: at, len }));
        at += padded_len(len);
    }
    (
        (at + call.receive.len() - end).min(call.receive.len()),
        results,
    )
}

fn check_reply(
    source: &mut Source<'_>,
    call: &CallShape<'_>,
    limits: &Limits,
    request: &Lists,
    chunks: ChunkLists<'_>,
) {
    let (len, results) = draw_reply(source, call);
    let shape = ReplyShape {
        len,
        results: &results,
        protected: false,
    };
    let reply_limits = ReplyLimits {
        version: limits.version,
        inline_send: limits.inline_recv,
        continued: limits.longest_recv,
        reply_chunk: true,
    };
    let response = respond(&chunks, &shape, &reply_limits).expect("the Requester made room");
    let payload: u32 = response
        .payload()
        .map(|range| range.end - range.start)
        .sum();
    assert_eq!(payload, response.payload_len);
    assert!(response.header_len <= limits.inline_recv);
    match response.form {
        Form::Inline => assert!(response.header_len + payload <= limits.inline_recv),
        Form::Continued => check_cut(payload, limits.inline_recv, response.header_len),
        Form::ReplyChunk => {
            let written: u32 = response.reply_writes().map(|segment| segment.length).sum();
            assert_eq!(written, payload);
        }
    }
    check_written(&response, &results, len);

    let mut header = vec![0xee; response.header_len as usize];
    let encoded = match limits.version {
        Version::V1 => v1::encode(&mut header, XID, 1, response.kind(), &response),
        Version::V2 => {
            let outgoing = Outgoing {
                xid: XID,
                direction: MsgType::Reply,
                kind: response.kind(),
                more: false,
                inv_handle: Handle::NONE,
            };
            v2::encode(
                &mut header,
                &outgoing,
                Grant::from_word(0x0001_0001),
                &response,
            )
        }
    };
    assert_eq!(encoded, Ok(header.len()));
    let message = with_payload(header, response.kind(), 1);
    let (fixed, conveyed) = decode(limits, &message);
    let start = RpcStart::peek(conveyed.payload);
    let reply = check_conveyed(fixed.xid, &conveyed, start, request).expect("a good Reply");
    let reduced = results.iter().enumerate();
    let reduced = reduced.filter(|(index, _)| response.reduced.contains(*index));
    let written: u32 = reduced.map(|(_, item)| item.expect("reduced").len).sum();
    assert_eq!(reply.written, written);
    match reply.payload {
        Payload::Inline(_) => assert_ne!(response.form, Form::ReplyChunk),
        Payload::ReplyChunk { len } => assert_eq!(len, payload),
    }
}

/// Each octet of the Reply goes to one place, and results to the memory meant for them.
fn check_written(response: &Response<'_>, results: &[Option<Item>], len: u32) {
    let mut ranges: Vec<_> = response.payload().collect();
    for (index, item) in results.iter().enumerate() {
        if let (true, Some(item)) = (response.reduced.contains(index), item) {
            ranges.push(pad(item, len));
        }
    }
    let mut memory = Vec::new();
    for (segment, range) in response.writes() {
        assert_eq!(segment.length, range.end - range.start);
        memory.push(segment.offset..segment.offset + u64::from(segment.length));
        ranges.push(range);
    }
    for segment in response.reply_writes() {
        memory.push(segment.offset..segment.offset + u64::from(segment.length));
    }
    check_once(len, ranges);
    memory.sort_by_key(|range| range.start);
    assert!(
        memory.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "memory is written twice"
    );
}
