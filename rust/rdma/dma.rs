// SPDX-License-Identifier: GPL-2.0

//! Buffers for Sends and Receives, mapped for the device for as long as they live.
//!
//! RDMA providers may be software that maps nothing, so only the `ib_dma_*` functions are right
//! here. C header: `include/rdma/ib_verbs.h`.

use super::pd::Pd;
use crate::bindings;
use core::alloc::Layout;
use core::mem::MaybeUninit;
use kernel::alloc::allocator::Kmalloc;
use kernel::alloc::{
    Allocator,
    NumaNode, //
};
use kernel::dma::DataDirection;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Which way a buffer's data goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The device reads it: Sends, and memory that the peer reads.
    ToDevice,
    /// The device writes it: Receives, and memory that the peer writes.
    FromDevice,
}

impl Direction {
    pub(super) fn as_raw(self) -> bindings::dma_data_direction {
        match self {
            Self::ToDevice => DataDirection::ToDevice.into(),
            Self::FromDevice => DataDirection::FromDevice.into(),
        }
    }
}

/// A buffer, mapped for the device.
///
/// # Invariants
///
/// `sge.addr` maps all of `data` for the device of `pd`, in direction `direction`.
pub(super) struct DmaBuf {
    data: KBox<[u8]>,
    /// The element that a work request names; its length is the part that is in use.
    sge: bindings::ib_sge,
    direction: Direction,
    /// Whether the processor and the device have to be told whose turn it is.
    need_sync: bool,
    pd: Arc<Pd>,
}

impl DmaBuf {
    /// A zeroed buffer, near the device. Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EIO`: the device cannot reach it.
    pub(super) fn new(pd: Arc<Pd>, len: u32, direction: Direction) -> Result<Self> {
        let mut data = zeroed(len as usize, pd.node())?;
        let device = pd.device();
        // SAFETY: the device is valid while `pd` is; the buffer is kmalloc memory, and stays where
        // it is until drop has unmapped it.
        let addr = unsafe {
            bindings::ib_dma_map_single(
                device,
                data.as_mut_ptr().cast(),
                data.len(),
                direction.as_raw(),
            )
        };
        // SAFETY: `addr` is what ib_dma_map_single() returned for the valid device.
        if unsafe { bindings::ib_dma_mapping_error(device, addr) } != 0 {
            return Err(EIO);
        }
        // SAFETY: the device is valid, and `addr` a mapping of its.
        let need_sync = unsafe { bindings::ib_dma_need_sync(device, addr) };
        // INVARIANT: mapped just now.
        Ok(Self {
            data,
            sge: bindings::ib_sge {
                addr,
                length: len,
                lkey: pd.local_key(),
            },
            direction,
            need_sync,
            pd,
        })
    }

    /// Another one for the same device, of `len` bytes. Errors and context: as [`Self::new`].
    pub(super) fn another(&self, len: u32) -> Result<Self> {
        Self::new(self.pd.clone(), len, self.direction)
    }

    pub(super) fn len(&self) -> u32 {
        self.data.len() as u32
    }

    /// The element of the part that was made ready last, at first of everything.
    pub(super) fn sge(&mut self) -> *mut bindings::ib_sge {
        &raw mut self.sge
    }

    /// Makes the first `len` bytes the part in use: the device gets them as they are now.
    pub(super) fn give(&mut self, len: u32) {
        self.sge.length = len.min(self.len());
        if self.need_sync {
            self.sync_for_device();
        }
    }

    /// The processor gets the first `len` bytes as the device wrote them.
    pub(super) fn take(&self, len: u32) {
        if self.need_sync {
            self.sync_for_cpu(len.min(self.len()));
        }
    }

    #[cold]
    fn sync_for_device(&self) {
        // SAFETY: mapped with this direction (type invariant), `sge.length` is within it.
        unsafe {
            bindings::ib_dma_sync_single_for_device(
                self.pd.device(),
                self.sge.addr,
                self.sge.length as usize,
                self.direction.as_raw(),
            )
        };
    }

    #[cold]
    fn sync_for_cpu(&self, len: u32) {
        // SAFETY: mapped with this direction (type invariant), the caller has bounded `len`.
        unsafe {
            bindings::ib_dma_sync_single_for_cpu(
                self.pd.device(),
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

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: mapped with these arguments (type invariant). Whoever drops the buffer owns it,
        // so no work request names it.
        unsafe {
            bindings::ib_dma_unmap_single(
                self.pd.device(),
                self.sge.addr,
                self.data.len(),
                self.direction.as_raw(),
            )
        };
    }
}

/// Zeroed memory on `node`. `KVec` cannot be told of a node.
fn zeroed(len: usize, node: NumaNode) -> Result<KBox<[u8]>> {
    let layout = Layout::array::<u8>(len).map_err(|_| EINVAL)?;
    let flags = GFP_KERNEL | __GFP_ZERO | kernel::alloc::flags::__GFP_NOWARN;
    let data = Kmalloc::alloc(layout, flags, node)?;
    // SAFETY: `Kmalloc` has allocated it with the layout of these `len` bytes, which are zeroed.
    Ok(unsafe { KBox::from_raw(data.as_ptr()) })
}

/// Puts `value` into a box on `node`. Context: may sleep. Errors: `ENOMEM`.
pub(super) fn boxed_on<T>(node: NumaNode, value: T) -> Result<KBox<T>> {
    let flags = GFP_KERNEL | kernel::alloc::flags::__GFP_NOWARN;
    let memory = Kmalloc::alloc(Layout::new::<T>(), flags, node)?.cast::<MaybeUninit<T>>();
    // SAFETY: `Kmalloc` has just allocated it with the layout of a `T`, and nobody else has it.
    let uninit = unsafe { KBox::from_raw(memory.as_ptr()) };
    Ok(KBox::write(uninit, value))
}
