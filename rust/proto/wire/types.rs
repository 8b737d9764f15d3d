// SPDX-License-Identifier: GPL-2.0

//! The words of the protocol as distinct types.

/// A transaction identifier (`rdma_xid`), equal to the XID of the RPC message conveyed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Xid(pub u32);

/// A steering tag (`handle`, R_key) that names registered memory of the Requester.
///
/// On the wire zero is an ordinary handle in a segment; in `rdma_inv_handle` it means "none".
//= V1-025, V2-023
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Handle(pub u32);

impl Handle {
    /// No handle may be invalidated.
    pub const NONE: Self = Self(0);
}

/// The offset of a reduced item in the unreduced Payload stream.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position(pub u32);

impl Position {
    /// The Position of the special Read chunk that conveys the Payload stream itself.
    pub const ZERO: Self = Self(0);
}

/// A protocol version this implementation speaks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Version {
    /// RPC-over-RDMA version 1.
    V1,
    /// RPC-over-RDMA version 2.
    V2,
}

impl Version {
    /// Returns the value of `rdma_vers`.
    #[inline]
    //= V1-005
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Returns the version that `rdma_vers` names, or `None` if it is not known here.
    #[inline]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// Returns the smallest receive buffer every peer of this version has.
    #[inline]
    //= V1-045, V1-047, V2-056
    //= V2-057
    pub const fn default_inline(self) -> u32 {
        match self {
            Self::V1 => 1024,
            Self::V2 => 4096,
        }
    }

    /// Returns the length of a header whose chunk lists are empty.
    #[inline]
    pub const fn empty_header_len(self) -> u32 {
        match self {
            Self::V1 => 28,
            Self::V2 => 36,
        }
    }
}

/// The `msg_type` of an RPC message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MsgType {
    /// CALL (0).
    Call,
    /// REPLY (1).
    Reply,
}

/// The memory one Segment names: `length` bytes from `offset` within the region `handle`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Segment {
    /// The region.
    pub handle: Handle,
    /// The number of bytes; zero is legal.
    pub length: u32,
    /// The offset in the region.
    pub offset: u64,
}

/// A Segment of a Read chunk with the Position where its bytes belong.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadSegment {
    /// The position of the chunk in the unreduced Payload stream.
    pub position: Position,
    /// The memory to read.
    pub segment: Segment,
}

/// The side of a connection. It does not change with the direction of an RPC.
//= V1-029, V1-117, V2-168
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// This side has opened the connection.
    Client,
    /// The peer has opened the connection.
    Server,
}

/// The two halves of a version 2 credit word.
//= V2-045, D-09
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The number of further messages that the receiver may send.
    pub granted: u16,
    /// The most messages that the receiver of the word may have in flight.
    pub ceiling: u16,
}

impl Grant {
    /// Reads a credit word.
    #[inline]
    pub const fn from_word(word: u32) -> Self {
        let [c0, c1, g0, g1] = word.to_be_bytes();
        Self {
            granted: u16::from_be_bytes([g0, g1]),
            ceiling: u16::from_be_bytes([c0, c1]),
        }
    }

    /// Returns the credit word.
    #[inline]
    //= V2-045, D-09
    pub const fn to_word(self) -> u32 {
        let [c0, c1] = self.ceiling.to_be_bytes();
        let [g0, g1] = self.granted.to_be_bytes();
        u32::from_be_bytes([c0, c1, g0, g1])
    }
}
