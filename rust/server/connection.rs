// SPDX-License-Identifier: GPL-2.0

//! A connected client, from its request to the destroyed queue pair.
//!
//! A thread of the service works on a connection as long as it likes, for example in a file system that
//! does not answer. The removal of a device does not wait for that: it takes the endpoint from the threads
//! ([`ConnectionLink::close`]), and waits only for threads inside this module ([`Open`]).

use super::{
    delayed,
    role::{
        Queue,
        Server,
        ServerMessage, //
    },
    sizes::ServerSizes, //
};
use crate::{
    endpoint::{
        self,
        EndReason,
        Endpoint,
        Judgement,
        Protocol,
        Resolved,
        Shared,
        State,
        Terms,
        Ticker,
        Waiting, //
    },
    proto::{
        connection::Side,
        requester::plan::Item,
        wire::types::Version, //
    },
    rdma::{
        cm::AcceptParams,
        listen::ConnectRequest, //
    },
    sunrpc::{
        svc::{
            self,
            rqst::{
                Delivered,
                SvcReply,
                SvcRqst, //
            },
            Addresses,
            SvcHandle, //
        },
        CallBuf, //
    },
    support::{
        errno,
        gate::{
            Gate,
            Inside, //
        },
        trace,
        work::Run, //
    },
};
use core::ops::Range;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        MutexGuard,
        SetOnce, //
    },
};

/// The number of retries of the client's device when no Receive is posted: 7 means without end. A client
/// that keeps to its credits always finds a Receive; another client waits.
const RNR_RETRIES: u8 = 7;

/// The number of the next accepted connection. The numbers differ from the numbers of the client role.
static CONNECTIONS: Atomic<u32> = Atomic::new(1 << 31);

/// A connected client.
pub(crate) struct ServerConnection {
    link: Arc<ConnectionLink>,
    shared: Arc<Shared<Server>>,
}

/// The part of a connection that ends with its device.
#[pin_data]
pub(super) struct ConnectionLink {
    /// The endpoint; [`Open`] uses it.
    gate: Arc<Gate<Endpoint<Server>>>,
    /// Looks after the connection, until it is one of version 1 on which no Reply waits. It works with the
    /// endpoint, too.
    #[pin]
    ticker: Mutex<Option<Ticker<Server>>>,
    /// The terms of version 1, which are final when the connection is accepted.
    terms: Terms,
    /// How long a Receive of version 1 is.
    recv_len: u32,
    /// When the client was last called.
    called: Atomic<u64>,
    /// The device registers memory for RDMA Writes.
    registers_writes: bool,
    /// Held while registrations are taken for a Reply or a Call, on such a device. A Reply needs all of its
    /// registrations at once: two Replies that take some each would give them back, and do the same again.
    #[pin]
    registering: Mutex<()>,
}

impl ConnectionLink {
    /// Ends the connection, also while threads of the service work on its Calls. Waits for threads inside this
    /// module, which wait for nothing any more once the connection has to end.
    ///
    /// Context: process, may sleep. Not called from an event or a completion.
    fn close(&self) {
        let ticker = self.ticker.lock().take();
        drop(ticker);
        self.gate.close(|endpoint| {
            let shared = endpoint.shared().clone();
            // The list that the function returns has Receives of the queue pair.
            let unsent = delayed::cancel(&endpoint);
            endpoint.close();
            drop(unsent);
            // Calls that wait for a thread have no connection any more.
            let mut state = shared.lock();
            let detached = state.role.detached;
            let queue = core::mem::replace(&mut state.role, Queue::new());
            state.role.detached = detached;
            drop(state);
            drop(queue);
        });
    }
}

/// Ends the connection when its device goes away.
pub(super) struct Removal(SetOnce<Arc<ConnectionLink>>);

impl Removal {
    /// Makes the removal of a connection that is not accepted yet.
    pub(super) fn new() -> Self {
        Self(SetOnce::new())
    }
}

impl Run for Removal {
    fn run(&self) {
        // A connection that is still made hears from the endpoint that it has ended.
        if let Some(link) = self.0.as_ref() {
            link.close();
        }
    }
}

/// A use of a connection, during which its endpoint does not end.
pub(super) struct Open<'a> {
    link: &'a ConnectionLink,
    endpoint: Inside<'a, Endpoint<Server>>,
}

impl ConnectionLink {
    /// Makes the link of a connection that is being accepted. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new(endpoint: Endpoint<Server>, terms: Terms, sizes: &ServerSizes) -> Result<Arc<Self>> {
        let gate = Gate::new(endpoint)?;
        Arc::pin_init(
            pin_init!(Self {
                gate,
                ticker <- new_mutex!(None),
                terms,
                recv_len: sizes.recv_len(Version::V1),
                called: Atomic::new(0),
                registers_writes: sizes.registers_writes,
                registering <- new_mutex!(()),
            }),
            GFP_KERNEL,
        )
    }
}

impl ServerConnection {
    /// Accepts a client. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device cannot serve the client. `ENOMEM`: there is no memory. Otherwise
    /// the error of the handshake.
    pub(super) fn accept(
        xprt: SvcHandle,
        request: KBox<ConnectRequest>,
        most: u32,
    ) -> Result<(Self, Addresses)> {
        let sizes = ServerSizes::new(&request, most).ok_or_else(errno::not_supported)?;
        let cid = CONNECTIONS.fetch_add(1, Relaxed);
        let mut config = sizes.config(cid);
        let judgement = Judgement::new(Side::Server, request.peer(), &request.link())?;
        judgement.apply(&mut config);
        //= CM-002, CM-011
        let protocol = Protocol::server(cid, &config, request.private_data(), endpoint::now());
        let facts = protocol.facts();
        let server = Server::new(xprt, cid, sizes)?;
        let resolved = Resolved::from_connect_request(server, Queue::new(), request)?;
        let endpoint = resolved.endpoint(sizes.qp, judgement)?;
        let shared = endpoint.shared().clone();
        // From here on resources hold each other, and dropping the connection lets them go, unless it is
        // in use.
        let link = ConnectionLink::new(endpoint, facts.terms, &sizes)?;
        let this = Self { link, shared };
        let gate = &this.link.gate;
        let endpoint = gate.enter().ok_or_else(errno::not_connected)?;
        let who = Addresses {
            local: endpoint.source(),
            peer: endpoint.peer(),
        };
        //= V1-045, V1-125, V1-126
        let first = sizes.buffers(&config, &(0..sizes.first_calls()), None);
        let params = AcceptParams {
            private_data: config.private_data(),
            initiator_depth: sizes.reads,
            rnr_retry_count: RNR_RETRIES,
        };
        let begun = (|| {
            endpoint.make_first_buffers(&first, sizes.grants)?;
            let entered = Gate::enter_owned(gate).ok_or_else(errno::not_connected)?;
            *this.link.ticker.lock() = Some(Ticker::new(entered)?);
            // A device that has gone away before is told by accept().
            let removal = this.shared.role.removal.target();
            removal.0.populate(this.link.clone());
            endpoint.accept(protocol, &params)
        })();
        drop(endpoint);
        begun?;
        trace::svc_accept(|| {
            (
                cid,
                facts.terms.inline_send,
                facts.inline_recv,
                config.grants,
                sizes.grants,
                sizes.reads.into(),
                &who.local,
                &who.peer,
            )
        });
        Ok((this, who))
    }

    /// Works with the endpoint; none once it is closed.
    #[inline(always)]
    fn open(&self) -> Option<Open<'_>> {
        let link = &*self.link;
        let endpoint = link.gate.enter()?;
        Some(Open { link, endpoint })
    }
}

impl Open<'_> {
    pub(super) fn endpoint(&self) -> &Endpoint<Server> {
        &self.endpoint
    }

    pub(super) fn shared(&self) -> &Shared<Server> {
        self.endpoint.shared()
    }

    /// The number of the connection.
    pub(super) fn cid(&self) -> u32 {
        self.shared().role.cid
    }

    /// Returns the present terms for a Reply, or `None` once the connection has ended.
    pub(super) fn terms_now(&self) -> Option<Terms> {
        self.shared().lock().protocol().map(Protocol::terms)
    }

    /// Returns the terms for a Reply of version 1.
    pub(super) fn terms(&self) -> &Terms {
        &self.link.terms
    }

    /// How long a Receive of version 1 is.
    pub(super) fn recv_len(&self) -> u32 {
        self.link.recv_len
    }

    /// When the client was last called.
    pub(super) fn called(&self) -> &Atomic<u64> {
        &self.link.called
    }

    /// Excludes other Replies and Calls while registrations are taken, on a device that registers
    /// memory for RDMA Writes. Context: process, may sleep.
    pub(super) fn registering(&self) -> Option<MutexGuard<'_, ()>> {
        self.link
            .registers_writes
            .then(|| self.link.registering.lock())
    }

    /// Looks after Replies that wait for the client.
    pub(super) fn wind_up(&self) {
        if let Some(ticker) = &*self.link.ticker.lock() {
            ticker.wind_up();
        }
    }

    /// Makes room for more Calls of `version` at a time: for `calls.end` instead of `calls.start`.
    pub(super) fn grow(&self, calls: Range<u32>, version: Version) {
        let sizes = &self.shared().role.sizes;
        let more = sizes.buffers(&sizes.config(self.cid()), &calls, Some(version));
        if let Err(why) = self.endpoint.grow(&calls, &more) {
            self.shared().request_close(why);
        }
    }
}

/// A piece of work for a thread of the service.
pub(crate) enum Work {
    /// A Call that is to be begun.
    Begin(ServerMessage),
    /// A Call whose data has been read.
    Complete(ServerMessage),
}

impl Queue {
    /// Takes a Call that was taken up before.
    fn next(&mut self) -> Option<Work> {
        if !self.pulled.is_empty() {
            return self.pulled.pop().map(Work::Complete);
        }
        // One Call at a time, so that two do not compete for registrations that suffice for one of them;
        // first the Call that keeps pages between rounds.
        if core::mem::take(&mut self.retry) {
            let waiting = self.halfway.take().or_else(|| self.starved.pop());
            if let Some(call) = waiting {
                return Some(Work::Begin(call));
            }
        }
        None
    }

    /// Returns whether there is work for a thread. `may_take` says whether a Call that has arrived may be taken
    /// up.
    pub(super) fn has_more(&self, may_take: bool) -> bool {
        let retries = self.retry && (self.halfway.is_some() || !self.starved.is_empty());
        retries || !self.calls.is_empty() && may_take || !self.pulled.is_empty()
    }
}

/// Takes up the first Call that has arrived, if that may be done.
#[inline]
fn begin(state: &mut State<Server>) -> Option<Work> {
    if !state.may_take_call() {
        return None;
    }
    let call = state.role.calls.pop()?;
    state.take_call(call.note().held);
    Some(Work::Begin(call))
}

impl svc::SvcConnection for ServerConnection {
    type Call = ServerMessage;
    type Work = Work;

    #[inline]
    fn next(&self) -> svc::NextWork<Work> {
        let mut state = self.shared.lock();
        if self.shared.has_waiting_replies() {
            // Their end asks for a thread.
            return svc::NextWork {
                more: false,
                work: None,
            };
        }
        let work = state.role.next().or_else(|| begin(&mut state));
        let mut more = state.role.has_more(true);
        if more && !state.role.has_more(state.may_take_call()) {
            // Calls wait for credits. The next one asks for a thread.
            self.shared.note_waiting(Waiting::Calls);
            more = false;
        }
        svc::NextWork { more, work }
    }

    fn work(&self, work: Work, rqst: SvcRqst<'_, ServerMessage>) -> Delivered {
        let Some(open) = self.open() else {
            return Delivered::nothing();
        };
        match work {
            Work::Begin(call) => open.begin(call, rqst),
            Work::Complete(call) => open.complete(call, rqst),
        }
    }

    //= V1-135, NFS-035, NFS-036
    //= NFS-038, NFS-039
    fn result(&self, call: &mut ServerMessage, offset: u32, len: u32) -> Result {
        // nfsd has no good way out of a Reply that is half encoded; a client that has lost its
        // connection asks again.
        if call.note_mut().add_result(Item { offset, len }).is_err() {
            self.shared.request_close(EndReason::NoMemory);
        }
        Ok(())
    }

    fn reply(&self, mut reply: SvcReply<'_, ServerMessage>) -> Result {
        let open = self.open().ok_or_else(errno::not_connected)?;
        open.send(&mut reply).map_err(|why| {
            self.shared.request_close(why);
            errno::not_connected()
        })
    }

    #[cold]
    #[inline(never)]
    fn drop_call(&self, mut call: ServerMessage) {
        let Some(open) = self.open() else { return };
        call.note_mut().joined = None;
        let held = call.note().held;
        if let Err(why) = open.endpoint.drop_call(call, held) {
            self.shared.request_close(why);
        }
    }

    fn has_space(&self) -> bool {
        !self.shared.has_waiting_replies()
    }

    fn detach(&self) {
        self.shared.lock().role.detached = true;
        if let Some(open) = self.open() {
            open.endpoint.detach();
        }
    }
}

impl svc::Called for ServerConnection {
    fn call(&self, xid: u32, call: &CallBuf<'_>, alone: impl FnOnce() -> bool) -> Result {
        match self.open() {
            Some(open) => open.call(xid, call, alone),
            None => Err(errno::not_connected()),
        }
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        // No event asks for it any more that could come later: the connection is closed here at the latest.
        self.shared.role.removal.stop();
        self.link.close();
    }
}
