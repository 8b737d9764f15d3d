// SPDX-License-Identifier: GPL-2.0

//! Settings that userspace reads and writes below `/proc/sys` (`struct ctl_table`).
//!
//! A setting is a static atomic. The kernel checks the range and writes the value; its users load it
//! when they need it, and get the newest value.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The least and the greatest value of a setting.
pub(crate) struct Range {
    /// The least.
    pub(crate) min: i32,
    /// The greatest.
    pub(crate) max: i32,
}

impl Range {
    /// Sets `setting` to `value`, the value of the module parameter `name`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the value is out of range; the kernel's log has a message.
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
/// All that the table points to lives as long as the module, and has the type that `proc_dointvec` and
/// `proc_dointvec_minmax` expect: integers of `maxlen` bytes.
#[repr(transparent)]
pub(crate) struct Entry(bindings::ctl_table);

// SAFETY: the kernel only reads a `ctl_table` (it takes it as const), and `data` points to an
// atomic, which `proc_int_conv` (kernel/sysctl.c) writes with WRITE_ONCE.
unsafe impl Sync for Entry {}

impl Entry {
    /// Makes the setting `name`. A value out of range is refused with `EINVAL`; without a range every
    /// `int` is accepted.
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

/// The longest text of a setting.
const LONGEST: usize = 4096;

/// A setting that is a line of text.
pub(crate) trait Text: Sync + 'static {
    /// Returns the text. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    fn get(&self) -> Result<KVec<u8>>;

    /// Parses and sets another text. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it cannot be parsed, and nothing has changed.
    fn set(&self, text: &str) -> Result;
}

impl Entry {
    /// Makes the setting `name`, a line of text.
    pub(crate) const fn text<T: Text>(name: &'static CStr, value: &'static T) -> Self {
        Self::with_handler(name, value, LONGEST, Some(text_callback::<T>))
    }

    /// Makes a file of `value`, which `handler` reads and writes as `maxlen` bytes.
    const fn with_handler<T>(
        name: &'static CStr,
        value: &'static T,
        maxlen: usize,
        handler: bindings::proc_handler,
    ) -> Self {
        // INVARIANT: all of these are static; a handler of this file passes on a table of its own.
        Self(bindings::ctl_table {
            procname: name.to_bytes_with_nul().as_ptr().cast(),
            data: (&raw const *value).cast_mut().cast(),
            maxlen: maxlen as i32,
            mode: 0o644,
            proc_handler: handler,
            poll: core::ptr::null_mut(),
            extra1: core::ptr::null_mut(),
            extra2: core::ptr::null_mut(),
        })
    }
}

/// Reads or writes a text. Called by proc_sys_call_handler().
///
/// # Safety
///
/// `table` must be the table of [`Entry::text`] for a `T`, and the other arguments the arguments of a
/// `proc_handler`.
unsafe extern "C" fn text_callback<T: Text>(
    table: *const bindings::ctl_table,
    write: kernel::ffi::c_int,
    buffer: *mut kernel::ffi::c_void,
    len: *mut usize,
    position: *mut bindings::loff_t,
) -> kernel::ffi::c_int {
    // SAFETY: proc_sys_call_handler() keeps the `ctl_table` registered during the call and does not write it. A
    // copy owns nothing.
    let mut table = unsafe { core::ptr::read(table) };
    // SAFETY: the data is a `T`, which is static.
    let setting = unsafe { &*table.data.cast::<T>() };
    // SAFETY: both are the caller's, on its stack.
    let (len, position) = unsafe { (&mut *len, &mut *position) };
    if write != 0 {
        if *position != 0 || *len > LONGEST {
            return EINVAL.to_errno();
        }
        // SAFETY: the kernel's copy of the bytes that userspace writes (proc_sys_call_handler()).
        let text = unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), *len) };
        let set = core::str::from_utf8(text)
            .map_err(|_| EINVAL)
            .and_then(|text| setting.set(text.trim()));
        return match set {
            Ok(()) => {
                *position = *len as bindings::loff_t;
                0
            }
            Err(error) => error.to_errno(),
        };
    }
    let mut text = match setting.get() {
        Ok(text) => text,
        Err(error) => return error.to_errno(),
    };
    if let Err(error) = text.push(0, GFP_KERNEL) {
        return Error::from(error).to_errno();
    }
    table.data = text.as_mut_ptr().cast();
    table.maxlen = text.len() as i32;
    // SAFETY: the arguments of a `proc_handler` are passed on; the data is a C string, of this function.
    unsafe { bindings::proc_dostring(&table, write, buffer, len, position) }
}

/// A number that is computed for each read, and that userspace can only set to zero.
pub(crate) trait Count: Sync + 'static {
    /// Returns the number. Context: process, does not sleep.
    fn sum(&self) -> usize;

    /// Sets the number to zero. Context: process, does not sleep.
    fn reset(&self);
}

impl Entry {
    /// Makes the number `name`, which any write sets to zero.
    pub(crate) const fn counter<C: Count>(name: &'static CStr, value: &'static C) -> Self {
        let maxlen = core::mem::size_of::<usize>();
        Self::with_handler(name, value, maxlen, Some(counter_callback::<C>))
    }
}

/// Reads or writes a number. Called by proc_sys_call_handler().
///
/// # Safety
///
/// `table` must be the table of [`Entry::counter`] for a `C`, and the other arguments the arguments of a
/// `proc_handler`.
unsafe extern "C" fn counter_callback<C: Count>(
    table: *const bindings::ctl_table,
    write: kernel::ffi::c_int,
    buffer: *mut kernel::ffi::c_void,
    len: *mut usize,
    position: *mut bindings::loff_t,
) -> kernel::ffi::c_int {
    // SAFETY: proc_sys_call_handler() keeps the `ctl_table` registered during the call and does not write it. A
    // copy owns nothing.
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

/// Registered settings. Dropping the table removes their files.
///
/// # Invariants
///
/// `header` is the return value of `register_sysctl_sz`.
pub(crate) struct Table {
    header: NonNull<bindings::ctl_table_header>,
}

// SAFETY: a registered `ctl_table_header` belongs to no task; `sysctl_lock` protects it.
unsafe impl Send for Table {}
// SAFETY: a shared `Table` gives access to nothing.
unsafe impl Sync for Table {}

impl Table {
    /// Registers `entries` in `/proc/sys/DIRECTORY`. Context: process, may sleep.
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
