// SPDX-License-Identifier: GPL-2.0

//! The reaction of a Requester to an error message.
//!
//! Version 1 errors are permanent. Some version 2 errors suggest another form; then the same Call is sent once
//! more on the same connection with the same XID. The number of attempts is bounded.

use crate::proto::{
    connection::negotiate::{
        PeerVersionMemo,
        Time, //
    },
    requester::plan::Limits,
    wire::{
        error::ErrorReport,
        types::Version, //
    },
};

/// The form of the refused Call.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// It had a Position Zero Read chunk.
    pub long: bool,
    /// The number of its normal Read chunks.
    pub read_chunks: u32,
    /// The lengths of its Write chunks.
    pub write_chunks: &'a [u32],
    /// The length of its Reply chunk, 0 without one.
    pub reply_chunk: u32,
    /// The number of Segments of the chunk with the most Segments.
    pub segments: u32,
    /// The number of Segments in its header.
    pub header_segments: u32,
}

/// The way in which the Call is sent again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// With a Position Zero Read chunk instead of normal Read chunks.
    LongCall,
    /// Without any Read chunk, in several messages.
    Continuation,
    /// Without Write chunks, with a Reply chunk for the whole Reply.
    ReplyChunkOnly,
    /// With at most this number of Segments in each chunk.
    FewerSegments(u32),
    /// With at most this number of Segments in all chunks together.
    ShorterHeader(u32),
    /// With a longer Write chunk.
    LargerWriteChunk {
        /// The index of the chunk, counted from 0.
        index: u32,
        /// The length in bytes.
        length: u32,
    },
    /// With a Reply chunk of at least this number of bytes.
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
            }
            Self::ShorterHeader(max) => {
                limits.header_segments = limits.header_segments.min(max);
            }
            Self::LargerReplyChunk(_) => limits.continued_recv = 0,
            Self::LargerWriteChunk { .. } => {}
        }
    }

    /// Returns the place among the [`Refusals`], if it narrows the limits.
    const fn place(self) -> Option<usize> {
        match self {
            Self::LongCall => Some(0),
            Self::Continuation => Some(1),
            Self::ReplyChunkOnly => Some(2),
            Self::LargerReplyChunk(_) => Some(3),
            Self::FewerSegments(_) => Some(4),
            Self::ShorterHeader(_) => Some(5),
            Self::LargerWriteChunk { .. } => None,
        }
    }

    /// Returns whether it narrows the limits further than `other` of the same kind.
    fn is_narrower(self, other: Self) -> bool {
        match (self, other) {
            (Self::FewerSegments(max), Self::FewerSegments(other))
            | (Self::ShorterHeader(max), Self::ShorterHeader(other)) => max < other,
            _ => false,
        }
    }
}

/// Returns the time for which a refusal of a server by `report` is remembered.
///
/// REPLY_RESOURCE may be about one Reply alone, and has no information about other Calls.
//= D-06
pub const fn keep(report: ErrorReport) -> Time {
    match report {
        ErrorReport::ReplyResource { .. } => Time(10_000),
        _ => PeerVersionMemo::KEEP,
    }
}

/// A form of Calls that a server has refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Refused {
    /// The form that Calls use instead.
    retry: Retry,
    /// The time when the refused form is tried again.
    until: Time,
}

/// The forms of Calls that a server has refused. They are not tried again for some minutes.
///
/// It outlives connections. All later Calls are planned without these forms, beginning with the refused Call.
//= V2-151, V2-155, V2-157
//= D-06
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Refusals {
    forms: [Option<Refused>; 6],
    /// The number of changes of the forms.
    changes: u32,
}

impl Refusals {
    /// Remembers the refusal that led to `retry`, for the time `keep`. Returns `false` if it is known already,
    /// or changes no plan.
    fn add(&mut self, retry: Retry, now: Time, keep: Time) -> bool {
        let place = retry.place();
        let Some(form) = place.and_then(|place| self.forms.get_mut(place)) else {
            return false;
        };
        let (known, until) = match *form {
            Some(form) => (Some(form.retry), form.until.max(now.after(keep))),
            None => (None, now.after(keep)),
        };
        let narrower = known.is_none_or(|known| retry.is_narrower(known));
        let retry = known.filter(|_| !narrower).unwrap_or(retry);
        *form = Some(Refused { retry, until });
        if narrower {
            self.changes = self.changes.wrapping_add(1);
        }
        narrower
    }

    /// Remembers the refusal that led to `retry`, for the time `keep`. Returns whether the refused Call is sent
    /// again. It was planned when `known` [changes](Self::changes) had been made.
    ///
    /// Other Calls in flight at that time are refused for the same reason and sent again, too. A Call that was
    /// planned with all known refusals ends if this refusal changes no plan.
    pub fn goes_again(&mut self, retry: Retry, now: Time, keep: Time, known: u32) -> bool {
        let planned = self.changes;
        self.add(retry, now, keep) || known != planned
    }

    /// Forgets old refusals. Returns whether there were any.
    pub fn expire(&mut self, now: Time) -> bool {
        let before = self.changes;
        for form in &mut self.forms {
            if form.take_if(|form| form.until <= now).is_some() {
                self.changes = self.changes.wrapping_add(1);
            }
        }
        self.changes != before
    }

    /// Returns the number of changes of plans because of refusals, which distinguishes the states
    /// of the refusals.
    pub const fn changes(&self) -> u32 {
        self.changes
    }

    /// Lowers the limits of a connection to the forms that the server accepts.
    pub fn apply(&self, limits: &mut Limits) {
        for form in self.forms.iter().flatten() {
            form.retry.apply(limits);
        }
    }
}

/// The next step of the RPC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reaction {
    /// It ends with an error.
    Terminate,
    /// It is sent again, in another form.
    Retry(Retry),
}

/// The number of times that one RPC was sent again after errors.
//= D-06, NFS-006
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Attempts(u8);

impl Attempts {
    /// The most times that one RPC is sent again: for each kind of refusal, and twice more for
    /// limits that change in between.
    pub const MAX: u8 = 8;

    fn allow(&mut self) -> bool {
        if self.0 >= Self::MAX {
            return false;
        }
        self.0 = self.0.saturating_add(1);
        true
    }
}

/// Decides about an RPC whose Call was answered with `report`.
///
/// `most` is the longest Write or Reply chunk that this side can provide. Where the memory for results cannot
/// grow, such as a page list, it is the length of the provided chunk, and the RPC ends.
//= V2-105, D-06, D-41
//= NFS-005, NFS-006, NFS-060
pub fn react(
    version: Version,
    report: ErrorReport,
    sent: &Sent<'_>,
    attempts: &mut Attempts,
    most: u32,
) -> Reaction {
    let Some(retry) = proposal(report, sent, most) else {
        return Reaction::Terminate;
    };
    //= V1-098, NFS-007, NFS-015
    if version == Version::V2 && attempts.allow() {
        Reaction::Retry(retry)
    } else {
        Reaction::Terminate
    }
}

/// Returns another form for the Call, which differs from the refused form.
fn proposal(report: ErrorReport, sent: &Sent<'_>, most: u32) -> Option<Retry> {
    match report {
        // The server takes no Read chunk at all, but the Call can be sent without any.
        ErrorReport::ReadChunks { max_chunks: 0 } if sent.long => Some(Retry::Continuation),
        //= V2-152, NFS-046
        ErrorReport::ReadChunks { .. } if sent.long || sent.read_chunks == 0 => None,
        //= V2-151
        ErrorReport::ReadChunks { .. } => Some(Retry::LongCall),
        ErrorReport::WriteChunks { .. } if sent.write_chunks.is_empty() => None,
        //= V2-155, D-07
        ErrorReport::WriteChunks { .. } => Some(Retry::ReplyChunkOnly),
        //= V2-157
        ErrorReport::Segments { max_segments } if sent.segments > max_segments => {
            Some(Retry::FewerSegments(max_segments))
        }
        ErrorReport::Segments { max_segments } => {
            (sent.header_segments > max_segments).then_some(Retry::ShorterHeader(max_segments))
        }
        //= V2-159
        ErrorReport::WriteResource {
            chunk_index,
            length_needed: length,
        } => {
            let index = chunk_index.checked_sub(1)?;
            let offered = *sent.write_chunks.get(index as usize)?;
            (length > offered && length <= most)
                .then_some(Retry::LargerWriteChunk { index, length })
        }
        // The peer has no Write chunks, and there was nowhere else for the Reply.
        ErrorReport::ReplyResource { .. }
            if sent.reply_chunk == 0 && !sent.write_chunks.is_empty() =>
        {
            Some(Retry::ReplyChunkOnly)
        }
        //= V2-161
        ErrorReport::ReplyResource { length_needed } => (length_needed > sent.reply_chunk
            && length_needed <= most)
            .then_some(Retry::LargerReplyChunk(length_needed)),
        //= V2-163, V2-165, D-05
        ErrorReport::Version { .. }
        | ErrorReport::BadXdr
        | ErrorReport::InvalHtype
        | ErrorReport::InvalFlag
        | ErrorReport::System
        | ErrorReport::Unknown(_) => None,
    }
}
