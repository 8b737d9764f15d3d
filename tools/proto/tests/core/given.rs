// SPDX-License-Identifier: GPL-2.0

//! Values to test with.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rpcrdma_proto::proto::chunk::{ChunkLists, Chunks, NoChunks};
use rpcrdma_proto::proto::cm_private::CmPrivate;
use rpcrdma_proto::proto::connection::{Config, Connection, Event};
use rpcrdma_proto::proto::header::{Body, Conveyed, FixedWords, Kind};
use rpcrdma_proto::proto::hostauth::Policy;
use rpcrdma_proto::proto::negotiate::{Time, Versions};
use rpcrdma_proto::proto::property::Properties;
use rpcrdma_proto::proto::types::{Handle, Position, ReadSegment, Segment, Version, Xid};
use rpcrdma_proto::proto::v1;

/// A configuration for version 1 only.
pub fn v1_config() -> Config {
    Config {
        versions: Versions::V1,
        cm_private: CmPrivate::DEFAULT,
        properties: Properties::DEFAULT,
        xid: Xid(0xc1),
        calls: 32,
        grants: 8,
        ceiling: 0,
        continued: 0,
        keep_alive: Time(60_000),
        answer: Time(5_000),
        auth: Policy::Ignore,
        mechanism: false,
    }
}

/// A client that speaks version 1 for good.
pub fn v1_client() -> Connection {
    let mut client = Connection::client(v1_config(), Version::V1, &[], Time(0));
    let reply = v1_message(1, Kind::Msg, &Lists::default(), &rpc(1, 1, 24));
    let event = client.handle_message(Time(0), &reply, None);
    assert!(matches!(event, Event::Reply(_)));
    client
}

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

/// Any Segment that is within the address space.
pub fn any_segment() -> impl Strategy<Value = Segment> {
    (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(handle, length, offset)| Segment {
        handle: Handle(handle),
        length,
        offset: offset.min(u64::MAX - u64::from(length)),
    })
}

/// Any chunk lists that can be encoded.
pub fn any_lists() -> impl Strategy<Value = Lists> {
    let reads = (0_u32..1000, any_segment()).prop_map(|(position, segment)| ReadSegment {
        position: Position(position * 4),
        segment,
    });
    (
        vec(reads, 0..5),
        vec(vec(any_segment(), 0..4), 0..4),
        option::of(vec(any_segment(), 0..4)),
    )
        .prop_map(|(reads, writes, reply)| Lists {
            reads,
            writes,
            reply,
        })
}

/// Words that mean something, more often than not.
pub fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => 0_u32..8,
        1 => any::<u32>(),
        1 => Just(u32::MAX),
    ];
    (vec(word, 0..40), 0_usize..4).prop_map(|(words, cut)| {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.truncate(bytes.len().saturating_sub(cut));
        bytes
    })
}

/// A message of these words.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Encodes a version 1 message, for a test to decode it.
pub fn v1_message(xid: u32, kind: Kind, lists: &Lists, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 8192];
    let len = v1::encode(&mut message, Xid(xid), 32, kind, lists).unwrap();
    message.truncate(len);
    message.extend_from_slice(payload);
    message
}

/// Decodes what [`v1_message`] made.
pub fn conveyed(message: &[u8]) -> (FixedWords, Conveyed<'_>) {
    let (fixed, rest) = FixedWords::split(message).unwrap();
    match v1::decode(&fixed, rest) {
        Ok(Body::Conveyed(conveyed)) => (fixed, conveyed),
        other => panic!("{other:?} conveys nothing"),
    }
}

/// The chunk lists of a message that [`v1_message`] made.
pub fn lists_of(message: &[u8]) -> ChunkLists<'_> {
    conveyed(message).1.chunks
}

/// A plain RPC message of eight octets and more.
pub fn rpc(xid: u32, msg_type: u32, len: usize) -> Vec<u8> {
    let mut message = words(&[xid, msg_type]);
    message.resize(len.max(8), 0xab);
    message
}

#[test]
fn no_chunks_are_empty_lists() {
    assert_eq!(Lists::of(&NoChunks), Lists::default());
    assert_eq!(Lists::of(&ChunkLists::EMPTY), Lists::default());
}
