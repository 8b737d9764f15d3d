// SPDX-License-Identifier: GPL-2.0

//! The Responder's check of a Call, and how the RPC message is put together again.

use crate::proto::{
    responder::reply::reducible,
    wire::{
        chunk::{
            ChunkLists,
            ListLens,
            ReadList, //
        },
        error::{
            BadHeader,
            ErrorReport, //
        },
        header::{
            Conveyed,
            FixedWords,
            Kind,
            RpcStart, //
        },
        types::{
            Handle,
            MsgType,
            Position,
            Segment,
            Version,
            Xid, //
        },
        xdr::Reader, //
    },
};
use core::ops::Range;

/// The bytes of XID and type, which every RPC message begins with.
const RPC_START: u64 = 8;

/// The bytes of an RPC Call up to its procedure.
pub const CALL_START: usize = 24;

/// The place of the length of the credential, and of its body, in an RPC Call.
const CREDENTIAL_LEN: usize = 28;
const CREDENTIAL: u64 = 32;

/// The bytes of the shortest RPC Reply, which denies the Call.
const SHORTEST_REPLY: u64 = 20;

/// The limits of a Responder for one Call.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// The version of the connection.
    pub version: Version,
    /// The number of normal Read chunks, 32 at most. With 0 there may be no Position Zero Read chunk either.
    pub read_chunks: u32,
    /// The number of Write chunks, 32 at most.
    pub write_chunks: u32,
    /// The number of Segments in one header.
    pub segments: u32,
    /// The length of one Segment in bytes.
    pub segment_bytes: u32,
    /// The length of the RPC message after its reassembly, in bytes.
    pub call_bytes: u32,
}

impl CallLimits {
    /// Returns limits for Calls in the reverse direction: these have no chunks.
    ///
    /// Version 2 permits a Reply chunk in such a Call. It is not used.
    //= V1-133, NFS-052
    pub const fn reverse(version: Version, call_bytes: u32) -> Self {
        Self {
            version,
            //= V2-171, D-49
            read_chunks: 0,
            write_chunks: 0,
            segments: 64,
            segment_bytes: u32::MAX,
            call_bytes,
        }
    }

    /// Returns the bound for Read chunks of any peer: each Read chunk costs a walk of the Read list.
    const fn max_read_chunks(&self) -> u32 {
        if self.read_chunks < 32 {
            self.read_chunks
        } else {
            32
        }
    }

    /// Reports that something is too much, in the words of the version.
    //= NFS-045, D-43
    const fn refuse(&self, report: ErrorReport) -> ErrorReport {
        match self.version {
            Version::V1 => ErrorReport::BadXdr,
            Version::V2 => report,
        }
    }
}

/// A Call that can be processed.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The place of the Payload stream.
    pub kind: Kind,
    /// The chunk lists, within the limits.
    pub chunks: ChunkLists<'a>,
    /// The length of the Payload stream, inline or in the Position Zero Read chunk.
    pub stream_len: u32,
    /// The length of the RPC message once chunks and pad are back in their places.
    pub len: u32,
    only: Option<ReadChunk>,
}

/// A Read chunk: where it belongs, and how long it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadChunk {
    /// Its Position.
    pub position: Position,
    /// The length of its Segments.
    pub len: u64,
}

impl ReadChunk {
    /// Returns the chunk of a Read list that consists of a single chunk.
    #[inline]
    fn only(reads: ReadList<'_>) -> Option<Self> {
        let mut reads = reads.iter();
        let first = reads.next()?;
        let mut len = u64::from(first.segment.length);
        for read in reads {
            if read.position != first.position {
                return None;
            }
            len = len.saturating_add(read.segment.length.into());
        }
        Some(Self {
            position: first.position,
            len,
        })
    }
}

/// The result of parsing a [`Call`], which is kept with its message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParsedCall {
    version: Version,
    kind: Kind,
    /// The bytes of the lists: where each is follows from that.
    lists: ListLens,
    stream_len: u32,
    len: u32,
    only: Option<ReadChunk>,
}

impl Default for ParsedCall {
    fn default() -> Self {
        Self {
            version: Version::V1,
            kind: Kind::Msg,
            lists: ListLens::default(),
            stream_len: 0,
            len: 0,
            only: None,
        }
    }
}

impl ParsedCall {
    /// Makes the data to be kept for `call`, which arrived in a message of `version`.
    #[inline]
    pub fn of(version: Version, call: &Call<'_>) -> Self {
        Self {
            version,
            kind: call.kind,
            lists: call.chunks.lens(),
            stream_len: call.stream_len,
            len: call.len,
            only: call.only,
        }
    }

    /// Returns the version of the message.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Opens the message again that it was kept of: its fixed words, the Call, and the bytes behind
    /// the header. Returns `None` for a message that is shorter than that was.
    #[inline]
    pub fn open<'a>(&self, message: &'a [u8]) -> Option<(FixedWords, Call<'a>, &'a [u8])> {
        let (fixed, rest) = FixedWords::split(message)?;
        let lists = match self.version {
            Version::V1 => rest.rest(),
            Version::V2 => behind_handle(rest)?,
        };
        let (chunks, payload) = ChunkLists::reopen(lists, &self.lists)?;
        let call = Call {
            kind: self.kind,
            chunks,
            stream_len: self.stream_len,
            len: self.len,
            only: self.only,
        };
        Some((fixed, call, payload))
    }

    /// Returns the handle that the Reply to a Call of version 2 may invalidate.
    //= V2-111
    pub fn inv_handle(message: &[u8]) -> Handle {
        match FixedWords::split(message) {
            Some((_, mut rest)) => {
                let handle = rest.u32().and_then(|_flags| rest.u32());
                handle.map_or(Handle::NONE, Handle)
            }
            None => Handle::NONE,
        }
    }
}

/// Returns the bytes behind flags and handle in a header of version 2.
#[cold]
fn behind_handle(rest: Reader<'_>) -> Option<&[u8]> {
    rest.rest().get(8..)
}

/// The source of the next bytes of the RPC message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// From this range of the Payload stream.
    Stream(Range<u32>),
    /// From the Requester's memory, by RDMA Read.
    Read(Segment),
    /// No memory: this number of zero bytes of pad.
    Pad(u32),
}

/// Checks a whole Call. `stream_len` is the length of its inline Payload stream, of all parts
/// together.
///
/// # Errors
///
/// Returns the error message for the Requester. The Call must not be processed then.
#[inline]
//= V1-092, V2-148, NFS-044
pub fn accept<'a>(
    conveyed: &Conveyed<'a>,
    stream_len: u32,
    limits: &CallLimits,
) -> Result<Call<'a>, ErrorReport> {
    let chunks = conveyed.chunks;
    if conveyed.kind == Kind::Msg && chunks.is_empty() {
        //= V2-071
        if stream_len > limits.call_bytes {
            return Err(limits.refuse(ErrorReport::System));
        }
        return Ok(Call {
            kind: Kind::Msg,
            chunks,
            stream_len,
            len: stream_len,
            only: None,
        });
    }
    // The caller keeps `conveyed` in registers, because no pointer to it is passed or returned.
    let CallLens {
        stream_len,
        len,
        only,
    } = accept_chunks(conveyed.kind, conveyed.payload, chunks, stream_len, limits)?;
    Ok(Call {
        kind: conveyed.kind,
        chunks: conveyed.chunks,
        stream_len,
        len,
        only,
    })
}

/// The lengths of a Call with chunks.
struct CallLens {
    stream_len: u32,
    len: u32,
    only: Option<ReadChunk>,
}

fn accept_chunks(
    kind: Kind,
    payload: &[u8],
    chunks: ChunkLists<'_>,
    inline_len: u32,
    limits: &CallLimits,
) -> Result<CallLens, ErrorReport> {
    check_segments(&chunks, limits)?;
    if limits.version == Version::V1 && kind == Kind::Msg {
        check_results(payload, &chunks)?;
    }
    let only = ReadChunk::only(chunks.reads);
    let zero = match only {
        Some(chunk) => (chunk.position == Position::ZERO).then_some(chunk.len),
        None if chunks.reads.is_empty() => None,
        None => read_chunk_len(chunks.reads, Position::ZERO),
    };
    let stream_len = match (kind, zero) {
        (Kind::Msg, None) => u64::from(inline_len),
        (Kind::Nomsg, Some(len)) => len,
        (Kind::Msg, Some(_)) => return Err(BadHeader::TwoPayloads.report()),
        (Kind::Nomsg, None) => return Err(BadHeader::NoPayload.report()),
    };
    if zero.is_some() {
        //= V2-150
        if limits.read_chunks == 0 {
            return Err(limits.refuse(ErrorReport::ReadChunks { max_chunks: 0 }));
        }
        //= D-47
        if stream_len < RPC_START {
            return Err(BadHeader::NoPayload.report());
        }
    }
    let len = match only {
        Some(chunk) if zero.is_none() => with_chunk(chunk, stream_len, limits)?,
        None if !chunks.reads.is_empty() => assembled_len(chunks.reads, stream_len, limits)?,
        _ => stream_len,
    };
    check_write_chunks(&chunks, limits)?;
    //= V2-071, V2-162, V2-185
    //= D-43
    let system = limits.refuse(ErrorReport::System);
    let len = u32::try_from(len).map_err(|_| system)?;
    let stream_len = u32::try_from(stream_len).map_err(|_| system)?;
    if len > limits.call_bytes {
        return Err(system);
    }
    Ok(CallLens {
        stream_len,
        len,
        only,
    })
}

/// Checks the number of Write chunks.
fn check_write_chunks(chunks: &ChunkLists<'_>, limits: &CallLimits) -> Result<(), ErrorReport> {
    let max_chunks = limits.write_chunks.min(32);
    if chunks.writes.count() <= max_chunks as usize {
        return Ok(());
    }
    Err(limits.refuse(match max_chunks {
        //= V2-154, D-07
        0 => ErrorReport::ReplyResource { length_needed: 0 },
        //= V2-153
        _ => ErrorReport::WriteChunks { max_chunks },
    }))
}

/// Checks the number and the lengths of Segments. Later checks walk the Read list several times, so this bounds
/// the work that a peer can cause.
//= D-25
fn check_segments(chunks: &ChunkLists<'_>, limits: &CallLimits) -> Result<(), ErrorReport> {
    let max_segments = limits.segments;
    // Lists with a bound on lengths, or with too many Segments, are walked for the first error.
    let reply = chunks.reply.map_or(0, |chunk| chunk.count());
    let others = chunks.reads.count().saturating_add(reply);
    let writes = chunks.writes.iter().map(|chunk| chunk.count());
    let count = writes.fold(others, usize::saturating_add);
    if count <= max_segments as usize && limits.segment_bytes == u32::MAX {
        return Ok(());
    }
    let mut count = 0_u32;
    let reads = chunks.reads.iter().map(|read| read.segment);
    let writes = chunks.writes.iter().flat_map(|chunk| chunk.segments());
    let reply = chunks.reply.into_iter().flat_map(|chunk| chunk.segments());
    for segment in reads.chain(writes).chain(reply) {
        count = count.saturating_add(1);
        //= V2-131, V2-156
        if count > max_segments {
            return Err(limits.refuse(ErrorReport::Segments { max_segments }));
        }
        //= V2-130
        if segment.length > limits.segment_bytes {
            return Err(limits.refuse(ErrorReport::System));
        }
    }
    Ok(())
}

/// Returns the Segments of one Read chunk, in list order.
#[inline]
//= V1-057, V2-079, NFS-033
fn read_chunk(reads: ReadList<'_>, position: Position) -> impl Iterator<Item = Segment> + '_ {
    reads
        .iter()
        .filter(move |read| read.position == position)
        .map(|read| read.segment)
}

/// Returns the length of the Read chunk at `position`, if there is one.
fn read_chunk_len(reads: ReadList<'_>, position: Position) -> Option<u64> {
    read_chunk(reads, position).fold(None, |len, segment| {
        Some(len.unwrap_or(0_u64).saturating_add(segment.length.into()))
    })
}

/// Returns the Positions of the normal Read chunks, rising, for any order of the list.
//= D-40
fn positions(reads: ReadList<'_>) -> impl Iterator<Item = Position> + '_ {
    let mut last = Position::ZERO;
    core::iter::from_fn(move || {
        last = reads
            .iter()
            .map(|read| read.position)
            .filter(|position| *position > last)
            .min()?;
        Some(last)
    })
}

fn padded(len: u64) -> u64 {
    len.saturating_add(len.wrapping_neg() & 3)
}

/// Does the work of [`assembled_len`] for one normal Read chunk.
//= V1-061, V1-111, V2-109
//= D-40, D-47
fn with_chunk(chunk: ReadChunk, stream_len: u64, limits: &CallLimits) -> Result<u64, ErrorReport> {
    //= V2-149, V2-150
    if limits.read_chunks == 0 {
        return Err(limits.refuse(ErrorReport::ReadChunks { max_chunks: 0 }));
    }
    let start = u64::from(chunk.position.0);
    if start < RPC_START || start > stream_len {
        return Err(BadHeader::Misplaced.report());
    }
    Ok(stream_len.saturating_add(padded(chunk.len)))
}

/// Returns the length of the RPC message put together.
///
/// No chunk may take the place of its XID and type, which are compared before there are chunks.
//= V1-057, V1-061, V2-079
fn assembled_len(
    reads: ReadList<'_>,
    stream_len: u64,
    limits: &CallLimits,
) -> Result<u64, ErrorReport> {
    let max_chunks = limits.max_read_chunks();
    let mut at = 0_u64;
    let mut used = 0_u64;
    let mut count = 0_u32;
    for position in positions(reads) {
        //= V2-149, V2-150
        if count == max_chunks {
            return Err(limits.refuse(ErrorReport::ReadChunks { max_chunks }));
        }
        let start = u64::from(position.0);
        let gap = start.saturating_sub(at);
        used = used.saturating_add(gap);
        //= V1-111, V2-109, D-40
        //= D-47
        if start < at.max(RPC_START) || used > stream_len {
            return Err(BadHeader::Misplaced.report());
        }
        let len = read_chunk_len(reads, position).unwrap_or(0);
        at = start.saturating_add(padded(len));
        count = count.saturating_add(1);
    }
    Ok(at.saturating_add(stream_len.saturating_sub(used)))
}

/// Returns whether a chunk at `position` has a part of the RPC header up to the end of the credential. `stream` is the
/// Payload stream.
///
/// RPCSEC_GSS computes a checksum from this part of the header (RFC 2203, 5.3.1), and sunrpc takes it for one piece of
/// memory (`svcauth_gss_verify_header`).
#[inline]
pub fn splits_credential(position: Position, stream: &[u8]) -> bool {
    let len = stream.get(CREDENTIAL_LEN..).and_then(<[u8]>::first_chunk);
    len.is_none_or(|len| {
        let len = u64::from(u32::from_be_bytes(*len));
        u64::from(position.0) < CREDENTIAL.saturating_add(padded(len))
    })
}

/// Compares the [start](CALL_START) of a Long Call, or the part of it that was read, with its
/// header.
///
/// # Errors
///
/// Returns the error message for the Requester: the message is not a Call, has another XID, or does not need
/// its chunks.
//= D-47, V1-003, V2-014
pub fn check_long(
    version: Version,
    xid: Xid,
    call: &[u8],
    chunks: &ChunkLists<'_>,
) -> Result<(), ErrorReport> {
    match RpcStart::peek(call) {
        None => Err(BadHeader::Truncated.report()),
        Some(start) if start.xid != xid => Err(BadHeader::XidMismatch.report()),
        Some(start) if start.msg_type != Some(MsgType::Call) => Err(BadHeader::Direction.report()),
        Some(_) if version == Version::V1 => check_results(call, chunks),
        Some(_) => Ok(()),
    }
}

/// Checks for chunks that the Reply of version 1 cannot use, before the Call is processed: a Write list for a
/// procedure without DDP-eligible results, and a Reply chunk that no Reply fits. `call` is the
/// [start](CALL_START) of the Call, or all of a shorter Call.
///
/// # Errors
///
/// Returns the error message for the Requester.
//= V1-100, V1-108
fn check_results(call: &[u8], chunks: &ChunkLists<'_>) -> Result<(), ErrorReport> {
    let misfit = !chunks.writes.is_empty() && has_no_results(call);
    let useless = chunks
        .reply
        .is_some_and(|chunk| chunk.length() < SHORTEST_REPLY);
    if misfit || useless {
        return Err(ErrorReport::BadXdr);
    }
    Ok(())
}

/// Returns whether a Call is of a procedure that is known to have no DDP-eligible results.
fn has_no_results(call: &[u8]) -> bool {
    // XID, type and version of RPC come first (RFC 5531).
    match words(call) {
        Some([_, 0, 2, program, version, procedure]) => !reducible(program, version, procedure),
        _ => false,
    }
}

/// Returns the first words of `bytes`.
fn words<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let mut reader = Reader::new(bytes);
    let mut words = [0; N];
    for word in &mut words {
        *word = reader.u32().ok()?;
    }
    Some(words)
}

impl<'a> Call<'a> {
    /// Returns the one Read chunk, if there is just one. It may be the Position Zero Read chunk.
    #[inline]
    pub const fn only_read_chunk(&self) -> Option<ReadChunk> {
        self.only
    }

    /// Returns the Segments of the Position Zero Read chunk, which hold the Payload stream.
    //= V1-082, V2-095
    pub fn position_zero(&self) -> impl Iterator<Item = Segment> + 'a {
        read_chunk(self.chunks.reads, Position::ZERO)
    }

    /// Returns the normal Read chunks by rising Position, each with its length.
    pub fn read_chunks(&self) -> impl Iterator<Item = (Position, u64)> + 'a {
        let reads = self.chunks.reads;
        positions(reads).map(move |p| (p, read_chunk_len(reads, p).unwrap_or(0)))
    }

    /// Returns the sources of the RPC message, from its first byte to its last.
    ///
    /// Missing pad is supplied. Segments of no bytes are skipped.
    //= V1-057, V2-079
    pub fn sources(&self) -> impl Iterator<Item = Source> + 'a {
        let reads = self.chunks.reads;
        let stream_len = self.stream_len;
        let (mut at, mut used) = (0_u64, 0_u32);
        let chunks = positions(reads).flat_map(move |position| {
            let start = u64::from(position.0);
            let len = read_chunk_len(reads, position).unwrap_or(0);
            let gap = u32::try_from(start.saturating_sub(at)).unwrap_or(u32::MAX);
            let end = used.saturating_add(gap).min(stream_len);
            let stream = Source::Stream(used..end);
            (at, used) = (start.saturating_add(padded(len)), end);
            //= V1-061, V1-062, D-39
            let pad = u32::try_from(padded(len).saturating_sub(len)).unwrap_or(0);
            core::iter::once(stream)
                .chain(read_chunk(reads, position).map(Source::Read))
                .chain(core::iter::once(Source::Pad(pad)))
        });
        let used: u64 = self.used_before_last();
        let used = u32::try_from(used).unwrap_or(stream_len);
        chunks
            .chain(core::iter::once(Source::Stream(used..stream_len)))
            .filter(|source| match source {
                Source::Stream(range) => !range.is_empty(),
                //= D-43
                Source::Read(segment) => segment.length != 0,
                Source::Pad(len) => *len != 0,
            })
    }

    /// Returns the length of the Payload stream before the end of the last Read chunk.
    fn used_before_last(&self) -> u64 {
        let (mut at, mut used) = (0_u64, 0_u64);
        for (position, len) in self.read_chunks() {
            let start = u64::from(position.0);
            used = used.saturating_add(start.saturating_sub(at));
            at = start.saturating_add(padded(len));
        }
        used
    }
}

/// Returns the parts of `segments` that hold the bytes `range`, counted over all of them.
//= V1-083, V2-186
pub fn slice(
    segments: impl Iterator<Item = Segment>,
    range: Range<u32>,
) -> impl Iterator<Item = Segment> {
    let mut start = 0_u64;
    segments.filter_map(move |segment| {
        let end = start.saturating_add(segment.length.into());
        let from = u64::from(range.start).clamp(start, end);
        let to = u64::from(range.end).clamp(start, end);
        let skip = from.saturating_sub(start);
        start = end;
        let length = u32::try_from(to.saturating_sub(from)).ok()?;
        (length != 0).then_some(Segment {
            handle: segment.handle,
            length,
            offset: segment.offset.saturating_add(skip),
        })
    })
}
