// SPDX-License-Identifier: GPL-2.0

//! Calls to a client, and the reasons for not sending a Call.
//!
//! The core retries a Call until it is too old, after a time that depends on the error; then nfsd makes a
//! new Call at once. So a condition that lasts must not be an error that ends the Call, nor an error that
//! is retried at once.

use super::{
    connection::Open,
    settings, //
};
use crate::{
    endpoint::{
        now,
        ComposeError,
        EndReason, //
    },
    proto::{
        connection::SendError,
        wire::{
            chunk::NoChunks,
            header::{
                Kind,
                Outgoing, //
            },
            types::{
                Handle,
                MsgType,
                Xid, //
            },
        },
    },
    sunrpc::CallBuf,
    support::{
        errno,
        trace, //
    },
};
use kernel::{
    error::Error,
    prelude::*,
    sync::atomic::Relaxed, //
};

/// The shortest time that a client has for a Reply, in milliseconds, before it counts as a client that no longer
/// answers. nfsd gives a Call up after a tenth of the time of a lease: 9 seconds by default.
const CALL_TIME: u64 = 5_000;

/// The reason why a Call is not sent.
#[derive(Clone, Copy)]
enum Unsent {
    /// The connection ends.
    Ended,
    /// There is no Send buffer, or no room in the send queue.
    NoRoom,
    /// The client has to answer another Call first (version 1).
    Unanswered,
    /// The client takes no more messages now (version 2).
    NoCredit,
    /// The client has not authenticated itself yet, or has not announced its properties (version 2).
    NotReady,
    /// A message in parts goes first (version 2).
    Busy,
    /// The client takes no Calls (version 2).
    NotTaken,
    /// The Call is longer than a message.
    TooLong,
}

impl Unsent {
    /// Returns the reason in words, for traces.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "the connection ends",
            Self::NoRoom => "no room",
            Self::Unanswered => "another Call is not answered",
            Self::NoCredit => "no credit",
            Self::NotReady => "not ready",
            Self::Busy => "a message in parts goes first",
            Self::NotTaken => "the client takes no Calls",
            Self::TooLong => "too long",
        }
    }

    /// Returns the error for the core.
    fn errno(self) -> Error {
        match self {
            // It tries again after a quarter of a second. Until a thread of nfsd has closed a connection that ends, the
            // core counts the client as connected, and would try again at once after an error of the connection. After
            // that it looks for another connection.
            Self::Ended
            | Self::NoRoom
            | Self::Unanswered
            | Self::NoCredit
            | Self::NotReady
            | Self::Busy => errno::no_buffers(),
            // Nothing changes on this connection: it tries again after three seconds.
            Self::NotTaken | Self::TooLong => EPERM,
        }
    }
}

impl Open<'_> {
    /// Calls the client, see [`Called::call`](crate::sunrpc::svc::Called::call).
    ///
    /// # Errors
    ///
    /// The error number of [`Unsent`]: the Call was not sent.
    //= V1-036, V1-037
    pub(super) fn call(
        &self,
        xid: u32,
        call: &CallBuf<'_>,
        alone: impl FnOnce() -> bool,
    ) -> Result {
        let why = match self.post_call(xid, call) {
            Ok(()) => return Ok(()),
            // Calls that were given up still count as outstanding. After a reconnect the client can be called again.
            Err(Unsent::Unanswered) if self.is_late() && alone() => {
                self.shared().request_close(EndReason::Unanswered);
                Unsent::Ended
            }
            Err(why) => why,
        };
        settings::CALLS_UNSENT.add(1);
        trace::emit(|| trace::SvcrdmaCbUnsent {
            cid: self.cid(),
            xid,
            why: why.as_str(),
        });
        Err(why.errno())
    }
}

impl Open<'_> {
    /// Returns whether the last Call to the client is older than the time for its Reply.
    fn is_late(&self) -> bool {
        now().0.saturating_sub(self.called().load(Relaxed)) >= CALL_TIME
    }

    /// Composes and posts a Call.
    ///
    /// # Errors
    ///
    /// [`Unsent`]: the reason for which the Call was not sent.
    //= V1-117, V1-119, NFS-053
    fn post_call(&self, xid: u32, call: &CallBuf<'_>) -> Result<(), Unsent> {
        let mut sending = self.sending_now().map_err(|why| match why {
            ComposeError::NotPosted => Unsent::Ended,
            _ => Unsent::NoRoom,
        })?;
        let outgoing = Outgoing {
            xid: Xid(xid),
            direction: MsgType::Call,
            kind: Kind::Msg,
            more: false,
            inv_handle: Handle::NONE,
        };
        let terms = sending.terms().ok_or(Unsent::Ended)?;
        let version = terms.version;
        let room = terms.inline_send.checked_sub(version.empty_header_len());
        if room.is_none_or(|room| call.len() > room) {
            return Err(Unsent::TooLong);
        }
        let len = call.len() as usize;
        let payload = |out: &mut [u8]| {
            let out = out.get_mut(..len)?;
            call.read(0, out).ok().map(|()| len)
        };
        sending
            .compose(&outgoing, &NoChunks, payload)
            .map_err(|why| match why {
                ComposeError::Protocol(SendError::NoCredit) if sending.needs_reply() => {
                    Unsent::Unanswered
                }
                ComposeError::Protocol(SendError::NoCredit) => Unsent::NoCredit,
                ComposeError::Protocol(SendError::NotReady) => Unsent::NotReady,
                ComposeError::Protocol(SendError::Busy) => Unsent::Busy,
                ComposeError::Protocol(SendError::NotSupported) => Unsent::NotTaken,
                ComposeError::Protocol(SendError::NoRoom) | ComposeError::TooLong => {
                    Unsent::TooLong
                }
                ComposeError::NoRoom(_) | ComposeError::NoRoomForParts(..) => Unsent::NoRoom,
                ComposeError::NotPosted => Unsent::Ended,
            })?;
        self.called().store(now().0, Relaxed);
        trace::emit(|| trace::SvcrdmaCbCall {
            cid: self.cid(),
            xid,
            len: call.len(),
        });
        sending.post(None, None).map_err(|why| {
            self.shared().request_close(why);
            Unsent::Ended
        })
    }
}
