// SPDX-License-Identifier: GPL-2.0

//! Pieces of kernel memory that one layer names and another registers.

use crate::bindings;
use core::ptr::NonNull;

/// Size of a page as a `u32`.
pub(crate) const PAGE_SIZE: u32 = kernel::page::PAGE_SIZE as u32;

/// A piece of one page (or of physically contiguous pages) that a device shall reach.
///
/// # Invariants
///
/// `page` is a page of the kernel's direct map that stays allocated, and `offset + len` bytes
/// from its start belong to the same allocation, for as long as the request it was taken from
/// belongs to the transport.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    page: NonNull<bindings::page>,
    offset: u32,
    len: u32,
}

impl Span {
    /// Names a piece of memory.
    ///
    /// # Safety
    ///
    /// The caller vouches for the type invariant.
    pub(crate) unsafe fn new(page: NonNull<bindings::page>, offset: u32, len: u32) -> Self {
        // INVARIANT: promised by the caller.
        Self { page, offset, len }
    }

    /// The page.
    pub(crate) fn page(&self) -> NonNull<bindings::page> {
        self.page
    }

    /// Where in the page the piece starts.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// Number of bytes, not zero.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}
