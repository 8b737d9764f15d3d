// SPDX-License-Identifier: GPL-2.0

//! Messages in pages that are moved between owners.
//!
//! `sunrpc` takes pages out of a request and `rdma` has a device read or write them. Between the
//! two they belong to a [`PageBuf`], and no other code can reach or free them.

use super::{
    memory::PAGE_SIZE,
    page_stash, //
};
use crate::bindings;
use core::{
    ops::Range,
    ptr::NonNull,
    slice, //
};
use kernel::{
    alloc::{
        Allocator,
        Vec, //
    },
    prelude::*, //
};

/// A piece of a page, or of pages that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRun {
    /// The page that it begins in.
    page: NonNull<bindings::page>,
    /// The offset in that page, in bytes.
    offset: u32,
    /// Its length in bytes.
    len: u32,
}

impl PageRun {
    /// Makes a piece of one page.
    pub(crate) fn new(page: NonNull<bindings::page>, offset: u32, len: u32) -> Self {
        Self { page, offset, len }
    }

    /// Returns the page that it begins in.
    pub(crate) fn page(&self) -> *mut bindings::page {
        self.page.as_ptr()
    }

    /// Returns the offset in that page, in bytes.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}

/// A message in pages that belong to it: a piece at the start, pages, a piece at the end.
///
/// # Invariants
///
/// Each element of `owned` is a page in the kernel's direct map, with a reference that belongs to
/// this object. `head` and `tail` lie in such pages, or are empty; the `body_len` bytes of the
/// body lie in the elements from `body_first` on, `body_offset` bytes from the start of the first.
pub(crate) struct PageBuf {
    owned: KVec<NonNull<bindings::page>>,
    /// The number of bytes of the message before the first byte of this buffer.
    start: u32,
    head: Option<PageRun>,
    body_first: usize,
    body_offset: u32,
    body_len: u32,
    tail: Option<PageRun>,
}

// SAFETY: `struct page` does not belong to a task, and the references to the pages are this object's.
unsafe impl Send for PageBuf {}
// SAFETY: a shared `PageBuf` gives out pointers to pages only, and can be neither read nor written.
unsafe impl Sync for PageBuf {}

/// The places of the pieces of a message among pages.
pub(crate) struct Pieces {
    /// The number of bytes of the message before these pieces, which lie elsewhere.
    pub(crate) start: u32,
    /// The first piece.
    pub(crate) head: Option<PageRun>,
    /// The body, in bytes from the start of the first page.
    pub(crate) body: Range<usize>,
    /// The last piece.
    pub(crate) tail: Option<PageRun>,
}

impl PageBuf {
    /// Makes a buffer without memory.
    pub(crate) const fn empty() -> Self {
        // INVARIANT: there is nothing.
        Self {
            owned: KVec::new(),
            start: 0,
            head: None,
            body_first: 0,
            body_offset: 0,
            body_len: 0,
            tail: None,
        }
    }

    /// Forgets the message, and keeps the pages.
    fn forget(&mut self) {
        self.start = 0;
        self.head = None;
        self.body_first = 0;
        self.body_offset = 0;
        self.body_len = 0;
        self.tail = None;
    }

    /// Gives all pages back to the kernel. The vector of their addresses keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.forget();
        release(&mut self.owned);
    }

    /// Shrinks a buffer that waits for its next use: keeps one page and a short vector at most. Other pages of a
    /// buffer of whole pages go to the [stash](page_stash), as far as that has room.
    pub(crate) fn shrink_for_reuse(&mut self) {
        self.forget();
        if self.owned.len() > Self::PAGES_AT_REST {
            self.stash();
        }
        if self.owned.capacity() > Self::ENTRIES_AT_REST {
            self.owned = KVec::new();
        }
    }

    /// Gives the pages to the stash, or back to the kernel.
    pub(crate) fn stash(&mut self) {
        self.forget();
        page_stash::put(&mut self.owned);
        release(&mut self.owned);
    }

    const PAGES_AT_REST: usize = 1;
    const ENTRIES_AT_REST: usize = 64;

    /// Becomes a buffer of `count` whole pages: the pages that it kept, pages of the stash, or the pages of
    /// `entries`, which are null then. Returns whether the pages are the pages of `entries`.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL`: there are fewer than `count` entries. `EFAULT`: an entry has no page.
    ///
    /// # Safety
    ///
    /// Each of `entries` that is not null must be a page of order 0 in the direct map, with a
    /// reference that becomes this object's. No other code may read or write it.
    pub(crate) unsafe fn take_whole(
        &mut self,
        entries: &mut [*mut bindings::page],
        count: usize,
    ) -> Result<bool> {
        self.forget();
        let mut taken = false;
        if self.owned.len() != count {
            self.stash();
            taken = !page_stash::take(&mut self.owned, count);
        }
        if taken {
            take(&mut self.owned, entries.get_mut(..count).ok_or(EINVAL)?)?;
        }
        // INVARIANT: promised by the caller of this time, or of an earlier one.
        self.body_len = count as u32 * PAGE_SIZE;
        Ok(taken)
    }

    /// Returns the number of bytes of the message in this buffer.
    pub(crate) fn len(&self) -> u32 {
        let ends = [self.head, self.tail].into_iter().flatten();
        ends.fold(self.body_len, |len, run| len + run.len)
    }

    /// Exchanges the pages with the pages of the first entries of `entries`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `entries` is shorter than the buffer has pages.
    ///
    /// # Safety
    ///
    /// As for [`take_whole`](Self::take_whole), and this must be a buffer of whole pages.
    pub(crate) unsafe fn exchange(&mut self, entries: &mut [*mut bindings::page]) -> Result {
        let entries = entries.get_mut(..self.owned.len()).ok_or(EINVAL)?;
        self.forget();
        let mut is_whole = true;
        // INVARIANT: the pages of the entries are this object's now, as the caller promises.
        for (place, entry) in self.owned.iter_mut().zip(entries.iter_mut()) {
            match NonNull::new(core::mem::replace(entry, place.as_ptr())) {
                Some(before) => *place = before,
                None => is_whole = false,
            }
        }
        if !is_whole {
            self.remove_given(entries);
        }
        Ok(())
    }

    /// Removes the pages that went to `entries`, and for which no page came in exchange.
    #[cold]
    fn remove_given(&mut self, entries: &[*mut bindings::page]) {
        let mut kept = 0;
        for (index, entry) in entries.iter().enumerate() {
            let page = self.owned.get(index).copied();
            let page = page.filter(|page| page.as_ptr() != *entry);
            if let (Some(page), Some(place)) = (page, self.owned.get_mut(kept)) {
                *place = page;
                kept += 1;
            }
        }
        self.owned.truncate(kept);
    }

    /// Becomes the message whose pieces lie in the pages of `entries`. Takes the pages; the entries are
    /// null then.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EFAULT`: a piece does not lie in them, or a page is missing.
    ///
    /// # Safety
    ///
    /// As for [`take_whole`](Self::take_whole), but others may read the pages.
    pub(crate) unsafe fn take_message(
        &mut self,
        entries: &mut [*mut bindings::page],
        pieces: &Pieces,
    ) -> Result {
        self.clear();
        take(&mut self.owned, entries)?;
        let in_one = |run: &Option<PageRun>| {
            run.is_none_or(|run| {
                run.offset
                    .checked_add(run.len)
                    .is_some_and(|end| end <= PAGE_SIZE)
                    && self.owned.contains(&run.page)
            })
        };
        let page_size = PAGE_SIZE as usize;
        let body = &pieces.body;
        let body_fits = body.start <= body.end && body.end <= self.owned.len() * page_size;
        if !in_one(&pieces.head) || !in_one(&pieces.tail) || !body_fits {
            self.clear();
            return Err(EFAULT);
        }
        // INVARIANT: checked just now, and promised by the caller.
        self.start = pieces.start;
        self.head = pieces.head;
        self.body_first = body.start / page_size;
        self.body_offset = (body.start % page_size) as u32;
        self.body_len = (body.end - body.start) as u32;
        self.tail = pieces.tail;
        Ok(())
    }

    /// Returns the piece that all bytes `range` of the message lie in, if it is in one page of the body of a buffer
    /// that has no other pieces.
    #[inline]
    pub(crate) fn run_in_page(&self, range: &Range<u32>) -> Option<PageRun> {
        let from = range.start.checked_sub(self.start)?;
        let len = range.end.checked_sub(range.start)?;
        let at = self.body_offset.checked_add(from)?;
        let offset = at % PAGE_SIZE;
        let is_body =
            self.head.is_none() && self.tail.is_none() && from.checked_add(len)? <= self.body_len;
        if !is_body || len > PAGE_SIZE - offset {
            return None;
        }
        let page = *self
            .owned
            .get(self.body_first + (at / PAGE_SIZE) as usize)?;
        Some(PageRun { page, offset, len })
    }

    /// Returns the pieces that the bytes `range` of the message lie in, in order. They are shorter than
    /// `range` if the message is, and empty if `range` begins before this buffer.
    #[inline]
    pub(crate) fn runs(&self, range: Range<u32>) -> Runs<'_> {
        let (from, to) = match range.start.checked_sub(self.start) {
            Some(from) => (from, range.end.saturating_sub(self.start).max(from)),
            None => (0, 0),
        };
        let (head, body, tail) = match (self.head, self.tail) {
            (None, None) => (None, from.min(self.body_len)..to.min(self.body_len), None),
            ends => self.parts(ends, from..to),
        };
        let at = self.body_offset + body.start;
        let first = self.body_first + (at / PAGE_SIZE) as usize;
        Runs {
            head,
            pages: self.owned.get(first..).unwrap_or_default().iter(),
            offset: at % PAGE_SIZE,
            left: body.end - body.start,
            tail,
        }
    }

    /// Returns the parts of the head, of the body, and of the tail of a buffer that lie in the bytes `range` of the
    /// buffer.
    fn parts(
        &self,
        (head, tail): (Option<PageRun>, Option<PageRun>),
        range: Range<u32>,
    ) -> (Option<PageRun>, Range<u32>, Option<PageRun>) {
        let mut before = 0;
        // Returns the part of the next `len` bytes that lies in the range.
        let mut meant = |len: u32| {
            let end = before + len;
            let part =
                range.start.clamp(before, end) - before..range.end.clamp(before, end) - before;
            before = end;
            part
        };
        let piece = |run: Option<PageRun>, part: Range<u32>| {
            run.filter(|_| !part.is_empty()).map(|run| PageRun {
                offset: run.offset + part.start,
                len: part.end - part.start,
                ..run
            })
        };
        let head = piece(head, meant(head.map_or(0, |run| run.len)));
        let body = meant(self.body_len);
        let tail = piece(tail, meant(tail.map_or(0, |run| run.len)));
        (head, body, tail)
    }

    /// Copies `data` to byte `at` of a buffer of whole pages ([`take_whole`](Self::take_whole)).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer is shorter, or does not consist of whole pages.
    pub(crate) fn write(&mut self, at: u32, mut data: &[u8]) -> Result {
        let end = at.checked_add(data.len() as u32).ok_or(EINVAL)?;
        if end > self.body_len || self.start != 0 || self.head.is_some() || self.body_offset != 0 {
            return Err(EINVAL);
        }
        for run in self.runs(at..end) {
            let (now, later) = data.split_at_checked(run.len as usize).ok_or(EINVAL)?;
            // SAFETY: a page of this object, in the direct map (type invariant).
            let page = unsafe { bindings::page_address(run.page()) };
            let to = page.cast::<u8>().wrapping_add(run.offset as usize);
            // SAFETY: the piece lies within the page, which this object alone reads and writes
            // (`take_whole`), so `data` does not overlap with it.
            unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), to, now.len()) };
            data = later;
        }
        Ok(())
    }
}

impl PageBuf {
    /// Copies the bytes from byte `at` on to `out`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer is shorter.
    pub(crate) fn read(&self, at: u32, mut out: &mut [u8]) -> Result {
        let end = at.checked_add(out.len() as u32).ok_or(EINVAL)?;
        for run in self.runs(at..end) {
            let (now, later) = out.split_at_mut_checked(run.len as usize).ok_or(EINVAL)?;
            // SAFETY: the piece lies within the page, which is this object's, and `now` has room
            // for it. A task that writes to the file may write to a page of the page cache
            // meanwhile: memcpy_from_page() is C, where such a race gives a mix of old and new bytes.
            unsafe {
                bindings::memcpy_from_page(
                    now.as_mut_ptr().cast(),
                    run.page(),
                    run.offset as usize,
                    now.len(),
                )
            };
            out = later;
        }
        if out.is_empty() {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }
}

/// Some of the pieces of a [`PageBuf`].
pub(crate) struct Runs<'a> {
    head: Option<PageRun>,
    /// The rest of the body: `left` bytes, the first at `offset` of the first page.
    pages: slice::Iter<'a, NonNull<bindings::page>>,
    offset: u32,
    left: u32,
    tail: Option<PageRun>,
}

impl<'a> Runs<'a> {
    /// Returns the whole pages that come next. They are no more than [`Self::skip_pages`] may skip.
    #[inline]
    pub(crate) fn whole_pages(&self) -> &'a [NonNull<bindings::page>] {
        if self.head.is_some() || self.offset != 0 {
            return &[];
        }
        let pages = self.pages.as_slice();
        pages
            .get(..(self.left / PAGE_SIZE) as usize)
            .unwrap_or(pages)
    }

    /// Skips the first `count` of the pages that come next.
    #[inline]
    pub(crate) fn skip_pages(&mut self, count: usize) {
        let (pages, left) = (self.pages.as_slice(), self.left);
        self.pages = pages.get(count..).unwrap_or_default().iter();
        self.left = left.saturating_sub(count as u32 * PAGE_SIZE);
    }
}

impl Iterator for Runs<'_> {
    type Item = PageRun;

    #[inline]
    fn next(&mut self) -> Option<PageRun> {
        if let Some(head) = self.head.take() {
            return Some(head);
        }
        if self.left == 0 {
            return self.tail.take();
        }
        let page = *self.pages.next()?;
        let run = PageRun::new(page, self.offset, self.left.min(PAGE_SIZE - self.offset));
        self.left -= run.len;
        self.offset = 0;
        Some(run)
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        release(&mut self.owned);
    }
}

/// Moves the pages of `entries` to `owned`, which is empty. On failure all stay where they are.
///
/// # Errors
///
/// `ENOMEM`: there is no memory. `EFAULT`: an entry has no page.
fn take(owned: &mut KVec<NonNull<bindings::page>>, entries: &mut [*mut bindings::page]) -> Result {
    if entries.iter().any(|page| page.is_null()) {
        return Err(EFAULT);
    }
    // SAFETY: no entry is null, and `NonNull` has the layout of a pointer.
    let pages = unsafe { slice::from_raw_parts(entries.as_ptr().cast(), entries.len()) };
    owned.extend_from_slice(pages, GFP_KERNEL)?;
    entries.fill(core::ptr::null_mut());
    Ok(())
}

/// Gives pages back to the kernel.
pub(super) fn release<A: Allocator>(pages: &mut Vec<NonNull<bindings::page>, A>) {
    if !pages.is_empty() {
        // SAFETY: `release_pages` takes an array of pages, each with a reference to give back: the
        // pages of the vector. `NonNull` has the layout of a pointer.
        unsafe {
            bindings::rpcrdma_release_page_array(pages.as_mut_ptr().cast(), pages.len() as i32)
        };
        pages.clear();
    }
}
