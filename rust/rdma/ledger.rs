// SPDX-License-Identifier: GPL-2.0

//! The ledger of a queue pair: all boxes that have been posted to it.
//!
//! A box that is posted belongs to the queue pair, and its completion gives it back. A device that has
//! failed gives no completions. Therefore every box is entered in the ledger when it is posted for the
//! first time, and its entry says whether it is posted now. Once the queue pair is destroyed, the ledger
//! gives back each box that is still posted, and takes the DMA mapping of each Receive that is in use
//! elsewhere. Nothing that is left needs the device then.

use super::{
    dma::Mapping,
    pd::Pd, //
};
use crate::support::{
    memalloc::GFP_NORETRY,
    racy::Racy, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomPinned,
    ptr, //
};
use kernel::{
    ffi::c_void,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};

/// Numbers boxes.
static BOXES: Atomic<u32> = Atomic::new(1);

/// The ledger of a queue pair.
///
/// # Invariants
///
/// The list links all entries whose `listed` is set and whose `ledger` this is.
#[pin_data]
pub(super) struct Ledger {
    #[pin]
    list: SpinLock<List>,
}

/// The first entry of a ledger.
struct List(*mut LedgerEntry);

// SAFETY: an entry belongs to no task. Type invariant: its links are used with the lock of the ledger only.
unsafe impl Send for List {}

/// The links of an entry to the two beside it.
struct Links {
    next: *mut LedgerEntry,
    prev: *mut LedgerEntry,
    listed: bool,
}

/// The entry of a box, which lies in the box.
///
/// # Invariants
///
/// `kind` is the kind of the box. While `listed` is set, the box stays where it is. While `posted` is set, the
/// box belongs to the queue pair of the ledger. `links` are used with the lock of the ledger only.
pub(super) struct LedgerEntry {
    /// Set when the box is posted for the first time.
    ledger: Option<Arc<Ledger>>,
    links: UnsafeCell<Links>,
    posted: Racy<bool>,
    /// The number of the box, for traces.
    number: u32,
    kind: &'static BoxKind,
    // Others have pointers to the links, also while the box is borrowed for writing.
    _pin: PhantomPinned,
}

// SAFETY: an entry belongs to no task. Type invariant: its links are used with the lock of the ledger only.
unsafe impl Send for LedgerEntry {}
// SAFETY: a shared entry is only read, but for the links. Type invariant: the lock of the ledger protects them.
unsafe impl Sync for LedgerEntry {}

/// The operations that end a box.
pub(super) struct BoxKind {
    /// Gives back the queue pair's registrations, before that is destroyed. The arguments are the box and the
    /// queue pair.
    pub(super) withdraw: unsafe fn(*mut LedgerEntry, *const c_void),
    /// Ends a box that was posted when the queue pair was destroyed. The arguments are the box, the handler
    /// and the protection domain.
    pub(super) reclaim: unsafe fn(*mut LedgerEntry, *const c_void, &Pd),
    /// The distance from the entry to the mapping of a Receive, in bytes.
    pub(super) mapping: Option<usize>,
}

/// A box that was struck out of the ledger.
enum Struck {
    /// A box that was posted.
    Posted(*mut LedgerEntry),
    /// A box that is in use elsewhere. Its mapping, if it has one.
    InUse(Option<Mapping>),
}

impl LedgerEntry {
    /// Creates the entry of a new box of the kind `kind`.
    pub(super) fn new(kind: &'static BoxKind) -> Self {
        Self {
            ledger: None,
            links: UnsafeCell::new(Links {
                next: ptr::null_mut(),
                prev: ptr::null_mut(),
                listed: false,
            }),
            posted: Racy::new(false),
            number: BOXES.fetch_add(1, Relaxed),
            kind,
            _pin: PhantomPinned,
        }
    }

    /// Enters the box in `ledger`, unless it is there already. False if it is in another one.
    ///
    /// # Safety
    ///
    /// The entry must lie in a box of its kind, which stays where it is until the entry is dropped.
    #[inline(always)]
    pub(super) unsafe fn enter(&mut self, ledger: &Arc<Ledger>) -> bool {
        match &self.ledger {
            Some(entered) => ptr::eq(&raw const **entered, &raw const **ledger),
            None => {
                self.ledger = Some(ledger.clone());
                // SAFETY: the entry is in no ledger, and stays in its box, as the caller promises.
                unsafe { ledger.add(self) };
                true
            }
        }
    }

    /// Returns the number of the box, for traces.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Notes whether the box is posted.
    #[inline(always)]
    pub(super) fn set_posted(&self, posted: bool) {
        self.posted.set(posted);
    }

    /// # Safety
    ///
    /// The lock of the ledger must be held, and `entry` be valid.
    unsafe fn links<'a>(entry: *mut Self) -> &'a mut Links {
        // SAFETY: the caller has the lock, with which alone the links are used.
        unsafe { &mut *(*entry).links.get() }
    }
}

impl Drop for LedgerEntry {
    fn drop(&mut self) {
        if let Some(ledger) = self.ledger.take() {
            let mut list = ledger.list.lock();
            // SAFETY: the lock is held, as the contract of [`List::remove`] demands; the entry is valid until this
            // returns.
            unsafe { list.remove(self) };
        }
    }
}

impl List {
    /// Takes an entry out of the list, if it is there.
    ///
    /// # Safety
    ///
    /// `entry` must be valid, and this be the list of its ledger, whose lock is held.
    unsafe fn remove(&mut self, entry: *mut LedgerEntry) {
        // SAFETY: valid, and the lock is held, as the caller promises.
        let links = unsafe { LedgerEntry::links(entry) };
        if !core::mem::take(&mut links.listed) {
            return;
        }
        if links.prev.is_null() {
            self.0 = links.next;
        } else {
            // SAFETY: the lock is held. A listed entry stays (invariant of [`LedgerEntry`]).
            unsafe { LedgerEntry::links(links.prev) }.next = links.next;
        }
        if !links.next.is_null() {
            // SAFETY: the lock is held. A listed entry stays (invariant of [`LedgerEntry`]).
            unsafe { LedgerEntry::links(links.next) }.prev = links.prev;
        }
    }
}

impl Ledger {
    /// Makes an empty ledger. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_spinlock!(List(ptr::null_mut())),
            }),
            GFP_NORETRY,
        )
    }

    /// # Safety
    ///
    /// As for [`LedgerEntry::enter`]; `entry` must be in no list.
    #[cold]
    unsafe fn add(&self, entry: *mut LedgerEntry) {
        let mut list = self.list.lock();
        let first = list.0;
        // SAFETY: valid, as the caller promises, and in no list.
        let links = unsafe { LedgerEntry::links(entry) };
        *links = Links {
            next: first,
            prev: ptr::null_mut(),
            listed: true,
        };
        if !first.is_null() {
            // SAFETY: the lock is held. A listed entry stays (invariant of [`LedgerEntry`]).
            unsafe { LedgerEntry::links(first) }.prev = entry;
        }
        list.0 = entry;
    }

    /// Returns the number of Receives that are posted. Context: any.
    pub(super) fn posted_receives(&self) -> u32 {
        let list = self.list.lock();
        let (mut at, mut count) = (list.0, 0);
        while !at.is_null() {
            // SAFETY: the lock is held. A listed entry stays (invariant of [`LedgerEntry`]).
            let (posted, kind) = unsafe { ((*at).posted.get(), (*at).kind) };
            // Only Receives have a mapping.
            count += u32::from(posted && kind.mapping.is_some());
            // SAFETY: the lock is held. A listed entry stays (invariant of [`LedgerEntry`]).
            at = unsafe { LedgerEntry::links(at) }.next;
        }
        count
    }

    /// Makes all posted boxes give back registrations of the queue pair `qp`.
    ///
    /// # Safety
    ///
    /// `qp` must be the `QpRef<H>` of the handler `H` whose boxes are entered here, and nothing may be
    /// posted or completed any more.
    pub(super) unsafe fn withdraw(&self, qp: *const c_void) {
        let list = self.list.lock();
        let mut at = list.0;
        while !at.is_null() {
            // SAFETY: the lock is held. A listed entry stays (invariant of [`LedgerEntry`]).
            let (posted, kind) = unsafe { ((*at).posted.get(), (*at).kind) };
            if posted {
                // SAFETY: a box of that kind, which belongs to the queue pair; the rest is promised by
                // the caller.
                unsafe { (kind.withdraw)(at, qp) };
            }
            // SAFETY: the lock is held. A listed entry stays (invariant of [`LedgerEntry`]).
            at = unsafe { LedgerEntry::links(at) }.next;
        }
    }

    /// Strikes the first entry out of the ledger.
    fn strike(&self) -> Option<Struck> {
        let mut list = self.list.lock();
        let first = list.0;
        if first.is_null() {
            return None;
        }
        // SAFETY: the lock is held. A listed entry stays (invariant of [`LedgerEntry`]).
        unsafe { list.remove(first) };
        // SAFETY: the owner of the box cannot drop it before the lock is given up (`LedgerEntry::drop`).
        let (posted, kind) = unsafe { ((*first).posted.get(), (*first).kind) };
        if posted {
            return Some(Struck::Posted(first));
        }
        let mapping = kind.mapping.and_then(|offset| {
            let cell: *mut UnsafeCell<Option<Mapping>> = first.wrapping_byte_add(offset).cast();
            // SAFETY: `offset` leads to the mapping of a box of this kind, which stays until the lock is
            // given up. Its owner uses the mapping only as long as the queue pair exists, or when it drops
            // the box (`DmaBuf`).
            unsafe { (*(*cell).get()).take() }
        });
        Some(Struck::InUse(mapping))
    }

    /// Ends the boxes that the queue pair still had, takes the mappings of the others, and empties the ledger.
    /// Context: process, may sleep.
    ///
    /// # Safety
    ///
    /// The queue pair must be destroyed, and no completion of it be handled any more; `handler` must be the
    /// `H` whose boxes are entered here.
    pub(super) unsafe fn reclaim(&self, handler: *const c_void, pd: &Pd) {
        while let Some(struck) = self.strike() {
            match struck {
                Struck::Posted(entry) => {
                    // SAFETY: by the caller's promise, the entry lies in a box, which stays until it is reclaimed.
                    let kind = unsafe { (*entry).kind };
                    // SAFETY: a box of that kind. It belonged to the queue pair, which the caller has
                    // destroyed, so it belongs to nothing else.
                    unsafe { (kind.reclaim)(entry, handler, pd) };
                }
                // Unmapped here, without the lock.
                Struck::InUse(mapping) => mapping.into_iter().for_each(Mapping::release),
            }
        }
    }
}
