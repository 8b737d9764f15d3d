// SPDX-License-Identifier: GPL-2.0

//! Safe sunrpc: what the RPC client core (`net/sunrpc/xprt.c`, `clnt.c`) asks of a transport.
//!
//! The core's side of the work is done here once, so that a [`Transport`] only moves messages:
//! the connect protocol with its lock, cookie and wake-ups (`connect`), request slots and their
//! buffers (`slot`), the rules around a send (`ops`), and pinning a request while its reply is
//! handled (`rqst`).
//!
//! Nothing here knows of RDMA.

pub(crate) mod address;
pub(crate) mod backchannel;
pub(crate) mod class;
pub(crate) mod connect;
pub(crate) mod ops;
pub(crate) mod rqst;
pub(crate) mod slot;
pub(crate) mod xdr_buf;
pub(crate) mod xprt;

pub(crate) use backchannel::Backchannel;
pub(crate) use class::Registration;
pub(crate) use ops::Transport;
pub(crate) use rqst::{
    PinnedRqst,
    Rqst, //
};
pub(crate) use xdr_buf::XdrBuf;
pub(crate) use xprt::{
    Xprt,
    XprtHandle, //
};
