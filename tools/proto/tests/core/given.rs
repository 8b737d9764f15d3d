// SPDX-License-Identifier: GPL-2.0

//! Values that proptest draws.

use common::Lists;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rpcrdma_proto::proto::wire::chunk::{ChunkLists, NoChunks};
use rpcrdma_proto::proto::wire::types::{Handle, Position, ReadSegment, Segment};

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

#[test]
fn no_chunks_are_empty_lists() {
    assert_eq!(Lists::of(&NoChunks), Lists::default());
    assert_eq!(Lists::of(&ChunkLists::EMPTY), Lists::default());
}
