// SPDX-License-Identifier: GPL-2.0

//! Safe sunrpc: the interface of a transport to the RPC core of the client (`net/sunrpc/xprt.c`,
//! `clnt.c`) and to the RPC core of the server (`net/sunrpc/svc_xprt.c`).
//!
//! - [`xprt`]: the client's transport switch; the core's rules are kept there, so that a
//!   [`Transport`] only moves messages
//! - [`svc`]: the server's transport switch, with the pages of its requests
//! - [`xdr_buf`]: the buffers of an RPC message
//! - [`class`]: the creation of transports that send Calls, the client's and the server's
//! - [`address`]: the strings in which the core shows an address
//!
//! This layer does not depend on RDMA.

pub(crate) mod address;
pub(crate) mod class;
pub(crate) mod svc;
pub(crate) mod xdr_buf;
pub(crate) mod xprt;

pub(crate) use xdr_buf::{
    CallBuf,
    Extent,
    Measures,
    XdrPart, //
};
pub(crate) use xprt::{
    backchannel::{
        self,
        Backchannel, //
    },
    class::XprtRegistration,
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
        Transport,
        XprtSendError, //
    },
    Xprt,
    XprtHandle, //
};
