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
    /// `EINVAL`: there are more pages than entries, or there is no memory. `EFAULT`: a page is
    /// missing.
    pub(super) fn fill(&mut self, span: Span<'_>) -> Result<u32> {
        match span.memory() {
            Memory::Contiguous(page) => self.fill_contiguous(page, span.offset(), span.len()),
            Memory::Pages(pages) => self.fill_pages(pages, span.offset(), span.len()),
        }
    }

    /// Names `len` bytes of `pages`, by one entry for each run of contiguous pages.
    ///
    /// What is here is done 256 times for 1 MiB. That the entries suffice is therefore made sure
    /// of once, as if no page followed another.
    fn fill_pages(&mut self, pages: &[*mut bindings::page], offset: u32, len: u32) -> Result<u32> {
        let count = (offset + len).div_ceil(PAGE_SIZE);
        if count > self.capacity || len == 0 {
            return Err(EINVAL);
        }
        let pages = pages.get(..count as usize).ok_or(EINVAL)?;
        let (&first, rest) = pages.split_first().ok_or(EINVAL)?;
        if first.is_null() {
            return Err(EFAULT);
        }
        let mut at = self.table.sgl;
        // SAFETY: the first of `capacity` entries, and `count`, which is not 0, is at most that.
        let mut last = unsafe { set(&mut at, first, offset, PAGE_SIZE - offset) };
        let mut used = count;
        let mut next = first.wrapping_add(1);
        let longest = (self.max_pages - 1) * PAGE_SIZE;
        for &page in rest {
            if PAGES_ARE_AN_ARRAY && ptr::eq(page, next) && last.length <= longest {
                last.length += PAGE_SIZE;
                used -= 1;
            } else {
                if page.is_null() {
                    return Err(EFAULT);
                }
                // SAFETY: at most one entry a page was set before, of `count`, and the table has
                // as many.
                last = unsafe { set(&mut at, page, 0, PAGE_SIZE) };
            }
            next = page.wrapping_add(1);
        }
        // The memory ends within the last page.
        last.length -= count * PAGE_SIZE - (offset + len);
        Ok(used)
    }

    /// Names a contiguous piece. If it is too long for one entry it is cut where a page ends, as
    /// ib_map_mr_sg() wants it.
    fn fill_contiguous(
        &mut self,
        page: NonNull<bindings::page>,
        mut offset: u32,
        mut left: u32,
    ) -> Result<u32> {
        let mut at = self.table.sgl;
        let mut used = 0;
        while left != 0 {
            if used == self.capacity {
                return Err(EINVAL);
            }
            let bytes = left.min(self.max_pages * PAGE_SIZE - offset % PAGE_SIZE);
            // SAFETY: `used` entries were set, and the table has more.
            unsafe { set(&mut at, page.as_ptr(), offset, bytes) };
            used += 1;
            offset += bytes;
            left -= bytes;
        }
        if used == 0 {
            return Err(EINVAL);
        }
        Ok(used)
    }
}

impl Drop for SgTable {
    fn drop(&mut self) {
        // SAFETY: made by sg_alloc_table() (type invariant), and used by nobody any more.
        unsafe { bindings::sg_free_table(&mut self.table) };
    }
}

/// Names `len` bytes by the entry at `at` and returns it; `at` moves behind it.
///
/// # Safety
///
/// `at` is an entry of an `sg_table`, or the link to the entry that follows the one before, which
/// nobody else uses for as long as what is returned lives.
#[inline(always)]
unsafe fn set<'a>(
    at: &mut *mut bindings::scatterlist,
    page: *mut bindings::page,
    offset: u32,
    len: u32,
) -> &'a mut bindings::scatterlist {
    let entry = loop {
        // SAFETY: an entry or a link, by what the caller promises, or the entry that a link made by
        // sg_alloc_table() leads to. Nobody else uses it.
        let entry = unsafe { &mut **at };
        if entry.page_link & CHAIN == 0 {
            break entry;
        }
        // What sg_chain_ptr() does.
        *at = ptr::with_exposed_provenance_mut(entry.page_link & !FLAGS);
    };
    // What sg_set_page() does: the mark of the last entry stays.
    entry.page_link = page.addr() | (entry.page_link & FLAGS);
    entry.offset = offset;
    entry.length = len;
    *at = at.wrapping_add(1);
    entry
}
