// SPDX-License-Identifier: GPL-2.0

//! One RPC-over-RDMA connection of either role: the protocol's state over a queue pair.
//!
//! An [`Endpoint`] owns the objects that both roles need: the CM's id, the queue pair, Send buffers, posted
//! Receives, and the [`Connection`](crate::proto::connection::Connection) that decides about every message that
//! is sent or arrives. A [`Role`] is the part of the client or of the server. A role does not depend on the other
//! role, and the endpoint does not depend on sunrpc.
//!
//! - `state`: the data under the endpoint's lock; composing and posting a message
//! - `events`: completions and CM events, to the protocol and then to the role
//! - `buffers`: the Send buffers and Receives
//! - `config`: the protocol's configuration that both roles have in common
//! - `protocol`: the protocol's state, and a record of the calls on it
//! - `progress`: the steps of connecting
//! - `hostauth`: host authentication: the policy and the handshake
//! - `join`: messages in several parts
//! - [`memory`]: the memory that all connections share, in debugfs
//! - `tick`: time-outs
//! - `close`: the reasons for the end of a connection, and its order
//!
//! # The lock
//!
//! One spinlock protects the protocol's state, the Send buffers and the role's data for its requests. A
//! sender holds it from encoding the header to the end of `ib_post_send`. So messages are posted in the
//! order in which the protocol composed them, and a Reply is never handled before the request is entered as
//! sent. An arriving message takes the lock once.

mod buffers;
mod close;
mod config;
mod events;
pub(crate) mod hostauth;
mod join;
pub(crate) mod memory;
mod progress;
mod protocol;
mod recorder;
mod state;
mod tick;

pub(crate) use buffers::{
    Buffers,
    NewBuffers, //
};
pub(crate) use close::EndReason;
pub(crate) use config::{
    config,
    ANSWER, //
};
pub(crate) use events::Disposition;
pub(crate) use hostauth::Judgement;
pub(crate) use join::{
    Reassembly,
    ReassemblyQuota, //
};
pub(crate) use progress::Step;
pub(crate) use protocol::{
    Facts,
    Protocol,
    Terms, //
};
pub(crate) use state::{
    ComposeError,
    State, //
};
pub(crate) use tick::{
    Ticker,
    PEER_TIMEOUT, //
};

use crate::{
    proto::{
        connection::{
            negotiate::{
                Opening,
                Time, //
            },
            Arrived,
            Config,
            Event, //
        },
        wire::{
            error::ErrorReport,
            header::FixedWords,
            types::{
                MsgType,
                Version, //
            },
        },
    },
    rdma::{
        cm::{
            AcceptParams,
            CmId,
            ConnectParams, //
        },
        cq::Completions,
        device::{
            Attributes,
            Name, //
        },
        listen::ConnectRequest,
        pd::Pd,
        proof::{
            Destroyed,
            Invalidated, //
        },
        qp::{
            self,
            Qp,
            QpEvent,
            QpRef, //
        },
        recv::{
            Received,
            RecvBuf, //
        },
        send::{
            SendBuf,
            SendQueue, //
        },
        wqe::{
            CompletionFacts,
            WorkKind, //
        },
    },
    support::{
        errno,
        memalloc::{
            retry_enomem,
            ReserveScope,
            GFP_NORETRY, //
        },
        net::{
            Net,
            NetInterface,
            SockAddr, //
        },
        time,
        trace, //
    },
};
use hostauth::Standing;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        lock::{
            spinlock::SpinLockBackend,
            Guard, //
        },
        Arc,
        SetOnce,
        SpinLock, //
    },
};
use progress::Progress;

/// The client's or the server's part of an endpoint.
///
/// Methods that get `&mut Self::Locked` run with the endpoint's lock held: they do not sleep.
pub(crate) trait Role: Send + Sync + Sized + 'static {
    /// The role's data under the endpoint's lock.
    type Locked: Send;
    /// The data that an arriving message takes out of [`Self::Locked`].
    type Claim;
    /// The object that keeps a message after it was handled.
    type Pending: Send;
    /// The role's data for each Receive.
    type Note: Send + Sync + Default;

    /// The quota of memory for the reassembly of messages in several parts.
    const BUDGET: ReassemblyQuota;

    /// The kind of RPC messages that this role usually receives. The fast path handles this kind only.
    const FAST_PATH: MsgType;

    /// Returns the number of the connection, for traces.
    fn cid(&self) -> u32;

    /// Lets a completion use the reserves of memory, for [`Handler::reserves`](crate::rdma::Handler::reserves).
    fn reserves(&self) -> Option<ReserveScope> {
        None
    }

    /// Handles a valid RPC message of the kind [`FAST_PATH`](Self::FAST_PATH) that arrived in one part.
    /// `invalidated` is the memory that the peer invalidated with it. The endpoint is locked as long as the
    /// role keeps `state`.
    ///
    /// Context: completion. Does not wait for completions.
    fn on_fast_path(
        &self,
        shared: &Shared<Self>,
        state: LockedState<'_, Self>,
        arrived: Arrived<'_>,
        invalidated: Option<Invalidated>,
    ) -> Disposition<Self::Pending>;

    /// Takes the request that `event` concerns out of the role's state. Also takes `invalidated`, the memory
    /// that the peer invalidated, if the request has no other. Endpoint's lock held.
    fn claim(
        &self,
        protocol: &mut Protocol,
        locked: &mut Self::Locked,
        event: &Event<'_>,
        invalidated: &mut Option<Invalidated>,
    ) -> Self::Claim;

    /// Looks at the role's own time-outs. Returns whether a message of the role waits for the peer, so that the
    /// clock must go on. Endpoint's lock held.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    fn tick(&self, state: &mut State<Self>, now: Time) -> Result<bool, EndReason>;

    /// Sends the messages of the role that waited for room in the send queue, for Send buffers or for credits
    /// of the peer, or wakes their senders. Called when there may be more of them. Context: process, may sleep.
    /// Does not wait for completions.
    fn writable(&self, shared: &Shared<Self>, qp: &QpRef<Shared<Self>>);

    /// Traces the completion of a work request that was done. `facts` is called only if an event is enabled.
    /// Context: completion.
    fn trace_done(&self, kind: WorkKind, facts: impl FnOnce() -> CompletionFacts);

    /// Traces Receives that are about to be posted. `numbers` is called only if an event is enabled.
    fn trace_receives<I: Iterator<Item = u32>>(
        &self,
        qp: &QpRef<Shared<Self>>,
        numbers: impl Fn() -> I,
    );

    /// Traces the completion of a work request that has failed. Context: completion.
    fn trace_failed(&self, kind: WorkKind, facts: CompletionFacts);

    /// Traces that the device `name` of the connection to `peer` goes away. Context: process, may sleep.
    fn trace_removal(&self, name: &str, peer: &SockAddr);

    /// Traces an event after which the queue pair does not work. Context: process, may sleep.
    fn trace_queue_pair(&self, _event: QpEvent) {}

    /// Counts a message that arrived, before it is parsed. Context: completion.
    fn received(&self);

    /// Counts or traces a message of the peer that is answered by an error message. Context: completion.
    fn refused(&self, message: &Received<Shared<Self>>, fixed: &FixedWords, report: &ErrorReport);

    /// Handles a message of another kind, or in several parts. `invalidated` is the memory that the peer
    /// invalidated with it, unless `claim` has it. Context: completion. Does not wait for completions.
    fn arrived(
        &self,
        shared: &Shared<Self>,
        event: Event<'_>,
        claim: Self::Claim,
        message: &Received<Shared<Self>>,
        invalidated: Option<Invalidated>,
    ) -> Disposition<Self::Pending>;

    /// Keeps `message`, for which a handler has returned [`Disposition::Keep`]. Context: completion. Does not
    /// wait for completions.
    fn keep(
        &self,
        shared: &Shared<Self>,
        cx: &mut Completions<'_, Shared<Self>>,
        pending: Self::Pending,
        message: Received<Shared<Self>>,
    );

    /// Records the reason for the end of a connection that stood. Called once. Context: process, does not sleep.
    fn ended(&self, _why: EndReason) {}

    /// Traces the call of rdma_disconnect(), which has returned `rc`. `status` is 1 if the connection stood before
    /// the call, 0 if it never did, or else the error number by which it was lost. Context: process, may sleep.
    fn disconnected(&self, _rc: i32, _status: i32) {}

    /// Requests that the owner closes the endpoint, because the connection has ended or has to end. Called
    /// once.
    ///
    /// Context: process, does not sleep. Does not close the endpoint itself.
    fn lost(&self);

    /// Requests that the owner closes the endpoint, because the device is removed. The removal waits until the
    /// endpoint is closed. Also called if the connection was lost before.
    ///
    /// Context: process, does not sleep. Does not close the endpoint itself.
    fn device_removed(&self) {}

    /// Unmaps and frees the role's memory that the device or the peer could reach, after the queue pair was
    /// destroyed. Context: process, may sleep.
    fn destroyed(&self, shared: &Shared<Self>, proof: &Destroyed);
}

/// A guard of the endpoint's lock, with the data under the lock.
pub(crate) type LockedState<'a, R> = Guard<'a, State<R>, SpinLockBackend>;

/// The part of an endpoint that its events and completions can reach.
#[pin_data]
pub(crate) struct Shared<R: Role> {
    /// The role.
    pub(crate) role: R,
    #[pin]
    state: SpinLock<State<R>>,
    #[pin]
    progress: Progress,
    /// Set once closing has been asked for, or has begun.
    closing: Atomic<i32>,
    /// The proof that the queue pair is destroyed, once it is.
    destroyed: SetOnce<Destroyed>,
}

impl<R: Role> Shared<R> {
    /// Makes the shared part of an endpoint. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    fn new(role: R, locked: R::Locked) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                role,
                state <- new_spinlock!(State::new(locked)),
                progress <- Progress::new(),
                closing: Atomic::new(0),
                destroyed: SetOnce::new(),
            }),
            GFP_NORETRY,
        )
    }

    /// Takes the endpoint's lock.
    pub(crate) fn lock(&self) -> LockedState<'_, R> {
        self.state.lock()
    }

    /// Returns whether the connection is to be closed, or is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Relaxed) != 0
    }
}

/// A connection, from the resolved address to the destroyed queue pair.
///
/// The owner must [`close`](Self::close) it in the end. Closing takes it by value, so that no sender,
/// clock or task uses its queue pair any more.
pub(crate) struct Endpoint<R: Role> {
    qp: Qp<Shared<R>>,
    pd: Arc<Pd>,
    id: Arc<CmId>,
    shared: Arc<Shared<R>>,
    standing: Standing,
}

/// The time that the connection manager has to report a time-out, in milliseconds.
const GRACE: u32 = 1_000;

/// An id whose device is not known yet.
pub(crate) struct Unresolved<R: Role> {
    id: Arc<CmId>,
    shared: Arc<Shared<R>>,
}

impl<R: Role> Unresolved<R> {
    /// Creates an id for a connection to a peer.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(role: R, locked: R::Locked, net: Net) -> Result<Self> {
        let shared = Shared::new(role, locked)?;
        let id = Arc::new(CmId::new(net, shared.clone())?, GFP_NORETRY)?;
        Ok(Self { id, shared })
    }

    /// Returns the part that events reach, by which connecting can be [given up](Shared::give_up).
    pub(crate) fn shared(&self) -> &Arc<Shared<R>> {
        &self.shared
    }

    /// Finds a device that leads to `peer`. Nothing is sent to the peer's RPC service.
    ///
    /// `timeout` is for the address and for the route, each, in milliseconds.
    ///
    /// # Errors
    ///
    /// The error that the connection manager reported, or `ETIMEDOUT`.
    ///
    /// Context: process, may sleep.
    pub(crate) fn resolve(self, peer: SockAddr, timeout: u32) -> Result<Resolved<R>> {
        let Self { id, shared } = self;
        id.resolve_address(peer, timeout)?;
        shared.progress.wait(Step::Address, timeout + GRACE)?;
        id.resolve_route(timeout)?;
        shared.progress.wait(Step::Route, timeout + GRACE)?;
        Ok(Resolved {
            id,
            shared,
            queue_pair: None,
        })
    }
}

/// An id that leads to the peer, on a device that is known.
pub(crate) struct Resolved<R: Role> {
    id: Arc<CmId>,
    shared: Arc<Shared<R>>,
    /// The number of the peer's queue pair, if the peer connects; 0 where the connection manager does not
    /// receive it.
    queue_pair: Option<u32>,
}

impl<R: Role> Resolved<R> {
    /// Creates an id for the connection that a peer requests. The peer gets no answer yet. Dropping the id
    /// refuses the request.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    pub(crate) fn from_connect_request(
        role: R,
        locked: R::Locked,
        request: KBox<ConnectRequest>,
    ) -> Result<Self> {
        let shared = Shared::new(role, locked)?;
        let queue_pair = Some(request.queue_pair());
        let id = Arc::new(
            ConnectRequest::into_id(request, shared.clone()),
            GFP_NORETRY,
        )?;
        Ok(Self {
            id,
            shared,
            queue_pair,
        })
    }

    /// Returns the role.
    pub(crate) fn role(&self) -> &R {
        &self.shared.role
    }

    /// Returns the attributes of the device.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the device was removed.
    pub(crate) fn attributes(&self) -> Result<Attributes> {
        self.id.attributes()
    }

    /// Returns the link to the peer.
    pub(crate) fn link(&self) -> NetInterface {
        self.id.link()
    }

    /// Makes the queue pair of a connection. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, an error of the device, or an error of [`Judgement::enter`].
    pub(crate) fn endpoint(self, size: qp::Size, judgement: Judgement) -> Result<Endpoint<R>> {
        let Self {
            id,
            shared,
            queue_pair,
        } = self;
        let (standing, mut hostauth) = judgement.enter(&shared)?;
        //= V1-139, V2-178, V2-180
        let pd = Arc::new(Pd::new(id.clone())?, GFP_NORETRY)?;
        let qp = Qp::new(pd.clone(), shared.clone(), size, queue_pair.is_none())?;
        if let Some(hostauth) = &mut hostauth {
            let own = (!id.is_iwarp()).then(|| qp.number());
            hostauth.connects(&id.source(), &id.peer(), own);
            if let Some(queue_pair) = queue_pair {
                hostauth.begin(queue_pair);
            }
        }
        let mut state = shared.lock();
        state.queue = SendQueue::of(&qp);
        state.hostauth = hostauth;
        drop(state);
        Ok(Endpoint {
            qp,
            pd,
            id,
            shared,
            standing,
        })
    }
}

impl<R: Role> Endpoint<R> {
    /// Connects with the configuration `config` and the opening `opening`, and waits at most `timeout` milliseconds
    /// for the peer to accept.
    ///
    /// # Errors
    ///
    /// The error that the connection manager reported, `ETIMEDOUT`, or `ENOTCONN` if the device does not connect the
    /// queue pair.
    ///
    /// Context: process, may sleep.
    pub(crate) fn connect(
        &self,
        config: Config,
        opening: Opening,
        params: &ConnectParams,
        timeout: u32,
    ) -> Result {
        self.shared.lock().opening = Some((config, opening));
        self.qp.connect(params)?;
        self.shared.progress.wait(Step::Established, timeout)?;
        self.qp.establish().map_err(|_| errno::not_connected())
    }

    /// Accepts the peer, whose protocol state is `protocol`. Receives are posted.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// The peer has given up, the local address has moved, or the device goes away.
    pub(crate) fn accept(&self, protocol: Protocol, params: &AcceptParams) -> Result {
        let mut state = self.shared.lock();
        let hostauth = state.hostauth.take();
        state.protocol = Some(protocol.with(hostauth));
        drop(state);
        let progress = &self.shared.progress;
        // An end that comes after this is an event. One that came before is not, and the connection
        // manager does not remember all of them (ADDR_CHANGE).
        progress.reached(Step::Established);
        progress.wait(Step::Established, 0)?;
        self.qp.accept(params)
    }

    /// Waits until the version is settled. Returns `None` if the version is 1 for now: the answer to the first
    /// Call may still change it. If this side begins with a message that is not a Call, waits at most
    /// `timeout` milliseconds for the answer of the peer.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, or the error of the connection's end.
    ///
    /// Context: process, may sleep.
    pub(crate) fn wait_for_version(&self, timeout: u32) -> Result<Option<Version>> {
        let mut state = self.shared.lock();
        if let Err(why) = state.tick(&self.qp) {
            drop(state);
            self.shared.request_close(why);
            return Err(why.errno());
        }
        if state
            .protocol()
            .is_some_and(|protocol| protocol.is_asking())
        {
            drop(state);
            let settled = self.shared.progress.wait(Step::Settled, timeout);
            state = self.shared.lock();
            if let (Err(_), Some(protocol)) = (settled, &mut state.protocol) {
                protocol.give_up();
            }
            settled?;
        }
        Ok(state.protocol().and_then(Protocol::lasting_version))
    }

    /// Returns the version, if it will not change any more, once the peer has accepted.
    pub(crate) fn lasting_version(&self) -> Option<Version> {
        let state = self.shared.lock();
        state.protocol().and_then(Protocol::lasting_version)
    }

    /// Makes buffers, and posts the Receives among them. From then on the peer may have `messages` messages
    /// in flight (version 2). Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// As for [`Self::make`].
    pub(crate) fn make_buffers(&self, buffers: &Buffers, messages: u16) -> Result {
        self.make(buffers)?;
        let mut state = self.shared.lock();
        if let Some(protocol) = &mut state.protocol {
            protocol.set_ceiling(messages);
        }
        state.set_messages(messages);
        Ok(())
    }

    /// Makes buffers, and posts the Receives among them. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory. `EIO`: the queue pair does not take a Receive.
    pub(crate) fn make(&self, buffers: &Buffers) -> Result {
        for _ in 0..buffers.receives {
            let buffer = self.retry_enomem(|| RecvBuf::new(self.pd.clone(), buffers.recv_len))?;
            let _posting = self.shared.lock();
            self.qp.post_recv(buffer)?;
        }
        for _ in 0..buffers.sends {
            let buffer = self.retry_enomem(|| SendBuf::new(self.pd.clone(), buffers.send_len))?;
            self.shared.lock().sends.push(buffer);
        }
        Ok(())
    }

    /// Calls `make` as [`retry_enomem`] does, until the connection is to be closed. Context: process,
    /// may sleep.
    ///
    /// # Errors
    ///
    /// The last of `make`, or `ENOTCONN`.
    pub(crate) fn retry_enomem<T>(&self, mut make: impl FnMut() -> Result<T>) -> Result<T> {
        retry_enomem(|| {
            if self.shared.is_closing() {
                return Err(errno::not_connected());
            }
            make()
        })
    }

    /// Returns the part that events and completions reach.
    pub(crate) fn shared(&self) -> &Arc<Shared<R>> {
        &self.shared
    }

    /// Returns the queue pair.
    pub(crate) fn qp(&self) -> &Qp<Shared<R>> {
        &self.qp
    }

    /// Returns this side's address.
    pub(crate) fn source(&self) -> SockAddr {
        self.id.source()
    }

    /// Returns the peer's address, if the peer asked for the connection.
    pub(crate) fn peer(&self) -> SockAddr {
        self.id.peer()
    }

    /// Returns the name of the device, or `None` if the device was removed, and the number of its port.
    pub(crate) fn device(&self) -> (Option<Name>, u32) {
        let name = self.id.attributes().ok().map(|attributes| attributes.name);
        (name, self.id.port())
    }

    /// Returns the protection domain.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

/// Returns the work request with this number of connection number `cid` as trace events have it. Context: any.
#[cold]
pub(crate) fn work_id<R: Role>(cid: u32, qp: &QpRef<Shared<R>>, number: u32) -> trace::WorkId {
    trace::WorkId {
        cid,
        cq_id: qp.cq_id(),
        completion_id: number as i32,
    }
}

/// Returns the facts of a completion on connection number `cid` as trace events have them. Context: any.
pub(crate) fn completion(cid: u32, facts: &CompletionFacts) -> trace::Completion {
    trace::Completion {
        id: trace::WorkId {
            cid,
            cq_id: facts.cq_id,
            completion_id: facts.number as i32,
        },
        status: facts.status,
        vendor_err: facts.vendor_err,
    }
}

/// Returns the current time in milliseconds, as the protocol counts time. Context: any.
pub(crate) fn now() -> Time {
    Time(time::milliseconds())
}
