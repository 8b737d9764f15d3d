// SPDX-License-Identifier: GPL-2.0

//! The handler of a connection's completions and events.

use super::{
    cm,
    cq::Completions,
    local_inv::LocalInvBox,
    mr::{
        Idle,
        MrList, //
    },
    proof::Unexposed,
    pull::PullBox,
    qp::{
        QpEvent,
        QpRef, //
    },
    recv::Received,
    send::SendBufs,
    wqe::{
        CompletionFacts,
        Status,
        WorkKind, //
    },
};
use crate::support::memalloc::ReserveScope;

/// The user of a connection: its events and completions arrive here.
///
/// A connection has one completion queue, which a work item polls (`IB_POLL_WORKQUEUE`): all
/// functions but [`Self::cm_event`] are called in process context and may sleep, but must not wait
/// for another completion. Of one connection they never run side by side.
pub(crate) trait Handler: Send + Sync + Sized + 'static {
    /// The user's data for each Receive.
    type Note: Send + Sync + Default;

    /// Lets the current task use the reserves of memory for a completion, as long as the result lives, if
    /// memory reclaim may wait for that. Context: completion.
    fn reserves(&self) -> Option<ReserveScope> {
        None
    }

    /// Handles an event of the connection.
    ///
    /// Context: process, may sleep. The id's handler mutex is held (`rdma_id_private`): the id
    /// must not be destroyed, and nothing may be waited for that destroys it.
    fn cm_event(&self, event: cm::CmEvent<'_>);

    /// Handles an event of the queue pair that the driver reports as serious. Context: process, may sleep.
    fn queue_pair_event(&self, event: QpEvent);

    /// Handles a message that arrived. The lock with which Receives are posted must be taken before the message
    /// is posted again.
    fn received(&self, cx: &mut Completions<'_, Self>, message: Received<Self>);

    /// Sends have ended, done or failed; [`SendQueue::ended`](super::send::SendQueue::ended) gives
    /// their buffers.
    fn sent(&self, cx: &mut Completions<'_, Self>, buffers: SendBufs<Self>);

    /// Traces the completion of a work request that was done, before it is handled. `facts` is called only if an
    /// event is enabled.
    fn trace_done(&self, kind: WorkKind, facts: impl FnOnce() -> CompletionFacts);

    /// Traces the completion of a work request that has failed, before it is handled.
    fn trace_failed(&self, kind: WorkKind, facts: CompletionFacts);

    /// Traces Receives that are about to be posted. `numbers` is called only if an event is enabled.
    fn trace_receives<I: Iterator<Item = u32>>(&self, qp: &QpRef<Self>, numbers: impl Fn() -> I);

    /// Handles the failure of a work request, which ends the connection. All posted work requests then fail one
    /// after the other, so this is called many times.
    fn lost(&self, status: Status);
}

/// The user of a connection that registers memory for the peer.
pub(crate) trait Invalidates: Handler {
    /// The object that waits for an invalidation.
    type Waiter: Send;

    /// Registrations were invalidated: their memory, for which `waiter` waits, is its owner's.
    fn invalidated(
        &self,
        cx: &mut Completions<'_, Self>,
        inv: LocalInvBox<Self>,
        waiter: Self::Waiter,
        mrs: MrList<Idle>,
        proof: Unexposed,
    );

    /// Handles an invalidation that was not executed, because the queue pair failed before it. The peer may
    /// reach the memory until the queue pair is destroyed; then
    /// [`LocalInv::resolve`](super::local_inv::LocalInv::resolve) completes the invalidation.
    fn invalidation_failed(&self, inv: LocalInvBox<Self>);
}

/// The user of a connection that reads the peer's memory.
pub(crate) trait Pulls: Handler {
    /// The object that waits for an RDMA Read.
    type Puller: Send;

    /// Waits until a task that is posting an RDMA Read has done so: takes the lock with which they are
    /// posted. Context: completion.
    fn wait_for_posting(&self);

    /// Handles the end of RDMA Reads. The data is in `pull`, or `pull` is `None` if they failed; then the
    /// connection is lost, and [`Handler::lost`] is called, too.
    fn pulled(
        &self,
        cx: &mut Completions<'_, Self>,
        waiter: Self::Puller,
        pull: Option<PullBox<Self>>,
        work_requests: u32,
    );
}
