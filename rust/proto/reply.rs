// SPDX-License-Identifier: GPL-2.0

//! The Requester's check of everything that arrives, before any of it is used.

use crate::proto::chunk::{
    Chunk,
    ChunkLists,
    Chunks, //
};
use crate::proto::error::{
    BadHeader,
    ErrorReport, //
};
use crate::proto::header::{
    Body,
    Conveyed,
    FixedWords,
    Kind,
    RpcStart, //
};
use crate::proto::types::{
    MsgType,
    Segment,
    Version,
    Xid, //
};
use crate::proto::v1;

/// A message that arrived on a version 1 connection.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// Too short for the fixed words: nothing in it may be used, its credits included.
    Runt,
    /// Of another version. Only an ERR_VERS answer to the first message of a connection has a
    /// use; everything else is dropped.
    OtherVersion(FixedWords),
    /// An RPC Call of the peer (reverse direction).
    Call {
        /// XID and requested credits.
        fixed: FixedWords,
        /// The RPC message.
        payload: &'a [u8],
    },
    /// A Reply or an error: to be given to [`check`] with what the RPC of `fixed.xid` offered.
    Reply {
        /// XID and granted credits.
        fixed: FixedWords,
        /// The decoded header.
        body: Result<Body<'a>, BadHeader>,
    },
}

/// Reads the header of a message that arrived on a version 1 connection.
#[inline]
//= V1-004, V1-092, V1-110, V1-118, V1-132
pub fn receive(message: &[u8]) -> Arrival<'_> {
    let Some((fixed, rest)) = FixedWords::split(message) else {
        return Arrival::Runt;
    };
    if fixed.version != Version::V1.number() {
        return Arrival::OtherVersion(fixed);
    }
    let body = v1::decode(&fixed, rest);
    if let Ok(Body::Conveyed(conveyed)) = &body {
        if let Some(payload) = reverse_call(&fixed, conveyed) {
            return Arrival::Call { fixed, payload };
        }
    }
    Arrival::Reply { fixed, body }
}

/// Without chunks, `msg_type` alone tells a Call from a Reply.
#[inline]
fn reverse_call<'a>(fixed: &FixedWords, conveyed: &Conveyed<'a>) -> Option<&'a [u8]> {
    if conveyed.kind != Kind::Msg || !conveyed.chunks.is_empty() {
        return None;
    }
    let start = RpcStart::peek(conveyed.payload)?;
    if start.xid != fixed.xid || start.msg_type != Some(MsgType::Call) {
        return None;
    }
    Some(conveyed.payload)
}

/// What becomes of the RPC a message belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<'a> {
    /// The Reply is complete and lies where `Reply` says.
    Complete(Reply<'a>),
    /// The RPC ends with an error and is not sent again.
    Fail(Failure),
    /// The message is dropped and the RPC goes on waiting.
    Drop,
}

/// Where an RPC Reply lies.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The Payload stream.
    pub payload: Payload<'a>,
    /// How many octets of results lie in the Write chunks, all together.
    pub written: u32,
    /// The returned Write list; its lengths say what lies in each Write chunk.
    pub chunks: ChunkLists<'a>,
}

/// Where the Payload stream of a Reply lies.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// In the message. Of a Reply in several parts, this is the last one.
    Inline(&'a [u8]),
    /// In the Reply chunk, which the peer filled with `len` octets.
    ReplyChunk {
        /// The length of the Payload stream.
        len: u32,
    },
}

/// Why an RPC fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The peer supports only other versions.
    Version {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The peer cannot use the header or the chunks it named.
    Chunk,
    /// The peer sent an error code that is not defined.
    UnknownError(u32),
    /// The header of the Reply cannot be parsed.
    Header(BadHeader),
    /// The Reply carries a Read list.
    ReadList,
    /// The Reply carries more Write chunks than were offered, or only some of them.
    WriteChunks,
    /// The Reply carries a Reply chunk that was not offered, or that is both used and not.
    ReplyChunk,
    /// A returned chunk has more Segments than the one offered.
    SegmentCount,
    /// A returned Segment names other memory than the one offered.
    SegmentMemory,
    /// A returned Segment is longer than the one offered.
    SegmentLength,
    /// A returned chunk was not filled in order, so the octets are not contiguous.
    Gap,
    /// The payload is not an RPC Reply.
    NotReply,
}

/// Checks a message that arrived for an RPC against what that RPC had offered.
#[inline]
//= V1-098, V1-099, D-33, NFS-055
pub fn check<'a, C: Chunks + ?Sized>(
    fixed: &FixedWords,
    body: Result<Body<'a>, BadHeader>,
    offered: &C,
) -> Verdict<'a> {
    match body {
        Ok(Body::Conveyed(conveyed)) => match check_conveyed(
            fixed.xid,
            &conveyed,
            RpcStart::peek(conveyed.payload),
            offered,
        ) {
            Ok(reply) => Verdict::Complete(reply),
            Err(failure) => Verdict::Fail(failure),
        },
        Ok(Body::Error(None)) => Verdict::Drop,
        Ok(Body::Error(Some(error))) => match error {
            ErrorReport::Version { low, high } if low > high => Verdict::Drop,
            ErrorReport::Version { low, high } => Verdict::Fail(Failure::Version { low, high }),
            ErrorReport::BadXdr => Verdict::Fail(Failure::Chunk),
            other => Verdict::Fail(Failure::UnknownError(other.code())),
        },
        Ok(Body::Grant | Body::Properties(_)) => Verdict::Drop,
        Err(bad) => Verdict::Fail(Failure::Header(bad)),
    }
}

/// Checks a message that conveys an RPC Reply.
///
/// `start` are the first words of the RPC message: with a Reply in several parts, these words
/// are in an earlier part, and `conveyed` is the last one.
///
/// All forms of Reply are taken, whatever was offered: inline although a Reply chunk was there,
/// and with results inline that a Write chunk could have held.
#[inline]
//= V1-064, V1-072, V1-075, V1-078, V1-109, D-38, D-44
pub fn check_conveyed<'a, C: Chunks + ?Sized>(
    xid: Xid,
    conveyed: &Conveyed<'a>,
    start: Option<RpcStart>,
    offered: &C,
) -> Result<Reply<'a>, Failure> {
    let chunks = conveyed.chunks;
    if !chunks.reads.is_empty() {
        return Err(Failure::ReadList);
    }
    let written = if chunks.writes.is_empty() {
        0
    } else {
        check_writes(&chunks, offered)?
    };
    let in_reply_chunk = match chunks.reply {
        None => 0,
        Some(returned) => {
            let offered = offered.reply().ok_or(Failure::ReplyChunk)?;
            check_returned(returned, offered)?
        }
    };
    let payload = match conveyed.kind {
        Kind::Msg => {
            if in_reply_chunk != 0 {
                return Err(Failure::ReplyChunk);
            }
            check_start(xid, start)?;
            Payload::Inline(conveyed.payload)
        }
        Kind::Nomsg => {
            //= V1-017
            if in_reply_chunk == 0 {
                return Err(Failure::ReplyChunk);
            }
            Payload::ReplyChunk {
                len: in_reply_chunk,
            }
        }
    };
    Ok(Reply {
        payload,
        written,
        chunks,
    })
}

#[inline]
//= V1-003, V1-024, D-47
fn check_start(xid: Xid, start: Option<RpcStart>) -> Result<(), Failure> {
    let start = start.ok_or(Failure::NotReply)?;
    if start.xid != xid {
        return Err(Failure::Header(BadHeader::XidMismatch));
    }
    if start.msg_type != Some(MsgType::Reply) {
        return Err(Failure::NotReply);
    }
    Ok(())
}

//= V1-075
fn check_writes<C: Chunks + ?Sized>(chunks: &ChunkLists<'_>, offered: &C) -> Result<u32, Failure> {
    let mut offered = offered.writes();
    let mut written = 0_u32;
    for returned in chunks.writes.iter() {
        let offered = offered.next().ok_or(Failure::WriteChunks)?;
        written = written
            .checked_add(check_returned(returned, offered)?)
            .ok_or(Failure::SegmentLength)?;
    }
    match offered.next() {
        None => Ok(written),
        Some(_) => Err(Failure::WriteChunks),
    }
}

/// Returns how many octets the peer wrote into a chunk that was offered to it.
///
/// What an unused Segment names does not matter, and Segments that are left out are unused, so a
/// chunk without any is an unused one.
//= V1-065, V2-086, D-37
fn check_returned(
    returned: Chunk<'_>,
    mut offered: impl Iterator<Item = Segment>,
) -> Result<u32, Failure> {
    let mut written = 0_u32;
    let mut filled = true;
    for segment in returned.segments() {
        let offer = offered.next().ok_or(Failure::SegmentCount)?;
        if segment.length != 0 {
            if segment.handle != offer.handle || segment.offset != offer.offset {
                return Err(Failure::SegmentMemory);
            }
            if segment.length > offer.length {
                return Err(Failure::SegmentLength);
            }
            //= V1-066, V1-067
            if !filled {
                return Err(Failure::Gap);
            }
            written = written
                .checked_add(segment.length)
                .ok_or(Failure::SegmentLength)?;
        }
        filled &= segment.length == offer.length;
    }
    Ok(written)
}
