// SPDX-License-Identifier: GPL-2.0

//! Arbitrary bytes as a version 1 message. A decoded message encodes to the same bytes.

use rpcrdma_proto::proto::wire::chunk::ChunkLists;
use rpcrdma_proto::proto::wire::error::NoRoom;
use rpcrdma_proto::proto::wire::header::{Body, FixedWords, Kind};
use rpcrdma_proto::proto::wire::v1;

pub fn run(message: &[u8]) {
    let Some((fixed, rest)) = FixedWords::split(message) else {
        assert!(message.len() < FixedWords::ENCODED_LEN);
        return;
    };
    match v1::decode(&fixed, rest) {
        Ok(Body::Conveyed(conveyed)) => {
            let header = header_of(message, conveyed.payload);
            check_lists(&conveyed.chunks);
            assert!(conveyed.kind == Kind::Msg || !conveyed.chunks.is_empty());
            let mut out = vec![0xee; header.len()];
            let encode = |out: &mut [u8]| {
                v1::encode(
                    out,
                    fixed.xid,
                    fixed.credit,
                    conveyed.kind,
                    &conveyed.chunks,
                )
            };
            assert_eq!(encode(&mut out), Ok(header.len()));
            if fixed.version == 1 && fixed.credit != 0 {
                assert_eq!(out, header);
            }
            assert_eq!(encode(&mut out[1..]), Err(NoRoom));
        }
        Ok(Body::Error(_)) => assert!(v1::is_error(&fixed)),
        Ok(other) => panic!("version 1 has no {other:?}"),
        Err(_) => assert!(!v1::is_error(&fixed)),
    }
}

/// Returns the bytes before the payload, which has to be the end of the message.
pub fn header_of<'a>(message: &'a [u8], payload: &[u8]) -> &'a [u8] {
    let (header, rest) = message.split_at(message.len() - payload.len());
    assert!(std::ptr::eq(rest.as_ptr(), payload.as_ptr()));
    assert_eq!(header.len() % 4, 0);
    header
}

pub fn check_lists(chunks: &ChunkLists<'_>) {
    assert_eq!(chunks.reads.iter().count(), chunks.reads.count());
    assert_eq!(chunks.writes.iter().count(), chunks.writes.count());
    assert!(chunks.reads.iter().all(|read| read.position.0 % 4 == 0));
    let writes = chunks.writes.iter().chain(chunks.reply);
    for chunk in writes {
        assert_eq!(chunk.segments().count(), chunk.count());
        for segment in chunk.segments().filter(|s| s.length != 0) {
            assert!(segment
                .offset
                .checked_add(u64::from(segment.length) - 1)
                .is_some());
        }
    }
}
