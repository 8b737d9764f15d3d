// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs that print the state of an object.
//!
//! The kernel crate's `debugfs` is not used because its files have no owner: a file that is open
//! while the module is unloaded would be closed through operations that are gone.
//!
//! A file or directory that cannot be created is missing, without a message, as usual for debugfs.

use super::{
    foreign::Context,
    global::Global, //
};
use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    fmt,
    prelude::*,
    seq_file::SeqFile,
    str::CString,
    sync::Arc, //
};

/// The content of a file.
pub(crate) trait Show: Send + Sync + 'static {
    /// Prints it. Context: process, may sleep.
    fn show(&self, seq: &SeqFile);
}

/// A directory, removed when the module's [`Root`] and all of its files have gone.
///
/// # Invariants
///
/// `0` is the return value of `debugfs_create_dir`, which may be an error pointer.
struct Dir(*mut bindings::dentry);

// SAFETY: `struct dentry` belongs to no task; debugfs_remove() takes the locks of the file system.
unsafe impl Send for Dir {}
// SAFETY: a shared `Dir` is only named as the parent of files (`debugfs_create_file_full`, which
// takes the directory's inode lock).
unsafe impl Sync for Dir {}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: by the type invariant; `debugfs_remove` takes error pointers as well.
        unsafe { bindings::debugfs_remove(self.0) };
    }
}

static ROOT: Global<Arc<Dir>> = Global::new();

/// The module's directory; dropping it takes it away.
pub(crate) struct Root(());

impl Root {
    /// Makes the directory. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST`: there was one already. `ENOMEM`.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        // SAFETY: the name is a C string. debugfs_create_dir() takes a null parent as the root.
        let dentry =
            unsafe { bindings::debugfs_create_dir(name.as_char_ptr(), core::ptr::null_mut()) };
        // INVARIANT: just returned.
        ROOT.set(Arc::new(Dir(dentry), GFP_KERNEL)?)?;
        Ok(Self(()))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        drop(ROOT.take());
    }
}

/// A file of the module's directory; dropping it takes it away and waits for its readers.
///
/// # Invariants
///
/// `dentry` is the return value of `debugfs_create_file_full`, maybe an error pointer; the data of its
/// inode is `_shown`.
pub(crate) struct File {
    dentry: *mut bindings::dentry,
    /// Dropped after the file is removed, since readers use it until then.
    _shown: Context,
    /// Dropped after the file, which is in it.
    _dir: Arc<Dir>,
}

// SAFETY: as for `Dir`; `Context` may be sent anyway.
unsafe impl Send for File {}
// SAFETY: a shared `File` gives access to nothing.
unsafe impl Sync for File {}

impl File {
    /// Creates a file that only root can read. Returns `None` if there is no directory or no memory.
    ///
    /// Context: process, may sleep.
    pub(crate) fn new<T: Show>(name: fmt::Arguments<'_>, shown: Arc<T>) -> Option<Self> {
        let dir = ROOT.with(|dir| dir.clone())?;
        let name = CString::try_from_fmt(name).ok()?;
        let shown = Context::new(shown);
        // SAFETY: the name is copied, the directory may be an error pointer, the operations are
        // static and take the data for a `T`, which lives until the file is removed.
        let dentry = unsafe {
            bindings::debugfs_create_file_full(
                name.as_char_ptr(),
                0o400,
                dir.0,
                shown.as_ptr(),
                core::ptr::null(),
                &Operations::<T>::TABLE,
            )
        };
        // INVARIANT: just returned, for `shown`.
        Some(Self {
            dentry,
            _shown: shown,
            _dir: dir,
        })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: by the type invariant, and a drop happens once. The call waits until no reader is
        // between debugfs_file_get and debugfs_file_put (fs/debugfs/file.c), where files are read.
        unsafe { bindings::debugfs_remove(self.dentry) };
    }
}

extern "C" {
    /// Our own `struct module` (`THIS_MODULE`), of which only the address is used.
    static __this_module: u8;
}

/// The operations of a file whose data is a `T`.
struct Operations<T>(PhantomData<T>);

impl<T: Show> Operations<T> {
    const TABLE: bindings::file_operations = bindings::file_operations {
        // The module stays while a file is open.
        owner: (&raw const __this_module).cast_mut().cast(),
        open: Some(Self::open_callback),
        read: Some(bindings::seq_read),
        llseek: Some(bindings::seq_lseek),
        release: Some(bindings::single_release),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by debugfs only, which passes the file's inode, whose data is a `T`.
    unsafe extern "C" fn open_callback(
        inode: *mut bindings::inode,
        file: *mut bindings::file,
    ) -> kernel::ffi::c_int {
        // SAFETY: full_proxy_open_regular() calls with a valid inode.
        let data = unsafe { (*inode).i_private };
        // SAFETY: the file is being opened; `show_callback` gets `data`.
        unsafe { bindings::single_open(file, Some(Self::show_callback), data) }
    }

    /// # Safety
    ///
    /// Called by seq_read only, within a read that debugfs protects from the file's removal.
    unsafe extern "C" fn show_callback(
        seq: *mut bindings::seq_file,
        _: *mut kernel::ffi::c_void,
    ) -> kernel::ffi::c_int {
        // SAFETY: `private` is the pointer that `open_callback` passed to single_open, to a `T` that
        // lives until the file is removed.
        let shown = unsafe { &*(*seq).private.cast::<T>() };
        // SAFETY: seq_read() calls with a valid `seq_file`.
        shown.show(unsafe { SeqFile::from_raw(seq) });
        0
    }
}
