// SPDX-License-Identifier: GPL-2.0

//! Host authentication by a shared key, over two connections.

use common::config;
use proptest::prelude::*;
use rpcrdma_proto::proto::chunk::NoChunks;
use rpcrdma_proto::proto::connection::{
    CloseReason, Config, Connection, Event, SendError, Side, MAX_CONTROL_LEN,
};
use rpcrdma_proto::proto::header::{Kind, Outgoing};
use rpcrdma_proto::proto::hostauth::{Policy, Verdict};
use rpcrdma_proto::proto::negotiate::{Opening, Time};
use rpcrdma_proto::proto::shared_key::{Handshake, Mac, MAX_LEN};
use rpcrdma_proto::proto::types::{Handle, MsgType, Version, Xid};

const NOW: Time = Time(1000);

/// A keyed hash that is good enough for who does not want to break it.
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
        mechanism: true,
        ..config::both(32)
    }
}

/// One side of a connection, and what it says of the other.
struct Host {
    connection: Connection,
    handshake: Option<Handshake>,
    key: u64,
    /// What was told to it.
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
            handshake: key.map(|_| Handshake::new(side, nonce)),
            key: key.unwrap_or_default(),
            told: Vec::new(),
            closed: None,
        }
    }

    /// What it sends on its own.
    fn says(&mut self) -> Option<Vec<u8>> {
        let mut out = [0; MAX_CONTROL_LEN];
        let message = self.connection.poll_transmit(NOW, false, false, &mut out);
        let len = match message {
            Some(message) => message.len,
            None => {
                let handshake = self.handshake.as_mut()?;
                let material = handshake.pending()?;
                let len = self.connection.send_hostauth(&mut out, material).ok()?;
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

/// Lets both talk until nobody has anything to say or one hangs up; returns what was said.
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

//= V2-134, V2-135, V2-197, D-50 (test)
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
    // The server would refuse what comes before the proof.
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
            assert_eq!(server.told, ["refused"]);
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

/// What a client and a server with the same key say in the handshake.
fn said() -> (Handshake, Handshake, [Vec<u8>; 3]) {
    let mut client = Handshake::new(Side::Client, [1; 32]);
    let mut server = Handshake::new(Side::Server, [2; 32]);
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
    // What another connection has seen.
    let mut other = Handshake::new(Side::Client, [3; 32]);
    assert_eq!(other.handle(&proof, mac(1)), Verdict::Refuse);
    let mut other = Handshake::new(Side::Server, [3; 32]);
    assert_eq!(other.handle(&hello, mac(1)), Verdict::Continue);
    assert_eq!(other.handle(&last, mac(1)), Verdict::Refuse);
    // The proof of this side, which has the other's nonce for its own.
    let mut other = Handshake::new(Side::Server, [2; 32]);
    assert_eq!(other.handle(&hello, mac(1)), Verdict::Continue);
    let own = other.pending().unwrap()[40..].to_vec();
    let reflected = [&last[..8], &own].concat();
    assert_eq!(other.handle(&reflected, mac(1)), Verdict::Refuse);
    // After a refusal, nothing helps.
    assert_eq!(other.handle(&last, mac(1)), Verdict::Refuse);
    let mut other = Handshake::new(Side::Server, [2; 32]);
    assert_eq!(other.handle(&hello, mac(1)), Verdict::Continue);
    assert_eq!(other.handle(b"", mac(1)), Verdict::Refuse);
    assert_eq!(other.handle(&last, mac(1)), Verdict::Refuse);
    // Messages of the wrong side, out of turn, or twice.
    for out_of_turn in [&proof, &last] {
        let mut other = Handshake::new(Side::Server, [2; 32]);
        assert_eq!(other.handle(out_of_turn, mac(1)), Verdict::Refuse);
    }
    let mut other = Handshake::new(Side::Server, [2; 32]);
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
        let mut client = Handshake::new(Side::Client, [1; 32]);
        let mut wrong = proof.clone();
        wrong[40 + at] ^= 1;
        assert_eq!(client.handle(&wrong, mac(1)), Verdict::Refuse);
        let mut server = Handshake::new(Side::Server, [2; 32]);
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
    let mut server = Handshake::new(Side::Server, [2; 32]);
    assert_eq!(server.handle(&hello, |_| None), Verdict::Refuse);
    assert!(server.pending().is_none());
    let mut client = Handshake::new(Side::Client, [1; 32]);
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
            1 => Handshake::new(Side::Client, [1; 32]),
            _ => Handshake::new(Side::Server, [2; 32]),
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
