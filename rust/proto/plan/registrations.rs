// SPDX-License-Identifier: GPL-2.0

//! The memory that a plan has registered.

use core::ops::Range;

use crate::proto::plan::limits::Cut;
use crate::proto::plan::{
    Buf,
    CallShape,
    Conveyance,
    Items,
    PartName,
    Plan,
    Ranges, //
};
use crate::proto::types::Position;

/// One region to register, and with it one Segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registration {
    /// The chunk that it belongs to.
    pub chunk: ChunkRole,
    /// The part of the Call, for a Read chunk, or else of the Reply.
    pub part: PartName,
    /// The bytes of that part, counted from its start.
    pub range: Range<u32>,
}

/// Which chunk a region belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChunkRole {
    /// The Read chunk with this Position: the peer reads it.
    Read(Position),
    /// The Write chunk of this index: the peer writes it.
    Write(u32),
    /// The Reply chunk: the peer writes it.
    Reply,
}

/// What comes after the range at hand.
#[derive(Clone, Debug)]
enum Rest<'a> {
    /// The Position Zero Read chunk.
    Long(Ranges<Items<'a>>),
    /// The Read chunks of arguments.
    Reads(Items<'a>),
    /// The Write chunks, and the index of the next one.
    Writes(Items<'a>, u32),
    /// The Reply chunk.
    Reply(Ranges<Items<'a>>),
}

/// The regions of [`Plan::registrations`].
#[derive(Clone, Debug)]
pub struct Registrations<'a> {
    plan: Plan,
    call: &'a CallShape<'a>,
    cut: Cut,
    /// What is left of the range at hand, which is in `buf` and part of `chunk`.
    range: Range<u32>,
    buf: &'a Buf,
    chunk: ChunkRole,
    rest: Rest<'a>,
}

impl<'a> Registrations<'a> {
    #[inline]
    pub(super) fn new(plan: &Plan, call: &'a CallShape<'a>, cut: Cut) -> Self {
        let rest = match plan.conveyance {
            Conveyance::Long => Rest::Long(plan.payload(call)),
            _ => Rest::Reads(plan.reads.of(call.arguments)),
        };
        Self {
            plan: *plan,
            call,
            cut,
            range: 0..0,
            buf: &call.send,
            chunk: ChunkRole::Reply,
            rest,
        }
    }

    /// Goes to the next range, or says that there is none.
    #[inline]
    //= V1-056, V1-060, V2-078
    fn go_on(&mut self) -> Option<()> {
        (self.chunk, self.buf, self.range) = loop {
            match &mut self.rest {
                //= V1-082, V2-095
                Rest::Long(ranges) => match ranges.next() {
                    Some(range) => {
                        break (ChunkRole::Read(Position::ZERO), &self.call.send, range);
                    }
                    None => self.rest = Rest::Reads(self.plan.reads.of(self.call.arguments)),
                },
                Rest::Reads(items) => match items.next() {
                    Some(item) => {
                        let position = Position(item.offset);
                        break (ChunkRole::Read(position), &self.call.send, item.range());
                    }
                    None => self.rest = Rest::Writes(self.plan.writes.of(self.call.results), 0),
                },
                //= V1-070, V2-088
                Rest::Writes(items, index) => match items.next() {
                    Some(item) => {
                        let chunk = ChunkRole::Write(*index);
                        *index = index.saturating_add(1);
                        break (chunk, &self.call.receive, item.range());
                    }
                    None if self.plan.reply_chunk => {
                        self.rest = Rest::Reply(self.plan.reply_payload(self.call));
                    }
                    None => return None,
                },
                Rest::Reply(ranges) => {
                    break (ChunkRole::Reply, &self.call.receive, ranges.next()?);
                }
            }
        };
        self.range.end = self.range.end.min(self.buf.len());
        Some(())
    }
}

impl Iterator for Registrations<'_> {
    type Item = Registration;

    #[inline]
    fn next(&mut self) -> Option<Registration> {
        while self.range.start >= self.range.end {
            self.go_on()?;
        }
        let (part, range) = self.cut.first_region(self.buf, &self.range);
        let len = range.end.saturating_sub(range.start);
        self.range.start = self.range.start.saturating_add(len);
        Some(Registration {
            chunk: self.chunk,
            part,
            range,
        })
    }
}
