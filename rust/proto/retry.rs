// SPDX-License-Identifier: GPL-2.0

//! What a Requester does about an error message.
//!
//! Version 1 errors are permanent. Some version 2 errors say what would do instead; then the
//! same Call is sent once more on the same connection with the same XID. Nothing is tried
//! without end.

use crate::proto::error::ErrorReport;
use crate::proto::plan::Limits;
use crate::proto::types::Version;

/// What the Call that was refused had offered.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// It had a Position Zero Read chunk.
    pub long: bool,
    /// How many normal Read chunks it had.
    pub read_chunks: u32,
    /// The lengths of its Write chunks.
    pub write_chunks: &'a [u32],
    /// The length of its Reply chunk, 0 without one.
    pub reply_chunk: u32,
    /// How many Segments its header had.
    pub segments: u32,
}

/// How the Call is to be sent again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// With a Position Zero Read chunk instead of normal Read chunks.
    LongCall,
    /// Without any Read chunk, in several messages.
    Continuation,
    /// Without Write chunks, with a Reply chunk for the whole Reply.
    ReplyChunkOnly,
    /// With at most so many Segments.
    FewerSegments(u32),
    /// With a longer Write chunk.
    LargerWriteChunk {
        /// Which one, counted from 0.
        index: u32,
        /// How long.
        length: u32,
    },
    /// With a Reply chunk of at least so many bytes.
    LargerReplyChunk(u32),
}

impl Retry {
    /// Narrows the limits for the next plan of the Call.
    ///
    /// A longer chunk is not a matter of limits: the caller makes room for a longer Reply.
    //= V2-151, V2-155, V2-157
    pub fn apply(self, limits: &mut Limits) {
        match self {
            Self::LongCall => limits.read_chunks = 0,
            Self::Continuation => {
                limits.read_chunks = 0;
                limits.long_call = false;
            }
            Self::ReplyChunkOnly => {
                limits.write_chunks = 0;
                limits.continued_recv = 0;
            }
            Self::FewerSegments(max) => {
                limits.chunk_segments = limits.chunk_segments.min(max);
                limits.header_segments = limits.header_segments.min(max);
            }
            Self::LargerReplyChunk(_) => limits.continued_recv = 0,
            Self::LargerWriteChunk { .. } => {}
        }
    }
}

/// What a server has refused and is not asked for again.
///
/// It outlives connections. All Calls from then on are planned with what is left, first of all the one
/// that was refused. Each form of a Call is given up once, so that comes to an end.
//= V2-151, V2-155, V2-157, D-06
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Refusals {
    read_chunks: bool,
    long_calls: bool,
    write_chunks: bool,
    continued_replies: bool,
    segments: Option<u32>,
}

impl Refusals {
    /// Remembers what led to `retry`. `false`: that is known, or it changes no plan, so the RPC ends.
    pub fn add(&mut self, retry: Retry) -> bool {
        let before = *self;
        match retry {
            Retry::LongCall => self.read_chunks = true,
            Retry::Continuation => {
                self.read_chunks = true;
                self.long_calls = true;
            }
            Retry::ReplyChunkOnly => self.write_chunks = true,
            Retry::LargerReplyChunk(_) => self.continued_replies = true,
            Retry::FewerSegments(max) => self.segments = self.segments.or(Some(max)),
            Retry::LargerWriteChunk { .. } => {}
        }
        *self != before
    }

    /// Whether a Call goes again after it was refused, which led to `retry`. It was planned when this
    /// many refusals were `known`: others under way with it may have been refused for the same.
    pub fn goes_again(&mut self, retry: Retry, known: u32) -> bool {
        self.add(retry) || known < self.count()
    }

    /// How many refusals are known.
    pub fn count(&self) -> u32 {
        self.retries()
            .fold(0, |count: u32, _| count.saturating_add(1))
    }

    /// Narrows the limits of a connection to what the server takes.
    pub fn apply(&self, limits: &mut Limits) {
        for retry in self.retries() {
            retry.apply(limits);
        }
    }

    fn retries(&self) -> impl Iterator<Item = Retry> {
        [
            self.read_chunks.then_some(Retry::LongCall),
            self.long_calls.then_some(Retry::Continuation),
            self.write_chunks.then_some(Retry::ReplyChunkOnly),
            self.continued_replies.then_some(Retry::LargerReplyChunk(0)),
            self.segments.map(Retry::FewerSegments),
        ]
        .into_iter()
        .flatten()
    }
}

/// What becomes of the RPC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reaction {
    /// It ends with an error.
    Terminate,
    /// It is sent again, in another form.
    Retry(Retry),
}

/// What was tried for one RPC already, on one connection.
//= D-06, NFS-006
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    total: u8,
    kinds: u8,
}

impl Attempts {
    /// How often one RPC is sent again at most.
    pub const MAX: u8 = 2;

    fn allow(&mut self, kind: u8) -> bool {
        if self.total >= Self::MAX || self.kinds & kind != 0 {
            return false;
        }
        self.total = self.total.saturating_add(1);
        self.kinds |= kind;
        true
    }
}

/// Decides what becomes of an RPC whose Call was answered with `report`.
///
/// `most` is the longest Write or Reply chunk this side would offer. Where the memory for results
/// cannot grow, as that of a page list, it is what was offered, and the RPC ends.
//= V2-105, D-06, D-41
//= NFS-005, NFS-006, NFS-060
pub fn react(
    version: Version,
    report: ErrorReport,
    sent: &Sent<'_>,
    attempts: &mut Attempts,
    most: u32,
) -> Reaction {
    let Some((kind, retry)) = proposal(report, sent, most) else {
        return Reaction::Terminate;
    };
    //= V1-098, NFS-007, NFS-015
    if version == Version::V2 && attempts.allow(kind) {
        Reaction::Retry(retry)
    } else {
        Reaction::Terminate
    }
}

/// Returns what could be done, and a bit that stands for the kind of it.
fn proposal(report: ErrorReport, sent: &Sent<'_>, most: u32) -> Option<(u8, Retry)> {
    match report {
        //= V2-152, NFS-046
        ErrorReport::ReadChunks { .. } if sent.long || sent.read_chunks == 0 => None,
        // A Position Zero Read chunk is a Read chunk too.
        ErrorReport::ReadChunks { max_chunks: 0 } => Some((1, Retry::Continuation)),
        //= V2-151
        ErrorReport::ReadChunks { .. } => Some((1, Retry::LongCall)),
        ErrorReport::WriteChunks { .. } if sent.write_chunks.is_empty() => None,
        //= V2-155, D-07
        ErrorReport::WriteChunks { .. } => Some((2, Retry::ReplyChunkOnly)),
        //= V2-157
        ErrorReport::Segments { max_segments } => (max_segments != 0
            && sent.segments > max_segments)
            .then_some((4, Retry::FewerSegments(max_segments))),
        //= V2-159
        ErrorReport::WriteResource {
            chunk_index,
            length_needed: length,
        } => {
            let index = chunk_index.checked_sub(1)?;
            let offered = *sent.write_chunks.get(index as usize)?;
            (length > offered && length <= most)
                .then_some((8, Retry::LargerWriteChunk { index, length }))
        }
        // The peer has no Write chunks, and there was nowhere else for the Reply.
        ErrorReport::ReplyResource { .. }
            if sent.reply_chunk == 0 && !sent.write_chunks.is_empty() =>
        {
            Some((2, Retry::ReplyChunkOnly))
        }
        //= V2-161
        ErrorReport::ReplyResource { length_needed } => (length_needed > sent.reply_chunk
            && length_needed <= most)
            .then_some((16, Retry::LargerReplyChunk(length_needed))),
        //= V2-163, V2-165, D-05
        ErrorReport::Version { .. }
        | ErrorReport::BadXdr
        | ErrorReport::InvalHtype
        | ErrorReport::InvalFlag
        | ErrorReport::System
        | ErrorReport::Unknown(_) => None,
    }
}
