// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes: this side moves data out of the peer's memory, or into it.
//!
//! ib_core makes the work requests, and the registrations that a device needs for them (`rdma_rw`). The
//! memory moves into the operation and comes back with its end: a [`Write`] is posted with the Send behind
//! it and ends with the Send, a [`Pull`](super::pull::Pull) has a completion of its own. Both are reused, so
//! that moving a few pages allocates no memory.
//!
//! C header: `include/rdma/rw.h`.

use super::{
    dma::Direction,
    pd::Pd,
    proof::QpId,
    qp::{
        Qp,
        QpRef, //
    },
    sg::PAGES_ARE_AN_ARRAY,
    wqe::unit_cqe,
    Handler, //
};
use crate::{
    bindings,
    support::{
        box_list::{
            BoxList,
            Link,
            Node, //
        },
        errno,
        memory::PAGE_SIZE,
        module::leak,
        pages::{
            PageBuf,
            PageRun,
            Runs, //
        },
    },
};
use core::{
    mem::{
        offset_of,
        take,
        MaybeUninit, //
    },
    ops::Range,
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    prelude::*,
    types::Opaque, //
};

/// The most pieces of memory of a context beyond one for each page that the bytes would fill: the memory
/// of a context may begin and end within a page, and all other pieces are pages.
const MORE_PIECES: usize = 1;

/// The number of pieces of memory without an allocation: enough for 128 KiB at any offsets.
const PIECES: usize = (128 << 10) / PAGE_SIZE as usize + MORE_PIECES;

/// The most spare contexts of a transfer: enough for 1 MiB at any offset, with 30 pieces of memory for each context
/// as on mlx5, and more on most other devices.
const MOST_SPARES: u32 = 9;

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
/// In [`Contexts`], `raw` was initialised by rdma_rw_ctx_init_bvec() with `entries` pieces
/// of memory, for the queue pair of the transfer, and was not destroyed.
struct RwContext {
    raw: Opaque<bindings::rdma_rw_ctx>,
    entries: u32,
    link: Link<RwContext>,
}

// SAFETY: `struct rdma_rw_ctx` belongs to no task; only the owner of the context changes it.
unsafe impl Send for RwContext {}
// SAFETY: a shared `RwContext` gives access to nothing.
unsafe impl Sync for RwContext {}

// SAFETY: contract of the trait: `offset_of!` gives the offset of the field, which only lists use.
unsafe impl Node for RwContext {
    const LINK: usize = offset_of!(Self, link);
}

/// Returns whether memory that could not be mapped for RDMA Reads or Writes could not be mapped at another time
/// either. Other errors pass: no memory, or no room in the bounce buffers of the platform (`EIO` of
/// dma_map_sgtable()).
pub(crate) fn is_final(error: Error) -> bool {
    error == EINVAL || error == EFAULT || error == errno::message_size()
}

impl RwContext {
    /// Allocates a context that is not initialised. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new() -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                raw: Opaque::zeroed(),
                entries: 0,
                link: Link::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Initialises the context for the memory of `pieces`, as `named`. Returns the number of work requests.
    ///
    /// # Errors
    ///
    /// The error of rdma_rw_ctx_init_bvec(): `ENOMEM` without memory, `EAGAIN` without a
    /// registration, `EINVAL` or `EIO` for memory that the device cannot map.
    #[inline(always)]
    fn init<H: Handler>(
        &mut self,
        qp: &Qp<H>,
        direction: Direction,
        pieces: &[MaybeUninit<bindings::bio_vec>],
        named: &Named,
        remote: Remote,
    ) -> Result<u32> {
        self.entries = named.count;
        let iter = bindings::bvec_iter {
            bi_size: named.len,
            ..Default::default()
        };
        // SAFETY: the queue pair is valid. The first `entries` pieces were written, and ib_core does not
        // keep them. The context stays in its box, and the memory in the transfer, until the context is
        // destroyed.
        let count = unsafe {
            bindings::rdma_rw_ctx_init_bvec(
                self.raw.get(),
                qp.as_raw(),
                qp.port(),
                pieces.as_ptr().cast(),
                self.entries,
                iter,
                remote.address,
                remote.key,
                direction.as_raw(),
            )
        };
        u32::try_from(count).map_err(|_| Error::from_errno(count))
    }
}

/// Contexts that are not initialised, for the next uses of a transfer.
struct SpareContexts {
    list: BoxList<RwContext>,
    count: u32,
}

impl SpareContexts {
    const fn new() -> Self {
        Self {
            list: BoxList::new(),
            count: 0,
        }
    }

    /// Takes a context, or makes one. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    fn take(&mut self) -> Result<KBox<RwContext>> {
        match self.list.pop() {
            Some(context) => {
                self.count -= 1;
                Ok(context)
            }
            None => RwContext::new(),
        }
    }

    /// Keeps a context, or frees it if there are enough.
    #[inline]
    fn keep(&mut self, context: KBox<RwContext>) {
        if self.count < MOST_SPARES {
            self.count += 1;
            self.list.push(context);
        }
    }
}

/// The contexts that move data between memory and the peer's memory.
///
/// # Invariants
///
/// The contexts are of the queue pair `qp`.
pub(super) struct Contexts {
    qp: QpId,
    direction: Direction,
    list: BoxList<RwContext>,
    spares: SpareContexts,
    /// The number of work requests of the contexts.
    work_requests: u32,
}

impl Contexts {
    /// Returns whether the contexts belong to the queue pair.
    pub(super) fn are_of(&self, qp: QpId) -> bool {
        self.qp == qp
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the number of work requests.
    pub(super) fn work_requests(&self) -> u32 {
        self.work_requests
    }

    /// Adds a context for the memory of `pieces`, as `named`. `qp` must be the queue pair that the others are of.
    ///
    /// # Errors
    ///
    /// The error of [`RwContext::init`]. `EMSGSIZE`: the queue pair has too few entries for the work
    /// requests. `ENOMEM`: there is no memory.
    #[inline(always)]
    fn add<H: Handler>(
        &mut self,
        qp: &Qp<H>,
        pieces: &[MaybeUninit<bindings::bio_vec>],
        named: &Named,
        remote: Remote,
    ) -> Result {
        let mut context = self.spares.take()?;
        let count = match context.init(qp, self.direction, pieces, named, remote) {
            Ok(count) => count,
            Err(error) => {
                self.spares.keep(context);
                return Err(error);
            }
        };
        // INVARIANT: initialised just now, for this queue pair.
        self.list.push(context);
        if self.work_requests + count > qp.max_work_requests() {
            self.unmap_last(qp);
            return Err(errno::message_size());
        }
        self.work_requests += count;
        Ok(())
    }

    /// Chains all work requests in front of `next`, and returns the first. Without `next`, the last work
    /// request completes `cqe`. The other work requests complete only when they fail, with the status of the
    /// failure; the last one is then flushed.
    pub(super) fn link_up<H: Handler>(
        &mut self,
        qp: &QpRef<H>,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        let mut first = next;
        // The list begins with the context that was added last.
        let link = |context: &mut RwContext| {
            let behind = first;
            // SAFETY: initialised, by the type invariant, for this queue pair; the callers keep the
            // following work requests until the post has returned.
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
        // SAFETY: contract of `BoxList::for_each`: the closure exchanges no whole contexts.
        unsafe { self.list.for_each(link) };
        first
    }

    /// Unmaps the memory, after the work requests have ended or when they were not posted.
    ///
    /// `qp` must be the queue pair that this is of.
    pub(super) fn unmap<H: Handler>(&mut self, qp: &QpRef<H>) {
        self.work_requests = 0;
        while !self.list.is_empty() {
            self.unmap_last(qp);
        }
    }

    /// Unmaps the memory of the context that was added last, as [`Self::unmap`].
    #[inline]
    fn unmap_last<H: Handler>(&mut self, qp: &QpRef<H>) {
        let Some(context) = self.list.pop() else {
            return;
        };
        // SAFETY: initialised for this queue pair with `entries` pieces, by the type invariant,
        // and out of the list, so it is destroyed once. The function does not read the array of
        // pieces (drivers/infiniband/core/rw.c).
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
        self.spares.keep(context);
    }

    /// Gives the registrations back to the queue pair, which is about to be destroyed: that takes them from
    /// the device. The memory stays mapped until [`Self::reclaim`].
    ///
    /// `qp` must be the queue pair that this is of.
    pub(super) fn withdraw<H: Handler>(&mut self, qp: &QpRef<H>) {
        let withdraw = |context: &mut RwContext| {
            // SAFETY: initialised for this queue pair (type invariant). Afterwards the context is good for
            // rpcrdma_rw_ctx_unmap() only, which is all that follows.
            unsafe { bindings::rpcrdma_rw_ctx_withdraw(context.raw.get(), qp.as_raw()) };
        };
        // SAFETY: contract of `BoxList::for_each`: the closure exchanges no whole contexts.
        unsafe { self.list.for_each(withdraw) };
    }

    /// Unmaps the memory, after [`Self::withdraw`] and the destruction of the queue pair. `pd` is the
    /// protection domain of that queue pair.
    pub(super) fn reclaim(&mut self, pd: &Pd) {
        self.work_requests = 0;
        while let Some(context) = self.list.pop() {
            // SAFETY: rdma_rw_ctx_init() has initialised the context with this number of pieces. Its queue pair,
            // of this domain, is destroyed, and the context is in no list any more.
            unsafe {
                bindings::rpcrdma_rw_ctx_unmap(
                    context.raw.get(),
                    pd.as_raw(),
                    context.entries,
                    self.direction.as_raw(),
                )
            };
        }
    }
}

/// Memory, and the contexts that move data between it and the peer's memory. It is reused.
///
/// # Invariants
///
/// The contexts name memory of `memory`.
pub(super) struct Transfer {
    pub(super) contexts: Contexts,
    memory: PageBuf,
}

impl Transfer {
    pub(super) fn new<H: Handler>(qp: &Qp<H>, direction: Direction) -> Self {
        Self {
            contexts: Contexts {
                qp: qp.id(),
                direction,
                list: BoxList::new(),
                spares: SpareContexts::new(),
                work_requests: 0,
            },
            memory: PageBuf::empty(),
        }
    }

    /// Removes the contexts, which were not posted. The memory stays. Context: any.
    pub(super) fn undo<H: Handler>(&mut self, qp: &Qp<H>) {
        if self.contexts.are_of(qp.id()) {
            self.contexts.unmap(qp);
        }
    }

    /// Returns the memory, unless a part of it was added.
    pub(super) fn memory_mut(&mut self) -> Option<&mut PageBuf> {
        self.contexts.is_empty().then_some(&mut self.memory)
    }

    /// Adds the move of the bytes `range`. Context: process, may sleep.
    ///
    /// Returns the number of bytes that were added, from the start of the range, and the reason if they
    /// are not all.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the device's registrations are all in use. `EMSGSIZE`: the work requests of the rest
    /// would not fit the queue pair together with the transfer's. `ENOMEM`; `EINVAL`: the memory does
    /// not have these bytes. Else the device's driver or IOMMU refuses the memory.
    pub(super) fn add<H: Handler>(
        &mut self,
        qp: &Qp<H>,
        range: Range<u32>,
        remote: Remote,
    ) -> (u32, Result) {
        let len = range.len() as u32;
        if !self.contexts.are_of(qp.id()) || len == 0 {
            return (0, Err(EINVAL));
        }
        if let Some(run) = self.memory.run_in_page(&range) {
            return match self.contexts.add(
                qp,
                &[MaybeUninit::new(bvec(&run))],
                &Named::only(&run),
                remote,
            ) {
                Ok(()) => (len, Ok(())),
                Err(error) => (0, Err(error)),
            };
        }
        self.add_runs(qp, range, remote)
    }

    /// Does the work of [`Self::add`] for memory in more than one page.
    ///
    /// # Errors
    ///
    /// As for [`Self::add`].
    fn add_runs<H: Handler>(
        &mut self,
        qp: &Qp<H>,
        range: Range<u32>,
        remote: Remote,
    ) -> (u32, Result) {
        let most = (range.len() as u32).div_ceil(PAGE_SIZE) as usize + MORE_PIECES;
        let mut added = 0;
        let result = if most <= PIECES {
            let mut pieces = [const { MaybeUninit::uninit() }; PIECES];
            self.add_contexts(qp, &mut pieces, range, remote, &mut added)
        } else {
            match KVec::with_capacity(most, GFP_KERNEL) {
                Ok(mut pieces) => {
                    let pieces = pieces.spare_capacity_mut();
                    self.add_contexts(qp, pieces, range, remote, &mut added)
                }
                Err(error) => Err(error.into()),
            }
        };
        (added, result)
    }

    /// Does the work of [`Self::add_runs`] with an array for the pieces of memory; `added` counts the bytes.
    ///
    /// # Errors
    ///
    /// As for [`Contexts::add`]. `EINVAL`: the memory does not have these bytes.
    #[inline(always)]
    fn add_contexts<H: Handler>(
        &mut self,
        qp: &Qp<H>,
        pieces: &mut [MaybeUninit<bindings::bio_vec>],
        range: Range<u32>,
        remote: Remote,
        added: &mut u32,
    ) -> Result {
        let len = range.len() as u32;
        let mut runs = self.memory.runs(range);
        let mut next = runs.next();
        while let Some(first) = next {
            let named = fill_bvecs(pieces, first, &mut runs, qp, self.contexts.direction)?;
            next = named.next;
            let remote = Remote {
                address: remote.address.wrapping_add((*added).into()),
                ..remote
            };
            self.contexts.add(qp, pieces, &named, remote)?;
            *added += named.len;
        }
        if *added == len {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Counts the contexts that the bytes `range` take. Each takes a registration on a device that
    /// registers the memory.
    #[cold]
    fn contexts_for<H: Handler>(&self, qp: &Qp<H>, range: Range<u32>) -> u32 {
        let most = qp.most_pieces(self.contexts.direction);
        let (mut count, mut pieces, mut end) = (0, most, 0);
        for run in self.memory.runs(range) {
            if pieces == most || !meets(end, &run) {
                count += 1;
                pieces = 0;
            }
            pieces += 1;
            end = run.offset() + run.len();
        }
        count
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.contexts.is_empty() {
            leak("an RDMA Read or Write", take(&mut self.contexts.list));
            core::mem::forget(core::mem::replace(&mut self.memory, PageBuf::empty()));
        }
    }
}

/// The memory of one context.
struct Named {
    /// The number of pieces.
    count: u32,
    /// Its length in bytes.
    len: u32,
    /// The run that begins the next context.
    next: Option<PageRun>,
}

impl Named {
    /// Names `run` alone.
    #[inline]
    fn only(run: &PageRun) -> Self {
        Self {
            count: 1,
            len: run.len(),
            next: None,
        }
    }
}

/// Returns the piece of memory `run`.
#[inline]
fn bvec(run: &PageRun) -> bindings::bio_vec {
    bindings::bio_vec {
        bv_page: run.page(),
        bv_len: run.len(),
        bv_offset: run.offset(),
    }
}

/// Returns whether `run` may continue the memory of a context that ends at `end`, which is counted from
/// the start of a page.
///
/// The device sees the memory of a context as one range of addresses, which consists of pages. So two
/// pieces have to meet at a page boundary, in a registration (ib_sg_to_pages() in
/// drivers/infiniband/core/verbs.c) and behind an IOMMU (dma_iova_link() in
/// drivers/iommu/dma-iommu.c).
#[inline]
fn meets(end: u32, run: &PageRun) -> bool {
    (end | run.offset()) % PAGE_SIZE == 0
}

/// The pieces of memory of one context, while they are named.
struct Naming<'a> {
    /// The places for further pieces.
    places: slice::IterMut<'a, MaybeUninit<bindings::bio_vec>>,
    /// The number of all places.
    most: usize,
    /// The last piece.
    piece: &'a mut bindings::bio_vec,
    /// The page behind it.
    behind: *mut bindings::page,
    len: u32,
}

impl<'a> Naming<'a> {
    /// Begins with `first`, for at most `most` pieces.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there may be no pieces.
    #[inline(always)]
    fn new(
        pieces: &'a mut [MaybeUninit<bindings::bio_vec>],
        first: PageRun,
        most: u32,
    ) -> Result<Self> {
        let most = pieces.len().min(most as usize);
        let mut places = pieces.get_mut(..most).ok_or(EINVAL)?.iter_mut();
        let piece = place(&mut places, &first).ok_or(EINVAL)?;
        Ok(Self {
            places,
            most,
            piece,
            behind: first.page().wrapping_add(1),
            len: first.len(),
        })
    }

    /// Adds `run`, which meets the memory before it. Joins it to the last piece if they are adjacent in memory and
    /// together at most `longest` bytes. Returns whether there was room.
    #[inline(always)]
    fn add(&mut self, run: &PageRun, longest: impl FnOnce() -> u32) -> bool {
        if self.is_adjacent(run.page()) && run.len() <= longest().saturating_sub(self.piece.bv_len)
        {
            self.piece.bv_len += run.len();
        } else {
            let Some(piece) = place(&mut self.places, run) else {
                return false;
            };
            self.piece = piece;
        }
        self.behind = run.page().wrapping_add(1);
        self.len += run.len();
        true
    }

    /// Adds whole `pages`, which meet the memory before them. Joins pages that are adjacent in memory to pieces of
    /// at most `longest` bytes. Returns the number of pages for which there was room.
    #[inline(always)]
    fn add_pages(&mut self, pages: &[NonNull<bindings::page>], longest: u32) -> usize {
        let mut added = 0;
        while let Some(left @ [first, ..]) = pages.get(added..) {
            let room = match self.is_adjacent(first.as_ptr()) {
                true => longest.saturating_sub(self.piece.bv_len) / PAGE_SIZE,
                false => 0,
            };
            let is_joined = room != 0;
            let most = if is_joined { room } else { longest / PAGE_SIZE };
            let count = adjacent(left, most.max(1) as usize);
            let run = PageRun::new(*first, 0, count as u32 * PAGE_SIZE);
            if is_joined {
                self.piece.bv_len += run.len();
            } else if let Some(piece) = place(&mut self.places, &run) {
                self.piece = piece;
            } else {
                break;
            }
            self.behind = first.as_ptr().wrapping_add(count);
            added += count;
        }
        self.len += added as u32 * PAGE_SIZE;
        added
    }

    /// Returns whether `page` is behind the last piece in memory.
    #[inline(always)]
    fn is_adjacent(&self, page: *mut bindings::page) -> bool {
        PAGES_ARE_AN_ARRAY && ptr::eq(page, self.behind)
    }

    /// Returns the number of pieces.
    #[inline(always)]
    fn count(&self) -> u32 {
        (self.most - self.places.len()) as u32
    }
}

/// Returns the number of the first of `pages` that are adjacent in memory, `most` at most.
#[inline(always)]
fn adjacent(pages: &[NonNull<bindings::page>], most: usize) -> usize {
    if !PAGES_ARE_AN_ARRAY {
        return pages.len().min(1);
    }
    let pages = pages.get(..most).unwrap_or(pages);
    let follow = |pair: &[NonNull<bindings::page>]| match pair {
        [page, next] => page.as_ptr().wrapping_add(1) == next.as_ptr(),
        _ => false,
    };
    match pages.windows(2).position(|pair| !follow(pair)) {
        Some(last) => last + 1,
        None => pages.len(),
    }
}

/// Writes a piece to the next place. Returns `None` if there is no place.
#[inline(always)]
fn place<'a>(
    places: &mut slice::IterMut<'a, MaybeUninit<bindings::bio_vec>>,
    run: &PageRun,
) -> Option<&'a mut bindings::bio_vec> {
    Some(places.next()?.write(bvec(run)))
}

/// Names the memory of one context: `first`, and the runs that may continue it. Joins runs that are
/// adjacent in memory to pieces of at most [`Qp::longest_piece`] bytes.
///
/// # Errors
///
/// `EINVAL`: `pieces` is too short.
#[inline(always)]
fn fill_bvecs<H: Handler>(
    pieces: &mut [MaybeUninit<bindings::bio_vec>],
    first: PageRun,
    runs: &mut Runs<'_>,
    qp: &Qp<H>,
    direction: Direction,
) -> Result<Named> {
    let mut naming = Naming::new(pieces, first, qp.most_pieces(direction))?;
    let mut longest = None;
    let mut longest = || *longest.get_or_insert_with(|| qp.longest_piece(direction));
    let next = loop {
        let ends = naming.piece.bv_offset + naming.piece.bv_len;
        let pages = match ends % PAGE_SIZE {
            0 => runs.whole_pages(),
            _ => &[],
        };
        if !pages.is_empty() {
            // Most memory is whole pages.
            let named = naming.add_pages(pages, longest());
            runs.skip_pages(named);
            if named != pages.len() {
                break runs.next();
            }
        }
        let Some(run) = runs.next() else {
            break None;
        };
        let ends = naming.piece.bv_offset + naming.piece.bv_len;
        if !meets(ends, &run) || !naming.add(&run, &mut longest) {
            break Some(run);
        }
    };
    Ok(Named {
        count: naming.count(),
        len: naming.len,
        next,
    })
}

/// Data to be written into the peer's memory, in front of a Send that tells the peer.
pub(crate) struct Write(KBox<ContextEntry>);

/// A [`Write`] that waits for its next use.
pub(crate) struct IdleWrite(KBox<ContextEntry>);

/// Writes that wait for their next use.
pub(crate) struct IdleWrites {
    list: BoxList<ContextEntry>,
    count: u32,
}

struct ContextEntry {
    transfer: Transfer,
    link: Link<ContextEntry>,
}

// SAFETY: contract of the trait: `offset_of!` gives the offset of the field, which only lists use.
unsafe impl Node for ContextEntry {
    const LINK: usize = offset_of!(Self, link);
}

/// The number of idle Writes, or Pulls, that a connection keeps. More are in use only on a connection with more
/// Calls at a time.
pub(super) const MOST_IDLE: u32 = 32;

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
    /// Makes an empty Write, in `idle` if there is a box. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new<H: Handler>(qp: &Qp<H>, idle: Option<IdleWrite>) -> Result<Self> {
        match idle {
            Some(IdleWrite(entry)) if entry.transfer.contexts.are_of(qp.id()) => Ok(Self(entry)),
            _ => Ok(Self(KBox::new(
                ContextEntry {
                    transfer: Transfer::new(qp, Direction::ToDevice),
                    link: Link::new(),
                },
                GFP_KERNEL,
            )?)),
        }
    }

    /// Returns the memory for the data. Returns `None` after a piece was [added](Self::add).
    pub(crate) fn memory_mut(&mut self) -> Option<&mut PageBuf> {
        self.0.transfer.memory_mut()
    }

    /// Adds the bytes `range`. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the device's registrations are all in use. `EMSGSIZE`: the work requests do not fit the
    /// queue pair. `ENOMEM`; `EINVAL`: the memory does not have these bytes. Else the device's driver or
    /// IOMMU refuses the memory. Bytes that were added stay.
    pub(crate) fn add<H: Handler>(
        &mut self,
        qp: &Qp<H>,
        range: Range<u32>,
        remote: Remote,
    ) -> Result {
        self.0.transfer.add(qp, range, remote).1
    }

    /// Counts the registrations that the bytes `range` take on a device that registers memory for RDMA
    /// Writes.
    pub(crate) fn registrations_for<H: Handler>(&self, qp: &Qp<H>, range: Range<u32>) -> u32 {
        self.0.transfer.contexts_for(qp, range)
    }

    /// Returns the number of its work requests.
    pub(crate) fn work_requests(&self) -> u32 {
        self.0.transfer.contexts.work_requests()
    }

    /// Returns the memory to read. The device only reads it, too.
    pub(crate) fn memory(&self) -> &PageBuf {
        &self.0.transfer.memory
    }

    /// Removes the contexts, which were not posted. The memory stays.
    pub(crate) fn undo<H: Handler>(&mut self, qp: &Qp<H>) {
        self.0.transfer.undo(qp);
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
        self.0.transfer.contexts.link_up(qp, ptr::null_mut(), next)
    }

    /// Returns whether it belongs to the queue pair.
    pub(super) fn is_of(&self, qp: QpId) -> bool {
        self.0.transfer.contexts.are_of(qp)
    }

    /// Takes the memory back, after the Send behind the RDMA Writes has ended.
    pub(super) fn ended<H: Handler>(mut self, qp: &QpRef<H>) -> IdleWrite {
        let transfer = &mut self.0.transfer;
        transfer.contexts.unmap(qp);
        transfer.memory.clear();
        transfer.memory.shrink_for_reuse();
        IdleWrite(self.0)
    }

    /// Prepares for the destruction of the queue pair that has the work requests.
    pub(super) fn withdraw<H: Handler>(&mut self, qp: &QpRef<H>) {
        self.0.transfer.contexts.withdraw(qp);
    }

    /// Takes the memory back, after the queue pair that had the work requests was destroyed.
    pub(super) fn reclaim(mut self, pd: &Pd) {
        self.0.transfer.contexts.reclaim(pd);
    }
}
