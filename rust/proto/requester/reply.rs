// SPDX-License-Identifier: GPL-2.0

//! The Requester's check of a Reply against the provided chunks of its RPC, before the Reply is used.
//!
//! [`connection`](crate::proto::connection) identifies a Reply and its RPC.

use crate::proto::wire::{
    chunk::{
        Chunk,
        ChunkLists,
        Chunks,
        OneSegment, //
    },
    error::BadHeader,
    header::{
        Conveyed,
        Kind,
        RpcStart, //
    },
    types::{
        MsgType,
        Segment,
        Xid, //
    },
};

/// The place of an RPC Reply.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The Payload stream.
    pub payload: Payload<'a>,
    /// The number of bytes of results in all Write chunks together.
    pub written: u32,
}

/// The place of the Payload stream of a Reply.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// It is in the message, which is the last one of a Reply in several parts.
    Inline(&'a [u8]),
    /// In the Reply chunk, which the peer filled with `len` bytes.
    ReplyChunk {
        /// The length of the Payload stream.
        len: u32,
    },
}

/// The reason why an RPC fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The header of the Reply cannot be parsed.
    Header(BadHeader),
    /// The Reply carries a Read list.
    ReadList,
    /// The Reply has results in a Write chunk that was not provided, or returns only some of the
    /// provided Write chunks.
    WriteChunks,
    /// The Reply uses a Reply chunk that was not offered, or one that is both used and not.
    ReplyChunk,
    /// A returned chunk has more Segments than the one offered.
    SegmentCount,
    /// A returned Segment names other memory than the one offered.
    SegmentMemory,
    /// A returned Segment is longer than the one offered.
    SegmentLength,
    /// A returned chunk was not filled in order, so the bytes are not contiguous.
    Gap,
    /// The payload is not an RPC Reply.
    NotReply,
}

impl Failure {
    /// Returns it in words, for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Header(why) => why.name(),
            Self::ReadList => "Read list",
            Self::WriteChunks => "number of Write chunks",
            Self::ReplyChunk => "Reply chunk",
            Self::SegmentCount => "number of Segments",
            Self::SegmentMemory => "other memory",
            Self::SegmentLength => "Segment too long",
            Self::Gap => "gap in a chunk",
            Self::NotReply => "not an RPC Reply",
        }
    }
}

/// Checks a message that conveys an RPC Reply.
///
/// `start` are the first words of the RPC message: with a Reply in several parts, these words
/// are in an earlier part, and `conveyed` is the last one.
///
/// All forms of Reply are accepted for all provided chunks: inline although there was a Reply chunk, and with
/// inline results that fit into a Write chunk.
#[inline(always)]
//= V1-064, D-44, NFS-055
pub fn check_conveyed<'a, C: Chunks + ?Sized>(
    xid: Xid,
    conveyed: &Conveyed<'a>,
    start: Option<RpcStart>,
    offered: &C,
) -> Result<Reply<'a>, Failure> {
    let chunks = conveyed.chunks;
    //= V1-072
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
        Some(returned) => match offered.reply() {
            Some(offered) => check_returned(returned, offered)?,
            None => check_unused(returned, Failure::ReplyChunk)?,
        },
    };
    let payload = match conveyed.kind {
        //= V1-078, V1-109, V2-107
        //= D-38
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
    Ok(Reply { payload, written })
}

/// Checks a Reply as [`check_conveyed`], for a Call with a single Segment.
///
/// Nearly all Replies return that Segment: these need no iterators.
#[inline(always)]
//= V1-064, V1-065, V2-086
pub fn check_one<'a>(
    xid: Xid,
    conveyed: &Conveyed<'a>,
    start: Option<RpcStart>,
    offered: &OneSegment,
) -> Result<Reply<'a>, Failure> {
    let chunks = &conveyed.chunks;
    let returned = match (conveyed.kind, chunks.reply) {
        (Kind::Msg, None) if offered.layout.writes != 0 => chunks.writes.only_segment(),
        (Kind::Nomsg, Some(chunk)) if offered.layout.replies != 0 && chunks.writes.is_empty() => {
            chunk.only_segment()
        }
        _ => None,
    };
    let returned = returned.filter(|returned| {
        let Segment {
            handle,
            length,
            offset,
        } = offered.segment;
        let same = returned.handle == handle && returned.offset == offset;
        same && returned.length <= length && returned.length != 0 && chunks.reads.is_empty()
    });
    let Some(Segment { length, .. }) = returned else {
        // A copy for the function that is not inlined: `conveyed` can stay in registers otherwise.
        let conveyed = *conveyed;
        return check_other(xid, &conveyed, start, offered);
    };
    match conveyed.kind {
        Kind::Msg => {
            check_start(xid, start)?;
            Ok(Reply {
                payload: Payload::Inline(conveyed.payload),
                written: length,
            })
        }
        Kind::Nomsg => Ok(Reply {
            payload: Payload::ReplyChunk { len: length },
            written: 0,
        }),
    }
}

/// Checks a Reply that does not return the only Segment as most Replies do.
#[inline(never)]
fn check_other<'a>(
    xid: Xid,
    conveyed: &Conveyed<'a>,
    start: Option<RpcStart>,
    offered: &OneSegment,
) -> Result<Reply<'a>, Failure> {
    check_conveyed(xid, conveyed, start, offered)
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

//= V1-075, V2-107
fn check_writes<C: Chunks + ?Sized>(chunks: &ChunkLists<'_>, offered: &C) -> Result<u32, Failure> {
    let mut offered = offered.writes();
    let mut written = 0_u32;
    for returned in chunks.writes.iter() {
        let in_chunk = match offered.next() {
            Some(offered) => check_returned(returned, offered)?,
            None => check_unused(returned, Failure::WriteChunks)?,
        };
        written = written
            .checked_add(in_chunk)
            .ok_or(Failure::SegmentLength)?;
    }
    match offered.next() {
        None => Ok(written),
        Some(_) => Err(Failure::WriteChunks),
    }
}

/// Checks that a chunk that was not offered is empty. Returns zero, or `claimed` if the peer has returned data
/// in it.
#[cold]
//= D-37
fn check_unused(returned: Chunk<'_>, claimed: Failure) -> Result<u32, Failure> {
    match returned.length() {
        0 => Ok(0),
        _ => Err(claimed),
    }
}

/// Returns the number of bytes that the peer wrote into a provided chunk.
///
/// The handle and offset of an unused Segment are ignored. Missing Segments are unused, so a chunk without
/// Segments is unused.
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
