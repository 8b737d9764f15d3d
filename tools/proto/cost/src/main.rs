// SPDX-License-Identifier: GPL-2.0

//! Encodes and decodes the common messages, each in a function of its own for callgrind to count.

use std::hint::black_box;

use common::{buf, config, conveyed, rpc, v1_client, v1_message};
use rpcrdma_proto::proto::connection::negotiate::{Opening, Time};
use rpcrdma_proto::proto::connection::{Connection, Event, MAX_CONTROL_LEN};
use rpcrdma_proto::proto::requester::plan::{plan, CallShape, Limits, Plan, PlanError};
use rpcrdma_proto::proto::requester::reply::{check_conveyed, Payload};
use rpcrdma_proto::proto::responder::{accept, CallLimits};
use rpcrdma_proto::proto::wire::chunk::{ChunkSlices, Chunks, ChunksOf, Layout, NoChunks};
use rpcrdma_proto::proto::wire::header::{Body, Conveyed, FixedWords, Kind, Outgoing, RpcStart};
use rpcrdma_proto::proto::wire::types::{
    Grant, Handle, MsgType, Position, ReadSegment, Segment, Version, Xid,
};
use rpcrdma_proto::proto::wire::{v1, v2};

type Copied<'a> = std::iter::Copied<std::slice::Iter<'a, Segment>>;

/// The number of calls of each function.
const CALLS: u32 = 100;

const XID: Xid = Xid(0x1234_5678);

const SEGMENT: Segment = Segment {
    handle: Handle(0x2b01),
    length: 65536,
    offset: 0x1_0000_0000,
};

const READ: ReadSegment = ReadSegment {
    position: Position(104),
    segment: SEGMENT,
};

const OUTGOING: Outgoing = Outgoing {
    xid: XID,
    direction: MsgType::Call,
    kind: Kind::Msg,
    more: false,
    inv_handle: Handle(0x2b01),
};

const NOW: Time = Time(1000);

const GRANT: Grant = Grant {
    granted: 1,
    ceiling: 128,
};

/// Returns the length of the bytes behind the header.
fn v1_decode(message: &[u8]) -> usize {
    let body = FixedWords::split(message).map(|(fixed, rest)| v1::decode(&fixed, rest));
    match body {
        Some(Ok(Body::Conveyed(conveyed))) => conveyed.payload.len(),
        _ => 0,
    }
}

fn v2_decode(message: &[u8]) -> usize {
    let message =
        FixedWords::split(message).and_then(|(fixed, rest)| v2::decode(&fixed, rest, false));
    match message.map(|message| message.body) {
        Some(Ok(Body::Conveyed(conveyed))) => conveyed.payload.len(),
        _ => 0,
    }
}

/// Returns the length of the Payload stream of a good Reply, 0 for a bad one.
#[inline(always)]
fn reply_len<C: Chunks>(xid: Xid, conveyed: &Conveyed<'_>, offered: &C) -> usize {
    let start = RpcStart::peek(conveyed.payload);
    match check_conveyed(xid, conveyed, start, offered) {
        Ok(reply) => match reply.payload {
            Payload::Inline(payload) => payload.len(),
            Payload::ReplyChunk { len } => len as usize,
        },
        Err(_) => 0,
    }
}

fn v1_reply<C: Chunks>(message: &[u8], offered: &C) -> usize {
    let Some((fixed, rest)) = FixedWords::split(message) else {
        return 0;
    };
    match v1::decode(&fixed, rest) {
        Ok(Body::Conveyed(conveyed)) => reply_len(fixed.xid, &conveyed, offered),
        _ => 0,
    }
}

fn v2_reply<C: Chunks>(message: &[u8], offered: &C) -> usize {
    let Some((fixed, rest)) = FixedWords::split(message) else {
        return 0;
    };
    match v2::decode(&fixed, rest, false) {
        Some(v2::Message {
            body: Ok(Body::Conveyed(conveyed)),
            ..
        }) => reply_len(fixed.xid, &conveyed, offered),
        _ => 0,
    }
}

/// Returns the length of the bytes behind the header of a Reply.
#[inline(always)]
fn v1_handle(connection: &mut Connection, message: &[u8]) -> usize {
    match connection.handle_fast(Version::V1, MsgType::Reply, NOW, message, None) {
        Some(arrived) => arrived.conveyed.payload.len(),
        None => usize::MAX,
    }
}

/// The work of a client for an RPC without access to memory: plans, names each region once, writes
/// the header, and counts. Returns the length of the message.
#[inline(never)]
fn send(call: &CallShape<'_>, limits: &Limits, out: &mut [u8], memory: &mut [Segment]) -> u32 {
    // By reference: a Plan is a dozen words.
    let Ok(plan) = &plan(call, limits) else {
        return 0;
    };
    let mut free = memory.iter_mut();
    let mut layout = Layout::default();
    if plan.segments() != 0 {
        layout = plan.layout();
        for region in plan.registrations(call) {
            if let Some(segment) = free.next() {
                segment.length = region.range.end.wrapping_sub(region.range.start);
                segment.offset = u64::from(region.range.start);
            }
        }
    }
    // As in the kernel: of a type that nothing else here uses, so it becomes part of this function.
    #[allow(clippy::map_clone)]
    let segments = memory.iter().map(|segment| *segment);
    let chunks = ChunksOf { layout, segments };
    let header = v1::encode(out, XID, 32, plan.kind(), &chunks).unwrap_or(0) as u32;
    black_box((plan.read_bytes, plan.pulled_up(call)));
    header + plan.payload_len
}

/// Functions for callgrind to count: never inlined, and known by their names.
macro_rules! measured {
    ($(fn [$($name:ident),+] $arguments:tt -> $result:ty $body:block)*) => {
        $($(
            #[no_mangle]
            #[inline(never)]
            fn $name $arguments -> $result {
                // Functions that are the same would become one.
                black_box(stringify!($name));
                $body
            }
        )+)*
    };
}

measured! {
    fn [cost_v1_encode_call](out: &mut [u8]) -> usize {
        v1::encode(out, XID, 32, Kind::Msg, &NoChunks).unwrap_or(0)
    }

    fn [cost_v1_encode_call_read, cost_v1_encode_call_write, cost_v1_encode_call_no_segment]
    (out: &mut [u8], chunks: &ChunkSlices<'_>) -> usize {
        v1::encode(out, XID, 32, Kind::Msg, chunks).unwrap_or(0)
    }

    fn [cost_v1_encode_call_laid, cost_v1_encode_call_laid_read, cost_v1_encode_call_laid_write]
    (out: &mut [u8], laid: &ChunksOf<Copied<'_>>) -> usize {
        v1::encode(out, XID, 32, Kind::Msg, laid).unwrap_or(0)
    }

    fn [cost_v1_check_laid, cost_v1_check_laid_write]
    (message: &[u8], offered: &ChunksOf<Copied<'_>>) -> usize {
        v1_reply(message, offered)
    }

    fn [cost_check_conveyed_write](conveyed: &Conveyed<'_>, offered: &ChunksOf<Copied<'_>>) -> u32 {
        let start = RpcStart::peek(conveyed.payload);
        check_conveyed(XID, conveyed, start, offered).map_or(0, |reply| reply.written)
    }

    fn [cost_v1_decode_reply, cost_v1_decode_reply_write, cost_v1_decode_reply_nomsg]
    (message: &[u8]) -> usize {
        v1_decode(message)
    }

    fn [cost_v1_check_reply, cost_v1_check_reply_write]
    (message: &[u8], offered: &ChunkSlices<'_>) -> usize {
        v1_reply(message, offered)
    }

    fn [cost_v1_send_call](connection: &mut Connection, out: &mut [u8]) -> usize {
        connection.send(NOW, out, &OUTGOING, &NoChunks).unwrap_or(0)
    }

    fn [cost_v1_send_call_write]
    (connection: &mut Connection, out: &mut [u8], chunks: &ChunkSlices<'_>) -> usize {
        connection.send(NOW, out, &OUTGOING, chunks).unwrap_or(0)
    }

    fn [cost_v1_handle_reply, cost_v1_handle_reply_write, cost_v1_handle_reply_nomsg]
    (connection: &mut Connection, message: &[u8]) -> usize {
        v1_handle(connection, message)
    }

    fn [cost_v2_send_call](connection: &mut Connection, out: &mut [u8]) -> usize {
        connection.send(NOW, out, &OUTGOING, &NoChunks).unwrap_or(0)
    }

    fn [cost_v2_handle_plain_reply](connection: &mut Connection, message: &[u8]) -> usize {
        match connection.handle_fast_v2(MsgType::Reply, NOW, message) {
            Some(arrived) => arrived.conveyed.payload.len(),
            None => usize::MAX,
        }
    }

    fn [cost_v2_encode_call](out: &mut [u8]) -> usize {
        v2::encode(out, &OUTGOING, GRANT, &NoChunks).unwrap_or(0)
    }

    fn [cost_v2_encode_call_read, cost_v2_encode_call_no_segment]
    (out: &mut [u8], chunks: &ChunkSlices<'_>) -> usize {
        v2::encode(out, &OUTGOING, GRANT, chunks).unwrap_or(0)
    }

    fn [cost_v2_decode_reply, cost_v2_decode_reply_write](message: &[u8]) -> usize {
        v2_decode(message)
    }

    fn [cost_v2_check_reply, cost_v2_check_reply_write]
    (message: &[u8], offered: &ChunkSlices<'_>) -> usize {
        v2_reply(message, offered)
    }

    fn [cost_v1_accept_call, cost_v1_accept_call_read](message: &[u8], limits: &CallLimits) -> u32 {
        v1_accept(message, limits)
    }

    fn [cost_plan_inline, cost_plan_read_chunk, cost_plan_write_chunk, cost_plan_reply_chunk]
    (call: &CallShape<'_>, limits: &Limits) -> Result<Plan, PlanError> {
        plan(call, limits)
    }

    fn [cost_send_inline, cost_send_read_4k, cost_send_write_4k, cost_send_read_1m,
        cost_send_reply_chunk]
    (call: &CallShape<'_>, limits: &Limits, out: &mut [u8], memory: &mut [Segment]) -> u32 {
        send(call, limits, out, memory)
    }
}

fn v1_accept(message: &[u8], limits: &CallLimits) -> u32 {
    let Some((fixed, rest)) = FixedWords::split(message) else {
        return 0;
    };
    let Ok(Body::Conveyed(conveyed)) = v1::decode(&fixed, rest) else {
        return 0;
    };
    let len = conveyed.payload.len() as u32;
    accept(&conveyed, len, limits).map_or(0, |call| call.len)
}

/// Calls a function many times with values that the optimiser does not know, and checks its
/// results.
macro_rules! count {
    ($expected:expr, $function:ident($($argument:expr),*) $(.$method:ident())?) => {
        for _ in 0..CALLS {
            assert_eq!(black_box($function($(black_box($argument)),*)$(.$method())?), $expected);
        }
    };
}

fn main() {
    let mut room = [0; 256];
    let out = &mut room[..];
    let (reads, write) = ([READ], [SEGMENT]);
    let writes: [&[Segment]; 1] = [&write];
    let none = ChunkSlices::default();
    let read = ChunkSlices {
        reads: &reads,
        ..none
    };
    let written = ChunkSlices {
        writes: &writes,
        ..none
    };
    count!(28, cost_v1_encode_call(out));
    count!(28, cost_v1_encode_call_no_segment(out, &none));
    count!(52, cost_v1_encode_call_read(out, &read));
    count!(52, cost_v1_encode_call_write(out, &written));
    count!(36, cost_v2_encode_call(out));
    count!(36, cost_v2_encode_call_no_segment(out, &none));
    count!(60, cost_v2_encode_call_read(out, &read));

    let laid = |reads, writes| ChunksOf {
        layout: Layout {
            position: READ.position,
            reads,
            writes,
            replies: 0,
        },
        segments: write.iter().copied(),
    };
    let (laid_none, laid_read, laid_write) = (laid(0, 0), laid(1, 0), laid(0, 1));
    count!(28, cost_v1_encode_call_laid(out, &laid_none));
    count!(52, cost_v1_encode_call_laid_read(out, &laid_read));
    count!(52, cost_v1_encode_call_laid_write(out, &laid_write));

    let v1 = |chunks: &ChunkSlices<'_>, msg_type| {
        v1_message(XID.0, Kind::Msg, chunks, &rpc(XID.0, msg_type, 24))
    };
    let (short, filled) = (v1(&none, 1), v1(&written, 1));
    count!(24, cost_v1_decode_reply(&short));
    count!(24, cost_v1_decode_reply_write(&filled));
    count!(24, cost_v1_check_reply(&short, &none));
    count!(24, cost_v1_check_reply_write(&filled, &written));
    count!(24, cost_v1_check_laid(&short, &laid_none));
    count!(24, cost_v1_check_laid_write(&filled, &laid_write));
    let (_, conveyed) = conveyed(&filled);
    count!(
        SEGMENT.length,
        cost_check_conveyed_write(&conveyed, &laid_write)
    );
    let (short, filled) = (v2_reply_message(&none), v2_reply_message(&written));
    count!(24, cost_v2_decode_reply(&short));
    count!(24, cost_v2_decode_reply_write(&filled));
    count!(24, cost_v2_check_reply(&short, &none));
    count!(24, cost_v2_check_reply_write(&filled, &written));

    let limits = CallLimits {
        version: Version::V1,
        read_chunks: 4,
        write_chunks: 4,
        segments: 64,
        segment_bytes: u32::MAX,
        call_bytes: 1 << 21,
    };
    let (short, long) = (
        v1(&none, 0),
        v1(
            &ChunkSlices {
                reads: &[ReadSegment {
                    position: Position(24),
                    ..READ
                }],
                ..none
            },
            0,
        ),
    );
    count!(24, cost_v1_accept_call(&short, &limits));
    count!(24 + 65536, cost_v1_accept_call_read(&long, &limits));
    connections();
    plans();
}

fn connections() {
    let mut room = [0; 256];
    let write = [SEGMENT];
    let writes: [&[Segment]; 1] = [&write];
    let none = ChunkSlices::default();
    let written = ChunkSlices {
        writes: &writes,
        ..none
    };
    let chunk = ChunkSlices {
        reply: Some(&write),
        ..none
    };
    let mut client = v1_client(2 * CALLS);
    count!(28, cost_v1_send_call(&mut client, &mut room));
    let mut client = v1_client(2 * CALLS);
    count!(
        52,
        cost_v1_send_call_write(&mut client, &mut room, &written)
    );
    let v1 = |kind, chunks: &ChunkSlices<'_>| v1_message(XID.0, kind, chunks, &rpc(XID.0, 1, 24));
    let short = v1(Kind::Msg, &none);
    let filled = v1(Kind::Msg, &written);
    let long = v1(Kind::Nomsg, &chunk);
    count!(24, cost_v1_handle_reply(&mut client, &short));
    count!(24, cost_v1_handle_reply_write(&mut client, &filled));
    count!(24, cost_v1_handle_reply_nomsg(&mut client, &long));
    count!(24, cost_v1_decode_reply_nomsg(&long));

    let mut client = v2_client();
    count!(36, cost_v2_send_call(&mut client, &mut room));
    let mut client = v2_client();
    let plain = v2_reply_message(&none);
    count!(24, cost_v2_handle_plain_reply(&mut client, &plain));
}

/// Returns a client that may send and receive all counted messages.
fn v2_client() -> Connection {
    let mut client = Connection::client(config::both(1000), Opening::InBand(Version::V2), &[], NOW);
    let mut out = [0; MAX_CONTROL_LEN];
    assert!(client.poll_transmit(NOW, false, false, &mut out).is_some());
    let first = v2_reply_message(&ChunkSlices::default());
    let event = client.handle_message(NOW, &first, None);
    assert!(matches!(event, Event::Reply(_)));
    client
}

fn v2_reply_message(chunks: &ChunkSlices<'_>) -> Vec<u8> {
    let reply = Outgoing {
        direction: MsgType::Reply,
        ..OUTGOING
    };
    let grant = Grant {
        granted: 1000,
        ceiling: 1000,
    };
    let mut message = vec![0; 256];
    let len = v2::encode(&mut message, &reply, grant, chunks).expect("room");
    message.truncate(len);
    message.extend(rpc(XID.0, 1, 24));
    message
}

fn plans() {
    let limits = Limits::v1(4096, 4096);
    let items = [buf(128, 65536, 0).page_item()];
    let (short, large) = (buf(128, 0, 0), buf(128, 65536, 0));
    let inline = CallShape {
        send: short,
        arguments: &[],
        receive: short,
        results: &[],
        protected: false,
    };
    let write = CallShape {
        send: large,
        arguments: &items,
        ..inline
    };
    let read = CallShape {
        receive: large,
        results: &items,
        ..inline
    };
    count!(true, cost_plan_inline(&inline, &limits).is_ok());
    count!(true, cost_plan_read_chunk(&write, &limits).is_ok());
    count!(true, cost_plan_write_chunk(&read, &limits).is_ok());
    let listing = CallShape {
        receive: buf(128, 32768, 0),
        ..inline
    };
    count!(true, cost_plan_reply_chunk(&listing, &limits).is_ok());

    let (mut room, mut memory) = ([0; 512], [SEGMENT; 16]);
    let (out, memory) = (&mut room[..], &mut memory[..]);
    let results = [buf(128, 4096, 0).page_item()];
    let read_4k = CallShape {
        receive: buf(128, 4096, 0),
        results: &results,
        ..inline
    };
    let arguments = [buf(128, 4096, 0).page_item()];
    let write_4k = CallShape {
        send: buf(128, 4096, 0),
        arguments: &arguments,
        ..inline
    };
    let results = [buf(128, 1 << 20, 0).page_item()];
    let mut receive = buf(128, 1 << 20, 0);
    receive.pages.page_offset = 512;
    let read_1m = CallShape {
        receive,
        results: &results,
        ..inline
    };
    let large = Limits {
        segment_pages: 257,
        ..limits
    };
    count!(28 + 128, cost_send_inline(&inline, &large, out, memory));
    count!(
        28 + 24 + 128,
        cost_send_read_4k(&read_4k, &large, out, memory)
    );
    count!(
        28 + 24 + 128,
        cost_send_write_4k(&write_4k, &large, out, memory)
    );
    count!(
        28 + 24 + 128,
        cost_send_read_1m(&read_1m, &large, out, memory)
    );
    count!(
        28 + 36 + 128,
        cost_send_reply_chunk(&listing, &large, out, memory)
    );
}
