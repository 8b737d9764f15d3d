// SPDX-License-Identifier: GPL-2.0

//! Replies that the peer owes to requests whose task gave up before their Reply came.
//!
//! The peer still works on such a request, so its credit is not free: sending another Call for it would
//! exceed the grant of the peer (RFC 8166, 3.3.1), and a peer that has no Receive left for it ends the
//! connection for all RPCs. The protocol counts the Call until its Reply arrives or the connection ends.
//! Only this Reply gives the credit back: with a credit from a stray message, the next Call would be sent
//! although the peer has not answered the last Call.
//!
//! A peer that never answers must not keep the credits for ever either. If no such Reply comes
//! for [`connect::TIMEOUT`], and the peer owes most of the Replies that its grant permits, the connection is given
//! up. With fewer such Replies, the other Calls continue: a connection that works is not given up for a credit.

use super::{
    connect,
    instance::Instance,
    transport::Transport,
    Xprt, //
};
use crate::bindings;
use kernel::{
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    types::Opaque, //
};

/// The Replies that the peer owes and no request waits for.
pub(super) struct OwedReplies {
    count: Atomic<u32>,
    /// One of them came since the work was queued.
    answered: Atomic<bool>,
    /// Gives the connection up if none comes.
    work: Opaque<bindings::delayed_work>,
}

/// Initialises the data of a new transport for such Replies.
///
/// # Safety
///
/// `this` must be memory of a new `Instance<T>`, zeroed, that stays where it is.
pub(super) unsafe fn init<T: Transport>(this: *mut Instance<T>) {
    // SAFETY: the caller promises memory of a transport; nothing is read.
    let work = Opaque::cast_into(unsafe { &raw const (*this).xprt.owed.work });
    // SAFETY: uninitialised memory for a work that end() ends before it goes.
    unsafe { bindings::init_delayed_work(work, Some(overdue_callback::<T>)) };
}

/// Waits until the work does not run and will not. No request may be left.
pub(super) fn end(xprt: &Xprt) {
    // SAFETY: initialised by `init`; nothing is queued anew without a request.
    unsafe { bindings::cancel_delayed_work_sync(xprt.owed.work.get()) };
}

impl OwedReplies {
    /// Looks again after the time that a Reply may take.
    fn wait(&self) {
        connect::queue_work(&self.work, connect::TIMEOUT);
    }

    /// Forgets the Replies of a connection that has ended.
    pub(super) fn clear(&self) {
        self.count.store(0, Relaxed);
    }
}

impl Xprt {
    /// Notes that the peer owes the Reply to a request that was given up.
    ///
    /// Context: process, does not sleep. The caller's lock orders calls of this and of
    /// [`Self::owed_reply_came`]. Called before the connection is closed.
    #[cold]
    pub(crate) fn owes_reply(&self) {
        if self.owed.count.fetch_add(1, Relaxed) == 0 {
            self.owed.answered.store(false, Relaxed);
            self.owed.wait();
        }
    }

    /// Notes that such a Reply has come.
    ///
    /// Context: process, does not sleep. The caller holds the lock of [`Self::owes_reply`].
    #[cold]
    pub(crate) fn owed_reply_came(&self) {
        self.owed.count.fetch_sub(1, Relaxed);
        self.owed.answered.store(true, Relaxed);
    }

    /// Returns the number of such Replies that the peer owes. Context: any.
    pub(crate) fn owed_replies(&self) -> u32 {
        self.owed.count.load(Relaxed)
    }

    /// Returns whether the peer owes Replies to requests that were given up for most of its `credits`, and has sent
    /// no such Reply in time. Otherwise the time begins again, unless the peer owes none.
    fn owes_most(&self, credits: u32) -> bool {
        let owed = self.owed.count.load(Relaxed);
        if owed == 0 {
            return false;
        }
        if self.owed.answered.xchg(false, Full) || owed <= credits / 2 {
            self.owed.wait();
            return false;
        }
        true
    }
}

/// Gives the connection up if the peer owes too many Replies to requests that were given up.
///
/// # Safety
///
/// Called by the workqueue only, for the work of an `Instance<T>`.
unsafe extern "C" fn overdue_callback<T: Transport>(work: *mut bindings::work_struct) {
    // SAFETY: the work is the `work` of a `delayed_work`.
    let work = unsafe { kernel::container_of!(work, bindings::delayed_work, work) };
    let work: *mut Opaque<bindings::delayed_work> = work.cast();
    // SAFETY: which is the one of the `OwedReplies` of a live `Instance<T>`: `destroy` cancels it first.
    let this = unsafe { &*kernel::container_of!(work, Instance<T>, xprt.owed.work) };
    let transport = &this.shared().transport;
    transport.overdue(|| this.xprt.owes_most(transport.credits()));
}
