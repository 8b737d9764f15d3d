// SPDX-License-Identifier: GPL-2.0

//! Arbitrary bytes as a version 2 message. A decoded message encodes to the same bytes.

use common::outgoing;
use rpcrdma_proto::proto::wire::error::NoRoom;
use rpcrdma_proto::proto::wire::header::{Body, Conveyed, FixedWords, Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{Grant, Handle, Xid};
use rpcrdma_proto::proto::wire::v2;

use super::v1::{check_lists, header_of};

fn is_pad(rest: &[u8]) -> bool {
    rest.iter().all(|byte| *byte == 0)
}

/// Returns the message without the pad behind its header.
fn without_pad<'a>(message: &'a [u8], outgoing: &Outgoing, conveyed: &Conveyed<'_>) -> &'a [u8] {
    assert!(conveyed.payload.is_empty());
    let mut out = vec![0; message.len()];
    let len = v2::encode(&mut out, outgoing, Grant::from_word(1), &conveyed.chunks).unwrap();
    let (header, pad) = message.split_at(len);
    assert!(is_pad(pad));
    header
}

pub fn run(message: &[u8]) {
    let Some((fixed, rest)) = FixedWords::split(message) else {
        return;
    };
    let Some(decoded) = v2::decode(&fixed, rest, false) else {
        assert!(message.len() < v2::PREFIX_LEN);
        return;
    };
    let flags = decoded.flags;
    let grant = Grant::from_word(fixed.credit);
    let same_words = fixed.version == 2 && grant.to_word() == fixed.credit;
    match decoded.body {
        Ok(Body::Conveyed(conveyed)) => {
            check_lists(&conveyed.chunks);
            let header = match conveyed.kind {
                Kind::Msg => header_of(message, conveyed.payload),
                Kind::Nomsg => {
                    assert!(!flags.more && !conveyed.chunks.is_empty());
                    without_pad(message, &outgoing(&fixed, flags, &conveyed), &conveyed)
                }
            };
            assert!(!flags.more || conveyed.chunks.is_empty());
            let outgoing = outgoing(&fixed, flags, &conveyed);
            let encode = |out: &mut [u8]| v2::encode(out, &outgoing, grant, &conveyed.chunks);
            let mut out = vec![0xee; header.len()];
            assert_eq!(encode(&mut out), Ok(header.len()));
            let keeps_handle = !flags.response && !flags.more;
            if same_words && (keeps_handle || conveyed.inv_handle == Handle::NONE) {
                assert_eq!(out, header);
            }
            assert_eq!(encode(&mut out[1..]), Err(NoRoom));
        }
        Ok(Body::Properties(properties)) => {
            let mut out = vec![0xee; message.len()];
            let encode = |out: &mut [u8]| {
                v2::encode_properties(out, fixed.xid, grant, properties, flags.more)
            };
            assert_eq!(encode(&mut out), Ok(message.len()));
            if same_words && !flags.response {
                assert_eq!(out, message);
            }
            assert_eq!(encode(&mut out[1..]), Err(NoRoom));
        }
        Ok(Body::Grant) => {
            let (message, pad) = message.split_at(v2::GRANT_LEN);
            assert!(fixed.xid == Xid(0) && is_pad(pad));
            let mut out = [0xee; v2::GRANT_LEN];
            assert_eq!(v2::encode_grant(&mut out, grant), Ok(v2::GRANT_LEN));
            if same_words && message[16..24] == [0; 8] {
                assert_eq!(out, message);
            }
        }
        Ok(Body::Error(_)) => assert_eq!(fixed.htype, 4),
        Err(_) => assert_ne!(fixed.htype, 4),
    }
}
