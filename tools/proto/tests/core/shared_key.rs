// SPDX-License-Identifier: GPL-2.0

//! Host authentication by a shared key, over two connections.

use std::cell::RefCell;

use common::config;
use proptest::prelude::*;
use rpcrdma_proto::proto::connection::host::Address;
use rpcrdma_proto::proto::connection::hostauth::{Policy, Verdict};
use rpcrdma_proto::proto::connection::negotiate::{Opening, Time};
use rpcrdma_proto::proto::connection::shared_key::{
    proven, Channel, End, Handshake, Mac, Nonce, MAX_LEN, PROVEN_LEN,
};
use rpcrdma_proto::proto::connection::{
    CloseReason, Config, Connection, Event, SendError, Side, MAX_CONTROL_LEN,
};
use rpcrdma_proto::proto::wire::chunk::NoChunks;
use rpcrdma_proto::proto::wire::header::{Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Version, Xid};

const NOW: Time = Time(1000);

/// A keyed hash without security, for tests.
fn mac(key: u64) -> impl Fn(&[u8]) -> Option<Mac> + Copy {
    move |octets: &[u8]| {
        let mut mac = [0; 32];
        let mut hash = key;
        for (place, byte) in octets.iter().chain(&[0; 32]).enumerate() {
            hash = (hash ^ u64::from(*byte))
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(11);
            mac[place % 32] ^= hash.to_le_bytes()[7];
        }
        Some(mac)
    }
}

fn required() -> Config {
    Config {
        auth: Policy::Require,
        ..config::both(32)
    }
}

fn end(address: &str, port: u16, queue_pair: u32) -> End {
    let plain = address.split('%').next().unwrap_or_default();
    End {
        address: Address::parse(plain).expect(address),
        port,
        queue_pair,
    }
}

fn channel() -> Channel {
    Channel {
        client: end("192.0.2.7", 45678, 17),
        server: end("192.0.2.1", 20049, 18),
    }
}

/// One side of a connection, and its messages.
struct Host {
    connection: Connection,
    handshake: Option<Handshake>,
    key: u64,
    /// The answers of the connection to it.
    told: Vec<&'static str>,
    closed: Option<CloseReason>,
}

impl Host {
    fn new(side: Side, key: Option<u64>) -> Self {
        let config = if key.is_some() {
            required()
        } else {
            config::both(32)
        };
        let nonce = [side as u8 + 1; 32];
        Self {
            connection: match side {
                Side::Client => Connection::client(config, Opening::InBand(Version::V2), &[], NOW),
                Side::Server => Connection::server(config, &[], NOW),
            },
            handshake: key.map(|_| Handshake::new(side, channel(), nonce)),
            key: key.unwrap_or_default(),
            told: Vec::new(),
            closed: None,
        }
    }

    /// Returns the message that it sends next.
    fn says(&mut self) -> Option<Vec<u8>> {
        let mut out = [0; MAX_CONTROL_LEN];
        let message = self.connection.poll_transmit(NOW, false, false, &mut out);
        let len = match message {
            Some(message) => message.len,
            None => {
                let handshake = self.handshake.as_mut()?;
                let material = handshake.pending()?;
                let len = self
                    .connection
                    .send_hostauth(NOW, &mut out, material)
                    .ok()?;
                handshake.sent();
                len
            }
        };
        self.connection.handle_sent(1);
        Some(out[..len].to_vec())
    }

    fn hears(&mut self, message: &[u8]) {
        let mut event = self.connection.handle_message(NOW, message, None);
        if let Event::HostAuth(material) = event {
            let handshake = self.handshake.as_mut().expect("nobody asked");
            let verdict = handshake.handle(material, mac(self.key));
            if handshake.pending().is_some() {
                self.connection.owe_hostauth();
            }
            event = self.connection.handle_auth(verdict);
        }
        match event {
            Event::None => {}
            Event::Close { why, .. } => self.closed = Some(why),
            other => self.told.push(other.name()),
        }
    }

    fn calls(&mut self) -> Result<Vec<u8>, SendError> {
        let call = Outgoing {
            xid: Xid(7),
            direction: MsgType::Call,
            kind: Kind::Msg,
            more: false,
            inv_handle: Handle::NONE,
        };
        let mut out = [0; 256];
        let len = self.connection.send(NOW, &mut out, &call, &NoChunks)?;
        let mut message = out[..len].to_vec();
        message.extend(common::rpc(7, 0, 40));
        Ok(message)
    }
}

/// Lets both sides send until neither has a message or one ends the connection; returns the
/// messages.
fn talk(client: &mut Host, server: &mut Host) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let said = if let Some(message) = client.says() {
            server.hears(&message);
            message
        } else if let Some(message) = server.says() {
            client.hears(&message);
            message
        } else {
            return all;
        };
        all.push(said);
        if client.closed.is_some() || server.closed.is_some() {
            return all;
        }
    }
}

//= V2-134, V2-135, V2-197 (test)
//= D-50 (test)
#[test]
fn both_prove_that_they_have_the_key() {
    let mut client = Host::new(Side::Client, Some(1));
    let mut server = Host::new(Side::Server, Some(1));
    // Its properties, and hello; nothing is for the server to execute before the last message.
    for _ in 0..2 {
        assert_eq!(client.calls(), Err(SendError::NotReady));
        let message = client.says().unwrap();
        server.hears(&message);
        let message = server.says().unwrap();
        assert!(server.told.is_empty() && client.told.is_empty());
        client.hears(&message);
    }
    assert_eq!(client.told, ["ready"]);
    // The server would refuse a message before the proof.
    assert_eq!(client.calls(), Err(SendError::Busy));
    let call = client.says().map(|proof| (proof, client.calls().unwrap()));
    let (proof, call) = call.unwrap();
    assert!(server.told.is_empty());
    server.hears(&proof);
    server.hears(&call);
    assert_eq!(server.told, ["ready", "call"]);
    // Nothing is due any more on that account.
    let late = Time(NOW.0 * 1_000);
    for host in [&mut client, &mut server] {
        assert!(matches!(host.connection.handle_timeout(late), Event::None));
    }
}

//= V2-135, D-50 (test)
#[test]
fn who_has_another_key_gets_nothing() {
    let mut client = Host::new(Side::Client, Some(1));
    let mut server = Host::new(Side::Server, Some(2));
    talk(&mut client, &mut server);
    assert_eq!(client.closed, Some(CloseReason::NotAuthenticated));
    assert_eq!(client.calls(), Err(SendError::NotReady));
    assert!(client.told.is_empty() && server.told.is_empty());
    assert!(client.says().is_none());
}

//= V2-135, D-50 (test)
#[test]
fn who_says_nothing_is_given_up() {
    for (client, server) in [(Some(1), None), (None, Some(1))] {
        let mut client = Host::new(Side::Client, client);
        let mut server = Host::new(Side::Server, server);
        talk(&mut client, &mut server);
        assert!(client.closed.is_none() && server.closed.is_none());
        if let Ok(call) = client.calls() {
            server.hears(&call);
            assert_eq!(server.told, ["dropped"]);
            assert!(server.connection.is_given_up());
        }
        let waits = if client.handshake.is_some() {
            &mut client
        } else {
            &mut server
        };
        let due = NOW
            .after(config::both(32).answer)
            .after(config::both(32).answer);
        assert_eq!(waits.connection.poll_timeout(false), Some(due));
        let early = waits.connection.handle_timeout(Time(due.0 - 1));
        assert!(matches!(early, Event::None));
        let event = waits.connection.handle_timeout(due);
        let why = CloseReason::NotAuthenticated;
        assert!(matches!(event, Event::Close { why: found, .. } if found == why));
    }
}

/// A client that calls before its proof gets no message any more, also none that is owed.
#[test]
fn a_peer_that_is_given_up_gets_nothing() {
    let mut client = Host::new(Side::Client, None);
    let mut server = Host::new(Side::Server, Some(1));
    server.hears(&client.says().unwrap());
    let mut owing = server.connection.clone();
    assert!(owing
        .poll_transmit(NOW, false, false, &mut [0; MAX_CONTROL_LEN])
        .is_some());
    let header = [7_u32, 2, 0x0010_0004, 0, 0, 0, 0, 0, 0];
    let mut call: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
    call.extend(common::rpc(7, 0, 40));
    server.hears(&call);
    assert!(server.connection.is_given_up());
    assert!(server.says().is_none());
}

/// Returns the messages of a client and a server with the same key in the handshake.
fn said() -> (Handshake, Handshake, [Vec<u8>; 3]) {
    let mut client = Handshake::new(Side::Client, channel(), [1; 32]);
    let mut server = Handshake::new(Side::Server, channel(), [2; 32]);
    let mut said = [const { Vec::new() }; 3];
    said[0] = client.pending().unwrap().to_vec();
    client.sent();
    assert_eq!(server.handle(&said[0], mac(1)), Verdict::Continue);
    said[1] = server.pending().unwrap().to_vec();
    server.sent();
    assert_eq!(client.handle(&said[1], mac(1)), Verdict::Accept);
    said[2] = client.pending().unwrap().to_vec();
    client.sent();
    assert!(said.iter().all(|message| message.len() <= MAX_LEN));
    (client, server, said)
}

//= V2-134, D-50 (test)
#[test]
fn a_proof_is_good_for_one_connection_one_side_and_once() {
    let (mut client, mut server, [hello, proof, last]) = said();
    assert!(client.pending().is_none() && server.pending().is_none());
    // A server that has been told already is not told again.
    assert_eq!(client.handle(&proof, mac(1)), Verdict::Refuse);
    // The messages of another connection.
    let mut other = Handshake::new(Side::Client, channel(), [3; 32]);
    assert_eq!(other.handle(&proof, mac(1)), Verdict::Refuse);
    let mut other = Handshake::new(Side::Server, channel(), [3; 32]);
    assert_eq!(other.handle(&hello, mac(1)), Verdict::Continue);
    assert_eq!(other.handle(&last, mac(1)), Verdict::Refuse);
    // The proof of this side, which has the other's nonce for its own.
    let mut other = Handshake::new(Side::Server, channel(), [2; 32]);
    assert_eq!(other.handle(&hello, mac(1)), Verdict::Continue);
    let own = other.pending().unwrap()[40..].to_vec();
    let reflected = [&last[..8], &own].concat();
    assert_eq!(other.handle(&reflected, mac(1)), Verdict::Refuse);
    // After a refusal, nothing helps.
    assert_eq!(other.handle(&last, mac(1)), Verdict::Refuse);
    let mut other = Handshake::new(Side::Server, channel(), [2; 32]);
    assert_eq!(other.handle(&hello, mac(1)), Verdict::Continue);
    assert_eq!(other.handle(b"", mac(1)), Verdict::Refuse);
    assert_eq!(other.handle(&last, mac(1)), Verdict::Refuse);
    // Messages of the wrong side, out of turn, or twice.
    for out_of_turn in [&proof, &last] {
        let mut other = Handshake::new(Side::Server, channel(), [2; 32]);
        assert_eq!(other.handle(out_of_turn, mac(1)), Verdict::Refuse);
    }
    let mut other = Handshake::new(Side::Server, channel(), [2; 32]);
    assert_eq!(other.handle(&hello, mac(1)), Verdict::Continue);
    assert_eq!(other.handle(&hello, mac(1)), Verdict::Refuse);
    assert_eq!(server.handle(&last, mac(1)), Verdict::Accept);
    assert_eq!(server.handle(&last, mac(1)), Verdict::Refuse);
}

//= V2-134, D-50 (test)
#[test]
fn every_octet_of_a_proof_counts() {
    let (_, _, [hello, proof, last]) = said();
    for at in 0..32 {
        let mut client = Handshake::new(Side::Client, channel(), [1; 32]);
        let mut wrong = proof.clone();
        wrong[40 + at] ^= 1;
        assert_eq!(client.handle(&wrong, mac(1)), Verdict::Refuse);
        let mut server = Handshake::new(Side::Server, channel(), [2; 32]);
        assert_eq!(server.handle(&hello, mac(1)), Verdict::Continue);
        let mut wrong = last.clone();
        wrong[8 + at] ^= 1;
        assert_eq!(server.handle(&wrong, mac(1)), Verdict::Refuse);
    }
}

//= V2-135, D-50 (test)
#[test]
fn without_a_key_nothing_is_proven() {
    let (_, _, [hello, proof, _]) = said();
    let mut server = Handshake::new(Side::Server, channel(), [2; 32]);
    assert_eq!(server.handle(&hello, |_| None), Verdict::Refuse);
    assert!(server.pending().is_none());
    let mut client = Handshake::new(Side::Client, channel(), [1; 32]);
    assert_eq!(client.handle(&proof, |_| None), Verdict::Refuse);
}

proptest! {
    //= V2-134, D-50 (test)
    #[test]
    fn whatever_else_comes_is_no_proof(
        which in 0_usize..3,
        at in 0_usize..MAX_LEN,
        bit in 0_u32..8,
        rest in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
    ) {
        let (_, _, said) = said();
        let mut host = match which {
            1 => Handshake::new(Side::Client, channel(), [1; 32]),
            _ => Handshake::new(Side::Server, channel(), [2; 32]),
        };
        if which == 2 {
            prop_assert_eq!(host.handle(&said[0], mac(1)), Verdict::Continue);
        }
        let mut wrong = said[which].clone();
        let at = at % wrong.len();
        match rest {
            Some(rest) => {
                wrong.truncate(at);
                wrong.extend(&rest);
            }
            None => wrong[at] ^= 1 << bit,
        }
        prop_assume!(wrong != said[which]);
        // Another hello is one.
        let hello = which == 0 && wrong.len() == said[0].len() && wrong[..8] == said[0][..8];
        let verdict = if hello { Verdict::Continue } else { Verdict::Refuse };
        prop_assert_eq!(host.handle(&wrong, mac(1)), verdict);
    }
}

/// Each byte under the keyed hash of a proof counts, and no other byte.
//= V2-134, D-50 (test)
#[test]
fn a_proof_is_of_every_end_of_its_connection() {
    let of = |channel: &Channel| proven(2, &[1; 32], &[2; 32], channel).unwrap();
    let plain = of(&channel());
    assert_eq!(plain.len(), PROVEN_LEN);
    let changes: [fn(&mut End); 4] = [
        |end| end.address.0[15] ^= 1,
        |end| end.address.0[0] ^= 0x80,
        |end| end.port ^= 1,
        |end| end.queue_pair ^= 1,
    ];
    let mut seen = vec![plain];
    for change in changes {
        for server in [false, true] {
            let mut other = channel();
            change(if server {
                &mut other.server
            } else {
                &mut other.client
            });
            seen.push(of(&other));
        }
    }
    // The ends have places of their own.
    let Channel { client, server } = channel();
    seen.push(of(&Channel {
        client: server,
        server: client,
    }));
    seen.push(proven(3, &[1; 32], &[2; 32], &channel()).unwrap());
    seen.push(proven(2, &[2; 32], &[1; 32], &channel()).unwrap());
    for (at, one) in seen.iter().enumerate() {
        assert!(seen[..at].iter().all(|other| other != one), "{at}");
    }
    // The connection manager has room for 24 bits.
    let mut wide = channel();
    wide.client.queue_pair |= 0x1700_0000;
    assert_eq!(of(&wide), plain);
}

/// All possible actions of an attacker without the key, with the messages of hosts with the key:
/// forwarding them to any host, in any order, and combining nonces and proofs anew.
struct Attacker {
    nonces: Vec<Nonce>,
    proofs: Vec<Mac>,
    accepted: usize,
    refused: usize,
}

impl Attacker {
    /// Returns the messages that can be made from the recorded messages.
    fn messages(&self) -> Vec<Vec<u8>> {
        let message = |which: u32, octets: &[&[u8; 32]]| {
            let words = [0x5053_4b32_u32, which].map(u32::to_be_bytes).concat();
            [words, octets.iter().copied().flatten().copied().collect()].concat()
        };
        let mut all = Vec::new();
        for nonce in &self.nonces {
            all.push(message(1, &[nonce]));
            all.extend(self.proofs.iter().map(|proof| message(2, &[nonce, proof])));
        }
        all.extend(self.proofs.iter().map(|proof| message(3, &[proof])));
        all
    }

    fn hear(&mut self, host: &Handshake) {
        let Some(said) = host.pending() else { return };
        let octets = |at: usize| <[u8; 32]>::try_from(&said[at..at + 32]).unwrap();
        match said[7] {
            1 => self.nonces.push(octets(8)),
            2 => {
                self.nonces.push(octets(8));
                self.proofs.push(octets(40));
            }
            _ => self.proofs.push(octets(8)),
        }
    }

    /// Tries all that can be said to each of `hosts`; one that has refused or accepted is over.
    fn explore(&mut self, hosts: &[Handshake], mac: &dyn Fn(&[u8]) -> Option<Mac>) {
        for (at, host) in hosts.iter().enumerate() {
            for message in self.messages() {
                let mut host = host.clone();
                host.sent();
                match host.handle(&message, mac) {
                    Verdict::Refuse => self.refused += 1,
                    Verdict::Accept => self.accepted += 1,
                    Verdict::Continue => {
                        let known = (self.nonces.len(), self.proofs.len());
                        self.hear(&host);
                        let mut hosts = hosts.to_vec();
                        hosts[at] = host;
                        self.explore(&hosts, mac);
                        self.nonces.truncate(known.0);
                        self.proofs.truncate(known.1);
                    }
                }
            }
        }
    }
}

fn attack(hosts: &[(Side, Channel)]) -> (usize, usize) {
    // A keyed hash that cannot be broken: each input has an output of its own.
    let inputs = RefCell::new(Vec::<Vec<u8>>::new());
    let mac = |octets: &[u8]| {
        let mut inputs = inputs.borrow_mut();
        let number = inputs.iter().position(|known| known == octets);
        let number = number.unwrap_or_else(|| {
            inputs.push(octets.to_vec());
            inputs.len() - 1
        });
        Some([0x80 + u8::try_from(number).unwrap(); 32])
    };
    let hosts: Vec<_> = (1_u8..)
        .zip(hosts)
        .map(|(number, (side, channel))| Handshake::new(*side, *channel, [number; 32]))
        .collect();
    let mut attacker = Attacker {
        nonces: vec![[0x70; 32]],
        proofs: vec![[0x71; 32]],
        accepted: 0,
        refused: 0,
    };
    for host in &hosts {
        attacker.hear(host);
    }
    attacker.explore(&hosts, &mac);
    (attacker.accepted, attacker.refused)
}

//= V2-134, V2-135, D-50 (test)
#[test]
fn messages_that_are_passed_on_prove_nothing() {
    let between = |client, server| Channel { client, server };
    let host = end("192.0.2.1", 1023, 17);
    let service = end("192.0.2.1", 20049, 18);
    let other = end("192.0.2.2", 20049, 17);
    let (near, far) = (end("192.0.2.66", 20049, 17), end("192.0.2.66", 1023, 19));
    // A client is on one connection with the attacker, and on another one with
    // another server, its own host's, or both.
    let client = (Side::Client, between(host, near));
    let servers = [
        (Side::Server, between(far, other)),
        (Side::Server, between(far, service)),
    ];
    for servers in [&servers[..1], &servers[1..], &servers] {
        let (accepted, refused) = attack(&[&[client], servers].concat());
        assert_eq!(accepted, 0);
        assert!(refused > 50, "{refused}");
    }
    // The attacker has the port and the address of the client, or is the server to its own host.
    let same_address = between(end("192.0.2.1", 1023, 99), other);
    assert_eq!(attack(&[client, (Side::Server, same_address)]).0, 0);
    assert_eq!(attack(&[client, (Side::Server, between(near, host))]).0, 0);
    // On the same connection they do, as they should.
    let honest = between(host, other);
    assert!(attack(&[(Side::Client, honest), (Side::Server, honest)]).0 > 0);
}

fn octets<const N: usize>(vector: &serde_json::Value, field: &str) -> [u8; N] {
    let text = vector[field].as_str().expect(field);
    let octets: Vec<_> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect(field))
        .collect();
    octets.try_into().expect(field)
}

fn end_of(vector: &serde_json::Value) -> End {
    let number = |field| vector[field].as_u64().expect("a number");
    end(
        vector["address"].as_str().expect("an address"),
        number("port").try_into().unwrap(),
        number("queue_pair").try_into().unwrap(),
    )
}

/// `vectors/shared_key` has computed them, with a library's keyed hash.
//= V2-134, V2-197, D-50 (test)
#[test]
fn both_sides_say_what_the_vectors_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/shared_key.json");
    let text = std::fs::read_to_string(path).unwrap();
    let vectors: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert!(vectors.len() >= 6);
    for vector in &vectors {
        let channel = Channel {
            client: end_of(&vector["client"]),
            server: end_of(&vector["server"]),
        };
        let (of_client, of_server) = (
            octets(vector, "client_nonce"),
            octets(vector, "server_nonce"),
        );
        let hello: [u8; 40] = octets(vector, "hello");
        let said: [u8; 72] = octets(vector, "said_by_server");
        let last: [u8; 40] = octets(vector, "said_by_client");
        let (input, other): ([u8; PROVEN_LEN], [u8; PROVEN_LEN]) = (
            octets(vector, "server_input"),
            octets(vector, "client_input"),
        );
        let mac = |octets: &[u8]| {
            if octets == input {
                said[40..].try_into().ok()
            } else if octets == other {
                last[8..].try_into().ok()
            } else {
                None
            }
        };
        let mut client = Handshake::new(Side::Client, channel, of_client);
        let mut server = Handshake::new(Side::Server, channel, of_server);
        assert_eq!(client.pending(), Some(&hello[..]), "{}", vector["id"]);
        assert_eq!(server.handle(&hello, mac), Verdict::Continue);
        assert_eq!(server.pending(), Some(&said[..]), "{}", vector["id"]);
        assert_eq!(client.handle(&said, mac), Verdict::Accept);
        assert_eq!(client.pending(), Some(&last[..]));
        assert_eq!(server.handle(&last, mac), Verdict::Accept);
    }
}
