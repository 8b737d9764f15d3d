// SPDX-License-Identifier: GPL-2.0

//! The data of a connection: its Calls, its Receives, and the endpoint.
//!
//! A thread of the service works on a connection as long as it likes, for example in a file system that
//! does not answer. The removal of a device does not wait for that: it takes the endpoint from the threads
//! ([`ConnectionLink::close`]), and waits only for threads inside this module ([`Open`]).

use super::sizes::ServerSizes;
use crate::{
    endpoint::{
        Endpoint,
        Protocol,
        Reassembly,
        Shared,
        Terms,
        Ticker, //
    },
    proto::{
        connection::{
            continuation::PartSplitter,
            credit::Allowance,
            negotiate::Time, //
        },
        requester::plan::{
            Item,
            ItemSet, //
        },
        responder::{
            Call,
            CallLimits,
            ParsedCall, //
        },
        wire::{
            header::FixedWords,
            types::{
                Handle,
                Version, //
            },
        },
    },
    rdma::{
        dma::Direction,
        pull::{
            IdlePulls,
            Pull,
            PullBox, //
        },
        recv::{
            Received,
            ReceivedList,
            RecvBatch, //
        },
        rw::Write, //
    },
    sunrpc::svc::SvcHandle,
    support::{
        debugfs::Show,
        gate::{
            Gate,
            Inside, //
        },
        racy::Racy,
        work::{
            Job,
            Run, //
        },
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::Atomic,
        Arc,
        Mutex,
        MutexGuard,
        SetOnce, //
    },
};

/// A message, in the buffer that it was received into.
pub(crate) type ServerMessage = Received<Shared<Server>>;

/// The data that is kept with a Call.
#[derive(Default)]
pub(crate) struct Note {
    /// The result of its check.
    pub(super) kept: ParsedCall,
    /// Its memory stays for the next Call in the same buffer.
    results: KVec<Option<Item>>,
    /// The Pull of its Read chunks. It has the data that the RDMA Reads have brought, or the RDMA Reads that wait
    /// to be posted. The data leaves it when the Call is delivered.
    pub(super) pull: Option<PullBox<Shared<Server>>>,
    /// The end of the data that has been read, or is being read, in bytes.
    pub(super) read: u32,
    /// Data behind `read` is missing.
    pub(super) more: bool,
    /// Its Payload stream until it is delivered, if that came in several parts.
    pub(super) joined: Option<Reassembly>,
    /// The number of Receives that it counts as while it is kept. Version 1 does not count them.
    pub(super) held: u32,
    /// Its Reply, while that waits for the client.
    pub(super) delayed: Option<KBox<Delayed>>,
}

impl Note {
    /// Prepares the note for a new Call.
    #[inline(always)]
    pub(super) fn begin(&mut self, kept: ParsedCall) {
        self.kept = kept;
        self.results.clear();
        self.pull = None;
        self.read = 0;
        self.more = false;
        self.joined = None;
        self.held = 0;
        self.delayed = None;
    }

    /// Opens the Call of `message` again: its fixed words, the Call, and its Payload stream, as far
    /// as that is inline.
    #[inline]
    pub(super) fn open<'a>(
        &'a self,
        message: &'a [u8],
    ) -> Option<(FixedWords, Call<'a>, &'a [u8])> {
        let (fixed, call, stream) = self.kept.open(message)?;
        let stream = self.joined.as_ref().map_or(stream, Reassembly::bytes);
        Some((fixed, call, stream))
    }

    /// Adds a result that may be moved directly. A result beyond the number that a Reply can have is
    /// conveyed with the rest of the Reply.
    ///
    /// The offsets of the results of one Reply rise. An offset that does not belongs to another
    /// Reply to the same Call, which nfsd has deferred and processes once more.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add_result(&mut self, result: Item) -> Result {
        let last = self.results.last().copied().flatten();
        if last.is_some_and(|last| result.offset < last.range().end) {
            self.results.clear();
        }
        if self.results.len() < ItemSet::MAX {
            self.results.push(Some(result), GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Returns the results that may be moved directly, in order.
    pub(super) fn results(&self) -> &[Option<Item>] {
        &self.results
    }
}

/// Calls on their way to a thread, and Calls whose Replies wait for the client.
pub(crate) struct Queue {
    /// Calls that have just arrived. In version 2 they wait for the credits that their Replies take.
    pub(super) calls: ReceivedList<Shared<Server>>,
    /// Calls whose Read chunks have been pulled.
    pub(super) pulled: ReceivedList<Shared<Server>>,
    /// Calls whose Read chunks wait for registrations of the device.
    pub(super) starved: ReceivedList<Shared<Server>>,
    /// The Call that is read in rounds, while it waits for these.
    pub(super) halfway: Option<ServerMessage>,
    /// A Call is read in rounds. There is one at most, because it keeps its pages between rounds.
    pub(super) in_rounds: bool,
    /// Registrations came back: a Call that waits for some may try again. While such a Call waits, this is set, or
    /// will be set by the end of a Call that is being pulled, or of a Send.
    pub(super) retry: bool,
    /// The number of Calls whose Read chunks are being pulled, and which may hold registrations of the
    /// device. The end of each Pull lets another Call try.
    pub(super) pulling: u32,
    /// Calls whose Reply, or whose RDMA Reads, wait for room in the send queue or for a credit. They are posted in
    /// this order.
    pub(super) unposted: ReceivedList<Shared<Server>>,
    /// The time since which the client has let none of the waiting messages go on.
    pub(super) blocked_since: Option<Time>,
    /// The Receives of the connection.
    pub(super) receives: Receives,
    /// Pulls to be used again.
    pub(super) idle: IdlePulls<Shared<Server>>,
    /// The transport is detached: its backchannel may be gone.
    pub(super) detached: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            calls: ReceivedList::new(),
            pulled: ReceivedList::new(),
            starved: ReceivedList::new(),
            halfway: None,
            in_rounds: false,
            retry: false,
            pulling: 0,
            unposted: ReceivedList::new(),
            blocked_since: None,
            receives: Receives::new(),
            idle: IdlePulls::new(),
            detached: false,
        }
    }

    /// Returns whether there is work for a thread. `may_take` says whether a Call that has arrived may be taken
    /// up.
    pub(super) fn has_more(&self, may_take: bool) -> bool {
        let retries = self.retry && (self.halfway.is_some() || !self.starved.is_empty());
        retries || !self.calls.is_empty() && may_take || !self.pulled.is_empty()
    }
}

/// The Receives of a connection.
pub(super) struct Receives {
    /// The number of Calls that there are Receives for.
    pub(super) allowance: Allowance,
    /// Receives to be posted again, except the Receives that completions repost.
    pub(super) batch: RecvBatch<Shared<Server>>,
    /// The number of credits of Calls that have arrived and have no Reply yet.
    pub(super) in_progress: u32,
    /// The number of Calls of version 2 that have been taken up and have no Reply yet.
    pub(super) taken: u32,
}

impl Receives {
    /// Creates the accounts of a connection without buffers.
    pub(super) fn new() -> Self {
        Self {
            allowance: Allowance::new(0, 0, Time(0)),
            batch: RecvBatch::new(1),
            in_progress: 0,
            taken: 0,
        }
    }
}

/// A Reply that waits for the client. Its Call is kept with it.
pub(crate) struct Delayed {
    /// The terms for which the form of the Reply was decided.
    pub(super) terms: Terms,
    /// The length of the RPC Reply.
    pub(super) len: u32,
    /// RPCSEC_GSS protects its results.
    pub(super) protected: bool,
    /// The Payload stream, if the Reply is one message.
    pub(super) payload: KVec<u8>,
    /// The memory of the Reply with the RDMA Writes out of it. The Payload stream of a Reply in several messages
    /// is read from there.
    pub(super) write: Option<Write>,
    /// The handle to be invalidated.
    pub(super) invalidate: Option<Handle>,
    /// The number of work requests of the last message.
    pub(super) last: u32,
    /// The messages that are still to be sent, if the Reply is several.
    pub(super) rest: Option<PartSplitter>,
}

/// The messages that wait for the client: for room in the send queue, or for a credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// No message waits.
    Nothing,
    /// Calls that have not been taken up.
    Calls,
    /// Replies or RDMA Reads, and with them all that comes later.
    Unposted,
}

/// The responder's side of a connection.
pub(crate) struct Server {
    /// The transport whose connection this is.
    pub(super) xprt: SvcHandle,
    /// The number of the connection.
    pub(super) cid: u32,
    /// The sizes of its resources.
    pub(super) sizes: ServerSizes,
    /// Ends the connection when its device goes away.
    pub(super) removal: Pin<KBox<Job<Removal>>>,
    /// The kinds of messages that wait for the client, a [`Waiting`]. Changed with the endpoint's lock.
    pub(super) waiting: Racy<u32>,
    /// The limits of a Call of each version.
    pub(super) limits_v1: CallLimits,
    pub(super) limits_v2: CallLimits,
}

impl Server {
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(xprt: SvcHandle, cid: u32, sizes: ServerSizes) -> Result<Self> {
        Ok(Self {
            xprt,
            cid,
            limits_v1: sizes.call_limits(Version::V1),
            limits_v2: sizes.call_limits(Version::V2),
            sizes,
            removal: KBox::pin_init(Job::new(Removal::new()), GFP_KERNEL)?,
            waiting: Racy::new(Waiting::Nothing as u32),
        })
    }

    /// Notes which messages wait for the client. The endpoint's lock is held by the caller.
    pub(super) fn note_waiting(&self, waiting: Waiting) {
        self.waiting.set(waiting as u32);
    }

    /// Returns whether a Reply, or RDMA Reads, wait for the client. Context: any.
    #[inline]
    pub(super) fn has_unposted(&self) -> bool {
        self.waiting.get() == Waiting::Unposted as u32
    }
}

/// The part of a connection that ends with its device.
#[pin_data]
pub(super) struct ConnectionLink {
    /// The endpoint; [`Open`] uses it.
    pub(super) gate: Arc<Gate<Endpoint<Server>>>,
    /// Looks after the connection, until it is one of version 1 on which no Reply waits. It works with the
    /// endpoint, too.
    #[pin]
    pub(super) ticker: Mutex<Option<Ticker<Server>>>,
    /// The terms of version 1, which are final when the connection is accepted.
    terms: Terms,
    /// The length of a Receive of version 1 in bytes.
    recv_len: u32,
    /// The time of the last Call to the client.
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
    pub(super) fn close(&self) {
        let ticker = self.ticker.lock().take();
        drop(ticker);
        self.gate.close(|endpoint| {
            // The list that the function returns has Receives of the queue pair.
            let unsent = cancel_unposted(&endpoint);
            endpoint.close();
            drop(unsent);
        });
    }
}

/// Ends the connection when its device goes away.
pub(super) struct Removal(pub(super) SetOnce<Arc<ConnectionLink>>);

impl Removal {
    /// Makes the removal of a connection that is not accepted yet.
    fn new() -> Self {
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
    pub(super) fn new(
        endpoint: Endpoint<Server>,
        terms: Terms,
        sizes: &ServerSizes,
    ) -> Result<Arc<Self>> {
        // Known since the first queue pair was made.
        let registers_writes = endpoint.qp().registers(Direction::ToDevice);
        let gate = Gate::new(endpoint)?;
        Arc::pin_init(
            pin_init!(Self {
                gate,
                ticker <- new_mutex!(None),
                terms,
                recv_len: sizes.recv_len(Version::V1),
                called: Atomic::new(0),
                registers_writes,
                registering <- new_mutex!(()),
            }),
            GFP_KERNEL,
        )
    }

    /// Works with the endpoint; none once it is closed.
    #[inline(always)]
    pub(super) fn open(&self) -> Option<Open<'_>> {
        let endpoint = self.gate.enter()?;
        Some(Open {
            link: self,
            endpoint,
        })
    }
}

impl Open<'_> {
    pub(super) fn endpoint(&self) -> &Endpoint<Server> {
        &self.endpoint
    }

    pub(super) fn shared(&self) -> &Shared<Server> {
        self.endpoint.shared()
    }

    /// Returns the number of the connection.
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

    /// Returns the length of a Receive of version 1, in bytes.
    pub(super) fn recv_len(&self) -> u32 {
        self.link.recv_len
    }

    /// Returns the time of the last Call to the client.
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
}

impl Show for ConnectionLink {
    fn show(&self, seq: &SeqFile) {
        // Without an endpoint the connection is being closed.
        let Some(open) = self.open() else { return };
        let (device, port) = open.endpoint.device();
        // Read under the lock, printed without it.
        let state = open.shared().lock();
        let facts = state.protocol().map(Protocol::facts);
        let queue = &state.role;
        let (calls, taken, pulling) = (
            queue.receives.allowance.calls(),
            queue.receives.taken,
            queue.pulling,
        );
        drop(state);
        seq_print!(seq, "connection={}\n", open.cid());
        seq_print!(seq, "peer={}\n", open.endpoint.peer());
        seq_print!(seq, "source={}\n", open.endpoint.source());
        if let Some(device) = device {
            seq_print!(seq, "device={device}\n");
            seq_print!(seq, "device_port={port}\n");
        }
        if let Some(facts) = facts {
            facts.show(seq, "client");
        }
        seq_print!(seq, "grants={calls}\n");
        seq_print!(seq, "calls_taken={taken}\n");
        seq_print!(seq, "calls_pulling={pulling}\n");
        let bytes = open.endpoint.pd().buffer_bytes();
        seq_print!(seq, "buffer_bytes={bytes}\n");
        let waits = open.shared().role.has_unposted();
        seq_print!(seq, "waits_for_client={}\n", u32::from(waits));
    }
}

/// Cancels the Replies and RDMA Reads that wait, before the queue pair is destroyed. Returns their Calls.
fn cancel_unposted(endpoint: &Endpoint<Server>) -> ReceivedList<Shared<Server>> {
    let mut state = endpoint.shared().lock();
    let mut unposted = core::mem::replace(&mut state.role.unposted, ReceivedList::new());
    drop(state);
    let mut calls = ReceivedList::new();
    while let Some(mut call) = unposted.pop() {
        let note = call.note_mut();
        let delayed = note.delayed.take();
        if let Some(write) = delayed.and_then(|mut delayed| delayed.write.take()) {
            write.cancel(endpoint.qp());
        }
        if let Some(pull) = note.pull.take() {
            Pull::cancel(pull, endpoint.qp());
        }
        calls.push(call);
    }
    calls
}
