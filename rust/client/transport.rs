// SPDX-License-Identifier: GPL-2.0

//! The transport as sunrpc sees it.

use super::{
    buffers::Growth,
    complete,
    connect,
    connection::Client,
    history::History,
    marshal::{
        self,
        Made,
        SendSide, //
    },
    registrations::{
        Current,
        Refill, //
    },
    request::{
        RdmaRqst,
        Request, //
    },
    settings,
    sizes::{
        ClientSizes,
        MAX_DATA_PAGES, //
    },
    stats::Stats,
    versions, //
};
use crate::{
    endpoint::{
        EndReason,
        Endpoint,
        Protocol,
        Shared, //
    },
    proto::wire::types::Version,
    sunrpc::{
        Backchannel,
        CallBuf,
        ConnectError,
        SendCell,
        SendLock,
        Transport,
        Xprt,
        XprtHandle,
        XprtSendError, //
    },
    support::{
        debugfs::Show,
        gate::{
            Entered,
            Gate, //
        },
        memory::PAGE_SIZE,
        net::SockAddr,
        trace,
        work::Job, //
    },
};
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    task::might_sleep, //
};

/// RPC over RDMA, as transport class `rdma`.
#[pin_data]
pub(crate) struct RdmaTransport {
    xprt: XprtHandle<Request>,
    /// The sender's part of the connection, if there is a connection.
    sender: SendCell<Option<SendSide>>,
    /// The connection that is being made, to give it up.
    #[pin]
    attempt: SpinLock<Option<Arc<Shared<Client>>>>,
    /// The connection, for users without the send lock. It is cleared when the connection is
    /// closed.
    current: Arc<Current>,
    /// Makes registrations for the connection.
    refill: Arc<Job<Refill>>,
    /// Makes buffers for the connection.
    growth: Arc<Job<Growth>>,
    /// The most bytes of a Call of the server, or of its Reply, on this connection.
    max_callback: Atomic<u32>,
    /// The last connection was closed because no Reply came in time.
    silent: Atomic<bool>,
    stats: Arc<Stats>,
    backchannel: Arc<Backchannel>,
    history: Arc<History>,
}

/// Numbers connections, from 1 on; 0 is none.
static CONNECTIONS: Atomic<u32> = Atomic::new(1);

impl Transport for RdmaTransport {
    type Request = Request;
    type Connection = Made;

    const MAX_PAYLOAD: usize = (MAX_DATA_PAGES * PAGE_SIZE) as usize;

    fn slot_count() -> u32 {
        settings::slots()
    }

    fn create(xprt: XprtHandle<Request>) -> Result<Arc<Self>> {
        let stats = Arc::new(Stats::new(), GFP_KERNEL)?;
        let backchannel = Arc::pin_init(Backchannel::new(), GFP_KERNEL)?;
        let history = Arc::pin_init(History::new(), GFP_KERNEL)?;
        let sender = SendCell::new(&xprt, None);
        let current = Arc::pin_init(new_spinlock!(None), GFP_KERNEL)?;
        let refill = Arc::pin_init(
            Job::new(Refill::new(xprt.clone(), current.clone())),
            GFP_KERNEL,
        )?;
        let growth = Arc::pin_init(Job::new(Growth::new(current.clone())), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                xprt,
                sender,
                attempt <- new_spinlock!(None),
                current,
                refill,
                growth,
                max_callback: Atomic::new(0),
                silent: Atomic::new(false),
                stats,
                backchannel,
                history,
            }),
            GFP_KERNEL,
        )
    }

    fn new_request(_index: u32) -> impl PinInit<Request, Error> {
        Request::new()
    }

    fn connect(
        &self,
        xprt: &Xprt,
        peer: SockAddr,
        is_given_up: impl Fn() -> bool,
    ) -> Result<Made, ConnectError> {
        let cid = CONNECTIONS.fetch_add(1, Relaxed);
        let role = Client::new(
            self.xprt.clone(),
            self.stats.clone(),
            self.backchannel.clone(),
            self.history.clone(),
            cid,
            peer,
            settings::negotiates_in_band(),
        );
        let begun = |shared: &Arc<Shared<Client>>| {
            *self.attempt.lock() = Some(shared.clone());
            // Given up before it could be told.
            if is_given_up() {
                shared.give_up();
            }
        };
        let result = connect::resolve(role, xprt, peer, begun).and_then(|(endpoint, start)| {
            let (gate, sizes) = (Gate::new(endpoint)?, &start.sizes);
            let jobs = (self.refill.clone(), self.growth.clone());
            let mut made = Made::new(SendSide::new(&gate, sizes, peer, jobs)?);
            let sender = made.sender()?;
            connect::establish(sender.endpoint(), &start, xprt, peer)?;
            sender.begin()?;
            trace_thresholds(sender.endpoint(), sizes, &peer);
            Ok(made)
        });
        let attempt = self.attempt.lock().take();
        drop(attempt);
        let error = result.as_ref().map_or_else(|e| e.to_errno(), |_| 0);
        trace::emit(|| trace::XprtrdmaConnect {
            cid,
            peer: &peer,
            rc: error,
        });
        self.history.tried(peer, error);
        result
    }

    fn give_up(&self) {
        let attempt = self.attempt.lock().clone();
        if let Some(shared) = attempt {
            shared.give_up();
        }
    }

    fn install(&self, lock: &mut SendLock<'_>, xprt: &Xprt, connection: Made) {
        let Some(sender) = connection.into_sender() else {
            return;
        };
        *self.current.lock() = Some(sender.gate().clone());
        sender.start(xprt);
        if self.silent.xchg(false, Full) {
            sender.ask_for_credits(xprt);
        }
        self.max_callback.store(sender.max_callback(), Relaxed);
        // The core closes a connection before it asks for the next, so `last` is empty.
        if let Some(last) = self.sender.get(lock).replace(sender) {
            last.close();
        }
    }

    //= V1-102, NFS-061
    fn close(&self, lock: &mut SendLock<'_>, xprt: &Xprt) {
        let Some(sender) = self.sender.get(lock).take() else {
            return;
        };
        xprt.clear_connected();
        //= V2-061, V2-062
        if let Some(net) = xprt.net() {
            versions::remember_end(net, sender.peer(), sender.endpoint());
        }
        sender.close();
        // A task that gives up its RPC meanwhile finds the endpoint until here.
        let current = self.current.lock().take();
        drop(current);
    }

    #[inline]
    fn send(&self, lock: &mut SendLock<'_>, rqst: &RdmaRqst) -> Result<(), XprtSendError> {
        match self.sender.get(lock) {
            Some(sender) => marshal::send(sender, rqst).inspect_err(|error| {
                if !matches!(error, XprtSendError::NotConnected | XprtSendError::NoCredit) {
                    self.stats.failed_marshal.add(1);
                }
                if error.is_final() {
                    self.stats.unsendable.add(1);
                }
            }),
            None => Err(XprtSendError::NotConnected),
        }
    }

    fn backchannel(&self) -> &Backchannel {
        &self.backchannel
    }

    fn max_callback(&self) -> usize {
        let inline = match self.max_callback.load(Relaxed) {
            0 => Version::V1.default_inline() - Version::V1.empty_header_len(),
            len => len,
        };
        inline as usize
    }

    fn send_reply(
        &self,
        lock: &mut SendLock<'_>,
        xid: u32,
        reply: &CallBuf<'_>,
    ) -> Result<(), XprtSendError> {
        match self.sender.get(lock) {
            Some(sender) => marshal::send_reply(sender, xid, reply),
            None => Err(XprtSendError::NotConnected),
        }
    }

    #[inline]
    fn release(&self, rqst: &RdmaRqst) {
        // As always, unless the task gave up before the Reply.
        if !rqst.is_outstanding() {
            return;
        }
        self.abandon(rqst);
    }

    fn overdue(&self, is_overdue: impl FnOnce() -> bool) {
        // The gate is entered before `is_overdue` looks. If the connection was replaced before that,
        // the older one is closing already and ignores this.
        if let Some(endpoint) = self.enter().filter(|_| is_overdue()) {
            self.silent.store(true, Relaxed);
            endpoint.shared().request_close(EndReason::NoReply);
        }
    }

    fn credits(&self) -> u32 {
        let Some(endpoint) = self.enter() else {
            return 0;
        };
        let state = endpoint.shared().lock();
        state.protocol().map_or(0, Protocol::most_calls)
    }

    fn buffers_grew(&self, bytes: usize) {
        self.stats.hardway_register.add(bytes as u64);
    }

    fn source_address(&self) -> Option<SockAddr> {
        let current = self.current.lock();
        let endpoint = current.as_ref()?.enter()?;
        Some(endpoint.source())
    }

    fn inject_disconnect(&self) {
        if let Some(endpoint) = self.enter() {
            endpoint.break_up();
        }
    }

    fn print_stats(&self, xprt: &Xprt, seq: &SeqFile) {
        self.stats.print(xprt, seq);
    }
}

impl RdmaTransport {
    /// Gives up the RPC of a task before the Reply has arrived.
    #[cold]
    fn abandon(&self, rqst: &RdmaRqst) {
        might_sleep();
        // Without a connection nothing is exposed: it is cleared when it has been closed.
        let done = self.gate().and_then(|gate| match gate.enter() {
            Some(endpoint) => complete::abandon(&endpoint, rqst),
            None => {
                // The connection is being closed, which ends every exposure.
                gate.wait();
                None
            }
        });
        if let Some(done) = done {
            done.wait();
        }
    }

    fn gate(&self) -> Option<Arc<Gate<Endpoint<Client>>>> {
        self.current.lock().clone()
    }

    /// Uses the connection, unless there is none or it is being closed. Context: process, may
    /// sleep. No lock is held.
    fn enter(&self) -> Option<Entered<Endpoint<Client>>> {
        Gate::enter_owned(&self.gate()?)
    }
}

/// Traces the inline thresholds, which both sides have announced.
fn trace_thresholds(endpoint: &Endpoint<Client>, sizes: &ClientSizes, peer: &SockAddr) {
    let shared = endpoint.shared();
    let Some(facts) = shared.lock().protocol().map(Protocol::facts) else {
        return;
    };
    let own = sizes.lengths(facts.terms.version);
    let source = endpoint.source();
    trace::emit(|| trace::XprtrdmaInlineThresh {
        cid: shared.role.cid,
        inline_send: facts.terms.inline_send,
        inline_recv: facts.inline_recv,
        max_send: own.send,
        max_recv: own.recv,
        source: &source,
        peer,
    });
}

impl Show for RdmaTransport {
    fn show(&self, seq: &SeqFile) {
        let last = self.history.last();
        // Read under the locks, printed without them.
        let connection = {
            let current = self.current.lock();
            current.as_ref().and_then(|gate| {
                let endpoint = gate.enter()?;
                let state = endpoint.shared().lock();
                let protocol = state.protocol()?;
                Some((
                    endpoint.shared().role.cid,
                    endpoint.source(),
                    endpoint.device(),
                    protocol.facts(),
                    (state.idle_sends(), endpoint.pd().buffer_bytes()),
                ))
            })
        };
        seq_print!(
            seq,
            "connection={}\n",
            connection.map_or(0, |(cid, ..)| cid)
        );
        if let Some(peer) = last.peer {
            seq_print!(seq, "peer={peer}\n");
        }
        if let Some((_, source, (device, port), facts, (sends, bytes))) = connection {
            seq_print!(seq, "source={source}\n");
            if let Some(device) = device {
                seq_print!(seq, "device={device}\n");
                seq_print!(seq, "device_port={port}\n");
            }
            facts.show(seq, "server");
            seq_print!(seq, "idle_sends={sends}\n");
            seq_print!(seq, "buffer_bytes={bytes}\n");
        }
        let connecting = u32::from(self.attempt.lock().is_some());
        seq_print!(seq, "connecting={connecting}\n");
        seq_print!(seq, "next_attempt={}\n", self.xprt.next_attempt());
        seq_print!(seq, "tasks={}\n", self.xprt.tasks());
        seq_print!(seq, "owed_replies={}\n", self.xprt.owed_replies());
        seq_print!(seq, "swapping={}\n", self.xprt.swappers());
        seq_print!(seq, "registrations={}\n", self.stats.mrs_allocated.get());
        seq_print!(seq, "requests={}\n", self.xprt.max_reqs());
        seq_print!(seq, "connects={}\n", self.xprt.core_stats().connect_count);
        seq_print!(seq, "bytes_read={}\n", self.stats.bytes_read.get());
        seq_print!(seq, "bad_messages={}\n", self.stats.bad_messages.get());
        seq_print!(seq, "unsendable={}\n", self.stats.unsendable.get());
        seq_print!(seq, "last_close={}\n", last.close);
        seq_print!(seq, "last_error={}\n", last.error);
    }
}
