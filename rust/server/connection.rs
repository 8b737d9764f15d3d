// SPDX-License-Identifier: GPL-2.0

//! A connected client, from its request to the drained queue pair.

use super::{
    role::{
        Message,
        Queue,
        Server, //
    },
    sizes::Sizes, //
};
use crate::{
    endpoint::{
        CloseReason,
        Endpoint,
        Protocol,
        Resolved,
        Shared,
        SharedKey,
        Terms,
        Ticker, //
    },
    proto::{
        connection::Side,
        hostauth::Policy,
        plan::Item,
        types::Version, //
    },
    rdma::{
        cm::AcceptParams,
        listen::Request,
        rw::Pull, //
    },
    sunrpc::svc::{
        self,
        rqst::{
            Delivered,
            Reply,
            Rqst, //
        },
        Addresses,
        SvcHandle, //
    },
    support::{
        errno,
        trace, //
    }, //
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
    }, //
};

/// How many times a client's device tries again when there is no Receive: for ever. A client that
/// keeps to its credits finds one, and one that does not only waits.
const RNR_RETRIES: u8 = 7;

/// Numbers connections that were accepted, apart from those that were made.
static CONNECTIONS: Atomic<u32> = Atomic::new(1 << 31);

/// A connected client.
pub(crate) struct Connection {
    /// Looks after the connection, if it may be one of version 2.
    ticker: Option<Ticker<Server>>,
    endpoint: Arc<Endpoint<Server>>,
    /// What was settled when it was accepted, for version 1.
    terms: Terms,
    /// How long a Receive of version 1 is.
    pub(super) recv_len: u32,
    /// When the client was last called.
    pub(super) called: Atomic<u64>,
}

impl Connection {
    /// Accepts a client. Context: process, sleeps.
    pub(super) fn accept(
        xprt: SvcHandle,
        request: KBox<Request>,
        most: u32,
    ) -> Result<(Self, Addresses)> {
        let sizes = Sizes::new(&request, most).ok_or_else(errno::not_supported)?;
        let cid = CONNECTIONS.fetch_add(1, Relaxed);
        let mut config = sizes.config(cid);
        let hostauth = SharedKey::with(Side::Server, request.peer())?;
        if let Some(hostauth) = &hostauth {
            hostauth.demand(&mut config);
        }
        //= CM-002, CM-011
        let protocol = Protocol::accepted(cid, &config, request.private_data()).with(hostauth);
        let facts = protocol.facts();
        let server = Server::new(xprt, cid, sizes);
        let resolved = Resolved::asked(server, Queue::new(), request)?;
        // From here on resources hold each other, and dropping the connection lets them go.
        let mut this = Self {
            ticker: None,
            endpoint: resolved.endpoint(sizes.qp)?,
            terms: facts.terms,
            recv_len: sizes.recv_len(Version::V1),
            called: Atomic::new(0),
        };
        let who = Addresses {
            local: this.endpoint.source(),
            peer: this.endpoint.peer(),
        };
        //= V1-045, V1-125, V1-126
        let first = sizes.buffers(&config, &(0..sizes.first_calls()), None);
        this.endpoint.provide_to(&first, sizes.grants)?;
        let params = AcceptParams {
            private_data: config.cm_private.encode(),
            initiator_depth: sizes.reads,
            rnr_retry_count: RNR_RETRIES,
        };
        if sizes.versions.high == Version::V2 || config.auth == Policy::Require {
            this.ticker = Some(Ticker::new(this.endpoint.clone())?);
        }
        this.endpoint.accept(protocol, &params)?;
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

    /// What a Reply goes by now. None, once the connection has ended.
    pub(super) fn terms_now(&self) -> Option<Terms> {
        self.shared().lock().protocol().map(Protocol::terms)
    }

    /// What a Reply of version 1 goes by.
    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Makes room for more Calls of `version` at a time: for `calls.end` instead of `calls.start`.
    pub(super) fn grow(&self, calls: Range<u32>, version: Version) {
        let sizes = &self.shared().role.sizes;
        let more = sizes.buffers(&sizes.config(self.cid()), &calls, Some(version));
        if let Err(why) = self.endpoint.grow(&calls, &more) {
            self.shared().lose(why);
        }
    }
}

/// A piece of work for a thread of the service.
pub(crate) enum Work {
    /// A Call that is to be begun.
    Begin(Message),
    /// A Call whose data has been read.
    Complete(Message),
}

impl Queue {
    fn next(&mut self) -> Option<Work> {
        if !self.pulled.is_empty() {
            return self.pulled.pop().map(Work::Complete);
        }
        // One at a time, so that two do not take from each other what one of them needs.
        if core::mem::take(&mut self.retry) && !self.starved.is_empty() {
            return self.starved.pop().map(Work::Begin);
        }
        self.calls.pop().map(Work::Begin)
    }

    /// Whether [`Self::next`] finds something.
    fn has_more(&self) -> bool {
        let retries = self.retry && !self.starved.is_empty();
        retries || !self.calls.is_empty() || !self.pulled.is_empty()
    }
}

impl svc::Connection for Connection {
    type Call = Message;
    type Work = Work;

    #[inline]
    fn next(&self) -> svc::Next<Work> {
        let mut state = self.shared().lock();
        let queue = &mut state.role;
        let work = queue.next();
        svc::Next {
            more: work.is_some() && queue.has_more(),
            work,
        }
    }

    fn work(&self, work: Work, rqst: Rqst<'_, Message>) -> Delivered {
        match work {
            Work::Begin(call) => self.begin(call, rqst),
            Work::Complete(call) => self.complete(call, rqst),
        }
    }

    //= V1-135, NFS-035, NFS-036
    //= NFS-038, NFS-039
    fn result(&self, call: &mut Message, offset: u32, len: u32) -> Result {
        // nfsd has no good way out of a Reply that is half encoded; a client that has lost its
        // connection asks again.
        if call.note_mut().add_result(Item { offset, len }).is_err() {
            self.shared().lose(CloseReason::NoMemory);
        }
        Ok(())
    }

    fn reply(&self, mut reply: Reply<'_, Message>) -> Result {
        self.send(&mut reply).map_err(|why| {
            self.shared().lose(why);
            errno::not_connected()
        })
    }

    #[cold]
    #[inline(never)]
    fn drop_call(&self, mut call: Message) {
        call.note_mut().joined = None;
        let held = call.note().held;
        if let Err(why) = self.endpoint.drop_call(call, held) {
            self.shared().lose(why);
        }
    }

    fn has_space(&self) -> bool {
        !self.endpoint.is_short()
    }

    fn detach(&self) {
        self.shared().lock().role.detached = true;
        self.endpoint.detach();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.ticker = None;
        self.endpoint.close();
        let Some(proof) = self.endpoint.drained() else {
            return;
        };
        // What waits holds what it was made from, down to the endpoint.
        let mut state = self.shared().lock();
        let queue = core::mem::replace(&mut state.role, Queue::new());
        drop(state);
        let Queue { mut broken, .. } = queue;
        while let Some(pull) = broken.pop() {
            Pull::retire(pull, self.endpoint.qp(), proof);
        }
    }
}
