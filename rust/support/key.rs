// SPDX-License-Identifier: GPL-2.0

//! Keys that an administrator has given to this module, in a keyring of its own.
//!
//! C headers: `include/linux/key.h`, `include/keys/user-type.h`, `include/crypto/sha2.h`.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    fmt,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Full,
            Release, //
        },
        global_lock,
        rcu, //
    }, //
};

/// A reference to a key; dropping it gives the reference back.
///
/// # Invariants
///
/// The object holds a reference to the key, which is a keyring or of the type `logon`.
pub(crate) struct Key(NonNull<bindings::key>);

// SAFETY: a key does not belong to a task (`struct key` has a lock of its own).
unsafe impl Send for Key {}
// SAFETY: a shared `Key` is only read under RCU, or searched, which takes its own lock.
unsafe impl Sync for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: by the type invariant. key_put() sleeps nowhere.
        unsafe { bindings::key_put(self.0.as_ptr()) };
    }
}

impl Key {
    /// The key of the type `logon` with this name in the keyring. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is none. `EKEYREVOKED`, `EKEYEXPIRED`: it must not be used any more.
    fn find(&self, name: &CStr) -> Result<Self> {
        let logon = &raw mut bindings::key_type_logon;
        // SAFETY: by the type invariant; the type is one of the kernel's own, which never goes; the
        // name is a C string.
        let found = unsafe { bindings::keyring_find(self.0.as_ptr(), logon, name.as_char_ptr()) };
        // INVARIANT: keyring_search() has taken a reference.
        NonNull::new(from_err_ptr(found)?).map(Self).ok_or(ENOENT)
    }

    /// The HMAC-SHA256 (RFC 2104) of `octets` with the key. None, if the key was taken away.
    /// Context: any but hard interrupts.
    pub(crate) fn hmac_sha256(&self, octets: &[u8]) -> Option<[u8; 32]> {
        let _reading = rcu::read_lock();
        // SAFETY: by the type invariant; what the key consists of is read under RCU, as
        // user_key_payload_rcu() wants it.
        let payload = unsafe { bindings::user_key_payload_rcu(self.0.as_ptr()) };
        // SAFETY: it is null, or stays as it is until `_reading` ends (user_update(), user_revoke()).
        let payload = unsafe { payload.as_ref() }?;
        let mut mac = [0; 32];
        // SAFETY: `datalen` octets follow in the payload (user_preparse()); `mac` has
        // SHA256_DIGEST_SIZE.
        unsafe {
            bindings::hmac_sha256_usingrawkey(
                payload.data.as_ptr().cast(),
                payload.datalen.into(),
                octets.as_ptr(),
                octets.len(),
                mac.as_mut_ptr(),
            );
        }
        Some(mac)
    }
}

global_lock! {
    // SAFETY: `Keyring::new` initialises it, and `READY` says to `Keyring::find` that it has.
    unsafe(uninit) static KEYRING: Mutex<Option<Key>> = None;
}

/// Set before [`KEYRING`] is initialised, which must happen once.
static BEGUN: AtomicFlag = AtomicFlag::new(false);
/// Set when [`KEYRING`] can be locked.
static READY: AtomicFlag = AtomicFlag::new(false);

/// The module's keyring; dropping it takes it away, with the keys in it that nobody else has.
pub(crate) struct Keyring(());

impl Keyring {
    /// Makes the keyring. Only root sees it, adds keys and takes them away. Context: process, may
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST`: there was one already. `ENOMEM`.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        if BEGUN.xchg(true, Full) {
            return Err(EEXIST);
        }
        // SAFETY: this is reached once, and nobody locks before `READY` is set.
        unsafe { KEYRING.init() };
        READY.store(true, Release);
        // SAFETY: the name is a C string.
        let keyring = from_err_ptr(unsafe { bindings::root_keyring(name.as_char_ptr()) })?;
        // INVARIANT: keyring_alloc() returns a reference.
        *KEYRING.lock() = NonNull::new(keyring).map(Key);
        Ok(Self(()))
    }

    /// The key with the name `name`, if there is one. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// It is there and cannot be used.
    pub(crate) fn find(name: fmt::Arguments<'_>) -> Result<Option<Key>> {
        if !READY.load(Acquire) {
            return Ok(None);
        }
        let name = CString::try_from_fmt(name)?;
        let keyring = KEYRING.lock();
        let Some(keyring) = &*keyring else {
            return Ok(None);
        };
        match keyring.find(&name) {
            Ok(key) => Ok(Some(key)),
            Err(error) if error == EAGAIN => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        KEYRING.lock().take();
    }
}

/// Octets that nobody can guess. Context: any.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    // SAFETY: the array has so many bytes.
    unsafe { bindings::get_random_bytes(octets.as_mut_ptr().cast(), N) };
    octets
}
