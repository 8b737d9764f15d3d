// SPDX-License-Identifier: GPL-2.0

//! Memory registrations, `struct ib_mr`, by fast registration work requests (FRWR).
//!
//! The state of a registration is its type, and each step consumes the one before:
//!
//! ```text
//!   Mr<Idle> --map--> Mr<Mapped> --QpRef::send--> MrList<Registered>
//!      ^                                               |
//!      +---- fence done, or invalidated by the peer ---+
//! ```
//!
//! While `Registered`, the peer can reach the memory. Only a fence (a LOCAL_INV that completed),
//! an invalidation by the peer, or destruction after the queue pair has been drained leads out of
//! that state; until then the memory's owner must not have it back. There is no way to drop a
//! registered list by mistake without a complaint, and none to reuse one.

use super::dma::Direction;
use super::pd::Pd;
use super::qp::Drained;
use crate::bindings;
use crate::support::errno;
use crate::support::memory::{
    Span,
    PAGE_SIZE, //
};
use crate::support::stack::{
    Node,
    Stack, //
};
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::Arc;

mod sealed {
    pub(crate) trait State {
        /// Whether the peer may reach the memory.
        const EXPOSED: bool;
    }
}

/// State of a registration: no memory.
pub(crate) struct Idle;
/// State of a registration: memory is mapped for the device, and nobody told of it.
pub(crate) struct Mapped;
/// State of a registration: the peer may reach the memory.
pub(crate) struct Registered;

impl sealed::State for Idle {
    const EXPOSED: bool = false;
}
impl sealed::State for Mapped {
    const EXPOSED: bool = false;
}
impl sealed::State for Registered {
    const EXPOSED: bool = true;
}

/// What kind of registrations a device makes, and how large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// A registration may have gaps between its pieces.
    pub(crate) sg_gaps: bool,
    /// The most pages of a registration.
    pub(crate) pages: u32,
}

/// The proof that the peer itself has invalidated a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invalidated(u32);

impl Invalidated {
    /// Of a completion that says so (`IB_WC_WITH_INVALIDATE`).
    pub(super) fn by_completion(key: u32) -> Self {
        Self(key)
    }
}

/// The proof that none of a request's registrations exposes memory any more.
pub(crate) struct Unexposed(());

/// The memory that a registration exposes, as the peer names it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Region {
    /// The steering tag (R_key).
    pub(crate) key: u32,
    /// Length in octets.
    pub(crate) length: u32,
    /// Address of the first octet.
    pub(crate) address: u64,
}

/// # Invariants
///
/// `raw` is a valid registration in the domain of `pd`. If `mapped` is set, the first `nents`
/// entries of `sg` are mapped for the device.
pub(super) struct Inner {
    raw: NonNull<bindings::ib_mr>,
    sg: KVec<bindings::scatterlist>,
    mapped: Option<(i32, Direction)>,
    /// What `mapped` is called by the peer.
    region: Region,
    /// The work request that registers, and later the one that invalidates.
    wr: bindings::ib_reg_wr,
    /// The queue pair that it was registered on last, to compare only.
    qp: usize,
    next: Option<KBox<Inner>>,
    pd: Arc<Pd>,
}

// SAFETY: a registration does not belong to a task; the work request is data until it is posted.
unsafe impl Send for Inner {}

impl Inner {
    fn unmap(&mut self) {
        if let Some((nents, direction)) = self.mapped.take() {
            // SAFETY: mapped with the same arguments, by the type invariant.
            unsafe {
                bindings::ib_dma_unmap_sg(
                    self.pd.device(),
                    self.sg.as_mut_ptr(),
                    nents,
                    direction.as_raw(),
                )
            };
        }
    }

    /// Turns the work request into the registration on `qp`, in front of `next`.
    pub(super) fn register_wr(
        &mut self,
        qp: usize,
        cqe: *mut bindings::ib_cqe,
        next: *const bindings::ib_send_wr,
    ) -> *const bindings::ib_send_wr {
        let access = match self.mapped {
            Some((_, Direction::FromDevice)) => {
                bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            }
            _ => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
        };
        self.qp = qp;
        self.wr = bindings::ib_reg_wr {
            wr: bindings::ib_send_wr {
                next: next.cast_mut(),
                __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 { wr_cqe: cqe },
                opcode: bindings::ib_wr_opcode_IB_WR_REG_MR,
                ..Default::default()
            },
            mr: self.raw.as_ptr(),
            key: self.region.key,
            access: access as i32,
        };
        &raw const self.wr.wr
    }

    /// Turns the work request into the invalidation, in front of `next`.
    pub(super) fn invalidate_wr(
        &mut self,
        cqe: *mut bindings::ib_cqe,
        next: *const bindings::ib_send_wr,
        signaled: bool,
    ) -> *const bindings::ib_send_wr {
        let mut wr = bindings::ib_send_wr {
            next: next.cast_mut(),
            __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 { wr_cqe: cqe },
            opcode: bindings::ib_wr_opcode_IB_WR_LOCAL_INV,
            ..Default::default()
        };
        wr.ex.invalidate_rkey = self.region.key;
        if signaled {
            wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        }
        self.wr.wr = wr;
        &raw const self.wr.wr
    }
}

impl Node for Inner {
    fn link(&self) -> &Option<KBox<Self>> {
        &self.next
    }

    fn link_mut(&mut self) -> &mut Option<KBox<Self>> {
        &mut self.next
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: valid by the type invariant. Afterwards the peer cannot reach the memory.
        let ret = unsafe { bindings::ib_dereg_mr(self.raw.as_ptr()) };
        if ret != 0 {
            pr_err!("a memory registration could not be destroyed: error {ret}\n");
        }
        self.unmap();
    }
}

/// One registration.
pub(crate) struct Mr<S> {
    inner: KBox<Inner>,
    _state: PhantomData<S>,
}

impl Mr<Idle> {
    /// A registration without memory. Context: may sleep.
    pub(crate) fn new(pd: Arc<Pd>, kind: Kind) -> Result<Self> {
        let pages = kind.pages as usize;
        let mut sg = KVec::with_capacity(pages, GFP_KERNEL | kernel::alloc::flags::__GFP_NOWARN)?;
        for _ in 0..pages {
            sg.push(bindings::scatterlist::default(), GFP_KERNEL)?;
        }
        // SAFETY: the table has `pages` entries.
        unsafe { bindings::sg_init_table(sg.as_mut_ptr(), kind.pages) };
        let mr_type = if kind.sg_gaps {
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        } else {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
        };
        // SAFETY: the domain is valid while `pd` is.
        let raw = unsafe { bindings::ib_alloc_mr(pd.as_raw(), mr_type, kind.pages) };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        let inner = Inner {
            raw,
            sg,
            mapped: None,
            region: Region::default(),
            wr: bindings::ib_reg_wr::default(),
            qp: 0,
            next: None,
            pd,
        };
        // INVARIANT: just allocated, and nothing is mapped.
        Ok(Self {
            inner: KBox::new(inner, GFP_KERNEL)?,
            _state: PhantomData,
        })
    }

    /// Maps memory for the device; `tag` becomes the upper half of its address on the wire, so
    /// that a capture shows to which message it belongs.
    ///
    /// Context: any, does not sleep.
    ///
    /// # Errors
    ///
    /// The registration comes back with the error. `ENOBUFS`: the IOMMU or swiotlb has no space
    /// now; later it may. `EINVAL`: too many pieces, or pieces that the device cannot join. Else
    /// what `spans` says.
    pub(crate) fn map(
        mut self,
        spans: impl Iterator<Item = Result<Span>>,
        direction: Direction,
        tag: u32,
    ) -> Result<Mr<Mapped>, (Self, Error)> {
        match self.inner.map(spans, direction, tag) {
            Ok(()) => Ok(Mr {
                inner: self.inner,
                _state: PhantomData,
            }),
            Err(error) => Err((self, error)),
        }
    }
}

impl Inner {
    fn map(
        &mut self,
        spans: impl Iterator<Item = Result<Span>>,
        direction: Direction,
        tag: u32,
    ) -> Result {
        let inner = self;
        let mut nents = 0;
        for span in spans {
            let span = span?;
            let entry = inner.sg.get_mut(nents).ok_or(EINVAL)?;
            // SAFETY: `entry` is one of an initialised table, and the span's invariant says that
            // its page is valid.
            unsafe {
                bindings::sg_set_page(entry, span.page().as_ptr(), span.len(), span.offset())
            };
            nents += 1;
        }
        let nents = nents as i32;
        // SAFETY: the first `nents` entries name valid memory, which stays until it is unmapped.
        let dma_nents = unsafe {
            bindings::ib_dma_map_sg(
                inner.pd.device(),
                inner.sg.as_mut_ptr(),
                nents,
                direction.as_raw(),
            )
        };
        if dma_nents == 0 {
            return Err(errno::no_buffers());
        }
        // INVARIANT: mapped just now.
        inner.mapped = Some((nents, direction));
        // SAFETY: the registration is valid and not in use; the entries are mapped.
        let joined = unsafe {
            bindings::ib_map_mr_sg(
                inner.raw.as_ptr(),
                inner.sg.as_mut_ptr(),
                dma_nents,
                core::ptr::null_mut(),
                PAGE_SIZE,
            )
        };
        if joined != dma_nents {
            inner.unmap();
            return Err(EINVAL);
        }
        // SAFETY: valid, and ours alone while it is not posted.
        let mr = unsafe { inner.raw.as_mut() };
        mr.iova = (mr.iova & u64::from(u32::MAX)) | (u64::from(tag) << 32);
        // A key is never used twice in a row, so that a late access with the old one fails.
        let next_key = (mr.rkey as u8).wrapping_add(1);
        // SAFETY: as above.
        unsafe { bindings::ib_update_fast_reg_key(mr, next_key) };
        inner.region = Region {
            key: mr.rkey,
            length: mr.length as u32,
            address: mr.iova,
        };
        Ok(())
    }
}

/// Registrations in one state.
pub(crate) struct MrList<S: sealed::State> {
    inners: Stack<Inner>,
    _state: PhantomData<S>,
}

impl<S: sealed::State> MrList<S> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            inners: Stack::new(),
            _state: PhantomData,
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.inners.is_empty()
    }

    fn names(&self) -> impl Iterator<Item = Region> + Clone + '_ {
        self.inners.iter().map(|inner| inner.region)
    }

    pub(super) fn for_each(&mut self, f: impl FnMut(&mut Inner)) {
        self.inners.for_each(f);
    }

    fn into_state<R: sealed::State>(mut self) -> MrList<R> {
        MrList {
            inners: core::mem::take(&mut self.inners),
            _state: PhantomData,
        }
    }
}

impl<S: sealed::State> Default for MrList<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl MrList<Idle> {
    /// Adds a registration.
    pub(crate) fn push(&mut self, mr: Mr<Idle>) {
        self.inners.push(mr.inner);
    }

    /// Takes a registration.
    pub(crate) fn pop(&mut self) -> Option<Mr<Idle>> {
        Some(Mr {
            inner: self.inners.pop()?,
            _state: PhantomData,
        })
    }

    /// Moves all registrations of `other` here.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.inners.append(core::mem::take(&mut other.inners));
    }
}

impl MrList<Mapped> {
    /// Adds a registration behind the others.
    pub(crate) fn push_last(&mut self, mr: Mr<Mapped>) {
        self.inners.push_last(mr.inner);
    }

    /// What the peer will be told, from the first on.
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> + Clone + '_ {
        self.names()
    }

    /// Unmaps the memory; nobody was told of it.
    pub(crate) fn unmap(mut self) -> MrList<Idle> {
        self.for_each(Inner::unmap);
        self.into_state()
    }

    /// The peer may reach the memory from now on.
    pub(super) fn registered(self) -> MrList<Registered> {
        self.into_state()
    }
}

impl MrList<Registered> {
    /// What the peer was told, in the same order, but for what it has invalidated.
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> + Clone + '_ {
        self.names()
    }

    /// Takes the registration that the peer has invalidated from the list, if it is there.
    pub(crate) fn take_invalidated(&mut self, by_peer: Invalidated) -> Option<Mr<Idle>> {
        let mut rest = Stack::new();
        let mut found = None;
        while let Some(mut inner) = self.inners.pop() {
            if found.is_none() && inner.region.key == by_peer.0 {
                inner.unmap();
                found = Some(Mr {
                    inner,
                    _state: PhantomData,
                });
            } else {
                rest.push_last(inner);
            }
        }
        self.inners = rest;
        found
    }

    /// The proof that nothing is exposed, if that is so; or the list.
    pub(crate) fn unexposed(self) -> Result<Unexposed, Self> {
        if self.is_empty() {
            Ok(Unexposed(()))
        } else {
            Err(self)
        }
    }

    /// All have been invalidated by a fence.
    pub(super) fn invalidated(mut self) -> (MrList<Idle>, Unexposed) {
        self.for_each(Inner::unmap);
        (self.into_state(), Unexposed(()))
    }

    /// Destroys the registrations, which fences them as well: their queue pair has been drained.
    pub(crate) fn destroy(mut self, proof: &Drained) {
        while let Some(inner) = self.inners.pop() {
            if proof.is_of(inner.qp) {
                drop(inner);
            } else {
                lose(inner);
            }
        }
    }
}

impl<S: sealed::State> Drop for MrList<S> {
    fn drop(&mut self) {
        while let Some(inner) = self.inners.pop() {
            if S::EXPOSED {
                lose(inner);
            }
        }
    }
}

/// The peer may still reach the memory, and the device the registration: losing both is the
/// lesser evil.
fn lose(inner: KBox<Inner>) {
    pr_err!("a memory registration was lost before it was fenced\n");
    core::mem::forget(inner);
}
