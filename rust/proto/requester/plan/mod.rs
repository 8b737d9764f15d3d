// SPDX-License-Identifier: GPL-2.0

//! The form in which a Requester conveys one RPC, decided from sizes and limits alone.
//!
//! A message is a stream of bytes that lies in the three parts of an `xdr_buf`. [`plan`] decides which
//! bytes go inline, which bytes become Read chunks, and which memory takes results. It counts the
//! Segments by arithmetic. [`Plan::registrations`] then returns the memory of each Segment once, in the
//! order of the header.
//!
//! # The decision
//!
//! `h` is the length in bytes of a header without chunks (28 in version 1). First, the Reply:
//!
//! | the largest Reply                                          | is provided for by            |
//! |------------------------------------------------------------|-------------------------------|
//! | `h` + Reply <= `inline_recv`                               | nothing: it comes inline      |
//! | no eligible result, Reply <= `continued_recv` and moderate | nothing: it comes in parts    |
//! | the rest without the Write chunks' data fits inline        | Write chunks                  |
//! | this rest is <= `continued_recv` and moderate              | Write chunks, rest in parts   |
//! | else                                                       | a Reply chunk for all of it   |
//! | else, if that has too many Segments                        | parts, up to `longest_recv`   |
//!
//! The first results get Write chunks, until the rest fits or the limit is reached. Where
//! `write_and_reply` allows it, they stay beside the Reply chunk, which is for the rest.
//!
//! Then the Call. `h` now includes the chunks for the Reply:
//!
//! | the Call                                                   | goes                          |
//! |------------------------------------------------------------|-------------------------------|
//! | `h` + Call <= `inline_send`                                | inline                        |
//! | the rest without the Read chunks' data fits inline         | with Read chunks              |
//! | this rest is <= `continued_send` and moderate              | with Read chunks, in parts    |
//! | else                                                       | Long: Position Zero chunk     |
//! | else, if that has too many Segments or is not allowed      | in parts, to `longest_send`   |
//!
//! The largest arguments become Read chunks first. Beside a Position Zero chunk they stay only
//! where `reduced_long_call` allows it. Messages that RPCSEC_GSS protects are never reduced.
//!
//! A stream is moderate if it fits into four messages. Version 1 has no parts.
//!
//! # Pad
//!
//! The XDR pad behind a reduced item leaves the Payload stream together with the item and is in
//! no chunk: the Responder supplies it to a Read chunk and never writes it into a Write chunk.
//! Hence a chunk is exactly as long as its item, also when that is no multiple of four.
//!
//! Servers from before RFC 8166 may demand room for the pad in a Write chunk. With [`Limits::pads`], a Write chunk
//! for such an item ends with a Segment for the pad ([`PartName::Pad`]), in memory that belongs to no RPC.
//!
//! # Joined Replies
//!
//! The parts of an `xdr_buf` do not meet at page boundaries, so each part has a registration of its own. A peer
//! invalidates one registration with its Reply, and the other registrations cost a LOCAL_INV each. With
//! [`Limits::joins_reply`], the Reply chunk for a Reply with whole pages is one region ([`PartName::All`]): the head
//! and the tail are placed in a page of the client, and copied when the Reply has come.
//!
//! # Example
//!
//! A READ whose data shall be placed into the page list:
//!
//! ```
//! use rpcrdma_proto::proto::requester::plan::{
//!     plan, Buf, CallShape, ChunkRole, Limits, Part, PartName, Registration,
//! };
//!
//! let part = |len| Part { len, page_offset: 0 };
//! let receive = Buf { head: part(128), pages: part(4096), tail: part(0) };
//! let data = receive.page_item();
//! let call = CallShape {
//!     send: Buf { head: part(100), ..Buf::default() },
//!     arguments: &[],
//!     receive,
//!     results: core::slice::from_ref(&data),
//!     protected: false,
//! };
//! let limits = Limits::v1(4096, 4096);
//! let plan = plan(&call, &limits).unwrap();
//! assert_eq!((plan.header_len, plan.payload_len, plan.write_segments), (28 + 24, 100, 1));
//! let mut registrations = plan.registrations(&call);
//! let Registration { chunk, part, range } = registrations.next().unwrap();
//! assert_eq!((chunk, part, range), (ChunkRole::Write(0), PartName::Pages, 0..4096));
//! assert!(registrations.next().is_none());
//! ```

mod limits;
mod registrations;
mod shape;

use crate::proto::wire::{
    chunk::{
        Layout,
        REPLY_CHUNK_LEN,
        WRITE_CHUNK_LEN, //
    },
    header::Kind,
    types::{
        Position,
        ReadSegment,
        Segment, //
    },
};
use core::ops::Range;
use limits::{
    RegionCutter,
    SegmentSizing, //
};
use registrations::first_range;

pub use limits::Limits;
pub use registrations::{
    ChunkRole,
    Registration,
    Registrations, //
};
pub use shape::{
    Buf,
    CallShape,
    Item,
    ItemSet,
    Items,
    Part,
    PartName,
    Ranges, //
};

/// The way in which the Payload stream of the Call is conveyed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Conveyance {
    /// In one Send, behind the header.
    Inline,
    /// In several Sends (version 2).
    Continued,
    /// In a Position Zero Read chunk.
    Long,
}

/// The decision for one RPC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// The way in which the Payload stream of the Call is conveyed.
    pub conveyance: Conveyance,
    /// The arguments that become Read chunks and leave the Payload stream.
    pub reads: ItemSet,
    /// The results that get a Write chunk.
    pub writes: ItemSet,
    /// The Call has a Reply chunk, for the bytes of the Reply that no Write chunk covers.
    pub reply_chunk: bool,
    /// The length of the header in bytes.
    pub header_len: u32,
    /// The length of the Call's Payload stream in bytes.
    pub payload_len: u32,
    /// The number of bytes of the Read chunks, a Position Zero Read chunk included.
    pub read_bytes: u32,
    /// The number of Segments of the Read chunks, a Position Zero Read chunk included.
    pub read_segments: u32,
    /// The number of bytes that the Write chunks hold.
    pub write_bytes: u32,
    /// The number of Segments of the Write chunks.
    pub write_segments: u32,
    /// The number of Segments of the Reply chunk.
    pub reply_segments: u32,
    /// The sum of the three.
    segments: u32,
    first: First,
    /// The size of the regions.
    cut: SegmentSizing,
    /// A region with a part of a page has no other memory.
    whole_pages: bool,
    /// A Write chunk ends with a Segment for the pad of its item.
    pads: bool,
    /// The Reply chunk is one region.
    joined: bool,
}

/// The first region to register, which nearly always is the only one. It says nothing when there
/// is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct First {
    chunk: ChunkRole,
    part: PartName,
    start: u32,
    end: u32,
}

/// The reason why an RPC cannot be conveyed on this connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlanError {
    /// A chunk would need more Segments than it may have.
    TooManySegments,
    /// The device or the peer allows no Segment.
    NoSegments,
    /// The header does not fit into a Send.
    HeaderTooLong,
    /// The returned chunk lists alone do not fit into a Receive.
    ReplyHeaderTooLong,
    /// Neither inline, nor reduced, nor in any other form allowed.
    CallTooLong,
}

impl First {
    const NONE: Self = Self {
        chunk: ChunkRole::Reply,
        part: PartName::Head,
        start: 0,
        end: 0,
    };

    /// Returns the first region of a chunk over a whole part that is not empty.
    #[inline]
    fn of_part(chunk: ChunkRole, name: PartName, part: &Part, cut: SegmentSizing) -> Self {
        Self {
            chunk,
            part: name,
            start: 0,
            end: cut.first(part, 0, part.len),
        }
    }
}

impl PlanError {
    /// Returns it in words, for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TooManySegments => "too many Segments",
            Self::NoSegments => "no Segments allowed",
            Self::HeaderTooLong => "header too long",
            Self::ReplyHeaderTooLong => "header of the Reply too long",
            Self::CallTooLong => "Call too long",
        }
    }
}

impl Plan {
    #[inline]
    const fn inline(header_len: u32, payload_len: u32) -> Self {
        Self {
            conveyance: Conveyance::Inline,
            reads: ItemSet::EMPTY,
            writes: ItemSet::EMPTY,
            reply_chunk: false,
            header_len,
            payload_len,
            read_bytes: 0,
            read_segments: 0,
            write_bytes: 0,
            write_segments: 0,
            reply_segments: 0,
            segments: 0,
            first: First::NONE,
            cut: SegmentSizing::NONE,
            whole_pages: false,
            pads: false,
            joined: false,
        }
    }

    /// Returns the type of the header.
    #[inline]
    //= V1-017, V2-014
    pub const fn kind(&self) -> Kind {
        match self.conveyance {
            Conveyance::Long => Kind::Nomsg,
            _ => Kind::Msg,
        }
    }

    /// Returns the number of Segments in the header, which is the number of registrations.
    #[inline]
    pub const fn segments(&self) -> u32 {
        self.segments
    }

    /// Returns whether the Reply chunk is one region for all parts of the Reply.
    #[inline]
    pub const fn is_joined(&self) -> bool {
        self.joined
    }

    /// Returns the number of bytes behind the header that do not come from `head[0]` of the Call.
    #[inline]
    pub const fn pulled_up(&self, call: &CallShape<'_>) -> u32 {
        match self.conveyance {
            Conveyance::Long => 0,
            _ => self.payload_len.saturating_sub(call.send.head.len),
        }
    }

    /// Returns the numbers of Segments of the chunks, of a header with at most one chunk of each kind.
    ///
    /// An RPC with at most one argument and one result has such a header, where the limits do not allow Read
    /// chunks beside a Position Zero Read chunk.
    #[inline]
    //= V1-056, V1-082, V2-095
    pub const fn layout(&self) -> Layout {
        Layout {
            position: match self.first.chunk {
                ChunkRole::Read(position) => position,
                ChunkRole::Write(_) | ChunkRole::Reply => Position::ZERO,
            },
            reads: self.read_segments,
            writes: self.write_segments,
            replies: self.reply_segments,
        }
    }

    /// Returns the number of bytes of memory that are provided for results, in Write chunks and the
    /// Reply chunk.
    #[inline]
    pub fn offered_bytes(&self, call: &CallShape<'_>) -> u32 {
        if self.reply_chunk {
            // Beside the Write chunks it covers the rest of the Reply.
            call.receive.len()
        } else {
            self.write_bytes
        }
    }

    /// Returns the ranges of the Call's stream that are its Payload stream, in order.
    ///
    /// They follow the header, or make up the Position Zero Read chunk.
    #[inline]
    //= V1-049, V1-059, V2-077
    pub const fn payload<'a>(&self, call: &CallShape<'a>) -> Ranges<Items<'a>> {
        Ranges::new(call.send.len(), self.reads.of(call.arguments))
    }

    /// Returns the ranges of the Reply's stream that the Reply chunk holds at most, in order.
    #[inline]
    //= V1-077, V2-096
    pub const fn reply_payload<'a>(&self, call: &CallShape<'a>) -> Ranges<Items<'a>> {
        Ranges::new(call.receive.len(), self.writes.of(call.results))
    }

    #[inline]
    const fn cutter(&self) -> RegionCutter {
        RegionCutter {
            cut: self.cut,
            whole_pages: self.whole_pages,
        }
    }

    /// Returns the first region of a `range` of a chunk that is not empty.
    #[inline]
    fn first_region(
        &self,
        call: &CallShape<'_>,
        chunk: ChunkRole,
        range: &Range<u32>,
    ) -> (PartName, Range<u32>) {
        match chunk {
            ChunkRole::Reply if self.joined => (PartName::All, range.clone()),
            _ => self.cutter().first_region(call.buf(chunk), range),
        }
    }

    /// Returns the memory to register: one region for each Segment, in the order of the header.
    ///
    /// There are `read_segments` regions of Read chunks by rising
    /// Position, `write_segments` of Write chunks, then `reply_segments` of the Reply chunk.
    #[inline]
    pub const fn registrations<'a>(&'a self, call: &'a CallShape<'a>) -> Registrations<'a> {
        Registrations::new(self, call)
    }
}

/// The used part of a header.
#[derive(Clone, Copy)]
struct Header {
    len: u32,
    reads: u32,
    writes: u32,
    replies: u32,
}

impl Header {
    #[inline]
    fn with_read(self, segments: u32) -> Self {
        Self {
            len: longer(self.len, 0, ReadSegment::ENCODED_LEN, segments),
            reads: self.reads.saturating_add(segments),
            ..self
        }
    }

    #[inline]
    fn with_write(self, segments: u32) -> Self {
        Self {
            len: longer(self.len, WRITE_CHUNK_LEN, Segment::ENCODED_LEN, segments),
            writes: self.writes.saturating_add(segments),
            ..self
        }
    }

    #[inline]
    fn with_reply(self, segments: u32) -> Self {
        Self {
            len: longer(self.len, REPLY_CHUNK_LEN, Segment::ENCODED_LEN, segments),
            replies: segments,
            ..self
        }
    }

    #[inline]
    const fn segments(self) -> u32 {
        self.reads
            .saturating_add(self.writes)
            .saturating_add(self.replies)
    }

    //= V2-055, D-25
    #[inline]
    const fn check(self, limits: &Limits) -> Result<Self, PlanError> {
        if self.segments() > limits.header_segments {
            Err(PlanError::TooManySegments)
        } else if self.len > limits.inline_send {
            Err(PlanError::HeaderTooLong)
        } else {
            Ok(self)
        }
    }
}

/// Returns the length of a header with one more array of Segments.
#[inline]
fn longer(len: u32, fixed: u32, each: usize, segments: u32) -> u32 {
    // The length of a header with a few thousand Segments is far from 2^32.
    let each = u32::try_from(each).unwrap_or(u32::MAX);
    len.saturating_add(fixed)
        .saturating_add(each.saturating_mul(segments))
}

/// Decides how to convey one RPC.
#[inline]
pub fn plan(call: &CallShape<'_>, limits: &Limits) -> Result<Plan, PlanError> {
    let fixed = limits.version.empty_header_len();
    let (send, receive) = (call.send.len(), call.receive.len());
    //= V1-076, NFS-001, V1-136
    let inline_reply = fits(fixed, receive, limits.inline_recv);
    let inline_call = fits(fixed, send, limits.inline_send);
    //= V1-079, V2-092
    match (inline_call, inline_reply) {
        (true, true) => Ok(Plan::inline(fixed, send)),
        (true, false) => place_reply(call, limits, send, receive),
        (false, true) => reduce_pages(call, limits, send),
        (false, false) => plan_chunks(call, limits),
    }
}

/// Decides as [`plan_chunks`] does when only the Reply is too long: by arithmetic if the data in its page
/// list are the only eligible result, or if there is no eligible result and no Reply comes in parts.
fn place_reply(
    call: &CallShape<'_>,
    limits: &Limits,
    send: u32,
    receive: u32,
) -> Result<Plan, PlanError> {
    let fixed = limits.version.empty_header_len();
    let (buf, cut) = (&call.receive, limits.cut());
    match call.results {
        _ if limits.whole_pages => {}
        [item] if limits.pad_segments(item) != 0 => {}
        [item] if !call.protected && limits.write_chunks != 0 && buf.pages_are(item) => {
            if let Some(segments) = cut.regions(&buf.pages, 0, item.len) {
                let header = longer(fixed, WRITE_CHUNK_LEN, Segment::ENCODED_LEN, segments);
                let left = receive.saturating_sub(item.reduces(receive));
                if fits(header, left, limits.inline_recv)
                    && is_within(limits, header, send, segments)
                {
                    return Ok(Plan {
                        writes: ItemSet::FIRST,
                        write_bytes: item.len,
                        write_segments: segments,
                        segments,
                        first: First::of_part(
                            ChunkRole::Write(0),
                            PartName::Pages,
                            &buf.pages,
                            cut,
                        ),
                        cut,
                        ..Plan::inline(header, send)
                    });
                }
            }
        }
        [] if limits.continued_recv == 0 => {
            // A Reply with more than one part is joined, if it can be.
            let is_joined = |count| count > 1 && limits.joins_reply && limits.joins(buf);
            if let Some(segments) = cut.all(buf).filter(|count| !is_joined(*count)) {
                let header = longer(fixed, REPLY_CHUNK_LEN, Segment::ENCODED_LEN, segments);
                if header <= limits.inline_recv && is_within(limits, header, send, segments) {
                    let (name, part) = buf.first_part();
                    return Ok(Plan {
                        reply_chunk: true,
                        reply_segments: segments,
                        segments,
                        first: First::of_part(ChunkRole::Reply, name, part, cut),
                        cut,
                        ..Plan::inline(header, send)
                    });
                }
            }
        }
        _ => {}
    }
    plan_chunks(call, limits)
}

/// Decides as [`plan_chunks`] does when only the Call is too long: by arithmetic if the data in its page
/// list are the only eligible argument.
fn reduce_pages(call: &CallShape<'_>, limits: &Limits, send: u32) -> Result<Plan, PlanError> {
    let fixed = limits.version.empty_header_len();
    let (buf, cut) = (&call.send, limits.cut());
    match call.arguments {
        _ if limits.whole_pages => {}
        [item] if !call.protected && limits.read_chunks != 0 && buf.pages_are(item) => {
            if let Some(segments) = cut.regions(&buf.pages, 0, item.len) {
                let header = longer(fixed, 0, ReadSegment::ENCODED_LEN, segments);
                let left = send.saturating_sub(item.reduces(send));
                if is_within(limits, header, left, segments) {
                    let chunk = ChunkRole::Read(Position(item.offset));
                    return Ok(Plan {
                        reads: ItemSet::FIRST,
                        read_bytes: item.len,
                        read_segments: segments,
                        segments,
                        first: First::of_part(chunk, PartName::Pages, &buf.pages, cut),
                        cut,
                        ..Plan::inline(header, left)
                    });
                }
            }
        }
        _ => {}
    }
    plan_chunks(call, limits)
}

/// Returns whether a message fits a Send, and its only chunk and header have no more Segments than
/// they may have.
#[inline]
//= V2-055, D-25
const fn is_within(limits: &Limits, header: u32, payload: u32, segments: u32) -> bool {
    fits(header, payload, limits.inline_send)
        && segments <= limits.chunk_segments
        && segments <= limits.header_segments
}

#[inline]
const fn fits(header: u32, payload: u32, threshold: u32) -> bool {
    match header.checked_add(payload) {
        Some(len) => len <= threshold,
        None => false,
    }
}

/// Decides for any message.
#[cold]
fn plan_chunks(call: &CallShape<'_>, limits: &Limits) -> Result<Plan, PlanError> {
    let empty = Header {
        len: limits.version.empty_header_len(),
        reads: 0,
        writes: 0,
        replies: 0,
    };
    let results = if fits(empty.len, call.receive.len(), limits.inline_recv) {
        Results {
            header: empty,
            set: ItemSet::EMPTY,
            reply_chunk: false,
            joined: false,
        }
    } else {
        plan_results(call, limits, empty)?
    };
    let arguments = plan_arguments(call, limits, results.header)?;
    let header = arguments.header;
    let mut plan = Plan {
        conveyance: arguments.conveyance,
        reads: arguments.set,
        writes: results.set,
        reply_chunk: results.reply_chunk,
        header_len: header.len,
        payload_len: arguments.left,
        read_bytes: match arguments.conveyance {
            // Reduced items are in chunks of their own, without their pad.
            Conveyance::Long => arguments.left.saturating_add(arguments.reduced),
            _ => arguments.reduced,
        },
        read_segments: header.reads,
        write_bytes: results
            .set
            .of(call.results)
            .map(|item| item.len)
            .fold(0, u32::saturating_add),
        write_segments: header.writes,
        reply_segments: header.replies,
        segments: header.segments(),
        first: First::NONE,
        cut: limits.cut(),
        whole_pages: limits.whole_pages,
        pads: limits.pads,
        joined: results.joined,
    };
    if plan.segments() != 0 {
        let (chunk, range) = first_range(&plan, call);
        let (part, Range { start, end }) = plan.first_region(call, chunk, &range);
        plan.first = First {
            chunk,
            part,
            start,
            end,
        };
    }
    Ok(plan)
}

/// The return of the results.
#[derive(Clone, Copy)]
struct Results {
    header: Header,
    set: ItemSet,
    reply_chunk: bool,
    /// The Reply chunk is one region.
    joined: bool,
}

/// Decides where the results and the rest of a Reply go that may exceed the threshold.
#[inline]
fn plan_results(
    call: &CallShape<'_>,
    limits: &Limits,
    empty: Header,
) -> Result<Results, PlanError> {
    let len = call.receive.len();
    let mut planned = Results {
        header: empty,
        set: ItemSet::EMPTY,
        reply_chunk: false,
        joined: false,
    };
    //= V2-199, NFS-034
    if call.results.is_empty()
        && len <= limits.continued_recv
        && prefers_parts(len, limits.inline_recv)
    {
        return Ok(planned);
    }
    let mut left = len;
    //= V2-193, D-42
    if !call.protected {
        // Chunks are matched to results in order, so the first results get them.
        for (index, item) in (0..ItemSet::MAX).zip(call.results) {
            if planned.set.count() >= limits.write_chunks || !item.can_be_reduced() {
                break;
            }
            //= V1-063, V2-083, V1-070
            let Ok(segments) = limits.segments_of_result(&call.receive, item) else {
                break;
            };
            let header = planned.header.with_write(segments);
            if header.check(limits).is_err() {
                break;
            }
            planned.header = header;
            planned.set = planned.set.with(index);
            left = left.saturating_sub(item.reduces(len));
            if fits(header.len, left, limits.inline_recv) {
                return Ok(planned);
            }
        }
    }
    let may_continue = fits(planned.header.len, 4, limits.inline_recv);
    if may_continue && left <= limits.continued_recv && prefers_parts(left, limits.inline_recv) {
        return Ok(planned);
    }
    match plan_reply_chunk(call, limits, empty, planned) {
        Err(_) if may_continue && left <= limits.longest_recv => Ok(planned),
        reply_chunk => reply_chunk,
    }
}

/// Puts the Reply into a Reply chunk, without the results whose Write chunks may stay.
//= V1-083, NFS-027, V2-102
fn plan_reply_chunk(
    call: &CallShape<'_>,
    limits: &Limits,
    empty: Header,
    mut planned: Results,
) -> Result<Results, PlanError> {
    //= D-38
    if !limits.write_and_reply {
        planned.header = empty;
        planned.set = ItemSet::EMPTY;
    }
    //= V1-077, V2-096, NFS-002
    let rest = Ranges::new(call.receive.len(), planned.set.of(call.results));
    planned.joined = planned.set.is_empty() && limits.joins(&call.receive);
    let segments = if planned.joined {
        1
    } else {
        limits.segments_of_all(&call.receive, rest)?
    };
    planned.header = planned.header.with_reply(segments);
    planned.reply_chunk = true;
    if planned.header.len > limits.inline_recv {
        return Err(PlanError::ReplyHeaderTooLong);
    }
    Ok(planned)
}

/// The conveyance of the arguments.
#[derive(Clone, Copy)]
struct Arguments {
    header: Header,
    conveyance: Conveyance,
    set: ItemSet,
    /// The number of bytes that are left of the Payload stream.
    left: u32,
    /// The number of bytes of the arguments of the set.
    reduced: u32,
}

/// Decides where the arguments go. The largest are reduced first, which needs fewest chunks.
#[inline]
fn plan_arguments(
    call: &CallShape<'_>,
    limits: &Limits,
    results: Header,
) -> Result<Arguments, PlanError> {
    let whole = Arguments {
        header: results,
        conveyance: Conveyance::Inline,
        set: ItemSet::EMPTY,
        left: call.send.len(),
        reduced: 0,
    };
    let mut planned = whole;
    loop {
        //= V1-080, V2-093
        if fits(planned.header.len, planned.left, limits.inline_send) {
            planned.header.check(limits)?;
            return Ok(planned);
        }
        let Some((index, item)) = largest(call, limits, planned.set) else {
            break;
        };
        //= V1-050, V2-076, V2-082
        let Ok(segments) = limits.segments(&call.send, item.range()) else {
            break;
        };
        let header = planned.header.with_read(segments);
        if header.check(limits).is_err() {
            break;
        }
        planned.header = header;
        planned.set = planned.set.with(index);
        planned.left = planned.left.saturating_sub(item.reduces(call.send.len()));
        planned.reduced = planned.reduced.saturating_add(item.len);
    }
    plan_without_inline(call, limits, whole, planned)
}

/// Decides about a Call whose rest does not fit into one Send: it goes in several, or in a Position Zero
/// chunk.
//= V1-081, V2-094
fn plan_without_inline(
    call: &CallShape<'_>,
    limits: &Limits,
    whole: Arguments,
    reduced: Arguments,
) -> Result<Arguments, PlanError> {
    let continued = Arguments {
        conveyance: Conveyance::Continued,
        ..reduced
    };
    // The last message of a sequence has all chunk lists, and one word of payload at least.
    let may_continue =
        fits(reduced.header.len, 4, limits.inline_send) && reduced.header.check(limits).is_ok();
    let len = reduced.left;
    if may_continue && len <= limits.continued_send && prefers_parts(len, limits.inline_send) {
        return Ok(continued);
    }
    let rest = if limits.reduced_long_call {
        reduced
    } else {
        whole
    };
    match plan_long(call, limits, rest) {
        Err(_) if may_continue && len <= limits.longest_send => Ok(continued),
        long => long,
    }
}

/// Puts the bytes that are not reduced into a Position Zero Read chunk.
//= V1-082, V2-095, V1-085
//= V2-192, V2-194
fn plan_long(
    call: &CallShape<'_>,
    limits: &Limits,
    planned: Arguments,
) -> Result<Arguments, PlanError> {
    //= V1-084, V2-097
    if !limits.long_call {
        return Err(PlanError::CallTooLong);
    }
    //= V1-086, V2-099, V2-091
    let rest = Ranges::new(call.send.len(), planned.set.of(call.arguments));
    let segments = limits.segments_of_all(&call.send, rest)?;
    Ok(Arguments {
        header: planned.header.with_read(segments).check(limits)?,
        conveyance: Conveyance::Long,
        ..planned
    })
}

/// Returns whether a message of `len` bytes is better sent in parts than put into registered
/// memory: a few Sends cost less than a registration and an RDMA operation.
//= V2-094, V2-199
#[inline]
const fn prefers_parts(len: u32, threshold: u32) -> bool {
    len <= threshold.saturating_mul(4)
}

/// Returns the largest argument that may become the next Read chunk.
#[inline]
//= V1-048, V2-068, V2-108
fn largest(call: &CallShape<'_>, limits: &Limits, set: ItemSet) -> Option<(usize, Item)> {
    //= V2-189, V2-193, D-42
    if call.protected || set.count() >= limits.read_chunks {
        return None;
    }
    let mut found: Option<(usize, Item)> = None;
    for (index, item) in (0..ItemSet::MAX).zip(call.arguments) {
        let larger = found.is_none_or(|(_, largest)| item.len >= largest.len);
        if larger && item.can_be_reduced() && !set.contains(index) {
            found = Some((index, *item));
        }
    }
    found
}
