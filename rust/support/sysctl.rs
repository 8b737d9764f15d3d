// SPDX-License-Identifier: GPL-2.0

//! Settings that userspace reads and writes below `/proc/sys` (`struct ctl_table`).
//!
//! A setting is a static atomic. The kernel writes it by itself, after it has checked the range;
//! whoever uses it loads it at the moment when it counts, and gets the newest value.

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The least and the greatest value of a setting.
pub(crate) struct Range {
    /// The least.
    pub(crate) min: i32,
    /// The greatest.
    pub(crate) max: i32,
}

impl Range {
    /// Gives `setting` a `value` to begin with, that of the module parameter `name`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is out of range, which the kernel's log says.
    pub(crate) fn begin(&self, setting: &Atomic<i32>, value: i32, name: &str) -> Result {
        if value < self.min || value > self.max {
            pr_err!("{name}={value}: has to be {} to {}\n", self.min, self.max);
            return Err(EINVAL);
        }
        setting.store(value, Relaxed);
        Ok(())
    }
}

/// One file: an integer that everybody may read and root may write.
///
/// # Invariants
///
/// All that the table points to lives as long as the module and is what `proc_dointvec` and
/// `proc_dointvec_minmax` expect: integers of `maxlen` bytes.
#[repr(transparent)]
pub(crate) struct Entry(bindings::ctl_table);

// SAFETY: the kernel only reads a `ctl_table` (it takes it as const), and what `data` points to is
// an atomic, which `proc_int_conv` (kernel/sysctl.c) writes with WRITE_ONCE.
unsafe impl Sync for Entry {}

impl Entry {
    /// The setting `name`, refused with `EINVAL` beyond its range. Without a range every `int`
    /// is taken.
    pub(crate) const fn new(
        name: &'static CStr,
        value: &'static Atomic<i32>,
        range: Option<&'static Range>,
    ) -> Self {
        // INVARIANT: all of these are static.
        Self(bindings::ctl_table {
            procname: name.to_bytes_with_nul().as_ptr().cast(),
            data: value.as_ptr().cast(),
            maxlen: core::mem::size_of::<i32>() as i32,
            mode: 0o644,
            proc_handler: match range {
                Some(_) => Some(bindings::proc_dointvec_minmax),
                None => Some(bindings::proc_dointvec),
            },
            poll: core::ptr::null_mut(),
            extra1: match range {
                Some(range) => (&raw const range.min).cast_mut().cast(),
                None => core::ptr::null_mut(),
            },
            extra2: match range {
                Some(range) => (&raw const range.max).cast_mut().cast(),
                None => core::ptr::null_mut(),
            },
        })
    }
}

/// A number that is found when it is asked for, and that userspace can only set to zero.
pub(crate) trait Count: Sync + 'static {
    /// The number. Context: process.
    fn sum(&self) -> usize;

    /// Begins at zero again. Context: process.
    fn reset(&self);
}

impl Entry {
    /// The number `name`, which any write sets to zero.
    pub(crate) const fn counter<C: Count>(name: &'static CStr, value: &'static C) -> Self {
        // INVARIANT: all of these are static; `counter_callback` hands on a table of another kind.
        Self(bindings::ctl_table {
            procname: name.to_bytes_with_nul().as_ptr().cast(),
            data: (&raw const *value).cast_mut().cast(),
            maxlen: core::mem::size_of::<usize>() as i32,
            mode: 0o644,
            proc_handler: Some(counter_callback::<C>),
            poll: core::ptr::null_mut(),
            extra1: core::ptr::null_mut(),
            extra2: core::ptr::null_mut(),
        })
    }
}

/// Called by proc_sys_call_handler() to read or write a number.
///
/// # Safety
///
/// `table` must be that of [`Entry::counter`] for a `C`, and the other arguments what a `proc_handler`
/// gets.
unsafe extern "C" fn counter_callback<C: Count>(
    table: *const bindings::ctl_table,
    write: kernel::ffi::c_int,
    buffer: *mut kernel::ffi::c_void,
    len: *mut usize,
    position: *mut bindings::loff_t,
) -> kernel::ffi::c_int {
    // SAFETY: sysctl keeps the table registered during the call, nobody writes it, and a copy owns nothing.
    let mut table = unsafe { core::ptr::read(table) };
    // SAFETY: the data is a `C`, which is static.
    let counter = unsafe { &*table.data.cast::<C>() };
    if write != 0 {
        counter.reset();
        return 0;
    }
    let mut sum = counter.sum();
    table.data = (&raw mut sum).cast();
    // SAFETY: the arguments of a `proc_handler` are passed on; the data is a `long`, of this function.
    unsafe { bindings::proc_doulongvec_minmax(&table, write, buffer, len, position) }
}

/// Registered settings; dropping it takes the files away.
///
/// # Invariants
///
/// `header` is what `register_sysctl_sz` returned.
pub(crate) struct Table {
    header: NonNull<bindings::ctl_table_header>,
}

// SAFETY: a registered table belongs to no task; sysctl protects it by a lock of its own.
unsafe impl Send for Table {}
// SAFETY: a shared `Table` gives access to nothing.
unsafe impl Sync for Table {}

impl Table {
    /// Makes `entries` appear in `/proc/sys/DIRECTORY`. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: also when the directory has a file of such a name already.
    pub(crate) fn new(directory: &'static CStr, entries: &'static [Entry]) -> Result<Self> {
        // SAFETY: `Entry` is a transparent `ctl_table`; path and table are static, as
        // `__register_sysctl_table` (fs/proc/proc_sysctl.c) wants them, and complete.
        let header = unsafe {
            bindings::register_sysctl_sz(
                directory.as_char_ptr(),
                entries.as_ptr().cast(),
                entries.len(),
            )
        };
        // INVARIANT: not null, and just returned.
        Ok(Self {
            header: NonNull::new(header).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: by the type invariant the header is registered, and a drop happens once. The
        // call waits for readers and writers (`start_unregistering`), so none is left afterwards.
        unsafe { bindings::unregister_sysctl_table(self.header.as_ptr()) };
    }
}
