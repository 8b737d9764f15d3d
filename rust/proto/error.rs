// SPDX-License-Identifier: GPL-2.0

//! Why a header cannot be used.

/// What is wrong with the bytes of a header.
///
/// The first wrong word names the reason. A Responder answers with the error message that
/// belongs to it; a Requester fails the transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BadHeader {
    /// The message ends inside a field, or a count exceeds what follows it.
    Truncated,
    /// An optional-data word is neither 0 nor 1.
    Presence,
    /// A Segment runs past the end of the 64-bit address space.
    Wrap,
    /// A Read chunk's Position is not a multiple of four.
    Unaligned,
    /// The header type is not defined, or must not be used any more.
    Type,
    /// A message that has no inline Payload stream names no memory that could hold one.
    NoPayload,
    /// A message conveys its Payload stream inline and by a Position Zero Read chunk at once.
    TwoPayloads,
    /// `rdma_xid` differs from the XID of the RPC message.
    XidMismatch,
}

/// The output buffer is too short for what is to be encoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoRoom;
