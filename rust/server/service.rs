// SPDX-License-Identifier: GPL-2.0

//! A connection as nfsd sees it: accepted, asked for the next Call, given a Reply, and detached.

use super::{
    connection::{
        ConnectionLink,
        Queue,
        Server,
        ServerMessage,
        Waiting, //
    },
    receives,
    sizes::ServerSizes, //
};
use crate::{
    endpoint::{
        self,
        EndReason,
        Facts,
        Judgement,
        Protocol,
        Resolved,
        Shared,
        State,
        Ticker, //
    },
    proto::{
        connection::Side,
        requester::plan::Item, //
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
            ServiceFacts,
            SvcHandle, //
        },
        CallBuf, //
    },
    support::{
        debugfs::File,
        errno,
        gate::Gate,
        trace, //
    },
};
use core::ops::Range;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
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
    /// The file of `link` in debugfs.
    _file: Option<File>,
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
        service: &ServiceFacts,
    ) -> Result<(Self, Addresses)> {
        let sizes = ServerSizes::new(&request, service).ok_or_else(errno::not_supported)?;
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
        let mut this = Self {
            link,
            shared,
            _file: None,
        };
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
            receives::make_first(&endpoint, &protocol, &first)?;
            let entered = Gate::enter_owned(gate).ok_or_else(errno::not_connected)?;
            *this.link.ticker.lock() = Some(Ticker::new(entered)?);
            // A device that has gone away before is told by accept().
            let removal = this.shared.role.removal.target();
            removal.0.populate(this.link.clone());
            endpoint.accept(protocol, &params)
        })();
        drop(endpoint);
        begun?;
        this._file = File::new(fmt!("svc-{cid}"), this.link.clone());
        this.trace_accept(facts, config.grants, &who);
        Ok((this, who))
    }

    /// Traces the accepted connection, with the `credits` that the client gets first.
    fn trace_accept(&self, facts: Facts, credits: u32, who: &Addresses) {
        let Server { cid, sizes, .. } = &self.shared.role;
        trace::emit(|| trace::SvcrdmaAccept {
            cid: *cid,
            inline_send: facts.terms.inline_send,
            inline_recv: facts.inline_recv,
            credits,
            most: sizes.grants,
            reads: sizes.reads.into(),
            source: &who.local,
            peer: &who.peer,
        });
    }
}

/// A piece of work for a thread of the service.
pub(crate) enum Work {
    /// A Call that is to be begun.
    Begin(ServerMessage),
    /// The same, after Receives are posted for more Calls: the present and the wanted number.
    BeginAndGrow(ServerMessage, Range<u32>),
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
}

/// Takes up the first Call that has arrived, if that may be done.
#[inline]
fn begin(state: &mut State<Server>) -> Option<Work> {
    if !state.may_take_call() {
        return None;
    }
    let call = state.role.calls.pop()?;
    Some(match state.take_call(call.note().held) {
        None => Work::Begin(call),
        Some(calls) => Work::BeginAndGrow(call, calls),
    })
}

impl svc::SvcConnection for ServerConnection {
    type Call = ServerMessage;
    type Work = Work;

    #[inline]
    fn next(&self) -> svc::NextWork<Work> {
        let mut state = self.shared.lock();
        if self.shared.role.has_unposted() {
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
            self.shared.role.note_waiting(Waiting::Calls);
            more = false;
        }
        svc::NextWork { more, work }
    }

    fn work(&self, work: Work, rqst: SvcRqst<'_, ServerMessage>) -> Delivered {
        let Some(open) = self.link.open() else {
            return Delivered::nothing();
        };
        match work {
            Work::Begin(call) => open.begin(call, rqst),
            Work::BeginAndGrow(call, calls) => {
                open.grow_for_calls(calls, call.note().kept.version());
                open.begin(call, rqst)
            }
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
        let open = self.link.open().ok_or_else(errno::not_connected)?;
        open.send(&mut reply).map_err(|why| {
            self.shared.request_close(why);
            errno::not_connected()
        })
    }

    #[cold]
    #[inline(never)]
    fn drop_call(&self, call: ServerMessage) {
        let Some(open) = self.link.open() else { return };
        if let Err(why) = open.drop_call(call) {
            self.shared.request_close(why);
        }
    }

    fn has_space(&self) -> bool {
        !self.shared.role.has_unposted()
    }

    fn detach(&self) {
        self.shared.lock().role.detached = true;
        if let Some(open) = self.link.open() {
            open.endpoint().detach();
        }
    }
}

impl svc::Called for ServerConnection {
    fn call(&self, xid: u32, call: &CallBuf<'_>, alone: impl FnOnce() -> bool) -> Result {
        match self.link.open() {
            Some(open) => open.call(xid, call, alone),
            // As for a connection that ends, see `callback`.
            None => Err(errno::no_buffers()),
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
