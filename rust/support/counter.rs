// SPDX-License-Identifier: GPL-2.0

//! A counter that all processors increment.

use super::sysctl::Count;
use kernel::{
    cpu::CpuId,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The number of parts. With more processors than parts, processors share parts.
const PARTS: usize = 64;

/// The count of one processor, in a cache line of its own.
#[repr(align(64))]
struct CpuCount(Atomic<usize>);

/// A counter that starts at zero when the module is loaded. An administrator can reset it.
pub(crate) struct Counter([CpuCount; PARTS]);

impl Counter {
    /// Makes a counter at zero.
    pub(crate) const fn new() -> Self {
        Self([const { CpuCount(Atomic::new(0)) }; PARTS])
    }

    /// Adds one. Context: any.
    #[inline]
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// Adds `number`. Context: any.
    #[inline]
    pub(crate) fn add(&self, number: usize) {
        // The task may migrate here: then one processor counts in the part of another.
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
