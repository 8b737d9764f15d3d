// SPDX-License-Identifier: GPL-2.0

//! Buffers for Sends and Receives, mapped for the device for as long as they live.

use super::pd::Pd;
use crate::bindings;
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
/// `addr` maps all of `data` for the device of `pd`, in direction `direction`.
pub(super) struct DmaBuf {
    data: KVec<u8>,
    addr: u64,
    direction: Direction,
    pd: Arc<Pd>,
}

impl DmaBuf {
    /// A zeroed buffer. Context: may sleep.
    pub(super) fn new(pd: Arc<Pd>, len: usize, direction: Direction) -> Result<Self> {
        let mut data = KVec::from_elem(0u8, len, GFP_KERNEL | kernel::alloc::flags::__GFP_NOWARN)?;
        // SAFETY: the buffer is kmalloc memory and stays where it is until it is unmapped. RDMA
        // providers may map by software, so the ib_dma functions must be used.
        let addr = unsafe {
            bindings::ib_dma_map_single(
                pd.device(),
                data.as_mut_ptr().cast(),
                len,
                direction.as_raw(),
            )
        };
        // SAFETY: the device is valid.
        if unsafe { bindings::ib_dma_mapping_error(pd.device(), addr) } != 0 {
            return Err(EIO);
        }
        // INVARIANT: mapped just now.
        Ok(Self {
            data,
            addr,
            direction,
            pd,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    /// The scatter/gather element of the first `len` octets.
    pub(super) fn sge(&self, len: usize) -> bindings::ib_sge {
        bindings::ib_sge {
            addr: self.addr,
            length: len.min(self.data.len()) as u32,
            lkey: self.pd.local_key(),
        }
    }

    /// The device gets the first `len` octets as the processor wrote them.
    pub(super) fn sync_for_device(&self, len: usize) {
        // SAFETY: by the type invariant; `len` is bounded.
        unsafe {
            bindings::ib_dma_sync_single_for_device(
                self.pd.device(),
                self.addr,
                len.min(self.data.len()),
                self.direction.as_raw(),
            )
        };
    }

    /// The processor gets the first `len` octets as the device wrote them.
    pub(super) fn sync_for_cpu(&self, len: usize) {
        // SAFETY: by the type invariant; `len` is bounded.
        unsafe {
            bindings::ib_dma_sync_single_for_cpu(
                self.pd.device(),
                self.addr,
                len.min(self.data.len()),
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
        // SAFETY: by the type invariant. Whoever drops the buffer owns it, so no work request
        // refers to it.
        unsafe {
            bindings::ib_dma_unmap_single(
                self.pd.device(),
                self.addr,
                self.data.len(),
                self.direction.as_raw(),
            )
        };
    }
}
