// SPDX-License-Identifier: GPL-2.0

//! Memory registrations, `struct ib_mr`, by fast registration work requests (FRWR).
//!
//! The state of a registration is its type, and each step consumes the one before:
//!
//! ```text
//!   Mr<Idle> --map--> Mr<Mapped>, MrList<Mapped> --Qp::post_send--> MrList<Registered>
//!      ^                                                                |           |
//!      +---------- invalidated, by ourselves or by the peer ------------+           |
//!      +-------- unmapped -------- Mr<Revoked> <--- the only one, by the peer ------+
//! ```
//!
//! While `Registered`, the peer can reach the memory. Only a LOCAL_INV that completed, an
//! invalidation by the peer, or destruction after the queue pair is destroyed leads out of
//! that state; until then the memory's owner must not have it back. There is no way to drop a
//! registered list by mistake without a complaint, and none to reuse one.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{
    dma::{
        boxed_on,
        Direction, //
    },
    pd::Pd,
    proof::{
        Destroyed,
        Invalidated,
        QpId,
        Unexposed, //
    },
    sg::SgTable,
    wqe::Prepared, //
};
use crate::{
    bindings,
    support::{
        box_list::{
            BoxList,
            BoxStack,
            Link,
            Node, //
        },
        memory::{
            Span,
            PAGE_SIZE, //
        },
        module::leak,
        trace, //
    },
};
use core::{
    marker::PhantomData,
    mem::{
        offset_of,
        take, //
    },
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};

mod sealed {
    pub(crate) trait MrState {
        /// True if the peer may access the memory.
        const EXPOSED: bool;
    }

    /// A state in which the peer does not reach the memory.
    pub(crate) trait Private: MrState {}
}

/// State of a registration: no memory.
pub(crate) struct Idle;
/// State of a registration: memory is mapped for the device, and no message has named it.
pub(crate) struct Mapped;
/// State of a registration: the peer may reach the memory.
pub(crate) struct Registered;
/// State of a registration: the peer has invalidated it, and its memory is still mapped for the
/// device.
pub(crate) struct Revoked;

impl sealed::MrState for Idle {
    const EXPOSED: bool = false;
}
impl sealed::MrState for Mapped {
    const EXPOSED: bool = false;
}
impl sealed::Private for Idle {}
impl sealed::Private for Mapped {}
impl sealed::MrState for Registered {
    const EXPOSED: bool = true;
}

/// The memory that a registration exposes, as it is told to the peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Region {
    /// The steering tag (R_key).
    pub(crate) key: u32,
    /// Length in bytes.
    pub(crate) length: u32,
    /// Address of the first byte.
    pub(crate) address: u64,
}

/// # Invariants
///
/// `raw` is a valid registration in the domain of `pd`. If `nents` is not zero, the first `nents` entries of
/// `sg` are mapped for the device in direction `direction`: a single entry by rpcrdma_dma_map_sg_one(),
/// several entries by ib_dma_map_sg().
pub(super) struct Inner {
    raw: NonNull<bindings::ib_mr>,
    link: Link<Inner>,
    /// Handle, length and address as they are sent to the peer.
    region: Region,
    /// The queue pair that it was registered on last.
    qp: QpId,
    /// The work request that registers, and later the one that invalidates.
    wr: Prepared<bindings::ib_reg_wr>,
    nents: u32,
    direction: Direction,
    sg: SgTable,
    pd: Arc<Pd>,
}

// SAFETY: an `ib_mr` does not belong to a task (ib_alloc_mr() and ib_dereg_mr() may be called by
// different ones), and `raw` is not copied.
unsafe impl Send for Inner {}

// SAFETY: contract of the trait: `offset_of!` gives the offset of the field, which only lists use.
unsafe impl Node for Inner {
    const LINK: usize = offset_of!(Self, link);
}

impl Inner {
    /// Maps `span` for the device, and makes a key and an address for it.
    ///
    /// # Errors
    ///
    /// [`MapError::Span`]: the table of entries is too short for `span`. [`MapError::NoSpace`]:
    /// there is no DMA address at present. [`MapError::Apart`]: the device cannot join the entries.
    #[inline(always)]
    fn map(&mut self, span: Span<'_>, direction: Direction, tag: u32) -> Result<(), MapError> {
        let nents = self.sg.fill(span).map_err(|_| MapError::Span)?;
        let (device, sg) = (self.pd.device(), self.sg.as_raw());
        let mapped = if nents == 1 {
            // SAFETY: the first entry names memory that stays until it is unmapped (`Span`).
            unsafe { bindings::rpcrdma_dma_map_sg_one(device, sg, direction.as_raw()) }
        } else {
            // SAFETY: `nents` entries refer to memory that stays until it is unmapped (`Span`).
            unsafe { bindings::rpcrdma_dma_map_sg(device, sg, nents as i32, direction.as_raw()) }
        };
        if mapped == 0 {
            return Err(MapError::NoSpace { entries: nents });
        }
        // INVARIANT: mapped just now.
        self.nents = nents;
        self.direction = direction;
        // SAFETY: the registration is valid and not in use; `mapped` entries are mapped.
        let joined = unsafe {
            bindings::ib_map_mr_sg(
                self.raw.as_ptr(),
                self.sg.as_raw(),
                mapped,
                ptr::null_mut(),
                PAGE_SIZE,
            )
        };
        if joined != mapped {
            self.unmap();
            return Err(MapError::Apart { mapped, joined });
        }
        // SAFETY: valid by the type invariant; while it is idle, no other code uses its fields.
        let mr = unsafe { self.raw.as_mut() };
        mr.iova = (mr.iova & u64::from(u32::MAX)) | (u64::from(tag) << 32);
        // A key is never used twice in a row, so that a late access with the old one fails. Its
        // lowest byte is ours to choose, as in ib_update_fast_reg_key().
        //= V1-140, V2-181
        mr.rkey = (mr.rkey & !0xff) | (mr.rkey.wrapping_add(1) & 0xff);
        mr.lkey = (mr.lkey & !0xff) | (mr.rkey & 0xff);
        self.region = Region {
            key: mr.rkey,
            length: mr.length as u32,
            address: mr.iova,
        };
        Ok(())
    }

    /// Returns the number by which tools (rdma) and traces identify the registration.
    fn id(&self) -> u32 {
        // SAFETY: valid by the type invariant; rdma_restrack_add() has set the number when it was made.
        unsafe { (*self.raw.as_ptr()).res.id }
    }

    /// Returns the facts about the registration that trace events have.
    #[cold]
    fn facts(&self) -> trace::MrFacts {
        trace::MrFacts {
            id: self.id(),
            nents: self.nents as i32,
            handle: self.region.key,
            length: self.region.length,
            offset: self.region.address,
            dir: self.direction.number(),
        }
    }

    #[inline]
    fn unmap(&mut self) {
        if self.nents == 0 {
            return;
        }
        trace::emit(|| trace::XprtrdmaMrUnmap { mr: self.facts() });
        let nents = take(&mut self.nents);
        let (device, sg, direction) = (self.pd.device(), self.sg.as_raw(), self.direction.as_raw());
        if nents == 1 {
            // SAFETY: mapped by rpcrdma_dma_map_sg_one() with these arguments, by the type invariant.
            unsafe { bindings::rpcrdma_dma_unmap_sg_one(device, sg, direction) };
        } else {
            // SAFETY: mapped by ib_dma_map_sg() with these arguments, by the type invariant.
            unsafe { bindings::ib_dma_unmap_sg(device, sg, nents as i32, direction) };
        }
    }

    /// Turns the work request into the registration on `qp`, in front of `next`.
    pub(super) fn register_wr(
        &mut self,
        qp: QpId,
        cqe: *mut bindings::ib_cqe,
        next: *const bindings::ib_send_wr,
    ) -> *const bindings::ib_send_wr {
        self.qp = qp;
        let access = match self.direction {
            Direction::FromDevice => {
                bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            }
            Direction::ToDevice => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
        };
        let reg = &mut self.wr.0;
        reg.key = self.region.key;
        reg.access = access as i32;
        reg.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        reg.wr.send_flags = 0;
        reg.wr.next = next.cast_mut();
        reg.wr.__bindgen_anon_1.wr_cqe = cqe;
        &raw const reg.wr
    }

    /// Turns the work request into the invalidation, in front of `next`.
    pub(super) fn invalidate_wr(
        &mut self,
        cqe: *mut bindings::ib_cqe,
        next: *const bindings::ib_send_wr,
        signaled: bool,
    ) -> *const bindings::ib_send_wr {
        let wr = &mut self.wr.0.wr;
        wr.opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
        wr.send_flags = if signaled {
            bindings::ib_send_flags_IB_SEND_SIGNALED
        } else {
            0
        };
        wr.ex.invalidate_rkey = self.region.key;
        wr.next = next.cast_mut();
        wr.__bindgen_anon_1.wr_cqe = cqe;
        wr
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

/// The reason why memory is not mapped for the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapError {
    /// The IOMMU or swiotlb has no space for the entries of the scatterlist now. Later it may.
    NoSpace { entries: u32 },
    /// The device cannot join the entries: the entry after the first `joined` does not meet them at a page
    /// boundary. Behind swiotlb the copies are meant, and not the memory. `joined` may be an error number.
    Apart { mapped: i32, joined: i32 },
    /// The memory has more pages than the registration, or lacks one.
    Span,
}

/// One registration.
pub(crate) struct Mr<S> {
    inner: KBox<Inner>,
    _state: PhantomData<S>,
}

impl<S> Mr<S> {
    /// Returns the facts about the registration that trace events have.
    pub(crate) fn facts(&self) -> trace::MrFacts {
        self.inner.facts()
    }

    /// Returns the address by which the device reaches the first piece of the memory that was mapped last.
    #[cold]
    pub(crate) fn dma_address(&self) -> u64 {
        self.inner.sg.dma_address()
    }
}

impl Mr<Idle> {
    /// Makes a registration without memory, for at most `pages` pages, on the device's NUMA node. Context:
    /// process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the error of the driver, which may come from the firmware.
    pub(crate) fn new(pd: Arc<Pd>, pages: u32) -> Result<Self> {
        let sg = SgTable::new(&pd, pages)?;
        let node = pd.node();
        // An RPC's pages have no gaps, and some devices are slow with registrations that allow gaps.
        // SAFETY: the domain is valid while `pd` is.
        let raw = unsafe {
            bindings::ib_alloc_mr(pd.as_raw(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        let wr = bindings::ib_reg_wr {
            mr: raw.as_ptr(),
            ..Default::default()
        };
        // INVARIANT: just allocated, and nothing is mapped. A failure to box it destroys it.
        let inner = Inner {
            raw,
            link: Link::new(),
            region: Region::default(),
            qp: QpId::NONE,
            wr: Prepared(wr),
            nents: 0,
            direction: Direction::ToDevice,
            sg,
            pd,
        };
        Ok(Self {
            inner: boxed_on(node, inner)?,
            _state: PhantomData,
        })
    }

    /// Returns the maximum number of pages that it can map.
    pub(crate) fn pages(&self) -> u32 {
        self.inner.sg.capacity()
    }

    /// Maps memory for the device; `tag` becomes the upper half of its address on the wire, so
    /// that a capture shows to which message it belongs.
    ///
    /// Context: any.
    ///
    /// # Errors
    ///
    /// The registration comes back with the error.
    #[inline]
    pub(crate) fn map(
        mut self,
        span: Span<'_>,
        direction: Direction,
        tag: u32,
    ) -> Result<Mr<Mapped>, (Self, MapError)> {
        match self.inner.map(span, direction, tag) {
            Ok(()) => Ok(Mr {
                inner: self.inner,
                _state: PhantomData,
            }),
            Err(error) => Err((self, error)),
        }
    }
}

/// Registrations in one state.
pub(crate) struct MrList<S: sealed::MrState> {
    inners: BoxList<Inner>,
    _state: PhantomData<S>,
}

impl<S: sealed::MrState> MrList<S> {
    const fn empty() -> Self {
        Self {
            inners: BoxList::new(),
            _state: PhantomData,
        }
    }

    /// Returns whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.inners.is_empty()
    }

    /// Returns the facts about the registrations that trace events have, from the first on.
    pub(crate) fn facts(&self) -> impl Iterator<Item = trace::MrFacts> + '_ {
        self.inners.iter().map(Inner::facts)
    }

    fn names(&self) -> impl Iterator<Item = Region> + Clone + '_ {
        self.inners.iter().map(|inner| inner.region)
    }

    pub(super) fn for_each(&mut self, f: impl FnMut(&mut Inner)) {
        // SAFETY: contract of `BoxList::for_each`: no closure of this folder exchanges whole registrations.
        unsafe { self.inners.for_each(f) };
    }

    fn into_state<R: sealed::MrState>(mut self) -> MrList<R> {
        MrList {
            inners: take(&mut self.inners),
            _state: PhantomData,
        }
    }
}

impl<S: sealed::Private> MrList<S> {
    /// Creates an empty list.
    pub(crate) const fn new() -> Self {
        Self::empty()
    }
}

impl<S: sealed::Private> Default for MrList<S> {
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
        self.inners.append(take(&mut other.inners));
    }
}

/// A stack of idle registrations without a lock. Any task may add registrations, or take all.
pub(crate) struct IdleStack(BoxStack<Inner>);

impl IdleStack {
    /// Creates an empty list.
    pub(crate) const fn new() -> Self {
        Self(BoxStack::new())
    }

    /// Adds a registration. A full barrier. Context: any.
    #[inline]
    pub(crate) fn push(&self, mr: Mr<Idle>) {
        self.0.push(mr.inner);
    }

    /// Takes all registrations. A full barrier. Context: any.
    pub(crate) fn take_all(&self) -> MrList<Idle> {
        MrList {
            inners: self.0.take_all(),
            _state: PhantomData,
        }
    }
}

impl Mr<Revoked> {
    /// Returns the memory as the peer knew it.
    pub(crate) fn region(&self) -> Region {
        self.inner.region
    }

    /// Unmaps the memory, which ends the exposure: there was no other registration.
    ///
    /// Context: any.
    #[inline]
    pub(crate) fn unmap(self) -> (Mr<Idle>, Unexposed) {
        let mut inner = self.inner;
        inner.unmap();
        let idle = Mr {
            inner,
            _state: PhantomData,
        };
        (idle, Unexposed::by_end_of_list())
    }
}

impl MrList<Mapped> {
    /// Adds a registration behind the others.
    pub(crate) fn push_last(&mut self, mr: Mr<Mapped>) {
        self.inners.push_last(mr.inner);
    }

    /// Returns the regions for the peer, from the first on.
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> + Clone + '_ {
        self.names()
    }

    /// Unmaps the memory, which no message has named.
    pub(crate) fn unmap(mut self) -> MrList<Idle> {
        self.for_each(Inner::unmap);
        self.into_state()
    }

    /// Marks the memory as exposed: the peer may reach it from now on.
    pub(super) fn registered(self) -> MrList<Registered> {
        self.into_state()
    }
}

/// Each list comes from one [`post_send`](super::qp::QpRef::post_send).
impl MrList<Registered> {
    /// Returns the restrack number of the first registration.
    pub(super) fn first_id(&self) -> Option<u32> {
        self.inners.first().map(Inner::id)
    }

    /// Returns the regions that the peer got, in the same order, without the regions that it has invalidated.
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> + Clone + '_ {
        self.names()
    }

    /// Takes the registration that the peer has invalidated from the list, if it is there. `note` is called
    /// with the registration before its memory is unmapped.
    #[inline]
    pub(crate) fn take_invalidated(
        &mut self,
        by_peer: Invalidated,
        note: impl FnOnce(&Mr<Idle>),
    ) -> Option<Mr<Idle>> {
        let inner = self
            .inners
            .take(|inner| by_peer.is_of(inner.qp, inner.region.key))?;
        let mut mr = Mr {
            inner,
            _state: PhantomData,
        };
        note(&mr);
        mr.inner.unmap();
        Some(mr)
    }

    /// Returns the single registration if it is the registration that the peer has invalidated, and uses up the
    /// proof. Returns the list otherwise.
    ///
    /// # Errors
    ///
    /// The list, if the peer has not invalidated its only registration.
    #[inline]
    pub(crate) fn into_revoked(
        mut self,
        by_peer: &mut Option<Invalidated>,
    ) -> Result<Mr<Revoked>, Self> {
        let Some(proof) = by_peer else {
            return Err(self);
        };
        match self
            .inners
            .take_only(|inner| proof.is_of(inner.qp, inner.region.key))
        {
            Some(inner) => {
                *by_peer = None;
                Ok(Mr {
                    inner,
                    _state: PhantomData,
                })
            }
            None => Err(self),
        }
    }

    /// Returns the proof that no memory is exposed if all registrations allow it, or else the list.
    ///
    /// # Errors
    ///
    /// The list, if it has a registration.
    pub(crate) fn unexposed(self) -> Result<Unexposed, Self> {
        if self.is_empty() {
            Ok(Unexposed::by_end_of_list())
        } else {
            Err(self)
        }
    }

    /// Takes back registrations that this side has invalidated.
    pub(super) fn invalidated(mut self) -> (MrList<Idle>, Unexposed) {
        self.for_each(Inner::unmap);
        (self.into_state(), Unexposed::by_end_of_list())
    }

    /// Unmaps the registrations: their queue pair is destroyed, so the peer cannot reach them.
    /// They are of no use any more, and only to be freed. Context: any.
    pub(crate) fn retire(mut self, proof: &Destroyed) -> MrList<Idle> {
        let mut retired = MrList::<Idle>::new();
        while let Some(mut inner) = self.inners.pop() {
            if proof.is_of(inner.qp) {
                inner.unmap();
                retired.inners.push(inner);
            } else {
                leak("a memory registration", inner);
            }
        }
        retired
    }

    /// Destroys the registrations, which invalidates them as well: their queue pair has been
    /// destroyed. Returns the proof of that, unless some were of another queue pair, which are
    /// lost. Context: process, may sleep.
    pub(crate) fn destroy(mut self, proof: &Destroyed) -> Option<Unexposed> {
        let mut all = true;
        while let Some(inner) = self.inners.pop() {
            if proof.is_of(inner.qp) {
                drop(inner);
            } else {
                all = false;
                leak("a memory registration", inner);
            }
        }
        all.then(Unexposed::by_end_of_list)
    }
}

impl<S: sealed::MrState> Drop for MrList<S> {
    fn drop(&mut self) {
        if S::EXPOSED {
            while let Some(inner) = self.inners.pop() {
                leak("a memory registration", inner);
            }
        }
    }
}
