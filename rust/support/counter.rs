// SPDX-License-Identifier: GPL-2.0

//! A number that all processors count up.

use super::sysctl::Count;
use kernel::{
    cpu::CpuId,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// How many processors have a part of their own. Others share one.
const PARTS: usize = 64;

/// What some processor has counted: a cache line of its own, which it need not take from another.
#[repr(align(64))]
struct Part(Atomic<usize>);

/// A counter of everything since the module was loaded, or since it was set to zero.
pub(crate) struct Counter([Part; PARTS]);

impl Counter {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self([const { Part(Atomic::new(0)) }; PARTS])
    }

    /// Counts one more. Context: any.
    #[inline]
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// Counts so many more. Context: any.
    #[inline]
    pub(crate) fn add(&self, number: usize) {
        // It may go on elsewhere in between: then one processor counts in the part of another.
        let part = CpuId::current().as_u32() as usize % PARTS;
        self.0[part].0.fetch_add(number, Relaxed);
    }
}

impl Count for Counter {
    fn sum(&self) -> usize {
        let parts = self.0.iter().map(|part| part.0.load(Relaxed));
        parts.fold(0, usize::wrapping_add)
    }

    fn reset(&self) {
        for part in &self.0 {
            part.0.store(0, Relaxed);
        }
    }
}
