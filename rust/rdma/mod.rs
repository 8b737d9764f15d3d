// SPDX-License-Identifier: GPL-2.0

//! Safe RDMA: the connection manager (`rdma_cm`) and the verbs (`ib_core`).
//!
//! Ownership follows the work request: the buffers of a Receive, a Send or an invalidation move into the
//! queue pair when it is posted and come back from its completion, so they cannot be accessed or freed
//! while the device uses them. Boxes that the device does not give back come back when the
//! queue pair is destroyed (`ledger`). A connection's user implements [`Handler`], and
//! [`Invalidates`] or [`Pulls`] if it posts such work requests.
//!
//! ```text
//!   CmId <- Pd <- DmaBuf, Mr          (each keeps the objects that it was made from)
//!   CmId, Pd, Cq <- Qp
//! ```
//!
//! | type | C |
//! |---|---|
//! | `cm::CmId` | `struct rdma_cm_id` |
//! | `listen::CmListener`, `listen::ConnectRequest` | `struct rdma_cm_id` that listens, that waits to be accepted |
//! | `pd::Pd` | `struct ib_pd` |
//! | `cq::Cq` | `struct ib_cq` |
//! | `qp::Qp` | `struct ib_qp` |
//! | `wqe::Wqe` | `struct ib_cqe` |
//! | `recv::RecvBuf` | `struct ib_recv_wr` |
//! | `send::SendBuf` | `struct ib_send_wr` |
//! | `mr::Mr` | `struct ib_mr`, `struct ib_reg_wr` |
//! | `local_inv::LocalInv` | `struct ib_send_wr` (LOCAL_INV) |
//! | `rw::Write`, `pull::Pull` | `struct rdma_rw_ctx` |
//! | `sg::SgTable` | `struct sg_table` |
//!
//! `proof` has the proofs that memory is out of the peer's reach.
//!
//! This layer does not depend on RPC.

pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dma;
pub(crate) mod edge;
mod handler;
mod ledger;
pub(crate) mod listen;
pub(crate) mod local_inv;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod proof;
pub(crate) mod pull;
pub(crate) mod qp;
pub(crate) mod recv;
pub(crate) mod rw;
pub(crate) mod send;
mod sg;
pub(crate) mod wqe;

pub(crate) use handler::{
    Handler,
    Invalidates,
    Pulls, //
};
