// SPDX-License-Identifier: GPL-2.0

//! LOCAL_INV work requests, after which the peer cannot reach registered memory: made, posted,
//! completed.
//!
//! Of a chain only the last asks for a completion. The queue works in order, so when that one is
//! done they all are.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{
    cq::Completions,
    mr::{
        MrList,
        Registered, //
    },
    pd::Pd,
    proof::{
        Destroyed,
        Unexposed, //
    },
    qp::QpRef,
    wqe::{
        unit_cqe,
        CompletionFacts,
        Listed,
        Wc,
        WorkKind,
        WorkRequest,
        Wqe, //
    },
    Invalidates, //
};
use crate::{
    bindings,
    support::box_list::{
        BoxList,
        Link, //
    },
};
use core::{
    mem::offset_of,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// An invalidation and its waiter. It is made ahead, because it must not fail for lack of memory.
pub(crate) struct LocalInv<H: Invalidates> {
    /// While it is posted, or failed.
    what: Option<(MrList<Registered>, H::Waiter)>,
    link: Link<LocalInvWqe<H>>,
}

/// An invalidation as it is posted.
pub(crate) type LocalInvWqe<H> = Wqe<LocalInv<H>>;

/// An invalidation that is not posted.
pub(crate) type LocalInvBox<H> = KBox<LocalInvWqe<H>>;

/// Invalidations that are not posted.
pub(crate) type LocalInvList<H> = BoxList<LocalInvWqe<H>>;

// SAFETY: contract of the trait: `offset_of!` gives the offset of the field, which only lists use.
unsafe impl<H: Invalidates> Listed for LocalInv<H> {
    const LINK: usize = offset_of!(Self, link);
}

impl<H: Invalidates> LocalInv<H> {
    /// Makes an invalidation for later. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<LocalInvBox<H>> {
        Wqe::new(Self {
            what: None,
            link: Link::new(),
        })
    }

    /// Completes an invalidation that failed, now that the queue pair is destroyed: destroys its
    /// registrations, and returns the waiter, with a proof if they belonged to this queue pair.
    ///
    /// Context: process, may sleep.
    pub(crate) fn resolve(&mut self, proof: &Destroyed) -> Option<(H::Waiter, Option<Unexposed>)> {
        let (mrs, waiter) = self.what.take()?;
        Some((waiter, mrs.destroy(proof)))
    }
}

impl<H: Invalidates> QpRef<H> {
    /// Invalidates `mrs`; `waiter` comes back with the completion.
    ///
    /// When the queue pair does not take it, `inv` comes back with both inside, as one that
    /// failed ([`Invalidates::invalidation_failed`]).
    ///
    /// Context: any. A task has the lock under which registrations are posted: one
    /// that has been invalidated is not posted anew before ib_post_send() has returned, which may look at
    /// its work request until then.
    ///
    /// # Errors
    ///
    /// The invalidation, if there is no registration or the queue pair does not take it.
    pub(crate) fn post_local_inv(
        &self,
        mut inv: LocalInvBox<H>,
        mut mrs: MrList<Registered>,
        waiter: H::Waiter,
    ) -> Result<(), LocalInvBox<H>> {
        // All but the last ask for no completion, but get one if they fail. So does the last
        // then, so theirs have nothing to do. The last has the box.
        let last: *mut bindings::ib_cqe = ptr::from_mut(&mut *inv).cast();
        let mut cqe = last;
        let mut chain = ptr::null();
        mrs.for_each(|inner| {
            chain = inner.invalidate_wr(cqe, chain, ptr::eq(cqe, last));
            cqe = unit_cqe::<H>();
        });
        inv.what = Some((mrs, waiter));
        if chain.is_null() {
            // Nothing to post means that no completion would come.
            return Err(inv);
        }
        let cqe = Wqe::give(inv, self)?;
        self.shared().owed.fetch_add(1, Relaxed);
        // SAFETY: contract of `post_chain`: the chain lies in the registrations, which the box owns. `wr_cqe` of
        // its last work request is the box, which was given away.
        let ret = unsafe { self.post_chain(chain) };
        if ret == 0 {
            return Ok(());
        }
        self.shared().owed.fetch_sub(1, Relaxed);
        // SAFETY: ib_post_send() stopped before the last of the chain, so no completion comes.
        Err(unsafe { Wqe::take(cqe) })
    }
}

impl<H: Invalidates> WorkRequest for LocalInv<H> {
    type Handler = H;

    const KIND: WorkKind = WorkKind::LocalInv;

    fn done(mut inv: LocalInvBox<H>, cx: &mut Completions<'_, H>, wc: &Wc<'_>) {
        cx.owed().fetch_sub(1, Relaxed);
        if wc.success().is_none() {
            cx.handler().invalidation_failed(inv);
            return;
        }
        // A posted invalidation has both.
        let Some((mrs, waiter)) = inv.what.take() else {
            return;
        };
        let (mrs, proof) = mrs.invalidated();
        cx.handler().invalidated(cx, inv, waiter, mrs, proof);
    }

    fn complete_facts(&mut self, facts: &mut CompletionFacts, _wc: Wc<'_>) {
        // The first registration is the last that is invalidated.
        let mrs = self.what.as_ref().map(|(mrs, _)| mrs);
        facts.number = mrs.and_then(MrList::first_id).unwrap_or(0);
    }

    fn reclaim(inv: LocalInvBox<H>, handler: &H, _pd: &Pd) {
        handler.invalidation_failed(inv);
    }
}
