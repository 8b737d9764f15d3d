// SPDX-License-Identifier: GPL-2.0

//! Safe sunrpc: what the RPC client core (`net/sunrpc/xprt.c`, `clnt.c`) asks of a transport.
//!
//! - [`xprt`]: the client's transport switch; the core's rules are kept there, so that a
//!   [`Transport`] only moves messages
//! - [`xdr_buf`]: the buffers of an RPC message
//! - [`address`]: the strings by which the core shows an address
//!
//! Nothing here knows of RDMA.

pub(crate) mod address;
pub(crate) mod xdr_buf;
pub(crate) mod xprt;

pub(crate) use xdr_buf::{
    CallBuf,
    Extent,
    Measures,
    Part, //
};
pub(crate) use xprt::{
    backchannel::{
        self,
        Backchannel, //
    },
    class::Registration,
    rqst::{
        PinnedRqst,
        Rqst, //
    },
    send_lock::{
        SendCell,
        SendLock, //
    },
    transport::{
        ConnectError,
        SendError,
        Transport, //
    },
    Xprt,
    XprtHandle, //
};
