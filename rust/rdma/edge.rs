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
use core::ptr::NonNull;
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

    /// Copies the bytes from byte `offset` of the page on to `out`, after the peer has written them. The proof orders
    /// the copy behind the end of the exposure. If the Call is sent again meanwhile, the peer may write them again.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the page is shorter.
    pub(crate) fn read(&self, offset: u32, out: &mut [u8], _proof: &Unexposed) -> Result {
        let page = self.page().ok_or(EINVAL)?;
        let offset = offset as usize;
        if offset + out.len() > PAGE_SIZE as usize {
            return Err(EINVAL);
        }
        // SAFETY: the bytes lie within the page, which is this object's, and `out` has room for them. A device may
        // write the page meanwhile: memcpy_from_page() is C, where such a race gives a mix of old and new bytes.
        unsafe {
            bindings::memcpy_from_page(out.as_mut_ptr().cast(), page.as_ptr(), offset, out.len())
        };
        Ok(())
    }
}
