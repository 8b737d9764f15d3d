// SPDX-License-Identifier: GPL-2.0

//! The way from a completion to its object: `struct ib_cqe`, `struct ib_wc`.
//!
//! A work request carries a pointer to an `ib_cqe`. Here every posted object is a [`Wqe`], a
//! box that begins with its `ib_cqe`: posting turns the box into that pointer, and the completion
//! turns the pointer back into the box.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{
    cq::{
        self,
        Completions, //
    },
    ledger::{
        BoxKind,
        LedgerEntry, //
    },
    pd::Pd,
    qp::QpRef,
    Handler, //
};
use crate::{
    bindings,
    support::{
        box_list::{
            BoxList,
            Node, //
        },
        memalloc::GFP_NORETRY, //
    },
};
use kernel::{
    ffi::c_void,
    prelude::*, //
};

/// The result of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(bindings::ib_wc_status);

impl Status {
    /// The queue pair did not take the work request.
    pub(super) const NOT_POSTED: Self = Self(bindings::ib_wc_status_IB_WC_GENERAL_ERR);

    /// Returns whether the work was done.
    pub(crate) fn is_success(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_SUCCESS
    }

    /// Returns whether the work was not tried, because the connection had ended before.
    pub(crate) fn is_flush(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR
    }

    /// Returns the status in words.
    pub(crate) fn message(self) -> &'static str {
        // SAFETY: ib_wc_status_msg() takes any value and returns a constant string.
        let message = unsafe { CStr::from_char_ptr(bindings::ib_wc_status_msg(self.0)) };
        message.to_str().unwrap_or("unknown")
    }
}

/// A completion.
#[derive(Clone, Copy)]
pub(super) struct Wc<'a>(&'a bindings::ib_wc);

impl<'a> Wc<'a> {
    /// Returns the fields that are valid only after success.
    pub(super) fn success(&self) -> Option<Success<'a>> {
        self.status().is_success().then_some(Success(self.0))
    }

    fn status(&self) -> Status {
        Status(self.0.status)
    }
}

/// The kind of a work request, for traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A Receive.
    Receive,
    /// A Send that asks for a completion.
    Send,
    /// The last LOCAL_INV of a list of registrations.
    LocalInv,
    /// The last RDMA Read of a Pull.
    Read,
}

/// The facts about a completion that trace events have.
pub(crate) struct CompletionFacts {
    /// The restrack number of the completion queue.
    pub(crate) cq_id: u32,
    /// The number of the box that was posted. Of a LOCAL_INV, the restrack number of the registration.
    pub(crate) number: u32,
    /// `ib_wc.status`.
    pub(crate) status: u32,
    /// `ib_wc.vendor_err`.
    pub(crate) vendor_err: u32,
    /// The number of bytes that were received or read; 0 after a failure.
    pub(crate) bytes: u32,
    /// The handle that the peer has invalidated, or 0.
    pub(crate) handle: u32,
    /// The time since an RDMA Read was posted, in microseconds.
    pub(crate) latency: i64,
}

impl CompletionFacts {
    /// Returns whether the work was not tried, because the connection had ended before.
    pub(crate) fn is_flush(&self) -> bool {
        Status(self.status).is_flush()
    }

    /// Returns the facts of a completion in `cq` of the box with this number.
    #[cold]
    fn of(cq_id: u32, number: u32, wc: Wc<'_>) -> Self {
        let success = wc.success();
        Self {
            cq_id,
            number,
            status: wc.0.status,
            vendor_err: wc.0.vendor_err,
            bytes: 0,
            handle: success.and_then(|it| it.invalidated()).unwrap_or(0),
            latency: 0,
        }
    }
}

/// A completion of work that was done.
pub(super) struct Success<'a>(&'a bindings::ib_wc);

impl Success<'_> {
    pub(super) fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// Returns the key that the peer invalidated with its Send.
    pub(super) fn invalidated(&self) -> Option<u32> {
        if self.0.wc_flags & bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32 == 0 {
            return None;
        }
        // SAFETY: IB_WC_WITH_INVALIDATE says that this arm of `ib_wc.ex` is set.
        Some(unsafe { self.0.ex.invalidate_rkey })
    }
}

/// Something that can be posted as a work request, and gets its completion.
pub(super) trait WorkRequest: Sized {
    /// Whose completions these are.
    type Handler: Handler;

    /// The kind of the work request, for traces.
    const KIND: WorkKind;

    /// The offset of the mapping of a Receive's buffer ([`DmaBuf`](super::dma::DmaBuf)) in the object, in bytes.
    const MAPPING: Option<usize> = None;

    /// Handles the end of the work request, whose box is back.
    fn done(wqe: KBox<Wqe<Self>>, cx: &mut Completions<'_, Self::Handler>, wc: &Wc<'_>);

    /// Completes the facts about its completion, before [`done`](Self::done) is called.
    fn complete_facts(&mut self, _facts: &mut CompletionFacts, _wc: Wc<'_>) {}

    /// Gives back registrations of the queue pair `_qp`, which has the object and is about to be destroyed.
    /// Context: any.
    fn withdraw(&mut self, _qp: &QpRef<Self::Handler>) {}

    /// Takes back the box, after the queue pair that had it was destroyed. Context: process, may sleep.
    fn reclaim(wqe: KBox<Wqe<Self>>, handler: &Self::Handler, pd: &Pd);
}

/// The box that a posted object travels in. Nothing in this module exchanges the contents of two boxes.
#[repr(C)]
pub(crate) struct Wqe<W> {
    cqe: Cqe,
    // Dropped before the object, so that the ledger uses no object that is being dropped.
    entry: LedgerEntry,
    work: W,
}

/// An `ib_cqe`. It holds a function pointer, and is not written after it was made.
#[repr(transparent)]
struct Cqe(bindings::ib_cqe);

// SAFETY: the data of an `ib_cqe` do not belong to a task.
unsafe impl Send for Cqe {}
// SAFETY: drivers and ib_core read `ib_cqe.done` only.
unsafe impl Sync for Cqe {}

#[allow(private_bounds)]
impl<W: WorkRequest> Wqe<W> {
    const BOX: &'static BoxKind = &BoxKind {
        withdraw: Self::withdraw,
        reclaim: Self::reclaim,
        mapping: match W::MAPPING {
            Some(offset) => Some(Self::offset_of(offset) - core::mem::offset_of!(Self, entry)),
            None => None,
        },
    };

    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(work: W) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                cqe: Cqe(bindings::ib_cqe {
                    done: Some(work_done_callback::<W>),
                }),
                entry: LedgerEntry::new(Self::BOX),
                work,
            },
            GFP_NORETRY,
        )?)
    }

    /// Enters the box in the ledger of `qp`. Returns false if the box is already in the ledger of another queue
    /// pair: it can only be posted there.
    #[inline(always)]
    pub(super) fn enter(this: &mut KBox<Self>, qp: &QpRef<W::Handler>) -> bool {
        // SAFETY: a box of the kind `BOX`, whose contents stay where they are.
        unsafe { this.entry.enter(qp.ledger()) }
    }

    /// Gives the box to `qp`, and returns the completion entry for a work request. From here on the box comes
    /// back with its completion, or when the queue pair is destroyed.
    ///
    /// # Errors
    ///
    /// Returns the box if it belongs to another queue pair.
    #[inline(always)]
    pub(super) fn give(
        mut this: KBox<Self>,
        qp: &QpRef<W::Handler>,
    ) -> Result<*mut bindings::ib_cqe, KBox<Self>> {
        if !Self::enter(&mut this, qp) {
            return Err(this);
        }
        this.entry.set_posted(true);
        Ok(KBox::into_raw(this).cast())
    }

    /// Gives all boxes of a list, which have been entered, to their queue pair.
    #[inline(always)]
    pub(super) fn give_all(mut list: BoxList<Self>)
    where
        W: Listed,
    {
        // SAFETY: contract of `BoxList::for_each`: the closure exchanges no boxes.
        unsafe { list.for_each(|this| this.entry.set_posted(true)) };
        list.leak();
    }

    /// Leaves a box that has come back to its queue pair until that is destroyed.
    pub(super) fn leave(this: KBox<Self>) {
        this.entry.set_posted(true);
        let _ = KBox::into_raw(this);
    }

    /// Takes back a box whose work request was not posted, or has completed.
    ///
    /// # Safety
    ///
    /// `cqe` must have come from [`Self::give`], and no completion may come for it any more.
    #[inline(always)]
    pub(super) unsafe fn take(cqe: *mut bindings::ib_cqe) -> KBox<Self> {
        // SAFETY: `cqe` is the first field of this `#[repr(C)]` struct; the caller has the box.
        let this = unsafe { KBox::<Self>::from_raw(cqe.cast()) };
        this.entry.set_posted(false);
        this
    }

    /// Returns the box of an entry.
    fn of(entry: *mut LedgerEntry) -> *mut Self {
        entry
            .wrapping_byte_sub(core::mem::offset_of!(Self, entry))
            .cast()
    }

    /// # Safety
    ///
    /// As for [`BoxKind::withdraw`]: `entry` must be the entry of a box of `W` that is posted, and `qp` the queue
    /// pair that has it. No work request is posted to it or completed meanwhile.
    unsafe fn withdraw(entry: *mut LedgerEntry, qp: *const c_void) {
        // SAFETY: a box of `W`, which belongs to the queue pair; nothing else uses it meanwhile.
        let work = unsafe { &mut (*Self::of(entry)).work };
        // SAFETY: the queue pair, as the caller promises.
        work.withdraw(unsafe { &*qp.cast::<QpRef<W::Handler>>() });
    }

    /// # Safety
    ///
    /// As for [`BoxKind::reclaim`]: `entry` must be the entry of a box of `W` that was posted to a queue pair which
    /// has been destroyed, and `handler` the handler of this queue pair.
    unsafe fn reclaim(entry: *mut LedgerEntry, handler: *const c_void, pd: &Pd) {
        // SAFETY: the caller promises that the box was the queue pair's, which is destroyed.
        let this = unsafe { Self::take(Self::of(entry).cast()) };
        // SAFETY: the handler, as the caller promises.
        W::reclaim(this, unsafe { &*handler.cast::<W::Handler>() }, pd);
    }
}

impl<W> Wqe<W> {
    /// Returns the number of the box, by which traces identify its work request.
    pub(crate) fn number(&self) -> u32 {
        self.entry.number()
    }

    /// Returns the offset in its box of a field that is at `offset` in the object.
    pub(super) const fn offset_of(offset: usize) -> usize {
        core::mem::offset_of!(Self, work) + offset
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

/// A posted object that can be in a list while it is not posted.
///
/// # Safety
///
/// As for [`Node`], with `LINK` from the start of `Self` and a link of type `Link<Wqe<Self>>`.
pub(super) unsafe trait Listed: Sized {
    /// The offset of the link.
    const LINK: usize;
}

// SAFETY: `Listed` promises the link at that offset of `work`.
unsafe impl<W: Listed> Node for Wqe<W> {
    const LINK: usize = Self::offset_of(W::LINK);
}

/// A C work request that is written when its object is made, and completed when it is posted.
pub(super) struct Prepared<R>(pub(super) R);

// SAFETY: the pointers in it are set when the work request is posted, and not used once ib_post_send() or
// ib_post_recv() has returned.
unsafe impl<R> Send for Prepared<R> {}
// SAFETY: a shared `Prepared` gives its address to ib_post_recv() and ib_post_send(), which only read the work
// request.
unsafe impl<R> Sync for Prepared<R> {}

/// Returns the facts about the completion `wc` of `wqe`.
///
/// # Safety
///
/// `cq` must be valid.
#[cold]
unsafe fn facts_of<W: WorkRequest>(
    cq: *mut bindings::ib_cq,
    wqe: &mut Wqe<W>,
    wc: Wc<'_>,
) -> CompletionFacts {
    // SAFETY: the caller's queue is valid.
    let cq_id = unsafe { cq::restrack_id(cq) };
    let mut facts = CompletionFacts::of(cq_id, wqe.number(), wc);
    wqe.work.complete_facts(&mut facts, wc);
    facts
}

/// Handles a completion. Called by ib_core (`__ib_process_cq`) with a completion entry that [`Wqe::give`] made.
///
/// # Safety
///
/// `cq` must be a queue of [`Cq::<W::Handler>`](super::cq::Cq) which is being polled, and `wc` the
/// completion of the one work request that has the box of a `Wqe<W>`.
unsafe extern "C" fn work_done_callback<W: WorkRequest>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: ib_core calls from the poll of this queue.
    let mut cx = unsafe { Completions::<W::Handler>::of(cq) };
    let _reserves = cx.handler().reserves();
    // SAFETY: an element of `ib_cq.wc`, which ib_core leaves alone until this returns.
    let wc = Wc(unsafe { &*wc });
    // SAFETY: kernel users of a queue from ib_alloc_cq() set the arm `wr_cqe`, and ours do.
    let cqe = unsafe { wc.0.__bindgen_anon_1.wr_cqe };
    // SAFETY: ib_cq calls `ib_cqe.done` once for the work request that has the box.
    let mut wqe = unsafe { Wqe::<W>::take(cqe) };
    if wc.status().is_success() {
        let facts = || {
            // SAFETY: ib_core calls from the poll of this queue.
            unsafe { facts_of(cq, &mut wqe, wc) }
        };
        cx.handler().trace_done(W::KIND, facts);
    } else {
        // SAFETY: ib_core calls from the poll of this queue.
        let facts = unsafe { facts_of(cq, &mut wqe, wc) };
        cx.handler().trace_failed(W::KIND, facts);
        cx.handler().lost(wc.status());
    }
    W::done(wqe, &mut cx, &wc);
}

/// Returns the completion entry of work requests whose success needs no handling.
pub(super) fn unit_cqe<H: Handler>() -> *mut bindings::ib_cqe {
    // The drivers take a pointer that may be written, and do not write.
    (&raw const Unit::<H>::CQE.0).cast_mut()
}

struct Unit<H>(core::marker::PhantomData<H>);

impl<H: Handler> Unit<H> {
    const CQE: &'static Cqe = &Cqe(bindings::ib_cqe {
        done: Some(unit_done_callback::<H>),
    });
}

/// Handles the failure of such a work request. Called by ib_core (`__ib_process_cq`) with the entry of
/// [`unit_cqe`].
///
/// # Safety
///
/// `cq` must be a queue of [`Cq::<H>`](super::cq::Cq) which is being polled, `wc` a completion.
unsafe extern "C" fn unit_done_callback<H: Handler>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: an element of `ib_cq.wc`, which ib_core leaves alone until this returns.
    let status = Status(unsafe { (*wc).status });
    if !status.is_success() {
        // SAFETY: ib_core calls from the poll of this queue.
        unsafe { Completions::<H>::of(cq) }.handler().lost(status);
    }
}
