// SPDX-License-Identifier: GPL-2.0

//! Chunk lists: views of received lists, and the encoding of lists to be sent.
//!
//! [`ChunkLists::decode`] reads the lists once and checks every word of them. Its return value borrows the
//! message; its iterators cannot fail.

use crate::proto::wire::{
    error::{
        BadHeader,
        NoRoom, //
    },
    types::{
        Handle,
        Position,
        ReadSegment,
        Segment, //
    },
    xdr::{
        Reader,
        Writer, //
    },
};

impl Segment {
    /// The length of a Segment on the wire: handle, length, offset.
    //= V1-008, V2-008
    pub const ENCODED_LEN: usize = 16;

    #[inline]
    fn from_wire(wire: &[u8; Self::ENCODED_LEN]) -> Self {
        let [h0, h1, h2, h3, l0, l1, l2, l3, offset @ ..] = *wire;
        Self {
            handle: Handle(u32::from_be_bytes([h0, h1, h2, h3])),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            offset: u64::from_be_bytes(offset),
        }
    }

    #[inline(always)]
    fn to_wire(self) -> [u8; Self::ENCODED_LEN] {
        // One number, so that it is stored by words and not octet by octet.
        let handle = u128::from(self.handle.0) << 96;
        let length = u128::from(self.length) << 64;
        (handle | length | u128::from(self.offset)).to_be_bytes()
    }

    /// Checks that the last octet of a Segment has an address of at most 64 bits.
    #[inline]
    //= V1-111, V2-109
    fn check(&self) -> Result<(), BadHeader> {
        let last = u64::from(self.length.saturating_sub(1));
        match self.offset.checked_add(last) {
            Some(_) => Ok(()),
            None => Err(BadHeader::Wrap),
        }
    }
}

impl ReadSegment {
    /// The length of an element of the Read list: presence word, position, Segment.
    //= V1-009, V2-008
    pub const ENCODED_LEN: usize = 24;

    #[inline]
    fn from_wire(wire: &[u8; Self::ENCODED_LEN]) -> Self {
        let [_, _, _, _, p0, p1, p2, p3, segment @ ..] = wire;
        Self {
            position: Position(u32::from_be_bytes([*p0, *p1, *p2, *p3])),
            segment: Segment::from_wire(segment),
        }
    }

    #[inline(always)]
    fn to_wire(self) -> [u8; Self::ENCODED_LEN] {
        let mut wire = [0; Self::ENCODED_LEN];
        if let Some((start, rest)) = wire.split_first_chunk_mut() {
            *start = ((1 << 32) | u64::from(self.position.0)).to_be_bytes();
            if let Some(end) = rest.first_chunk_mut() {
                *end = self.segment.to_wire();
            }
        }
        wire
    }
}

/// The octets of a header that a Write chunk needs beside its Segments: presence word and count.
pub const WRITE_CHUNK_LEN: u32 = 8;

/// The octets that a Reply chunk needs beside its Segments and the presence word that is always
/// there: the count.
pub const REPLY_CHUNK_LEN: u32 = 4;

/// A word that says that a chunk is there, and its count of one Segment.
const ONE_OF_ONE: u64 = (1 << 32) | 1;

/// A counted array of Segments in a received header: one Write chunk, or the Reply chunk.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Whole Segments, checked.
    wire: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Returns the number of Segments.
    #[inline]
    pub const fn count(&self) -> usize {
        self.wire.len() / Segment::ENCODED_LEN
    }

    /// Returns the Segments in array order.
    #[inline]
    //= V1-066, V2-087
    pub const fn segments(&self) -> Segments<'a> {
        Segments { wire: self.wire }
    }

    /// Returns the Segment of a chunk with one Segment.
    #[inline]
    pub fn only_segment(&self) -> Option<Segment> {
        Some(Segment::from_wire(self.wire.try_into().ok()?))
    }

    /// Returns the sum of the Segments' lengths.
    #[inline]
    pub fn length(&self) -> u64 {
        self.segments()
            .fold(0, |sum: u64, s| sum.saturating_add(s.length.into()))
    }

    #[inline(always)]
    //= V1-011, V1-111, V2-109
    fn decode(reader: &mut Reader<'a>) -> Result<Self, BadHeader> {
        // A count that is too large is longer than the message.
        let count = reader.u32()? as usize;
        let wire = reader.bytes(count.saturating_mul(Segment::ENCODED_LEN))?;
        let chunk = Self { wire };
        for segment in chunk.segments() {
            segment.check()?;
        }
        Ok(chunk)
    }
}

/// The Segments of a [`Chunk`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    wire: &'a [u8],
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        let (wire, rest) = self.wire.split_first_chunk()?;
        self.wire = rest;
        Some(Segment::from_wire(wire))
    }
}

/// The Read list of a received header.
#[derive(Clone, Copy, Debug)]
pub struct ReadList<'a> {
    /// Whole elements, each with a presence word of 1; the closing 0 is cut off.
    wire: &'a [u8],
}

impl<'a> ReadList<'a> {
    /// Returns the number of read segments.
    #[inline]
    pub const fn count(&self) -> usize {
        self.wire.len() / ReadSegment::ENCODED_LEN
    }

    /// Returns whether the list is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.wire.is_empty()
    }

    /// Returns the read segments in list order.
    #[inline]
    pub const fn iter(&self) -> ReadSegments<'a> {
        ReadSegments { wire: self.wire }
    }

    #[inline(always)]
    //= V1-010, V1-058, V2-080
    fn decode(reader: &mut Reader<'a>) -> Result<Self, BadHeader> {
        let start = reader.rest();
        let mut len = 0_usize;
        while reader.present()? {
            let [p0, p1, p2, p3, segment @ ..] = reader.array::<20>()?;
            if u32::from_be_bytes([*p0, *p1, *p2, *p3]) & 3 != 0 {
                return Err(BadHeader::Unaligned);
            }
            Segment::from_wire(segment).check()?;
            len = len.saturating_add(ReadSegment::ENCODED_LEN);
        }
        let wire = start.get(..len).ok_or(BadHeader::Truncated)?;
        Ok(Self { wire })
    }
}

/// The elements of a [`ReadList`].
#[derive(Clone, Debug)]
pub struct ReadSegments<'a> {
    wire: &'a [u8],
}

impl Iterator for ReadSegments<'_> {
    type Item = ReadSegment;

    #[inline]
    fn next(&mut self) -> Option<ReadSegment> {
        let (wire, rest) = self.wire.split_first_chunk()?;
        self.wire = rest;
        Some(ReadSegment::from_wire(wire))
    }
}

/// The Write list of a received header.
#[derive(Clone, Copy, Debug)]
pub struct WriteList<'a> {
    /// Whole, checked chunks, each with a presence word of 1; the closing 0 is cut off.
    wire: &'a [u8],
}

impl<'a> WriteList<'a> {
    /// Returns the number of Write chunks. Counts them one by one.
    pub fn count(&self) -> usize {
        self.iter()
            .fold(0, |count: usize, _| count.saturating_add(1))
    }

    /// Returns whether the list is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.wire.is_empty()
    }

    /// Returns the Segment of a list with one Write chunk of one Segment.
    #[inline]
    pub fn only_segment(&self) -> Option<Segment> {
        let (start, segment) = self.wire.split_first_chunk::<8>()?;
        let segment = Segment::from_wire(segment.try_into().ok()?);
        (*start == ONE_OF_ONE.to_be_bytes()).then_some(segment)
    }

    /// Returns the Write chunks in list order.
    #[inline]
    pub const fn iter(&self) -> WriteChunks<'a> {
        WriteChunks {
            reader: Reader::new(self.wire),
        }
    }

    #[inline(always)]
    //= V1-012, V2-008
    fn decode(reader: &mut Reader<'a>) -> Result<Self, BadHeader> {
        let start = reader.rest();
        let mut len = 0_usize;
        while reader.present()? {
            Chunk::decode(reader)?;
            len = start.len().saturating_sub(reader.rest().len());
        }
        let wire = start.get(..len).ok_or(BadHeader::Truncated)?;
        Ok(Self { wire })
    }
}

/// The chunks of a [`WriteList`].
#[derive(Clone, Debug)]
pub struct WriteChunks<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for WriteChunks<'a> {
    type Item = Chunk<'a>;

    #[inline]
    fn next(&mut self) -> Option<Chunk<'a>> {
        self.reader.u32().ok()?;
        let count = self.reader.u32().ok()? as usize;
        let wire = self
            .reader
            .bytes(count.saturating_mul(Segment::ENCODED_LEN))
            .ok()?;
        Some(Chunk { wire })
    }
}

/// The lengths of the lists in a header, in bytes, without the words that end them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ListLens {
    reads: usize,
    writes: usize,
    reply: Option<usize>,
}

/// The three chunk lists of a received header, checked.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLists<'a> {
    /// The chunks that the Responder reads.
    pub reads: ReadList<'a>,
    /// The memory to which the Responder writes results.
    pub writes: WriteList<'a>,
    /// The memory to which the Responder may write a whole Reply.
    pub reply: Option<Chunk<'a>>,
}

impl<'a> ChunkLists<'a> {
    /// No chunks.
    pub const EMPTY: Self = Self {
        reads: ReadList { wire: &[] },
        writes: WriteList { wire: &[] },
        reply: None,
    };

    /// Returns how long each list is, for [`Self::reopen`].
    #[inline]
    pub fn lens(&self) -> ListLens {
        ListLens {
            reads: self.reads.wire.len(),
            writes: self.writes.wire.len(),
            reply: self.reply.map(|chunk| chunk.wire.len()),
        }
    }

    /// Takes lists of these lengths from the start of bytes that were checked before. Also returns the bytes
    /// behind the lists.
    #[inline]
    //= V1-013, V1-014
    pub fn reopen(bytes: &'a [u8], lens: &ListLens) -> Option<(Self, &'a [u8])> {
        const WORD: usize = 4;
        if *lens == ListLens::default() {
            return Some((Self::EMPTY, bytes.get(3 * WORD..)?));
        }
        let (reads, rest) = bytes.split_at_checked(lens.reads)?;
        let (writes, rest) = rest.get(WORD..)?.split_at_checked(lens.writes)?;
        let rest = rest.get(2 * WORD..)?;
        let (reply, rest) = match lens.reply {
            None => (None, rest),
            Some(len) => {
                let (wire, rest) = rest.get(WORD..)?.split_at_checked(len)?;
                (Some(Chunk { wire }), rest)
            }
        };
        let lists = Self {
            reads: ReadList { wire: reads },
            writes: WriteList { wire: writes },
            reply,
        };
        Some((lists, rest))
    }

    /// Returns whether all three lists are empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    /// Reads the lists in their order on the wire.
    #[inline(always)]
    //= V1-013, V1-014, V2-007
    //= V2-195
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, BadHeader> {
        // Most messages carry no chunk.
        let mut ahead = *reader;
        if ahead.array::<12>() == Ok(&[0; 12]) {
            *reader = ahead;
            return Ok(Self::EMPTY);
        }
        match Self::decode_one(reader) {
            Some(lists) => Ok(lists),
            None => Self::decode_chunks(reader),
        }
    }

    /// Decodes lists that have only one Write chunk or the Reply chunk, with one Segment, as most Replies with
    /// chunks have. Returns `None` for any other lists, good or bad.
    #[inline(always)]
    //= V1-011, V1-012, V1-013
    //= V1-111, V2-007, V2-109
    fn decode_one(reader: &mut Reader<'a>) -> Option<Self> {
        let mut ahead = *reader;
        if ahead.u32() != Ok(0) {
            return None;
        }
        let mut lists = Self::EMPTY;
        let segment: &[u8; Segment::ENCODED_LEN];
        let writes = ahead.rest();
        if ahead.u64() == Ok(ONE_OF_ONE) {
            segment = ahead.array().ok()?;
            if ahead.u64() != Ok(0) {
                return None;
            }
            lists.writes = WriteList {
                wire: writes.get(..24)?,
            };
        } else {
            ahead = Reader::new(writes);
            if ahead.u32() != Ok(0) || ahead.u64() != Ok(ONE_OF_ONE) {
                return None;
            }
            segment = ahead.array().ok()?;
            lists.reply = Some(Chunk { wire: segment });
        }
        Segment::from_wire(segment).check().ok()?;
        *reader = ahead;
        Some(lists)
    }

    #[inline(always)]
    fn decode_chunks(reader: &mut Reader<'a>) -> Result<Self, BadHeader> {
        let mut ahead = *reader;
        let reads = ReadList::decode(&mut ahead)?;
        let writes = WriteList::decode(&mut ahead)?;
        let reply = if ahead.present()? {
            Some(Chunk::decode(&mut ahead)?)
        } else {
            None
        };
        *reader = ahead;
        Ok(Self {
            reads,
            writes,
            reply,
        })
    }
}

/// Chunk lists that a header to be sent shall carry.
///
/// A Requester implements this for the registrations of one RPC, encodes the Call from it, and checks the
/// Reply against it. Received lists implement it, too.
pub trait Chunks {
    /// Returns the read segments. The segments of a chunk are together, chunks are by rising Position.
    fn reads(&self) -> impl Iterator<Item = ReadSegment>;

    /// Returns the Write chunks, each as its Segments.
    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>>;

    /// Returns the Segments of the Reply chunk, if there is a Reply chunk.
    fn reply(&self) -> Option<impl Iterator<Item = Segment>>;

    /// Writes the three chunk lists in their order on the wire.
    #[inline]
    //= V1-013, V1-014, V2-007
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        encode_lists(self, out)
    }
}

/// Writes the three chunk lists one after the other.
#[inline]
//= V1-013, V1-014, V2-007
pub(in crate::proto) fn encode_lists<C: Chunks + ?Sized>(
    chunks: &C,
    out: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    for read in chunks.reads() {
        out.array(&read.to_wire())?;
    }
    out.u32(0)?;
    for write in chunks.writes() {
        encode_present(out, write)?;
    }
    out.u32(0)?;
    match chunks.reply() {
        None => out.u32(0),
        Some(reply) => encode_present(out, reply),
    }
}

impl Chunks for ChunkLists<'_> {
    #[inline]
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        self.reads.iter()
    }

    #[inline]
    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        self.writes.iter().map(|chunk| chunk.segments())
    }

    #[inline]
    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        self.reply.map(|chunk| chunk.segments())
    }
}

/// No chunk at all.
#[derive(Clone, Copy, Debug)]
pub struct NoChunks;

impl Chunks for NoChunks {
    #[inline]
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        core::iter::empty()
    }

    #[inline]
    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        core::iter::empty::<core::iter::Empty<Segment>>()
    }

    #[inline]
    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        None::<core::iter::Empty<Segment>>
    }
}

/// Chunk lists that lie in slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkSlices<'a> {
    /// The read segments.
    pub reads: &'a [ReadSegment],
    /// The Write chunks.
    pub writes: &'a [&'a [Segment]],
    /// The Reply chunk.
    pub reply: Option<&'a [Segment]>,
}

impl Chunks for ChunkSlices<'_> {
    #[inline]
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        self.reads.iter().copied()
    }

    #[inline]
    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        self.writes.iter().map(|chunk| chunk.iter().copied())
    }

    #[inline]
    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        self.reply.map(|chunk| chunk.iter().copied())
    }
}

/// The numbers of Segments of chunk lists with at most one Read chunk, one Write chunk and one Reply chunk,
/// whose Segments are in this order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Layout {
    /// The position of the Read chunk.
    pub position: Position,
    /// The Segments of the Read chunk, 0 without one.
    pub reads: u32,
    /// The Segments of the Write chunk, 0 without one.
    pub writes: u32,
    /// The Segments of the Reply chunk, 0 without one.
    pub replies: u32,
}

/// Chunk lists with at most one chunk of each kind.
#[derive(Clone, Debug)]
pub struct ChunksOf<I> {
    /// The numbers of Segments of the chunks.
    pub layout: Layout,
    /// The Segments, in the order of the header.
    pub segments: I,
}

impl<I: Iterator<Item = Segment> + Clone> ChunksOf<I> {
    #[inline]
    fn segments(&self, skip: u32, count: u32) -> impl Iterator<Item = Segment> {
        let mut segments = self.segments.clone();
        for _ in 0..skip {
            segments.next();
        }
        segments.take(count as usize)
    }
}

impl<I: Iterator<Item = Segment> + Clone> Chunks for ChunksOf<I> {
    #[inline]
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        let position = self.layout.position;
        let segments = self.segments(0, self.layout.reads);
        segments.map(move |segment| ReadSegment { position, segment })
    }

    #[inline]
    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        let Layout { reads, writes, .. } = self.layout;
        (writes != 0)
            .then(|| self.segments(reads, writes))
            .into_iter()
    }

    #[inline]
    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        let Layout {
            reads,
            writes,
            replies,
            ..
        } = self.layout;
        (replies != 0).then(|| self.segments(reads.saturating_add(writes), replies))
    }

    // All lengths are known, so the Segments need be walked only once.
    #[inline]
    //= V1-013, V1-014, V2-007
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        let Layout {
            position,
            reads,
            writes,
            replies,
        } = self.layout;
        let mut segments = self.segments.clone();
        for segment in segments.by_ref().take(reads as usize) {
            out.array(&ReadSegment { position, segment }.to_wire())?;
        }
        // The words between the chunks are written together.
        match (writes, replies) {
            (0, 0) => out.array(&[0; 12]),
            (0, _) => {
                out.u64(0)?;
                encode_counted(out, replies, &mut segments)
            }
            (_, 0) => {
                out.u32(0)?;
                encode_counted(out, writes, &mut segments)?;
                out.u64(0)
            }
            (_, _) => {
                out.u32(0)?;
                encode_counted(out, writes, &mut segments)?;
                out.u32(0)?;
                encode_counted(out, replies, &mut segments)
            }
        }
    }
}

/// Chunk lists with a single Segment, as most Calls with chunks have.
#[derive(Clone, Copy, Debug)]
pub struct OneSegment {
    /// The numbers of Segments of the chunks, whose sum is 1.
    pub layout: Layout,
    /// The Segment.
    pub segment: Segment,
}

impl Chunks for OneSegment {
    #[inline]
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        let Self { layout, segment } = *self;
        let position = layout.position;
        (layout.reads != 0)
            .then_some(ReadSegment { position, segment })
            .into_iter()
    }

    #[inline]
    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        let segments = core::iter::once(self.segment);
        (self.layout.writes != 0).then_some(segments).into_iter()
    }

    #[inline]
    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        (self.layout.replies != 0).then_some(core::iter::once(self.segment))
    }

    // The length is known, so the room is checked once.
    #[inline(always)]
    //= V1-013, V1-014, V2-007
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        let Self { layout, segment } = *self;
        if layout.reads != 0 {
            let position = layout.position;
            let mut out = Writer::new(out.slot::<36>()?);
            out.array(&ReadSegment { position, segment }.to_wire())?;
            return out.array(&[0; 12]);
        }
        if layout.writes != 0 {
            let mut out = Writer::new(out.slot::<36>()?);
            out.u32(0)?;
            out.u64(ONE_OF_ONE)?;
            out.array(&segment.to_wire())?;
            return out.u64(0);
        }
        let mut out = Writer::new(out.slot::<32>()?);
        out.u64(0)?;
        out.u64(ONE_OF_ONE)?;
        out.array(&segment.to_wire())
    }
}

/// Writes the word that precedes a chunk that is present, and the chunk of the next `count` Segments.
#[inline]
//= V1-011, V1-012
fn encode_counted(
    out: &mut Writer<'_>,
    count: u32,
    segments: &mut impl Iterator<Item = Segment>,
) -> Result<(), NoRoom> {
    out.u64((1 << 32) | u64::from(count))?;
    for segment in segments.take(count as usize) {
        out.array(&segment.to_wire())?;
    }
    Ok(())
}

/// Writes the word that says a chunk is there, and the chunk.
#[inline]
//= V1-011, V1-012, V1-013
fn encode_present(
    out: &mut Writer<'_>,
    segments: impl Iterator<Item = Segment>,
) -> Result<(), NoRoom> {
    let start = out.slot::<8>()?;
    let mut written = 0_u32;
    for segment in segments {
        out.array(&segment.to_wire())?;
        written = written.saturating_add(1);
    }
    let [c0, c1, c2, c3] = written.to_be_bytes();
    *start = [0, 0, 0, 1, c0, c1, c2, c3];
    Ok(())
}
