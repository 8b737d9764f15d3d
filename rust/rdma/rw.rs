// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes: this side moves data out of the peer's memory, or into it.
//!
//! What each work request is, and whether the device needs a registration for it, is ib_core's to
//! know (`rdma_rw`). The memory moves into the operation and comes back with its end: a [`Write`]
//! travels with the Send behind it and ends with that, a [`Pull`] has a completion of its own.
//!
//! C header: `include/rdma/rw.h`.

use super::cq::Completions;
use super::dma::Direction;
use super::pd::Pd;
use super::proof::{
    Drained,
    QpId, //
};
use super::qp::{
    Qp,
    QpRef, //
};
use super::send::SendQueue;
use super::sg::SgTable;
use super::wqe::{
    Listed,
    Wc,
    Work,
    Wqe, //
};
use super::{
    Handler,
    Pulls, //
};
use crate::bindings;
use crate::support::box_list::{
    BoxList,
    Link,
    Node, //
};
use crate::support::pages::PageBuf;
use core::mem::{
    offset_of,
    take, //
};
use core::ops::Range;
use core::ptr;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::types::Opaque;

/// A piece of the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    /// Its handle (R_key).
    pub(crate) key: u32,
    /// The address of its first byte.
    pub(crate) address: u64,
}

/// One piece of the peer's memory with the work requests that move it.
///
/// # Invariants
///
/// `raw` was initialised by rdma_rw_ctx_init() with the first `entries` of `sg`, for the queue pair
/// of the [`Transfer`] that this is part of, and was not destroyed.
struct Context {
    raw: Opaque<bindings::rdma_rw_ctx>,
    sg: SgTable,
    entries: u32,
    link: Link<Context>,
}

// SAFETY: what is in a context belongs to no task; it is changed by its owner only.
unsafe impl Send for Context {}
// SAFETY: a shared one gives access to nothing.
unsafe impl Sync for Context {}

// SAFETY: the offset is that of the field, which only lists use.
unsafe impl Node for Context {
    const LINK: usize = offset_of!(Self, link);
}

/// Memory, and what moves data between it and the peer's.
///
/// # Invariants
///
/// The contexts are of the queue pair `qp`, and name memory of `memory`.
struct Transfer {
    qp: QpId,
    direction: Direction,
    memory: PageBuf,
    contexts: BoxList<Context>,
    /// How many work requests they take.
    work_requests: u32,
}

impl Transfer {
    fn new<H: Handler>(qp: &Qp<H>, direction: Direction, memory: PageBuf) -> Self {
        Self {
            qp: qp.id(),
            direction,
            memory,
            contexts: BoxList::new(),
            work_requests: 0,
        }
    }

    /// Adds the move of the bytes `range`. Context: may sleep.
    fn add<H: Handler>(&mut self, qp: &Qp<H>, range: Range<u32>, remote: Remote) -> Result {
        if self.qp != qp.id() {
            return Err(EINVAL);
        }
        let pd: &Pd = qp.pd();
        let entries = SgTable::entries(self.memory.runs(range.clone()));
        // A run longer than the device takes at once is more than one entry.
        let spare = range.len() as u32 / pd.max_segment().max(1);
        let mut sg = SgTable::new(pd, entries + spare)?;
        let entries = sg.fill_runs(self.memory.runs(range))?;
        let mut context = KBox::new(
            Context {
                raw: Opaque::zeroed(),
                sg,
                entries,
                link: Link::new(),
            },
            GFP_KERNEL,
        )?;
        // SAFETY: the queue pair is valid. The context stays in its box, and the memory that its
        // table names in this object, until it is destroyed.
        let count = unsafe {
            bindings::rdma_rw_ctx_init(
                context.raw.get(),
                qp.as_raw(),
                qp.port(),
                context.sg.as_raw(),
                context.entries,
                0,
                remote.address,
                remote.key,
                self.direction.as_raw(),
            )
        };
        if count < 0 {
            return Err(Error::from_errno(count));
        }
        self.work_requests += count as u32;
        // INVARIANT: initialised just now, for this queue pair.
        self.contexts.push(context);
        Ok(())
    }

    /// Chains all work requests in front of `next`; without that, the last one completes `cqe`.
    /// Returns the first.
    fn link_up<H: Handler>(
        &mut self,
        qp: &QpRef<H>,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        let mut first = next;
        // The list begins with what was added last.
        let link = |context: &mut Context| {
            // SAFETY: initialised, by the type invariant, for this queue pair; what follows
            // outlives the post, by what the callers do.
            first = unsafe {
                bindings::rdma_rw_ctx_wrs(context.raw.get(), qp.as_raw(), qp.port(), cqe, first)
            };
        };
        // SAFETY: the closure exchanges no whole contexts.
        unsafe { self.contexts.for_each(link) };
        first
    }

    /// As [`unmap`](Self::unmap), and returns the memory.
    fn end<H: Handler>(mut self, qp: &QpRef<H>) -> PageBuf {
        self.unmap(qp);
        core::mem::replace(&mut self.memory, PageBuf::empty())
    }

    /// The work requests have ended, or were not posted: unmaps the memory.
    ///
    /// `qp` must be the queue pair that this is of.
    fn unmap<H: Handler>(&mut self, qp: &QpRef<H>) {
        self.work_requests = 0;
        while let Some(mut context) = self.contexts.pop() {
            // SAFETY: initialised for this queue pair with these entries, by the type invariant,
            // and out of the list, so it is destroyed once.
            unsafe {
                bindings::rdma_rw_ctx_destroy(
                    context.raw.get(),
                    qp.as_raw(),
                    qp.port(),
                    context.sg.as_raw(),
                    context.entries,
                    self.direction.as_raw(),
                )
            };
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.contexts.is_empty() {
            pr_err!("RDMA Reads or Writes were lost before they ended\n");
            take(&mut self.contexts).leak();
            core::mem::forget(core::mem::replace(&mut self.memory, PageBuf::empty()));
        }
    }
}

/// Data to be written into the peer's memory, in front of a Send that tells the peer.
pub(crate) struct Write(Transfer);

impl Write {
    /// Of pieces of `memory`, none yet.
    pub(crate) fn new<H: Handler>(qp: &Qp<H>, memory: PageBuf) -> Self {
        Self(Transfer::new(qp, Direction::ToDevice, memory))
    }

    /// Adds the bytes `range`. Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the device's registrations are all in use. `ENOMEM`; `EINVAL`: the memory does not
    /// have these bytes. What was added before stays.
    pub(crate) fn add<H: Handler>(
        &mut self,
        qp: &Qp<H>,
        range: Range<u32>,
        remote: Remote,
    ) -> Result {
        self.0.add(qp, range, remote)
    }

    /// How many work requests it takes.
    pub(crate) fn work_requests(&self) -> u32 {
        self.0.work_requests
    }

    /// The memory, all of it, to read: the device only reads it, too.
    pub(crate) fn memory(&self) -> &PageBuf {
        &self.0.memory
    }

    /// Undoes what was added; it was not posted. The memory stays.
    pub(crate) fn undo<H: Handler>(&mut self, qp: &Qp<H>) {
        if self.0.qp == qp.id() {
            self.0.unmap(qp);
        }
    }

    /// Undoes it; it was not posted.
    pub(crate) fn cancel<H: Handler>(self, qp: &Qp<H>) {
        if self.0.qp == qp.id() {
            drop(self.0.end(qp));
        }
    }

    /// Chains it in front of `next`.
    pub(super) fn link_up<H: Handler>(
        &mut self,
        qp: &QpRef<H>,
        next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        self.0.link_up(qp, ptr::null_mut(), next)
    }

    /// Whether it is of that queue pair.
    pub(super) fn is_of(&self, qp: QpId) -> bool {
        self.0.qp == qp
    }

    /// The Send behind it has ended: the memory is the kernel's again.
    pub(super) fn ended<H: Handler>(self, qp: &QpRef<H>) {
        drop(self.0.end(qp));
    }
}

/// Data to be read from the peer's memory.
pub(crate) struct Pull<H: Pulls> {
    /// Until it has ended.
    what: Option<Transfer>,
    /// While it is posted.
    waiter: Option<H::Puller>,
    link: Link<PullWqe<H>>,
}

/// Data to be read, as it is posted.
pub(crate) type PullWqe<H> = Wqe<Pull<H>>;

/// Data to be read that is not posted.
pub(crate) type PullBox<H> = KBox<PullWqe<H>>;

/// Pulls that are not posted.
pub(crate) type PullList<H> = BoxList<PullWqe<H>>;

// SAFETY: the offset is that of the field, which only lists use.
unsafe impl<H: Pulls> Listed for Pull<H> {
    const LINK: usize = offset_of!(Self, link);
}

impl<H: Pulls> Pull<H> {
    /// Into `memory`, nothing yet. Context: may sleep. Errors: `ENOMEM`.
    pub(crate) fn new(qp: &Qp<H>, memory: PageBuf) -> Result<PullBox<H>> {
        Wqe::new(Self {
            what: Some(Transfer::new(qp, Direction::FromDevice, memory)),
            waiter: None,
            link: Link::new(),
        })
    }

    /// Adds what is to become the bytes `range`. Context and errors as for [`Write::add`].
    pub(crate) fn add(&mut self, qp: &Qp<H>, range: Range<u32>, remote: Remote) -> Result {
        match &mut self.what {
            Some(transfer) => transfer.add(qp, range, remote),
            None => Err(EINVAL),
        }
    }

    /// How many work requests it takes.
    pub(crate) fn work_requests(&self) -> u32 {
        self.what
            .as_ref()
            .map_or(0, |transfer| transfer.work_requests)
    }

    /// Undoes one that was not posted. Context: any.
    pub(crate) fn cancel(mut pull: PullBox<H>, qp: &Qp<H>) {
        if let Some(transfer) = pull.what.take_if(|transfer| transfer.qp == qp.id()) {
            drop(transfer.end(qp));
        }
    }

    /// Ends one that the queue pair took a part of, which has been drained. Context: any.
    pub(crate) fn retire(pull: PullBox<H>, qp: &Qp<H>, proof: &Drained) {
        if proof.is_of(qp.id()) {
            Self::cancel(pull, qp);
        }
    }
}

impl<H: Pulls> Work for Pull<H> {
    type Handler = H;

    fn done(mut pull: PullBox<H>, cx: &mut Completions<'_, H>, wc: &Wc<'_>) {
        cx.owed().fetch_sub(1, Relaxed);
        // What is posted has both.
        let (Some(transfer), Some(waiter)) = (pull.what.take(), pull.waiter.take()) else {
            return;
        };
        let count = transfer.work_requests;
        // The queue works in order: those before the last have ended, too.
        let memory = transfer.end(cx.qp());
        let memory = wc.success().map(|_| memory);
        cx.handler().pulled(cx, waiter, memory, count);
    }
}

impl<H: Pulls> Qp<H> {
    /// Posts a Pull, with one doorbell; `waiter` comes back when the data is there.
    ///
    /// Context: any; `queue` is locked by the caller and has room.
    ///
    /// # Errors
    ///
    /// The queue pair has not taken all of it: the connection must be closed, and the box
    /// [retired](Pull::retire) when that is done.
    pub(crate) fn post_pull(
        &self,
        queue: &mut SendQueue<H>,
        mut pull: PullBox<H>,
        waiter: H::Puller,
    ) -> Result<(), PullBox<H>> {
        let cqe = ptr::from_mut(&mut *pull).cast();
        let Some(transfer) = &mut pull.what else {
            return Err(pull);
        };
        if transfer.contexts.is_empty() || transfer.qp != self.id() {
            return Err(pull);
        }
        queue.took(transfer.work_requests);
        let chain = transfer.link_up(self, cqe, ptr::null_mut());
        pull.waiter = Some(waiter);
        let cqe = Wqe::into_cqe(pull);
        self.shared().owed.fetch_add(1, Relaxed);
        // SAFETY: the chain lies in the contexts of the box, which is given away until its
        // completion, and whose entry the last work request has.
        let ret = unsafe { self.post_chain(chain) };
        if ret == 0 {
            return Ok(());
        }
        self.shared().owed.fetch_sub(1, Relaxed);
        // SAFETY: the last work request, which has the box, was not taken: no completion comes.
        Err(unsafe { Wqe::from_cqe(cqe) })
    }
}
