// SPDX-License-Identifier: GPL-2.0

//! The two sides of a [`Network`], and the requests of their callers.
//!
//! Every possible next step is an [`Action`]. The choice among the actions explores the states of
//! the protocol core.
//!
//! A [`World`] checks as it goes: RPC messages arrive whole and unharmed, peers that keep the rules
//! find nothing wrong with each other, and the version does not change between connections.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use rpcrdma_proto::proto::connection::continuation::{MessagePart, PartSplitter};
use rpcrdma_proto::proto::connection::negotiate::Time;
use rpcrdma_proto::proto::connection::{Arrived, CloseReason, Config, Event, SendError, Side};
use rpcrdma_proto::proto::wire::chunk::NoChunks;
use rpcrdma_proto::proto::wire::header::{Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Version, Xid};

use crate::network::{index, other, Configs, Fabric, Network, Node, SIDES};

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
    pub configs: Configs,
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

/// The RPC messages of one side.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// RPCs of the other side to be answered.
    replies: VecDeque<usize>,
    /// The RPC message that is being sent.
    sending: Option<(usize, MsgType, PartSplitter)>,
    /// The parts that arrived of an RPC message.
    joined: Vec<u8>,
}

/// The whole state.
#[derive(Clone, Debug)]
pub struct World {
    network: Network,
    peers: [Peer; 2],
    fates: Vec<Fate>,
    losses: u8,
    impatience: u8,
    /// The number of messages in a row that only keep the connection alive.
    idle: u8,
    /// The version of the last connection that settled on one.
    last_settled: Option<Version>,
    /// No connection will ever be made.
    hopeless: bool,
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
        let mut world = Self {
            network: Network::new(&setup.configs, setup.fabric, setup.in_band),
            peers: Default::default(),
            fates: vec![Fate::Waiting; setup.rpcs.len()],
            losses: setup.losses,
            impatience: setup.impatience,
            idle: 0,
            last_settled: None,
            hopeless: false,
        };
        world.pump(setup, Side::Client);
        world
    }

    /// Returns the rule that was broken, if one was.
    pub fn broken(&self) -> Option<&str> {
        self.network.broken()
    }

    /// Returns the fates of the RPCs.
    pub fn fates(&self) -> &[Fate] {
        &self.fates
    }

    /// Returns whether there is no version that both sides speak.
    pub fn is_hopeless(&self) -> bool {
        self.hopeless
    }

    /// Returns the number of messages that found no Receive.
    pub fn missed(&self) -> u32 {
        self.network.missed()
    }

    /// Returns the version that was settled on last.
    pub fn version(&self) -> Option<Version> {
        self.last_settled
    }

    /// Returns whether all RPCs have ended.
    pub fn is_over(&self) -> bool {
        self.fates
            .iter()
            .all(|fate| matches!(fate, Fate::Done | Fate::Failed))
    }

    /// Adds the possible next actions.
    pub fn actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        if self.broken().is_some() || self.hopeless {
            return;
        }
        for side in SIDES {
            if self.is_ready(setup, side) {
                actions.push(Action::Send(side));
            }
            if self.network.has_message(&setup.configs, side) {
                actions.push(Action::Receive(side));
            }
            if self.network.nodes[index(side)].incomplete != 0 {
                actions.push(Action::Complete(side));
            }
        }
        if self.is_over() {
            return;
        }
        if actions.is_empty() && self.idle < 2 {
            actions.push(Action::Idle);
        }
        if self.impatience != 0 && !self.network.connection(Side::Client).is_settled() {
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
                self.network.complete(side);
                self.pump(setup, side);
            }
            Action::Idle => self.pass_time(setup),
            Action::Impatience => {
                self.impatience -= 1;
                let now = self.network.now.after(setup.configs[0].answer);
                self.network.now = now;
                let client = self.network.node(Side::Client);
                let event = client.connection.handle_timeout(now);
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
        self.network.broke(rule);
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
        let connection = self.network.connection(side);
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
        let connection = self.network.connection(side);
        match connection.version() {
            Some(Version::V2) => len,
            _ => len.min(connection.inline_send() - 36),
        }
    }

    fn is_ready(&self, setup: &Setup, side: Side) -> bool {
        // Trying is the only way to know.
        self.next_message(setup, side)
            .is_some_and(|(rpc, direction, mut cutter)| {
                let mut node = self.network.nodes[index(side)].clone();
                let config = &setup.configs[index(side)];
                let now = self.network.now;
                match cutter.next_part() {
                    Some(cut) => {
                        let tried = Self::header(config, &mut node, now, rpc, direction, &cut);
                        !matches!(tried, Err(SendError::NoCredit | SendError::NotReady))
                    }
                    None => true,
                }
            })
    }

    fn header(
        config: &Config,
        node: &mut Node,
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
        if !cut.more && direction == MsgType::Reply && node.away() != 0 {
            // The Receive of the Call is free before the Reply grants credits.
            node.post_receives(config, 1);
        }
        let mut header = vec![0; 64];
        let len = node
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
        let now = self.network.now;
        let node = self.network.node(side);
        let mut message = match Self::header(config, node, now, rpc, direction, &cut) {
            Ok(header) => header,
            Err(error) => return self.broke(format!("a message cannot be sent: {error:?}")),
        };
        message.extend(&octets[cut.range.start as usize..cut.range.end as usize]);
        if cut.more {
            // Another message would fall between the parts.
            let mut other = node.clone();
            let tried = Self::header(config, &mut other, now, rpc + 1, direction, &cut);
            if tried != Err(SendError::Busy) {
                return self.broke("a message is sent between the parts of another");
            }
        }
        let credited = node.connection.version() == Some(Version::V2);
        let peer = &mut self.peers[index(side)];
        peer.sending = cut.more.then_some((rpc, direction, cutter));
        match direction {
            _ if cut.more => {}
            MsgType::Call => self.fates[rpc] = Fate::Sent,
            MsgType::Reply => {
                peer.replies.pop_front();
            }
        }
        self.network
            .transmit(&setup.configs, side, message, credited);
        self.pump(setup, side);
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
            if !self
                .network
                .transmit_control(&setup.configs, side, waiting, busy)
            {
                return;
            }
        }
        self.broke("a connection talks without end");
    }

    // Receiving.

    fn receive(&mut self, setup: &Setup, side: Side) {
        let Some(message) = self.network.take_message(side) else {
            return;
        };
        let now = self.network.now;
        let node = self.network.node(side);
        let settled = node.connection.is_settled();
        let event = node.connection.handle_message(now, &message, None);
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
                    self.peers[index(side)].replies.push_back(rpc);
                    if setup.hold && side == Side::Server {
                        let config = &setup.configs[index(side)];
                        self.network.node(side).take_receives(config, 1);
                    }
                }
            }
            Event::Reply(arrived) => {
                if let Some(rpc) = self.join(setup, side, &arrived, MsgType::Reply) {
                    if self.fates[rpc] != Fate::Sent {
                        self.broke("a Reply without a Call");
                    }
                    self.fates[rpc] = Fate::Done;
                    self.network.node(side).connection.handle_call_ended();
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
        let counters = self.network.connection(side).counters();
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
        let v1 = self.network.connection(side).version() == Some(Version::V1);
        if len != sent && !v1 {
            self.broke("an RPC message is not whole");
        }
        Some(rpc)
    }

    // Time, loss, versions.

    fn pass_time(&mut self, setup: &Setup) {
        self.idle += 1;
        let due = SIDES.into_iter().filter_map(|side| {
            let fates = setup.rpcs.iter().zip(&self.fates);
            let waiting = fates.into_iter().any(|(rpc, fate)| {
                rpc.caller == side && !matches!(fate, Fate::Done | Fate::Failed)
            });
            self.network.connection(side).poll_timeout(waiting)
        });
        let now = self.network.now;
        self.network.now = due.max().unwrap_or(now).max(now);
        for side in SIDES {
            if let Event::Close { why, .. } = self.network.pass_timeout(side) {
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
        for fate in &mut self.fates {
            if *fate == Fate::Sent {
                *fate = Fate::Waiting;
            }
        }
        // A server has to hear from its client first, so that makes its first RPC again.
        self.fates[0] = Fate::Waiting;
        self.peers = Default::default();
        self.network.lose();
        self.network.connect(&setup.configs);
        self.pump(setup, Side::Client);
    }

    /// The version never goes back to one that was given up on an earlier connection.
    fn check_versions(&mut self) {
        self.network.check_versions();
        let settled = self.network.node(Side::Client).settled();
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
