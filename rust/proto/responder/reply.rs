// SPDX-License-Identifier: GPL-2.0

//! The conveyance of a Reply by a Responder: the decision, and the chunk lists it returns.

use crate::proto::{
    requester::plan::{
        Item,
        ItemSet,
        Ranges, //
    },
    wire::{
        chunk::{
            encode_lists,
            Chunk,
            ChunkLists,
            Chunks,
            Layout,
            OneSegment,
            REPLY_CHUNK_LEN,
            WRITE_CHUNK_LEN, //
        },
        error::{
            ErrorReport,
            NoRoom, //
        },
        header::Kind,
        types::{
            ReadSegment,
            Segment,
            Version, //
        },
        xdr::Writer, //
    },
};
use core::ops::Range;

/// The shape of a Reply before the reduction of its results.
#[derive(Clone, Copy, Debug)]
pub struct ReplyShape<'a> {
    /// The length of the RPC Reply.
    pub len: u32,
    /// One entry for each operation whose result may be DDP-eligible, in order; `None` when it
    /// returned no such item.
    pub results: &'a [Option<Item>],
    /// RPCSEC_GSS signs or encrypts the results as a whole, so none of them is reduced.
    pub protected: bool,
}

/// Returns whether RPCSEC_GSS protects the results of an RPC whose credential has this flavor, a
/// pseudoflavor (RFC 2623) for RPCSEC_GSS. Flavors without results as they are count as protected.
//= V2-193, D-42
pub const fn protects(flavor: u32) -> bool {
    // The flavors that are not RPCSEC_GSS are below (RPC_AUTH_MAXFLAVOR).
    const OTHERS: u32 = 8;
    const KRB5: u32 = 390_003;
    flavor >= OTHERS && flavor != KRB5
}

/// Returns whether results of an RPC procedure can be DDP-eligible at all: READ and READLINK of NFS
/// versions 2 and 3, and COMPOUND of version 4, which may contain them.
//= V1-108
pub(super) const fn reducible(program: u32, version: u32, procedure: u32) -> bool {
    const NFS: u32 = 100_003;
    matches!(
        (program, version, procedure),
        (NFS, 2 | 3, 5 | 6) | (NFS, 4, 1)
    )
}

/// The limits for Replies on a connection.
#[derive(Clone, Copy, Debug)]
pub struct ReplyLimits {
    /// The version of the connection.
    pub version: Version,
    /// The most bytes of one Send, header included.
    pub inline_send: u32,
    /// The most bytes of Payload stream that may be sent in several messages; 0 for version 1.
    pub continued: u32,
    /// A Reply chunk may be used; not in the reverse direction.
    pub reply_chunk: bool,
}

/// The way in which the Payload stream of a Reply is conveyed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// Behind the header.
    Inline,
    /// In the Reply chunk.
    ReplyChunk,
    /// In several messages.
    Continued,
}

/// The decision for one Reply.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The way in which the Payload stream is conveyed.
    pub form: Form,
    /// The results that go into the Write chunk of the same index.
    pub reduced: ItemSet,
    /// The length of the Payload stream.
    pub payload_len: u32,
    /// The length of the header, of the last message if there are several.
    pub header_len: u32,
    /// The only result goes into the only Segment of the only Write chunk.
    is_single: bool,
    chunks: &'a ChunkLists<'a>,
    results: &'a [Option<Item>],
    len: u32,
}

/// Decides how to convey a Reply to a Call with these chunk lists.
///
/// # Errors
///
/// Returns the error message to send if the Reply fits in no form.
#[inline(always)]
//= V1-080, NFS-008, D-08
pub fn respond<'a>(
    chunks: &'a ChunkLists<'a>,
    shape: &ReplyShape<'a>,
    limits: &ReplyLimits,
) -> Result<Response<'a>, ErrorReport> {
    let Reduction {
        reduced,
        payload_len,
        short,
        list_len,
        is_single,
    } = reduction(chunks, shape);
    if limits.version == Version::V1 && short.is_some() {
        return Err(ErrorReport::BadXdr);
    }
    let header_len = limits.version.empty_header_len().saturating_add(list_len);
    let offered = chunks.reply.filter(|_| limits.reply_chunk);
    let reply_header_len = header_len.saturating_add(offered.map_or(0, reply_chunk_len));
    let inline = fits(header_len, payload_len, limits.inline_send);
    //= V1-100, NFS-003
    let long = offered.is_some_and(|chunk| {
        chunk.length() >= u64::from(payload_len) && reply_header_len <= limits.inline_send
    });
    //= V1-078, D-38
    let prefer_long = limits.version == Version::V1 && offered.is_some();
    let form = if inline && !prefer_long {
        //= V1-079
        Form::Inline
    } else if long {
        //= V1-081, V2-098
        Form::ReplyChunk
    } else if !prefer_long
        && payload_len <= limits.continued
        && fits(header_len, 4, limits.inline_send)
    {
        //= V2-100, V2-101, V2-103
        Form::Continued
    } else {
        //= V2-104, V2-160
        //= NFS-003, NFS-004
        let length_needed = payload_len;
        return Err(match limits.version {
            Version::V1 => ErrorReport::BadXdr,
            Version::V2 => short.unwrap_or(ErrorReport::ReplyResource { length_needed }),
        });
    };
    Ok(Response {
        form,
        reduced,
        payload_len,
        header_len: match form {
            Form::ReplyChunk => reply_header_len,
            Form::Inline | Form::Continued => header_len,
        },
        is_single,
        chunks,
        results: shape.results,
        len: shape.len,
    })
}

/// The results of a Reply that leave its Payload stream.
struct Reduction {
    /// The results that go into the Write chunk of the same index.
    reduced: ItemSet,
    /// The length of the Payload stream without them.
    payload_len: u32,
    /// The error message about the first chunk that was too short, for a Payload stream that fits in no form.
    short: Option<ErrorReport>,
    /// The length of the Write list without the word that ends it.
    list_len: u32,
    /// The only result goes into the only Segment of the only Write chunk.
    is_single: bool,
}

/// Reduces the results of a Reply. A Reply to READ mostly has a single result and a single Segment for it;
/// [`reduce`] would come to the same decision.
#[inline(always)]
//= V1-073, V2-098, V2-193
//= D-42
fn reduction(chunks: &ChunkLists<'_>, shape: &ReplyShape<'_>) -> Reduction {
    if chunks.writes.is_empty() || shape.protected {
        return Reduction {
            reduced: ItemSet::EMPTY,
            payload_len: shape.len,
            short: None,
            list_len: write_list_len(chunks),
            is_single: false,
        };
    }
    match single_result(chunks, shape) {
        Some(item) => Reduction {
            reduced: ItemSet::FIRST,
            payload_len: shape.len.saturating_sub(item.reduces(shape.len)),
            short: None,
            list_len: WRITE_CHUNK_LEN.saturating_add(segments_len(1)),
            is_single: true,
        },
        None => reduce(chunks, shape),
    }
}

/// Returns the only result, if the only Segment of the only Write chunk takes it.
#[inline]
//= V1-074, NFS-038
fn single_result(chunks: &ChunkLists<'_>, shape: &ReplyShape<'_>) -> Option<Item> {
    let [Some(item)] = shape.results else {
        return None;
    };
    let segment = chunks.writes.only_segment()?;
    let is_reduced = item.len != 0 && item.len <= segment.length && item.range().end <= shape.len;
    is_reduced.then_some(*item)
}

const fn fits(header: u32, payload: u32, threshold: u32) -> bool {
    header.saturating_add(payload) <= threshold
}

/// Pairs Write chunks and results in order, until one side runs out.
///
/// An empty chunk asks for its result inline. A chunk without a result is consumed all the same. So
/// is the chunk of a result that ends behind the Reply: the server has truncated the operation, which
/// returns an error instead. And so is a chunk that is too short for its result, which stays in the
/// Payload stream.
//= V1-073, V1-074, V1-135
//= V2-093, V2-103, NFS-035
//= NFS-039
fn reduce(chunks: &ChunkLists<'_>, shape: &ReplyShape<'_>) -> Reduction {
    let mut reduced = ItemSet::EMPTY;
    let mut left = shape.len;
    let mut short = None;
    let pairs = chunks.writes.iter().zip(shape.results);
    for (index, (chunk, result)) in (0..ItemSet::MAX).zip(pairs) {
        //= NFS-038
        let Some(item) = result.filter(|item| item.range().end <= shape.len) else {
            continue;
        };
        //= NFS-037
        if chunk.count() == 0 || item.len == 0 {
            continue;
        }
        //= V2-104, V2-158
        if chunk.length() < u64::from(item.len) {
            short = short.or(Some(ErrorReport::WriteResource {
                chunk_index: u32::try_from(index).unwrap_or(0).saturating_add(1),
                length_needed: item.len,
            }));
            continue;
        }
        //= NFS-036
        reduced = reduced.with(index);
        //= V1-069
        left = left.saturating_sub(item.reduces(shape.len));
    }
    Reduction {
        reduced,
        payload_len: left,
        short,
        list_len: write_list_len(chunks),
        is_single: false,
    }
}

/// Returns the length of the Write list without the word that ends it.
fn write_list_len(chunks: &ChunkLists<'_>) -> u32 {
    chunks.writes.iter().fold(0_u32, |len, chunk| {
        len.saturating_add(WRITE_CHUNK_LEN)
            .saturating_add(array_len(chunk))
    })
}

fn reply_chunk_len(chunk: Chunk<'_>) -> u32 {
    REPLY_CHUNK_LEN.saturating_add(array_len(chunk))
}

fn array_len(chunk: Chunk<'_>) -> u32 {
    segments_len(chunk.count())
}

#[inline]
fn segments_len(count: usize) -> u32 {
    let len = count.saturating_mul(Segment::ENCODED_LEN);
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl<'a> Response<'a> {
    /// Returns the type of the header.
    //= V1-017, V2-013, V2-014
    pub const fn kind(&self) -> Kind {
        match self.form {
            Form::ReplyChunk => Kind::Nomsg,
            Form::Inline | Form::Continued => Kind::Msg,
        }
    }

    /// Returns whether the Payload stream is the whole Reply: nothing goes into Write chunks.
    pub fn is_whole(&self) -> bool {
        self.reduced == ItemSet::EMPTY
    }

    /// Returns the only result and the only Segment, if the result goes there.
    #[inline]
    fn single(&self) -> Option<(Item, Segment)> {
        match self.results {
            [Some(item)] if self.is_single => Some((*item, self.chunks.writes.only_segment()?)),
            _ => None,
        }
    }

    /// Returns whether the Payload stream is the start of the Reply, or all of it.
    #[inline]
    pub fn is_start(&self) -> bool {
        match self.single() {
            Some((item, _)) => item.extent().end >= self.len,
            None => self.is_whole(),
        }
    }

    /// Returns the pieces of the Reply that make up the Payload stream, in order.
    //= V1-069, V2-077, V2-091
    pub fn payload(&self) -> impl Iterator<Item = Range<u32>> + 'a {
        let reduced = self.reduced;
        let items = (0..ItemSet::MAX)
            .zip(self.results)
            .filter(move |(index, _)| reduced.contains(*index))
            .filter_map(|(_, result)| *result);
        Ranges::new(self.len, items)
    }

    /// Returns the RDMA Writes into Write chunks: memory of the Requester, and the range of the Reply for it.
    /// Pad is never written.
    //= V2-084, V2-186, NFS-036
    pub fn writes(&self) -> impl Iterator<Item = (Segment, Range<u32>)> + 'a {
        let reduced = self.reduced;
        (0..ItemSet::MAX)
            .zip(self.chunks.writes.iter().zip(self.results))
            .filter(move |(index, _)| reduced.contains(*index))
            .filter_map(|(_, (chunk, result))| result.map(|item| (chunk, item)))
            .flat_map(|(chunk, item)| {
                let mut at = item.offset;
                //= V1-071, V2-089
                fill(chunk.segments(), item.len)
                    .filter(|segment| segment.length != 0)
                    .map(move |segment| {
                        let start = at;
                        at = start.saturating_add(segment.length);
                        (segment, start..at)
                    })
            })
    }

    /// Returns the number of bytes that leave the message: for chunks of the Requester, and pad.
    #[inline]
    pub const fn outside(&self) -> u32 {
        match self.form {
            Form::ReplyChunk => self.len,
            Form::Inline | Form::Continued => self.len.saturating_sub(self.payload_len),
        }
    }

    /// Returns the RDMA Write of an inline Reply to a Call with a single Segment for its only result: memory of the
    /// Requester, and the range of the Reply for it.
    #[inline]
    pub fn single_write(&self) -> Option<(Segment, Range<u32>)> {
        let (item, segment) = self.single().filter(|_| self.form == Form::Inline)?;
        Some((taken_by(segment, &item), item.range()))
    }

    /// Returns the RDMA Write of a Reply that has only one: memory of the Requester, and the range of the Reply for
    /// it.
    //= V1-071, V1-083, V2-089
    //= V2-096, NFS-036
    pub fn only_write(&self) -> Option<(Segment, Range<u32>)> {
        match self.form {
            Form::Inline => self.single_write().or_else(|| only(self.writes())),
            Form::ReplyChunk if self.is_whole() => {
                only(self.reply_writes()).map(|segment| (segment, 0..segment.length))
            }
            Form::ReplyChunk | Form::Continued => None,
        }
    }

    /// Returns the Segments of the Reply chunk that take the Payload stream, with the lengths
    /// that they get.
    //= V1-083, V2-096, V2-186
    pub fn reply_writes(&self) -> impl Iterator<Item = Segment> + 'a {
        let chunk = match self.form {
            Form::ReplyChunk => self.chunks.reply,
            Form::Inline | Form::Continued => None,
        };
        let len = self.payload_len;
        chunk
            .into_iter()
            .flat_map(move |chunk| fill(chunk.segments(), len))
            .filter(|segment| segment.length != 0)
    }
}

/// Returns the part of `segment` that `item` takes, which is no longer.
#[inline]
//= V1-064, V2-085
const fn taken_by(segment: Segment, item: &Item) -> Segment {
    Segment {
        length: item.len,
        ..segment
    }
}

/// Returns the item of an iterator that has only one.
#[inline]
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let item = items.next()?;
    items.next().is_none().then_some(item)
}

/// Returns `segments` with the lengths they have when `len` bytes are put into them in order.
#[inline]
//= V1-064, V2-085, V2-090
fn fill(segments: impl Iterator<Item = Segment>, len: u32) -> impl Iterator<Item = Segment> {
    let mut left = len;
    //= V1-065, V1-067, V2-086
    segments.map(move |segment| {
        let length = segment.length.min(left);
        left = left.saturating_sub(length);
        Segment { length, ..segment }
    })
}

/// The chunk lists of the Reply's header: the Call's Write list, and the Reply chunk if it is
/// used, with the lengths that were written.
//= V1-064, V1-075, V2-085
impl Chunks for Response<'_> {
    //= V1-072
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        core::iter::empty()
    }

    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        let chunks = (0..usize::MAX).zip(self.chunks.writes.iter());
        chunks.map(|(index, chunk)| {
            //= V1-067, V2-086, D-37
            let written = match self.results.get(index) {
                Some(Some(item)) if self.reduced.contains(index) => item.len,
                _ => 0,
            };
            fill(chunk.segments(), written)
        })
    }

    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        match self.form {
            Form::ReplyChunk => self
                .chunks
                .reply
                .map(|chunk| fill(chunk.segments(), self.payload_len)),
            Form::Inline | Form::Continued => None,
        }
    }

    // Most Replies carry no chunk, or a single Segment.
    #[inline]
    //= V1-013, V1-014, V2-007
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self.single() {
            _ if self.form == Form::ReplyChunk => {}
            Some((item, segment)) => {
                let layout = Layout {
                    writes: 1,
                    ..Layout::default()
                };
                let segment = taken_by(segment, &item);
                return OneSegment { layout, segment }.encode(out);
            }
            None if self.chunks.writes.is_empty() => return out.array(&[0; 12]),
            None => {}
        }
        encode_lists(self, out)
    }
}
