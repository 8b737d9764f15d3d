// SPDX-License-Identifier: GPL-2.0

//! Memory that moves: a message in pages that belong to whoever has it.
//!
//! `sunrpc` takes pages out of a request and `rdma` has a device read or write them. Between the
//! two they are a [`PageBuf`], and nobody else can reach or free them.

use super::memory::PAGE_SIZE;
use crate::bindings;
use core::ops::Range;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A piece of a page, or of pages that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The page that it begins in.
    page: NonNull<bindings::page>,
    /// Where in that page.
    offset: u32,
    /// Its length in bytes.
    len: u32,
}

impl Run {
    /// A piece of one page.
    pub(crate) fn new(page: NonNull<bindings::page>, offset: u32, len: u32) -> Self {
        Self { page, offset, len }
    }

    /// The page that it begins in.
    pub(crate) fn page(&self) -> *mut bindings::page {
        self.page.as_ptr()
    }

    /// Where in that page it begins, in bytes.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// Its length in bytes.
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
    head: Option<Run>,
    body_first: usize,
    body_offset: u32,
    body_len: u32,
    tail: Option<Run>,
}

// SAFETY: pages do not belong to a task, and the references to them are this object's.
unsafe impl Send for PageBuf {}
// SAFETY: a shared buffer gives out pointers to pages only, and can be neither read nor written.
unsafe impl Sync for PageBuf {}

impl PageBuf {
    /// A buffer of whole pages.
    ///
    /// # Safety
    ///
    /// Each element must be a page of order 0 in the direct map, with a reference that becomes
    /// this object's, and which nobody else reads or writes.
    pub(crate) unsafe fn whole(owned: KVec<NonNull<bindings::page>>) -> Self {
        let body_len = owned.len() as u32 * PAGE_SIZE;
        // INVARIANT: promised by the caller.
        Self {
            owned,
            head: None,
            body_first: 0,
            body_offset: 0,
            body_len,
            tail: None,
        }
    }

    /// A message that lies in some of the pages of `owned`: `head`, then `body_len` bytes of the
    /// pages from `body` on, which is counted in bytes from the start of the first page, `tail`.
    ///
    /// # Safety
    ///
    /// As for [`Self::whole`], but others may read the pages.
    ///
    /// # Errors
    ///
    /// `EFAULT`, with the pages: a piece does not lie in them.
    pub(crate) unsafe fn message(
        owned: KVec<NonNull<bindings::page>>,
        head: Option<Run>,
        body: Range<usize>,
        tail: Option<Run>,
    ) -> Result<Self, KVec<NonNull<bindings::page>>> {
        let in_one = |run: &Option<Run>| {
            run.is_none_or(|run| {
                run.offset
                    .checked_add(run.len)
                    .is_some_and(|end| end <= PAGE_SIZE)
                    && owned.contains(&run.page)
            })
        };
        let page_size = PAGE_SIZE as usize;
        let body_fits = body.start <= body.end && body.end <= owned.len() * page_size;
        if !in_one(&head) || !in_one(&tail) || !body_fits {
            return Err(owned);
        }
        // INVARIANT: checked just now, and promised by the caller.
        Ok(Self {
            owned,
            head,
            body_first: body.start / page_size,
            body_offset: (body.start % page_size) as u32,
            body_len: (body.end - body.start) as u32,
            tail,
        })
    }

    /// No memory.
    pub(crate) const fn empty() -> Self {
        // INVARIANT: there is nothing.
        Self {
            owned: KVec::new(),
            head: None,
            body_first: 0,
            body_offset: 0,
            body_len: 0,
            tail: None,
        }
    }

    /// The pages, to go where they came from.
    pub(crate) fn into_pages(mut self) -> KVec<NonNull<bindings::page>> {
        core::mem::take(&mut self.owned)
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> u32 {
        let ends = [self.head, self.tail].into_iter().flatten();
        ends.fold(self.body_len, |len, run| len + run.len)
    }

    /// The pieces that the bytes `range` lie in, in order; fewer if there are not so many.
    pub(crate) fn runs(&self, range: Range<u32>) -> impl Iterator<Item = Run> + Clone + '_ {
        let first = self.body_offset;
        let mut left = self.body_len;
        let pages = self.owned.get(self.body_first..).unwrap_or_default();
        let body = pages.iter().enumerate().map_while(move |(index, page)| {
            let offset = if index == 0 { first } else { 0 };
            let len = left.min(PAGE_SIZE - offset);
            left -= len;
            (len != 0).then_some(Run::new(*page, offset, len))
        });
        let mut start = 0;
        // Said in full, since every type has a `chain` by pin_init.
        let all = Iterator::chain(Iterator::chain(self.head.into_iter(), body), self.tail);
        all.filter_map(move |run| {
            let end = start + run.len;
            let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
            let skip = from - start;
            start = end;
            (from < to).then_some(Run {
                offset: run.offset + skip,
                len: to - from,
                ..run
            })
        })
    }

    /// Copies `data` to byte `at`, of a buffer of [whole](Self::whole) pages.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer is not as long, or not one of whole pages.
    pub(crate) fn write(&mut self, at: u32, mut data: &[u8]) -> Result {
        let end = at.checked_add(data.len() as u32).ok_or(EINVAL)?;
        if end > self.body_len || self.head.is_some() || self.body_offset != 0 {
            return Err(EINVAL);
        }
        for run in self.runs(at..end) {
            let (now, later) = data.split_at_checked(run.len as usize).ok_or(EINVAL)?;
            // SAFETY: a page of this object, in the direct map (type invariant).
            let page = unsafe { bindings::page_address(run.page()) };
            let to = page.cast::<u8>().wrapping_add(run.offset as usize);
            // SAFETY: the piece lies within the page, which nobody else has (`whole`), so `data`
            // is elsewhere.
            unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), to, now.len()) };
            data = later;
        }
        Ok(())
    }
}

impl PageBuf {
    /// Copies the bytes from `at` on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer is not as long.
    pub(crate) fn read(&self, at: u32, mut out: &mut [u8]) -> Result {
        let end = at.checked_add(out.len() as u32).ok_or(EINVAL)?;
        if end > self.len() {
            return Err(EINVAL);
        }
        for run in self.runs(at..end) {
            let (now, later) = out.split_at_mut_checked(run.len as usize).ok_or(EINVAL)?;
            // SAFETY: the piece lies within the page, which is this object's, and `now` has room
            // for it. A page of the page cache may be written meanwhile, by whoever writes to the
            // file: memcpy_from_page() is C, where that gives some of the bytes and no more.
            unsafe {
                bindings::copy_from_page(
                    now.as_mut_ptr().cast(),
                    run.page(),
                    run.offset as usize,
                    now.len(),
                )
            };
            out = later;
        }
        Ok(())
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        release(core::mem::take(&mut self.owned));
    }
}

/// Gives pages back to the kernel.
pub(crate) fn release(mut pages: KVec<NonNull<bindings::page>>) {
    if !pages.is_empty() {
        // SAFETY: `release_pages` takes an array of pages, each with a reference to give back,
        // which are those of the vector. `NonNull` has the layout of a pointer.
        unsafe { bindings::release_page_array(pages.as_mut_ptr().cast(), pages.len() as i32) };
    }
}
