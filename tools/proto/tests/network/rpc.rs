// SPDX-License-Identifier: GPL-2.0

//! RPCs with made-up content that tells, from end to end, whether a byte is out of place.

use common::{words, Random};
use rpcrdma_proto::proto::requester::plan::{Buf, Item, Part};
use rpcrdma_proto::proto::requester::retry::Attempts;
use rpcrdma_proto::proto::wire::types::Xid;
use rpcrdma_proto::proto::wire::xdr::pad_len;

/// The end of an RPC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Not yet.
    Waiting,
    /// With the right Reply.
    Done,
    /// With an error.
    Failed,
}

/// One RPC, as its Requester knows it.
pub struct Rpc {
    /// Its XID.
    pub xid: Xid,
    /// The place of the Call.
    pub send: Buf,
    /// The Call.
    pub call: Vec<u8>,
    /// Its DDP-eligible arguments.
    pub arguments: Vec<Item>,
    /// The memory that the Reply may take at most.
    pub receive: Buf,
    /// Its DDP-eligible results at most.
    pub results: Vec<Item>,
    /// Integrity or privacy.
    pub protected: bool,
    /// The attempts after errors.
    pub attempts: Attempts,
    /// The result.
    pub outcome: Outcome,
    /// It is on its way on the present connection.
    pub sent: bool,
}

const HEAD: u32 = 40;

fn pattern(len: u32, seed: u32) -> impl Iterator<Item = u8> {
    (0..len).map(move |at| (at.wrapping_mul(31) ^ seed ^ (at >> 8)) as u8)
}

fn part(len: u32, random: &mut Random) -> Part {
    Part {
        len,
        page_offset: random.below(4096) as u32,
    }
}

/// Some length, often one where something changes.
fn length(random: &mut Random, most: u32) -> u32 {
    let edges = [
        0, 1, 2, 3, 4, 500, 900, 984, 985, 1000, 3900, 3960, 4012, 4096, 8192, 20_000, 40_000,
    ];
    let near = edges[random.below(edges.len() as u64) as usize] + random.below(8) as u32;
    if random.once_in(4) {
        random.below(u64::from(most)) as u32
    } else {
        near.min(most)
    }
}

impl Rpc {
    /// Makes a Call of any size with any demands; `reverse` ones have nothing to reduce.
    pub fn new(xid: Xid, random: &mut Random, reverse: bool) -> Self {
        let most = if reverse { 800 } else { 48_000 };
        let data = length(random, most);
        let tail = 4 * random.below(8) as u32;
        let reply_data = length(random, most);
        let reply_tail = 4 * random.below(8) as u32;
        let eligible = !reverse && random.once_in(2);
        let reply_eligible = !reverse && random.once_in(2);
        let extra = if random.once_in(8) && !reverse {
            4 * random.below(2000) as u32
        } else {
            0
        };
        let mut call = words(&[
            xid.0,
            0,
            reply_data,
            reply_tail,
            u32::from(reply_eligible),
            data,
        ]);
        call.extend(pattern(HEAD + extra - 24, xid.0));
        call.extend(pattern(data, xid.0 ^ 0x55));
        call.extend(std::iter::repeat_n(0, pad_len(data) as usize));
        call.extend(pattern(tail, xid.0 ^ 0x77));
        let send = Buf {
            head: part(HEAD + extra, random),
            pages: part(data, random),
            tail: part(pad_len(data) + tail, random),
        };
        let receive = Buf {
            head: part(HEAD, random),
            pages: part(reply_data, random),
            tail: part(pad_len(reply_data) + reply_tail, random),
        };
        Self {
            xid,
            send,
            call,
            arguments: if eligible {
                vec![send.page_item()]
            } else {
                vec![]
            },
            receive,
            results: if reply_eligible {
                vec![receive.page_item()]
            } else {
                vec![]
            },
            protected: random.once_in(8),
            attempts: Attempts::default(),
            outcome: Outcome::Waiting,
            sent: false,
        }
    }
}

/// Makes the Reply to a Call, and says which of its items is DDP-eligible.
pub fn execute(call: &[u8]) -> (Vec<u8>, Option<Item>) {
    let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
    let (xid, data, tail) = (word(0), word(8), word(12));
    let sum = call
        .iter()
        .fold(0_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
    let mut reply = words(&[xid, 1, sum]);
    reply.extend(pattern(HEAD - 12, sum));
    reply.extend(pattern(data, sum ^ 0x33));
    reply.extend(std::iter::repeat_n(0, pad_len(data) as usize));
    reply.extend(pattern(tail, sum ^ 0x11));
    let item = Item {
        offset: HEAD,
        len: data,
    };
    (reply, (word(16) == 1).then_some(item))
}
