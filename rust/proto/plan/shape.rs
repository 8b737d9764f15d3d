// SPDX-License-Identifier: GPL-2.0

//! What an RPC looks like: two messages in memory, and the items in them that may be reduced.

use core::ops::Range;

use crate::proto::xdr::padded_len;

/// One part of a message: octets that are contiguous in memory but for page boundaries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Part {
    /// How many octets.
    pub len: u32,
    /// Where the first octet lies within its page.
    pub page_offset: u32,
}

/// The three parts of an `xdr_buf`, in stream order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Buf {
    /// `head[0]`.
    pub head: Part,
    /// The page list.
    pub pages: Part,
    /// `tail[0]`.
    pub tail: Part,
}

/// Names a part of a [`Buf`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PartName {
    /// `head[0]`.
    Head,
    /// The page list.
    Pages,
    /// `tail[0]`.
    Tail,
}

/// A piece of one part; `range` counts from the start of the part.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The part.
    pub part: PartName,
    /// The octets of that part.
    pub range: Range<u32>,
}

impl Buf {
    /// Returns the length of the stream.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.head
            .len
            .saturating_add(self.pages.len)
            .saturating_add(self.tail.len)
    }

    /// Says whether the stream has no octets.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the item that the page list holds.
    #[inline]
    pub const fn page_item(&self) -> Item {
        Item {
            offset: self.head.len,
            len: self.pages.len,
        }
    }

    /// Splits a range of the stream at the borders of the parts.
    #[inline]
    pub fn pieces(&self, range: Range<u32>) -> impl Iterator<Item = Piece> {
        let pages = self.head.len;
        let tail = pages.saturating_add(self.pages.len);
        [
            (PartName::Head, 0, self.head.len),
            (PartName::Pages, pages, self.pages.len),
            (PartName::Tail, tail, self.tail.len),
        ]
        .into_iter()
        .filter_map(move |(part, start, len)| {
            let from = range.start.saturating_sub(start).min(len);
            let to = range.end.saturating_sub(start).min(len);
            (from < to).then_some(Piece {
                part,
                range: from..to,
            })
        })
    }

    #[inline]
    pub(super) const fn part(&self, name: PartName) -> Part {
        match name {
            PartName::Head => self.head,
            PartName::Pages => self.pages,
            PartName::Tail => self.tail,
        }
    }
}

/// An XDR item of a message that the upper-layer binding allows to be reduced.
///
/// `offset` counts in the stream and `len` is without pad. For a counted array the count is not
/// part of the item: it stays in the Payload stream.
//= V1-051, V1-053, V1-054, V1-055, V2-072, V2-073, V2-074, V2-075
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Item {
    /// Where the item starts.
    pub offset: u32,
    /// Its encoded length.
    pub len: u32,
}

impl Item {
    /// The octets that leave the Payload stream when the item is reduced: itself and its pad.
    #[inline]
    //= V1-059, V1-069, V2-077
    pub const fn extent(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(padded_len(self.len))
    }

    /// The octets of the item itself.
    #[inline]
    pub const fn range(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(self.len)
    }

    /// By how much a stream of `len` octets gets shorter when the item is reduced. The stream may
    /// end without the last item's pad.
    pub const fn reduces(&self, len: u32) -> u32 {
        let Range { start, end } = self.extent();
        let end = if end < len { end } else { len };
        end.saturating_sub(start)
    }

    //= V1-058, V2-080
    pub(super) const fn can_be_reduced(&self) -> bool {
        self.len != 0 && self.offset & 3 == 0 && self.offset != 0
    }
}

/// Some of the first 32 items of a message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ItemSet(u32);

impl ItemSet {
    /// No item.
    pub const EMPTY: Self = Self(0);

    /// How many items a set can have. What follows them is never reduced.
    pub const MAX: usize = 32;

    const fn bit(index: usize) -> u32 {
        if index < Self::MAX {
            1 << index
        } else {
            0
        }
    }

    /// Returns the set with item `index`, if that is one of the first 32.
    #[inline]
    pub const fn with(self, index: usize) -> Self {
        Self(self.0 | Self::bit(index))
    }

    /// Says whether item `index` is in the set.
    #[inline]
    pub const fn contains(self, index: usize) -> bool {
        self.0 & Self::bit(index) != 0
    }

    /// Says whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns how many items are in the set.
    #[inline]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns those of `items` that are in the set.
    #[inline]
    pub fn of(self, items: &[Item]) -> impl Iterator<Item = Item> + '_ {
        (0..Self::MAX)
            .zip(items)
            .filter(move |(index, _)| self.contains(*index))
            .map(|(_, item)| *item)
    }
}

/// What one RPC looks like.
#[derive(Clone, Copy, Debug)]
pub struct CallShape<'a> {
    /// The RPC Call.
    pub send: Buf,
    /// The DDP-eligible arguments, in stream order.
    pub arguments: &'a [Item],
    /// The largest possible RPC Reply, including verifier and everything else.
    //= V1-136, V2-191, NFS-002, NFS-019, NFS-029
    pub receive: Buf,
    /// The DDP-eligible results at their largest, in stream order.
    pub results: &'a [Item],
    /// The messages are covered by RPCSEC_GSS integrity or privacy.
    pub protected: bool,
}
