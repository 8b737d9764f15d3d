// SPDX-License-Identifier: GPL-2.0

//! Keys that an administrator has given to this module, in a keyring of its own.
//!
//! C headers: `include/linux/key.h`, `include/keys/user-type.h`, `include/crypto/sha2.h`.

use super::once::Once;
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    fmt,
    prelude::*,
    str::CString,
    sync::{
        global_lock,
        rcu, //
    }, //
};

/// A reference to a key; dropping it gives the reference back.
///
/// # Invariants
///
/// The object holds a reference to the key (`usage`).
struct Reference(NonNull<bindings::key>);

// SAFETY: `usage` is a refcount_t, and key_put() may be called by any task.
unsafe impl Send for Reference {}
// SAFETY: a shared reference gives access to what is read under RCU (`payload`) or searched, which
// keyring_search() does under RCU, too.
unsafe impl Sync for Reference {}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: by the type invariant. key_put() sleeps nowhere.
        unsafe { bindings::key_put(self.0.as_ptr()) };
    }
}

/// A keyring.
///
/// # Invariants
///
/// The key is one of the type `keyring`.
struct Ring(Reference);

impl Ring {
    /// The key of the type `logon` with this name. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is none. `EKEYREVOKED`, `EKEYEXPIRED`: it must not be used any more.
    fn find(&self, name: &CStr) -> Result<Key> {
        let Self(Reference(ring)) = self;
        let logon = &raw mut bindings::key_type_logon;
        // SAFETY: a keyring, by the type invariant; the type is one of the kernel's own, which never
        // goes; the name is a C string.
        let found = unsafe { bindings::keyring_find(ring.as_ptr(), logon, name.as_char_ptr()) };
        let found = NonNull::new(from_err_ptr(found)?).ok_or(ENOENT)?;
        // INVARIANT: keyring_search() finds keys of that type only, and has taken a reference.
        Ok(Key(Reference(found)))
    }
}

/// A key of an administrator.
///
/// # Invariants
///
/// The key is one of the type `logon`.
pub(crate) struct Key(Reference);

impl Key {
    /// The HMAC-SHA256 (RFC 2104) of `octets` with the key. None, if the key was taken away.
    /// Context: any but hard interrupts.
    pub(crate) fn hmac_sha256(&self, octets: &[u8]) -> Option<[u8; 32]> {
        let Self(Reference(key)) = self;
        let _reading = rcu::read_lock();
        // SAFETY: of the type `logon`, by the type invariant, whose payload is read under RCU
        // (dereference_key_rcu()).
        let payload = unsafe { bindings::user_key_payload_rcu(key.as_ptr()) };
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
    // SAFETY: `Keyring::new` initialises it, and `ONCE` says to `Keyring::find` that it has.
    unsafe(uninit) static KEYRING: Mutex<Option<Ring>> = None;
}

/// Whether [`KEYRING`] can be locked.
static ONCE: Once = Once::new();

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
        // SAFETY: this is reached once, and nobody locks before it is done.
        ONCE.begin(|| unsafe { KEYRING.init() })?;
        // SAFETY: the name is a C string.
        let keyring = from_err_ptr(unsafe { bindings::root_keyring(name.as_char_ptr()) })?;
        // INVARIANT: keyring_alloc() returns a reference to a keyring.
        *KEYRING.lock() = NonNull::new(keyring).map(|ring| Ring(Reference(ring)));
        Ok(Self(()))
    }

    /// The key with the name `name`, if there is one. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// It is there and cannot be used.
    pub(crate) fn find(name: fmt::Arguments<'_>) -> Result<Option<Key>> {
        if !ONCE.is_done() {
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
