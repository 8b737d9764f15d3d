// SPDX-License-Identifier: GPL-2.0

//! The Call of a Requester's own.

use rpcrdma_proto::proto::{
    requester::null::null_call,
    wire::{
        header::RpcStart,
        types::{MsgType, Xid},
    },
};

/// The message is as RFC 5531, section 9, has it: NFS version 3, NULL, AUTH_NONE.
#[test]
fn a_null_call_is_complete() {
    let call = null_call(Xid(0x0102_0304));
    let start = RpcStart::peek(&call).unwrap();
    assert_eq!(start.xid, Xid(0x0102_0304));
    assert_eq!(start.msg_type, Some(MsgType::Call));
    let words: Vec<u32> = call
        .chunks(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words[2..], [2, 100_003, 3, 0, 0, 0, 0, 0]);
}
