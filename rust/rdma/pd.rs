// SPDX-License-Identifier: GPL-2.0

//! Protection domains, `struct ib_pd`.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::cm::CmId;
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    alloc::NumaNode,
    error::from_err_ptr,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// A protection domain on the device of a connection.
///
/// # Invariants
///
/// `raw` is a valid protection domain of the device of `id`, which stays while `id` does.
pub(crate) struct Pd {
    raw: NonNull<bindings::ib_pd>,
    id: Arc<CmId>,
    /// The bytes of Send and Receive buffers that are mapped for its device.
    buffer_bytes: Atomic<usize>,
}

// SAFETY: a `struct ib_pd` does not belong to a task.
unsafe impl Send for Pd {}
// SAFETY: ib_alloc_mr() and ib_create_qp() count their uses of it atomically (`ib_pd.usecnt`),
// and nothing else here changes it.
unsafe impl Sync for Pd {}

impl Pd {
    /// Makes a protection domain on the device that `id` was resolved to. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV`: no device yet. `ENOMEM`, or the error of the driver.
    pub(crate) fn new(id: Arc<CmId>) -> Result<Self> {
        if id.device().is_null() {
            return Err(ENODEV);
        }
        // SAFETY: the device is valid while the id is (`rdma_cm_id.device`).
        let raw = unsafe { bindings::ib_alloc_pd(id.device(), 0) };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: just allocated on the device of `id`.
        Ok(Self {
            raw,
            id,
            buffer_bytes: Atomic::new(0),
        })
    }

    /// Returns the bytes of the Send and Receive buffers of the connection.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes.load(Relaxed)
    }

    /// Counts a buffer of `len` bytes.
    pub(super) fn add_buffer(&self, len: usize) {
        self.buffer_bytes.fetch_add(len, Relaxed);
    }

    /// Counts the end of a buffer of `len` bytes.
    pub(super) fn remove_buffer(&self, len: usize) {
        self.buffer_bytes.fetch_sub(len, Relaxed);
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_ptr()
    }

    pub(super) fn device(&self) -> *mut bindings::ib_device {
        // SAFETY: `ib_pd.device` is set by ib_alloc_pd() and constant.
        unsafe { (*self.as_raw()).device }
    }

    /// Returns the connection id of the device.
    pub(crate) fn id(&self) -> &Arc<CmId> {
        &self.id
    }

    /// Returns the NUMA node nearest to the device.
    pub(super) fn node(&self) -> NumaNode {
        // SAFETY: the device is valid while `id` is; its parent does not change.
        let node = unsafe { bindings::ibdev_to_node(self.device()) };
        NumaNode::new(node).unwrap_or(NumaNode::NO_NODE)
    }

    /// Returns the device that DMA is mapped for, or null for a software provider that needs no mapping.
    pub(super) fn dma_device(&self) -> *mut bindings::device {
        // SAFETY: the device is valid while `id` is; `ib_device.dma_device` is constant.
        unsafe { (*self.device()).dma_device }
    }

    /// Returns the maximum length of memory that can be mapped for DMA in one piece, in bytes.
    pub(super) fn max_segment(&self) -> u32 {
        // SAFETY: the device is valid while `id` is.
        let segment = unsafe { bindings::ib_dma_max_seg_size(self.device()) };
        if self.dma_device().is_null() {
            return segment;
        }
        // A mapping through swiotlb must fit into a slot of swiotlb.
        // SAFETY: the device of a valid `ib_device`.
        let mapping = unsafe { bindings::dma_max_mapping_size(self.dma_device()) };
        segment.min(mapping.min(u32::MAX as usize) as u32)
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: `ib_pd.local_dma_lkey` is set by ib_alloc_pd() and constant.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: each object made in the domain keeps a reference to it, so `usecnt` is zero, as
        // ib_dealloc_pd_user() demands.
        unsafe { bindings::ib_dealloc_pd(self.as_raw()) };
    }
}
