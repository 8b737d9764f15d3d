// SPDX-License-Identifier: GPL-2.0

//! What a plan may make use of, and how memory is cut into Segments.

use core::ops::Range;

use crate::proto::plan::{
    Buf,
    Piece,
    PlanError, //
};
use crate::proto::types::Version;

/// What both peers, the device and local policy allow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The version of the connection.
    pub version: Version,
    /// The most octets of one Send, header included.
    pub inline_send: u32,
    /// The most octets of one Receive, header included.
    pub inline_recv: u32,
    /// The size of a memory page, a power of two.
    pub page_size: u32,
    /// How many pages one registration covers at most.
    pub segment_pages: u32,
    /// How many octets a Segment may name at most.
    pub segment_bytes: u32,
    /// How many Segments one chunk may have.
    pub chunk_segments: u32,
    /// How many Segments one header may have.
    pub header_segments: u32,
    /// How many normal Read chunks a Call may have.
    pub read_chunks: u32,
    /// How many Write chunks a Call may have.
    pub write_chunks: u32,
    /// Whether a Call may have a Position Zero Read chunk.
    pub long_call: bool,
    /// Whether normal Read chunks may stand beside a Position Zero Read chunk.
    pub reduced_long_call: bool,
    /// Whether one Call may have a Write list and a Reply chunk.
    pub write_and_reply: bool,
    /// How many octets of Payload stream may be sent in several messages; 0 for version 1.
    pub continued_send: u32,
    /// How many octets of Payload stream may be received in several messages; 0 for version 1.
    pub continued_recv: u32,
    /// How many scatter/gather elements a Send has.
    pub send_sges: u32,
    /// Up to which length an inline Payload stream is copied into the Send buffer rather than
    /// gathered from where it lies.
    pub pull_up: u32,
}

impl Limits {
    /// The chunk limits that every server of the NFS upper-layer binding accepts.
    //= NFS-041, NFS-042, NFS-043, NFS-047
    pub const NFS_SAFE_SEGMENTS: u32 = 16;

    /// Returns limits for version 1 with a peer of which only the thresholds are known.
    //= NFS-041, NFS-042, NFS-043, D-38, V1-019
    pub const fn v1(inline_send: u32, inline_recv: u32) -> Self {
        Self {
            version: Version::V1,
            inline_send,
            inline_recv,
            page_size: 4096,
            segment_pages: 256,
            segment_bytes: u32::MAX,
            chunk_segments: Self::NFS_SAFE_SEGMENTS,
            header_segments: u32::MAX,
            read_chunks: 1,
            write_chunks: 1,
            long_call: true,
            reduced_long_call: false,
            write_and_reply: false,
            continued_send: 0,
            continued_recv: 0,
            send_sges: 3,
            pull_up: u32::MAX,
        }
    }

    const fn whole_pages(&self) -> u32 {
        let allowed = match self.segment_bytes.checked_div(self.page_size) {
            Some(pages) => pages,
            None => 0,
        };
        if allowed < self.segment_pages {
            allowed
        } else {
            self.segment_pages
        }
    }

    pub(super) const fn in_page(&self, offset: u32) -> u32 {
        match offset.checked_rem(self.page_size) {
            Some(offset) => offset,
            None => 0,
        }
    }

    /// Splits a range of the stream into the regions to register, one Segment each.
    ///
    /// A region never spans two parts, and has at most [`segment_pages`](Self::segment_pages)
    /// pages and [`segment_bytes`](Self::segment_bytes) octets.
    #[inline]
    //= V2-069, V2-070, V2-130, D-25
    pub fn cut<'a>(&'a self, buf: &'a Buf, range: Range<u32>) -> impl Iterator<Item = Piece> + 'a {
        let step = self.whole_pages().saturating_mul(self.page_size);
        buf.pieces(range).flat_map(move |piece| {
            let base = buf.part(piece.part).page_offset;
            let mut next = piece.range.start;
            core::iter::from_fn(move || {
                let from = next;
                if from >= piece.range.end || step == 0 {
                    return None;
                }
                let first = step.saturating_sub(self.in_page(base.saturating_add(from)));
                next = from.saturating_add(first).min(piece.range.end);
                Some(Piece {
                    part: piece.part,
                    range: from..next,
                })
            })
        })
    }

    /// Counts the Segments of a chunk over `ranges`, or says that no chunk can hold them.
    pub(super) fn segments(
        &self,
        buf: &Buf,
        ranges: impl Iterator<Item = Range<u32>>,
    ) -> Result<u32, PlanError> {
        if self.whole_pages() == 0 {
            return Err(PlanError::NoSegments);
        }
        let most = self.chunk_segments;
        let mut count = 0_u32;
        for range in ranges {
            for _ in self.cut(buf, range) {
                count = count.saturating_add(1);
                if count > most {
                    return Err(PlanError::TooManySegments);
                }
            }
        }
        Ok(count)
    }
}
