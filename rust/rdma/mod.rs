// SPDX-License-Identifier: GPL-2.0

//! Safe RDMA: the connection manager (`rdma_cm`) and the verbs (`ib_core`).
//!
//! Ownership follows the work request: what a Receive, a Send or an invalidation needs moves into
//! the queue pair when it is posted and comes back from its completion, so nothing can be touched
//! or freed while the device has it. A connection's user implements [`Handler`].
//!
//! ```text
//!   CmId <- Pd <- DmaBuf, Mr          (each keeps what it was made from alive)
//!   CmId, Pd, Cq <- Qp
//! ```
//!
//! | type | C |
//! |---|---|
//! | `cm::CmId` | `struct rdma_cm_id` |
//! | `pd::Pd` | `struct ib_pd` |
//! | `cq::Cq` | `struct ib_cq` |
//! | `qp::Qp` | `struct ib_qp` |
//! | `wqe::Wqe` | `struct ib_cqe` |
//! | `recv::RecvBuf` | `struct ib_recv_wr` |
//! | `send::SendBuf` | `struct ib_send_wr` |
//! | `mr::Mr` | `struct ib_mr`, `struct ib_reg_wr` |
//! | `local_inv::LocalInv` | `struct ib_send_wr` (LOCAL_INV) |
//! | `sg::SgTable` | `struct sg_table` |
//!
//! `proof` has the proofs that memory is out of the peer's reach.
//!
//! A Responder will need more, each in its place: a listener is a `CmId` whose events carry ids of
//! their own (`RDMA_CM_EVENT_CONNECT_REQUEST`); its event owns the child id, and
//! `cm::event_callback` answers other than 0 to have rdma_cm destroy a child that nobody took.
//! RDMA Reads and Writes become `rw`, over `struct rdma_rw_ctx`, whose chain goes in front of a
//! Send as registrations do. Send With Invalidate is another opcode that `Qp::post_send` writes
//! into a prepared Send, with the key in the field that LOCAL_INV uses.
//!
//! Nothing here knows of RPC.

pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dma;
mod handler;
pub(crate) mod local_inv;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod proof;
pub(crate) mod qp;
pub(crate) mod recv;
pub(crate) mod send;
mod sg;
pub(crate) mod wqe;

pub(crate) use handler::Handler;
