// SPDX-License-Identifier: GPL-2.0

//! The memory that a plan has registered.

use crate::proto::{
    requester::plan::{
        CallShape,
        Conveyance,
        First,
        PartName,
        Plan, //
    },
    wire::{
        types::Position,
        xdr::padded_len, //
    },
};
use core::ops::Range;

/// One region to register, and with it one Segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registration {
    /// The chunk that it belongs to.
    pub chunk: ChunkRole,
    /// The part of the Call, for a Read chunk, or else of the Reply, or the memory for pad.
    pub part: PartName,
    /// The bytes of that part, counted from its start.
    pub range: Range<u32>,
}

/// The chunk of a region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChunkRole {
    /// The Read chunk with this Position: the peer reads it.
    Read(Position),
    /// The Write chunk of this index: the peer writes it.
    Write(u32),
    /// The Reply chunk: the peer writes it.
    Reply,
}

/// The regions of [`Plan::registrations`].
#[derive(Clone, Debug)]
pub struct Registrations<'a> {
    plan: &'a Plan,
    call: &'a CallShape<'a>,
    /// The number of regions that are left.
    left: u32,
    many: Option<Many>,
}

/// The progress in the regions behind the first.
#[derive(Clone, Debug)]
struct Many {
    /// The index of the present range, its chunk, and the rest of the range.
    index: usize,
    chunk: ChunkRole,
    range: Range<u32>,
    /// The Segment for pad behind the range.
    pad: Option<Registration>,
}

/// The length of the Segment for pad.
const PAD_SEGMENT: u32 = 4;

/// Returns the Segment for pad behind a range.
fn pad_behind(plan: &Plan, chunk: ChunkRole, range: &Range<u32>) -> Option<Registration> {
    let len = range.end.saturating_sub(range.start);
    let has_pad = plan.pads && matches!(chunk, ChunkRole::Write(_)) && padded_len(len) != len;
    has_pad.then_some(Registration {
        chunk,
        part: PartName::Pad,
        range: 0..PAD_SEGMENT,
    })
}

impl Many {
    /// Begins behind the first region.
    fn new(plan: &Plan, call: &CallShape<'_>) -> Self {
        let (chunk, range) = first_range(plan, call);
        let First { start, end, .. } = plan.first;
        Self {
            index: 0,
            pad: pad_behind(plan, chunk, &range),
            chunk,
            range: range.start.saturating_add(end.saturating_sub(start))..range.end,
        }
    }

    fn next(&mut self, plan: &Plan, call: &CallShape<'_>) -> Option<Registration> {
        while self.range.start >= self.range.end {
            if let Some(pad) = self.pad.take() {
                return Some(pad);
            }
            self.index = self.index.saturating_add(1);
            (self.chunk, self.range) = ranges(plan, call).nth(self.index)?;
            self.pad = pad_behind(plan, self.chunk, &self.range);
        }
        let (part, range) = plan.first_region(call, self.chunk, &self.range);
        let len = range.end.saturating_sub(range.start);
        self.range.start = self.range.start.saturating_add(len);
        Some(Registration {
            chunk: self.chunk,
            part,
            range,
        })
    }
}

impl<'a> Registrations<'a> {
    #[inline]
    pub(super) const fn new(plan: &'a Plan, call: &'a CallShape<'a>) -> Self {
        Self {
            plan,
            call,
            left: plan.segments(),
            many: None,
        }
    }

    #[inline(never)]
    fn next_of_many(&mut self) -> Option<Registration> {
        let many = self
            .many
            .get_or_insert_with(|| Many::new(self.plan, self.call));
        many.next(self.plan, self.call)
    }
}

impl Iterator for Registrations<'_> {
    type Item = Registration;

    #[inline]
    fn next(&mut self) -> Option<Registration> {
        let left = self.left.checked_sub(1)?;
        let first = self.left == self.plan.segments();
        self.left = left;
        if !first {
            return self.next_of_many();
        }
        let First {
            chunk,
            part,
            start,
            end,
        } = self.plan.first;
        Some(Registration {
            chunk,
            part,
            range: start..end,
        })
    }
}

/// Returns the first of the [`ranges`] of a plan that has any. Nearly always it is the only one.
#[inline]
pub(super) fn first_range(plan: &Plan, call: &CallShape<'_>) -> (ChunkRole, Range<u32>) {
    if plan.conveyance == Conveyance::Long {
        let first = plan.payload(call).next().unwrap_or(0..0);
        return (ChunkRole::Read(Position::ZERO), first);
    }
    if plan.read_segments != 0 {
        let item = plan.reads.of(call.arguments).next().unwrap_or_default();
        return (ChunkRole::Read(Position(item.offset)), item.range());
    }
    if plan.write_segments != 0 {
        let item = plan.writes.of(call.results).next().unwrap_or_default();
        return (ChunkRole::Write(0), item.range());
    }
    (ChunkRole::Reply, 0..call.receive.len())
}

/// Returns the ranges of Call and Reply to register, in the order of the header.
//= V1-056, V1-060, V2-078
fn ranges<'a>(
    plan: &Plan,
    call: &CallShape<'a>,
) -> impl Iterator<Item = (ChunkRole, Range<u32>)> + 'a {
    //= V1-082, V2-095
    let long = (plan.conveyance == Conveyance::Long).then(|| plan.payload(call));
    let long = long.into_iter().flatten();
    let reads = plan.reads.of(call.arguments);
    //= V1-070, V2-088
    let writes = (0..u32::MAX).zip(plan.writes.of(call.results));
    let reply = plan.reply_chunk.then(|| plan.reply_payload(call));
    let reply = reply.into_iter().flatten();
    long.map(|range| (ChunkRole::Read(Position::ZERO), range))
        .chain(reads.map(|item| (ChunkRole::Read(Position(item.offset)), item.range())))
        .chain(writes.map(|(index, item)| (ChunkRole::Write(index), item.range())))
        .chain(reply.map(|range| (ChunkRole::Reply, range)))
}
