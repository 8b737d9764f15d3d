// SPDX-License-Identifier: GPL-2.0

//! Buffers for Sends and Receives, mapped for the device for as long as they live.
//!
//! RDMA providers may be software that maps nothing, so only the `ib_dma_*` functions are right
//! here. C header: `include/rdma/ib_verbs.h`.

use super::{
    pd::Pd,
    qp::QpRef,
    Handler, //
};
use crate::{
    bindings,
    support::memalloc::GFP_NORETRY, //
};
use core::{
    alloc::Layout,
    cell::UnsafeCell,
    mem::{
        offset_of,
        MaybeUninit, //
    },
    ops::Range, //
};
use kernel::{
    alloc::{
        allocator::Kmalloc,
        Allocator,
        NumaNode, //
    },
    dma::DataDirection,
    prelude::*,
    sync::Arc, //
};

/// The direction of a buffer's data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The device reads it: Sends, and memory that the peer reads.
    ToDevice,
    /// The device writes it: Receives, and memory that the peer writes.
    FromDevice,
}

impl Direction {
    /// Returns the value of `enum dma_data_direction`, for traces.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::ToDevice => DataDirection::ToDevice as u32,
            Self::FromDevice => DataDirection::FromDevice as u32,
        }
    }

    pub(super) fn as_raw(self) -> bindings::dma_data_direction {
        match self {
            Self::ToDevice => DataDirection::ToDevice.into(),
            Self::FromDevice => DataDirection::FromDevice.into(),
        }
    }
}

/// The mapping of a buffer for the device. Dropping it unmaps the buffer.
///
/// # Invariants
///
/// `addr` maps `len` bytes for the device of `pd`, in direction `direction`.
pub(super) struct Mapping {
    addr: u64,
    len: usize,
    direction: Direction,
    pd: Arc<Pd>,
    /// The buffer is in use, so that unmapping must not copy from a bounce buffer.
    in_use: bool,
}

impl Mapping {
    /// Unmaps a buffer that is in use.
    pub(super) fn release(mut self) {
        self.in_use = true;
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.pd.remove_buffer(self.len);
        let (device, direction) = (self.pd.device(), self.direction.as_raw());
        if self.in_use {
            // SAFETY: mapped with these arguments (type invariant); the queue pair is destroyed, so no
            // work request names the buffer.
            unsafe {
                bindings::rpcrdma_dma_unmap_single_as_is(device, self.addr, self.len, direction)
            };
            return;
        }
        // SAFETY: mapped with these arguments (type invariant). No work request names a buffer that is in
        // use elsewhere, or whose queue pair is destroyed.
        unsafe { bindings::ib_dma_unmap_single(device, self.addr, self.len, direction) };
    }
}

/// A buffer, mapped for the device.
///
/// # Invariants
///
/// `sge.addr` is the address of `mapping`, which maps all of `data`, in direction `direction`. `mapping` is
/// used by the owner of the buffer, except that the ledger of a queue pair takes it once the queue pair is
/// destroyed.
pub(super) struct DmaBuf {
    // Unmapped before the memory is freed.
    mapping: UnsafeCell<Option<Mapping>>,
    data: KBox<[u8]>,
    /// The element that a work request names; its length is the part that is in use.
    sge: bindings::ib_sge,
    direction: Direction,
    /// True if the mapping needs dma_sync_*() calls when the owner of the memory changes.
    need_sync: bool,
}

// SAFETY: `mapping`, the only field that could be changed through a shared buffer, is changed by the ledger
// only, when nothing else uses it.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// The offset of the mapping in the buffer object, in bytes.
    pub(super) const MAPPING: usize = offset_of!(Self, mapping);

    /// Creates a zeroed buffer in memory near the device. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory, or no room to map it for the device (an IOMMU, swiotlb).
    pub(super) fn new(pd: Arc<Pd>, len: u32, direction: Direction) -> Result<Self> {
        let mut data = zeroed(len as usize, pd.node())?;
        let device = pd.device();
        // SAFETY: the device is valid while `pd` is; the buffer is kmalloc memory, and stays where
        // it is until it is unmapped.
        let addr = unsafe {
            bindings::ib_dma_map_single(
                device,
                data.as_mut_ptr().cast(),
                data.len(),
                direction.as_raw(),
            )
        };
        // SAFETY: `addr` is the return value of ib_dma_map_single() for the valid device.
        if unsafe { bindings::ib_dma_mapping_error(device, addr) } != 0 {
            return Err(ENOMEM);
        }
        // SAFETY: the device is valid, and `addr` a mapping of its.
        let need_sync = unsafe { bindings::rpcrdma_dma_need_sync(device, addr) };
        let lkey = pd.local_key();
        pd.add_buffer(data.len());
        // INVARIANT: mapped just now.
        let mapping = Mapping {
            addr,
            len: data.len(),
            direction,
            pd,
            in_use: false,
        };
        // INVARIANT: the mapping is the mapping of the data.
        Ok(Self {
            data,
            sge: bindings::ib_sge {
                addr,
                length: len,
                lkey,
            },
            direction,
            need_sync,
            mapping: UnsafeCell::new(Some(mapping)),
        })
    }

    pub(super) fn len(&self) -> u32 {
        self.data.len() as u32
    }

    /// Returns the scatter/gather element of the part that was made ready last. At first, that is the whole
    /// buffer.
    pub(super) fn sge(&mut self) -> *mut bindings::ib_sge {
        &raw mut self.sge
    }

    /// Makes the first `len` bytes the part in use: the device gets them as they are now. `qp` is the queue
    /// pair that the buffer is posted to.
    #[inline(always)]
    pub(super) fn give<H: Handler>(&mut self, len: u32, _qp: &QpRef<H>) {
        self.sge.length = len.min(self.len());
        if self.need_sync {
            self.sync_for_device();
        }
    }

    /// Makes the first `len` bytes the part in use, and the bytes `data` behind it the part that the returned
    /// element names: the device gets both as they are now. `qp` is as for [`Self::give`].
    pub(super) fn give_both<H: Handler>(
        &mut self,
        len: u32,
        data: Range<u32>,
        qp: &QpRef<H>,
    ) -> bindings::ib_sge {
        let end = data.end.min(self.len());
        let start = data.start.min(end);
        self.give(end, qp);
        self.sge.length = len.min(start);
        bindings::ib_sge {
            addr: self.sge.addr + u64::from(start),
            length: end - start,
            lkey: self.sge.lkey,
        }
    }

    /// Gives the processor the first `len` bytes as the device wrote them. `qp` is the queue pair that the
    /// buffer was posted to.
    #[inline(always)]
    pub(super) fn take<H: Handler>(&self, len: u32, _qp: &QpRef<H>) {
        if self.need_sync {
            self.sync_for_cpu(len.min(self.len()));
        }
    }

    /// Returns the device, as long as the buffer is mapped.
    fn device(&self) -> Option<*mut bindings::ib_device> {
        // SAFETY: `give` and `take` alone lead here, while the queue pair exists; so the ledger does not use
        // the mapping (type invariant).
        let mapping = unsafe { &*self.mapping.get() };
        mapping.as_ref().map(|mapping| mapping.pd.device())
    }

    #[cold]
    fn sync_for_device(&self) {
        let Some(device) = self.device() else { return };
        // SAFETY: mapped with this direction (type invariant), `sge.length` is within it.
        unsafe {
            bindings::ib_dma_sync_single_for_device(
                device,
                self.sge.addr,
                self.sge.length as usize,
                self.direction.as_raw(),
            )
        };
    }

    #[cold]
    fn sync_for_cpu(&self, len: u32) {
        let Some(device) = self.device() else { return };
        // SAFETY: mapped with this direction (type invariant), the caller has bounded `len`.
        unsafe {
            bindings::ib_dma_sync_single_for_cpu(
                device,
                self.sge.addr,
                len as usize,
                self.direction.as_raw(),
            )
        };
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

/// Allocates zeroed memory on `node`. `KVec` has no parameter for a node.
///
/// # Errors
///
/// `ENOMEM`: there is no memory. `EINVAL`: `len` is too large.
fn zeroed(len: usize, node: NumaNode) -> Result<KBox<[u8]>> {
    let layout = Layout::array::<u8>(len).map_err(|_| EINVAL)?;
    let flags = GFP_NORETRY | __GFP_ZERO;
    let data = Kmalloc::alloc(layout, flags, node)?;
    // SAFETY: `Kmalloc` has allocated it with the layout of these `len` bytes, which are zeroed.
    Ok(unsafe { KBox::from_raw(data.as_ptr()) })
}

/// Puts `value` into a box on `node`. Context: process, may sleep.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn boxed_on<T>(node: NumaNode, value: T) -> Result<KBox<T>> {
    let memory = Kmalloc::alloc(Layout::new::<T>(), GFP_NORETRY, node)?.cast::<MaybeUninit<T>>();
    // SAFETY: `Kmalloc` has just allocated it with the layout of a `T`; no other pointer to it exists.
    let uninit = unsafe { KBox::from_raw(memory.as_ptr()) };
    Ok(KBox::write(uninit, value))
}
