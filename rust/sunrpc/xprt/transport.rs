// SPDX-License-Identifier: GPL-2.0

//! The trait that a transport of the RPC client implements (`rust/client/transport.rs`).

use super::{
    backchannel::Backchannel,
    rqst::Rqst,
    send_lock::SendLock,
    Xprt,
    XprtHandle, //
};
use crate::{
    sunrpc::xdr_buf::CallBuf,
    support::{
        debugfs::Show,
        errno,
        net::SockAddr, //
    },
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    sync::Arc, //
};

/// A transport; this folder keeps the core's rules for it.
///
/// "Send lock" is the core's `XPRT_LOCKED`: it serialises connect, close and send. [`SendLock`]
/// is the proof that it is held. [`Show`] prints its file in debugfs.
pub(crate) trait Transport: Show + Send + Sync + Sized + 'static {
    /// The transport's data of each request, which live as long as the transport.
    type Request: Send + Sync;

    /// A connection that stands. Dropping it closes it, which sleeps. Afterwards the peer reaches no
    /// memory of any request, and nothing of the connection refers to one.
    type Connection: Send + Unpin;

    /// The most bytes of payload in one RPC.
    const MAX_PAYLOAD: usize;

    /// Returns the number of requests that a new transport can have in flight.
    fn slot_count() -> u32;

    /// Creates a transport that is not connected; `xprt` is for its handlers. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// The error with which the creation of the transport fails.
    fn create(xprt: XprtHandle<Self::Request>) -> Result<Arc<Self>>;

    /// Makes the transport's data of a new request; `index` is below [`Self::slot_count`], and the value of
    /// [`Rqst::index`].
    fn new_request(index: u32) -> impl PinInit<Self::Request, Error>;

    /// Connects to `peer`. One attempt is made at a time, while no connection is installed.
    ///
    /// Once `is_given_up` returns true, the attempt is not needed any more. [`Self::give_up`] is called after
    /// that; the step that it has to end may begin later.
    ///
    /// Context: process, may sleep. The send lock is not held. Does not enter file system reclaim.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: the attempt has failed.
    fn connect(
        &self,
        xprt: &Xprt,
        peer: SockAddr,
        is_given_up: impl Fn() -> bool,
    ) -> Result<Self::Connection, ConnectError>;

    /// Makes an attempt to connect end soon. Context: process, may sleep.
    fn give_up(&self);

    /// Sends on `connection` from now on. Context: process, does not sleep. The send lock is held.
    fn install(&self, lock: &mut SendLock<'_>, xprt: &Xprt, connection: Self::Connection);

    /// Closes the connection that is installed, if there is one.
    ///
    /// Context: process, may sleep. The send lock is held.
    fn close(&self, lock: &mut SendLock<'_>, xprt: &Xprt);

    /// Sends a request whose buffers are complete, if there is a credit for it.
    ///
    /// After `NotConnected`, [`Self::close`] is called.
    ///
    /// Context: process, may sleep. The send lock is held. Does not wait for memory, because
    /// writeback may depend on it.
    ///
    /// # Errors
    ///
    /// [`XprtSendError`]: the request was not sent; the core sends it again later or ends its RPC.
    fn send(
        &self,
        lock: &mut SendLock<'_>,
        rqst: &Rqst<Self::Request>,
    ) -> Result<(), XprtSendError>;

    /// Returns the transport's backchannel.
    fn backchannel(&self) -> &Backchannel;

    /// Returns the current maximum length of a Call of the server, and of its Reply, in bytes.
    ///
    /// Context: any. rpc_max_bc_payload() calls it in an RCU read-side section.
    fn max_callback(&self) -> usize;

    /// Sends the Reply to a Call of the server.
    ///
    /// Context: process, may sleep. The send lock is held. Does not wait for memory, because writeback may depend
    /// on it.
    ///
    /// # Errors
    ///
    /// [`XprtSendError`]: the Reply was not sent.
    fn send_reply(
        &self,
        lock: &mut SendLock<'_>,
        xid: u32,
        reply: &CallBuf<'_>,
    ) -> Result<(), XprtSendError>;

    /// Returns the memory of a request to its owner: the peer must not reach any of it when this
    /// returns. The credit of a request whose Reply is outstanding stays with the Reply
    /// ([`Xprt::owes_reply`]). Context: process, may sleep. The send lock is not held.
    fn release(&self, rqst: &Rqst<Self::Request>);

    /// Closes the connection that stands, because no Reply has come in time, if `is_overdue` confirms it for
    /// that connection. Context: process, may sleep. No lock is held.
    fn overdue(&self, is_overdue: impl FnOnce() -> bool);

    /// Returns the number of Calls that the server lets be outstanding, or 0 without a connection. Context: process,
    /// may sleep. No lock is held.
    fn credits(&self) -> u32;

    /// Buffers longer than usual were allocated for messages of `bytes` bytes. Context: process,
    /// does not sleep.
    fn buffers_grew(&self, bytes: usize);

    /// Returns this side's address of the connection, if there is a connection. Context: process, may sleep. No
    /// lock is held.
    fn source_address(&self) -> Option<SockAddr>;

    /// Breaks the connection, for the fault injection of sunrpc.
    ///
    /// Context: process, may sleep. The send lock is not always held.
    fn inject_disconnect(&self);

    /// Prints the `xprt:` line of /proc/self/mountstats. Context: process, may sleep.
    fn print_stats(&self, xprt: &Xprt, seq: &SeqFile);
}

/// The reason why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XprtSendError {
    /// The connection is unusable: it is closed, and the request sent again on the next.
    NotConnected,
    /// The transport called [`Xprt::wait_for_credit`]: the sender waits for [`Xprt::credit_is_free`].
    NoCredit,
    /// The transport called [`Xprt::wait_for_buffer_space`]: the sender waits for
    /// [`Xprt::write_space`].
    NoBuffer,
    /// Something local is short; the sender tries again in a quarter of a second.
    NoMemory,
    /// The message is longer than the transport can carry: the RPC ends.
    TooLarge,
    /// The device cannot use the memory of the message: the RPC ends.
    Unmappable,
}

impl XprtSendError {
    /// Returns whether the RPC ends, because every further attempt would fail as well.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::TooLarge | Self::Unmappable)
    }

    /// Returns the error in words, for traces.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotConnected => "no connection",
            Self::NoCredit => "no credit",
            Self::NoBuffer => "no registration or buffer",
            Self::NoMemory => "no memory",
            Self::TooLarge => "too large",
            Self::Unmappable => "memory cannot be mapped",
        }
    }

    /// Returns the error number by which call_transmit_status() reacts as described here, or the status
    /// of an RPC that ends.
    pub(crate) fn to_errno(self) -> kernel::ffi::c_int {
        match self {
            Self::NotConnected => errno::not_connected(),
            Self::NoCredit => errno::no_slot(),
            Self::NoBuffer => EAGAIN,
            Self::NoMemory => errno::no_buffers(),
            Self::TooLarge => errno::message_size(),
            Self::Unmappable => EIO,
        }
        .to_errno()
    }
}

/// An error of a local operation is temporary, unless its number says otherwise.
impl From<Error> for XprtSendError {
    fn from(error: Error) -> Self {
        if error == errno::not_connected() {
            Self::NotConnected
        } else if error == errno::message_size() {
            Self::TooLarge
        } else if error == EAGAIN {
            Self::NoBuffer
        } else {
            Self::NoMemory
        }
    }
}

/// The reason why an attempt to connect has failed.
///
/// The core gets no other errors. An error that it does not know is final for every waiting RPC,
/// even on a hard mount (call_connect_status). But a device that lacks a queue pair, an address or
/// memory may have it later, or another device may have it.
///
/// `ENETUNREACH` and `ENETDOWN` end the RPCs of mounts with the option `fatal_neterrors`
/// (`RPC_TASK_NETUNREACH_FATAL`), which is the default in a network namespace; other mounts try
/// again. rdma_resolve_addr() returns `ENETUNREACH` at once when the namespace has no route to the
/// server. Linux 7.2 never returns `ENETDOWN` there. No event of the connection manager stands for
/// either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectError {
    /// The peer refused.
    Refused,
    /// No RDMA device that the transport can use leads to the peer, or the peers have no common
    /// protocol. mount(8) ends with this error at once, as with `CallbackRefused`.
    NoRoute,
    /// The network namespace has no route to the peer.
    NetworkUnreachable,
    /// The network interface that leads to the peer is down.
    NetworkDown,
    /// The connection was lost while it was made.
    NotConnected,
    /// The peer did not answer in time.
    TimedOut,
    /// Something local is short.
    NoMemory,
    /// The attempt was given up. A task that still needs a connection asks for another attempt.
    GivenUp,
}

impl ConnectError {
    /// Returns the error that waiting RPCs are woken with.
    pub(crate) fn to_errno(self) -> kernel::ffi::c_int {
        match self {
            Self::Refused => errno::connection_refused(),
            Self::NetworkUnreachable => errno::network_unreachable(),
            Self::NetworkDown => errno::network_down(),
            Self::NotConnected => errno::not_connected(),
            Self::TimedOut => errno::timed_out(),
            Self::NoMemory => errno::no_buffers(),
            Self::GivenUp => EAGAIN,
            Self::NoRoute => errno::protocol(),
        }
        .to_errno()
    }
}

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        if error == errno::connection_refused() {
            Self::Refused
        } else if error == errno::not_connected()
            // rdma_cm chooses a port at random, which on iWARP may be one of TCP's: the next attempt
            // gets another one.
            || error == errno::address_in_use()
            || error == errno::address_not_available()
        {
            Self::NotConnected
        } else if error == errno::timed_out() {
            Self::TimedOut
        } else if error == ENOMEM || error == errno::no_buffers() {
            Self::NoMemory
        } else if error == errno::canceled() {
            Self::GivenUp
        } else if error == errno::network_unreachable() {
            Self::NetworkUnreachable
        } else if error == errno::network_down() {
            Self::NetworkDown
        } else {
            Self::NoRoute
        }
    }
}
