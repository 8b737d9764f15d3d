// SPDX-License-Identifier: GPL-2.0

//! Two [`Connection`]s, the requests of their callers, and the network between them.
//!
//! Every possible next step is an [`Action`]. The choice among the actions explores the states of
//! the protocol core. The network is a reliable connection: messages arrive in order and once,
//! Sends complete at any time later, and the connection can be lost.
//!
//! Each side has a receive queue. A message needs a Receive that is posted: without one it waits,
//! and so does each message behind it (InfiniBand, RNR), or the connection ends (iWARP); see
//! [`Fabric`]. Two peers that keep the rules never let that happen.
//!
//! A [`World`] checks as it goes: there is a Receive for each message on its way, RPC messages
//! arrive whole and unharmed, peers that keep the rules find nothing wrong with each other, and
//! the version is chosen once.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use rpcrdma_proto::proto::connection::continuation::{MessagePart, PartSplitter};
use rpcrdma_proto::proto::connection::credit::RecvCredits;
use rpcrdma_proto::proto::connection::negotiate::{Opening, PeerVersionMemo, Time};
use rpcrdma_proto::proto::connection::{
    Arrived, CloseReason, Config, Connection, Event, SendError, Side, MAX_CONTROL_LEN,
};
use rpcrdma_proto::proto::wire::chunk::NoChunks;
use rpcrdma_proto::proto::wire::header::{Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Version, Xid};

/// An RPC that one side will make.
#[derive(Clone, Copy, Debug)]
pub struct Rpc {
    /// The side that calls.
    pub caller: Side,
    /// The length of the Call, at least 8.
    pub call: u32,
    /// The length of the Reply, at least 8.
    pub reply: u32,
}

/// An RPC of the client.
pub const fn forward(call: u32, reply: u32) -> Rpc {
    Rpc {
        caller: Side::Client,
        call,
        reply,
    }
}

/// An RPC of the server.
pub const fn reverse(call: u32, reply: u32) -> Rpc {
    Rpc {
        caller: Side::Server,
        call,
        reply,
    }
}

/// The start of a world, and its possible faults.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The two sides: client, server.
    pub configs: [Config; 2],
    /// The version is negotiated in-band, and not by the announcement of the server.
    pub in_band: bool,
    /// The RPCs, which either side makes in this order.
    pub rpcs: Vec<Rpc>,
    /// The most RPCs of one side that are under way at a time.
    pub callers: usize,
    /// The server keeps the Receive of a Call until the Reply is sent. The client copies Calls: if
    /// both sides kept them, both could run out of Receives, and neither could reply.
    pub hold: bool,
    /// The fate of a message without a posted Receive.
    pub fabric: Fabric,
    /// The most losses of the connection.
    pub losses: u8,
    /// The most times that the client gives up waiting for the first answer.
    pub impatience: u8,
}

/// The fate of a message without a posted Receive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fabric {
    /// It waits for a Receive, and each message behind it waits, too.
    InfiniBand,
    /// The connection ends, which breaks a rule here.
    Iwarp,
}

/// The fate of an RPC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// The Call has not been sent, or not all of it.
    Waiting,
    /// The Reply is awaited.
    Sent,
    /// The Reply is there.
    Done,
    /// It ended with an error.
    Failed,
}

/// Something that may happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// The side sends the next RPC message, or the next part of one.
    Send(Side),
    /// The side looks at the next message that has arrived.
    Receive(Side),
    /// The side is told that a Send has completed.
    Complete(Side),
    /// Nothing else can happen, so time passes.
    Idle,
    /// The client's patience ends.
    Impatience,
    /// The connection gets lost.
    Lose,
}

/// One side of the connection.
#[derive(Clone, Debug)]
struct Peer {
    connection: Connection,
    /// Messages to this side in order: first the messages in Receives, then the messages that wait
    /// for a Receive.
    inbox: VecDeque<Vec<u8>>,
    /// Sends with a credit whose completion was not reported.
    incomplete: u32,
    /// Receives in use by Calls that are not answered.
    held: u32,
    /// RPCs of the other side to be answered.
    replies: VecDeque<usize>,
    /// The RPC message that is being sent.
    sending: Option<(usize, MsgType, PartSplitter)>,
    /// The parts that arrived of an RPC message.
    joined: Vec<u8>,
    /// A message that only grants was sent, and nothing was heard from the other side since.
    granted: bool,
    /// The version when it was looked at last.
    version: Option<Version>,
    /// It was another one before.
    changed: bool,
    /// The version when it became final.
    settled: Option<Version>,
}

/// The whole state.
#[derive(Clone, Debug)]
pub struct World {
    peers: [Peer; 2],
    fates: Vec<Fate>,
    memory: PeerVersionMemo,
    now: Time,
    losses: u8,
    impatience: u8,
    /// The number of messages in a row that only keep the connection alive.
    idle: u8,
    /// The version of the last connection that settled on one.
    last_settled: Option<Version>,
    /// No connection will ever be made.
    hopeless: bool,
    /// The number of messages that found no Receive.
    missed: u32,
    /// The first rule that was broken.
    broken: Option<String>,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn index(side: Side) -> usize {
    match side {
        Side::Client => CLIENT,
        Side::Server => SERVER,
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

fn xid(rpc: usize) -> Xid {
    Xid(0x100 + u32::try_from(rpc).expect("few RPCs"))
}

fn payload(rpc: usize, direction: MsgType, len: u32) -> Vec<u8> {
    let msg_type: u32 = match direction {
        MsgType::Call => 0,
        MsgType::Reply => 1,
    };
    let mut octets = Vec::new();
    octets.extend(xid(rpc).0.to_be_bytes());
    octets.extend(msg_type.to_be_bytes());
    // Octets that tell where they belong.
    octets.extend((8..len).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ rpc as u8));
    octets
}

impl World {
    /// Starts with a new connection.
    pub fn new(setup: &Setup) -> Self {
        let memory = PeerVersionMemo::default();
        let now = Time(0);
        let peers = Self::connect(setup, &memory, now);
        let mut world = Self {
            peers,
            fates: vec![Fate::Waiting; setup.rpcs.len()],
            memory,
            now,
            losses: setup.losses,
            impatience: setup.impatience,
            idle: 0,
            last_settled: None,
            hopeless: false,
            missed: 0,
            broken: None,
        };
        world.pump(setup, Side::Client);
        world
    }

    fn connect(setup: &Setup, memory: &PeerVersionMemo, now: Time) -> [Peer; 2] {
        let [client, server] = setup.configs;
        let opening = if setup.in_band {
            Opening::InBand(memory.first(now, client.versions))
        } else {
            Opening::Announced
        };
        let (client_data, server_data) = (client.private_data(), server.private_data());
        let peer = |connection| Peer {
            connection,
            inbox: VecDeque::new(),
            incomplete: 0,
            held: 0,
            replies: VecDeque::new(),
            sending: None,
            joined: Vec::new(),
            granted: false,
            version: None,
            changed: false,
            settled: None,
        };
        [
            peer(Connection::client(client, opening, &server_data, now)),
            peer(Connection::server(server, &client_data, now)),
        ]
    }

    /// Returns the rule that was broken, if one was.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Returns the fates of the RPCs.
    pub fn fates(&self) -> &[Fate] {
        &self.fates
    }

    /// Says whether there is no version that both sides speak.
    pub fn is_hopeless(&self) -> bool {
        self.hopeless
    }

    /// Returns the number of messages that found no Receive.
    pub fn missed(&self) -> u32 {
        self.missed
    }

    /// Returns the version that was settled on last.
    pub fn version(&self) -> Option<Version> {
        self.last_settled
    }

    /// Says whether all RPCs have ended.
    pub fn is_over(&self) -> bool {
        self.fates
            .iter()
            .all(|fate| matches!(fate, Fate::Done | Fate::Failed))
    }

    /// Adds the possible next actions.
    pub fn actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        if self.broken.is_some() || self.hopeless {
            return;
        }
        for side in [Side::Client, Side::Server] {
            let peer = &self.peers[index(side)];
            if self.is_ready(setup, side) {
                actions.push(Action::Send(side));
            }
            if !peer.inbox.is_empty() && self.receives(setup, side) != 0 {
                actions.push(Action::Receive(side));
            }
            if peer.incomplete != 0 {
                actions.push(Action::Complete(side));
            }
        }
        if self.is_over() {
            return;
        }
        if actions.is_empty() && self.idle < 2 {
            actions.push(Action::Idle);
        }
        if self.impatience != 0 && !self.peers[CLIENT].connection.is_settled() {
            actions.push(Action::Impatience);
        }
        if self.losses != 0 {
            actions.push(Action::Lose);
        }
    }

    /// Makes something happen.
    pub fn act(&mut self, setup: &Setup, action: Action) {
        if action != Action::Idle {
            self.idle = 0;
        }
        match action {
            Action::Send(side) => self.send(setup, side),
            Action::Receive(side) => self.receive(setup, side),
            Action::Complete(side) => {
                let peer = &mut self.peers[index(side)];
                peer.incomplete -= 1;
                peer.connection.handle_sent(1);
                self.pump(setup, side);
            }
            Action::Idle => self.pass_time(setup),
            Action::Impatience => {
                self.impatience -= 1;
                self.now = self.now.after(setup.configs[CLIENT].answer);
                let event = self.peers[CLIENT].connection.handle_timeout(self.now);
                if let Event::Close { why, .. } = event {
                    self.close(setup, why);
                }
            }
            Action::Lose => {
                self.losses -= 1;
                self.reconnect(setup);
            }
        }
        self.check_versions();
    }

    fn broke(&mut self, rule: impl Into<String>) {
        self.broken.get_or_insert(rule.into());
    }

    // Sending.

    /// Returns the message that a side would send next.
    fn next_message(&self, setup: &Setup, side: Side) -> Option<(usize, MsgType, PartSplitter)> {
        let peer = &self.peers[index(side)];
        if peer.sending.is_some() {
            return peer.sending;
        }
        let reply = peer.replies.front().map(|rpc| (*rpc, MsgType::Reply));
        let call = || {
            let own = || setup.rpcs.iter().zip(&self.fates).enumerate();
            let own = |fate| own().filter(move |(_, (rpc, f))| rpc.caller == side && **f == fate);
            if own(Fate::Sent).count() >= setup.callers {
                return None;
            }
            let (rpc, _) = own(Fate::Waiting).next()?;
            Some((rpc, MsgType::Call))
        };
        let (rpc, direction) = reply.or_else(call)?;
        let connection = &peer.connection;
        let (len, threshold) = (
            self.len(setup, side, rpc, direction),
            connection.inline_send(),
        );
        Some((rpc, direction, PartSplitter::new(len, threshold, 36)))
    }

    /// Version 1 has no messages in parts, and this world no memory to name in chunks.
    fn len(&self, setup: &Setup, side: Side, rpc: usize, direction: MsgType) -> u32 {
        let len = match direction {
            MsgType::Call => setup.rpcs[rpc].call,
            MsgType::Reply => setup.rpcs[rpc].reply,
        };
        let connection = &self.peers[index(side)].connection;
        match connection.version() {
            Some(Version::V2) => len,
            _ => len.min(connection.inline_send() - 36),
        }
    }

    fn is_ready(&self, setup: &Setup, side: Side) -> bool {
        // Trying is the only way to know.
        self.next_message(setup, side)
            .is_some_and(|(rpc, direction, mut cutter)| {
                let mut peer = self.peers[index(side)].clone();
                let config = &setup.configs[index(side)];
                match cutter.next_part() {
                    Some(cut) => {
                        let tried = Self::header(config, &mut peer, self.now, rpc, direction, &cut);
                        !matches!(tried, Err(SendError::NoCredit | SendError::NotReady))
                    }
                    None => true,
                }
            })
    }

    fn header(
        config: &Config,
        peer: &mut Peer,
        now: Time,
        rpc: usize,
        direction: MsgType,
        cut: &MessagePart,
    ) -> Result<Vec<u8>, SendError> {
        let outgoing = Outgoing {
            xid: xid(rpc),
            direction,
            kind: Kind::Msg,
            more: cut.more,
            inv_handle: Handle::NONE,
        };
        if !cut.more && direction == MsgType::Reply && peer.held != 0 {
            // The Receive of the Call is free before the Reply grants credits.
            peer.held -= 1;
            Self::post(config, peer);
        }
        let mut header = vec![0; 64];
        let len = peer
            .connection
            .send(now, &mut header, &outgoing, &NoChunks)?;
        header.truncate(len);
        Ok(header)
    }

    fn send(&mut self, setup: &Setup, side: Side) {
        let Some((rpc, direction, mut cutter)) = self.next_message(setup, side) else {
            return;
        };
        let Some(cut) = cutter.next_part() else {
            return self.broke("a message cannot be cut");
        };
        let octets = payload(rpc, direction, self.len(setup, side, rpc, direction));
        let config = &setup.configs[index(side)];
        let peer = &mut self.peers[index(side)];
        let mut message = match Self::header(config, peer, self.now, rpc, direction, &cut) {
            Ok(header) => header,
            Err(error) => return self.broke(format!("a message cannot be sent: {error:?}")),
        };
        message.extend(&octets[cut.range.start as usize..cut.range.end as usize]);
        if cut.more {
            // Another message would fall between the parts.
            let mut other = peer.clone();
            let tried = Self::header(config, &mut other, self.now, rpc + 1, direction, &cut);
            if tried != Err(SendError::Busy) {
                return self.broke("a message is sent between the parts of another");
            }
        }
        peer.sending = cut.more.then_some((rpc, direction, cutter));
        let credited = peer.connection.version() == Some(Version::V2);
        match direction {
            _ if cut.more => {}
            MsgType::Call => self.fates[rpc] = Fate::Sent,
            MsgType::Reply => {
                peer.replies.pop_front();
            }
        }
        self.transmit(setup, side, message, credited);
        self.pump(setup, side);
    }

    fn post(config: &Config, peer: &mut Peer) {
        peer.connection
            .handle_posted(RecvCredits::receives(config.ceiling) - peer.held);
    }

    /// Returns the number of posted Receives of a side, including Receives with messages in them.
    fn receives(&self, setup: &Setup, side: Side) -> u32 {
        let config = &setup.configs[index(side)];
        let sender = &self.peers[index(other(side))].connection;
        if sender.version() == Some(Version::V2) {
            RecvCredits::receives(config.ceiling) - self.peers[index(side)].held
        } else {
            config.grants + config.calls
        }
    }

    fn transmit(&mut self, setup: &Setup, from: Side, message: Vec<u8>, credited: bool) {
        let to = index(other(from));
        let config = &setup.configs[to];
        let v2 = self.peers[index(from)].connection.version() == Some(Version::V2);
        let receives = self.receives(setup, other(from));
        let receive_len = if v2 {
            config.properties.recv_size.max(4096)
        } else {
            config.cm_private.recv_size
        };
        self.peers[index(from)].incomplete += u32::from(credited);
        let [client, server] = &setup.configs;
        let is_unannounced = !setup.in_band
            && client.versions.low == Version::V1
            && server.versions.high == Version::V1;
        if is_unannounced && message.get(4..8) == Some(&[0, 0, 0, 2]) {
            self.broke("a message of version 2 for a server that has not announced it");
        }
        let peer = &mut self.peers[to];
        peer.inbox.push_back(message);
        let (len, count) = (peer.inbox[peer.inbox.len() - 1].len(), peer.inbox.len());
        if count > receives as usize {
            self.missed += 1;
            if setup.fabric == Fabric::Iwarp {
                let side = other(from);
                self.broke(format!(
                    "{count} messages for {receives} Receives of the {side:?}"
                ));
            }
        }
        if len > receive_len as usize {
            self.broke(format!("{len} octets in a Receive of {receive_len}"));
        }
    }

    /// Sends the messages of the connection itself.
    fn pump(&mut self, setup: &Setup, side: Side) {
        // More than there can be in one go.
        for _ in 0..40 {
            let waiting = setup.rpcs.iter().zip(&self.fates);
            let waiting = waiting.into_iter().any(|(rpc, fate)| {
                rpc.caller == side && !matches!(fate, Fate::Done | Fate::Failed)
            });
            let busy = self.next_message(setup, side).is_some();
            let mut out = [0; MAX_CONTROL_LEN];
            let peer = &mut self.peers[index(side)];
            match peer
                .connection
                .poll_transmit(self.now, waiting, busy, &mut out)
            {
                None => return,
                Some(transmit) => {
                    let grant =
                        !transmit.credited && peer.connection.version() == Some(Version::V2);
                    if grant && std::mem::replace(&mut peer.granted, true) {
                        self.broke("a second grant without a sign of the other side");
                    }
                    self.transmit(setup, side, out[..transmit.len].to_vec(), transmit.credited);
                }
            }
        }
        self.broke("a connection talks without end");
    }

    // Receiving.

    fn receive(&mut self, setup: &Setup, side: Side) {
        let peer = &mut self.peers[index(side)];
        let Some(message) = peer.inbox.pop_front() else {
            return;
        };
        peer.granted = false;
        let settled = peer.connection.is_settled();
        let event = peer.connection.handle_message(self.now, &message, None);
        match event {
            Event::None | Event::Ready | Event::HostAuth(_) => {}
            Event::VersionChanged { refused } => {
                if let Some(refused) = refused {
                    let rpc = refused.0.wrapping_sub(xid(0).0) as usize;
                    if self.fates.get(rpc) != Some(&Fate::Sent) {
                        self.broke("a Call is refused that was not sent");
                        return;
                    }
                    self.fates[rpc] = Fate::Waiting;
                }
            }
            Event::Call(arrived) => {
                if let Some(rpc) = self.join(setup, side, &arrived, MsgType::Call) {
                    let peer = &mut self.peers[index(side)];
                    peer.replies.push_back(rpc);
                    if setup.hold && side == Side::Server {
                        peer.held += 1;
                        Self::post(&setup.configs[index(side)], peer);
                    }
                }
            }
            Event::Reply(arrived) => {
                if let Some(rpc) = self.join(setup, side, &arrived, MsgType::Reply) {
                    if self.fates[rpc] != Fate::Sent {
                        self.broke("a Reply without a Call");
                    }
                    self.fates[rpc] = Fate::Done;
                    self.peers[index(side)].connection.handle_call_ended();
                }
            }
            Event::Refused(_) if side == Side::Server && !settled => {}
            Event::Close { why, .. } => {
                if why != CloseReason::NoCommonVersion {
                    self.broke(format!("a good peer is left: {why:?}"));
                }
                return self.close(setup, why);
            }
            event => {
                let rule = format!("a good peer sends something wrong: {event:?}");
                self.broke(rule);
            }
        }
        let counters = self.peers[index(side)].connection.counters();
        if counters.overruns != 0 {
            self.broke("a message without a credit");
        }
        self.pump(setup, side);
    }

    /// Adds a part of an RPC message and returns the RPC when that is complete.
    fn join(
        &mut self,
        setup: &Setup,
        side: Side,
        arrived: &Arrived<'_>,
        direction: MsgType,
    ) -> Option<usize> {
        let peer = &mut self.peers[index(side)];
        if arrived.part.offset as usize != peer.joined.len() {
            self.broke("a part does not belong where it arrives");
            return None;
        }
        peer.joined.extend(arrived.conveyed.payload);
        if arrived.more {
            return None;
        }
        let joined = std::mem::take(&mut peer.joined);
        let rpc = arrived.fixed.xid.0.wrapping_sub(xid(0).0) as usize;
        let expected_caller = match direction {
            MsgType::Call => other(side),
            MsgType::Reply => side,
        };
        let known = setup
            .rpcs
            .get(rpc)
            .is_some_and(|known| known.caller == expected_caller);
        let len = u32::try_from(joined.len()).unwrap_or(u32::MAX);
        if !known || len != arrived.part.len || joined != payload(rpc, direction, len) {
            self.broke("an RPC message is not what was sent");
            return None;
        }
        let sent = match direction {
            MsgType::Call => setup.rpcs[rpc].call,
            MsgType::Reply => setup.rpcs[rpc].reply,
        };
        let v1 = self.peers[index(side)].connection.version() == Some(Version::V1);
        if len != sent && !v1 {
            self.broke("an RPC message is not whole");
        }
        Some(rpc)
    }

    // Time, loss, versions.

    fn pass_time(&mut self, setup: &Setup) {
        self.idle += 1;
        let due = [Side::Client, Side::Server].into_iter().filter_map(|side| {
            let fates = setup.rpcs.iter().zip(&self.fates);
            let waiting = fates.into_iter().any(|(rpc, fate)| {
                rpc.caller == side && !matches!(fate, Fate::Done | Fate::Failed)
            });
            self.peers[index(side)].connection.poll_timeout(waiting)
        });
        self.now = due.max().unwrap_or(self.now).max(self.now);
        for side in [Side::Client, Side::Server] {
            let peer = &mut self.peers[index(side)];
            // The keep-alive interval has passed.
            peer.granted = false;
            if let Event::Close { why, .. } = peer.connection.handle_timeout(self.now) {
                self.broke(format!("nothing happens any more: {why:?}"));
                return;
            }
            self.pump(setup, side);
        }
    }

    fn close(&mut self, setup: &Setup, why: CloseReason) {
        if why == CloseReason::NoCommonVersion {
            self.hopeless = true;
            self.fates.fill(Fate::Failed);
        } else {
            self.reconnect(setup);
        }
    }

    fn reconnect(&mut self, setup: &Setup) {
        self.check_versions();
        let client = &mut self.peers[CLIENT].connection;
        client.handle_lost(self.now, &mut self.memory);
        for fate in &mut self.fates {
            if *fate == Fate::Sent {
                *fate = Fate::Waiting;
            }
        }
        // A server has to hear from its client first, so that makes its first RPC again.
        self.fates[0] = Fate::Waiting;
        self.peers = Self::connect(setup, &self.memory, self.now);
        self.pump(setup, Side::Client);
    }

    /// The version changes once at most, never after it was settled, and never back to one that
    /// was given up.
    fn check_versions(&mut self) {
        for peer in &mut self.peers {
            let version = peer.connection.version();
            if peer.version.is_some() && version != peer.version {
                if peer.settled.is_some() || peer.changed {
                    self.broken.get_or_insert("the version flaps".into());
                }
                peer.changed = true;
            }
            peer.version = version;
            if peer.connection.is_settled() && peer.settled.is_none() {
                peer.settled = version;
            }
        }
        let settled = self.peers[CLIENT].settled;
        if let (Some(client), Some(server)) = (settled, self.peers[SERVER].settled) {
            if client != server {
                self.broke("the two sides speak different versions");
            }
        }
        if settled > self.last_settled && self.last_settled.is_some() {
            self.broke("the version flaps between connections");
        }
        self.last_settled = settled.or(self.last_settled);
    }
}

/// Two worlds are the same if they look the same.
impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        struct Feed<'a, H>(&'a mut H);
        impl<H: Hasher> std::fmt::Write for Feed<'_, H> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.write(text.as_bytes());
                Ok(())
            }
        }
        write!(Feed(state), "{self:?}").expect("nothing fails");
    }
}
