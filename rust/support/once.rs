// SPDX-License-Identifier: GPL-2.0

//! What happens once while the module is loaded, such as the initialisation of a global lock.

use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    AtomicFlag,
    Full,
    Release, //
};

/// Whether it has happened.
pub(crate) struct Once {
    begun: AtomicFlag,
    done: AtomicFlag,
}

impl Once {
    pub(crate) const fn new() -> Self {
        Self {
            begun: AtomicFlag::new(false),
            done: AtomicFlag::new(false),
        }
    }

    /// Does it. Context: any.
    ///
    /// # Errors
    ///
    /// `EEXIST`: somebody has done it, or does.
    pub(crate) fn begin(&self, what: impl FnOnce()) -> Result {
        if self.begun.xchg(true, Full) {
            return Err(EEXIST);
        }
        what();
        self.done.store(true, Release);
        Ok(())
    }

    /// Whether it is done, and what it has written can be seen. Context: any.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Acquire)
    }
}
