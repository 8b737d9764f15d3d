// SPDX-License-Identifier: GPL-2.0

//! Idle registrations of a connection, of two sizes.
//!
//! They are in the [`Pool`], or with the sender ([`Idles`]), which takes all of the pool when it has no idle
//! registration. So most Calls take a registration without a lock or an atomic operation.

use crate::rdma::mr::{
    Idle,
    IdleStack,
    Mr,
    MrList, //
};
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// The most pages of a small registration: enough for the I/O of databases and for metadata.
pub(super) const SMALL_PAGES: u32 = 16;

/// Idle registrations, of two sizes, so that a small request does not hold the memory of a large
/// one.
pub(super) struct Idles {
    small: MrList<Idle>,
    large: MrList<Idle>,
}

impl Idles {
    pub(super) const fn new() -> Self {
        Self {
            small: MrList::new(),
            large: MrList::new(),
        }
    }

    /// Takes a registration for `pages` pages; a large one will do for few pages, too.
    #[inline]
    pub(super) fn take(&mut self, pages: u32) -> Option<Mr<Idle>> {
        if pages <= SMALL_PAGES {
            if let Some(mr) = self.small.pop() {
                return Some(mr);
            }
        }
        self.large.pop()
    }

    pub(super) fn put(&mut self, mr: Mr<Idle>) {
        if mr.pages() <= SMALL_PAGES {
            self.small.push(mr);
        } else {
            self.large.push(mr);
        }
    }

    pub(super) fn put_all(&mut self, mut mrs: MrList<Idle>) {
        while let Some(mr) = mrs.pop() {
            self.put(mr);
        }
    }

    pub(super) fn take_all(&mut self) -> MrList<Idle> {
        let mut all = core::mem::take(&mut self.small);
        all.append(core::mem::take(&mut self.large));
        all
    }

    /// Takes all that `pool` has and would do for `pages` pages.
    pub(super) fn fill_from(&mut self, pool: &Pool, pages: u32) {
        if pages <= SMALL_PAGES {
            self.small.append(pool.small.take_all());
            if !self.small.is_empty() {
                return;
            }
        }
        self.large.append(pool.large.take_all());
    }
}

/// The idle registrations that the sender has not taken. It is used without a lock.
pub(super) struct Pool {
    small: IdleStack,
    large: IdleStack,
    /// A sender waits for a registration.
    wanted: Atomic<bool>,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            small: IdleStack::new(),
            large: IdleStack::new(),
            wanted: Atomic::new(false),
        }
    }

    /// Returns a registration to the pool. Returns whether a sender waits for it, which has to be
    /// woken then.
    #[inline]
    pub(super) fn put(&self, mr: Mr<Idle>) -> bool {
        if mr.pages() <= SMALL_PAGES {
            self.small.push(mr);
        } else {
            self.large.push(mr);
        }
        self.take_wanted()
    }

    /// Puts several registrations, as [`put`](Self::put) does.
    pub(super) fn put_all(&self, mut mrs: MrList<Idle>) -> bool {
        let mut wanted = false;
        while let Some(mr) = mrs.pop() {
            wanted |= self.put(mr);
        }
        wanted
    }

    /// Notes that the sender found too few registrations and waits. Afterwards the sender has to look again:
    /// a registration that was put before this woke no sender.
    ///
    /// `Self::put` adds a registration, and then checks for a waiting sender. The sender notes that it
    /// waits, and then takes registrations. Adding and taking are full barriers, so one sees the other. The mark of
    /// the transport by which the caller is woken must be set before: [`Self::take_wanted`] sees it then.
    pub(super) fn want(&self) {
        self.wanted.store(true, Release);
    }

    /// Returns whether a sender waits, and clears that. The caller then wakes the sender. The exchange is a full
    /// barrier, so that the caller sees the mark by which the sender is woken, and clears no later wish.
    #[inline]
    pub(super) fn take_wanted(&self) -> bool {
        self.wanted.load(Relaxed) && self.wanted.xchg(false, Full)
    }

    /// Takes a registration of the size that is not meant for `pages` pages. Also returns whether a sender
    /// began to wait for a registration meanwhile.
    pub(super) fn take_other(&self, pages: u32) -> (Option<Mr<Idle>>, bool) {
        let mut others = if pages <= SMALL_PAGES {
            self.large.take_all()
        } else {
            self.small.take_all()
        };
        let taken = others.pop();
        (taken, self.put_all(others))
    }

    pub(super) fn take_all(&self) -> MrList<Idle> {
        let mut all = self.small.take_all();
        all.append(self.large.take_all());
        all
    }
}
