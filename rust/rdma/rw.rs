// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes: this side moves data out of the peer's memory, or into it.
//!
//! What each work request is, and whether the device needs a registration for it, is ib_core's to
//! know (`rdma_rw`). The memory moves into the operation and comes back with its end: a [`Write`]
//! travels with the Send behind it and ends with that, a [`Pull`] has a completion of its own. Both
//! are used again, so that moving a few pages allocates nothing.
//!
//! C header: `include/rdma/rw.h`.

use super::cq::Completions;
use super::dma::Direction;
use super::pd::Pd;
use super::proof::QpId;
use super::qp::{
    Qp,
    QpRef, //
};
use super::send::SendQueue;
use super::sg::follows;
use super::wqe::{
    unit_cqe,
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
use crate::support::memory::PAGE_SIZE;
use crate::support::module::lose;
use crate::support::pages::{
    PageBuf,
    Runs, //
};
use core::mem::{
    offset_of,
    take,
    MaybeUninit, //
};
use core::ops::Range;
use core::ptr;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::types::Opaque;

/// The most pieces of memory beyond one for each page that the bytes would fill: the body of a
/// message may begin and end within a page, and has a head and a tail.
const MORE_PIECES: usize = 3;

/// How many pieces of memory are named without an allocation: 128 KiB, however they lie.
const PIECES: usize = (128 << 10) / PAGE_SIZE as usize + MORE_PIECES;

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
/// In [`Transfer::contexts`], `raw` was initialised by rdma_rw_ctx_init_bvec() with `entries` pieces
/// of memory, for the queue pair of the transfer, and was not destroyed.
struct Context {
    raw: Opaque<bindings::rdma_rw_ctx>,
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

/// Memory, and what moves data between it and the peer's. It is used again and again.
///
/// # Invariants
///
/// The contexts are of the queue pair `qp`, and name memory of `memory`.
struct Transfer {
    qp: QpId,
    direction: Direction,
    memory: PageBuf,
    contexts: BoxList<Context>,
    /// One that is not initialised, for the next.
    spare: Option<KBox<Context>>,
    /// How many work requests the contexts take.
    work_requests: u32,
}

impl Transfer {
    fn new<H: Handler>(qp: &Qp<H>, direction: Direction) -> Self {
        Self {
            qp: qp.id(),
            direction,
            memory: PageBuf::empty(),
            contexts: BoxList::new(),
            spare: None,
            work_requests: 0,
        }
    }

    /// Adds the move of the bytes `range`. Context: may sleep.
    fn add<H: Handler>(&mut self, qp: &Qp<H>, range: Range<u32>, remote: Remote) -> Result {
        let len = range.len() as u32;
        if self.qp != qp.id() || len == 0 {
            return Err(EINVAL);
        }
        let mut context = match self.spare.take() {
            Some(context) => context,
            None => KBox::new(
                Context {
                    raw: Opaque::zeroed(),
                    entries: 0,
                    link: Link::new(),
                },
                GFP_KERNEL,
            )?,
        };
        let runs = self.memory.runs(range);
        let most = len.div_ceil(PAGE_SIZE) as usize + MORE_PIECES;
        let count = if most <= PIECES {
            let mut pieces = [const { MaybeUninit::uninit() }; PIECES];
            self.init(qp, &mut context, &mut pieces, runs, len, remote)
        } else {
            let mut pieces = KVec::with_capacity(most, GFP_KERNEL)?;
            let pieces = pieces.spare_capacity_mut();
            self.init(qp, &mut context, pieces, runs, len, remote)
        };
        match count {
            Ok(count) => {
                self.work_requests += count;
                // INVARIANT: initialised just now, for this queue pair.
                self.contexts.push(context);
                Ok(())
            }
            Err(error) => {
                self.spare = Some(context);
                Err(error)
            }
        }
    }

    /// Initialises a context for the `len` bytes of `runs`, and says how many work requests it takes.
    #[inline(always)]
    fn init<H: Handler>(
        &self,
        qp: &Qp<H>,
        context: &mut Context,
        pieces: &mut [MaybeUninit<bindings::bio_vec>],
        runs: Runs<'_>,
        len: u32,
        remote: Remote,
    ) -> Result<u32> {
        // A registration has room for so many pages, which ib_core takes to be so many pieces
        // (rdma_rw_init_mr_wrs_bvec).
        let longest = || match qp.registers(self.direction) {
            true => 0,
            false => qp.pd().max_segment(),
        };
        context.entries = name(pieces, runs, len, longest)?;
        let iter = bindings::bvec_iter {
            bi_size: len,
            ..Default::default()
        };
        // SAFETY: the queue pair is valid. The first `entries` pieces were written, and are not read
        // once this has returned. The context stays in its box, and the memory that they name in
        // this object, until it is destroyed.
        let count = unsafe {
            bindings::rdma_rw_ctx_init_bvec(
                context.raw.get(),
                qp.as_raw(),
                qp.port(),
                pieces.as_ptr().cast(),
                context.entries,
                iter,
                remote.address,
                remote.key,
                self.direction.as_raw(),
            )
        };
        u32::try_from(count).map_err(|_| Error::from_errno(count))
    }

    /// Chains all work requests in front of `next`; without that, the last one completes `cqe`.
    /// Returns the first. The others say only when they fail, and by their own status: that of the
    /// last is no more than that it was flushed.
    fn link_up<H: Handler>(
        &mut self,
        qp: &QpRef<H>,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        let mut first = next;
        // The list begins with what was added last.
        let link = |context: &mut Context| {
            let behind = first;
            // SAFETY: initialised, by the type invariant, for this queue pair; what follows
            // outlives the post, by what the callers do.
            first = unsafe {
                bindings::rdma_rw_ctx_wrs(context.raw.get(), qp.as_raw(), qp.port(), cqe, behind)
            };
            let mut wr = first;
            while wr != behind {
                // SAFETY: a work request of the context, before `behind`: the chain that
                // rdma_rw_ctx_wrs() returned ends there.
                let next = unsafe { (*wr).next };
                if next.is_null() {
                    break;
                }
                // SAFETY: a work request of the context, which is not posted yet. ib_core has set
                // the entry of the last only, and that only if nothing is behind it.
                unsafe { (*wr).__bindgen_anon_1.wr_cqe = unit_cqe::<H>() };
                wr = next;
            }
        };
        // SAFETY: the closure exchanges no whole contexts.
        unsafe { self.contexts.for_each(link) };
        first
    }

    /// The work requests have ended, or were not posted: unmaps the memory.
    ///
    /// `qp` must be the queue pair that this is of.
    fn unmap<H: Handler>(&mut self, qp: &QpRef<H>) {
        self.work_requests = 0;
        while let Some(context) = self.contexts.pop() {
            // SAFETY: initialised for this queue pair with so many pieces, by the type invariant,
            // and out of the list, so it is destroyed once. What named the pieces is not looked at
            // (drivers/infiniband/core/rw.c).
            unsafe {
                bindings::rdma_rw_ctx_destroy_bvec(
                    context.raw.get(),
                    qp.as_raw(),
                    qp.port(),
                    ptr::null(),
                    context.entries,
                    self.direction.as_raw(),
                )
            };
            if self.spare.is_none() {
                self.spare = Some(context);
            }
        }
    }

    /// Gives the registrations back to the queue pair, which is about to be destroyed: that takes them from
    /// the device. The memory stays mapped until [`Self::reclaim`].
    ///
    /// `qp` must be the queue pair that this is of.
    fn withdraw<H: Handler>(&mut self, qp: &QpRef<H>) {
        let withdraw = |context: &mut Context| {
            // SAFETY: initialised for this queue pair (type invariant). Afterwards the context is good for
            // rdma_rw_ctx_unmap() only, which is all that follows.
            unsafe { bindings::rdma_rw_ctx_withdraw(context.raw.get(), qp.as_raw()) };
        };
        // SAFETY: the closure exchanges no whole contexts.
        unsafe { self.contexts.for_each(withdraw) };
    }

    /// The queue pair was destroyed after [`Self::withdraw`]: unmaps the memory. `pd` is the protection domain
    /// of that queue pair.
    fn reclaim(&mut self, pd: &Pd) {
        self.work_requests = 0;
        while let Some(context) = self.contexts.pop() {
            // SAFETY: initialised with so many pieces for a queue pair of this domain, which is destroyed, and
            // out of the list.
            unsafe {
                bindings::rdma_rw_ctx_unmap(
                    context.raw.get(),
                    pd.as_raw(),
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
            lose("an RDMA Read or Write", take(&mut self.contexts));
            core::mem::forget(core::mem::replace(&mut self.memory, PageBuf::empty()));
        }
    }
}

/// Names the memory of `runs`, of `len` bytes in all, and says by how many pieces. What follows each
/// other in memory is one, as long as that is within `longest`.
///
/// # Errors
///
/// `EINVAL`: there is not as much memory.
#[inline(always)]
fn name(
    pieces: &mut [MaybeUninit<bindings::bio_vec>],
    runs: Runs<'_>,
    len: u32,
    longest: impl FnOnce() -> u32,
) -> Result<u32> {
    let mut places = pieces.iter_mut();
    let (mut count, mut named) = (0, 0);
    let mut longest = Some(longest);
    let mut limit = 0;
    let mut last: Option<(&mut bindings::bio_vec, *mut bindings::page)> = None;
    for run in runs {
        named += run.len();
        let next = run.page().wrapping_add(1);
        if let Some((piece, after)) = &mut last {
            if follows(piece.bv_offset + piece.bv_len, *after, &run) {
                if let Some(longest) = longest.take() {
                    limit = longest();
                }
                let joined = piece.bv_len + run.len();
                if joined <= limit {
                    piece.bv_len = joined;
                    *after = next;
                    continue;
                }
            }
        }
        let piece = places.next().ok_or(EINVAL)?.write(bindings::bio_vec {
            bv_page: run.page(),
            bv_len: run.len(),
            bv_offset: run.offset(),
        });
        count += 1;
        last = Some((piece, next));
    }
    if named == len {
        Ok(count)
    } else {
        Err(EINVAL)
    }
}

/// Data to be written into the peer's memory, in front of a Send that tells the peer.
pub(crate) struct Write(KBox<Entry>);

/// A [`Write`] that waits for its next use.
pub(crate) struct IdleWrite(KBox<Entry>);

/// Writes that wait for their next use.
pub(crate) struct IdleWrites {
    list: BoxList<Entry>,
    count: u32,
}

struct Entry {
    transfer: Transfer,
    link: Link<Entry>,
}

// SAFETY: the offset is that of the field, which only lists use.
unsafe impl Node for Entry {
    const LINK: usize = offset_of!(Self, link);
}

/// How many Writes, or Pulls, of a connection wait for their next use.
const MOST_IDLE: u32 = 8;

impl IdleWrites {
    pub(crate) const fn new() -> Self {
        Self {
            list: BoxList::new(),
            count: 0,
        }
    }

    /// Takes one.
    pub(crate) fn pop(&mut self) -> Option<IdleWrite> {
        let entry = self.list.pop()?;
        self.count -= 1;
        Some(IdleWrite(entry))
    }

    /// Keeps one, or returns it if there are enough.
    pub(crate) fn push(&mut self, IdleWrite(entry): IdleWrite) -> Option<IdleWrite> {
        if self.count >= MOST_IDLE {
            return Some(IdleWrite(entry));
        }
        self.count += 1;
        self.list.push(entry);
        None
    }
}

impl Write {
    /// Nothing yet, in `idle` if there is one. Context: may sleep. Errors: `ENOMEM`.
    pub(crate) fn new<H: Handler>(qp: &Qp<H>, idle: Option<IdleWrite>) -> Result<Self> {
        match idle {
            Some(IdleWrite(entry)) if entry.transfer.qp == qp.id() => Ok(Self(entry)),
            _ => Ok(Self(KBox::new(
                Entry {
                    transfer: Transfer::new(qp, Direction::ToDevice),
                    link: Link::new(),
                },
                GFP_KERNEL,
            )?)),
        }
    }

    /// Where the data is, to be put there. None if something was [added](Self::add).
    pub(crate) fn memory_mut(&mut self) -> Option<&mut PageBuf> {
        let transfer = &mut self.0.transfer;
        transfer.contexts.is_empty().then_some(&mut transfer.memory)
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
        self.0.transfer.add(qp, range, remote)
    }

    /// How many work requests it takes.
    pub(crate) fn work_requests(&self) -> u32 {
        self.0.transfer.work_requests
    }

    /// The memory, all of it, to read: the device only reads it, too.
    pub(crate) fn memory(&self) -> &PageBuf {
        &self.0.transfer.memory
    }

    /// Undoes what was added; it was not posted. The memory stays.
    pub(crate) fn undo<H: Handler>(&mut self, qp: &Qp<H>) {
        if self.is_of(qp.id()) {
            self.0.transfer.unmap(qp);
        }
    }

    /// Undoes it; it was not posted.
    pub(crate) fn cancel<H: Handler>(mut self, qp: &Qp<H>) {
        self.undo(qp);
    }

    /// Chains it in front of `next`.
    pub(super) fn link_up<H: Handler>(
        &mut self,
        qp: &QpRef<H>,
        next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        self.0.transfer.link_up(qp, ptr::null_mut(), next)
    }

    /// Whether it is of that queue pair.
    pub(super) fn is_of(&self, qp: QpId) -> bool {
        self.0.transfer.qp == qp
    }

    /// The Send behind it has ended: the memory is given back.
    pub(super) fn ended<H: Handler>(mut self, qp: &QpRef<H>) -> IdleWrite {
        let transfer = &mut self.0.transfer;
        transfer.unmap(qp);
        transfer.memory.clear();
        transfer.memory.rest();
        IdleWrite(self.0)
    }

    /// The queue pair, which has it, is about to be destroyed.
    pub(super) fn withdraw<H: Handler>(&mut self, qp: &QpRef<H>) {
        self.0.transfer.withdraw(qp);
    }

    /// The queue pair, which had it, was destroyed: the memory is given back.
    pub(super) fn reclaim(mut self, pd: &Pd) {
        self.0.transfer.reclaim(pd);
    }
}

/// Data to be read from the peer's memory. It is used again and again.
pub(crate) struct Pull<H: Pulls> {
    what: Transfer,
    /// While it is posted.
    waiter: Option<H::Puller>,
    link: Link<PullWqe<H>>,
}

/// Data to be read, as it is posted.
pub(crate) type PullWqe<H> = Wqe<Pull<H>>;

/// Data to be read that is not posted.
pub(crate) type PullBox<H> = KBox<PullWqe<H>>;

// SAFETY: the offset is that of the field, which only lists use.
unsafe impl<H: Pulls> Listed for Pull<H> {
    const LINK: usize = offset_of!(Self, link);
}

/// Pulls that wait for their next use.
pub(crate) struct IdlePulls<H: Pulls> {
    list: BoxList<PullWqe<H>>,
    count: u32,
}

impl<H: Pulls> IdlePulls<H> {
    pub(crate) const fn new() -> Self {
        Self {
            list: BoxList::new(),
            count: 0,
        }
    }

    /// Takes one.
    pub(crate) fn pop(&mut self) -> Option<PullBox<H>> {
        let pull = self.list.pop()?;
        self.count -= 1;
        Some(pull)
    }

    /// Keeps one that was ended, or returns it if there are enough.
    pub(crate) fn push(&mut self, pull: PullBox<H>) -> Option<PullBox<H>> {
        if self.count >= MOST_IDLE || !pull.what.contexts.is_empty() {
            return Some(pull);
        }
        self.count += 1;
        self.list.push(pull);
        None
    }
}

impl<H: Pulls> Pull<H> {
    /// Nothing yet. Context: may sleep. Errors: `ENOMEM`.
    pub(crate) fn new(qp: &Qp<H>) -> Result<PullBox<H>> {
        Wqe::new(Self {
            what: Transfer::new(qp, Direction::FromDevice),
            waiter: None,
            link: Link::new(),
        })
    }

    /// Where the data comes to, or has come to. None while something is [added](Self::add), which
    /// the device may write.
    pub(crate) fn memory_mut(&mut self) -> Option<&mut PageBuf> {
        let transfer = &mut self.what;
        transfer.contexts.is_empty().then_some(&mut transfer.memory)
    }

    /// Adds what is to become the bytes `range`. Context and errors as for [`Write::add`].
    pub(crate) fn add(&mut self, qp: &Qp<H>, range: Range<u32>, remote: Remote) -> Result {
        self.what.add(qp, range, remote)
    }

    /// How many work requests it takes.
    pub(crate) fn work_requests(&self) -> u32 {
        self.what.work_requests
    }

    /// Undoes one that was not posted. Context: any.
    pub(crate) fn cancel(mut pull: PullBox<H>, qp: &Qp<H>) {
        if pull.what.qp == qp.id() {
            pull.what.unmap(qp);
        }
    }
}

impl<H: Pulls> Work for Pull<H> {
    type Handler = H;

    fn done(mut pull: PullBox<H>, cx: &mut Completions<'_, H>, wc: &Wc<'_>) {
        cx.owed().fetch_sub(1, Relaxed);
        // What is posted has one.
        let Some(waiter) = pull.waiter.take() else {
            return;
        };
        let count = pull.what.work_requests;
        // Unmapping frees the work requests.
        cx.handler().wait_for_posting();
        // The queue works in order: those before the last have ended, too.
        pull.what.unmap(cx.qp());
        let pull = wc.success().map(|_| pull);
        cx.handler().pulled(cx, waiter, pull, count);
    }

    fn withdraw(&mut self, qp: &QpRef<H>) {
        self.what.withdraw(qp);
    }

    fn reclaim(mut pull: PullBox<H>, _handler: &H, pd: &Pd) {
        pull.what.reclaim(pd);
    }
}

impl<H: Pulls> Qp<H> {
    /// Posts a Pull, with one doorbell; `waiter` comes back when the data is there.
    ///
    /// Context: any; `queue` is locked by the caller and has room. The lock is that of
    /// [`Pulls::wait_for_posting`].
    ///
    /// # Errors
    ///
    /// The queue pair has not taken all of it: the connection must be closed. The Pull comes back when the
    /// queue pair is destroyed.
    pub(crate) fn post_pull(
        &self,
        queue: &mut SendQueue<H>,
        mut pull: PullBox<H>,
        waiter: H::Puller,
    ) -> Result {
        let cqe = ptr::from_mut(&mut *pull).cast();
        let transfer = &mut pull.what;
        if transfer.contexts.is_empty() || transfer.qp != self.id() {
            return Err(EINVAL);
        }
        queue.took(transfer.work_requests);
        let chain = transfer.link_up(self, cqe, ptr::null_mut());
        pull.waiter = Some(waiter);
        Wqe::give(pull, self).map_err(|_| EINVAL)?;
        self.shared().owed.fetch_add(1, Relaxed);
        // SAFETY: the chain lies in the contexts of the box, which is given away until its
        // completion, and whose entry the last work request has. The completion waits for this to return
        // before it frees anything (`Pulls::wait_for_posting`).
        let ret = unsafe { self.post_chain(chain) };
        if ret != 0 {
            // The last work request, which has the box, was not taken, so no completion comes.
            self.shared().owed.fetch_sub(1, Relaxed);
        }
        to_result(ret)
    }
}
