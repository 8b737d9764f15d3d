// SPDX-License-Identifier: GPL-2.0

//! Host authentication by a key that both sides share.
//!
//! The draft does not define authentication material (V2-197, D-50). This mechanism has three messages.
//! Each side has a nonce of its own:
//!
//! ```text
//! client   MECHANISM  HELLO   nonce of the client
//! server   MECHANISM  SERVER  nonce of the server  proof of the server
//! client   MECHANISM  CLIENT  proof of the client
//! ```
//!
//! A proof is the keyed hash of `MECHANISM`, of the number of its message, of the nonces of client and
//! server, and of the [`Channel`]: the addresses, ports and queue pair numbers of both ends. All of these
//! have a fixed length. So a proof is valid in one message, on one connection, between these two ends. A
//! relay has other ends on each of its two connections, even where all hosts have the same key.
//!
//! Limits of the exchange:
//!
//! - It neither signs nor encrypts later messages. An attacker who changes packets in transit, or sends
//!   packets with the addresses and queue pair numbers of one end, takes over the connection afterwards.
//! - The server proves itself first. Its proof is the keyed hash of octets that each client knows, so keys
//!   can be tried without the server. A key has to be random; a short key is refused ([`MIN_KEY_LEN`]).
//! - The connection manager of iWARP does not exchange queue pair numbers. Addresses and ports alone
//!   identify the ends there.

use crate::proto::{
    connection::{
        host::Address,
        hostauth::Verdict, //
    },
    wire::{
        error::{
            BadHeader,
            NoRoom, //
        },
        types::Side,
        xdr::{
            Reader,
            Writer, //
        },
    },
};

/// The mechanism, and its version.
const MECHANISM: u32 = 0x5053_4b32;

// The messages.
const HELLO: u32 = 1;
const SERVER: u32 = 2;
const CLIENT: u32 = 3;

/// A random number for one connection.
pub type Nonce = [u8; 32];

/// A keyed hash: HMAC-SHA256 (RFC 2104, FIPS 180-4).
pub type Mac = [u8; 32];

/// The longest message.
pub const MAX_LEN: usize = 72;

/// The least length of a key. The search for a random key of this length is not feasible.
pub const MIN_KEY_LEN: usize = 16;

/// The length of the input of the keyed hash.
pub const PROVEN_LEN: usize = MAX_LEN + 2 * End::LEN;

/// One end of a connection, as both sides know it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct End {
    /// The address, without the scope of a link-local address, which differs from host to host.
    pub address: Address,
    /// The port.
    pub port: u16,
    /// The number of the queue pair; zero where the connection manager does not exchange it.
    pub queue_pair: u32,
}

impl End {
    const LEN: usize = 24;
    /// The bits of a queue pair number that the connection manager exchanges.
    const QUEUE_PAIR_BITS: u32 = 0x00ff_ffff;

    fn encode(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.array(&self.address.0)?;
        out.u32(self.port.into())?;
        out.u32(self.queue_pair & Self::QUEUE_PAIR_BITS)
    }
}

/// The connection that a proof is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Channel {
    /// The end that opened it.
    pub client: End,
    /// The end that accepted it.
    pub server: End,
}

/// The progress of a handshake.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The peer has said nothing.
    Begun,
    /// The client has said hello, with this nonce.
    Challenged(Nonce),
    /// The peer has nothing more to say.
    Over,
}

/// One side of the exchange on one connection.
#[derive(Clone, Debug)]
pub struct Handshake {
    side: Side,
    channel: Channel,
    nonce: Nonce,
    stage: Stage,
    /// The message to be sent.
    message: [u8; MAX_LEN],
    /// The length of `message`.
    len: usize,
}

impl Handshake {
    /// Begins the exchange on a connection with a new `nonce`. A client has a message to send then.
    //= V2-134, V2-197, D-50
    pub fn new(side: Side, channel: Channel, nonce: Nonce) -> Self {
        let mut this = Self {
            side,
            channel,
            nonce,
            stage: Stage::Begun,
            message: [0; MAX_LEN],
            len: 0,
        };
        if side == Side::Client {
            this.say(HELLO, &[&nonce]);
        }
        this
    }

    /// Returns the material to be sent next, if there is any.
    pub fn pending(&self) -> Option<&[u8]> {
        self.message
            .get(..self.len)
            .filter(|message| !message.is_empty())
    }

    /// Notes that the pending material was sent.
    pub fn sent(&mut self) {
        self.len = 0;
    }

    /// Judges material of the peer, and composes the answer. `mac` returns the keyed hash of octets, or
    /// none if the key is gone.
    //= V2-134, V2-135, D-50
    pub fn handle(&mut self, material: &[u8], mac: impl Fn(&[u8]) -> Option<Mac>) -> Verdict {
        self.answer(material, mac).unwrap_or_else(|| {
            self.stage = Stage::Over;
            Verdict::Refuse
        })
    }

    fn answer(&mut self, material: &[u8], mac: impl Fn(&[u8]) -> Option<Mac>) -> Option<Verdict> {
        let own = self.nonce;
        let channel = self.channel;
        let proof = |which, client: &Nonce, server: &Nonce| {
            mac(&proven(which, client, server, &channel).ok()?)
        };
        match (self.side, self.stage, AuthMessage::decode(material).ok()?) {
            (Side::Server, Stage::Begun, AuthMessage::Hello(client)) => {
                self.stage = Stage::Challenged(client);
                let proof = proof(SERVER, &client, &own)?;
                self.say(SERVER, &[&own, &proof]);
                Some(Verdict::Continue)
            }
            (Side::Server, Stage::Challenged(client), AuthMessage::Client(found)) => {
                self.stage = Stage::Over;
                is_same(&found, &proof(CLIENT, &client, &own)?).then_some(Verdict::Accept)
            }
            (Side::Client, Stage::Begun, AuthMessage::Server(server, found)) => {
                self.stage = Stage::Over;
                if !is_same(&found, &proof(SERVER, &own, &server)?) {
                    return None;
                }
                let proof = proof(CLIENT, &own, &server)?;
                self.say(CLIENT, &[&proof]);
                Some(Verdict::Accept)
            }
            _ => None,
        }
    }

    fn say(&mut self, which: u32, octets: &[&[u8; 32]]) {
        self.len = encode(&mut self.message, which, octets).unwrap_or(0);
    }
}

/// A message of the peer.
enum AuthMessage {
    Hello(Nonce),
    Server(Nonce, Mac),
    Client(Mac),
}

impl AuthMessage {
    fn decode(material: &[u8]) -> Result<Self, BadHeader> {
        let mut reader = Reader::new(material);
        if reader.u32()? != MECHANISM {
            return Err(BadHeader::Property);
        }
        let message = match reader.u32()? {
            HELLO => Self::Hello(*reader.array()?),
            SERVER => Self::Server(*reader.array()?, *reader.array()?),
            CLIENT => Self::Client(*reader.array()?),
            _ => return Err(BadHeader::Property),
        };
        if reader.rest().is_empty() {
            Ok(message)
        } else {
            Err(BadHeader::Property)
        }
    }
}

/// Writes the head of a message, and nonces or proofs; returns the length.
fn encode(out: &mut [u8], which: u32, octets: &[&[u8; 32]]) -> Result<usize, NoRoom> {
    let mut writer = Writer::new(out);
    writer.u32(MECHANISM)?;
    writer.u32(which)?;
    octets.iter().try_for_each(|octets| writer.array(octets))?;
    Ok(writer.len())
}

/// Returns the input of the keyed hash of a proof.
//= V2-134, D-50
pub fn proven(
    which: u32,
    client: &Nonce,
    server: &Nonce,
    channel: &Channel,
) -> Result<[u8; PROVEN_LEN], NoRoom> {
    let mut octets = [0; PROVEN_LEN];
    let len = encode(&mut octets, which, &[client, server])?;
    let mut writer = Writer::new(octets.get_mut(len..).ok_or(NoRoom)?);
    channel.client.encode(&mut writer)?;
    channel.server.encode(&mut writer)?;
    Ok(octets)
}

/// Compares in constant time.
fn is_same(one: &Mac, other: &Mac) -> bool {
    let differ = one
        .iter()
        .zip(other)
        .fold(0, |differ, (a, b)| differ | core::hint::black_box(a ^ b));
    differ == 0
}
