// SPDX-License-Identifier: GPL-2.0

//! The limits of a plan, and the division of memory into Segments.

use crate::proto::{
    requester::plan::{
        Buf,
        Item,
        Part,
        PartName,
        PlanError, //
    },
    wire::types::Version, //
};
use core::ops::Range;

/// The limits of both peers, of the device and of local policy.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The version of the connection.
    pub version: Version,
    /// The most bytes of one Send, header included.
    //= V1-019, V2-055
    pub inline_send: u32,
    /// The most bytes of one Receive, header included.
    pub inline_recv: u32,
    /// The size of a memory page, a power of two.
    pub page_size: u32,
    /// The most pages of one registration.
    pub segment_pages: u32,
    /// The most bytes of a Segment.
    //= V2-130, D-25
    pub segment_bytes: u32,
    /// A registration with a part of a page has no other memory, because the device joins whole pages only.
    pub whole_pages: bool,
    /// A registration may have a whole Reply whose page list has whole pages ([`PartName::All`]).
    pub joins_reply: bool,
    /// The most Segments of one chunk.
    pub chunk_segments: u32,
    /// The most Segments of one header.
    //= D-25
    pub header_segments: u32,
    /// The most normal Read chunks of a Call.
    pub read_chunks: u32,
    /// The most Write chunks of a Call.
    pub write_chunks: u32,
    /// A Call may have a Position Zero Read chunk.
    pub long_call: bool,
    /// A Call may have normal Read chunks and a Position Zero Read chunk.
    pub reduced_long_call: bool,
    /// A Call may have a Write list and a Reply chunk.
    pub write_and_reply: bool,
    /// A Write chunk has room for the pad of its item: a Segment of its own. Never in version 2, where a peer may
    /// limit a Segment to fewer bytes than a pad has.
    //= D-54
    pub pads: bool,
    /// The most bytes of Payload stream that may be sent in several messages; 0 for version 1.
    //= V2-129
    pub continued_send: u32,
    /// The most bytes of Payload stream that may be received in several messages; 0 for version 1.
    pub continued_recv: u32,
    /// The most bytes that may be sent in several messages when no chunk can hold them.
    pub longest_send: u32,
    /// The most bytes that may be received in several messages when no chunk can hold them.
    pub longest_recv: u32,
}

impl Limits {
    /// The chunk limits that every server of the NFS upper-layer binding accepts.
    //= NFS-043
    pub const NFS_SAFE_SEGMENTS: u32 = 16;

    /// Returns limits for version 1 with a peer of which only the thresholds are known.
    pub const fn v1(inline_send: u32, inline_recv: u32) -> Self {
        Self {
            version: Version::V1,
            inline_send,
            inline_recv,
            page_size: 4096,
            segment_pages: 256,
            segment_bytes: u32::MAX,
            whole_pages: false,
            joins_reply: false,
            //= NFS-043
            chunk_segments: Self::NFS_SAFE_SEGMENTS,
            //= NFS-040
            header_segments: u32::MAX,
            //= NFS-041, NFS-042
            read_chunks: 1,
            write_chunks: 1,
            long_call: true,
            reduced_long_call: false,
            //= D-38
            write_and_reply: false,
            pads: false,
            continued_send: 0,
            continued_recv: 0,
            longest_send: 0,
            longest_recv: 0,
        }
    }

    /// Returns the limits for a device that joins whole pages only.
    ///
    /// A chunk may have two Segments more, for a page list that begins and ends within a page. A header
    /// has no more Segments than an RPC has registrations.
    pub const fn of_whole_pages(self) -> Self {
        let both = self.chunk_segments.saturating_mul(2);
        Self {
            whole_pages: true,
            header_segments: if both < self.header_segments {
                both
            } else {
                self.header_segments
            },
            chunk_segments: self.chunk_segments_and(2),
            ..self
        }
    }

    /// Returns the limits for a server that may demand room for pad: a chunk may have a Segment more.
    pub(in crate::proto) const fn with_pads(self) -> Self {
        Self {
            pads: true,
            chunk_segments: self.chunk_segments_and(1),
            ..self
        }
    }

    /// Returns the limit of Segments in a chunk with `more`, unless that is more than NFS servers accept.
    const fn chunk_segments_and(&self, more: u32) -> u32 {
        let sum = self.chunk_segments.saturating_add(more);
        if sum <= Self::NFS_SAFE_SEGMENTS {
            sum
        } else {
            self.chunk_segments
        }
    }

    /// Returns whether a Reply chunk over all of `buf` is one region. The page list has whole pages, and the bytes
    /// around them fit into one page.
    #[cold]
    pub(super) const fn joins(&self, buf: &Buf) -> bool {
        let mask = self.page_size.saturating_sub(1);
        let Some(pages) = buf.pages.len.checked_div(self.page_size) else {
            return false;
        };
        self.joins_reply
            && pages != 0
            && buf.head.len != 0
            && (buf.pages.len | buf.pages.page_offset) & mask == 0
            && buf.head.len.saturating_add(buf.tail.len) <= self.page_size
            && pages.saturating_add(2) <= self.segment_pages
            && buf.len() <= self.segment_bytes
            && self.chunk_segments != 0
            && !self.whole_pages
    }

    /// Returns the number of Segments for the pad of a result.
    #[inline]
    pub(super) const fn pad_segments(&self, item: &Item) -> u32 {
        (self.pads && item.has_pad()) as u32
    }

    /// Returns the size of the regions that memory is cut into.
    #[inline]
    pub(super) fn cut(&self) -> SegmentSizing {
        // A peer may take less than a page of ours; then a page is cut into several Segments.
        let mask = if self.segment_bytes < self.page_size {
            let ones = u32::MAX.checked_shr(self.segment_bytes.leading_zeros());
            ones.unwrap_or(0) >> 1
        } else {
            self.page_size.saturating_sub(1)
        };
        let pages = self.segment_pages.saturating_mul(self.page_size);
        SegmentSizing {
            step: pages.min(self.segment_bytes) & !mask,
            mask,
        }
    }

    /// Counts the Segments of a chunk over one range, or says that no chunk can hold it.
    #[inline]
    pub(super) fn segments(&self, buf: &Buf, range: Range<u32>) -> Result<u32, PlanError> {
        self.segments_of_all(buf, core::iter::once(range))
    }

    /// Counts the Segments of the Write chunk of a result, with the Segment for its pad, or says that no chunk can
    /// hold it.
    #[inline]
    pub(super) fn segments_of_result(&self, buf: &Buf, item: &Item) -> Result<u32, PlanError> {
        let segments = self.segments(buf, item.range())?;
        let count = segments.saturating_add(self.pad_segments(item));
        if count <= self.chunk_segments {
            Ok(count)
        } else {
            Err(PlanError::TooManySegments)
        }
    }

    /// Counts the Segments of a chunk over `ranges`, or says that no chunk can hold them.
    #[inline]
    pub(super) fn segments_of_all(
        &self,
        buf: &Buf,
        ranges: impl Iterator<Item = Range<u32>>,
    ) -> Result<u32, PlanError> {
        let cutter = RegionCutter {
            cut: self.cut(),
            whole_pages: self.whole_pages,
        };
        let mut count = 0_u32;
        for range in ranges {
            let segments = cutter.segments(buf, &range).ok_or(PlanError::NoSegments)?;
            count = count.saturating_add(segments);
        }
        if count <= self.chunk_segments {
            Ok(count)
        } else {
            Err(PlanError::TooManySegments)
        }
    }
}

/// The size of the regions to register, one Segment each.
///
/// A region never spans two parts. It ends `step` bytes after the start of its first page at the
/// latest, so it has no more pages and no more bytes than a Segment may have. The next region of
/// the part begins at a page boundary.
//= V2-069, V2-070, V2-130
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SegmentSizing {
    /// The most bytes of a region, 0 if no region is allowed: whole pages, of which `mask` is
    /// the size less 1.
    step: u32,
    mask: u32,
}

impl SegmentSizing {
    /// No region is allowed.
    pub(super) const NONE: Self = Self { step: 0, mask: 0 };

    /// Returns the length of the first region of `len` bytes from `offset` of `part`.
    #[inline]
    pub(super) const fn first(self, part: &Part, offset: u32, len: u32) -> u32 {
        let most = self.step.saturating_sub(self.in_page(part, offset));
        if most < len {
            most
        } else {
            len
        }
    }

    /// Returns the place of `offset` of `part` in its page.
    #[inline]
    const fn in_page(self, part: &Part, offset: u32) -> u32 {
        part.page_offset.wrapping_add(offset) & self.mask
    }

    /// Returns the number of regions of `len` bytes from `offset` of `part`, without walking them.
    #[inline]
    pub(super) const fn regions(self, part: &Part, offset: u32, len: u32) -> Option<u32> {
        let first = self.step.saturating_sub(self.in_page(part, offset));
        if len <= first {
            return Some((len != 0) as u32);
        }
        // All behind the first begin at a page, and all but the last have a whole step.
        let rest = len.saturating_sub(first).saturating_sub(1);
        match rest.checked_div(self.step) {
            Some(more) => Some(more.saturating_add(2)),
            None => None,
        }
    }

    /// Returns the number of Segments of a whole stream, `None` if no Segment is allowed.
    #[inline]
    pub(super) fn all(self, buf: &Buf) -> Option<u32> {
        let mut count = 0_u32;
        for part in [&buf.head, &buf.pages, &buf.tail] {
            if part.len != 0 {
                count = count.saturating_add(self.regions(part, 0, part.len)?);
            }
        }
        Some(count)
    }
}

/// Cuts memory into regions, for a device of either kind.
///
/// If the device joins whole pages only, a part of a page is a region of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionCutter {
    pub(super) cut: SegmentSizing,
    /// A region with a part of a page has no other memory.
    pub(super) whole_pages: bool,
}

impl RegionCutter {
    /// Returns the length of the first region of `len` bytes from `offset` of `part`.
    const fn first(self, part: &Part, offset: u32, len: u32) -> u32 {
        if !self.whole_pages {
            return self.cut.first(part, offset, len);
        }
        let most = self.first_of_whole_pages(self.cut.in_page(part, offset), len);
        if most < len {
            most
        } else {
            len
        }
    }

    /// Returns the limit of [`Self::first`] where a part of a page is a region of its own.
    const fn first_of_whole_pages(self, in_page: u32, len: u32) -> u32 {
        let SegmentSizing { step, mask } = self.cut;
        let whole = len & !mask;
        if step == 0 {
            0
        } else if in_page != 0 {
            mask.saturating_add(1).saturating_sub(in_page)
        } else if whole == 0 || step < whole {
            step
        } else {
            whole
        }
    }

    /// Returns the number of regions of `len` bytes from `offset` of `part`.
    const fn regions(self, part: &Part, offset: u32, len: u32) -> Option<u32> {
        if !self.whole_pages {
            return self.cut.regions(part, offset, len);
        }
        if len == 0 {
            return Some(0);
        }
        let SegmentSizing { step, mask } = self.cut;
        let in_page = self.cut.in_page(part, offset);
        let begin = if in_page == 0 {
            0
        } else {
            self.first_of_whole_pages(in_page, len)
        };
        let rest = len.saturating_sub(begin);
        let (whole, end) = (rest & !mask, rest & mask);
        let Some(more) = whole.saturating_sub(1).checked_div(step) else {
            return None;
        };
        Some(
            more.saturating_add((begin != 0) as u32)
                .saturating_add((whole != 0) as u32)
                .saturating_add((end != 0) as u32),
        )
    }

    /// Returns the number of Segments of a range of the stream, `None` if no Segment is allowed.
    #[inline]
    fn segments(self, buf: &Buf, range: &Range<u32>) -> Option<u32> {
        let mut count = 0_u32;
        let mut start = 0_u32;
        for part in [&buf.head, &buf.pages, &buf.tail] {
            let from = range.start.saturating_sub(start).min(part.len);
            let to = range.end.saturating_sub(start).min(part.len);
            let regions = self.regions(part, from, to.saturating_sub(from))?;
            count = count.saturating_add(regions);
            start = start.saturating_add(part.len);
        }
        Some(count)
    }

    /// Returns the first region of a range of the stream that is not empty and within it.
    #[inline]
    pub(super) fn first_region(self, buf: &Buf, range: &Range<u32>) -> (PartName, Range<u32>) {
        let pages = buf.head.len;
        let tail = pages.saturating_add(buf.pages.len);
        let (name, part, start) = if range.start < pages {
            (PartName::Head, &buf.head, 0)
        } else if range.start < tail {
            (PartName::Pages, &buf.pages, pages)
        } else {
            (PartName::Tail, &buf.tail, tail)
        };
        let from = range.start.saturating_sub(start);
        let to = range.end.saturating_sub(start).min(part.len);
        let first = self.first(part, from, to.saturating_sub(from));
        (name, from..from.saturating_add(first))
    }
}
