// SPDX-License-Identifier: GPL-2.0

//! Arbitrary bytes as a version 2 message. What decodes encodes to the same bytes.

use common::outgoing;
use rpcrdma_proto::proto::credit::Grant;
use rpcrdma_proto::proto::error::NoRoom;
use rpcrdma_proto::proto::header::{Body, FixedWords, Kind};
use rpcrdma_proto::proto::types::{Handle, Xid};
use rpcrdma_proto::proto::v2;

use super::v1::{check_lists, header_of};

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
            let header = header_of(message, conveyed.payload);
            check_lists(&conveyed.chunks);
            match conveyed.kind {
                Kind::Msg => assert!(!conveyed.payload.is_empty()),
                Kind::Nomsg => assert!(!flags.more && !conveyed.chunks.is_empty()),
            }
            if flags.more {
                assert!(conveyed.chunks.is_empty() && conveyed.inv_handle == Handle::NONE);
            }
            let outgoing = outgoing(&fixed, flags, &conveyed);
            let encode = |out: &mut [u8]| v2::encode(out, &outgoing, grant, &conveyed.chunks);
            let mut out = vec![0xee; header.len()];
            assert_eq!(encode(&mut out), Ok(header.len()));
            if same_words && (!flags.response || conveyed.inv_handle == Handle::NONE) {
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
            assert_eq!((fixed.xid, message.len()), (Xid(0), v2::GRANT_LEN));
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
