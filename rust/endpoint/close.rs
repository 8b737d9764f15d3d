// SPDX-License-Identifier: GPL-2.0

//! The reasons for the end of a connection, and the order of its steps.
//!
//! Nothing that an event or a completion calls may close an endpoint, since closing waits for
//! them. They ask for it, once ([`Shared::request_close`]), and the role's owner closes from elsewhere.

use super::{
    Endpoint,
    Role,
    Shared, //
};
use crate::{
    proto::connection,
    rdma::{
        proof::Destroyed,
        qp::QpEvent,
        send::SendList,
        wqe::Status, //
    },
    support::{
        errno,
        trace, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Full,
        Relaxed, //
    },
};

/// The reason for the end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndReason {
    /// The peer ended it, or it was cut.
    Disconnected,
    /// The local address moved.
    AddressChanged,
    /// The device goes away.
    DeviceRemoved,
    /// The connection manager gave it up otherwise.
    Failed,
    /// A work request failed.
    WorkRequest(Status),
    /// The device reports an event after which the queue pair does not work.
    QueuePair(QpEvent),
    /// The queue pair took no more work requests.
    NotPosted,
    /// There is no memory to handle a message.
    NoMemory,
    /// The peer has taken nothing for too long.
    Unresponsive,
    /// The peer has not sent the rest of a message for too long.
    Unfinished,
    /// The peer has not answered the Calls that it takes at a time.
    Unanswered,
    /// A Call of this side has got no Reply in time.
    NoReply,
    /// The protocol demands it.
    Protocol(connection::CloseReason),
    /// The peer invalidated memory that is not of the RPC that it answered.
    ForeignInvalidation,
    /// The peer has more Calls in progress than it was told it may.
    TooManyCalls,
    /// It is not needed any more, or sunrpc closes it for a reason of its own.
    Unneeded,
}

impl EndReason {
    /// Returns the reason in words, for traces and debugfs.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::AddressChanged => "address changed",
            Self::DeviceRemoved => "device removed",
            Self::Failed => "connection manager",
            Self::WorkRequest(status) => status.message(),
            Self::QueuePair(event) => event.message(),
            Self::NotPosted => "work request not taken",
            Self::NoMemory => "no memory",
            Self::Unresponsive => "peer takes nothing",
            Self::Unfinished => "rest of a message missing",
            Self::Unanswered => "Calls not answered",
            Self::NoReply => "no Reply in time",
            Self::Protocol(why) => why.as_str(),
            Self::ForeignInvalidation => "foreign invalidation",
            Self::TooManyCalls => "too many Calls",
            Self::Unneeded => "not needed any more",
        }
    }
}

impl EndReason {
    /// Returns the error for a task that connects.
    pub(super) fn errno(&self) -> Error {
        match self {
            Self::Protocol(connection::CloseReason::NoCommonVersion) => errno::protocol(),
            _ => errno::not_connected(),
        }
    }
}

impl<R: Role> Shared<R> {
    /// Requests, once, that the connection is closed. Context: process, does not sleep.
    ///
    /// Has no effect once closing has begun: a later event, such as an event of an id that a buffer still
    /// keeps, does not reach the role's owner, which may be gone.
    pub(crate) fn request_close(&self, why: EndReason) {
        if self.closing.cmpxchg(0, 1, Full).is_ok() {
            self.note_end(why);
            self.progress.failed(why.errno());
            self.role.lost();
        }
    }

    /// Traces and records the reason for the end of the connection.
    fn note_end(&self, why: EndReason) {
        trace::emit(|| trace::RpcrdmaClose {
            cid: self.role.cid(),
            why: why.as_str(),
        });
        self.role.ended(why);
    }

    /// Ends an attempt to connect: the step that the connecting task waits for fails, and so does
    /// the next step. Context: process, does not sleep.
    pub(crate) fn give_up(&self) {
        if self.closing.cmpxchg(0, 1, Full).is_ok() {
            self.progress.failed(errno::canceled());
        }
    }

    /// Returns the proof that the queue pair is destroyed, once it is. [`Endpoint::close`] sets the proof before it
    /// calls [`Role::destroyed`]. Context: any.
    pub(crate) fn destroyed(&self) -> Option<&Destroyed> {
        self.destroyed.as_ref()
    }
}

impl<R: Role> Endpoint<R> {
    /// Breaks the connection, as if the network had. Context: process, may sleep.
    pub(crate) fn break_up(&self) {
        self.qp.disconnect();
    }

    /// Begins to end the connection. Context: process, may sleep.
    pub(crate) fn detach(&self) {
        self.shared.request_close(EndReason::Unneeded);
        self.qp.disconnect();
    }

    /// Ends the connection: when this returns the peer reaches no memory of this side, the memory
    /// is not mapped for the device, no completion will come, and the connection's id is gone, for which the
    /// removal of a device waits. None of this depends on whether the device still works.
    ///
    /// Context: process, may sleep. Not called from an event or a completion.
    pub(crate) fn close(self) {
        let Self {
            qp,
            pd,
            id,
            shared,
            standing,
        } = self;
        // From here on failures are expected.
        let was_closing = shared.closing.xchg(1, Relaxed) != 0;
        // A completed Send has another posted with the lock, and only if `closing` is not set: none is after this.
        let stands = shared.lock().protocol.is_some();
        if !was_closing && stands {
            shared.note_end(EndReason::Unneeded);
        }
        let status = shared.progress.status();
        shared.role.disconnected(qp.disconnect(), status);
        shared.destroyed.populate(qp.destroy());
        let Some(proof) = shared.destroyed.as_ref() else {
            return;
        };
        // First, because a task that finds no protocol takes its memory for unmapped.
        shared.role.destroyed(&shared, proof);
        let freed = {
            let mut guard = shared.lock();
            let state = &mut *guard;
            state.protocol = None;
            let (mut sends, writes) = state.queue.destroyed(proof);
            sends.append(core::mem::replace(&mut state.sends, SendList::new()));
            (sends, writes)
        };
        // Nothing is freed under the lock.
        drop(freed);
        drop((pd, id, standing));
    }
}
