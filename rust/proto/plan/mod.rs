// SPDX-License-Identifier: GPL-2.0

//! How a Requester conveys one RPC: the decision, made from sizes and limits alone.
//!
//! A message is a stream of octets that lies in the three parts of an `xdr_buf`. The plan names
//! pieces of that stream: which go inline, which become Read chunks, and where results shall be
//! put. [`Limits::cut`] splits a piece into the memory regions to register, one Segment each;
//! the plan counts Segments with the same function, so what it promises is what is registered.
//!
//! # Pad
//!
//! The XDR pad behind a reduced item leaves the Payload stream together with the item and is in
//! no chunk: the Responder supplies it to a Read chunk and never writes it into a Write chunk.
//! Hence a chunk is exactly as long as its item, also when that is no multiple of four. Writing
//! pad would need a Segment more for every odd length, and memory behind the caller's buffer;
//! peers that write pad all the same have been wrong since RFC 5666 was clarified.

mod limits;
mod shape;

use core::ops::Range;

pub use limits::Limits;
pub use shape::{
    Buf,
    CallShape,
    Item,
    ItemSet,
    Part,
    PartName,
    Piece, //
};

use crate::proto::chunk::{
    REPLY_CHUNK_LEN,
    WRITE_CHUNK_LEN, //
};
use crate::proto::header::Kind;
use crate::proto::types::{
    Position,
    ReadSegment,
    Segment, //
};

/// How the Payload stream of the Call is conveyed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Conveyance {
    /// In one Send, behind the header, copied into the Send buffer.
    Copied,
    /// In one Send, behind the header, gathered from where it lies.
    Gathered,
    /// In several Sends (version 2).
    Continued,
    /// In a Position Zero Read chunk.
    Long,
}

/// The decision for one RPC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// How the Payload stream of the Call is conveyed.
    pub conveyance: Conveyance,
    /// The arguments that become Read chunks and leave the Payload stream.
    pub reads: ItemSet,
    /// The results that get a Write chunk.
    pub writes: ItemSet,
    /// Whether a Reply chunk is offered, over what of the Reply no Write chunk covers.
    pub reply_chunk: bool,
    /// The length of the header.
    pub header_len: u32,
    /// How many Segments the header has.
    pub segments: u32,
}

/// Why an RPC cannot be conveyed on this connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlanError {
    /// A chunk would need more Segments than it may have.
    TooManySegments,
    /// The device or the peer allows no Segment of even one page.
    NoSegments,
    /// The header does not fit into a Send.
    HeaderTooLong,
    /// The returned chunk lists alone do not fit into a Receive.
    ReplyHeaderTooLong,
    /// Neither inline, nor reduced, nor in any other form allowed.
    CallTooLong,
}

impl Plan {
    /// Says which type the header has.
    #[inline]
    //= V1-017, V2-014
    pub const fn kind(&self) -> Kind {
        match self.conveyance {
            Conveyance::Long => Kind::Nomsg,
            _ => Kind::Msg,
        }
    }

    /// Returns the pieces of the Call's Payload stream, in order.
    ///
    /// They follow the header, or make up the Position Zero Read chunk.
    #[inline]
    //= V1-049, V1-059, V2-077, V2-091
    pub fn payload<'a>(&self, call: &CallShape<'a>) -> impl Iterator<Item = Range<u32>> + 'a {
        without(call.send.len(), call.arguments, self.reads)
    }

    /// Returns the pieces of the Reply that the Reply chunk holds at most.
    #[inline]
    pub fn reply_payload<'a>(&self, call: &CallShape<'a>) -> impl Iterator<Item = Range<u32>> + 'a {
        without(call.receive.len(), call.results, self.writes)
    }

    /// Returns the Read chunks by rising Position, each with the range of the stream it holds.
    #[inline]
    //= V1-056, V1-060, V1-082, V2-078, V2-082, V2-095
    pub fn read_chunks<'a>(
        &self,
        call: &CallShape<'a>,
    ) -> impl Iterator<Item = (Position, Range<u32>)> + 'a {
        let long = self.conveyance == Conveyance::Long;
        let zero = long.then(|| self.payload(call));
        zero.into_iter()
            .flatten()
            .map(|range| (Position::ZERO, range))
            .chain(
                self.reads
                    .of(call.arguments)
                    .map(|item| (Position(item.offset), item.range())),
            )
    }

    /// Returns the range of the Reply's stream that each Write chunk holds, in list order.
    #[inline]
    //= V1-063, V1-070, V2-083, V2-088
    pub fn write_chunks<'a>(&self, call: &CallShape<'a>) -> impl Iterator<Item = Range<u32>> + 'a {
        self.writes.of(call.results).map(|item| item.range())
    }
}

/// Returns the pieces of a stream that are left when `set` of `items` is reduced.
#[inline]
fn without(len: u32, items: &[Item], set: ItemSet) -> impl Iterator<Item = Range<u32>> + '_ {
    between(len, set.of(items).map(|item| item.extent()))
}

/// Returns the pieces of a stream of `len` octets that lie between `extents`.
#[inline]
pub(super) fn between<'a>(
    len: u32,
    extents: impl Iterator<Item = Range<u32>> + 'a,
) -> impl Iterator<Item = Range<u32>> + 'a {
    let mut at = 0_u32;
    extents
        .chain(core::iter::once(len..len))
        .filter_map(move |gap| {
            let piece = at..gap.start.min(len);
            at = at.max(gap.end);
            (piece.start < piece.end).then_some(piece)
        })
}

/// How much of a Plan is settled: what of the header is spoken for.
#[derive(Clone, Copy)]
struct Header {
    len: u32,
    segments: u32,
}

impl Header {
    fn with_read(self, segments: u32) -> Self {
        // The length of a header with a few thousand Segments is far from 2^32.
        let each = u32::try_from(ReadSegment::ENCODED_LEN).unwrap_or(u32::MAX);
        self.with(segments, each.saturating_mul(segments))
    }

    fn with_array(self, fixed: u32, segments: u32) -> Self {
        let each = u32::try_from(Segment::ENCODED_LEN).unwrap_or(u32::MAX);
        self.with(
            segments,
            fixed.saturating_add(each.saturating_mul(segments)),
        )
    }

    fn with(self, segments: u32, len: u32) -> Self {
        Self {
            len: self.len.saturating_add(len),
            segments: self.segments.saturating_add(segments),
        }
    }

    fn check(self, limits: &Limits) -> Result<Self, PlanError> {
        if self.segments > limits.header_segments {
            Err(PlanError::TooManySegments)
        } else if self.len > limits.inline_send {
            Err(PlanError::HeaderTooLong)
        } else {
            Ok(self)
        }
    }
}

/// Decides how to convey one RPC.
#[inline]
//= V1-076, V1-079, V1-081, V2-055, V2-092, V2-094, V2-129, NFS-001, NFS-040
pub fn plan(call: &CallShape<'_>, limits: &Limits) -> Result<Plan, PlanError> {
    let fixed = limits.version.empty_header_len();
    let send = call.send.len();
    let inline_reply = fits(fixed, call.receive.len(), limits.inline_recv);
    if inline_reply && fits(fixed, send, limits.inline_send) {
        if let Some(conveyance) = gather(call, limits, ItemSet::EMPTY, send) {
            return Ok(Plan {
                conveyance,
                reads: ItemSet::EMPTY,
                writes: ItemSet::EMPTY,
                reply_chunk: false,
                header_len: fixed,
                segments: 0,
            });
        }
    }
    plan_chunks(call, limits, inline_reply)
}

const fn fits(header: u32, payload: u32, threshold: u32) -> bool {
    match header.checked_add(payload) {
        Some(len) => len <= threshold,
        None => false,
    }
}

fn plan_chunks(
    call: &CallShape<'_>,
    limits: &Limits,
    inline_reply: bool,
) -> Result<Plan, PlanError> {
    let header = Header {
        len: limits.version.empty_header_len(),
        segments: 0,
    };
    let (header, writes, reply_chunk) = if inline_reply {
        (header, ItemSet::EMPTY, false)
    } else {
        plan_results(call, limits, header)?
    };
    let (header, conveyance, reads) = plan_arguments(call, limits, header)?;
    Ok(Plan {
        conveyance,
        reads,
        writes,
        reply_chunk,
        header_len: header.len,
        segments: header.segments,
    })
}

/// The Reply may exceed the threshold: decides where its results and the rest shall go.
//= V1-042, V1-048, V1-063, V1-076, V1-077, V1-083, V1-085, V1-136
//= V2-068, V2-083, V2-093, V2-096, V2-102, V2-108, V2-193, V2-194, V2-199, D-42
//= NFS-001, NFS-002, NFS-027, NFS-034
fn plan_results(
    call: &CallShape<'_>,
    limits: &Limits,
    empty: Header,
) -> Result<(Header, ItemSet, bool), PlanError> {
    let len = call.receive.len();
    let parts = |len| len <= limits.continued_recv && is_moderate(len, limits.inline_recv);
    if call.results.is_empty() && parts(len) {
        return Ok((empty, ItemSet::EMPTY, false));
    }
    // Chunks are matched to results in order, so a prefix of the results gets them.
    let mut header = empty;
    let mut set = ItemSet::EMPTY;
    let mut left = len;
    if !call.protected {
        for (index, item) in (0..ItemSet::MAX).zip(call.results) {
            if set.count() >= limits.write_chunks || !item.can_be_reduced() {
                break;
            }
            let range = core::iter::once(item.range());
            let Ok(segments) = limits.segments(&call.receive, range) else {
                break;
            };
            let with_chunk = header.with_array(WRITE_CHUNK_LEN, segments);
            if with_chunk.check(limits).is_err() {
                break;
            }
            header = with_chunk;
            set = set.with(index);
            left = left.saturating_sub(item.reduces(len));
            if fits(header.len, left, limits.inline_recv) {
                return Ok((header, set, false));
            }
        }
    }
    if parts(left) && fits(header.len, 4, limits.inline_recv) {
        return Ok((header, set, false));
    }
    if !limits.write_and_reply {
        (header, set) = (empty, ItemSet::EMPTY);
    }
    let rest = without(len, call.results, set);
    let segments = limits.segments(&call.receive, rest)?;
    let header = header.with_array(REPLY_CHUNK_LEN, segments);
    if header.len > limits.inline_recv {
        return Err(PlanError::ReplyHeaderTooLong);
    }
    Ok((header, set, true))
}

/// Decides where the arguments go. The largest are reduced first, which needs fewest chunks.
//= V1-048, V1-049, V1-050, V1-059, V1-080, V1-081, V1-082, V1-084, V1-085, V1-086
//= V2-068, V2-076, V2-082, V2-093, V2-094, V2-095, V2-097, V2-099, V2-108, V2-193, D-42
fn plan_arguments(
    call: &CallShape<'_>,
    limits: &Limits,
    results: Header,
) -> Result<(Header, Conveyance, ItemSet), PlanError> {
    let mut header = results;
    let mut set = ItemSet::EMPTY;
    let mut left = call.send.len();
    loop {
        if fits(header.len, left, limits.inline_send) {
            if let Some(conveyance) = gather(call, limits, set, left) {
                return Ok((header.check(limits)?, conveyance, set));
            }
        }
        let Some((index, item)) = largest(call, limits, set) else {
            break;
        };
        let Ok(segments) = limits.segments(&call.send, core::iter::once(item.range())) else {
            break;
        };
        let with_chunk = header.with_read(segments);
        if with_chunk.check(limits).is_err() {
            break;
        }
        header = with_chunk;
        set = set.with(index);
        left = left.saturating_sub(item.reduces(call.send.len()));
    }
    // The last message of a sequence has all chunk lists, and one word of payload at least.
    let parts = left <= limits.continued_send
        && fits(header.len, 4, limits.inline_send)
        && header.check(limits).is_ok();
    if parts && is_moderate(left, limits.inline_send) {
        return Ok((header, Conveyance::Continued, set));
    }
    match plan_long(call, limits, results, (header, set)) {
        Ok(long) => Ok(long),
        Err(_) if parts => Ok((header, Conveyance::Continued, set)),
        Err(error) => Err(error),
    }
}

/// Puts what is not reduced into a Position Zero Read chunk.
//= V1-082, V1-084, V1-085, V1-086, V2-095, V2-097, V2-099
fn plan_long(
    call: &CallShape<'_>,
    limits: &Limits,
    results: Header,
    reduced: (Header, ItemSet),
) -> Result<(Header, Conveyance, ItemSet), PlanError> {
    if !limits.long_call {
        return Err(PlanError::CallTooLong);
    }
    let (header, set) = if limits.reduced_long_call {
        reduced
    } else {
        (results, ItemSet::EMPTY)
    };
    let rest = without(call.send.len(), call.arguments, set);
    let segments = limits.segments(&call.send, rest)?;
    let header = header.with_read(segments).check(limits)?;
    Ok((header, Conveyance::Long, set))
}

/// Says whether a message of `len` octets is better sent in parts than put into registered
/// memory: a few Sends cost less than a registration and an RDMA operation.
//= V2-094, V2-199
const fn is_moderate(len: u32, threshold: u32) -> bool {
    len <= threshold.saturating_mul(4)
}

/// Returns the largest argument that may become the next Read chunk.
//= V2-189
fn largest(call: &CallShape<'_>, limits: &Limits, set: ItemSet) -> Option<(usize, Item)> {
    if call.protected || set.count() >= limits.read_chunks {
        return None;
    }
    (0..ItemSet::MAX)
        .zip(call.arguments.iter().copied())
        .filter(|(index, item)| item.can_be_reduced() && !set.contains(*index))
        .max_by_key(|(_, item)| item.len)
}

/// Says how an inline Payload stream of `len` octets gets into the Send, if it can.
///
/// One element of the Send holds the header.
#[inline]
fn gather(call: &CallShape<'_>, limits: &Limits, set: ItemSet, len: u32) -> Option<Conveyance> {
    if set.is_empty() && len == call.send.head.len {
        return Some(Conveyance::Gathered);
    }
    let mut sges = 1_u32;
    let mut pages = false;
    for range in without(call.send.len(), call.arguments, set) {
        for piece in call.send.pieces(range) {
            let count = if piece.part == PartName::Pages {
                pages = true;
                let start = limits.in_page(
                    call.send
                        .pages
                        .page_offset
                        .saturating_add(piece.range.start),
                );
                let len = piece.range.end.saturating_sub(piece.range.start);
                let end = start.saturating_add(len);
                end.div_ceil(limits.page_size.max(1))
            } else {
                1
            };
            sges = sges.saturating_add(count);
        }
    }
    if sges <= limits.send_sges && !(pages && len <= limits.pull_up) {
        Some(Conveyance::Gathered)
    } else if len <= limits.pull_up {
        Some(Conveyance::Copied)
    } else {
        None
    }
}
