// SPDX-License-Identifier: GPL-2.0

//! Scatterlists, `struct sg_table`: the pieces of memory that one registration joins.
//!
//! Physically contiguous pages become one entry, so that the cost of mapping depends on the number
//! of folios, not of pages.
//!
//! C header: `include/linux/scatterlist.h`.

use super::pd::Pd;
use crate::{
    bindings,
    support::memory::{
        Memory,
        Span,
        PAGE_SIZE, //
    },
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// The bits of `scatterlist.page_link` that are no part of a pointer (`SG_PAGE_LINK_MASK`).
const FLAGS: usize = 0b11;
/// The flag of an entry that names no memory: it points to the next run of entries (`SG_CHAIN`).
const CHAIN: usize = 0b01;
/// The flag of the last entry of a table (`SG_END`).
const END: usize = 0b10;

/// True if the addresses of `struct page` are in the order of the pages' addresses.
pub(super) const PAGES_ARE_AN_ARRAY: bool = cfg!(any(CONFIG_SPARSEMEM_VMEMMAP, CONFIG_FLATMEM));

/// A table of entries.
///
/// # Invariants
///
/// `table` was made by sg_alloc_table() for `capacity` entries, at least one. They come in runs of
/// `run`, which are contiguous; behind each run but the last is the link to the next. The last run may have one entry
/// more, in the place of a link.
pub(super) struct SgTable {
    table: bindings::sg_table,
    capacity: u32,
    /// The number of contiguous entries: no allocation is larger than a page.
    run: u32,
    /// The most bytes that may be one entry: whole pages.
    max_bytes: u32,
}

impl SgTable {
    /// Creates a table of `capacity` entries for the device of `pd`. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` for no entry at all.
    pub(super) fn new(pd: &Pd, capacity: u32) -> Result<Self> {
        let mut table = bindings::sg_table::default();
        let flags = bindings::GFP_NORETRY;
        // SAFETY: `table` may be written; it owns the allocated entries.
        to_result(unsafe { bindings::sg_alloc_table(&mut table, capacity, flags) })?;
        // Dropped by the code below if its layout is not the expected one.
        let mut table = Self {
            table,
            capacity,
            run: capacity,
            max_bytes: (pd.max_segment() / PAGE_SIZE).max(1) * PAGE_SIZE,
        };
        // INVARIANT: allocated just now, and `run` is as it was found.
        table.run = table.find_run()?;
        Ok(table)
    }

    /// Walks all entries, and returns the number of entries between links.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the table does not have the layout of sg_alloc_table().
    fn find_run(&self) -> Result<u32> {
        let (mut run, mut at) = (self.capacity, self.table.sgl);
        for index in 0..self.capacity {
            // SAFETY: an entry, or the link behind one that is not the last (sg_alloc_table()).
            let mut word = unsafe { (*at).page_link };
            let is_link = word & CHAIN != 0;
            if is_link {
                run = run.min(index);
                at = linked(word);
                // SAFETY: a chain entry (SG_CHAIN) has the address of the entry that follows.
                word = unsafe { (*at).page_link };
            }
            let is_behind_run = index != 0 && index % run.max(1) == 0;
            let is_last = index == self.capacity - 1;
            if word & CHAIN != 0 || is_link != is_behind_run && (is_link || !is_last) {
                return Err(EINVAL);
            }
            at = at.wrapping_add(1);
        }
        Ok(run)
    }

    pub(super) fn as_raw(&mut self) -> *mut bindings::scatterlist {
        self.table.sgl
    }

    /// Returns the device's address of the first entry, which stays after it was unmapped.
    pub(super) fn dma_address(&self) -> u64 {
        // SAFETY: the table has an entry, by the type invariant, which only its owner changes.
        unsafe { (*self.table.sgl).dma_address }
    }

    /// Returns the number of entries.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Names the memory of `span`, and returns the number of entries.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there are more pages than entries. `EFAULT`: a page is missing.
    #[inline]
    pub(super) fn fill(&mut self, span: Span<'_>) -> Result<u32> {
        let page = match span.memory() {
            Memory::Contiguous(page) if span.offset() + span.len() <= self.max_bytes => page,
            Memory::Pages(&[page]) => NonNull::new(page).ok_or(EFAULT)?,
            _ => return self.fill_many(span),
        };
        self.set_first(page.as_ptr(), span.offset(), span.len());
        Ok(1)
    }

    /// Writes the first entry.
    #[inline]
    fn set_first(&mut self, page: *mut bindings::page, offset: u32, len: u32) {
        // SAFETY: there is one, which is no link (type invariant), and it is borrowed with `self`.
        let entry = unsafe { &mut *self.table.sgl };
        // The mark of the last entry stays.
        entry.page_link = page.addr() | (entry.page_link & END);
        entry.offset = offset;
        entry.length = len;
    }

    /// Fills the entries for any kind of memory.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the table has too few entries. `EFAULT`: a page is missing.
    #[inline(never)]
    fn fill_many(&mut self, span: Span<'_>) -> Result<u32> {
        match span.memory() {
            Memory::Contiguous(page) => self.fill_contiguous(page, span.offset(), span.len()),
            Memory::Pages(pages) => self.fill_pages(pages, span.offset(), span.len()),
            Memory::Around { edge, pages } => {
                self.fill_around(edge, pages, span.offset(), span.len())
            }
        }
    }

    /// Names `len` bytes of `pages`, by one entry for each run of contiguous pages.
    ///
    /// The loop runs 256 times for 1 MiB. Therefore the number of entries is checked once, for the case that
    /// no two pages are contiguous.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the table has too few entries, or `pages` is too short. `EFAULT`: a page is
    /// missing.
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
        let mut used = count;
        let run = self.run as usize;
        let longest = self.max_bytes - PAGE_SIZE;
        let mut next = first.wrapping_add(1);
        self.set_first(first, offset, PAGE_SIZE - offset);
        let mut last = self.table.sgl;
        let mut end = last.wrapping_add(run - 1);
        for &page in rest {
            // SAFETY: `last` is the entry that was written last, in this table, which is borrowed.
            let length = unsafe { &mut (*last).length };
            if PAGES_ARE_AN_ARRAY && ptr::eq(page, next) && *length <= longest {
                *length += PAGE_SIZE;
                used -= 1;
            } else {
                if page.is_null() {
                    return Err(EFAULT);
                }
                if ptr::eq(last, end) {
                    last = last.wrapping_add(1);
                    // SAFETY: at most one entry a page was written before, of `count`, and the
                    // table has `count` entries. So the link to another run is here, or the last entry.
                    let word = unsafe { (*last).page_link };
                    if word & CHAIN != 0 {
                        last = linked(word);
                    }
                    end = last.wrapping_add(run - 1);
                } else {
                    last = last.wrapping_add(1);
                }
                // SAFETY: `last` is the next entry: of the same chunk of sg_alloc_table(), which does not end yet,
                // or the first of the next chunk.
                let entry = unsafe { &mut *last };
                entry.page_link = page.addr();
                entry.offset = 0;
                entry.length = PAGE_SIZE;
            }
            next = page.wrapping_add(1);
        }
        // SAFETY: `last` is the entry that was written last, in this table, which is borrowed.
        let entry = unsafe { &mut *last };
        // The memory ends within the last page.
        entry.length -= count * PAGE_SIZE - (offset + len);
        if used == self.capacity {
            entry.page_link |= END;
        }
        Ok(used)
    }

    /// Names the end of `edge` from `offset` on, the whole `pages`, and the start of `edge`: `len` bytes, by one entry
    /// for each page.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the table has too few entries, or `len` is too short for `pages`. `EFAULT`: a page is missing.
    fn fill_around(
        &mut self,
        edge: NonNull<bindings::page>,
        pages: &[*mut bindings::page],
        offset: u32,
        len: u32,
    ) -> Result<u32> {
        let (before, whole) = (PAGE_SIZE - offset, pages.len() as u32 * PAGE_SIZE);
        let behind = len.checked_sub(before + whole).ok_or(EINVAL)?;
        let count = (offset + len).div_ceil(PAGE_SIZE);
        if count > self.capacity {
            return Err(EINVAL);
        }
        let mut at = self.table.sgl;
        // SAFETY: the first entry of the table, which is borrowed.
        unsafe { set(&mut at, edge.as_ptr(), offset, before) };
        for &page in pages {
            if page.is_null() {
                return Err(EFAULT);
            }
            // SAFETY: fewer than `count` entries were set, and the table has `count` at least.
            unsafe { set(&mut at, page, 0, PAGE_SIZE) };
        }
        if behind != 0 {
            // SAFETY: `count` has an entry for the start of `edge`, too.
            unsafe { set(&mut at, edge.as_ptr(), 0, behind) };
        }
        Ok(count)
    }

    /// Names a contiguous piece. If it is too long for one entry it is cut where a page ends, as
    /// ib_map_mr_sg() wants it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the table has too few entries, or the piece is empty.
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
            let bytes = left.min(self.max_bytes - offset % PAGE_SIZE);
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
        // SAFETY: made by sg_alloc_table() (type invariant), and not used any more.
        unsafe { bindings::sg_free_table(&mut self.table) };
    }
}

/// Returns the table that a link leads to, as sg_chain_ptr() does.
#[inline]
fn linked(page_link: usize) -> *mut bindings::scatterlist {
    ptr::with_exposed_provenance_mut(page_link & !FLAGS)
}

/// Names `len` bytes by the entry at `at`; `at` moves behind it.
///
/// # Safety
///
/// `at` is an entry of an `sg_table`, or the link to the next entry. No other code uses it meanwhile.
unsafe fn set(
    at: &mut *mut bindings::scatterlist,
    page: *mut bindings::page,
    offset: u32,
    len: u32,
) {
    let entry = loop {
        // SAFETY: an entry or a link, as the caller promises, or the entry that a link of
        // sg_alloc_table() leads to. No other code uses it.
        let entry = unsafe { &mut **at };
        if entry.page_link & CHAIN == 0 {
            break entry;
        }
        *at = linked(entry.page_link);
    };
    // As sg_set_page(): the mark of the last entry stays.
    entry.page_link = page.addr() | (entry.page_link & END);
    entry.offset = offset;
    entry.length = len;
    *at = at.wrapping_add(1);
}
