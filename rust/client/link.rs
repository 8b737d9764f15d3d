// SPDX-License-Identifier: GPL-2.0

//! Where a connection's events and completions arrive.
//!
//! Events come from the connection manager, completions from a workqueue, and neither may wait
//! for the connection to go: they ask the core to close it (`force_disconnect`), and
//! `connection::Connection::close` does so from another context.
//!
//! Lock order: `call::State`, then any lock here; locks here are not nested.

use super::call::Call;
use super::recv;
use super::stats::Stats;
use super::transport::Rdma;
use crate::proto::cm_private::CmPrivate;
use crate::proto::plan::Limits;
use crate::rdma::cm::Event;
use crate::rdma::cq::Completions;
use crate::rdma::local_inv::{
    LocalInvBox,
    LocalInvList, //
};
use crate::rdma::mr::{
    Idle,
    Mapped,
    Mr,
    MrList,
    Registered, //
};
use crate::rdma::proof::{
    Drained,
    Unexposed, //
};
use crate::rdma::qp::Qp;
use crate::rdma::recv::Received;
use crate::rdma::send::{
    SendBox,
    SendBufs,
    SendList,
    SendQueue, //
};
use crate::rdma::wqe::Status;
use crate::rdma::Handler;
use crate::sunrpc::{
    Backchannel,
    PinnedRqst,
    XprtHandle, //
};
use crate::support::completion::Completion;
use crate::support::errno;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};
use kernel::sync::{
    Arc,
    SetOnce,
    SpinLock, //
};

/// A step of connecting, as the connection manager reports it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A device was found.
    Address,
    /// A route was found.
    Route,
    /// The connection stands.
    Established,
}

/// What waits for a fence.
pub(crate) enum Waiter {
    /// A Reply that was checked; the RPC it completes.
    Reply(recv::Pending),
    /// A task that gave up its RPC.
    Release(Arc<Completion>),
}

/// How far connecting has come.
struct Progress {
    last: Option<Step>,
    error: Option<Error>,
    peer: CmPrivate,
}

/// The Send buffers.
struct Sends {
    free: SendList<Link>,
    queue: SendQueue<Link>,
}

/// The part of a connection that its events and completions can reach.
#[pin_data]
pub(crate) struct Link {
    /// The transport whose connection this is.
    pub(crate) xprt: XprtHandle<Rdma>,
    /// Its counters.
    pub(crate) stats: Arc<Stats>,
    /// Where Calls of the server go.
    pub(crate) backchannel: Arc<Backchannel>,
    /// The most requests in flight, and the credits we ask for.
    max_requests: Atomic<u32>,
    /// Set once the core has been asked to close the connection.
    lost: Atomic<i32>,
    /// Protects the outcome of connecting.
    #[pin]
    progress: SpinLock<Progress>,
    #[pin]
    address: Completion,
    #[pin]
    route: Completion,
    #[pin]
    established: Completion,
    /// Protects the free Send buffers, and the order of Sends.
    #[pin]
    sends: SpinLock<Sends>,
    /// Protects the free registrations.
    #[pin]
    mrs: SpinLock<MrList<Idle>>,
    /// Protects what waits for the queue pair to be drained.
    #[pin]
    stranded: SpinLock<LocalInvList<Link>>,
    /// Set with that lock held.
    drained: SetOnce<Drained>,
}

impl Link {
    /// The link of a connection to be. Context: may sleep.
    pub(crate) fn new(
        xprt: XprtHandle<Rdma>,
        stats: Arc<Stats>,
        backchannel: Arc<Backchannel>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                xprt,
                stats,
                backchannel,
                max_requests: Atomic::new(1),
                lost: Atomic::new(0),
                progress <- new_spinlock!(Progress {
                    last: None,
                    error: None,
                    peer: CmPrivate::DEFAULT,
                }),
                address <- Completion::new(),
                route <- Completion::new(),
                established <- Completion::new(),
                sends <- new_spinlock!(Sends {
                    free: SendList::new(),
                    queue: SendQueue::new(),
                }),
                mrs <- new_spinlock!(MrList::new()),
                stranded <- new_spinlock!(LocalInvList::new()),
                drained: SetOnce::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// The most requests in flight, and the credits we ask for.
    pub(crate) fn max_requests(&self) -> u32 {
        self.max_requests.load(Relaxed)
    }

    /// Sets [`Self::max_requests`], before the connection is established.
    pub(crate) fn set_max_requests(&self, requests: u32) {
        self.max_requests.store(requests, Relaxed);
    }

    fn step(&self, step: Step) -> &Completion {
        match step {
            Step::Address => &self.address,
            Step::Route => &self.route,
            Step::Established => &self.established,
        }
    }

    /// Waits for a step of connecting, at most `timeout` milliseconds.
    ///
    /// # Errors
    ///
    /// What the connection manager reported, or `ETIMEDOUT`.
    pub(crate) fn wait(&self, step: Step, timeout: u32) -> Result {
        let in_time = self.step(step).wait_timeout(timeout);
        match self.progress.lock().error {
            Some(error) => Err(error),
            None if in_time => Ok(()),
            None => Err(errno::timed_out()),
        }
    }

    fn reached(&self, step: Step, peer: Option<CmPrivate>) {
        {
            let mut progress = self.progress.lock();
            progress.last = Some(step);
            if let Some(peer) = peer {
                progress.peer = peer;
            }
        }
        self.step(step).complete_all();
    }

    /// The connection is lost, or will not come to be.
    fn failed(&self, error: Error) {
        let was_established = {
            let mut progress = self.progress.lock();
            progress.error.get_or_insert(error);
            progress.last == Some(Step::Established)
        };
        for step in [Step::Address, Step::Route, Step::Established] {
            self.step(step).complete_all();
        }
        if was_established {
            self.disconnect();
        }
    }

    /// Asks the core, once, to close the connection. Context: process.
    pub(crate) fn disconnect(&self) {
        if self.lost.cmpxchg(0, 1, Full).is_ok() {
            self.xprt.force_disconnect();
        }
    }

    /// From here on a failure is expected: the connection is being closed.
    pub(crate) fn expect_loss(&self) {
        self.lost.store(1, Relaxed);
    }

    /// What the peer said of itself when the connection was established.
    pub(crate) fn peer(&self) -> CmPrivate {
        self.progress.lock().peer
    }

    /// Takes a free Send buffer.
    pub(crate) fn take_send(&self) -> Option<SendBox<Link>> {
        let mut sends = self.sends.lock();
        if !sends.queue.has_room(2 * Limits::NFS_SAFE_SEGMENTS) {
            return None;
        }
        sends.free.pop()
    }

    /// Gives a Send buffer back.
    pub(crate) fn put_send(&self, buffer: SendBox<Link>) {
        self.sends.lock().free.push(buffer);
    }

    /// Registers `mrs` and sends a message ([`Qp::post_send`]).
    pub(crate) fn post(
        &self,
        qp: &Qp<Link>,
        mrs: MrList<Mapped>,
        buffer: SendBox<Link>,
        len: usize,
    ) -> (MrList<Registered>, Result) {
        let mut sends = self.sends.lock();
        qp.post_send(&mut sends.queue, mrs, buffer, len)
    }

    /// Takes a free registration.
    pub(crate) fn take_mr(&self) -> Option<Mr<Idle>> {
        self.mrs.lock().pop()
    }

    /// Gives a registration back.
    pub(crate) fn put_mr(&self, mr: Mr<Idle>) {
        self.mrs.lock().push(mr);
    }

    /// Gives registrations back.
    pub(crate) fn put_mrs(&self, mrs: MrList<Idle>) {
        self.mrs.lock().append(mrs);
    }

    /// The queue pair has been drained: resolves what could not be fenced, now and later, and
    /// lets go of all resources.
    pub(crate) fn close(&self, drained: Drained) {
        let fences = {
            let mut stranded = self.stranded.lock();
            self.drained.populate(drained);
            core::mem::take(&mut *stranded)
        };
        let Some(drained) = self.drained.as_ref() else {
            return;
        };
        self.resolve(fences, drained);
        // The guards go first, so that nothing is freed under a lock.
        let (free, unsignaled) = {
            let mut sends = self.sends.lock();
            (
                core::mem::take(&mut sends.free),
                sends.queue.drained(drained),
            )
        };
        let mrs = core::mem::take(&mut *self.mrs.lock());
        drop((free, unsignaled, mrs));
    }

    fn resolve(&self, mut fences: LocalInvList<Link>, drained: &Drained) {
        while let Some(mut fence) = fences.pop() {
            match fence.resolve(drained) {
                // The pin goes and the RPC goes on waiting; it is sent again when connected.
                Some(Waiter::Reply(pending)) => pending.abandon(fence),
                Some(Waiter::Release(done)) => done.complete_all(),
                None => {}
            }
        }
    }
}

impl Handler for Link {
    type Waiter = Waiter;

    fn cm_event(&self, event: Event<'_>) {
        match event {
            Event::AddressResolved => self.reached(Step::Address, None),
            Event::RouteResolved => self.reached(Step::Route, None),
            Event::Established(private_data) => {
                self.reached(Step::Established, Some(CmPrivate::decode(private_data)));
            }
            // mount(8) asks of this one whether an RDMA device leads to the server.
            // No route is the same to it; both pass, when a port or a fabric comes up again.
            Event::AddressError | Event::RouteError => self.failed(errno::protocol()),
            // Also what RoCE says when the server's Ethernet address changes meanwhile.
            Event::Unreachable => self.failed(errno::timed_out()),
            Event::Rejected { stale: false } => self.failed(errno::connection_refused()),
            Event::Rejected { stale: true }
            | Event::ConnectError
            | Event::Disconnected
            | Event::AddressChanged
            | Event::DeviceRemoval => self.failed(errno::not_connected()),
            Event::Other => {}
        }
    }

    fn received(&self, cx: &mut Completions<'_, Self>, message: Received<Self>) {
        recv::handle(self, cx, message);
    }

    fn sent(&self, buffers: SendBufs<Self>) {
        {
            let mut sends = self.sends.lock();
            let free = sends.queue.ended(buffers);
            sends.free.append(free);
        }
        self.xprt.write_space();
    }

    fn invalidated(
        &self,
        cx: &mut Completions<'_, Self>,
        inv: LocalInvBox<Self>,
        waiter: Waiter,
        mrs: MrList<Idle>,
        proof: Unexposed,
    ) {
        self.put_mrs(mrs);
        match waiter {
            Waiter::Reply(pending) => pending.finish(self, cx, Some(inv), proof),
            Waiter::Release(done) => done.complete_all(),
        }
    }

    fn invalidation_failed(&self, inv: LocalInvBox<Self>) {
        let drained = {
            let mut stranded = self.stranded.lock();
            match self.drained.as_ref() {
                Some(drained) => drained,
                None => {
                    stranded.push(inv);
                    drop(stranded);
                    self.disconnect();
                    return;
                }
            }
        };
        let mut fences = LocalInvList::new();
        fences.push(inv);
        self.resolve(fences, drained);
    }

    fn lost(&self, status: Status) {
        if !status.is_flush() {
            pr_debug!("a work request failed: {}\n", status.message());
        }
        self.disconnect();
    }
}

/// A request whose Reply is being handled.
pub(crate) type Pinned = PinnedRqst<Call>;
