// SPDX-License-Identifier: GPL-2.0

//! Scopes that restrict what memory reclaim may do.

use crate::bindings;
use kernel::ffi::c_uint;
use kernel::types::NotThreadSafe;

/// While this lives, no allocation of the current task enters a file system.
///
/// The transport works for NFS writeback: reclaim that waits for NFS inside it would wait for
/// itself.
pub(crate) struct NofsScope {
    flags: c_uint,
    _task: NotThreadSafe,
}

impl NofsScope {
    /// Enters the scope. Context: process.
    pub(crate) fn enter() -> Self {
        Self {
            // SAFETY: changes a flag of the current task only.
            flags: unsafe { bindings::memalloc_nofs_save() },
            _task: NotThreadSafe,
        }
    }
}

impl Drop for NofsScope {
    fn drop(&mut self) {
        // SAFETY: `flags` is what the matching `memalloc_nofs_save` of this task returned.
        unsafe { bindings::memalloc_nofs_restore(self.flags) };
    }
}
