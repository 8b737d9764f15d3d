// SPDX-License-Identifier: GPL-2.0

//! Messages of the role that wait for the peer, and error messages in answer to messages of the peer.

use super::{
    EndReason,
    LockedState,
    Role,
    Shared, //
};
use crate::{
    proto::wire::{
        error::ErrorReport,
        header::FixedWords, //
    },
    rdma::qp::QpRef,
};
use kernel::time::Msecs;

/// The timeout of the peer in milliseconds, for messages that wait for room in the send queue or for a credit, and
/// for the rest of a message in parts. A message of the peer does not restart it, because a peer can send any number
/// of messages.
pub(super) const PEER_TIMEOUT: Msecs = 30_000;

/// The role's messages that wait for the peer: for room in the send queue, or for a credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// No message waits.
    Nothing,
    /// Calls that have not been taken up, or whose data has not been read.
    Calls,
    /// Replies, and with them all that comes later.
    Replies,
}

impl<R: Role> Shared<R> {
    /// Notes which of the role's messages wait for the peer. The endpoint's lock is held by the caller.
    pub(crate) fn note_waiting(&self, waiting: Waiting) {
        self.waiting.set(waiting as u32);
    }

    /// Returns whether a Reply waits for the peer. Context: any.
    #[inline]
    pub(crate) fn has_waiting_replies(&self) -> bool {
        self.waiting.get() == Waiting::Replies as u32
    }

    /// Makes the role send the messages that wait for the peer, if there are any. Context: process,
    /// may sleep. Does not wait for completions.
    #[inline]
    pub(super) fn send_waiting(&self, qp: &QpRef<Self>) {
        if self.waiting.get() != Waiting::Nothing as u32 {
            self.send_waiting_locked(self.lock(), qp);
        }
    }

    /// Does the work of [`Self::send_waiting`] with the endpoint's lock, which is given up.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_waiting_locked(&self, mut state: LockedState<'_, R>, qp: &QpRef<Self>) {
        if self.is_closing() {
            return;
        }
        let sent = self.role.send_waiting(self, &mut state, qp);
        drop(state);
        match sent {
            Ok(true) => self.role.has_work(),
            Ok(false) => {}
            Err(why) => self.request_close(why),
        }
    }

    /// Answers a message by an error message, now or when there is room.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(super) fn refuse(
        &self,
        qp: &QpRef<Self>,
        fixed: &FixedWords,
        report: ErrorReport,
    ) -> Result<(), EndReason> {
        let mut state = self.lock();
        if let Some(protocol) = &mut state.protocol {
            protocol
                .refuse(fixed, report)
                .map_err(EndReason::Protocol)?;
        }
        state.transmit(qp).map_err(|_| EndReason::NotPosted)
    }
}
