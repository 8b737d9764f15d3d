// SPDX-License-Identifier: GPL-2.0

//! The two sides of a network, whose RPCs carry data and chunks.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use common::network::{index, other, Configs, Fabric, Network, SIDES};
use common::{stream_range, Lists, Random};
use rpcrdma_proto::proto::connection::continuation::PartSplitter;
use rpcrdma_proto::proto::connection::credit::RecvCredits;
use rpcrdma_proto::proto::connection::negotiate::{Time, Versions};
use rpcrdma_proto::proto::connection::{Arrived, Config, Connection, Event, SendError, Side};
use rpcrdma_proto::proto::invalidate;
use rpcrdma_proto::proto::requester::plan::{plan, CallShape, ChunkRole, Conveyance, Limits, Plan};
use rpcrdma_proto::proto::requester::reply::{check_conveyed, Payload};
use rpcrdma_proto::proto::requester::retry::{self, Attempts, Reaction, Retry, Sent};
use rpcrdma_proto::proto::responder::{
    self, respond, CallLimits, Form, ReplyLimits, ReplyShape, Source,
};
use rpcrdma_proto::proto::wire::chunk::{ChunkLists, NoChunks};
use rpcrdma_proto::proto::wire::error::{BadHeader, ErrorReport};
use rpcrdma_proto::proto::wire::header::{Conveyed, Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Position, Segment, Version, Xid};

use crate::chunking;
use crate::rpc::{execute, Outcome, Rpc};

/// The limits of a peer for one Call.
#[derive(Clone, Copy)]
pub struct Chunking {
    /// Normal Read chunks.
    pub read_chunks: u32,
    /// Write chunks.
    pub write_chunks: u32,
}

/// The properties of the network.
#[derive(Clone, Copy, PartialEq)]
pub enum Weather {
    /// Everything arrives at once.
    Calm,
    /// Messages and completions are late, each by a random time.
    Slow,
    /// The same, and the connection is lost now and then.
    Storm,
}

/// The registrations of one RPC: chunk lists, and the target of each handle.
#[derive(Default)]
struct Registered {
    lists: Lists,
    /// The Reply's memory.
    receive: Vec<u8>,
    /// The ranges of the Reply that the Reply chunk holds, in order.
    reply_ranges: Vec<Range<u32>>,
    handles: HashMap<u32, Region>,
    long: bool,
    segments: u32,
}

/// The target of a handle.
#[derive(Clone)]
enum Region {
    /// Octets of the Call, to be read.
    Source(Vec<u8>),
    /// A range of the Reply's memory, to be written.
    Sink(Range<u32>),
}

/// An RPC message that waits to be sent, or of which parts were sent.
struct Queued {
    outgoing: Outgoing,
    payload: Vec<u8>,
    /// The chunk lists, already in wire form: a whole header without its prefix is too much, so
    /// they are kept as owned lists.
    lists: Lists,
    cutter: Option<PartSplitter>,
    next: Option<(Range<u32>, bool)>,
    /// A Receive holds the Call until this Reply goes out.
    holds_receive: bool,
}

/// The RPCs of one side.
#[derive(Default)]
struct Endpoint {
    rpcs: Vec<Rpc>,
    registered: HashMap<u32, Registered>,
    narrowed: HashMap<u32, Vec<Retry>>,
    queue: VecDeque<Queued>,
    /// The parts of the Call, Reply or property set that is arriving.
    parts: Vec<u8>,
    /// The number of Receives that are still to be made.
    missing: u32,
    last_handle: u32,
    closing: bool,
}

impl Endpoint {
    fn waiting(&self) -> bool {
        self.rpcs
            .iter()
            .any(|rpc| rpc.outcome == Outcome::Waiting && rpc.sent)
    }
}

/// The session.
pub struct Net {
    network: Network,
    configs: Configs,
    endpoints: [Endpoint; 2],
    weather: Weather,
    random: Random,
    next_xid: u32,
    losses: u32,
    refused: u32,
    /// The server says nothing to a CONNPROP.
    deaf: bool,
}

fn limits(connection: &Connection, chunking: Chunking, retries: &[Retry]) -> Limits {
    let mut limits = Limits {
        segment_pages: 8,
        ..Limits::v1(0, 0)
    };
    connection.apply(&mut limits);
    if limits.version == Version::V2 {
        limits.read_chunks = chunking.read_chunks.max(1);
        limits.write_and_reply = true;
        limits.reduced_long_call = true;
    }
    for retry in retries {
        retry.apply(&mut limits);
    }
    limits
}

/// Returns the octets of the `part`s of a message that `range` of its stream holds.
fn octets(message: &[u8], range: Range<u32>) -> &[u8] {
    &message[range.start as usize..range.end as usize]
}

impl Net {
    /// Connects two peers. The version is negotiated `in_band`, or by the announcement of the server.
    pub fn new(client: Config, server: Config, weather: Weather, seed: u64, in_band: bool) -> Self {
        let mut random = Random::new(seed + 1);
        let configs = [client, server];
        let mut net = Self {
            network: Network::new(&configs, Fabric::Iwarp, in_band),
            configs,
            endpoints: Default::default(),
            weather,
            next_xid: random.below(1 << 31) as u32,
            random,
            losses: 0,
            refused: 0,
            deaf: false,
        };
        net.connect();
        net
    }

    fn connect(&mut self) {
        self.next_xid += 1;
        let [client, server] = &mut self.configs;
        client.xid = Xid(self.next_xid);
        server.xid = Xid(self.next_xid ^ 0xffff);
        // It takes one message at a time, and more when it has the Receives.
        let begins = Config {
            ceiling: 1,
            ..*client
        };
        let missing = RecvCredits::receives(client.ceiling) - RecvCredits::receives(1);
        self.network.connect(&[begins, *server]);
        self.network
            .node(Side::Client)
            .take_receives(&self.configs[0], missing);
        for endpoint in &mut self.endpoints {
            endpoint.queue.clear();
            endpoint.parts.clear();
            endpoint.registered.clear();
            endpoint.narrowed.clear();
            endpoint.closing = false;
            for rpc in &mut endpoint.rpcs {
                rpc.sent = false;
                rpc.attempts = Attempts::default();
            }
        }
        self.endpoints[0].missing = missing;
        self.provide_others();
    }

    /// Posts the Receives of the client that a version has to be settled for.
    fn provide_others(&mut self) {
        let node = self.network.node(Side::Client);
        let missing = &mut self.endpoints[0].missing;
        if *missing != 0 && !node.connection.is_asking() {
            node.post_receives(&self.configs[0], std::mem::take(missing));
            node.connection.set_ceiling(self.configs[0].ceiling);
        }
    }

    /// Returns the version of the present connection.
    pub fn version(&self) -> Option<Version> {
        self.network.connection(Side::Client).version()
    }

    /// Has the server speak these versions from the next connection on.
    pub fn set_server_versions(&mut self, versions: Versions) {
        self.configs[1].versions = versions;
    }

    /// Has the server say nothing to a CONNPROP.
    pub fn deafen(mut self) -> Self {
        self.deaf = true;
        self
    }

    /// Ends the connection, and makes another one.
    pub fn reconnect(&mut self) {
        self.network.lose();
        self.connect();
    }

    /// Returns whether the client has sent a message of version 2 on the present connection.
    pub fn has_sent_version_2(&self) -> bool {
        self.network.nodes[0].sent_version_2
    }

    /// Returns the number of connections that were lost since the session began.
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// Adds a Call of the client.
    pub fn add_rpc(&mut self) {
        self.next_xid += 1;
        let rpc = Rpc::new(Xid(self.next_xid), &mut self.random, false);
        self.endpoints[0].rpcs.push(rpc);
    }

    /// Adds a Call of the server.
    pub fn add_reverse_rpc(&mut self) {
        self.next_xid += 1;
        let rpc = Rpc::new(Xid(self.next_xid), &mut self.random, true);
        self.endpoints[1].rpcs.push(rpc);
    }

    /// Counts the Calls of the client that the server has refused.
    pub fn refused(&self) -> u32 {
        self.refused
    }

    /// Checks how all RPCs ended.
    pub fn assert_outcomes(&self, good: impl Fn(Outcome) -> bool) {
        for rpc in self.rpcs() {
            assert!(
                good(rpc.outcome),
                "{:?} {:?} call {} reply {:?} args {:?} results {:?} protected {}",
                rpc.xid,
                rpc.outcome,
                rpc.call.len(),
                rpc.receive,
                rpc.arguments,
                rpc.results,
                rpc.protected
            );
        }
    }

    fn rpcs(&self) -> impl Iterator<Item = &Rpc> {
        self.endpoints.iter().flat_map(|endpoint| &endpoint.rpcs)
    }

    /// Returns whether a possible event happens in this step.
    fn happens(&mut self) -> bool {
        match self.weather {
            Weather::Calm => true,
            Weather::Slow | Weather::Storm => self.random.once_in(8),
        }
    }

    /// Lets time pass until every RPC has ended.
    pub fn run(&mut self) {
        let mut idle = 0;
        while self.rpcs().any(|rpc| rpc.outcome == Outcome::Waiting) {
            let progress = self.step();
            idle = if progress { 0 } else { idle + 1 };
            // Longer than any timer.
            assert!(idle < 60_000, "nothing moves any more");
            self.network.check_versions();
            assert_eq!(self.network.broken(), None);
            self.network.now = self.network.now.after(Time(1));
            let lossy = self.weather == Weather::Storm && self.losses < 12;
            let lost = lossy && self.random.once_in(150);
            if lost || self.endpoints.iter().any(|endpoint| endpoint.closing) {
                self.losses += 1;
                assert!(self.losses < 40, "the connection is lost over and over");
                self.reconnect();
            }
        }
    }

    fn step(&mut self) -> bool {
        let mut progress = false;
        for side in SIDES {
            progress |= self.complete(side);
            progress |= self.arrive(side);
            progress |= self.start_calls(side);
            progress |= self.send_queued(side);
            progress |= self.send_control(side);
            let now = self.network.now;
            let waiting = self.endpoint(side).waiting();
            let due = self.network.connection(side).poll_timeout(waiting);
            if due.is_some_and(|due| now >= due) {
                if let Event::Close { .. } = self.network.pass_timeout(side) {
                    self.endpoint(side).closing = true;
                }
            }
        }
        progress
    }

    fn endpoint(&mut self, side: Side) -> &mut Endpoint {
        &mut self.endpoints[index(side)]
    }

    fn peer(&mut self, side: Side) -> &mut Endpoint {
        self.endpoint(other(side))
    }

    /// Returns the RPCs and the protocol's state of a side.
    fn both(&mut self, side: Side) -> (&mut Endpoint, &mut Connection) {
        let endpoint = &mut self.endpoints[index(side)];
        (endpoint, &mut self.network.node(side).connection)
    }

    /// Sends complete.
    fn complete(&mut self, side: Side) -> bool {
        let mut progress = false;
        while self.network.node(side).incomplete != 0 && self.happens() {
            self.network.complete(side);
            progress = true;
        }
        progress
    }

    fn arrive(&mut self, side: Side) -> bool {
        if !self.network.has_message(&self.configs, side) || !self.happens() {
            return false;
        }
        let message = self.network.take_message(side).unwrap();
        let properties = message[4..8] == [0, 0, 0, 2] && message[12..16] == [0, 0, 0, 5];
        let waiting = self.endpoint(side).queue.len();
        if !(self.deaf && side == Side::Server && properties) {
            self.handle(side, &message);
        }
        if let Some(reply) = self.endpoint(side).queue.get_mut(waiting) {
            reply.holds_receive = true;
            let config = &self.configs[index(side)];
            self.network.node(side).take_receives(config, 1);
        }
        self.provide_others();
        true
    }

    fn handle(&mut self, side: Side, message: &[u8]) {
        let now = self.network.now;
        let event = self
            .network
            .node(side)
            .connection
            .handle_message(now, message, None);
        match event {
            // A version 1 server refuses the probe of a version 2 client.
            Event::None | Event::Dropped | Event::Refused(BadHeader::Version) => {}
            Event::Ready | Event::VersionChanged { refused: None } => {}
            // The next connection begins with the other version.
            Event::VersionChanged { .. } => self.endpoint(side).closing = true,
            Event::Call(arrived) => self.handle_call(side, &arrived),
            Event::Reply(arrived) => self.handle_reply(side, &arrived),
            Event::Error { xid, report } => self.handle_error(side, xid, report),
            Event::Close { why, .. } => panic!("{side:?} closes: {why:?}"),
            other => panic!("{side:?}: {other:?}"),
        }
    }

    // The Requester.

    fn start_calls(&mut self, side: Side) -> bool {
        let (endpoint, connection) = self.both(side);
        if connection.is_asking() || !endpoint.queue.is_empty() {
            return false;
        }
        let next = endpoint
            .rpcs
            .iter()
            .position(|rpc| rpc.outcome == Outcome::Waiting && !rpc.sent);
        let Some(next) = next else {
            return false;
        };
        self.start_call(side, next);
        true
    }

    fn start_call(&mut self, side: Side, next: usize) {
        let config = self.configs[index(side)];
        let chunking = chunking(&config);
        let (endpoint, connection) = self.both(side);
        let rpc = &endpoint.rpcs[next];
        let retries = endpoint.narrowed.get(&rpc.xid.0);
        let retries = retries.map_or(&[][..], Vec::as_slice);
        let limits = limits(connection, chunking, retries);
        let mut shape = CallShape {
            send: rpc.send,
            arguments: &rpc.arguments,
            receive: rpc.receive,
            results: &rpc.results,
            protected: rpc.protected,
        };
        for retry in retries {
            if let Retry::LargerReplyChunk(length) = retry {
                shape.receive.tail.len += length.saturating_sub(shape.receive.len());
            }
        }
        let Ok(plan) = plan(&shape, &limits) else {
            endpoint.rpcs[next].outcome = Outcome::Failed;
            return;
        };
        let registered = register(&shape, rpc, &plan, &mut endpoint.last_handle);
        let payload: Vec<u8> = plan
            .payload(&shape)
            .flat_map(|range| octets(&rpc.call, range).iter().copied())
            .collect();
        let inline = plan.conveyance != Conveyance::Long;
        let capable = config.cm_private.remote_invalidation;
        let outgoing = Outgoing {
            xid: rpc.xid,
            direction: MsgType::Call,
            kind: plan.kind(),
            more: false,
            inv_handle: invalidate::offer(capable, &registered.lists),
        };
        let cutter = (plan.conveyance == Conveyance::Continued).then(|| {
            let threshold = connection.inline_send();
            PartSplitter::new(payload.len() as u32, threshold, plan.header_len)
        });
        let xid = rpc.xid.0;
        endpoint.queue.push_back(Queued {
            outgoing,
            payload: if inline { payload } else { Vec::new() },
            lists: registered.lists.clone(),
            cutter,
            next: None,
            holds_receive: false,
        });
        endpoint.rpcs[next].sent = true;
        endpoint.registered.insert(xid, registered);
    }

    fn handle_reply(&mut self, side: Side, arrived: &Arrived<'_>) {
        let xid = arrived.fixed.xid;
        let (endpoint, connection) = self.both(side);
        let parts = take_part(&mut endpoint.parts, arrived);
        let Some(parts) = parts else {
            return;
        };
        let registered = endpoint.registered.remove(&xid.0).expect("unknown Reply");
        let start = arrived.part.start;
        let reply = check_conveyed(xid, &arrived.conveyed, start, &registered.lists)
            .unwrap_or_else(|why| panic!("{side:?}: bad Reply: {why:?}"));
        let payload = match reply.payload {
            Payload::Inline(_) => parts,
            Payload::ReplyChunk { len } => {
                let mut octets: Vec<u8> = registered
                    .reply_ranges
                    .iter()
                    .flat_map(|r| octets(&registered.receive, r.clone()).iter().copied())
                    .collect();
                octets.truncate(len as usize);
                octets
            }
        };
        let rpc = endpoint
            .rpcs
            .iter_mut()
            .find(|rpc| rpc.xid == xid)
            .expect("unknown Reply");
        let (expected, item) = execute(&rpc.call);
        let whole = match item {
            Some(item) if reply.written != 0 => {
                assert_eq!(reply.written, item.len);
                let (head, tail) = payload.split_at(item.offset as usize);
                let pad = rpcrdma_proto::proto::wire::xdr::pad_len(item.len) as usize;
                [
                    head,
                    octets(&registered.receive, item.range()),
                    &vec![0; pad],
                    tail,
                ]
                .concat()
            }
            _ => payload,
        };
        assert!(whole == expected, "{xid:?}: the Reply is not what was sent");
        assert_eq!(rpc.outcome, Outcome::Waiting, "{xid:?}: answered twice");
        rpc.outcome = Outcome::Done;
        connection.handle_call_ended();
    }

    fn handle_error(&mut self, side: Side, xid: Xid, report: ErrorReport) {
        self.refused += 1;
        let (endpoint, connection) = self.both(side);
        let Some(registered) = endpoint.registered.remove(&xid.0) else {
            return;
        };
        let version = connection.version().unwrap();
        connection.handle_call_ended();
        let rpc = endpoint.rpcs.iter_mut().find(|rpc| rpc.xid == xid).unwrap();
        let length = |chunk: &Vec<Segment>| chunk.iter().map(|s| s.length).sum::<u32>();
        let writes: Vec<u32> = registered.lists.writes.iter().map(length).collect();
        let reads = &registered.lists.reads;
        let read_chunks = reads.iter().any(|r| r.position.0 != 0);
        let same = |at: Position| reads.iter().filter(|read| read.position == at).count();
        let segments = reads
            .iter()
            .map(|read| same(read.position))
            .chain(registered.lists.writes.iter().map(Vec::len))
            .chain(registered.lists.reply.iter().map(Vec::len))
            .max()
            .unwrap_or(0);
        let sent = Sent {
            long: registered.long,
            read_chunks: read_chunks.into(),
            write_chunks: &writes,
            reply_chunk: registered.lists.reply.as_ref().map_or(0, length),
            segments: segments as u32,
            header_segments: registered.segments,
        };
        match retry::react(version, report, &sent, &mut rpc.attempts, 1 << 20) {
            Reaction::Terminate => rpc.outcome = Outcome::Failed,
            Reaction::Retry(retry) => {
                rpc.sent = false;
                endpoint.narrowed.entry(xid.0).or_default().push(retry);
            }
        }
    }

    // The Responder.

    fn handle_call(&mut self, side: Side, arrived: &Arrived<'_>) {
        let config = self.configs[index(side)];
        let (endpoint, connection) = self.both(side);
        let Some(parts) = take_part(&mut endpoint.parts, arrived) else {
            return;
        };
        let version = connection.version().unwrap();
        let limits = match side {
            Side::Client => CallLimits::reverse(version, 1 << 20),
            Side::Server => {
                let Chunking {
                    read_chunks,
                    write_chunks,
                } = chunking(&config);
                CallLimits {
                    version,
                    read_chunks: if version == Version::V1 {
                        1
                    } else {
                        read_chunks
                    },
                    write_chunks,
                    segments: 64,
                    segment_bytes: u32::MAX,
                    call_bytes: 1 << 20,
                }
            }
        };
        let call = match responder::accept(&arrived.conveyed, arrived.part.len, &limits) {
            Ok(call) => call,
            Err(report) => {
                let refused = connection.refuse(&arrived.fixed, report);
                assert_eq!(refused, Ok(()));
                return;
            }
        };
        let xid = arrived.fixed.xid;
        let message = self.assemble(side, xid, &call, &parts);
        let (reply, item) = execute(&message);
        self.reply(side, &arrived.conveyed, xid, &reply, item, &message);
    }

    fn assemble(
        &mut self,
        side: Side,
        xid: Xid,
        call: &responder::Call<'_>,
        inline: &[u8],
    ) -> Vec<u8> {
        let peer = self.peer(side);
        let mut stream = inline.to_vec();
        if call.kind == Kind::Nomsg {
            stream = call
                .position_zero()
                .flat_map(|segment| read_memory(peer, xid, &segment))
                .collect();
        }
        let mut message = Vec::new();
        for source in call.sources() {
            match source {
                Source::Stream(range) => message.extend_from_slice(octets(&stream, range)),
                Source::Read(segment) => message.extend(read_memory(peer, xid, &segment)),
                Source::Pad(len) => message.extend(std::iter::repeat_n(0, len as usize)),
            }
        }
        assert_eq!(message.len(), call.len as usize);
        let rpc = peer.rpcs.iter().find(|rpc| rpc.xid == xid).unwrap();
        assert!(
            message == rpc.call,
            "{xid:?}: the Call is not what was sent"
        );
        message
    }

    fn reply(
        &mut self,
        side: Side,
        conveyed: &Conveyed<'_>,
        xid: Xid,
        reply: &[u8],
        item: Option<rpcrdma_proto::proto::requester::plan::Item>,
        call: &[u8],
    ) {
        let (endpoint, connection) = self.both(side);
        let results = [item];
        let eligible = call[16..20] != [0; 4];
        let shape = ReplyShape {
            len: reply.len() as u32,
            results: if eligible { &results } else { &[] },
            protected: false,
        };
        let limits = ReplyLimits {
            version: connection.version().unwrap(),
            inline_send: connection.inline_send(),
            continued: match connection.version() {
                Some(Version::V2) => 1 << 20,
                _ => 0,
            },
            reply_chunk: side == Side::Server,
        };
        let lists: ChunkLists<'_> = conveyed.chunks;
        let response = respond(&lists, &shape, &limits)
            .unwrap_or_else(|report| panic!("{xid:?} cannot be answered: {report:?}"));
        let payload: Vec<u8> = response
            .payload()
            .flat_map(|range| octets(reply, range).iter().copied())
            .collect();
        assert_eq!(payload.len() as u32, response.payload_len);
        let threshold = connection.inline_send();
        let cutter = (response.form == Form::Continued)
            .then(|| PartSplitter::new(response.payload_len, threshold, response.header_len));
        let queued = Queued {
            outgoing: Outgoing {
                xid,
                direction: MsgType::Reply,
                kind: response.kind(),
                more: false,
                inv_handle: Handle::NONE,
            },
            payload: if response.form == Form::ReplyChunk {
                Vec::new()
            } else {
                payload.clone()
            },
            lists: Lists::of(&response),
            cutter,
            next: None,
            holds_receive: false,
        };
        endpoint.queue.push_back(queued);
        let peer = self.peer(side);
        for (segment, range) in response.writes() {
            write_memory(peer, xid, &segment, octets(reply, range));
        }
        let mut at = 0;
        for segment in response.reply_writes() {
            let end = at + segment.length;
            write_memory(peer, xid, &segment, octets(&payload, at..end));
            at = end;
        }
    }

    // Sends.

    fn send_queued(&mut self, side: Side) -> bool {
        let now = self.network.now;
        let mut progress = false;
        loop {
            let config = self.configs[index(side)];
            let endpoint = &mut self.endpoints[index(side)];
            let node = self.network.node(side);
            let Some(queued) = endpoint.queue.front_mut() else {
                return progress;
            };
            if queued.next.is_none() {
                queued.next = Some(match &mut queued.cutter {
                    None => (0..queued.payload.len() as u32, false),
                    Some(cutter) => {
                        let cut = cutter.next_part().expect("nothing left to cut");
                        (cut.range, cut.more)
                    }
                });
            }
            let (range, more) = queued.next.clone().unwrap();
            let outgoing = Outgoing {
                more,
                ..queued.outgoing
            };
            let mut out = [0; 4096];
            if !more && std::mem::take(&mut queued.holds_receive) {
                // The Receive of the Call is posted again before its Reply.
                node.post_receives(&config, 1);
            }
            let connection = &mut node.connection;
            let sent = if more {
                connection.send(now, &mut out, &outgoing, &NoChunks)
            } else {
                connection.send(now, &mut out, &outgoing, &queued.lists)
            };
            let len = match sent {
                Ok(len) => len,
                Err(SendError::NoCredit) if self.let_reply_pass(side) => continue,
                Err(SendError::NoCredit | SendError::NotReady) => return progress,
                Err(error) => panic!("{side:?} cannot send: {error:?}"),
            };
            let mut message = out[..len].to_vec();
            message.extend_from_slice(octets(&queued.payload, range));
            assert!(message.len() <= connection.inline_send() as usize);
            queued.next = None;
            let credited = connection.version() == Some(Version::V2);
            if !more {
                endpoint.queue.pop_front();
            }
            self.network
                .transmit(&self.configs, side, message, credited);
            progress = true;
        }
    }

    /// In version 1, Replies need no credit: a Call that has to wait does not hold them up.
    fn let_reply_pass(&mut self, side: Side) -> bool {
        let (endpoint, connection) = self.both(side);
        if connection.version() != Some(Version::V1) {
            return false;
        }
        let reply = |queued: &Queued| queued.outgoing.direction == MsgType::Reply;
        match endpoint.queue.iter().position(reply) {
            Some(index) => {
                let reply = endpoint.queue.remove(index).unwrap();
                endpoint.queue.push_front(reply);
                true
            }
            None => false,
        }
    }

    fn send_control(&mut self, side: Side) -> bool {
        let mut progress = false;
        loop {
            let endpoint = self.endpoint(side);
            let (waiting, busy) = (endpoint.waiting(), !endpoint.queue.is_empty());
            if !self
                .network
                .transmit_control(&self.configs, side, waiting, busy)
            {
                return progress;
            }
            progress = true;
        }
    }
}

/// Adds a part; returns the whole once it is complete.
fn take_part(parts: &mut Vec<u8>, arrived: &Arrived<'_>) -> Option<Vec<u8>> {
    if arrived.part.offset == 0 {
        parts.clear();
    }
    assert_eq!(parts.len(), arrived.part.offset as usize);
    parts.extend_from_slice(arrived.conveyed.payload);
    (!arrived.more).then(|| std::mem::take(parts))
}

fn register(shape: &CallShape<'_>, rpc: &Rpc, plan: &Plan, next_handle: &mut u32) -> Registered {
    let mut registered = Registered {
        receive: vec![0xee; shape.receive.len() as usize],
        long: plan.conveyance == Conveyance::Long,
        segments: plan.segments(),
        ..Registered::default()
    };
    let handles = &mut registered.handles;
    let mut segment = |memory: Region, length: u32| {
        *next_handle += 1;
        handles.insert(*next_handle, memory);
        Segment {
            handle: Handle(*next_handle),
            length,
            offset: u64::from(*next_handle) << 20,
        }
    };
    for region in plan.registrations(shape) {
        let read = matches!(region.chunk, ChunkRole::Read(_));
        let buf = if read { &shape.send } else { &shape.receive };
        let range = stream_range(buf, &region);
        let memory = if read {
            Region::Source(octets(&rpc.call, range.clone()).to_vec())
        } else {
            Region::Sink(range.clone())
        };
        let segment = segment(memory, range.end - range.start);
        registered.lists.add(region.chunk, segment);
    }
    if plan.reply_chunk {
        registered.reply_ranges = plan.reply_payload(shape).collect();
    }
    assert_eq!(registered.handles.len() as u32, plan.segments());
    registered
}

fn read_memory(owner: &Endpoint, xid: Xid, segment: &Segment) -> Vec<u8> {
    let registered = owner.registered.get(&xid.0).expect("memory was fenced");
    let Some(Region::Source(octets)) = registered.handles.get(&segment.handle.0) else {
        panic!("no such memory to read");
    };
    let skip = (segment.offset - (u64::from(segment.handle.0) << 20)) as usize;
    octets[skip..skip + segment.length as usize].to_vec()
}

fn write_memory(owner: &mut Endpoint, xid: Xid, segment: &Segment, octets: &[u8]) {
    let registered = owner.registered.get_mut(&xid.0).expect("memory was fenced");
    let Some(Region::Sink(range)) = registered.handles.get(&segment.handle.0).cloned() else {
        panic!("no such memory to write");
    };
    let skip = (segment.offset - (u64::from(segment.handle.0) << 20)) as u32;
    let start = (range.start + skip) as usize;
    assert!(segment.length + skip <= range.end - range.start);
    registered.receive[start..start + octets.len()].copy_from_slice(octets);
}
