// SPDX-License-Identifier: GPL-2.0

//! The three-part buffer of an RPC message, `struct xdr_buf`.

use crate::bindings;
use crate::support::memory::{
    Span,
    PAGE_SIZE, //
};
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::ffi::c_void;
use kernel::prelude::*;

/// A buffer of a request.
///
/// # Invariants
///
/// `raw` is a buffer of a live request and its three parts lie in memory of the kernel's direct
/// map, as the core and our own `buf_alloc` provide it.
pub(crate) struct XdrBuf<'a> {
    raw: *mut bindings::xdr_buf,
    _request: PhantomData<&'a ()>,
}

/// Which contiguous part of a buffer is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kvec {
    Head,
    Tail,
}

impl XdrBuf<'_> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant, for `'a`.
    pub(super) unsafe fn from_raw(raw: *mut bindings::xdr_buf) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            raw,
            _request: PhantomData,
        }
    }

    fn get(&self) -> &bindings::xdr_buf {
        // SAFETY: live by the type invariant; whoever handles the request is its only user.
        unsafe { &*self.raw }
    }

    fn kvec(&self, which: Kvec) -> (*mut c_void, u32) {
        let vec = match which {
            Kvec::Head => &self.get().head[0],
            Kvec::Tail => &self.get().tail[0],
        };
        (vec.iov_base, vec.iov_len as u32)
    }

    /// Length of the head.
    pub(crate) fn head_len(&self) -> u32 {
        self.kvec(Kvec::Head).1
    }

    /// Length of the page list's data.
    pub(crate) fn page_len(&self) -> u32 {
        self.get().page_len
    }

    /// Where in its first page the page list's data starts.
    pub(crate) fn page_offset(&self) -> u32 {
        self.get().page_base % PAGE_SIZE
    }

    /// Length of the tail.
    pub(crate) fn tail_len(&self) -> u32 {
        self.kvec(Kvec::Tail).1
    }

    /// Where in its page the head starts.
    pub(crate) fn head_offset(&self) -> u32 {
        self.kvec(Kvec::Head).0.addr() as u32 % PAGE_SIZE
    }

    /// Where in its page the tail starts.
    pub(crate) fn tail_offset(&self) -> u32 {
        self.kvec(Kvec::Tail).0.addr() as u32 % PAGE_SIZE
    }

    /// Length of all three parts.
    pub(crate) fn len(&self) -> u32 {
        self.head_len() + self.page_len() + self.tail_len()
    }

    /// Whether the page list is the data argument of a write (`XDRBUF_WRITE`).
    pub(crate) fn is_write_payload(&self) -> bool {
        self.get().flags & bindings::XDRBUF_WRITE != 0
    }

    /// Whether the page list is where a read's data goes (`XDRBUF_READ`).
    pub(crate) fn is_read_payload(&self) -> bool {
        self.get().flags & bindings::XDRBUF_READ != 0
    }

    /// The memory of a piece of the head.
    pub(crate) fn head_span(&self, from: u32, to: u32) -> Result<Span<'_>> {
        self.kvec_span(Kvec::Head, from, to)
    }

    /// The memory of a piece of the tail.
    pub(crate) fn tail_span(&self, from: u32, to: u32) -> Result<Span<'_>> {
        self.kvec_span(Kvec::Tail, from, to)
    }

    fn kvec_span(&self, which: Kvec, from: u32, to: u32) -> Result<Span<'_>> {
        let (base, len) = self.kvec(which);
        if from >= to || to > len {
            return Err(EINVAL);
        }
        let start = base.wrapping_byte_add(from as usize);
        // SAFETY: the parts of a buffer lie in the direct map (type invariant).
        let page = unsafe { bindings::virt_to_page(start) };
        let page = NonNull::new(page).ok_or(EFAULT)?;
        // SAFETY: `from..to` lies in the part, whose memory the request keeps until it is
        // released; the transport fences all registrations before (client::call).
        Ok(unsafe { Span::contiguous(page, start.addr() as u32 % PAGE_SIZE, to - from) })
    }

    /// The memory of a piece of the page list.
    pub(crate) fn page_span(&self, from: u32, to: u32) -> Result<Span<'_>> {
        let buf = self.get();
        if from >= to || to > buf.page_len {
            return Err(EINVAL);
        }
        let (start, end) = (buf.page_base + from, buf.page_base + to);
        let first = start / PAGE_SIZE;
        // SAFETY: the page list has an entry for every page that `page_base + page_len` bytes
        // reach (include/linux/sunrpc/xdr.h).
        let pages = unsafe { buf.pages.add(first as usize) };
        let count = end.div_ceil(PAGE_SIZE) - first;
        // SAFETY: the `count` entries reach to `end`, within the list; nobody changes them while
        // the request is being sent.
        let pages = unsafe { core::slice::from_raw_parts(pages, count as usize) };
        // SAFETY: the pages of a request stay with it until it is released; the transport ends
        // all registrations before.
        Ok(unsafe { Span::pages(pages, start % PAGE_SIZE, to - from) })
    }

    /// Copies `out.len()` octets of the message, from octet `offset` on.
    pub(crate) fn read(&self, offset: u32, out: &mut [u8]) -> Result {
        // SAFETY: the buffer is live; the function checks the range against the parts' lengths.
        let ret = unsafe {
            bindings::read_bytes_from_xdr_buf(
                self.raw,
                offset,
                out.as_mut_ptr().cast(),
                out.len() as u32,
            )
        };
        kernel::error::to_result(ret)
    }

    /// Copies `data` into the message, from octet `offset` on.
    pub(crate) fn write(&self, offset: u32, data: &[u8]) -> Result {
        if data.is_empty() {
            return Ok(());
        }
        // SAFETY: the buffer is live and ours to fill; the function checks the range, and reads
        // `data` only.
        let ret = unsafe {
            bindings::write_bytes_to_xdr_buf(
                self.raw,
                offset,
                data.as_ptr().cast_mut().cast(),
                data.len() as u32,
            )
        };
        kernel::error::to_result(ret)
    }

    /// Allocates the pages that a sparse page list lacks (`XDRBUF_SPARSE_PAGES`).
    ///
    /// # Errors
    ///
    /// `ENOBUFS`: no memory now; sunrpc tries again later.
    ///
    /// Context: any, does not sleep.
    pub(crate) fn fill_sparse_pages(&self) -> Result {
        let buf = self.get();
        if buf.flags & bindings::XDRBUF_SPARSE_PAGES == 0 {
            return Ok(());
        }
        let count = (buf.page_base + buf.page_len).div_ceil(PAGE_SIZE);
        for index in (buf.page_base / PAGE_SIZE)..count {
            // SAFETY: `index` is below the number of pages the list has entries for.
            let entry = unsafe { buf.pages.add(index as usize) };
            // SAFETY: as above; the request's handler is the only user of the list.
            if unsafe { (*entry).is_null() } {
                let gfp = bindings::GFP_NOWAIT | bindings::__GFP_NOWARN;
                // SAFETY: has no preconditions.
                let page = unsafe { bindings::alloc_pages(gfp, 0) };
                if page.is_null() {
                    return Err(crate::support::errno::no_buffers());
                }
                // SAFETY: as above. The core frees the page with the others.
                unsafe { *entry = page };
            }
        }
        Ok(())
    }
}
