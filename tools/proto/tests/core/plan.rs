// SPDX-License-Identifier: GPL-2.0

//! The marshalling plan of the Requester.

use rpcrdma_proto::proto::chunk::{ChunkSlices, NoChunks};
use rpcrdma_proto::proto::header::{Body, FixedWords, Kind};
use rpcrdma_proto::proto::plan::{
    plan, Buf, CallShape, Conveyance, Item, Limits, Part, PartName, PlanError,
};
use rpcrdma_proto::proto::reply::{self, Arrival, Failure, Payload, Verdict};
use rpcrdma_proto::proto::types::{Handle, Position, ReadSegment, Segment, Xid};
use rpcrdma_proto::proto::v1;

fn buf(head: u32, pages: u32, tail: u32) -> Buf {
    let part = |len| Part {
        len,
        page_offset: 0,
    };
    Buf {
        head: part(head),
        pages: part(pages),
        tail: part(tail),
    }
}

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
    assert_eq!(plan.conveyance, Conveyance::Gathered);
    assert_eq!(plan.header_len, 28);
    assert_eq!(plan.kind(), Kind::Msg);
    assert!(plan.reads.is_empty() && plan.writes.is_empty() && !plan.reply_chunk);
}

#[test]
fn call_is_inline_up_to_the_threshold_and_no_further() {
    for (len, conveyance) in [(996, Conveyance::Gathered), (1000, Conveyance::Long)] {
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
    assert_eq!(plan.conveyance, Conveyance::Gathered);
    assert_eq!(plan.header_len, 28 + 24);
    let inline: Vec<_> = plan.payload(&call).collect();
    assert_eq!(inline, [0..104, 5108..5120]);
    let pieces: Vec<_> = inline.into_iter().flat_map(|r| send.pieces(r)).collect();
    assert_eq!(pieces[1].part, PartName::Tail);
    assert_eq!(pieces[1].range, 3..15);
    let reads: Vec<_> = plan.read_chunks(&call).collect();
    assert_eq!(reads, [(Position(104), 104..5105)]);
}

#[test]
fn large_read_gets_a_write_chunk_as_long_as_the_item() {
    let receive = buf(128, 8191, 1);
    let results = [receive.page_item()];
    let call = shape(buf(100, 0, 0), &[], receive, &results);
    let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
    assert!(plan.writes.contains(0) && !plan.reply_chunk);
    assert_eq!(plan.header_len, 28 + 8 + 16);
    assert_eq!(plan.write_chunks(&call).next(), Some(128..8319));
}

#[test]
fn large_reply_without_eligible_result_gets_a_reply_chunk() {
    let call = shape(buf(100, 0, 0), &[], buf(128, 65536, 0), &[]);
    let plan = plan(&call, &Limits::v1(4096, 4096)).unwrap();
    assert!(plan.writes.is_empty() && plan.reply_chunk);
    assert_eq!(plan.segments, 2);
    assert_eq!(plan.header_len, 28 + 4 + 32);
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

#[test]
fn cut_honours_pages_and_offset() {
    let mut limits = Limits::v1(4096, 4096);
    limits.segment_pages = 2;
    let mut send = buf(0, 10000, 0);
    send.pages.page_offset = 100;
    let cuts: Vec<_> = limits.cut(&send, 0..10000).map(|p| p.range).collect();
    assert_eq!(cuts, [0..8092, 8092..10000]);
}

#[test]
fn reply_is_checked_against_the_offer() {
    let offer = Segment {
        handle: Handle(0x2b01),
        length: 4096,
        offset: 0x1_0000_0000,
    };
    let offered_writes: [&[Segment]; 1] = [&[offer]];
    let offered = ChunkSlices {
        writes: &offered_writes,
        ..Default::default()
    };
    let respond = |length, handle| {
        let returned = Segment {
            length,
            handle: Handle(handle),
            ..offer
        };
        let mut message = [0; 256];
        let writes: [&[Segment]; 1] = [&[returned]];
        let chunks = ChunkSlices {
            writes: &writes,
            ..Default::default()
        };
        let len = v1::encode(&mut message, Xid(7), 32, Kind::Msg, &chunks).unwrap();
        message[len..len + 8].copy_from_slice(&[0, 0, 0, 7, 0, 0, 0, 1]);
        let Arrival::Reply { fixed, body } = reply::receive(&message[..len + 24]) else {
            panic!("not a reply");
        };
        match reply::check(&fixed, body, &offered) {
            Verdict::Complete(reply) => {
                assert!(matches!(reply.payload, Payload::Inline(p) if p.len() == 24));
                Ok(reply.written)
            }
            Verdict::Fail(failure) => Err(failure),
            Verdict::Drop => panic!("dropped"),
        }
    };
    assert_eq!(respond(4096, 0x2b01), Ok(4096));
    assert_eq!(respond(1, 0x2b01), Ok(1));
    assert_eq!(respond(0, 0x2b01), Ok(0));
    assert_eq!(respond(4097, 0x2b01), Err(Failure::SegmentLength));
    assert_eq!(respond(4096, 0x2b02), Err(Failure::SegmentMemory));
}

#[test]
fn encoded_call_decodes_to_itself() {
    let read = ReadSegment {
        position: Position(96),
        segment: Segment {
            handle: Handle(0x1a01),
            length: 8,
            offset: 0xffff_8880_1234_0000,
        },
    };
    let chunks = ChunkSlices {
        reads: &[read],
        ..Default::default()
    };
    let mut out = [0; 52];
    assert_eq!(v1::encode(&mut out, Xid(9), 32, Kind::Msg, &chunks), Ok(52));
    let (fixed, rest) = FixedWords::split(&out).unwrap();
    let Ok(Body::Conveyed(conveyed)) = v1::decode(&fixed, rest) else {
        panic!("not a message");
    };
    assert_eq!(conveyed.chunks.reads.iter().collect::<Vec<_>>(), [read]);
    assert!(v1::encode(&mut out[..51], Xid(9), 32, Kind::Msg, &chunks).is_err());
    assert_eq!(
        v1::encode(&mut out, Xid(9), 0, Kind::Msg, &NoChunks),
        Ok(28)
    );
    assert_eq!(out[11], 1);
}
