// SPDX-License-Identifier: GPL-2.0

//! The three-part buffer of an RPC message, `struct xdr_buf`.
//!
//! The sender has a [`CallBuf`], to read, and the [`XdrBuf`] of the Reply to come, whose content
//! is not its business. The Reply's handler has a [`ReplyBuf`], to fill.

use crate::{
    bindings,
    support::memory::{
        Span,
        PAGE_SIZE, //
    },
};
use core::{
    marker::PhantomData,
    ops::Range,
    ptr::NonNull, //
};
use kernel::{
    ffi::c_void,
    prelude::*, //
};

/// A buffer of a request: how long its parts are, and where they lie.
///
/// # Invariants
///
/// `raw` is a buffer of a request that lives for `'a`. Its three parts lie in memory of the
/// kernel's direct map, as the core and our own `buf_alloc` provide it, and stay with the request
/// until it is released.
#[derive(Clone, Copy)]
pub(crate) struct XdrBuf<'a> {
    raw: NonNull<bindings::xdr_buf>,
    _request: PhantomData<&'a ()>,
}

/// One of a buffer's parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum XdrPart {
    /// The first, contiguous part.
    Head,
    /// The page list.
    Pages,
    /// The last, contiguous part.
    Tail,
}

/// The length of a part, and its offset in its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Length in bytes.
    pub(crate) len: u32,
    /// Offset in the first page, in bytes.
    pub(crate) page_offset: u32,
}

/// The measures of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measures {
    /// The first, contiguous part.
    pub(crate) head: Extent,
    /// The page list.
    pub(crate) pages: Extent,
    /// The last, contiguous part.
    pub(crate) tail: Extent,
}

/// Reads a field of a buffer.
macro_rules! field {
    ($buf:expr, $($field:tt)+) => {
        // SAFETY: the buffer is alive by the type invariant of `XdrBuf`; only the present owner of the
        // request changes it, which is its sender or its Reply's handler.
        unsafe { (*$buf.raw.as_ptr()).$($field)+ }
    };
}

impl<'a> XdrBuf<'a> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant, for `'a`. `raw` must not be null.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *const bindings::xdr_buf) -> Self {
        Self {
            // SAFETY: not null, by the caller's promise.
            // INVARIANT: promised by the caller.
            raw: unsafe { NonNull::new_unchecked(raw.cast_mut()) },
            _request: PhantomData,
        }
    }

    /// Returns the base and the length of the head or the tail.
    #[inline]
    fn kvec(&self, part: XdrPart) -> (*mut c_void, u32) {
        let (base, len) = match part {
            XdrPart::Tail => (
                field!(self, tail[0].iov_base),
                field!(self, tail[0].iov_len),
            ),
            XdrPart::Head | XdrPart::Pages => (
                field!(self, head[0].iov_base),
                field!(self, head[0].iov_len),
            ),
        };
        (base, len as u32)
    }

    /// Returns the length of the head.
    #[inline]
    pub(crate) fn head_len(&self) -> u32 {
        field!(self, head[0].iov_len) as u32
    }

    /// Returns the length of the page list's data.
    #[inline]
    pub(crate) fn page_len(&self) -> u32 {
        field!(self, page_len)
    }

    /// Returns the length of the tail.
    #[inline]
    pub(crate) fn tail_len(&self) -> u32 {
        field!(self, tail[0].iov_len) as u32
    }

    /// Returns the length of all three parts.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.head_len() + self.page_len() + self.tail_len()
    }

    /// Returns all measures.
    #[inline]
    pub(crate) fn measure(&self) -> Measures {
        let contiguous = |part| {
            let (base, len) = self.kvec(part);
            Extent {
                len,
                page_offset: base.addr() as u32 % PAGE_SIZE,
            }
        };
        Measures {
            head: contiguous(XdrPart::Head),
            pages: Extent {
                len: self.page_len(),
                page_offset: field!(self, page_base) % PAGE_SIZE,
            },
            tail: contiguous(XdrPart::Tail),
        }
    }

    /// Returns whether the page list is the data argument of a write (`XDRBUF_WRITE`).
    #[inline]
    pub(crate) fn is_write_payload(&self) -> bool {
        field!(self, flags) & bindings::XDRBUF_WRITE != 0
    }

    /// Returns whether the page list takes the data of a read (`XDRBUF_READ`).
    #[inline]
    pub(crate) fn is_read_payload(&self) -> bool {
        field!(self, flags) & bindings::XDRBUF_READ != 0
    }

    /// Returns whether the page list may lack pages (`XDRBUF_SPARSE_PAGES`).
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        field!(self, flags) & bindings::XDRBUF_SPARSE_PAGES != 0
    }

    /// Returns the entries of the page list.
    pub(super) fn page_entries(&self) -> impl Iterator<Item = *mut *mut bindings::page> {
        let (pages, base) = (field!(self, pages), field!(self, page_base));
        let range = base / PAGE_SIZE..(base + self.page_len()).div_ceil(PAGE_SIZE);
        range.map(move |index| pages.wrapping_add(index as usize))
    }

    /// Returns the memory of a piece of a part.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the part is not as long. `EFAULT`: its memory is missing.
    #[inline]
    pub(crate) fn span(&self, part: XdrPart, range: Range<u32>) -> Result<Span<'a>> {
        let (base, len) = match part {
            XdrPart::Pages => (core::ptr::null_mut(), self.page_len()),
            XdrPart::Head | XdrPart::Tail => self.kvec(part),
        };
        if range.start >= range.end || range.end > len {
            return Err(EINVAL);
        }
        let len = range.end - range.start;
        if part == XdrPart::Pages {
            let start = field!(self, page_base) + range.start;
            let first = start / PAGE_SIZE;
            let count = (start + len).div_ceil(PAGE_SIZE) - first;
            let list = field!(self, pages);
            // SAFETY: the page list has an entry for every page that `page_base + page_len` bytes
            // reach (include/linux/sunrpc/xdr.h).
            let pages = unsafe { list.add(first as usize) };
            // SAFETY: the `count` entries lie within the list, and do not change while the sender has the
            // request (XPRT_LOCKED).
            let pages = unsafe { core::slice::from_raw_parts(pages, count as usize) };
            // SAFETY: the pages stay with the request until it is released; the transport ends
            // the peer's access to them before (`Transport::release`).
            return Ok(unsafe { Span::pages(pages, start % PAGE_SIZE, len) });
        }
        let start = base.wrapping_byte_add(range.start as usize);
        // SAFETY: the parts of a buffer lie in the direct map (type invariant).
        let page = unsafe { bindings::virt_to_page(start) };
        let page = NonNull::new(page).ok_or(EFAULT)?;
        // SAFETY: the piece lies in the part, whose memory stays with the request until it is
        // released; the transport ends the peer's access to it before (`Transport::release`).
        Ok(unsafe { Span::contiguous(page, start.addr() as u32 % PAGE_SIZE, len) })
    }
}

/// An encoded message, to read.
#[derive(Clone, Copy)]
pub(crate) struct CallBuf<'a>(XdrBuf<'a>);

impl CallBuf<'_> {
    /// # Safety
    ///
    /// As for [`XdrBuf::from_raw`], and the message must not change for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *const bindings::xdr_buf) -> Self {
        // SAFETY: the caller promises a buffer that lives for `'a`.
        Self(unsafe { XdrBuf::from_raw(raw) })
    }

    /// Copies `out.len()` bytes of the message, from byte `offset` on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the message is not as long.
    #[inline]
    pub(crate) fn read(&self, offset: u32, out: &mut [u8]) -> Result {
        let (base, len) = self.kvec(XdrPart::Head);
        if offset as usize + out.len() > len as usize {
            return self.read_parts(offset, out);
        }
        let from = base.cast::<u8>().wrapping_add(offset as usize);
        // SAFETY: the range lies in the head, which is of this request, so `out` is elsewhere.
        unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Reads bytes that lie in several parts of the buffer.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer is too short.
    fn read_parts(&self, offset: u32, out: &mut [u8]) -> Result {
        // SAFETY: the buffer is alive by the invariant of `XdrBuf`; the function checks the range
        // against the parts' lengths.
        let ret = unsafe {
            bindings::read_bytes_from_xdr_buf(
                self.raw.as_ptr(),
                offset,
                out.as_mut_ptr().cast(),
                out.len() as u32,
            )
        };
        kernel::error::to_result(ret)
    }
}

impl<'a> core::ops::Deref for CallBuf<'a> {
    type Target = XdrBuf<'a>;

    #[inline]
    fn deref(&self) -> &XdrBuf<'a> {
        &self.0
    }
}

/// The receive buffer of a request whose Reply is being handled, to fill.
pub(crate) struct ReplyBuf<'a> {
    rqst: NonNull<bindings::rpc_rqst>,
    buf: XdrBuf<'a>,
}

impl ReplyBuf<'_> {
    /// # Safety
    ///
    /// `rqst` must be pinned for `'a`, and no other code may use its receive buffer then.
    #[inline]
    pub(super) unsafe fn new(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // SAFETY: the pin (xprt_pin_rqst()) keeps the request.
        let buf = unsafe { XdrBuf::from_raw(&raw const (*rqst.as_ptr()).rq_rcv_buf) };
        Self { rqst, buf }
    }

    /// Copies `data` into the message, from byte `offset` on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer is not as long.
    #[inline]
    pub(crate) fn write(&mut self, offset: u32, data: &[u8]) -> Result {
        let (base, len) = self.kvec(XdrPart::Head);
        if offset as usize + data.len() > len as usize {
            return if data.is_empty() {
                Ok(())
            } else {
                self.write_parts(offset, data)
            };
        }
        let to = base.cast::<u8>().wrapping_add(offset as usize);
        // SAFETY: the range lies in the head, which is ours to fill and of this request, so
        // `data` is elsewhere.
        unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Returns the memory of the head or of the tail.
    pub(crate) fn part_mut(&mut self, part: XdrPart) -> &mut [u8] {
        let (base, len) = self.kvec(part);
        let base = NonNull::new(base.cast::<u8>()).unwrap_or(NonNull::dangling());
        // SAFETY: `len` bytes of the buffer of the request (xdr_buf_init()), which buf_alloc() has zeroed and which are
        // ours to fill while `self` is borrowed.
        unsafe { core::slice::from_raw_parts_mut(base.as_ptr(), len as usize) }
    }

    /// Writes bytes that lie in several parts of the buffer.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer is too short.
    fn write_parts(&mut self, offset: u32, data: &[u8]) -> Result {
        // SAFETY: the buffer is alive and ours to fill; the function checks the range, and reads
        // `data` only.
        let ret = unsafe {
            bindings::write_bytes_to_xdr_buf(
                self.buf.raw.as_ptr(),
                offset,
                data.as_ptr().cast_mut().cast(),
                data.len() as u32,
            )
        };
        kernel::error::to_result(ret)
    }

    /// Ends the head after `len` bytes, the inline part of a Reply whose results came by RDMA Write. The decoder
    /// takes the bytes behind the head as the results.
    #[inline]
    pub(crate) fn trim_head(&mut self, len: usize) {
        let len = len.min(self.head_len() as usize);
        let rqst = self.rqst.as_ptr();
        // SAFETY: the pin (xprt_pin_rqst()) keeps the request. Only the handler of its Reply, which this is,
        // changes `rq_rcv_buf`.
        unsafe { (*rqst).rq_rcv_buf.head[0].iov_len = len };
        // The core compares the two buffers, so the copy must follow (call_decode).
        // SAFETY: the pin (xprt_pin_rqst()) keeps the request, and the task reads `rq_private_buf` only after
        // xprt_complete_rqst() has woken it.
        unsafe { (*rqst).rq_private_buf.head[0].iov_len = len };
    }
}

impl<'a> core::ops::Deref for ReplyBuf<'a> {
    type Target = XdrBuf<'a>;

    #[inline]
    fn deref(&self) -> &XdrBuf<'a> {
        &self.buf
    }
}
