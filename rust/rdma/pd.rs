// SPDX-License-Identifier: GPL-2.0

//! Protection domains, `struct ib_pd`.

use super::cm::CmId;
use crate::bindings;
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A protection domain on the device of a connection.
///
/// # Invariants
///
/// `raw` is a valid protection domain of the device of `id`, which stays while `id` does.
pub(crate) struct Pd {
    raw: NonNull<bindings::ib_pd>,
    id: Arc<CmId>,
}

// SAFETY: a protection domain does not belong to a task.
unsafe impl Send for Pd {}
// SAFETY: it is only named to other verbs, which take the provider's locks.
unsafe impl Sync for Pd {}

impl Pd {
    /// A protection domain on the device that `id` was resolved to. Context: may sleep.
    pub(crate) fn new(id: Arc<CmId>) -> Result<Self> {
        if id.device().is_null() {
            return Err(ENODEV);
        }
        // SAFETY: the device is valid while the id is.
        let raw = unsafe { bindings::ib_alloc_pd(id.device(), 0) };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: just allocated on the device of `id`.
        Ok(Self { raw, id })
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_ptr()
    }

    pub(super) fn device(&self) -> *mut bindings::ib_device {
        self.id.device()
    }

    /// The connection id whose device this is on.
    pub(crate) fn id(&self) -> &Arc<CmId> {
        &self.id
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: constant in a valid protection domain.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: everything in the domain held a reference to it, so nothing is left.
        unsafe { bindings::ib_dealloc_pd(self.as_raw()) };
    }
}
