// SPDX-License-Identifier: GPL-2.0

//! Safe RDMA: the connection manager (`rdma_cm`) and the verbs (`ib_core`).
//!
//! Ownership follows the work request: what a Receive, a Send or a fence needs moves into the
//! queue pair when it is posted and comes back from its completion, so nothing can be touched
//! or freed while the device has it. A connection's user implements [`Handler`].
//!
//! ```text
//!   CmId <- Pd <- DmaBuf, Mr          (each keeps what it was made from alive)
//!   CmId, Pd, Cq, Cq <- Qp
//! ```
//!
//! Nothing here knows of RPC.

use kernel::prelude::*;

pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dma;
pub(crate) mod fence;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod recv;
pub(crate) mod send;

/// The user of a connection: its events and completions arrive here.
///
/// The device's completion queues are polled from a workqueue, so completions run in process
/// context; they must not wait for other completions.
pub(crate) trait Handler: Send + Sync + Sized + 'static {
    /// What a fence carries for its completion.
    type Fenced: Send;

    /// Something happened to the connection.
    ///
    /// Context: process, may sleep. The id's handler mutex is held: the id must not be
    /// destroyed, and nothing may be waited for that destroys it.
    fn cm_event(&self, event: cm::Event<'_>);

    /// A message arrived. `qp` is the queue pair it arrived on.
    fn received(&self, qp: &qp::QpRef<Self>, message: recv::Received<Self>);

    /// Sends have ended and their buffers are free.
    fn sent(&self, buffers: send::SendBufs<Self>);

    /// A fence is done: the memory of its registrations, which are idle now, is its owner's.
    fn fenced(
        &self,
        qp: &qp::QpRef<Self>,
        fence: KBox<fence::FenceWqe<Self>>,
        mrs: mr::MrList<mr::Idle>,
        proof: mr::Unexposed,
    );

    /// The queue pair failed before a fence; the peer may still reach the memory, until the
    /// queue pair is drained and the fence resolved ([`fence::Fence::resolve`]).
    fn fence_failed(&self, fence: KBox<fence::FenceWqe<Self>>);

    /// A work request failed: the connection is lost. Work requests that were posted come back
    /// as failed, one after the other, so this is called many times.
    fn lost(&self, status: cq::Status);
}
