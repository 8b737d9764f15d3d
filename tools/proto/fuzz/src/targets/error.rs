// SPDX-License-Identifier: GPL-2.0

//! Error messages: arbitrary ones never harm, and ours are understood by every peer.

use rpcrdma_proto::proto::wire::error::{ErrorReport, NoRoom};
use rpcrdma_proto::proto::wire::header::{Body, FixedWords};
use rpcrdma_proto::proto::wire::types::{Grant, Xid};
use rpcrdma_proto::proto::wire::{v1, v2};

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let report = report(&mut source);
    let request = FixedWords {
        xid: Xid(source.u32()),
        version: source.u32(),
        credit: source.u32(),
        htype: source.u32(),
    };
    check_v1(&request, report);
    check_v2(&request, report);
    arbitrary(&request, source.rest());
}

/// Draws a report.
pub fn report(source: &mut Source<'_>) -> ErrorReport {
    common::report((source.u8() % 11).into(), || source.u32())
}

fn decode_v1(message: &[u8]) -> Option<ErrorReport> {
    let (fixed, rest) = FixedWords::split(message).expect("an error has four words");
    assert!(v1::is_error(&fixed));
    match v1::decode(&fixed, rest) {
        Ok(Body::Error(report)) => report,
        other => panic!("an error became {other:?}"),
    }
}

fn decode_v2(message: &[u8]) -> (bool, Option<ErrorReport>) {
    let (fixed, rest) = FixedWords::split(message).expect("an error has four words");
    let decoded = v2::decode(&fixed, rest, false).expect("an error has five words");
    match decoded.body {
        Ok(Body::Error(report)) => (decoded.flags.response, report),
        other => panic!("an error became {other:?}"),
    }
}

fn check_v1(request: &FixedWords, report: ErrorReport) {
    let mut out = [0xee; v1::MAX_ERROR_LEN];
    let len = v1::encode_error(&mut out, request, 7, report).expect("room");
    let message = &out[..len];
    assert_eq!(message[..4], request.xid.0.to_be_bytes());
    assert_eq!(message[4..8], request.version.to_be_bytes());
    let expected = match report {
        ErrorReport::Version { .. } => report,
        _ => ErrorReport::BadXdr,
    };
    assert_eq!(decode_v1(message), Some(expected));
    assert_eq!(
        v1::encode_error(&mut out[..len - 1], request, 7, report),
        Err(NoRoom)
    );
}

fn check_v2(request: &FixedWords, report: ErrorReport) {
    let mut out = [0xee; v2::MAX_ERROR_LEN];
    let grant = Grant {
        granted: 1,
        ceiling: 1,
    };
    let len = v2::encode_error(&mut out, request, grant, report).expect("room");
    let message = &out[..len];
    if let ErrorReport::Version { low, .. } = report {
        // Any peer can read it, whichever versions it speaks.
        assert_eq!(len, 28);
        assert_eq!(decode_v1(message), Some(report));
        if (5..=9).contains(&low) {
            return;
        }
    }
    let expected = match report {
        ErrorReport::WriteChunks { max_chunks: 0 } => ErrorReport::WriteChunks { max_chunks: 1 },
        report => report,
    };
    assert_eq!(decode_v2(message), (true, Some(expected)));
    assert_eq!(
        v2::encode_error(&mut out[..len - 1], request, grant, report),
        Err(NoRoom)
    );
}

/// Nothing behind the fixed words of an error message can make it anything else.
fn arbitrary(request: &FixedWords, body: &[u8]) {
    let mut message = Vec::new();
    for word in [request.xid.0, request.version, request.credit, 4] {
        message.extend(word.to_be_bytes());
    }
    message.extend(body);
    let report = decode_v1(&message);
    assert!(body.len() < 4 || report.is_some() || body.len() < 12);
    if body.len() >= 4 {
        decode_v2(&message);
    }
}
