// SPDX-License-Identifier: GPL-2.0

//! The requester as a role of an endpoint: where each event of a connection goes.

use super::{
    complete::{
        self,
        Pending,
        ReplyClaim,
        Waiter, //
    },
    history::History,
    registrations::{
        Pool,
        Requests, //
    },
    request::Request,
    stats::Stats, //
};
use crate::{
    endpoint::{
        Disposition,
        EndReason,
        LockedState,
        Protocol,
        ReassemblyQuota,
        Role,
        Shared, //
    },
    proto::{
        connection::{
            Arrived,
            Config,
            Event, //
        },
        negotiate::{
            Opening,
            Time, //
        },
        types::MsgType, //
    },
    rdma::{
        cq::Completions,
        local_inv::LocalInvBox,
        mr::{
            Idle,
            Mr,
            MrList, //
        },
        proof::{
            Destroyed,
            Invalidated,
            Unexposed, //
        },
        recv::Received, //
    },
    sunrpc::{
        Backchannel,
        XprtHandle, //
    },
    support::{
        memalloc::ReserveScope,
        racy::Racy, //
    }, //
};
use kernel::{
    sync::{
        Arc,
        SetOnce, //
    }, //
};

/// The requester's side of a connection.
pub(crate) struct Client {
    /// The transport whose connection this is.
    pub(super) xprt: XprtHandle<Request>,
    /// Its counters.
    pub(super) stats: Arc<Stats>,
    /// Where Calls of the server go.
    pub(super) backchannel: Arc<Backchannel>,
    /// The memory of its connections.
    pub(super) history: Arc<History>,
    /// The idle registrations of the connection.
    pub(super) pool: Pool,
    /// True if properties may have arrived since the sender has looked (version 2). Properties that arrive
    /// before a Reply are seen by the sender of each Call after that Reply.
    pub(super) peer_limits_changed: Racy<bool>,
    /// The number of the connection.
    pub(super) cid: u32,
    /// The configuration of the connection, and how its first version is found; known when the device is.
    begin: SetOnce<(Config, Opening)>,
}

impl Client {
    pub(super) fn new(
        xprt: XprtHandle<Request>,
        stats: Arc<Stats>,
        backchannel: Arc<Backchannel>,
        history: Arc<History>,
        cid: u32,
    ) -> Self {
        Self {
            history,
            pool: Pool::new(),
            peer_limits_changed: Racy::new(false),
            cid,
            xprt,
            stats,
            backchannel,
            begin: SetOnce::new(),
        }
    }

    /// Sets the configuration of the connection, and how its first version is found. To be called once,
    /// before connecting.
    pub(super) fn set_config(&self, config: Config, opening: Opening) {
        self.begin.populate((config, opening));
    }

    /// Returns the protocol's configuration, once it is set.
    pub(super) fn config(&self) -> Option<&Config> {
        self.begin.as_ref().map(|(config, _)| config)
    }

    /// Says whether the version is negotiated in-band, and not by the announcement of the server.
    pub(super) fn negotiates_in_band(&self) -> bool {
        let opening = self.begin.as_ref().map(|(_, opening)| *opening);
        matches!(opening, Some(Opening::InBand(_)))
    }

    /// Gives a registration back. Context: process, does not sleep.
    #[inline]
    pub(super) fn give_back(&self, mr: Mr<Idle>) {
        let wanted = self.pool.put(mr);
        self.wake_sender(wanted);
    }

    /// Gives registrations back. Context: process, does not sleep.
    pub(super) fn give_back_all(&self, mrs: MrList<Idle>) {
        let wanted = self.pool.put_all(mrs);
        self.wake_sender(wanted);
    }

    /// Wakes the sender, if it waits for registrations. Context: process, does not sleep.
    #[inline]
    pub(super) fn wake_sender(&self, wanted: bool) {
        if wanted {
            self.xprt.write_space();
        }
    }
}

impl Role for Client {
    type Locked = Requests;
    type Claim = ReplyClaim;
    type Pending = Pending;
    type Waiter = Waiter;
    type Note = ();

    const BUDGET: ReassemblyQuota = ReassemblyQuota::Requester;
    const FAST_PATH: MsgType = MsgType::Reply;

    fn begin(&self, private_data: &[u8], now: Time) -> Option<Protocol> {
        let (config, opening) = self.begin.as_ref()?;
        Some(Protocol::client(
            self.cid,
            config,
            *opening,
            private_data,
            now,
        ))
    }

    fn tick(&self, now: Time) {
        if self.history.expire(now) {
            self.peer_limits_changed.set(true);
        }
    }

    fn cid(&self) -> u32 {
        self.cid
    }

    #[inline]
    fn reserves(&self) -> Option<ReserveScope> {
        self.xprt.reserves("completion")
    }

    #[inline]
    fn received(&self) {
        self.xprt.peer_is_alive();
    }

    #[inline(always)]
    fn on_fast_path(
        &self,
        shared: &Shared<Self>,
        state: LockedState<'_, Self>,
        arrived: Arrived<'_>,
        invalidated: Option<Invalidated>,
    ) -> Disposition<Pending> {
        complete::reply(shared, state, arrived, invalidated)
    }

    fn claim(
        &self,
        protocol: &mut Protocol,
        requests: &mut Requests,
        event: &Event<'_>,
        invalidated: &mut Option<Invalidated>,
    ) -> ReplyClaim {
        complete::claim(self, protocol, requests, event, invalidated)
    }

    fn arrived(
        &self,
        shared: &Shared<Self>,
        event: Event<'_>,
        claim: ReplyClaim,
        _message: &Received<Shared<Self>>,
        invalidated: Option<Invalidated>,
    ) -> Disposition<Pending> {
        complete::arrived(shared, event, claim, invalidated)
    }

    fn keep(
        &self,
        shared: &Shared<Self>,
        cx: &mut Completions<'_, Shared<Self>>,
        pending: Pending,
        message: Received<Shared<Self>>,
    ) {
        pending.invalidate(shared, cx, message);
    }

    fn invalidated(
        &self,
        shared: &Shared<Self>,
        cx: &mut Completions<'_, Shared<Self>>,
        inv: LocalInvBox<Shared<Self>>,
        waiter: Waiter,
        mrs: MrList<Idle>,
        proof: Unexposed,
    ) {
        waiter.finish(shared, cx, inv, mrs, proof);
    }

    fn writable(&self) {
        self.xprt.write_space();
    }

    fn ended(&self, why: EndReason) {
        self.history.closed(why.as_str());
    }

    fn lost(&self) {
        self.xprt.force_disconnect();
    }

    fn destroyed(&self, requests: &mut Requests, proof: &Destroyed) -> MrList<Idle> {
        requests.retire(&self.pool, proof)
    }

    fn retired(&self, waiter: Waiter, proof: Option<Unexposed>) {
        waiter.retired(self, proof);
    }
}
