// SPDX-License-Identifier: GPL-2.0

//! The common part of both versions: the four fixed words, and the meaning of a message.

use crate::proto::wire::{
    chunk::ChunkLists,
    error::ErrorReport,
    types::{
        Handle,
        MsgType,
        Xid, //
    },
    xdr::Reader, //
};

/// The four words that start every message of every version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FixedWords {
    /// The transaction this message belongs to.
    pub xid: Xid,
    /// `rdma_vers` as received; any value.
    pub version: u32,
    /// `rdma_credit`, whose meaning depends on the version.
    pub credit: u32,
    /// `rdma_proc` or `rdma_htype`.
    pub htype: u32,
}

impl FixedWords {
    /// The length on the wire.
    pub const ENCODED_LEN: usize = 16;

    /// Splits a received message into its fixed words and the rest.
    ///
    /// Returns `None` for a message so short that nothing in it may be used.
    #[inline]
    //= V1-002, V1-021, V1-110
    //= V2-002, D-46
    pub fn split(message: &[u8]) -> Option<(Self, Reader<'_>)> {
        let (wire, rest) = message.split_first_chunk::<{ Self::ENCODED_LEN }>()?;
        let [x0, x1, x2, x3, v0, v1, v2, v3, c0, c1, c2, c3, t0, t1, t2, t3] = *wire;
        let fixed = Self {
            xid: Xid(u32::from_be_bytes([x0, x1, x2, x3])),
            version: u32::from_be_bytes([v0, v1, v2, v3]),
            credit: u32::from_be_bytes([c0, c1, c2, c3]),
            htype: u32::from_be_bytes([t0, t1, t2, t3]),
        };
        Some((fixed, Reader::new(rest)))
    }
}

/// The place of the Payload stream: in the message, or in memory that the header names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// RDMA_MSG: the Payload stream follows the header.
    Msg,
    /// RDMA_NOMSG: a Position Zero Read chunk or the Reply chunk holds the Payload stream.
    Nomsg,
}

/// The first two words of an RPC message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RpcStart {
    /// The XID.
    pub xid: Xid,
    /// The `msg_type`, if it is one of the two defined.
    pub msg_type: Option<MsgType>,
}

impl RpcStart {
    /// Looks at the start of an inline Payload stream.
    #[inline(always)]
    pub fn peek(payload: &[u8]) -> Option<Self> {
        let [x0, x1, x2, x3, t0, t1, t2, t3] = *payload.first_chunk()?;
        Some(Self {
            xid: Xid(u32::from_be_bytes([x0, x1, x2, x3])),
            msg_type: match u32::from_be_bytes([t0, t1, t2, t3]) {
                0 => Some(MsgType::Call),
                1 => Some(MsgType::Reply),
                _ => None,
            },
        })
    }
}

/// A received message that conveys an RPC message or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Conveyed<'a> {
    /// Inline or in memory.
    pub kind: Kind,
    /// The handle that the Reply may invalidate; always [`Handle::NONE`] in version 1.
    pub inv_handle: Handle,
    /// The chunk lists.
    pub chunks: ChunkLists<'a>,
    /// The bytes behind the header.
    pub payload: &'a [u8],
}

/// The content of a received message, in either version.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// MSG or NOMSG with an RPC message.
    Conveyed(Conveyed<'a>),
    /// A version 2 message that does nothing but grant credits.
    Grant,
    /// CONNPROP (version 2): a property set, or a part of one.
    Properties(&'a [u8]),
    /// An error message. `None` when it is too short for the error it announces.
    Error(Option<ErrorReport>),
}

/// The flags of a version 2 header.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flags {
    /// The receiver of the message generated its XID.
    pub response: bool,
    /// The Payload stream goes on in the next message.
    pub more: bool,
}

/// The content of a message to be sent, without its chunk lists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outgoing {
    /// The XID of the RPC message.
    pub xid: Xid,
    /// The RPC message is a Call or a Reply.
    pub direction: MsgType,
    /// Inline or in memory.
    pub kind: Kind,
    /// The Payload stream continues in the next message (version 2).
    pub more: bool,
    /// The handle that the Reply may invalidate (version 2).
    pub inv_handle: Handle,
}
