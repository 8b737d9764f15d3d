// SPDX-License-Identifier: GPL-2.0

//! Scatterlists, `struct sg_table`: the pieces of memory that one registration joins.
//!
//! Physically contiguous pages become one entry, so that mapping large folios for the device
//! costs as much as there are folios, not pages.
//!
//! C header: `include/linux/scatterlist.h`.

use super::pd::Pd;
use crate::bindings;
use crate::support::memory::{
    Memory,
    Span,
    PAGE_SIZE, //
};
use core::ptr;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::prelude::*;

/// The bits of `scatterlist.page_link` that are no part of a pointer (`SG_PAGE_LINK_MASK`).
const FLAGS: usize = 0b11;
/// Of these: the entry names no memory, but the entry that follows the one before (`SG_CHAIN`).
const CHAIN: usize = 0b01;

/// Whether the addresses of `struct page` follow those of the pages.
const PAGES_ARE_AN_ARRAY: bool = cfg!(any(CONFIG_SPARSEMEM_VMEMMAP, CONFIG_FLATMEM));

/// A table of entries.
///
/// # Invariants
///
/// `table` was made by sg_alloc_table() for `capacity` entries. It chains allocations of at most
/// one page each, so none of them is hard to get.
pub(super) struct SgTable {
    table: bindings::sg_table,
    capacity: u32,
    /// The most pages that may be one entry.
    max_pages: u32,
}

impl SgTable {
    /// A table of `capacity` entries for the device of `pd`. Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` for no entry at all.
    pub(super) fn new(pd: &Pd, capacity: u32) -> Result<Self> {
        let mut table = bindings::sg_table::default();
        let flags = bindings::GFP_KERNEL | bindings::__GFP_NOWARN;
        // SAFETY: `table` is there to be written; what is allocated belongs to it.
        to_result(unsafe { bindings::sg_alloc_table(&mut table, capacity, flags) })?;
        // INVARIANT: allocated just now.
        Ok(Self {
            table,
            capacity,
            max_pages: (pd.max_segment() / PAGE_SIZE).max(1),
        })
    }

    pub(super) fn as_raw(&mut self) -> *mut bindings::scatterlist {
        self.table.sgl
    }

    /// How many entries there are.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Names the memory of `span`, and returns how many entries that takes.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it takes too many, or there is no memory. `EFAULT`: a page is missing.
    pub(super) fn fill(&mut self, span: Span<'_>) -> Result<u32> {
        let mut cursor = Cursor {
            at: self.table.sgl,
            used: 0,
            capacity: self.capacity,
            max_pages: self.max_pages,
        };
        match span.memory() {
            Memory::Contiguous(page) => cursor.push(page, span.offset(), span.len())?,
            Memory::Pages(pages) => cursor.push_pages(pages, span.offset(), span.len())?,
        }
        if cursor.used == 0 {
            return Err(EINVAL);
        }
        Ok(cursor.used)
    }
}

impl Drop for SgTable {
    fn drop(&mut self) {
        // SAFETY: made by sg_alloc_table() (type invariant), and used by nobody any more.
        unsafe { bindings::sg_free_table(&mut self.table) };
    }
}

/// Where the next entry goes.
///
/// # Invariants
///
/// If `used` is less than `capacity`, `at` is entry number `used` of a table of `capacity`.
struct Cursor {
    at: *mut bindings::scatterlist,
    used: u32,
    capacity: u32,
    max_pages: u32,
}

impl Cursor {
    /// Names `len` bytes of `pages`, by one entry for each run of contiguous pages.
    #[inline]
    fn push_pages(&mut self, pages: &[*mut bindings::page], mut offset: u32, len: u32) -> Result {
        let count = (offset + len).div_ceil(PAGE_SIZE) as usize;
        let mut rest = pages.get(..count).ok_or(EINVAL)?;
        let mut left = len;
        while let Some(&first) = rest.first() {
            let run = contiguous(rest, self.max_pages);
            let bytes = (run as u32 * PAGE_SIZE - offset).min(left);
            self.push_one(NonNull::new(first).ok_or(EFAULT)?, offset, bytes)?;
            left -= bytes;
            offset = 0;
            rest = rest.get(run..).unwrap_or_default();
        }
        Ok(())
    }

    /// Names a contiguous piece. If it is too long for one entry it is cut where a page ends, as
    /// ib_map_mr_sg() wants it.
    fn push(&mut self, page: NonNull<bindings::page>, mut offset: u32, mut left: u32) -> Result {
        while left != 0 {
            let bytes = left.min(self.max_pages * PAGE_SIZE - offset % PAGE_SIZE);
            self.push_one(page, offset, bytes)?;
            offset += bytes;
            left -= bytes;
        }
        Ok(())
    }

    #[inline(always)]
    fn push_one(&mut self, page: NonNull<bindings::page>, offset: u32, len: u32) -> Result {
        if self.used == self.capacity {
            return Err(EINVAL);
        }
        // SAFETY: an entry of the table, as there are more than were used (type invariant).
        let entry = unsafe { &mut *self.at };
        // What sg_set_page() does: the flags of the entry stay.
        entry.page_link = page.addr().get() | (entry.page_link & FLAGS);
        entry.offset = offset;
        entry.length = len;
        self.used += 1;
        if self.used < self.capacity {
            // What sg_next() does.
            let mut next = self.at.wrapping_add(1);
            // SAFETY: there is one more entry, so the next place is that entry or the link to it.
            let link = unsafe { (*next).page_link };
            if link & CHAIN != 0 {
                next = ptr::with_exposed_provenance_mut(link & !FLAGS);
            }
            // INVARIANT: entry number `used`.
            self.at = next;
        }
        Ok(())
    }
}

/// How many of `pages`, from the first on, are physically contiguous; at most `max`.
#[inline]
fn contiguous(pages: &[*mut bindings::page], max: u32) -> usize {
    let Some(&first) = pages.first() else {
        return 0;
    };
    if !PAGES_ARE_AN_ARRAY {
        return 1;
    }
    let mut expected = first;
    let run = pages.iter().take(max as usize).take_while(|&&page| {
        let follows = ptr::eq(page, expected);
        expected = expected.wrapping_add(1);
        follows
    });
    run.count()
}
