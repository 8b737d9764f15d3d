// SPDX-License-Identifier: GPL-2.0

//! Messages in several parts (version 2): reassembly of arriving parts, and cutting of messages to send.
//!
//! The caller owns the memory of a joined message, and gets the offset of each part.

use crate::proto::wire::{
    error::BadHeader,
    header::RpcStart,
    types::{
        Version,
        Xid, //
    },
};
use core::ops::Range;

/// The content of a sequence of messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Content {
    /// An RPC message; `response` is the flag of its headers.
    Rpc {
        /// It is a Reply.
        response: bool,
    },
    /// A property set.
    Properties,
}

/// A sequence of which more is to come.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// The XID of all its messages.
    pub xid: Xid,
    /// Its content.
    pub content: Content,
    len: u32,
    start: [u8; 8],
    /// The sequence has failed, so its remaining messages are discarded.
    failed: bool,
}

impl Sequence {
    /// Returns whether the remaining messages of the sequence are discarded.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }
}

/// A part that arrived in its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlacedPart {
    /// The offset of the part in the joined content.
    pub offset: u32,
    /// The length of the content with this part.
    pub len: u32,
    /// The first words of the content, once they are there.
    pub start: Option<RpcStart>,
    /// The sequence failed before; the part has no use.
    pub swallowed: bool,
}

/// The sequence that the peer has open.
//= V2-032, V2-033, V2-037
//= V2-040, V2-041, D-14
//= D-15, D-17, D-26
#[derive(Clone, Copy, Debug)]
pub struct Assembler {
    open: Option<Sequence>,
}

impl Assembler {
    /// Starts without a sequence.
    pub const fn new() -> Self {
        Self { open: None }
    }

    /// Returns whether no sequence is open.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        self.open.is_none()
    }

    /// Returns the open sequence.
    #[inline]
    pub const fn open(&self) -> Option<Sequence> {
        self.open
    }

    /// Drops the open sequence and returns it.
    pub fn abandon(&mut self) -> Option<Sequence> {
        self.open.take()
    }

    /// Lets the rest of the open sequence pass without effect.
    pub fn fail(&mut self) {
        if let Some(sequence) = &mut self.open {
            sequence.failed = true;
        }
    }

    /// Takes a message in. It has to belong to the open sequence, if there is one.
    ///
    /// # Errors
    ///
    /// [`BadHeader::BrokenSequence`] when it does not, [`BadHeader::Truncated`] for a first part that
    /// is too short, and [`BadHeader::NoPayload`] for an empty one that is not the last. A message
    /// that is no part of a sequence may be empty here.
    #[inline]
    //= V2-032, V2-033, D-15
    //= D-17
    pub fn add(
        &mut self,
        xid: Xid,
        content: Content,
        payload: &[u8],
        more: bool,
    ) -> Result<PlacedPart, BadHeader> {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if self.open.is_none() && !more {
            return Ok(PlacedPart {
                offset: 0,
                len,
                start: RpcStart::peek(payload),
                swallowed: false,
            });
        }
        self.add_part(xid, content, payload, more)
    }

    fn add_part(
        &mut self,
        xid: Xid,
        content: Content,
        payload: &[u8],
        more: bool,
    ) -> Result<PlacedPart, BadHeader> {
        let mut sequence = match self.open {
            Some(open) if open.xid != xid || open.content != content => {
                return Err(BadHeader::BrokenSequence)
            }
            Some(_) if more && payload.is_empty() => return Err(BadHeader::NoPayload),
            Some(open) => open,
            None if payload.len() < 4 => return Err(BadHeader::Truncated),
            None => Sequence {
                xid,
                content,
                len: 0,
                start: [0; 8],
                failed: false,
            },
        };
        let offset = sequence.len;
        // The first words may be spread over several parts.
        let missing = sequence.start.iter_mut().skip(offset as usize);
        for (to, from) in missing.zip(payload) {
            *to = *from;
        }
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        sequence.len = offset.saturating_add(len);
        self.open = more.then_some(sequence);
        Ok(PlacedPart {
            offset,
            len: sequence.len,
            start: if sequence.len >= 8 {
                RpcStart::peek(&sequence.start)
            } else {
                None
            },
            swallowed: sequence.failed,
        })
    }
}

impl Default for Assembler {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the pieces, or their parts, that are the bytes `range` of all `pieces` together.
pub fn part(
    pieces: impl Iterator<Item = Range<u32>>,
    range: Range<u32>,
) -> impl Iterator<Item = Range<u32>> {
    let mut start = 0_u32;
    pieces.filter_map(move |piece| {
        let end = start.saturating_add(piece.end.saturating_sub(piece.start));
        let from = range.start.clamp(start, end).saturating_sub(start);
        let to = range.end.clamp(start, end).saturating_sub(start);
        start = end;
        (from < to).then(|| piece.start.saturating_add(from)..piece.start.saturating_add(to))
    })
}

/// One message of a sequence to be sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MessagePart {
    /// The bytes of the Payload stream that it carries.
    pub range: Range<u32>,
    /// Another message follows.
    pub more: bool,
}

/// Cuts a Payload stream into messages: each is filled, and cut at a multiple of four.
///
/// The chunk lists stand in the last message only.
//= V2-035, V2-036, V2-040
//= V2-041, V2-042, V2-094
//= D-17
#[derive(Clone, Copy, Debug)]
pub struct PartSplitter {
    len: u32,
    threshold: u32,
    last_header: u32,
    at: u32,
}

impl PartSplitter {
    /// Prepares to cut `len` bytes for Sends of at most `threshold` bytes, when the header of
    /// the last message has `last_header`.
    pub const fn new(len: u32, threshold: u32, last_header: u32) -> Self {
        Self {
            len,
            threshold,
            last_header,
            at: 0,
        }
    }

    /// Returns the number of messages from here on.
    pub fn count(mut self) -> u32 {
        let mut count = 0_u32;
        while self.next_part().is_some() {
            count = count.saturating_add(1);
        }
        count
    }

    /// Returns the next message, or `None` when all is sent or nothing fits.
    pub fn next_part(&mut self) -> Option<MessagePart> {
        let left = self.len.saturating_sub(self.at);
        if left == 0 {
            return None;
        }
        let last_room = self.threshold.saturating_sub(self.last_header);
        let more = left > last_room;
        let len = if more {
            let room = self
                .threshold
                .saturating_sub(Version::V2.empty_header_len());
            // Something has to be left for the last message.
            room.min(left.saturating_sub(1)) & !3
        } else {
            left
        };
        if len == 0 || last_room < 4 {
            return None;
        }
        let start = self.at;
        self.at = start.saturating_add(len);
        Some(MessagePart {
            range: start..self.at,
            more,
        })
    }
}
