// SPDX-License-Identifier: GPL-2.0

//! Errors that a Call gets, one after the other: it is sent again a few times at most, and only
//! in a form that can help.

use rpcrdma_proto::proto::requester::plan::Limits;
use rpcrdma_proto::proto::requester::retry::{react, Attempts, Reaction, Retry, Sent};
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::types::Version;

use super::error::report;
use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let version = if source.u8() % 8 == 1 {
        Version::V1
    } else {
        Version::V2
    };
    let most = source.length(u32::MAX);
    let mut attempts = Attempts::default();
    let mut limits = Limits::v1(4096, 4096);
    let mut retries = 0;
    while !source.is_empty() {
        let lengths: Vec<_> = (0..source.u8() % 4).map(|_| source.length(most)).collect();
        let sent = Sent {
            long: source.flag(),
            read_chunks: source.below(3),
            write_chunks: &lengths,
            reply_chunk: source.length(most),
            segments: source.below(20),
            header_segments: source.below(20),
        };
        let report = report(&mut source);
        let Reaction::Retry(retry) = react(version, report, &sent, &mut attempts, most) else {
            continue;
        };
        retries += 1;
        assert!(version == Version::V2 && retries <= Attempts::MAX);
        check(retry, report, &sent, most);
        let before = limits;
        retry.apply(&mut limits);
        assert!(limits.read_chunks <= before.read_chunks);
        assert!(limits.write_chunks <= before.write_chunks);
        assert!(limits.chunk_segments <= before.chunk_segments);
        assert!(limits.header_segments <= before.header_segments);
    }
}

/// The other form is allowed by the report, and differs from the previous form.
fn check(retry: Retry, report: ErrorReport, sent: &Sent<'_>, most: u32) {
    match (retry, report) {
        (Retry::LongCall, ErrorReport::ReadChunks { .. }) => {
            assert!(sent.read_chunks != 0 && !sent.long);
        }
        (Retry::Continuation, ErrorReport::ReadChunks { .. }) => assert!(sent.long),
        (Retry::ReplyChunkOnly, ErrorReport::WriteChunks { .. }) => {
            assert!(!sent.write_chunks.is_empty());
        }
        (Retry::ReplyChunkOnly, ErrorReport::ReplyResource { .. }) => {
            assert!(!sent.write_chunks.is_empty() && sent.reply_chunk == 0);
        }
        (Retry::FewerSegments(most), ErrorReport::Segments { max_segments }) => {
            assert!(most == max_segments && most < sent.segments);
        }
        (Retry::ShorterHeader(most), ErrorReport::Segments { max_segments }) => {
            assert!(most == max_segments && most < sent.header_segments);
            assert!(most >= sent.segments);
        }
        (Retry::LargerWriteChunk { index, length }, ErrorReport::WriteResource { .. }) => {
            assert!(length > sent.write_chunks[index as usize] && length <= most);
        }
        (Retry::LargerReplyChunk(length), ErrorReport::ReplyResource { .. }) => {
            assert!(length > sent.reply_chunk && length <= most);
            assert!(sent.reply_chunk != 0 || sent.write_chunks.is_empty());
        }
        other => panic!("no reason for {other:?}"),
    }
}
