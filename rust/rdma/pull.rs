// SPDX-License-Identifier: GPL-2.0

//! Pulls: RDMA Reads with a completion of their own.
//!
//! C header: `include/rdma/rw.h`.

use super::{
    cq::Completions,
    dma::Direction,
    pd::Pd,
    qp::{
        Qp,
        QpRef, //
    },
    rw::{
        Remote,
        Transfer,
        MOST_IDLE, //
    },
    send::SendQueue,
    wqe::{
        CompletionFacts,
        Listed,
        Wc,
        WorkKind,
        WorkRequest,
        Wqe, //
    },
    Pulls, //
};
use crate::support::{
    box_list::{
        BoxList,
        Link, //
    },
    pages::PageBuf, //
};
use core::{
    mem::offset_of,
    ops::Range,
    ptr, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::Relaxed,
    time::{
        Instant,
        Monotonic, //
    },
};

/// Data to be read from the peer's memory. It is used again and again.
pub(crate) struct Pull<H: Pulls> {
    transfer: Transfer,
    /// While it is posted.
    waiter: Option<H::Puller>,
    /// The number of its bytes, and the time when they were to be read, if its completion is to be traced.
    traced: Option<(u32, Instant<Monotonic>)>,
    link: Link<PullWqe<H>>,
}

/// Data to be read, as it is posted.
pub(crate) type PullWqe<H> = Wqe<Pull<H>>;

/// Data to be read that is not posted.
pub(crate) type PullBox<H> = KBox<PullWqe<H>>;

// SAFETY: contract of the trait: `offset_of!` gives the offset of the field, which only lists use.
unsafe impl<H: Pulls> Listed for Pull<H> {
    const LINK: usize = offset_of!(Self, link);
}

/// The number of idle Pulls of a connection that keep their page.
const MOST_WITH_PAGES: u32 = 8;

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
    pub(crate) fn push(&mut self, mut pull: PullBox<H>) -> Option<PullBox<H>> {
        if self.count >= MOST_IDLE || !pull.transfer.contexts.is_empty() {
            return Some(pull);
        }
        if self.count >= MOST_WITH_PAGES {
            let _ = pull.memory_mut().map(PageBuf::stash);
        }
        self.count += 1;
        self.list.push(pull);
        None
    }
}

impl<H: Pulls> Pull<H> {
    /// Makes an empty Pull. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(qp: &Qp<H>) -> Result<PullBox<H>> {
        Wqe::new(Self {
            transfer: Transfer::new(qp, Direction::FromDevice),
            waiter: None,
            traced: None,
            link: Link::new(),
        })
    }

    /// Returns the memory that receives the data. Returns `None` after a piece was [added](Self::add), because
    /// the device may write it.
    pub(crate) fn memory_mut(&mut self) -> Option<&mut PageBuf> {
        self.transfer.memory_mut()
    }

    /// Adds the read of the bytes `range`. Returns the number of bytes that were added, from the start of
    /// the range, and the reason if they are not all. Context and errors as for [`Write::add`](super::rw::Write::add).
    pub(crate) fn add(&mut self, qp: &Qp<H>, range: Range<u32>, remote: Remote) -> (u32, Result) {
        self.transfer.add(qp, range, remote)
    }

    /// Returns the number of its work requests.
    pub(crate) fn work_requests(&self) -> u32 {
        self.transfer.contexts.work_requests()
    }

    /// Notes for the trace of its completion that `bytes` bytes are read from now on. Context: any.
    pub(crate) fn note_begin(&mut self, bytes: u32) {
        self.traced = Some((bytes, Instant::now()));
    }

    /// Undoes all that was added and not posted. The memory stays. Context: any.
    pub(crate) fn undo(&mut self, qp: &Qp<H>) {
        self.transfer.undo(qp);
    }

    /// Undoes one that was not posted. Context: any.
    pub(crate) fn cancel(mut pull: PullBox<H>, qp: &Qp<H>) {
        pull.undo(qp);
    }
}

impl<H: Pulls> WorkRequest for Pull<H> {
    type Handler = H;

    const KIND: WorkKind = WorkKind::Read;

    fn done(mut pull: PullBox<H>, cx: &mut Completions<'_, H>, wc: &Wc<'_>) {
        cx.owed().fetch_sub(1, Relaxed);
        // A posted Pull has a waiter.
        let Some(waiter) = pull.waiter.take() else {
            return;
        };
        let count = pull.transfer.contexts.work_requests();
        // Unmapping frees the work requests.
        cx.handler().wait_for_posting();
        // The queue works in order: the work requests before the last have ended, too.
        pull.transfer.contexts.unmap(cx.qp());
        let pull = wc.success().map(|_| pull);
        cx.handler().pulled(cx, waiter, pull, count);
    }

    fn complete_facts(&mut self, facts: &mut CompletionFacts, wc: Wc<'_>) {
        if let (Some((bytes, since)), Some(_)) = (self.traced.take(), wc.success()) {
            facts.bytes = bytes;
            facts.latency = since.elapsed().as_nanos() / 1000;
        }
    }

    fn withdraw(&mut self, qp: &QpRef<H>) {
        self.transfer.contexts.withdraw(qp);
    }

    fn reclaim(mut pull: PullBox<H>, _handler: &H, pd: &Pd) {
        pull.transfer.contexts.reclaim(pd);
    }
}

impl<H: Pulls> QpRef<H> {
    /// Posts a Pull, with one doorbell; `waiter` comes back when the data is there.
    ///
    /// Context: any. `queue` has room, and is locked by the caller with the lock of
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
        let contexts = &mut pull.transfer.contexts;
        if contexts.is_empty() || !queue.is_of(self) || !contexts.are_of(queue.id()) {
            return Err(EINVAL);
        }
        queue.reserve(contexts.work_requests());
        let chain = contexts.link_up(self, cqe, ptr::null_mut());
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
