// SPDX-License-Identifier: GPL-2.0

//! A request of a server thread, `struct svc_rqst`: a Call on its way in, a Reply on its way out.
//!
//! # Whose pages
//!
//! A thread has two arrays of pages: `rq_pages` for Calls, `rq_respages` for Replies.
//!
//! - Data of a Call is read into pages out of `rq_pages`. They leave the request as a [`PageBuf`]
//!   before a device may write them ([`Rqst::take_pages`]), and go into the request of whichever
//!   thread delivers the Call. The core fills the gaps when it next uses the array
//!   (`rq_pages_nfree`).
//! - A Reply lies in the pages of `rq_respages` below `rq_next_page`; a READ may have put pages of
//!   the page cache there. They leave the request ([`Reply::take_pages`]) if a device reads them
//!   after the thread has gone on; a gap is left alone by the core (svc_rqst_release_pages). What
//!   is copied stays.
//! - What arrived inline stays where it was received, and the request's head points there. It is
//!   the Call's ([`Lent`]), which is the request's `rq_xprt_ctxt` meanwhile.

use crate::bindings;
use crate::sunrpc::xdr_buf::CallBuf;
use crate::support::foreign::Lent;
use crate::support::memory::PAGE_SIZE;
use crate::support::pages::{
    release,
    PageBuf,
    Run, //
};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::NonNull;
use kernel::ffi::c_void;
use kernel::prelude::*;

/// Borrowed for `'a`, of a transport whose Calls are `C`.
type Of<'a, C> = (&'a (), fn() -> C);

/// A thread's request that a Call can be put into.
///
/// # Invariants
///
/// `raw` is the request of the thread that runs, which works on a transport whose Calls are `C`.
pub(crate) struct Rqst<'a, C: Lent> {
    raw: NonNull<bindings::svc_rqst>,
    _p: PhantomData<Of<'a, C>>,
}

/// Whether a Call was put into the request, and how long it is.
pub(crate) struct Delivered(u32);

impl Delivered {
    /// There is none now.
    pub(crate) fn nothing() -> Self {
        Self(0)
    }

    pub(super) fn len(&self) -> u32 {
        self.0
    }
}

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

impl<C: Lent> Rqst<'_, C> {
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

    /// The array of pages for Calls.
    fn pages(&mut self) -> &mut [*mut bindings::page] {
        let (pages, count) = (get!(self, rq_pages), get!(self, rq_maxpages));
        // SAFETY: svc_init_buffer() allocated `rq_maxpages` entries, which only this thread uses.
        unsafe { core::slice::from_raw_parts_mut(pages, count) }
    }

    /// Takes `count` pages for data of a Call.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there are not so many. `ENOMEM`.
    pub(crate) fn take_pages(&mut self, count: u32) -> Result<PageBuf> {
        let count = count as usize;
        let mut taken = KVec::with_capacity(count, GFP_KERNEL)?;
        let entries = self.pages().get_mut(..count).ok_or(EINVAL)?;
        if entries.iter().any(|page| page.is_null()) {
            return Err(EINVAL);
        }
        for entry in entries {
            let page = core::mem::replace(entry, core::ptr::null_mut());
            let _ = NonNull::new(page).map(|page| taken.push_within_capacity(page));
        }
        set! { self, rq_pages_nfree: count, }
        // SAFETY: svc_fill_pages() allocated the pages for this request alone, and they are in its
        // array no more.
        Ok(unsafe { PageBuf::whole(taken) })
    }

    /// Puts pages into the array, from its start.
    fn put_pages(&mut self, pages: PageBuf) -> Result {
        let mut old = KVec::new();
        let new = pages.into_pages();
        if old.reserve(new.len(), GFP_KERNEL).is_err() || new.len() > self.pages().len() {
            release(new);
            return Err(ENOMEM);
        }
        for (entry, page) in self.pages().iter_mut().zip(&new) {
            let before = core::mem::replace(entry, page.as_ptr());
            let _ = NonNull::new(before).map(|before| old.push_within_capacity(before));
        }
        release(old);
        Ok(())
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
        // SAFETY: the request and its transport are valid; copies the transport's addresses.
        unsafe { bindings::svc_rqst_accept(raw) };
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

    /// Delivers a Call whose bytes from `start` on are inline, but for the first `data_len` bytes
    /// of `data`, which belong behind the first `position` of them.
    ///
    /// # Errors
    ///
    /// The Call: there is no memory, or there are not so many bytes.
    pub(crate) fn deliver_chunk(
        mut self,
        mut call: C,
        start: usize,
        position: usize,
        data: PageBuf,
        data_len: u32,
    ) -> Result<Delivered, C> {
        let stream = call.memory().get_mut(start..).unwrap_or_default();
        let Some((head, tail)) = stream.split_at_mut_checked(position) else {
            return Err(call);
        };
        let parts = (head.as_mut_ptr(), head.len(), tail.as_mut_ptr(), tail.len());
        if data_len > data.len() || self.put_pages(data).is_err() {
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

    /// Delivers a Call that is the first `len` bytes of `data`.
    ///
    /// # Errors
    ///
    /// The Call: there is no memory, or there are not so many bytes.
    pub(crate) fn deliver_pages(
        mut self,
        call: C,
        data: PageBuf,
        len: u32,
    ) -> Result<Delivered, C> {
        if len > data.len() || len == 0 || self.put_pages(data).is_err() {
            return Err(call);
        }
        let Some(&first) = self.pages().first() else {
            return Err(call);
        };
        // SAFETY: a page of the request, in the direct map (`PageBuf::whole`).
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
pub(crate) struct Reply<'a, C: Lent> {
    raw: NonNull<bindings::svc_rqst>,
    /// The pages that it lies in have been taken.
    taken: bool,
    _p: PhantomData<Of<'a, C>>,
}

/// Which procedure was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Procedure {
    /// The RPC program.
    pub(crate) program: u32,
    /// Its version.
    pub(crate) version: u32,
    /// The procedure.
    pub(crate) procedure: u32,
}

impl<C: Lent> Reply<'_, C> {
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

    /// The Call that this is the Reply to, once. The core does not read it any more.
    pub(crate) fn take_call(&mut self) -> Option<C> {
        let call = NonNull::new(get!(self, rq_xprt_ctxt))?;
        set! { self, rq_xprt_ctxt: core::ptr::null_mut(), }
        // SAFETY: `deliver` has put it there (type invariant), and it is there no more.
        Some(unsafe { C::from_ptr(call) })
    }

    /// The encoded Reply, unless its pages have been taken.
    pub(crate) fn message(&self) -> Option<CallBuf<'_>> {
        if self.taken {
            return None;
        }
        // SAFETY: svc_send() has the complete Reply there, which nobody changes while it is sent;
        // its memory stays until the function that sends it returns.
        Some(unsafe { CallBuf::from_raw(&raw const (*self.raw.as_ptr()).rq_res) })
    }

    /// Which procedure was called.
    pub(crate) fn procedure(&self) -> Procedure {
        Procedure {
            program: get!(self, rq_prog),
            version: get!(self, rq_vers),
            procedure: get!(self, rq_proc),
        }
    }

    /// Takes the pages that the Reply lies in. From then on the message is what they have; it
    /// cannot be read by [`Self::message`].
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EFAULT`: a part of the Reply lies elsewhere.
    pub(crate) fn take_pages(&mut self) -> Result<PageBuf> {
        let (first, next) = (get!(self, rq_respages), get!(self, rq_next_page));
        // SAFETY: the request is the running thread's, by the type invariant.
        let res = unsafe { &raw const (*self.raw.as_ptr()).rq_res };
        let body = self.body(first, res);
        let count = (next.addr() - first.addr()) / size_of::<*mut bindings::page>();
        // NFSACL's GETACL fills pages without saying so (nfs3svc_encode_getaclres).
        let count = count.max(body.end.div_ceil(PAGE_SIZE as usize));
        if count as u64 > get!(self, rq_maxpages) as u64 {
            return Err(EFAULT);
        }
        let mut taken = KVec::with_capacity(count, GFP_KERNEL)?;
        // SAFETY: svc_init_buffer() allocated `rq_maxpages` entries, which only this thread uses.
        let entries = unsafe { core::slice::from_raw_parts_mut(first, count) };
        if entries.iter().any(|page| page.is_null()) {
            return Err(EFAULT);
        }
        self.taken = true;
        for entry in entries {
            let page = core::mem::replace(entry, core::ptr::null_mut());
            let _ = NonNull::new(page).map(|page| taken.push_within_capacity(page));
        }
        // The core fills the gaps below this (svc_alloc_arg).
        set! { self, rq_next_page: first.wrapping_add(count), }
        let run = |base: *mut c_void, len: usize| {
            if len == 0 {
                return Some(None);
            }
            // SAFETY: head and tail of a Reply lie in the direct map (svc_process).
            let page = NonNull::new(unsafe { bindings::virt_to_page(base) })?;
            let offset = base.addr() as u32 % PAGE_SIZE;
            Some(Some(Run::new(page, offset, len as u32)))
        };
        // SAFETY: the request is the running thread's, by the type invariant.
        let (head, tail) = unsafe { ((*res).head[0], (*res).tail[0]) };
        let (Some(head), Some(tail)) = (
            run(head.iov_base, head.iov_len),
            run(tail.iov_base, tail.iov_len),
        ) else {
            release(taken);
            return Err(EFAULT);
        };
        // SAFETY: the pages were in the request's array with a reference each, and are there no
        // more. They are of order 0, or pages of a folio of the page cache, in the direct map of
        // a kernel without high memory.
        unsafe { PageBuf::message(taken, head, body, tail) }.map_err(|taken| {
            release(taken);
            EFAULT
        })
    }

    /// Where the page list lies in the array of the pages, in bytes.
    fn body(&self, first: *mut *mut bindings::page, res: *const bindings::xdr_buf) -> Range<usize> {
        // SAFETY: the request is the running thread's, by the type invariant.
        let (pages, base, len) = unsafe { ((*res).pages, (*res).page_base, (*res).page_len) };
        if len == 0 {
            return 0..0;
        }
        let index = pages.addr().wrapping_sub(first.addr()) / size_of::<*mut bindings::page>();
        let start = index
            .saturating_mul(PAGE_SIZE as usize)
            .saturating_add(base as usize);
        start..start.saturating_add(len as usize)
    }
}

/// Lets `f` look at a Call that the core keeps.
///
/// # Safety
///
/// `call` must be a `C` that was turned into a pointer, and which nobody else uses meanwhile.
pub(super) unsafe fn with_call<C: Lent, R>(
    call: NonNull<c_void>,
    f: impl FnOnce(&mut C) -> R,
) -> R {
    // SAFETY: promised by the caller; the object is not dropped, so the pointer stays its owner.
    let mut call = ManuallyDrop::new(unsafe { C::from_ptr(call) });
    f(&mut call)
}
