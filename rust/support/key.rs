// SPDX-License-Identifier: GPL-2.0

//! Keys of an administrator, in a keyring of this module.
//!
//! Users of this module walk the keyring. keyring_search() compares names as text, and the address of a
//! peer has several spellings.
//!
//! C headers: `include/linux/key.h`, `include/keys/user-type.h`, `include/crypto/sha2.h`.

use super::{
    global::Global,
    memalloc::GFP_NORETRY,
    work::{
        Job,
        Run, //
    },
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::c_int,
    prelude::*,
    sync::rcu, //
};

/// A reference to a key; dropping it gives the reference back.
///
/// # Invariants
///
/// The object holds a reference to the key (`usage`).
struct Reference(NonNull<bindings::key>);

// SAFETY: `usage` is a refcount_t, and key_put() may be called by any task.
unsafe impl Send for Reference {}
// SAFETY: a shared reference gives access to fields that are constant (`type`, `description`), atomic
// (`flags`, `state`) or read under RCU (`payload`, the links of a keyring).
unsafe impl Sync for Reference {}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: by the type invariant. key_put() sleeps nowhere.
        unsafe { bindings::key_put(self.0.as_ptr()) };
    }
}

impl Reference {
    /// Checks that the key may be used. Context: any.
    ///
    /// # Errors
    ///
    /// `ENOKEY`, `EKEYREVOKED`, `EKEYEXPIRED`: the key was invalidated or revoked, or has expired.
    fn validate(&self) -> Result {
        // SAFETY: type invariant: the key is alive. key_validate() reads `flags` and `expiry` once each.
        to_result(unsafe { bindings::key_validate(self.0.as_ptr()) })
    }
}

/// A key of an administrator.
///
/// # Invariants
///
/// The key has the type `logon`.
pub(crate) struct Key(Reference);

impl Key {
    /// Returns the key with this serial number, if it has the type `logon`. Context: any.
    fn lookup(serial: bindings::key_serial_t) -> Option<Self> {
        // SAFETY: key_lookup() accepts any number, and takes a reference to a key that still has one.
        let found = from_err_ptr(unsafe { bindings::key_lookup(serial) }).ok()?;
        let reference = Reference(NonNull::new(found)?);
        // SAFETY: the key is alive, and key_alloc() has set `type`, which is constant.
        let kind = unsafe { bindings::rpcrdma_key_type(found) };
        // INVARIANT: the type was compared.
        (kind == &raw const bindings::key_type_logon).then_some(Self(reference))
    }

    /// Returns the key's serial number.
    pub(crate) fn serial(&self) -> i32 {
        // SAFETY: type invariant: the key is alive. key_alloc() has set `serial`, which is constant.
        unsafe { bindings::rpcrdma_key_number(self.0 .0.as_ptr()) }
    }

    /// Returns the key's name, if it is UTF-8.
    pub(crate) fn name(&self) -> Option<&str> {
        let Self(Reference(key)) = self;
        // SAFETY: the key is alive, and its description is constant (key_alloc()).
        let name = unsafe { bindings::rpcrdma_key_description(key.as_ptr()) };
        // SAFETY: `description` is a C string that lives as long as the key.
        unsafe { CStr::from_char_ptr(name) }.to_str().ok()
    }

    /// Checks that the key may be used and has `least` octets. Context: any.
    ///
    /// # Errors
    ///
    /// The errors of [`Reference::validate`]. `EINVAL`: the key is shorter.
    pub(crate) fn check(&self, least: usize) -> Result {
        self.0.validate()?;
        match self.with_payload(<[u8]>::len) {
            Some(len) if len >= least => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Returns the HMAC-SHA256 (RFC 2104) of `octets`, or none if the key may not be used any more.
    /// Context: softirq or process, does not sleep.
    pub(crate) fn hmac_sha256(&self, octets: &[u8]) -> Option<[u8; 32]> {
        self.0.validate().ok()?;
        self.with_payload(|secret| {
            let mut mac = [0; 32];
            // SAFETY: the lengths are the lengths of the slices; `mac` has SHA256_DIGEST_SIZE.
            unsafe {
                bindings::hmac_sha256_usingrawkey(
                    secret.as_ptr(),
                    secret.len(),
                    octets.as_ptr(),
                    octets.len(),
                    mac.as_mut_ptr(),
                );
            }
            mac
        })
    }

    /// Calls `use_it` with the key's octets, or returns none if the key was revoked. Context:
    /// softirq or process, does not sleep. `use_it` does not sleep.
    fn with_payload<T>(&self, use_it: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let Self(Reference(key)) = self;
        let _reading = rcu::read_lock();
        // SAFETY: of the type `logon`, by the type invariant, whose payload is read under RCU
        // (dereference_key_rcu()).
        let payload = unsafe { bindings::user_key_payload_rcu(key.as_ptr()) };
        // SAFETY: it is null, or stays until `_reading` is dropped (user_update(), user_revoke()).
        let payload = unsafe { payload.as_ref() }?;
        let len = usize::from(payload.datalen);
        // SAFETY: `datalen` octets follow in the payload (user_preparse()), which is not written any more.
        let secret = unsafe { core::slice::from_raw_parts(payload.data.as_ptr().cast(), len) };
        Some(use_it(secret))
    }
}

/// The user of a keyring.
pub(crate) trait Purpose: 'static {
    /// The least length of a key.
    const LEAST: usize;

    /// Handles a key that is about to be linked to the keyring, possibly in the place of another key. Context:
    /// process, may sleep. The keyring's semaphore is held for writing.
    fn entering();

    /// Handles keys that were linked. Context: process, may sleep. Called from a workqueue.
    fn entered();
}

/// Calls [`Purpose::entered`].
struct EnteredWork(fn());

impl Run for EnteredWork {
    fn run(&self) {
        let Self(tell) = self;
        if let Some(Reference(ring)) = &ring() {
            // SAFETY: the key is alive. The helper waits for `key.sem`, whose holders do not wait for this work.
            unsafe { bindings::rpcrdma_wait_for_links(ring.as_ptr()) };
        }
        tell();
    }
}

/// A keyring and the work that runs after keys were linked.
struct HeldKey {
    ring: Reference,
    entered: Pin<KBox<Job<EnteredWork>>>,
}

static KEYRING: Global<HeldKey> = Global::new();

/// The module's keyring; dropping it removes the keyring and its links.
///
/// It holds keys of the type `logon` only. Adding a key needs CAP_SYS_ADMIN in the initial user namespace;
/// the user root of that namespace may remove keys.
pub(crate) struct Keyring(());

/// Returns a reference to the keyring, a key of the type `keyring`.
fn ring() -> Option<Reference> {
    let ring = KEYRING.with(|kept| {
        // SAFETY: the key is alive; key_get() takes another reference.
        unsafe { bindings::key_get(kept.ring.0.as_ptr()) }
    })?;
    // INVARIANT: key_get() has taken the reference.
    NonNull::new(ring).map(Reference)
}

impl Keyring {
    /// Makes the keyring. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST`: the keyring exists. `ENOMEM`.
    pub(crate) fn new<P: Purpose>(name: &CStr) -> Result<Self> {
        let entered = KBox::pin_init(Job::new(EnteredWork(P::entered)), GFP_KERNEL)?;
        // SAFETY: the name is a C string, and the callback a key_restrict_link_func_t; `drop` removes it
        // from the keyring.
        let keyring = from_err_ptr(unsafe {
            bindings::rpcrdma_root_keyring(name.as_char_ptr(), Some(link_callback::<P>))
        })?;
        // INVARIANT: keyring_alloc() returns a reference to a keyring.
        let ring = Reference(NonNull::new(keyring).ok_or(ENOMEM)?);
        KEYRING.set(HeldKey { ring, entered })?;
        Ok(Self(()))
    }

    /// Returns whether the keyring was neither revoked nor invalidated. Context: process, may sleep.
    pub(crate) fn is_usable() -> bool {
        ring().is_some_and(|ring| ring.validate().is_ok())
    }

    /// Returns the keys in the keyring. A key that is linked or unlinked meanwhile may be missing.
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn keys() -> Result<impl Iterator<Item = Key>> {
        const EACH: usize = size_of::<bindings::key_serial_t>();
        let mut serials = KVec::<bindings::key_serial_t>::new();
        let ring = ring();
        while let Some(Reference(ring)) = &ring {
            let size = serials.len() * EACH;
            // SAFETY: a keyring that is alive; the memory has `size` bytes.
            let all = unsafe {
                bindings::rpcrdma_keyring_serials(ring.as_ptr(), serials.as_mut_ptr(), size)
            };
            let all = usize::try_from(all).map_err(|_| ENOMEM)?;
            if all <= size {
                serials.truncate(all / EACH);
                break;
            }
            serials.resize(all.div_ceil(EACH), 0, GFP_NORETRY)?;
        }
        Ok(serials.into_iter().filter_map(Key::lookup))
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        if let Some(HeldKey { ring, entered }) = KEYRING.take() {
            // SAFETY: a keyring of `root_keyring`.
            unsafe { bindings::rpcrdma_retire_keyring(ring.0.as_ptr()) };
            // It is not requested any more; dropping waits until it has ended.
            drop(entered);
        }
    }
}

/// Checks a key before it is linked to the keyring. An update of a linked key can still make it too short, so
/// [`Key::check`] compares the length again.
///
/// # Safety
///
/// Called by the key service (`key_restrict_link_func_t`) with the payload of a key of this type; the
/// keyring is one of [`Keyring::new`] for a `P`, and its semaphore is held.
unsafe extern "C" fn link_callback<P: Purpose>(
    _keyring: *mut bindings::key,
    kind: *const bindings::key_type,
    payload: *const bindings::key_payload,
    _restriction: *mut bindings::key,
) -> c_int {
    // SAFETY: capable() reads the credentials of the current task.
    if !unsafe { bindings::capable(bindings::CAP_SYS_ADMIN as c_int) } {
        return EPERM.to_errno();
    }
    let reading = rcu::read_lock();
    let is_logon = kind == &raw const bindings::key_type_logon;
    // SAFETY: the caller keeps the payload, and the type `logon` has a pointer in its first word.
    let secret = unsafe { (*payload).data[0].cast::<bindings::user_key_payload>() };
    let len = is_logon.then(|| {
        // SAFETY: null if the key was revoked; else it stays until `reading` is dropped (user_update()),
        // or longer if the key is new.
        unsafe { secret.as_ref() }.map_or(0, |secret| secret.datalen)
    });
    if len.is_none_or(|len| usize::from(len) < P::LEAST) {
        pr_err!(
            "a key has to be of the type logon and of {} octets or more\n",
            P::LEAST
        );
        return EINVAL.to_errno();
    }
    drop(reading);
    P::entering();
    KEYRING.with(|kept| kept.entered.request());
    0
}

/// Returns random octets of cryptographic quality. Context: any.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    // SAFETY: the array has `N` bytes.
    unsafe { bindings::get_random_bytes(octets.as_mut_ptr().cast(), N) };
    octets
}
