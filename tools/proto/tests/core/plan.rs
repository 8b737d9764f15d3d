// SPDX-License-Identifier: GPL-2.0

//! The marshalling plan of the Requester.

use std::ops::Range;

use common::{buf, segment, stream_range, Lists};
use proptest::prelude::*;
use rpcrdma_proto::proto::requester::plan::{
    plan, Buf, CallShape, ChunkRole, Conveyance, Item, Limits, Part, PartName, Plan, PlanError,
    Registration,
};
use rpcrdma_proto::proto::wire::chunk::{Chunks, ChunksOf, OneSegment};
use rpcrdma_proto::proto::wire::header::{Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{Grant, Handle, MsgType, Position, Segment, Version, Xid};
use rpcrdma_proto::proto::wire::xdr::pad_len;
use rpcrdma_proto::proto::wire::{v1, v2};

fn shape<'a>(send: Buf, arguments: &'a [Item], receive: Buf, results: &'a [Item]) -> CallShape<'a> {
    CallShape {
        send,
        arguments,
        receive,
        results,
        protected: false,
    }
}

#[test]
fn small_call_and_reply_go_inline() {
    let call = shape(buf(100, 0, 0), &[], buf(200, 0, 0), &[]);
    let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
    assert_eq!(plan.conveyance, Conveyance::Inline);
    assert_eq!(plan.header_len, 28);
    assert_eq!(plan.kind(), Kind::Msg);
    assert!(plan.reads.is_empty() && plan.writes.is_empty() && !plan.reply_chunk);
}

#[test]
fn call_is_inline_up_to_the_threshold_and_no_further() {
    for (len, conveyance) in [(996, Conveyance::Inline), (1000, Conveyance::Long)] {
        let call = shape(buf(len, 0, 0), &[], buf(200, 0, 0), &[]);
        assert_eq!(
            plan(&call, &Limits::v1(1024, 1024)).unwrap().conveyance,
            conveyance
        );
    }
}

#[test]
fn odd_write_loses_its_pad_and_keeps_its_tail() {
    // 104 octets, 5001 octets of data, 3 of pad and 12 of another operation.
    let send = buf(104, 5001, 15);
    let arguments = [send.page_item()];
    let call = shape(send, &arguments, buf(200, 0, 0), &[]);
    let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
    assert_eq!(plan.conveyance, Conveyance::Inline);
    assert_eq!(plan.header_len, 28 + 24);
    let inline: Vec<_> = plan.payload(&call).collect();
    assert_eq!(inline, [0..104, 5108..5120]);
    assert_eq!(
        (plan.payload_len, plan.pulled_up(&call), plan.read_bytes),
        (116, 12, 5001)
    );
    let chunks = regions(&call, &Limits::v1(4096, 4096));
    let read = ChunkRole::Read(Position(104));
    assert_eq!(chunks, [(read, vec![(PartName::Pages, 0..5001)])]);
}

#[test]
fn large_read_gets_a_write_chunk_as_long_as_the_item() {
    let receive = buf(128, 8191, 1);
    let results = [receive.page_item()];
    let call = shape(buf(100, 0, 0), &[], receive, &results);
    let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
    assert!(plan.writes.contains(0) && !plan.reply_chunk);
    assert_eq!(plan.header_len, 28 + 8 + 16);
    let chunks = regions(&call, &Limits::v1(4096, 4096));
    assert_eq!(
        chunks,
        [(ChunkRole::Write(0), vec![(PartName::Pages, 0..8191)])]
    );
}

/// For a server that may demand room for pad, the Write chunk of an item with pad ends with a Segment for it.
//= V1-070 (test)
#[test]
fn a_write_chunk_may_have_room_for_pad() {
    let limits = Limits {
        pads: true,
        ..Limits::v1(4096, 4096)
    };
    let planned = |len: u32, limits: &Limits| {
        let receive = buf(128, len, pad_len(len));
        let results = [receive.page_item()];
        let call = shape(buf(100, 0, 0), &[], receive, &results);
        let plan = plan(&call, limits).unwrap();
        (plan, regions(&call, limits))
    };
    let write = ChunkRole::Write(0);
    for len in [8189, 8190, 8191] {
        let (plan, chunks) = planned(len, &limits);
        assert_eq!(
            (plan.write_bytes, plan.write_segments, plan.segments()),
            (len, 2, 2)
        );
        assert_eq!(plan.header_len, 28 + 8 + 32);
        let expected = vec![(PartName::Pages, 0..len), (PartName::Pad, 0..4)];
        assert_eq!(chunks, [(write, expected)]);
    }
    let (whole, chunks) = planned(8192, &limits);
    assert_eq!(whole.write_segments, 1);
    assert_eq!(chunks, [(write, vec![(PartName::Pages, 0..8192)])]);
    // The Segment counts: 8191 bytes are two Segments here.
    let receive = buf(128, 8191, 1);
    let results = [receive.page_item()];
    let call = shape(buf(100, 0, 0), &[], receive, &results);
    let of = |chunk_segments| {
        let few = Limits {
            segment_pages: 1,
            chunk_segments,
            ..limits
        };
        plan(&call, &few).map(|plan| plan.write_segments)
    };
    assert_eq!(of(3), Ok(3));
    assert_eq!(of(2), Err(PlanError::TooManySegments));
}

#[test]
fn large_reply_without_eligible_result_gets_a_reply_chunk() {
    let call = shape(buf(100, 0, 0), &[], buf(128, 65536, 0), &[]);
    let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
    assert!(plan.writes.is_empty() && plan.reply_chunk);
    assert_eq!((plan.segments(), plan.reply_segments), (2, 2));
    assert_eq!(plan.header_len, 28 + 4 + 32);
}

/// A Reply with whole pages and the bytes around them is one region, if these bytes fit into a page.
#[test]
fn a_reply_with_whole_pages_is_one_region() {
    let limits = Limits {
        joins_reply: true,
        segment_pages: 18,
        ..Limits::v1(4096, 4096)
    };
    let planned = |receive: Buf, limits: &Limits| {
        let call = shape(buf(100, 0, 0), &[], receive, &[]);
        let plan = plan(&call, limits).unwrap();
        assert_eq!(plan.segments(), plan.reply_segments);
        (plan.is_joined(), regions(&call, limits)[0].1.clone())
    };
    let pages = 16 * 4096;
    for (head, tail) in [(128, 0), (128, 40), (4096, 0), (4000, 96)] {
        let receive = buf(head, pages, tail);
        let all = vec![(PartName::All, 0..receive.len())];
        assert_eq!(planned(receive, &limits), (true, all));
    }
    let apart = |receive: Buf, limits: &Limits| {
        let (joined, regions) = planned(receive, limits);
        assert!(!joined && regions.iter().all(|(part, _)| *part != PartName::All));
    };
    let whole = buf(128, pages, 40);
    apart(whole, &Limits::v1(4096, 4096));
    apart(whole, &limits.of_whole_pages());
    let mut few = limits;
    few.segment_pages = 17;
    apart(whole, &few);
    let mut short = limits;
    short.segment_bytes = whole.len() - 4;
    apart(whole, &short);
    apart(buf(4000, pages, 100), &limits);
    apart(buf(128, pages - 4, 40), &limits);
    apart(buf(0, pages, 40), &limits);
    apart(buf(128, 0, 8000), &limits);
    let mut moved = whole;
    moved.pages.page_offset = 4;
    apart(moved, &limits);
}

/// Beside a Position Zero Read chunk, and in version 2, a Reply is joined as well.
#[test]
fn a_long_call_may_have_a_joined_reply() {
    let limits = Limits {
        joins_reply: true,
        ..Limits::v1(1024, 1024)
    };
    let receive = buf(128, 65_536, 40);
    let call = shape(buf(2000, 0, 0), &[], receive, &[]);
    for version in [Version::V1, Version::V2] {
        let chunks = regions(&call, &Limits { version, ..limits });
        let expected = [
            (
                ChunkRole::Read(Position::ZERO),
                vec![(PartName::Head, 0..2000)],
            ),
            (ChunkRole::Reply, vec![(PartName::All, 0..receive.len())]),
        ];
        assert_eq!(chunks, expected);
    }
}

/// A buffer may have an empty head: its Reply chunk begins in the first part that is not empty.
#[test]
fn a_reply_chunk_has_no_empty_region() {
    for (receive, part) in [
        (buf(0, 65536, 0), PartName::Pages),
        (buf(0, 0, 65536), PartName::Tail),
    ] {
        let call = shape(buf(100, 0, 0), &[], receive, &[]);
        let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
        assert!(plan.reply_chunk);
        let regions: Vec<_> = plan.registrations(&call).collect();
        assert_eq!(regions.len(), 1);
        assert_eq!(
            (regions[0].part, regions[0].range.clone()),
            (part, 0..65536)
        );
    }
}

#[test]
fn protected_messages_are_never_reduced() {
    let send = buf(100, 9000, 0);
    let receive = buf(128, 9000, 0);
    let (arguments, results) = ([send.page_item()], [receive.page_item()]);
    let mut call = shape(send, &arguments, receive, &results);
    call.protected = true;
    let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
    assert_eq!(plan.conveyance, Conveyance::Long);
    assert!(plan.reads.is_empty() && plan.writes.is_empty() && plan.reply_chunk);
}

#[test]
fn too_many_segments_are_refused() {
    let mut limits = Limits::v1(4096, 4096);
    limits.segment_pages = 1;
    let send = buf(100, 17 * 4096, 0);
    let arguments = [send.page_item()];
    let call = shape(send, &arguments, buf(200, 0, 0), &[]);
    assert_eq!(plan(&call, &limits), Err(PlanError::TooManySegments));
}

/// A part of a page on a device that joins whole pages only is a Segment of its own.
#[test]
fn parts_of_pages_are_apart_from_whole_pages() {
    let limits = Limits::v1(4096, 4096).of_whole_pages();
    let ranges = |call: &CallShape<'_>| {
        let plan = plan(call, &limits).unwrap();
        let ranges: Vec<_> = plan
            .registrations(call)
            .map(|r| (r.range.start, r.range.end))
            .collect();
        assert_eq!(plan.segments() as usize, ranges.len());
        ranges
    };
    // The page list is cut alike as an argument and as a result.
    let read = |page_offset, len| {
        let mut long = buf(104, len, 0);
        long.pages.page_offset = page_offset;
        let (short, items) = (buf(200, 0, 0), [long.page_item()]);
        let argument = ranges(&shape(long, &items, short, &[]));
        assert_eq!(ranges(&shape(short, &[], long, &items)), argument);
        argument
    };
    assert_eq!(read(0, 40_960), [(0, 40_960)]);
    assert_eq!(read(0, 41_000), [(0, 40_960), (40_960, 41_000)]);
    assert_eq!(read(4000, 4192), [(0, 96), (96, 4192)]);
    assert_eq!(read(100, 9000), [(0, 3996), (3996, 8092), (8092, 9000)]);
    assert_eq!(read(4095, 4098), [(0, 1), (1, 4097), (4097, 4098)]);
    let whole = 256 * 4096;
    assert_eq!(read(0, whole + 4096), [(0, whole), (whole, whole + 4096)]);
    assert_eq!(
        read(1, whole),
        [(0, 4095), (4095, whole - 1), (whole - 1, whole)]
    );
    assert_eq!(limits.chunk_segments, 16);
    let few = Limits {
        chunk_segments: 3,
        ..Limits::v1(4096, 4096)
    };
    let few = few.of_whole_pages();
    assert_eq!((few.chunk_segments, few.header_segments), (5, 6));
}

type Regions = Vec<(PartName, Range<u32>)>;

/// The chunks of a Call, each with its regions.
fn regions(call: &CallShape<'_>, limits: &Limits) -> Vec<(ChunkRole, Regions)> {
    let plan = plan(call, limits).unwrap();
    let mut chunks: Vec<(ChunkRole, Vec<_>)> = Vec::new();
    for Registration { chunk, part, range } in plan.registrations(call) {
        match chunks.last_mut() {
            Some((last, regions)) if *last == chunk => regions.push((part, range)),
            _ => chunks.push((chunk, vec![(part, range)])),
        }
    }
    chunks
}

#[test]
fn regions_honour_pages_and_offset() {
    let mut limits = Limits::v1(1024, 4096);
    limits.segment_pages = 2;
    let mut send = buf(4, 10000, 8);
    send.pages.page_offset = 100;
    let call = shape(send, &[], buf(100, 0, 0), &[]);
    let expected = vec![
        (PartName::Head, 0..4),
        (PartName::Pages, 0..8092),
        (PartName::Pages, 8092..10000),
        (PartName::Tail, 0..8),
    ];
    let long = ChunkRole::Read(Position::ZERO);
    assert_eq!(regions(&call, &limits), [(long, expected)]);
}

//= V2-130, V2-131, D-25 (test)
#[test]
fn a_peer_may_take_less_than_a_page() {
    let mut limits = Limits::v1(4096, 4096);
    limits.segment_bytes = 3000;
    let mut receive = buf(100, 5000, 0);
    receive.pages.page_offset = 1000;
    let results = [receive.page_item()];
    let call = shape(buf(100, 0, 0), &[], receive, &results);
    let expected = [0..1048, 1048..3096, 3096..5000].map(|range| (PartName::Pages, range));
    let chunks = regions(&call, &limits);
    assert_eq!(chunks, [(ChunkRole::Write(0), expected.to_vec())]);
    limits.segment_bytes = 0;
    assert_eq!(plan(&call, &limits), Err(PlanError::NoSegments));
}

// Properties of every plan.

fn any_part() -> impl Strategy<Value = Part> {
    (
        prop_oneof![0_u32..200, 0_u32..6000, 0_u32..300_000],
        0_u32..4096,
    )
        .prop_map(|(len, page_offset)| Part {
            len: len & !3,
            page_offset,
        })
}

fn any_buf() -> impl Strategy<Value = Buf> {
    let sizes = (any_part(), any_part(), any_part(), 0_u32..4);
    (sizes, any::<bool>()).prop_map(|((head, pages, tail, odd), whole_pages)| {
        let odd = if whole_pages { 0 } else { odd };
        Buf {
            head: Part {
                len: head.len % 8000 + 40,
                ..head
            },
            // Pad replaces the missing bytes of the page list.
            pages: if whole_pages {
                Part {
                    len: pages.len & !4095,
                    page_offset: 0,
                }
            } else {
                Part {
                    len: pages.len + odd,
                    ..pages
                }
            },
            tail: Part {
                len: tail.len % 2000 + pad_len(odd),
                ..tail
            },
        }
    })
}

/// Items that do not overlap: the page list, and some in head and tail.
fn any_items(buf: Buf) -> impl Strategy<Value = Vec<Item>> {
    any::<[bool; 3]>().prop_map(move |[head, pages, tail]| {
        let tail_start = (buf.head.len + buf.pages.len).next_multiple_of(4);
        let candidates = [
            (head && buf.head.len >= 40, Item { offset: 8, len: 21 }),
            (pages, buf.page_item()),
            (
                tail && buf.len() >= tail_start + 12,
                Item {
                    offset: tail_start + 4,
                    len: 6,
                },
            ),
        ];
        let chosen = candidates.into_iter().filter(|(chosen, _)| *chosen);
        chosen.map(|(_, item)| item).collect()
    })
}

fn any_limits() -> impl Strategy<Value = Limits> {
    (
        (1024_u32..16_384, 1024_u32..16_384),
        (1_u32..300, prop_oneof![Just(u32::MAX), 0_u32..100_000]),
        (1_u32..20, prop_oneof![Just(u32::MAX), 0_u32..40]),
        (0_u32..3, 0_u32..3),
        any::<[bool; 6]>(),
    )
        .prop_map(
            |((send, recv), (pages, bytes), (chunk, header), (reads, writes), flags)| {
                let [v2, long, both, write_and_reply, continued, joins_reply] = flags;
                let octets = if v2 && continued { 50_000 } else { 0 };
                Limits {
                    version: if v2 { Version::V2 } else { Version::V1 },
                    segment_pages: pages,
                    segment_bytes: bytes,
                    chunk_segments: chunk,
                    header_segments: header,
                    read_chunks: reads,
                    write_chunks: writes,
                    long_call: long,
                    reduced_long_call: both,
                    write_and_reply,
                    joins_reply,
                    continued_send: octets,
                    continued_recv: octets,
                    longest_send: 2 * octets,
                    longest_recv: 2 * octets,
                    ..Limits::v1(send, recv)
                }
            },
        )
}

#[derive(Clone, Debug)]
struct Any {
    send: Buf,
    arguments: Vec<Item>,
    receive: Buf,
    results: Vec<Item>,
    protected: bool,
    limits: Limits,
}

fn any_call() -> impl Strategy<Value = Any> {
    (any_buf(), any_buf())
        .prop_flat_map(|(send, receive)| {
            (
                Just(send),
                any_items(send),
                Just(receive),
                any_items(receive),
                any::<bool>(),
                any_limits(),
            )
        })
        .prop_map(
            |(send, arguments, receive, results, protected, limits)| Any {
                send,
                arguments,
                receive,
                results,
                protected,
                limits,
            },
        )
}

/// Makes a Segment of a region and says which bytes of the stream it is.
fn register(limits: &Limits, buf: &Buf, region: &Registration) -> (Segment, Range<u32>) {
    let part = match region.part {
        PartName::Head => buf.head,
        PartName::Pages => buf.pages,
        PartName::Tail => buf.tail,
        PartName::Pad => Part {
            len: 4,
            page_offset: 0,
        },
        PartName::All => {
            assert_eq!(region.chunk, ChunkRole::Reply);
            assert_eq!(
                (buf.pages.page_offset, buf.pages.len % limits.page_size),
                (0, 0)
            );
            assert!(buf.head.len + buf.tail.len <= limits.page_size);
            Part {
                len: buf.len(),
                page_offset: limits.page_size - buf.head.len,
            }
        }
    };
    let Range { start, end } = region.range.clone();
    assert!(start < end && end <= part.len);
    let length = end - start;
    assert!(length <= limits.segment_bytes);
    let in_page = (part.page_offset + start) % limits.page_size;
    assert!((in_page + length).div_ceil(limits.page_size) <= limits.segment_pages);
    (segment(1, length), stream_range(buf, region))
}

/// Every byte of the Call is inline, in a chunk, or pad of the data in a chunk.
//= V1-048, V1-049, V1-059 (test)
//= V1-086, V2-068, V2-077 (test)
//= V2-091, V2-093, V2-099 (test)
//= V2-108 (test)
fn conveys_everything_once(call: &CallShape<'_>, plan: &Plan) {
    let len = call.send.len();
    let mut seen = vec![0_u8; len as usize];
    let mut mark = |range: Range<u32>| {
        for at in range {
            seen[at as usize] += 1;
        }
    };
    plan.payload(call).for_each(&mut mark);
    for item in plan.reads.of(call.arguments) {
        mark(item.range());
        mark(item.range().end..item.extent().end.min(len));
    }
    assert!(seen.iter().all(|times| *times == 1));
}

/// A normal chunk is one eligible item without pad, at its aligned Position, and the special chunks
/// are the rest.
//= V1-050, V1-051, V1-053 (test)
//= V1-054, V1-056, V1-058 (test)
//= V1-060, V1-063, V1-070 (test)
//= V1-082, V2-069, V2-070 (test)
//= V2-072, V2-073, V2-074 (test)
//= V2-076, V2-078, V2-080 (test)
//= V2-082, V2-083, V2-088 (test)
//= V2-095, V2-130, NFS-033 (test)
fn chunks_of_items(call: &CallShape<'_>, plan: &Plan, limits: &Limits) -> Lists {
    let mut lists = Lists::default();
    let mut chunks: Vec<(ChunkRole, Vec<Range<u32>>)> = Vec::new();
    for region in plan.registrations(call) {
        let read = matches!(region.chunk, ChunkRole::Read(_));
        let buf = if read { &call.send } else { &call.receive };
        let (segment, range) = register(limits, buf, &region);
        let first = chunks
            .last()
            .is_none_or(|(chunk, _)| *chunk != region.chunk);
        if first {
            chunks.push((region.chunk, Vec::new()));
        }
        lists.add(region.chunk, segment);
        let ranges = &mut chunks.last_mut().unwrap().1;
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    let long = plan.conveyance == Conveyance::Long;
    let zero = long.then(|| {
        (
            ChunkRole::Read(Position::ZERO),
            plan.payload(call).collect(),
        )
    });
    let reads = plan.reads.of(call.arguments).map(|item| {
        assert_eq!(item.offset % 4, 0);
        let chunk = ChunkRole::Read(Position(item.offset));
        (chunk, Vec::from([item.range()]))
    });
    let writes = (0..).zip(plan.writes.of(call.results));
    let writes = writes.map(|(index, item)| {
        let chunk = ChunkRole::Write(index);
        (chunk, Vec::from([item.range()]))
    });
    let reply = plan
        .reply_chunk
        .then(|| (ChunkRole::Reply, plan.reply_payload(call).collect()));
    let expected: Vec<_> = zero
        .into_iter()
        .chain(reads)
        .chain(writes)
        .chain(reply)
        .collect();
    assert_eq!(chunks, expected);
    assert!(lists.reads.is_sorted_by_key(|read| read.position));
    lists
}

/// The counts of the plan are the counts of the lists.
fn counts_are_right(call: &CallShape<'_>, plan: &Plan, limits: &Limits, lists: &Lists) {
    let bytes = |ranges: &mut dyn Iterator<Item = Range<u32>>| -> u32 {
        ranges.map(|range| range.end - range.start).sum()
    };
    assert_eq!(plan.payload_len, bytes(&mut plan.payload(call)));
    let head = plan
        .payload(call)
        .map(|range| range.start.min(call.send.head.len)..range.end.min(call.send.head.len));
    let others = plan.payload_len - bytes(&mut { head });
    // Items are reduced from the pages; data of the head in chunks is not pulled up.
    if plan.conveyance == Conveyance::Long {
        assert_eq!(plan.pulled_up(call), 0);
    } else {
        assert!(plan.pulled_up(call) <= others);
    }
    let read: u32 = lists.reads.iter().map(|read| read.segment.length).sum();
    assert_eq!(plan.read_bytes, read);
    let layout = plan.layout();
    assert_eq!(layout.reads, lists.reads.len() as u32);
    assert_eq!(layout.writes, lists.writes.iter().flatten().count() as u32);
    assert_eq!(layout.replies, lists.reply.iter().flatten().count() as u32);
    assert_eq!(
        plan.segments(),
        layout.reads + layout.writes + layout.replies
    );
    let one_each = lists.writes.len() <= 1
        && lists
            .reads
            .windows(2)
            .all(|pair| pair[0].position == pair[1].position);
    if one_each {
        let reads = lists.reads.iter().map(|read| read.segment);
        let writes = lists.writes.iter().flatten().copied();
        let segments: Vec<_> = reads
            .chain(writes)
            .chain(lists.reply.iter().flatten().copied())
            .collect();
        let laid = ChunksOf {
            layout,
            segments: segments.iter().copied(),
        };
        assert_eq!(Lists::of(&laid), *lists);
        if let [segment] = segments[..] {
            let one = OneSegment { layout, segment };
            assert_eq!(Lists::of(&one), *lists);
            assert_eq!(encoded(plan, limits, &one), encoded(plan, limits, lists));
        }
    }
}

/// Neither the peers nor the device have to take more than they said.
//= V1-081, V1-082, V1-085 (test)
//= V2-055, V2-094, V2-095 (test)
//= V2-129, V2-131, NFS-040 (test)
//= D-25 (test)
fn stays_within_all_limits(call: &CallShape<'_>, plan: &Plan, limits: &Limits, lists: &Lists) {
    for read in &lists.reads {
        let chunk = lists.reads.iter().filter(|r| r.position == read.position);
        assert!(chunk.count() as u32 <= limits.chunk_segments);
    }
    for chunk in lists.writes.iter().chain(&lists.reply) {
        assert!(chunk.len() as u32 <= limits.chunk_segments);
    }
    assert!(plan.reads.count() <= limits.read_chunks);
    assert!(plan.writes.count() <= limits.write_chunks);
    assert!(plan.segments() <= limits.header_segments);
    assert_eq!(encoded_len(plan, limits, lists), plan.header_len);
    let payload: u32 = plan.payload(call).map(|r| r.end - r.start).sum();
    let send = match plan.conveyance {
        Conveyance::Inline => plan.header_len + payload,
        Conveyance::Continued => plan.header_len + 4,
        Conveyance::Long => plan.header_len,
    };
    assert!(send <= limits.inline_send);
    match plan.conveyance {
        Conveyance::Continued => assert!(payload <= limits.longest_send),
        Conveyance::Long => {
            assert!(limits.long_call);
            assert!(limits.reduced_long_call || plan.reads.is_empty());
        }
        Conveyance::Inline => {}
    }
}

fn encoded_len(plan: &Plan, limits: &Limits, lists: &Lists) -> u32 {
    encoded(plan, limits, lists).len() as u32
}

fn encoded<C: Chunks>(plan: &Plan, limits: &Limits, lists: &C) -> Vec<u8> {
    let mut out = vec![0; 1 << 16];
    let outgoing = Outgoing {
        xid: Xid(1),
        direction: MsgType::Call,
        kind: plan.kind(),
        more: false,
        inv_handle: Handle::NONE,
    };
    let len = match limits.version {
        Version::V1 => v1::encode(&mut out, Xid(1), 1, plan.kind(), lists),
        Version::V2 => v2::encode(&mut out, &outgoing, Grant::from_word(1), lists),
    };
    out.truncate(len.unwrap());
    out
}

/// The largest Reply fits, inline beside the returned Write list, in the Reply chunk or in parts.
//= V1-076, V1-077, V1-083 (test)
//= V1-136, V2-096, V2-191 (test)
//= V2-199, NFS-001, NFS-002 (test)
//= NFS-027 (test)
fn offers_room_for_the_largest_reply(
    call: &CallShape<'_>,
    plan: &Plan,
    limits: &Limits,
    lists: &Lists,
) {
    let rest: u32 = plan.reply_payload(call).map(|r| r.end - r.start).sum();
    let writes = lists.writes.iter().map(|chunk| 8 + 16 * chunk.len() as u32);
    let header = limits.version.empty_header_len() + writes.sum::<u32>();
    if plan.reply_chunk {
        let segments = lists.reply.iter().flatten();
        let room: u32 = segments.clone().map(|segment| segment.length).sum();
        assert_eq!(room, rest);
        assert!(header + 4 + 16 * segments.count() as u32 <= limits.inline_recv);
        assert!(limits.write_and_reply || plan.writes.is_empty());
    } else {
        assert!(header + rest <= limits.inline_recv || rest <= limits.longest_recv);
    }
}

/// Data under RPCSEC_GSS protection stays in one piece.
//= V2-189, V2-193, V2-194 (test)
//= D-42 (test)
fn leaves_protected_calls_whole(call: &CallShape<'_>, plan: &Plan) {
    assert!(!call.protected || plan.reads.is_empty() && plan.writes.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_plan_holds_what_plans_promise(any in any_call()) {
        let Any { send, arguments, receive, results, protected, limits } = &any;
        let call = CallShape { protected: *protected, ..shape(*send, arguments, *receive, results) };
        if let Ok(plan) = plan(&call, limits) {
            conveys_everything_once(&call, &plan);
            let lists = chunks_of_items(&call, &plan, limits);
            counts_are_right(&call, &plan, limits, &lists);
            stays_within_all_limits(&call, &plan, limits, &lists);
            offers_room_for_the_largest_reply(&call, &plan, limits, &lists);
            leaves_protected_calls_whole(&call, &plan);
        }
    }

    /// An item that cannot be reduced changes no decision, but excludes the fast path.
    #[test]
    fn shortcuts_lead_where_the_long_way_does(any in any_call()) {
        let Any { send, arguments, receive, results, protected, limits } = &any;
        let call = CallShape { protected: *protected, ..shape(*send, arguments, *receive, results) };
        let (mut arguments, mut results) = (arguments.clone(), results.clone());
        arguments.push(Item::default());
        if limits.continued_recv == 0 || !results.is_empty() {
            results.push(Item::default());
        }
        let longer = CallShape { arguments: &arguments, results: &results, ..call };
        prop_assert_eq!(plan(&call, limits), plan(&longer, limits));
    }

    //= V1-079, V1-084, V2-092 (test)
    //= V2-097 (test)
    #[test]
    fn what_can_be_conveyed_as_a_whole_is(any in any_call()) {
        let Any { send, arguments, receive, results, .. } = &any;
        let call = shape(*send, arguments, *receive, results);
        let limits = Limits::v1(1024, 1024);
        // 16 Segments of a mebibyte each hold every Call that is made up here.
        prop_assert!(plan(&call, &limits).is_ok());
    }
}

//= NFS-041, NFS-042, NFS-043 (test)
#[test]
fn an_unknown_v1_server_is_not_asked_too_much() {
    let limits = Limits::v1(4096, 4096);
    assert_eq!((limits.read_chunks, limits.write_chunks), (1, 1));
    assert_eq!(limits.chunk_segments, 16);
    assert!(!limits.reduced_long_call && !limits.write_and_reply);
}

//= V2-199, NFS-034 (test)
#[test]
fn moderate_v2_replies_rely_on_continuation() {
    let limits = Limits {
        version: Version::V2,
        continued_recv: 10_000,
        ..Limits::v1(4096, 4096)
    };
    for (len, reply_chunk) in [(10_000, false), (10_004, true)] {
        let call = shape(buf(100, 0, 0), &[], buf(len, 0, 0), &[]);
        let plan = plan(&call, &limits).unwrap();
        assert_eq!(
            (plan.reply_chunk, plan.writes.is_empty()),
            (reply_chunk, true)
        );
    }
}

#[test]
fn a_read_fills_exactly_what_is_left_of_the_threshold() {
    // With its Write chunk returned, the Reply to a READ has 52 octets of header.
    for (tail, expected) in [(3900, true), (3916, true), (3920, false)] {
        let receive = buf(128, 100_000, tail);
        let results = [receive.page_item()];
        let call = shape(buf(100, 0, 0), &[], receive, &results);
        let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
        assert_eq!(plan.writes.contains(0), expected);
    }
}

//= V1-058, V2-080 (test)
#[test]
fn what_is_not_aligned_stays_whole() {
    for head in [101, 102, 103] {
        let unaligned = buf(head, 9000, 0);
        let items = [unaligned.page_item()];
        let call = shape(unaligned, &items, unaligned, &items);
        let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
        assert_eq!(plan.conveyance, Conveyance::Long);
        assert!(plan.reads.is_empty() && plan.writes.is_empty() && plan.reply_chunk);
    }
}

/// Four messages are moderate, and longer data is moved by RDMA.
//= V2-094, V2-199 (test)
#[test]
fn only_moderate_messages_go_in_parts() {
    let limits = Limits {
        version: Version::V2,
        continued_send: 1 << 20,
        continued_recv: 1 << 20,
        ..Limits::v1(4096, 4096)
    };
    for (len, conveyance) in [(16_384, Conveyance::Continued), (16_388, Conveyance::Long)] {
        let call = shape(buf(len, 0, 0), &[], buf(len, 0, 0), &[]);
        let plan = plan(&call, &limits).unwrap();
        assert_eq!(plan.conveyance, conveyance);
        assert_eq!(plan.reply_chunk, conveyance == Conveyance::Long);
    }
}

//= V2-156, V2-157, D-06 (test)
#[test]
fn a_long_reply_without_enough_segments_comes_in_parts() {
    let limits = Limits {
        version: Version::V2,
        longest_recv: 1 << 20,
        chunk_segments: 2,
        ..Limits::v1(4096, 4096)
    };
    let call = shape(buf(100, 0, 0), &[], buf(128, 100_000, 8), &[]);
    for limits in [
        limits,
        Limits {
            segment_bytes: 0,
            ..limits
        },
    ] {
        let plan = plan(&call, &limits).unwrap();
        assert!(!plan.reply_chunk && plan.segments() == 0);
    }
}
