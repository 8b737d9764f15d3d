// SPDX-License-Identifier: GPL-2.0

//! Shared by the tests of the protocol core: values to test with, kinds of peers, and two peers
//! with a network between them.

use std::ops::Range;

use rpcrdma_proto::proto::connection::negotiate::{Opening, Time};
use rpcrdma_proto::proto::connection::{Connection, Event};
use rpcrdma_proto::proto::requester::plan::{Buf, ChunkRole, Part, PartName, Registration};
use rpcrdma_proto::proto::wire::chunk::{ChunkLists, Chunks, Layout, OneSegment};
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::header::{Body, Conveyed, FixedWords, Flags, Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Position, ReadSegment, Segment, Xid};
use rpcrdma_proto::proto::wire::v1;

pub mod config;
pub mod network;
pub mod world;

/// Chunk lists with memory of their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lists {
    pub reads: Vec<ReadSegment>,
    pub writes: Vec<Vec<Segment>>,
    pub reply: Option<Vec<Segment>>,
}

impl Lists {
    pub fn of<C: Chunks>(chunks: &C) -> Self {
        Self {
            reads: chunks.reads().collect(),
            writes: chunks.writes().map(Iterator::collect).collect(),
            reply: chunks.reply().map(Iterator::collect),
        }
    }

    /// Returns lists with a single Segment, and no empty chunk, in the form that the client uses for them.
    pub fn one(&self) -> Option<OneSegment> {
        let reads = self.reads.iter().map(|read| (read.position, read.segment));
        let others = self.writes.iter().chain(&self.reply).flatten();
        let mut segments = reads.chain(others.map(|segment| (Position::ZERO, *segment)));
        let (position, segment) = segments.next()?;
        let layout = Layout {
            position,
            reads: self.reads.len() as u32,
            writes: self.writes.len() as u32,
            replies: self.reply.iter().count() as u32,
        };
        let is_one = layout.reads + layout.writes + layout.replies == 1;
        (is_one && segments.next().is_none()).then_some(OneSegment { layout, segment })
    }

    /// Adds a Segment where a plan wants it.
    pub fn add(&mut self, chunk: ChunkRole, segment: Segment) {
        match chunk {
            ChunkRole::Read(position) => self.reads.push(ReadSegment { position, segment }),
            ChunkRole::Write(index) => {
                let index = index as usize;
                if index == self.writes.len() {
                    self.writes.push(Vec::new());
                }
                self.writes[index].push(segment);
            }
            ChunkRole::Reply => self.reply.get_or_insert_default().push(segment),
        }
    }
}

impl Chunks for Lists {
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        self.reads.iter().copied()
    }
    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        self.writes.iter().map(|chunk| chunk.iter().copied())
    }
    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        self.reply.as_ref().map(|chunk| chunk.iter().copied())
    }
}

pub fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle: Handle(handle),
        length,
        offset: u64::from(handle) << 32,
    }
}

pub fn read(position: u32, handle: u32, length: u32) -> ReadSegment {
    ReadSegment {
        position: Position(position),
        segment: segment(handle, length),
    }
}

/// A message that lies in pages of its own.
pub fn buf(head: u32, pages: u32, tail: u32) -> Buf {
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

/// The offset of the memory for pad, from the start of a message.
pub const PAD: u32 = 1 << 31;

/// Returns the bytes of the message in `buf` that a plan wants registered.
pub fn stream_range(buf: &Buf, region: &Registration) -> Range<u32> {
    let before = match region.part {
        PartName::Head | PartName::All => 0,
        PartName::Pages => buf.head.len,
        PartName::Tail => buf.head.len + buf.pages.len,
        // Behind all messages.
        PartName::Pad => PAD,
    };
    before + region.range.start..before + region.range.end
}

/// A message of these words.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A plain RPC message of eight octets and more.
pub fn rpc(xid: u32, msg_type: u32, len: usize) -> Vec<u8> {
    let mut message = words(&[xid, msg_type]);
    message.resize(len.max(8), 0xab);
    message
}

/// A version 1 message that grants `credit`.
pub fn v1_granting<C: Chunks>(
    credit: u32,
    xid: u32,
    kind: Kind,
    chunks: &C,
    payload: &[u8],
) -> Vec<u8> {
    let mut message = vec![0; 8192];
    let len = v1::encode(&mut message, Xid(xid), credit, kind, chunks).expect("room");
    message.truncate(len);
    message.extend_from_slice(payload);
    message
}

/// A version 1 message.
pub fn v1_message<C: Chunks>(xid: u32, kind: Kind, chunks: &C, payload: &[u8]) -> Vec<u8> {
    v1_granting(32, xid, kind, chunks, payload)
}

/// Decodes a message of [`v1_message`].
pub fn conveyed(message: &[u8]) -> (FixedWords, Conveyed<'_>) {
    let (fixed, rest) = FixedWords::split(message).expect("our own");
    match v1::decode(&fixed, rest) {
        Ok(Body::Conveyed(conveyed)) => (fixed, conveyed),
        other => panic!("{other:?} conveys nothing"),
    }
}

/// The chunk lists of a message that [`v1_message`] made.
pub fn lists_of(message: &[u8]) -> ChunkLists<'_> {
    conveyed(message).1.chunks
}

/// Returns the input that encodes an inline Call.
pub fn call(xid: u32) -> Outgoing {
    Outgoing {
        xid: Xid(xid),
        direction: MsgType::Call,
        kind: Kind::Msg,
        more: false,
        inv_handle: Handle::NONE,
    }
}

/// Returns the input that encodes a decoded version 2 message.
pub fn outgoing(fixed: &FixedWords, flags: Flags, conveyed: &Conveyed<'_>) -> Outgoing {
    Outgoing {
        xid: fixed.xid,
        direction: if flags.response {
            MsgType::Reply
        } else {
            MsgType::Call
        },
        kind: conveyed.kind,
        more: flags.more,
        inv_handle: conveyed.inv_handle,
    }
}

/// Returns the error report number `which`, with arguments drawn from `word`.
pub fn report(which: u32, mut word: impl FnMut() -> u32) -> ErrorReport {
    match which {
        0 => ErrorReport::Version {
            low: word(),
            high: word(),
        },
        1 => ErrorReport::BadXdr,
        2 => ErrorReport::InvalHtype,
        3 => ErrorReport::InvalFlag,
        4 => ErrorReport::ReadChunks { max_chunks: word() },
        5 => ErrorReport::WriteChunks { max_chunks: word() },
        6 => ErrorReport::Segments {
            max_segments: word(),
        },
        7 => ErrorReport::WriteResource {
            chunk_index: word(),
            length_needed: word(),
        },
        8 => ErrorReport::ReplyResource {
            length_needed: word(),
        },
        9 => ErrorReport::System,
        _ => ErrorReport::Unknown(word().max(11)),
    }
}

/// A client that speaks version 1 for good and may have `calls` Calls on their way.
pub fn v1_client(calls: u32) -> Connection {
    let now = Time(0);
    let mut client = Connection::client(config::kernel(calls), Opening::Announced, &[], now);
    let reply = v1_granting(calls, 1, Kind::Msg, &Lists::default(), &rpc(1, 1, 24));
    let event = client.handle_message(now, &reply, None);
    assert!(matches!(event, Event::Reply(_)));
    client
}

/// A small generator of numbers; the same seed gives the same sequence.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// Starts a sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `end`, which is at most 2^53.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }

    /// Returns true once in `of` times.
    pub fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}
