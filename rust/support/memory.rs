// SPDX-License-Identifier: GPL-2.0

//! Pieces of kernel memory that one layer names and another registers.

use super::memalloc::GFP_NORETRY;
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    page::Page,
    prelude::*, //
};

/// Size of a page as a `u32`.
pub(crate) const PAGE_SIZE: u32 = kernel::page::PAGE_SIZE as u32;

/// Returns the bytes of memory of the machine. Context: any.
pub(crate) fn total() -> usize {
    // SAFETY: totalram_pages() reads a counter that the kernel always has (`_totalram_pages`,
    // mm/show_mem.c), atomically.
    let pages = unsafe { bindings::totalram_pages() };
    (pages as usize).saturating_mul(kernel::page::PAGE_SIZE)
}

/// A piece of memory for a device: of one physically contiguous buffer, or of a list
/// of pages.
///
/// # Invariants
///
/// The memory lies in the kernel's direct map and stays allocated for as long as the request it
/// was taken from belongs to the transport. With `Contiguous`, `offset + len` bytes from the start
/// of the page belong to one allocation; with `Pages`, the list has an entry for each page that
/// they reach, and each entry that is not null is a page. With `Around`, `offset + len` bytes reach from `edge`
/// through whole pages, of which `pages` has an entry each, and end at most a page behind them. `len` is not zero.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    memory: Memory<'a>,
    offset: u32,
    len: u32,
}

/// The place of the memory of a [`Span`].
#[derive(Clone, Copy)]
pub(crate) enum Memory<'a> {
    /// From this page on.
    Contiguous(NonNull<bindings::page>),
    /// In these pages, one after the other.
    Pages(&'a [*mut bindings::page]),
    /// At the end of the page `edge`, then in these whole pages, then at the start of `edge`.
    Around {
        edge: NonNull<bindings::page>,
        pages: &'a [*mut bindings::page],
    },
}

/// Memory that devices may write, and that no code reads.
pub(crate) struct Scratch(Page);

impl Scratch {
    /// Allocates the memory, a page. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Page::alloc_page(GFP_NORETRY)?))
    }

    /// Returns the first `len` bytes, at most a page. The memory must not be freed while a device may write it.
    pub(crate) fn span(&self, len: u32) -> Option<Span<'_>> {
        let page = NonNull::new(self.0.as_ptr().cast())?;
        if len == 0 || len > PAGE_SIZE {
            return None;
        }
        // SAFETY: a page of the direct map, which `self` has. The bytes lie in it.
        Some(unsafe { Span::contiguous(page, 0, len) })
    }
}

impl<'a> Span<'a> {
    /// Names a piece of a physically contiguous buffer.
    ///
    /// # Safety
    ///
    /// The caller vouches for the type invariant.
    pub(crate) unsafe fn contiguous(page: NonNull<bindings::page>, offset: u32, len: u32) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            memory: Memory::Contiguous(page),
            offset,
            len,
        }
    }

    /// Names a piece of a list of pages, `offset` bytes from the start of the first.
    ///
    /// # Safety
    ///
    /// The caller vouches for the type invariant.
    pub(crate) unsafe fn pages(pages: &'a [*mut bindings::page], offset: u32, len: u32) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            memory: Memory::Pages(pages),
            offset,
            len,
        }
    }

    /// Returns the bytes of `self`, which are whole pages, with `before` bytes before them at the end of the page
    /// `edge`, and `behind` bytes behind them at its start. Returns `None` if the bytes are no whole pages of a list,
    /// or if the others do not fit into `edge`.
    ///
    /// # Safety
    ///
    /// The caller vouches for the type invariant with regard to `edge`.
    pub(crate) unsafe fn around(
        self,
        edge: NonNull<bindings::page>,
        before: u32,
        behind: u32,
    ) -> Option<Self> {
        let Memory::Pages(pages) = self.memory else {
            return None;
        };
        let are_whole = self.offset == 0 && self.len as usize == pages.len() * PAGE_SIZE as usize;
        let room = PAGE_SIZE.checked_sub(before)?;
        if !are_whole || before == 0 || behind > room {
            return None;
        }
        // INVARIANT: promised by the caller for `edge`, and `self` has the other pages.
        Some(Self {
            memory: Memory::Around { edge, pages },
            offset: room,
            len: before + self.len + behind,
        })
    }

    /// Returns the number of pages that the piece touches.
    #[inline]
    pub(crate) fn page_count(&self) -> u32 {
        (self.offset + self.len).div_ceil(PAGE_SIZE)
    }

    /// Returns the memory that the piece lies in.
    pub(crate) fn memory(&self) -> Memory<'a> {
        self.memory
    }

    /// Returns the offset in the first page, in bytes.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns the number of bytes, which is not zero.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}
