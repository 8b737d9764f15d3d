// SPDX-License-Identifier: GPL-2.0

//! Completion queues, `struct ib_cq`, and how completions find what they complete.
//!
//! A work request carries a pointer to an `ib_cqe`. Here every posted object is a [`Wqe`], a
//! box that begins with its `ib_cqe`: posting turns the box into that pointer, and the completion
//! turns the pointer back into the box.

use super::cm::CmId;
use super::qp::QpRef;
use super::Handler;
use crate::bindings;
use crate::support::foreign::Context;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::Arc;

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(bindings::ib_wc_status);

impl Status {
    /// The work was done.
    pub(crate) fn is_success(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_SUCCESS
    }

    /// The work was not tried, because the connection had ended before.
    pub(crate) fn is_flush(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR
    }

    /// The status in words.
    pub(crate) fn message(self) -> &'static str {
        // SAFETY: takes any value and returns a constant string.
        let message = unsafe { CStr::from_char_ptr(bindings::ib_wc_status_msg(self.0)) };
        message.to_str().unwrap_or("unknown")
    }
}

/// A completion.
pub(super) struct Wc<'a, H> {
    wc: &'a bindings::ib_wc,
    _handler: PhantomData<H>,
}

impl<H: Handler> Wc<'_, H> {
    pub(super) fn status(&self) -> Status {
        Status(self.wc.status)
    }

    /// The fields that are valid only when the work was done.
    pub(super) fn success(&self) -> Option<Success<'_, H>> {
        self.status().is_success().then_some(Success(self))
    }
}

/// A completion of work that was done.
pub(super) struct Success<'a, H>(&'a Wc<'a, H>);

impl<H: Handler> Success<'_, H> {
    pub(super) fn byte_len(&self) -> usize {
        self.0.wc.byte_len as usize
    }

    /// The key that the peer invalidated along with its Send.
    pub(super) fn invalidated(&self) -> Option<u32> {
        if self.0.wc.wc_flags & bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32 == 0 {
            return None;
        }
        // SAFETY: the flag says that this arm is set.
        Some(unsafe { self.0.wc.ex.invalidate_rkey })
    }

    pub(super) fn qp(&self) -> &QpRef<H> {
        // SAFETY: a successful completion names its queue pair, which lives while one of its
        // completions is handled: destroying it drains its queues first (Qp::drop).
        unsafe { QpRef::from_raw(self.0.wc.qp) }
    }
}

/// Something that can be posted as a work request, and gets its completion.
pub(super) trait Work: Sized {
    /// Whose completions these are.
    type Handler: Handler;

    /// The work request has ended, and its box is back.
    fn done(wqe: KBox<Wqe<Self>>, handler: &Self::Handler, wc: &Wc<'_, Self::Handler>);
}

/// The box that a posted object travels in.
#[repr(C)]
pub(crate) struct Wqe<W> {
    cqe: bindings::ib_cqe,
    work: W,
}

// SAFETY: the `ib_cqe` holds a function pointer only.
unsafe impl<W: Send> Send for Wqe<W> {}

#[allow(private_bounds)]
impl<W: Work> Wqe<W> {
    pub(super) fn new(work: W) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                cqe: bindings::ib_cqe {
                    done: Some(work_done_callback::<W>),
                },
                work,
            },
            GFP_KERNEL | kernel::alloc::flags::__GFP_NOWARN,
        )?)
    }

    /// Gives the box away and returns what a work request names as its completion entry.
    pub(super) fn into_cqe(this: KBox<Self>) -> *mut bindings::ib_cqe {
        KBox::into_raw(this).cast()
    }

    /// Takes back a box whose work request was not posted.
    ///
    /// # Safety
    ///
    /// `cqe` must have come from [`Self::into_cqe`], and no completion may come for it.
    pub(super) unsafe fn from_cqe(cqe: *mut bindings::ib_cqe) -> KBox<Self> {
        // SAFETY: `cqe` is the first field of a `#[repr(C)]` struct; promised by the caller.
        unsafe { KBox::from_raw(cqe.cast()) }
    }
}

impl<W> core::ops::Deref for Wqe<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.work
    }
}

impl<W> core::ops::DerefMut for Wqe<W> {
    fn deref_mut(&mut self) -> &mut W {
        &mut self.work
    }
}

/// # Safety
///
/// Called by ib_core only, for a completion entry that [`Wqe::into_cqe`] made of a `Wqe<W>` and
/// that was posted to a queue pair whose completion queues were made for `W::Handler`.
unsafe extern "C" fn work_done_callback<W: Work>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: valid for the duration of the call.
    let wc = unsafe { &*wc };
    // SAFETY: `wr_cqe` is the arm that kernel users set.
    let cqe = unsafe { wc.__bindgen_anon_1.wr_cqe };
    // SAFETY: the completion of the one work request that has the box.
    let wqe = unsafe { Wqe::<W>::from_cqe(cqe) };
    // SAFETY: the context is the `Arc<H>` of `Cq::new`, which outlives the queue.
    let handler = unsafe { &*(*cq).cq_context.cast::<W::Handler>() };
    let wc = Wc {
        wc,
        _handler: PhantomData,
    };
    if !wc.status().is_success() {
        handler.lost(wc.status());
    }
    W::done(wqe, handler, &wc);
}

/// The completion of a work request that nothing has to be done for, unless it failed.
///
/// # Safety
///
/// Called by ib_core only, for a queue pair whose completion queues were made for `H`.
pub(super) unsafe extern "C" fn unit_done_callback<H: Handler>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: valid for the duration of the call.
    let status = Status(unsafe { (*wc).status });
    if !status.is_success() {
        // SAFETY: the context is the `Arc<H>` of `Cq::new`, which outlives the queue.
        unsafe { &*(*cq).cq_context.cast::<H>() }.lost(status);
    }
}

/// A completion queue, polled from a workqueue.
///
/// # Invariants
///
/// `raw` is a valid queue on the device of `id`; its context is `context`.
pub(crate) struct Cq<H> {
    raw: NonNull<bindings::ib_cq>,
    /// Dropped after the queue is freed, since completions use it until then.
    _context: Context,
    _id: Arc<CmId>,
    _handler: PhantomData<H>,
}

// SAFETY: a completion queue does not belong to a task.
unsafe impl<H: Handler> Send for Cq<H> {}
// SAFETY: it is only named to other verbs.
unsafe impl<H: Handler> Sync for Cq<H> {}

impl<H: Handler> Cq<H> {
    /// A queue of `entries` on the device that `id` was resolved to. Context: may sleep.
    pub(crate) fn new(id: Arc<CmId>, handler: Arc<H>, entries: u32) -> Result<Self> {
        if id.device().is_null() {
            return Err(ENODEV);
        }
        let context = Context::new(handler);
        // The locks of RPC are plain spinlocks, so completions must run in process context.
        // SAFETY: the device is valid while the id is, and the context outlives the queue.
        let raw = unsafe {
            bindings::ib_alloc_cq_any(
                id.device(),
                context.as_ptr(),
                entries as i32,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
            )
        };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: just allocated, with `context`.
        Ok(Self {
            raw,
            _context: context,
            _id: id,
            _handler: PhantomData,
        })
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.as_ptr()
    }
}

impl<H> Drop for Cq<H> {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that used it held it, so none is left. Waits for its work.
        unsafe { bindings::ib_free_cq(self.raw.as_ptr()) };
    }
}
