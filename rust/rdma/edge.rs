// SPDX-License-Identifier: GPL-2.0

//! The page that takes the bytes of a message around its whole pages, so that one registration has all of it.
//!
//! A registration joins pieces that meet at page boundaries only. The head of an `xdr_buf` ends anywhere in a page,
//! and its tail begins anywhere. Here the bytes before the page list end with a page, and the bytes behind it begin
//! with the same page.

use super::proof::Unexposed;
use crate::{
    bindings,
    support::memory::{
        Span,
        PAGE_SIZE, //
    },
};
use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    alloc::flags::{
        GFP_NOWAIT,
        __GFP_ZERO, //
    },
    page::Page,
    prelude::*, //
};

/// A page for the head and the tail of a Reply.
pub(crate) struct EdgePage(Page);

impl EdgePage {
    /// Allocates the page. Context: any.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory without reclaim.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Page::alloc_page(GFP_NOWAIT | __GFP_ZERO)?))
    }

    fn page(&self) -> Option<NonNull<bindings::page>> {
        NonNull::new(self.0.as_ptr().cast())
    }

    /// Returns the memory of `pages`, which are whole, with `before` bytes of this page before it and `behind` bytes
    /// behind it. This page must not be freed while a device may write it.
    pub(crate) fn around<'a>(
        &'a self,
        before: u32,
        pages: Span<'a>,
        behind: u32,
    ) -> Option<Span<'a>> {
        // SAFETY: a page of the direct map (alloc_page() without __GFP_HIGHMEM), which `self` has.
        unsafe { pages.around(self.page()?, before, behind) }
    }

    /// Returns the `before` bytes at the end of the page, and the `behind` bytes at its start. The peer has written
    /// them, and the proof says that it cannot write them any more.
    pub(crate) fn edges(
        &self,
        before: u32,
        behind: u32,
        _proof: &Unexposed,
    ) -> Option<(&[u8], &[u8])> {
        // SAFETY: a page of the direct map, which has an address.
        let start = unsafe { bindings::page_address(self.page()?.as_ptr()) };
        // SAFETY: the page is PAGE_SIZE initialized bytes (__GFP_ZERO). No device changes them, by the proof, and no
        // other code does.
        let bytes = unsafe { slice::from_raw_parts(start.cast::<u8>(), PAGE_SIZE as usize) };
        let end = bytes.len().checked_sub(before as usize)?;
        Some((bytes.get(end..)?, bytes.get(..behind as usize)?))
    }
}
