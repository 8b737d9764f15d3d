// SPDX-License-Identifier: GPL-2.0

//! Replies to an RPC that offered some chunks. A good Reply is taken, and one that is taken says
//! nothing about memory that was not offered.

use rpcrdma_proto::proto::requester::reply::{check_conveyed, Payload, Reply};
use rpcrdma_proto::proto::wire::chunk::{ChunkLists, ChunkSlices, Chunks};
use rpcrdma_proto::proto::wire::header::{Body, FixedWords, Kind, RpcStart};
use rpcrdma_proto::proto::wire::types::{Handle, Segment, Xid};
use rpcrdma_proto::proto::wire::v1;

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let writes: Vec<_> = (0..source.u8() % 4).map(|_| array(&mut source)).collect();
    let reply = source.flag().then(|| array(&mut source));
    let write_slices: Vec<_> = writes.iter().map(Vec::as_slice).collect();
    let offered = ChunkSlices {
        reads: &[],
        writes: &write_slices,
        reply: reply.as_deref(),
    };
    if source.flag() {
        arbitrary(source.rest(), &offered);
    } else {
        returned(&mut source, &writes, reply.as_deref(), &offered);
    }
}

fn array(source: &mut Source<'_>) -> Vec<Segment> {
    let count = 1 + source.u8() % 4;
    let segment = |_| Segment {
        handle: Handle(source.u8().into()),
        length: source.length(1 << 20),
        offset: source.u32().into(),
    };
    (0..count).map(segment).collect()
}

fn arbitrary(message: &[u8], offered: &ChunkSlices<'_>) {
    if let Some((reply, chunks)) = checked(message, offered) {
        check_taken(message, &reply, &chunks, offered);
    }
}

fn checked<'a>(
    message: &'a [u8],
    offered: &ChunkSlices<'_>,
) -> Option<(Reply<'a>, ChunkLists<'a>)> {
    let (fixed, rest) = FixedWords::split(message)?;
    let Ok(Body::Conveyed(conveyed)) = v1::decode(&fixed, rest) else {
        return None;
    };
    let start = RpcStart::peek(conveyed.payload);
    let reply = check_conveyed(fixed.xid, &conveyed, start, offered).ok()?;
    Some((reply, conveyed.chunks))
}

fn check_taken(
    message: &[u8],
    reply: &Reply<'_>,
    chunks: &ChunkLists<'_>,
    offered: &ChunkSlices<'_>,
) {
    let most: u64 = offered
        .writes()
        .flatten()
        .map(|s| u64::from(s.length))
        .sum();
    assert!(u64::from(reply.written) <= most);
    match reply.payload {
        Payload::Inline(payload) => {
            assert!(message.ends_with(payload));
            assert_eq!(payload[..4], message[..4]);
            assert_eq!(payload[4..8], [0, 0, 0, 1]);
        }
        Payload::ReplyChunk { len } => {
            let chunk = offered.reply().expect("offered");
            let most: u64 = chunk.map(|s| u64::from(s.length)).sum();
            assert!(len != 0 && u64::from(len) <= most);
        }
    }
    let mut offers = offered.writes();
    for returned in chunks.writes.iter() {
        let Some(offer) = offers.next() else {
            assert!(returned.segments().all(|segment| segment.length == 0));
            continue;
        };
        for (segment, offer) in returned.segments().zip(offer) {
            let same = (segment.handle, segment.offset) == (offer.handle, offer.offset);
            assert!(segment.length == 0 || same && segment.length <= offer.length);
        }
    }
}

/// Fills the provided chunks from the front, and then perhaps corrupts one word of them.
fn returned(
    source: &mut Source<'_>,
    writes: &[Vec<Segment>],
    reply: Option<&[Segment]>,
    offered: &ChunkSlices<'_>,
) {
    let mut total = 0_u64;
    let draw = |source: &mut Source<'_>, chunk: &[Segment]| {
        let most: u64 = chunk.iter().map(|s| u64::from(s.length)).sum();
        let mut left = source.length(u32::try_from(most).unwrap_or(u32::MAX));
        let octets = left;
        let fill = |segment: &Segment| {
            let length = segment.length.min(left);
            left -= length;
            Segment { length, ..*segment }
        };
        (chunk.iter().map(fill).collect::<Vec<_>>(), octets)
    };
    let mut lists = Vec::new();
    for chunk in writes {
        let (list, octets) = draw(source, chunk);
        total += u64::from(octets);
        lists.push(list);
    }
    let mut in_reply = 0;
    let mut reply = reply.map(|chunk| {
        let (list, octets) = draw(source, chunk);
        in_reply = octets;
        list
    });
    let kind = if source.flag() {
        Kind::Nomsg
    } else {
        Kind::Msg
    };
    if kind == Kind::Msg {
        for segment in reply.iter_mut().flatten() {
            segment.length = 0;
        }
    }
    let spoil = source.u8();
    let spoilt = match lists.iter_mut().flatten().nth(usize::from(spoil >> 3)) {
        Some(segment) if spoil & 7 == 1 => {
            segment.handle.0 ^= 1;
            segment.length != 0
        }
        Some(segment) if spoil & 7 == 2 => {
            segment.offset ^= 4;
            segment.length != 0
        }
        Some(segment) if spoil & 7 == 4 => {
            // More than any Segment offers.
            segment.length |= 1 << 31;
            true
        }
        _ => false,
    };
    // A Segment that is not full with one behind it that is not empty leaves a gap.
    let gap = spoil & 7 == 3
        && lists.iter_mut().any(|list| match list.as_mut_slice() {
            [first, second, ..] if first.length != 0 && second.length != 0 => {
                first.length -= 1;
                total -= 1;
                true
            }
            _ => false,
        });
    if source.flag() {
        // Unused Segments may be left out.
        for list in lists.iter_mut().chain(&mut reply) {
            let used = list.iter().rposition(|segment| segment.length != 0);
            list.truncate(used.map_or(0, |last| last + 1));
        }
    }
    let slices: Vec<_> = lists.iter().map(Vec::as_slice).collect();
    let chunks = ChunkSlices {
        reads: &[],
        writes: &slices,
        reply: reply.as_deref(),
    };
    let mut message = vec![0; 1024];
    let len = v1::encode(&mut message, Xid(9), 1, kind, &chunks).expect("room");
    message.truncate(len);
    if kind == Kind::Msg {
        message.extend([0, 0, 0, 9, 0, 0, 0, 1]);
    }
    let good =
        !spoilt && !gap && (kind == Kind::Msg || in_reply != 0) && u32::try_from(total).is_ok();
    match checked(&message, offered) {
        Some((taken, lists)) => {
            assert!(good, "a bad Reply was taken");
            assert_eq!(u64::from(taken.written), total);
            check_taken(&message, &taken, &lists, offered);
        }
        None => assert!(!good, "a good Reply was refused"),
    }
}
