// SPDX-License-Identifier: GPL-2.0

//! A request of a server thread, `struct svc_rqst`: a Call on its way in, a Reply on its way out.
//!
//! # Ownership of pages
//!
//! A thread has two arrays of pages: `rq_pages` for Calls, `rq_respages` for Replies.
//!
//! - Data of a Call are read into pages out of `rq_pages`. The pages leave the request as a [`PageBuf`]
//!   before a device may write them ([`SvcRqst::take_pages`]), and go into the request of the thread that
//!   delivers the Call. The core fills the gaps when it next uses the array
//!   (`rq_pages_nfree`).
//! - A Reply lies in the pages of `rq_respages` below `rq_next_page`; a READ may have put pages of
//!   the page cache there. They leave the request ([`SvcReply::take_pages`]) if a device reads them
//!   after the thread has finished the request; the core ignores a gap (svc_rqst_release_pages). Pages
//!   that are copied stay.
//! - Inline data stay in their Receive, and the request's head points there. They belong to the Call
//!   ([`Lent`]), which is the request's `rq_xprt_ctxt` meanwhile.

use crate::{
    bindings,
    sunrpc::xdr_buf::CallBuf,
    support::{
        foreign::Lent,
        memory::PAGE_SIZE,
        pages::{
            PageBuf,
            PageRun,
            Pieces, //
        },
    },
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Range,
    ptr::NonNull, //
};
use kernel::{
    ffi::c_void,
    prelude::*, //
};

/// Borrowed for `'a`, of a transport whose Calls are `C`.
type Of<'a, C> = (&'a (), fn() -> C);

/// A thread's request that a Call can be put into.
///
/// # Invariants
///
/// `raw` is the request of the thread that runs, which works on a transport whose Calls are `C`.
pub(crate) struct SvcRqst<'a, C: Lent> {
    raw: NonNull<bindings::svc_rqst>,
    _p: PhantomData<Of<'a, C>>,
}

/// Proof that a Call was put into the request, with its length in bytes.
pub(crate) struct Delivered(u32);

impl Delivered {
    /// Returns the answer that there is no Call now.
    pub(crate) fn nothing() -> Self {
        Self(0)
    }

    pub(super) fn len(&self) -> u32 {
        self.0
    }
}

/// The number of bytes of a Call's data in the pages of a request.
pub(crate) struct Placed(u32);

/// Sets fields of the request of the thread that runs.
macro_rules! set {
    ($this:ident, $($($field:ident $([$index:literal])?).+ : $value:expr,)*) => {
        $(
            let value = $value;
            // SAFETY: the request is the running thread's, by the type invariant.
            unsafe { (*$this.raw.as_ptr()).$($field $([$index])?).+ = value };
        )*
    };
}

/// Reads a field of the request of the thread that runs.
macro_rules! get {
    ($this:expr, $($field:tt)+) => {
        // SAFETY: the request is the running thread's, by the type invariant.
        unsafe { (*$this.raw.as_ptr()).$($field)+ }
    };
}

impl<C: Lent> SvcRqst<'_, C> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant, for `'a`.
    pub(super) unsafe fn from_raw(raw: NonNull<bindings::svc_rqst>) -> Self {
        // INVARIANT: promised by the caller.
        let this = Self {
            raw,
            _p: PhantomData,
        };
        // There is no Reply whose pages the core would have to release.
        set! { this,
            rq_next_page: get!(this, rq_respages),
            rq_xprt_ctxt: core::ptr::null_mut(),
        }
        this
    }

    /// Returns the array of pages for Calls.
    fn pages(&mut self) -> &mut [*mut bindings::page] {
        let (pages, count) = (get!(self, rq_pages), get!(self, rq_maxpages));
        // SAFETY: svc_init_buffer() allocated `rq_maxpages` entries, which only this thread uses.
        unsafe { core::slice::from_raw_parts_mut(pages, count) }
    }

    /// Makes `data` a buffer of `count` pages for data of a Call.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the request has fewer pages. `ENOMEM`.
    pub(crate) fn take_pages(&mut self, data: &mut PageBuf, count: u32) -> Result {
        let count = count as usize;
        // SAFETY: svc_fill_pages() allocated the pages for this request alone; the taken pages leave its
        // array.
        if unsafe { data.take_whole(self.pages(), count) }? {
            // The core fills gaps below this.
            set! { self, rq_pages_nfree: count, }
        }
        Ok(())
    }

    /// Exchanges the pages of `data`, which [`Self::take_pages`] has made, with the pages at the start of the
    /// array.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the array is shorter.
    pub(crate) fn put_pages(&mut self, data: &mut PageBuf) -> Result<Placed> {
        let len = data.len();
        // SAFETY: svc_fill_pages() allocated the pages of the array, and the pages of `data`, each for one
        // request alone.
        unsafe { data.exchange(self.pages()) }?;
        Ok(Placed(len))
    }

    /// Ends the delivery of a Call whose buffers have been set.
    fn deliver(self, call: C, len: u32) -> Delivered {
        set! { self,
            rq_arg.len: len,
            rq_arg.buflen: len,
            rq_xprt_ctxt: call.into_ptr().as_ptr(),
            rq_prot: bindings::IPPROTO_MAX,
        }
        let raw = self.raw.as_ptr();
        // SAFETY: type invariant: the request and its `rq_xprt` are valid. The helper copies the addresses of the
        // transport.
        unsafe { bindings::rpcrdma_svc_rqst_accept(raw) };
        Delivered(len)
    }

    /// Delivers a Call that is all inline: the bytes of `call` from `start` on.
    pub(crate) fn deliver_inline(self, mut call: C, start: usize) -> Delivered {
        let stream = call.memory().get_mut(start..).unwrap_or_default();
        let (base, len) = (stream.as_mut_ptr().cast::<c_void>(), stream.len());
        set! { self,
            rq_arg.head[0].iov_base: base,
            rq_arg.head[0].iov_len: len,
            rq_arg.page_base: 0,
            rq_arg.page_len: 0,
            rq_arg.tail[0].iov_base: core::ptr::null_mut(),
            rq_arg.tail[0].iov_len: 0,
        }
        self.deliver(call, len as u32)
    }

    /// Delivers a Call whose bytes from `start` on are inline. The first `data_len` bytes of `data` belong
    /// behind the first `position` of these bytes.
    ///
    /// # Errors
    ///
    /// Returns the Call if it has fewer bytes.
    pub(crate) fn deliver_chunk(
        self,
        mut call: C,
        start: usize,
        position: usize,
        data: Placed,
        data_len: u32,
    ) -> Result<Delivered, C> {
        let stream = call.memory().get_mut(start..).unwrap_or_default();
        let Some((head, tail)) = stream.split_at_mut_checked(position) else {
            return Err(call);
        };
        let parts = (head.as_mut_ptr(), head.len(), tail.as_mut_ptr(), tail.len());
        if data_len > data.0 {
            return Err(call);
        }
        let (head, head_len, tail, tail_len) = parts;
        set! { self,
            rq_arg.head[0].iov_base: head.cast(),
            rq_arg.head[0].iov_len: head_len,
            rq_arg.pages: get!(self, rq_pages),
            rq_arg.page_base: 0,
            rq_arg.page_len: data_len,
            rq_arg.tail[0].iov_base: tail.cast(),
            rq_arg.tail[0].iov_len: tail_len,
        }
        Ok(self.deliver(call, (head_len + tail_len) as u32 + data_len))
    }

    /// Delivers a Call that consists of the first `len` bytes of `data`.
    ///
    /// # Errors
    ///
    /// Returns the Call if `data` has fewer bytes.
    pub(crate) fn deliver_pages(mut self, call: C, data: Placed, len: u32) -> Result<Delivered, C> {
        if len > data.0 || len == 0 {
            return Err(call);
        }
        let Some(&first) = self.pages().first() else {
            return Err(call);
        };
        // SAFETY: a page of the request, in the direct map (`PageBuf::take_whole`).
        let head = unsafe { bindings::page_address(first) };
        let head_len = len.min(PAGE_SIZE);
        set! { self,
            rq_arg.head[0].iov_base: head,
            rq_arg.head[0].iov_len: head_len as usize,
            rq_arg.pages: get!(self, rq_pages).wrapping_add(1),
            rq_arg.page_base: 0,
            rq_arg.page_len: len - head_len,
            rq_arg.tail[0].iov_base: core::ptr::null_mut(),
            rq_arg.tail[0].iov_len: 0,
        }
        Ok(self.deliver(call, len))
    }
}

/// A thread's request that has a Reply to be sent.
///
/// # Invariants
///
/// `raw` is the request of the thread that runs, with a complete Reply in `rq_res` and a `C` as
/// `rq_xprt_ctxt`, unless that was taken.
pub(crate) struct SvcReply<'a, C: Lent> {
    raw: NonNull<bindings::svc_rqst>,
    /// The pages that it lies in have been taken.
    taken: bool,
    _p: PhantomData<Of<'a, C>>,
}

impl<C: Lent> SvcReply<'_, C> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant, for `'a`.
    pub(super) unsafe fn from_raw(raw: NonNull<bindings::svc_rqst>) -> Self {
        // INVARIANT: promised by the caller.
        Self {
            raw,
            taken: false,
            _p: PhantomData,
        }
    }

    /// Takes the Call that this Reply answers, once. The core does not read it any more.
    pub(crate) fn take_call(&mut self) -> Option<C> {
        let call = NonNull::new(get!(self, rq_xprt_ctxt))?;
        set! { self, rq_xprt_ctxt: core::ptr::null_mut(), }
        // SAFETY: `deliver` has put it there (type invariant), and it is there no more.
        Some(unsafe { C::from_ptr(call) })
    }

    /// Returns the encoded Reply, unless its pages have been taken.
    pub(crate) fn message(&self) -> Option<CallBuf<'_>> {
        if self.taken {
            return None;
        }
        // SAFETY: svc_send() has the complete Reply there, which does not change while it is sent; its
        // memory stays until the function that sends it returns.
        Some(unsafe { CallBuf::from_raw(&raw const (*self.raw.as_ptr()).rq_res) })
    }

    /// Notes that the message was copied and is not read any more. A first page that has the whole message
    /// stays for the next Reply, because the core would free it and allocate another.
    pub(crate) fn copied(&mut self) {
        let first = get!(self, rq_respages);
        if get!(self, rq_next_page) == first.wrapping_add(1) {
            set! { self, rq_next_page: first, }
        }
    }

    /// Returns the flavor of the credential of the Call; for RPCSEC_GSS, the pseudoflavor.
    #[inline]
    pub(crate) fn flavor(&self) -> u32 {
        get!(self, rq_cred.cr_flavor)
    }

    /// Returns the bytes of the Reply that are in the page list.
    pub(crate) fn page_list(&self) -> Range<u32> {
        let start = get!(self, rq_res.head[0].iov_len) as u32;
        start..start + get!(self, rq_res.page_len)
    }

    /// Takes the pages of the page list alone: they become `memory`. The bytes before and behind
    /// can still be read by [`Self::message`].
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EFAULT`: the page list lies elsewhere.
    pub(crate) fn take_page_list(&mut self, memory: &mut PageBuf) -> Result {
        let page_size = PAGE_SIZE as usize;
        let body = self.body();
        let pages = body.start / page_size..body.end.div_ceil(page_size);
        let pieces = Pieces {
            start: self.page_list().start,
            head: None,
            body: body.start % page_size..body.end - pages.start * page_size,
            tail: None,
        };
        self.take(memory, pages, &pieces)
    }

    /// Moves the pages of the Reply to `memory`. From then on [`Self::message`] cannot read the message.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EFAULT`: a part of the Reply lies elsewhere.
    pub(crate) fn take_pages(&mut self, memory: &mut PageBuf) -> Result {
        let (first, next) = (get!(self, rq_respages), get!(self, rq_next_page));
        let body = self.body();
        let count = (next.addr() - first.addr()) / size_of::<*mut bindings::page>();
        // NFSACL's GETACL fills pages without saying so (nfs3svc_encode_getaclres).
        let count = count.max(body.end.div_ceil(PAGE_SIZE as usize));
        let run = |base: *mut c_void, len: usize| {
            if len == 0 {
                return Some(None);
            }
            // SAFETY: head and tail of a Reply lie in the direct map (svc_process).
            let page = NonNull::new(unsafe { bindings::virt_to_page(base) })?;
            let offset = base.addr() as u32 % PAGE_SIZE;
            Some(Some(PageRun::new(page, offset, len as u32)))
        };
        let (head, tail) = (get!(self, rq_res.head[0]), get!(self, rq_res.tail[0]));
        let (Some(head), Some(tail)) = (
            run(head.iov_base, head.iov_len),
            run(tail.iov_base, tail.iov_len),
        ) else {
            return Err(EFAULT);
        };
        let pieces = Pieces {
            start: 0,
            head,
            body,
            tail,
        };
        self.taken = true;
        self.take(memory, 0..count, &pieces)
    }

    /// Takes `pages` of the array, among which `pieces` lie.
    ///
    /// # Errors
    ///
    /// `EFAULT`: the array has too few pages. `ENOMEM`: there is no memory. The pages stay in the
    /// array.
    fn take(&mut self, memory: &mut PageBuf, pages: Range<usize>, pieces: &Pieces) -> Result {
        let (first, next) = (get!(self, rq_respages), get!(self, rq_next_page));
        if pages.start > pages.end || pages.end as u64 > get!(self, rq_maxpages) as u64 {
            return Err(EFAULT);
        }
        // The core fills the gaps below this (svc_alloc_arg).
        set! { self, rq_next_page: next.max(first.wrapping_add(pages.end)), }
        let start = first.wrapping_add(pages.start);
        // SAFETY: svc_init_buffer() allocated `rq_maxpages` entries, which only this thread uses.
        let entries = unsafe { core::slice::from_raw_parts_mut(start, pages.len()) };
        // SAFETY: contract of `take_message`: the pages are in `rq_pages` with a reference each, and not any more
        // when they are taken. They are of order 0, or pages of a folio of the page cache, in the direct map of a
        // kernel without high memory.
        unsafe { memory.take_message(entries, pieces) }
    }

    /// Returns the bytes of the page list within the array of pages.
    fn body(&self) -> Range<usize> {
        let (pages, len) = (get!(self, rq_res.pages), get!(self, rq_res.page_len));
        if len == 0 {
            return 0..0;
        }
        let first = get!(self, rq_respages);
        let index = pages.addr().wrapping_sub(first.addr()) / size_of::<*mut bindings::page>();
        let start = index
            .saturating_mul(PAGE_SIZE as usize)
            .saturating_add(get!(self, rq_res.page_base) as usize);
        start..start.saturating_add(len as usize)
    }
}

/// Calls `f` with a Call that the core keeps.
///
/// # Safety
///
/// `call` must be a `C` that was converted to a pointer, and which no other code uses meanwhile.
pub(super) unsafe fn with_call<C: Lent, R>(
    call: NonNull<c_void>,
    f: impl FnOnce(&mut C) -> R,
) -> R {
    // SAFETY: promised by the caller; the object is not dropped, so the pointer stays its owner.
    let mut call = ManuallyDrop::new(unsafe { C::from_ptr(call) });
    f(&mut call)
}
