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

use core::ops::Range;

use crate::proto::chunk::{
    REPLY_CHUNK_LEN,
    WRITE_CHUNK_LEN, //
};
use crate::proto::header::Kind;
use crate::proto::types::{
    Position,
    ReadSegment,
    Segment,
    Version, //
};
use crate::proto::xdr::padded_len;

/// One part of a message: octets that are contiguous in memory but for page boundaries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Part {
    /// How many octets.
    pub len: u32,
    /// Where the first octet lies within its page.
    pub page_offset: u32,
}

/// The three parts of an `xdr_buf`, in stream order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Buf {
    /// `head[0]`.
    pub head: Part,
    /// The page list.
    pub pages: Part,
    /// `tail[0]`.
    pub tail: Part,
}

/// Names a part of a [`Buf`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PartName {
    /// `head[0]`.
    Head,
    /// The page list.
    Pages,
    /// `tail[0]`.
    Tail,
}

/// A piece of one part; `range` counts from the start of the part.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The part.
    pub part: PartName,
    /// The octets of that part.
    pub range: Range<u32>,
}

impl Buf {
    /// Returns the length of the stream.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.head
            .len
            .saturating_add(self.pages.len)
            .saturating_add(self.tail.len)
    }

    /// Says whether the stream has no octets.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the item that the page list holds.
    #[inline]
    pub const fn page_item(&self) -> Item {
        Item {
            offset: self.head.len,
            len: self.pages.len,
        }
    }

    /// Splits a range of the stream at the borders of the parts.
    #[inline]
    pub fn pieces(&self, range: Range<u32>) -> impl Iterator<Item = Piece> {
        let pages = self.head.len;
        let tail = pages.saturating_add(self.pages.len);
        [
            (PartName::Head, 0, self.head.len),
            (PartName::Pages, pages, self.pages.len),
            (PartName::Tail, tail, self.tail.len),
        ]
        .into_iter()
        .filter_map(move |(part, start, len)| {
            let from = range.start.saturating_sub(start).min(len);
            let to = range.end.saturating_sub(start).min(len);
            (from < to).then_some(Piece {
                part,
                range: from..to,
            })
        })
    }

    #[inline]
    const fn part(&self, name: PartName) -> Part {
        match name {
            PartName::Head => self.head,
            PartName::Pages => self.pages,
            PartName::Tail => self.tail,
        }
    }
}

/// An XDR item of a message that the upper-layer binding allows to be reduced.
///
/// `offset` counts in the stream and `len` is without pad. For a counted array the count is not
/// part of the item: it stays in the Payload stream.
//= V1-051, V1-053, V1-054, V1-055, V2-072, V2-073, V2-074, V2-075
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Item {
    /// Where the item starts.
    pub offset: u32,
    /// Its encoded length.
    pub len: u32,
}

impl Item {
    /// The octets that leave the Payload stream when the item is reduced: itself and its pad.
    #[inline]
    //= V1-059, V1-069, V2-077
    pub const fn extent(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(padded_len(self.len))
    }

    /// The octets of the item itself.
    #[inline]
    pub const fn range(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(self.len)
    }

    /// By how much a stream of `len` octets gets shorter when the item is reduced. The stream may
    /// end without the last item's pad.
    pub const fn reduces(&self, len: u32) -> u32 {
        let Range { start, end } = self.extent();
        let end = if end < len { end } else { len };
        end.saturating_sub(start)
    }

    //= V1-058, V2-080
    const fn can_be_reduced(&self) -> bool {
        self.len != 0 && self.offset & 3 == 0 && self.offset != 0
    }
}

/// Some of the first 32 items of a message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ItemSet(u32);

impl ItemSet {
    /// No item.
    pub const EMPTY: Self = Self(0);

    const fn bit(index: usize) -> u32 {
        if index < 32 {
            1 << index
        } else {
            0
        }
    }

    /// Returns the set with item `index`, if that is one of the first 32.
    #[inline]
    pub const fn with(self, index: usize) -> Self {
        Self(self.0 | Self::bit(index))
    }

    /// Says whether item `index` is in the set.
    #[inline]
    pub const fn contains(self, index: usize) -> bool {
        self.0 & Self::bit(index) != 0
    }

    /// Says whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns how many items are in the set.
    #[inline]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns those of `items` that are in the set.
    #[inline]
    pub fn of(self, items: &[Item]) -> impl Iterator<Item = Item> + '_ {
        items
            .iter()
            .enumerate()
            .filter(move |(index, _)| self.contains(*index))
            .map(|(_, item)| *item)
    }
}

/// What one RPC looks like.
#[derive(Clone, Copy, Debug)]
pub struct CallShape<'a> {
    /// The RPC Call.
    pub send: Buf,
    /// The DDP-eligible arguments, in stream order.
    pub arguments: &'a [Item],
    /// The largest possible RPC Reply, including verifier and everything else.
    //= V1-136, V2-191, NFS-002, NFS-019, NFS-029
    pub receive: Buf,
    /// The DDP-eligible results at their largest, in stream order.
    pub results: &'a [Item],
    /// The messages are covered by RPCSEC_GSS integrity or privacy.
    pub protected: bool,
}

/// What both peers, the device and local policy allow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The version of the connection.
    pub version: Version,
    /// The most octets of one Send, header included.
    pub inline_send: u32,
    /// The most octets of one Receive, header included.
    pub inline_recv: u32,
    /// The size of a memory page, a power of two.
    pub page_size: u32,
    /// How many pages one registration covers at most.
    pub segment_pages: u32,
    /// How many octets a Segment may name at most.
    pub segment_bytes: u32,
    /// How many Segments one chunk may have.
    pub chunk_segments: u32,
    /// How many Segments one header may have.
    pub header_segments: u32,
    /// How many normal Read chunks a Call may have.
    pub read_chunks: u32,
    /// How many Write chunks a Call may have.
    pub write_chunks: u32,
    /// Whether a Call may have a Position Zero Read chunk.
    pub long_call: bool,
    /// Whether normal Read chunks may stand beside a Position Zero Read chunk.
    pub reduced_long_call: bool,
    /// Whether one Call may have a Write list and a Reply chunk.
    pub write_and_reply: bool,
    /// How many octets of Payload stream may be sent in several messages; 0 for version 1.
    pub continued_send: u32,
    /// How many octets of Payload stream may be received in several messages; 0 for version 1.
    pub continued_recv: u32,
    /// How many scatter/gather elements a Send has.
    pub send_sges: u32,
    /// Up to which length an inline Payload stream is copied into the Send buffer rather than
    /// gathered from where it lies.
    pub pull_up: u32,
}

impl Limits {
    /// The chunk limits that every server of the NFS upper-layer binding accepts.
    //= NFS-041, NFS-042, NFS-043, NFS-047
    pub const NFS_SAFE_SEGMENTS: u32 = 16;

    /// Returns limits for version 1 with a peer of which only the thresholds are known.
    //= NFS-041, NFS-042, NFS-043, D-38, V1-019
    pub const fn v1(inline_send: u32, inline_recv: u32) -> Self {
        Self {
            version: Version::V1,
            inline_send,
            inline_recv,
            page_size: 4096,
            segment_pages: 256,
            segment_bytes: u32::MAX,
            chunk_segments: Self::NFS_SAFE_SEGMENTS,
            header_segments: u32::MAX,
            read_chunks: 1,
            write_chunks: 1,
            long_call: true,
            reduced_long_call: false,
            write_and_reply: false,
            continued_send: 0,
            continued_recv: 0,
            send_sges: 3,
            pull_up: u32::MAX,
        }
    }

    const fn whole_pages(&self) -> u32 {
        let allowed = match self.segment_bytes.checked_div(self.page_size) {
            Some(pages) => pages,
            None => 0,
        };
        if allowed < self.segment_pages {
            allowed
        } else {
            self.segment_pages
        }
    }

    const fn in_page(&self, offset: u32) -> u32 {
        match offset.checked_rem(self.page_size) {
            Some(offset) => offset,
            None => 0,
        }
    }

    /// Splits a range of the stream into the regions to register, one Segment each.
    ///
    /// A region never spans two parts, and has at most [`segment_pages`](Self::segment_pages)
    /// pages and [`segment_bytes`](Self::segment_bytes) octets.
    #[inline]
    //= V2-069, V2-070, V2-130, D-25
    pub fn cut<'a>(&'a self, buf: &'a Buf, range: Range<u32>) -> impl Iterator<Item = Piece> + 'a {
        let step = self.whole_pages().saturating_mul(self.page_size);
        buf.pieces(range).flat_map(move |piece| {
            let base = buf.part(piece.part).page_offset;
            let mut next = piece.range.start;
            core::iter::from_fn(move || {
                let from = next;
                if from >= piece.range.end || step == 0 {
                    return None;
                }
                let first = step.saturating_sub(self.in_page(base.saturating_add(from)));
                next = from.saturating_add(first).min(piece.range.end);
                Some(Piece {
                    part: piece.part,
                    range: from..next,
                })
            })
        })
    }

    /// Counts the Segments of a chunk over `ranges`, or says that no chunk can hold them.
    fn segments(
        &self,
        buf: &Buf,
        ranges: impl Iterator<Item = Range<u32>>,
    ) -> Result<u32, PlanError> {
        if self.whole_pages() == 0 {
            return Err(PlanError::NoSegments);
        }
        let most = self.chunk_segments;
        let mut count = 0_u32;
        for range in ranges {
            for _ in self.cut(buf, range) {
                count = count.saturating_add(1);
                if count > most {
                    return Err(PlanError::TooManySegments);
                }
            }
        }
        Ok(count)
    }
}

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
    if limits.continued_recv != 0 && call.results.is_empty() && len <= limits.continued_recv {
        return Ok((empty, ItemSet::EMPTY, false));
    }
    // Chunks are matched to results in order, so a prefix of the results gets them.
    let mut header = empty;
    let mut set = ItemSet::EMPTY;
    let mut left = len;
    if !call.protected {
        for (index, item) in call.results.iter().enumerate() {
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
    if left <= limits.continued_recv && header.len < limits.inline_recv {
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
    if left <= limits.continued_send && fits(header.len, 4, limits.inline_send) {
        return Ok((header.check(limits)?, Conveyance::Continued, set));
    }
    if !limits.long_call {
        return Err(PlanError::CallTooLong);
    }
    if !limits.reduced_long_call {
        (header, set) = (results, ItemSet::EMPTY);
    }
    let rest = without(call.send.len(), call.arguments, set);
    let segments = limits.segments(&call.send, rest)?;
    let header = header.with_read(segments).check(limits)?;
    Ok((header, Conveyance::Long, set))
}

/// Returns the largest argument that may become the next Read chunk.
//= V2-189
fn largest(call: &CallShape<'_>, limits: &Limits, set: ItemSet) -> Option<(usize, Item)> {
    if call.protected || set.count() >= limits.read_chunks {
        return None;
    }
    call.arguments
        .iter()
        .copied()
        .enumerate()
        .take(32)
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
