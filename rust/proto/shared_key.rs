// SPDX-License-Identifier: GPL-2.0

//! Host authentication by a key that both sides share.
//!
//! What is in authentication material is left open (V2-197, D-50). This is ours, three messages in
//! all, of the words and octets that follow; each side chooses a nonce for the connection:
//!
//! ```text
//! client   MECHANISM  HELLO   nonce of the client
//! server   MECHANISM  SERVER  nonce of the server  proof of the server
//! client   MECHANISM  CLIENT  proof of the client
//! ```
//!
//! A proof is the keyed hash of `MECHANISM`, of the number of the message that it is in, and of the
//! client's and the server's nonce. It is of use on no other connection, in no other direction and
//! to nobody else; what follows on the connection is neither signed nor hidden.

use crate::proto::connection::Side;
use crate::proto::error::{
    BadHeader,
    NoRoom, //
};
use crate::proto::hostauth::Verdict;
use crate::proto::xdr::{
    Reader,
    Writer, //
};

/// The mechanism, and its version.
const MECHANISM: u32 = 0x5053_4b31;

// The messages.
const HELLO: u32 = 1;
const SERVER: u32 = 2;
const CLIENT: u32 = 3;

/// A number that nobody has used with the key before.
pub type Nonce = [u8; 32];

/// A keyed hash: HMAC-SHA256 (RFC 2104, FIPS 180-4).
pub type Mac = [u8; 32];

/// The longest message.
pub const MAX_LEN: usize = 72;

/// How far a handshake has come.
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
#[derive(Debug)]
pub struct Handshake {
    side: Side,
    nonce: Nonce,
    stage: Stage,
    /// What this side has to say.
    message: [u8; MAX_LEN],
    /// How much of it that is.
    len: usize,
}

impl Handshake {
    /// Begins, with a `nonce` that has not been used before. A client has something to say then.
    //= V2-134, V2-197, D-50
    pub fn new(side: Side, nonce: Nonce) -> Self {
        let mut this = Self {
            side,
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

    /// The material to be sent next, if there is any.
    pub fn pending(&self) -> Option<&[u8]> {
        self.message
            .get(..self.len)
            .filter(|message| !message.is_empty())
    }

    /// The pending material was sent.
    pub fn sent(&mut self) {
        self.len = 0;
    }

    /// Judges material of the peer; there may be some to send afterwards. `mac` is the keyed hash of
    /// octets, if there still is a key.
    //= V2-134, V2-135, D-50
    pub fn handle(&mut self, material: &[u8], mac: impl Fn(&[u8]) -> Option<Mac>) -> Verdict {
        self.answer(material, mac).unwrap_or_else(|| {
            self.stage = Stage::Over;
            Verdict::Refuse
        })
    }

    fn answer(&mut self, material: &[u8], mac: impl Fn(&[u8]) -> Option<Mac>) -> Option<Verdict> {
        let own = self.nonce;
        match (self.side, self.stage, Message::decode(material).ok()?) {
            (Side::Server, Stage::Begun, Message::Hello(client)) => {
                self.stage = Stage::Challenged(client);
                let proof = mac(&proven(SERVER, &client, &own)?)?;
                self.say(SERVER, &[&own, &proof]);
                Some(Verdict::Continue)
            }
            (Side::Server, Stage::Challenged(client), Message::Client(proof)) => {
                self.stage = Stage::Over;
                is_same(&proof, &mac(&proven(CLIENT, &client, &own)?)?).then_some(Verdict::Accept)
            }
            (Side::Client, Stage::Begun, Message::Server(server, proof)) => {
                self.stage = Stage::Over;
                if !is_same(&proof, &mac(&proven(SERVER, &own, &server)?)?) {
                    return None;
                }
                let proof = mac(&proven(CLIENT, &own, &server)?)?;
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
enum Message {
    Hello(Nonce),
    Server(Nonce, Mac),
    Client(Mac),
}

impl Message {
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

/// Writes the head of a message, and nonces or proofs; returns how long that is.
fn encode(out: &mut [u8], which: u32, octets: &[&[u8; 32]]) -> Result<usize, NoRoom> {
    let mut writer = Writer::new(out);
    writer.u32(MECHANISM)?;
    writer.u32(which)?;
    octets.iter().try_for_each(|octets| writer.array(octets))?;
    Ok(writer.len())
}

/// What a proof is the keyed hash of.
fn proven(which: u32, client: &Nonce, server: &Nonce) -> Option<[u8; MAX_LEN]> {
    let mut octets = [0; MAX_LEN];
    encode(&mut octets, which, &[client, server]).ok()?;
    Some(octets)
}

/// Compares in a time that does not depend on where the octets differ.
fn is_same(one: &Mac, other: &Mac) -> bool {
    let differ = one
        .iter()
        .zip(other)
        .fold(0, |differ, (a, b)| differ | core::hint::black_box(a ^ b));
    differ == 0
}
