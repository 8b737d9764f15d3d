// SPDX-License-Identifier: GPL-2.0

//! The shape of an RPC: two messages in memory, and the items in them that may be reduced.

use crate::proto::{
    requester::plan::ChunkRole,
    wire::xdr::padded_len, //
};
use core::ops::Range;

/// One part of a message: bytes that are contiguous in memory but for page boundaries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Part {
    /// The number of bytes.
    pub len: u32,
    /// The offset of the first octet within its page.
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
    /// All parts of a Reply, joined. The head takes the end of a page, so that the page list follows it, and the
    /// tail takes the start of a page.
    All,
    /// Memory that no RPC uses, for XDR pad that the peer may write.
    Pad,
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

    /// Returns whether the stream has no bytes.
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

    /// Returns the first part that is not empty, or the tail.
    #[inline]
    pub(super) const fn first_part(&self) -> (PartName, &Part) {
        if self.head.len != 0 {
            (PartName::Head, &self.head)
        } else if self.pages.len != 0 {
            (PartName::Pages, &self.pages)
        } else {
            (PartName::Tail, &self.tail)
        }
    }

    /// Returns whether `item` is the data in the page list, and may be reduced.
    #[inline]
    pub(super) const fn pages_are(&self, item: &Item) -> bool {
        item.offset == self.head.len && item.len == self.pages.len && item.can_be_reduced()
    }
}

/// An XDR item of a message that the upper-layer binding allows to be reduced.
///
/// `offset` counts in the stream and `len` is without pad. For a counted array the count is not
/// part of the item: it stays in the Payload stream.
//= V1-051, V1-053, V1-054
//= V1-055, V2-072, V2-073
//= V2-074, V2-075
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Item {
    /// The offset of the item.
    pub offset: u32,
    /// Its encoded length.
    pub len: u32,
}

impl Item {
    /// Returns the bytes that leave the Payload stream when the item is reduced: the item and its pad.
    #[inline]
    //= V1-059, V1-069, V2-077
    pub const fn extent(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(padded_len(self.len))
    }

    /// Returns the bytes of the item without its pad.
    #[inline]
    pub const fn range(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(self.len)
    }

    /// Returns the number of bytes by which a stream of `len` bytes gets shorter when the item is
    /// reduced. The stream may end without the last item's pad.
    #[inline]
    pub const fn reduces(&self, len: u32) -> u32 {
        let rest = len.saturating_sub(self.offset);
        let padded = padded_len(self.len);
        if padded < rest {
            padded
        } else {
            rest
        }
    }

    /// Returns whether pad follows the item.
    #[inline]
    pub(super) const fn has_pad(&self) -> bool {
        padded_len(self.len) != self.len
    }

    #[inline]
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

    /// The first item alone.
    pub(in crate::proto) const FIRST: Self = Self(1);

    /// The number of items that a set can have. Later items are never reduced.
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

    /// Returns whether item `index` is in the set.
    #[inline]
    pub const fn contains(self, index: usize) -> bool {
        self.0 & Self::bit(index) != 0
    }

    /// Returns whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of items in the set.
    #[inline]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Takes the item with the lowest index out of the set, and returns that item of `items`.
    #[inline]
    fn take_first(&mut self, items: &[Item]) -> Option<Item> {
        let first = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        items.get(first as usize).copied()
    }

    /// Returns the `items` that are in the set.
    #[inline]
    pub const fn of(self, items: &[Item]) -> Items<'_> {
        Items { items, left: self }
    }
}

/// The items of a message that are in a set, in order.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    items: &'a [Item],
    left: ItemSet,
}

impl Iterator for Items<'_> {
    type Item = Item;

    #[inline]
    fn next(&mut self) -> Option<Item> {
        if self.left.is_empty() {
            return None;
        }
        self.left.take_first(self.items)
    }
}

/// The ranges of a stream that are left when some items leave it with their pad, in order.
#[derive(Clone, Debug)]
pub struct Ranges<I> {
    reduced: I,
    at: u32,
    len: u32,
}

impl<I: Iterator<Item = Item>> Ranges<I> {
    /// Splits a stream of `len` bytes; `reduced` are items in stream order.
    #[inline]
    pub(in crate::proto) const fn new(len: u32, reduced: I) -> Self {
        Self {
            reduced,
            at: 0,
            len,
        }
    }
}

impl<I: Iterator<Item = Item>> Iterator for Ranges<I> {
    type Item = Range<u32>;

    #[inline]
    fn next(&mut self) -> Option<Range<u32>> {
        while self.at < self.len {
            let gap = match self.reduced.next() {
                Some(item) => item.extent(),
                None => self.len..self.len,
            };
            let range = self.at..gap.start.min(self.len);
            self.at = self.at.max(gap.end);
            if range.start < range.end {
                return Some(range);
            }
        }
        None
    }
}

/// The shape of one RPC.
#[derive(Clone, Copy, Debug)]
pub struct CallShape<'a> {
    /// The RPC Call.
    pub send: Buf,
    /// The DDP-eligible arguments, in stream order.
    pub arguments: &'a [Item],
    /// The largest possible RPC Reply, including verifier and everything else.
    //= V1-136, V2-191, NFS-002
    //= NFS-019, NFS-029
    pub receive: Buf,
    /// The DDP-eligible results at their largest, in stream order.
    pub results: &'a [Item],
    /// The messages are covered by RPCSEC_GSS integrity or privacy.
    pub protected: bool,
}

impl CallShape<'_> {
    /// Returns the message that holds the memory of a chunk.
    #[inline]
    pub(super) const fn buf(&self, chunk: ChunkRole) -> &Buf {
        match chunk {
            ChunkRole::Read(_) => &self.send,
            ChunkRole::Write(_) | ChunkRole::Reply => &self.receive,
        }
    }
}
