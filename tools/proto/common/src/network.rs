// SPDX-License-Identifier: GPL-2.0

//! Two [`Connection`]s and the network between them.
//!
//! The network is a reliable connection: messages arrive in order and once, Sends complete at any
//! time later, and the connection can be lost. The user decides when a message is handled, when a
//! Send completes, and which RPC messages are sent; so it decides about every delay.
//!
//! Each side has a receive queue. A message needs a Receive that is posted: without one it waits,
//! and so does each message behind it (InfiniBand, RNR), or the connection ends (iWARP); see
//! [`Fabric`]. Two peers that keep the rules never let that happen.
//!
//! A [`Network`] checks as it goes: there is a Receive for each message on its way, which is long
//! enough, and the version is chosen once.

use std::collections::VecDeque;

use rpcrdma_proto::proto::connection::credit::RecvCredits;
use rpcrdma_proto::proto::connection::negotiate::{Opening, PeerVersionMemo, Time};
use rpcrdma_proto::proto::connection::{Config, Connection, Event, Side, MAX_CONTROL_LEN};
use rpcrdma_proto::proto::wire::types::{Version, Xid};

/// The configurations of the two sides: client, server.
pub type Configs = [Config; 2];

/// Both sides.
pub const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// Returns the place of a side in an array of both.
pub fn index(side: Side) -> usize {
    match side {
        Side::Client => 0,
        Side::Server => 1,
    }
}

/// Returns the other side.
pub fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

/// The fate of a message without a posted Receive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fabric {
    /// It waits for a Receive, and each message behind it waits, too.
    InfiniBand,
    /// The connection ends, which breaks a rule here.
    Iwarp,
}

/// One side of the connection.
#[derive(Clone, Debug)]
pub struct Node {
    /// The protocol's state.
    pub connection: Connection,
    /// Messages to this side in order: first the messages in Receives, then the messages that wait
    /// for a Receive.
    pub inbox: VecDeque<Vec<u8>>,
    /// Sends with a credit whose completion was not reported.
    pub incomplete: u32,
    /// Receives that are not posted: a Call holds them, or they have still to be posted.
    away: u32,
    /// A message of version 2 was sent.
    pub sent_version_2: bool,
    /// A message that only grants was sent, and nothing was heard from the other side since.
    granted: bool,
    /// The version when it was looked at last.
    version: Option<Version>,
    /// It was another one before.
    changed: bool,
    /// The version when it became final.
    settled: Option<Version>,
}

impl Node {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            inbox: VecDeque::new(),
            incomplete: 0,
            away: 0,
            sent_version_2: false,
            granted: false,
            version: None,
            changed: false,
            settled: None,
        }
    }

    /// Takes `count` Receives out of the receive queue.
    pub fn take_receives(&mut self, config: &Config, count: u32) {
        self.away += count;
        self.count_receives(config);
    }

    /// Posts `count` Receives that were not.
    pub fn post_receives(&mut self, config: &Config, count: u32) {
        self.away -= count;
        self.count_receives(config);
    }

    /// Returns the number of Receives that are not posted.
    pub fn away(&self) -> u32 {
        self.away
    }

    fn count_receives(&mut self, config: &Config) {
        let all = RecvCredits::receives(config.ceiling);
        self.connection.handle_posted(all - self.away.min(all));
    }

    /// Returns the version when it became final.
    pub fn settled(&self) -> Option<Version> {
        self.settled
    }
}

/// The two sides, and the data that last longer than a connection.
#[derive(Clone, Debug)]
pub struct Network {
    /// The sides: client, server.
    pub nodes: [Node; 2],
    /// The client's memory of the server's versions.
    pub memory: PeerVersionMemo,
    /// The time.
    pub now: Time,
    fabric: Fabric,
    in_band: bool,
    /// The number of messages that found no Receive.
    missed: u32,
    /// The first rule that was broken.
    broken: Option<String>,
}

impl Network {
    /// Connects two peers. The version is negotiated `in_band`, or by the announcement of the server.
    pub fn new(configs: &Configs, fabric: Fabric, in_band: bool) -> Self {
        let node = |config: &Config| Node::new(Connection::server(*config, &[], Time(0)));
        let mut network = Self {
            nodes: [node(&configs[0]), node(&configs[1])],
            memory: PeerVersionMemo::default(),
            now: Time(0),
            fabric,
            in_band,
            missed: 0,
            broken: None,
        };
        network.connect(configs);
        network
    }

    /// Makes a new connection.
    pub fn connect(&mut self, configs: &Configs) {
        let [mut client, server] = *configs;
        let opening = if self.in_band {
            if self.memory.opens_by_call(self.now) {
                client.xid = Xid(0);
            }
            Opening::InBand(self.memory.first(self.now, client.versions))
        } else {
            Opening::Announced
        };
        let (client_data, server_data) = (client.private_data(), server.private_data());
        let client = Connection::client(client, opening, &server_data, self.now);
        let server = Connection::server(server, &client_data, self.now);
        self.nodes = [Node::new(client), Node::new(server)];
    }

    /// Ends the connection.
    pub fn lose(&mut self) {
        self.check_versions();
        let [client, _] = &mut self.nodes;
        client.connection.handle_lost(self.now, &mut self.memory);
    }

    /// Returns a side.
    pub fn node(&mut self, side: Side) -> &mut Node {
        &mut self.nodes[index(side)]
    }

    /// Returns the protocol's state of a side.
    pub fn connection(&self, side: Side) -> &Connection {
        &self.nodes[index(side)].connection
    }

    /// Returns the rule that was broken, if one was.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Notes that a rule is broken.
    pub fn broke(&mut self, rule: impl Into<String>) {
        self.broken.get_or_insert(rule.into());
    }

    /// Returns the number of messages that found no Receive.
    pub fn missed(&self) -> u32 {
        self.missed
    }

    /// Returns the number of posted Receives of a side, including Receives with messages in them.
    pub fn receives(&self, configs: &Configs, side: Side) -> u32 {
        let config = &configs[index(side)];
        match self.connection(other(side)).version() {
            Some(Version::V2) => {
                let all = RecvCredits::receives(config.ceiling);
                all.saturating_sub(self.nodes[index(side)].away)
            }
            // In version 1 a Receive is posted again before its credit can be used.
            _ => config.grants + config.calls,
        }
    }

    /// Sends a message. It takes a credit of version 2 if it is `credited`.
    pub fn transmit(&mut self, configs: &Configs, from: Side, message: Vec<u8>, credited: bool) {
        let to = other(from);
        let sender = self.connection(from).version();
        let receives = self.receives(configs, to);
        let receive_len = configs[index(to)].receive_size(sender);
        self.node(from).incomplete += u32::from(credited);
        if message.get(4..8) == Some(&[0, 0, 0, 2]) {
            self.node(from).sent_version_2 = true;
            let [client, server] = configs;
            let is_unannounced = !self.in_band
                && client.versions.low == Version::V1
                && server.versions.high == Version::V1;
            if is_unannounced {
                self.broke("a message of version 2 for a server that has not announced it");
            }
        }
        let len = message.len();
        let inbox = &mut self.node(to).inbox;
        inbox.push_back(message);
        let count = inbox.len();
        if count > receives as usize {
            self.missed += 1;
            if self.fabric == Fabric::Iwarp {
                self.broke(format!(
                    "{count} messages for {receives} Receives of the {to:?}"
                ));
            }
        }
        if len > receive_len as usize {
            self.broke(format!("{len} octets in a Receive of {receive_len}"));
        }
    }

    /// Sends a message of the connection itself, if there is one. `waiting` says whether RPCs of the side wait,
    /// and `busy` whether it sends an RPC message next.
    pub fn transmit_control(
        &mut self,
        configs: &Configs,
        side: Side,
        waiting: bool,
        busy: bool,
    ) -> bool {
        let mut out = [0; MAX_CONTROL_LEN];
        let now = self.now;
        let node = self.node(side);
        let Some(transmit) = node.connection.poll_transmit(now, waiting, busy, &mut out) else {
            return false;
        };
        let is_grant = !transmit.credited && node.connection.version() == Some(Version::V2);
        if is_grant && std::mem::replace(&mut node.granted, true) {
            self.broke("a second grant without a sign of the other side");
        }
        let message = out[..transmit.len].to_vec();
        self.transmit(configs, side, message, transmit.credited);
        true
    }

    /// Returns whether a message has arrived that a side can handle.
    pub fn has_message(&self, configs: &Configs, side: Side) -> bool {
        !self.nodes[index(side)].inbox.is_empty() && self.receives(configs, side) != 0
    }

    /// Takes the next message that has arrived at a side.
    pub fn take_message(&mut self, side: Side) -> Option<Vec<u8>> {
        let node = self.node(side);
        let message = node.inbox.pop_front()?;
        node.granted = false;
        Some(message)
    }

    /// Reports the completion of a Send.
    pub fn complete(&mut self, side: Side) {
        let node = self.node(side);
        node.incomplete -= 1;
        node.connection.handle_sent(1);
    }

    /// Calls a side after its time-out.
    pub fn pass_timeout(&mut self, side: Side) -> Event<'static> {
        let now = self.now;
        let node = self.node(side);
        // The keep-alive interval has passed.
        node.granted = false;
        node.connection.handle_timeout(now)
    }

    /// The version changes once at most, never after it was settled, and never back to one that
    /// was given up.
    pub fn check_versions(&mut self) {
        for node in &mut self.nodes {
            let version = node.connection.version();
            if node.version.is_some() && version != node.version {
                if node.settled.is_some() || node.changed {
                    self.broken.get_or_insert("the version flaps".into());
                }
                node.changed = true;
            }
            node.version = version;
            if node.connection.is_settled() && node.settled.is_none() {
                node.settled = version;
            }
        }
        let [client, server] = [0, 1].map(|side: usize| self.nodes[side].settled);
        if client.is_some() && server.is_some() && client != server {
            self.broke("the two sides speak different versions");
        }
    }
}
