// SPDX-License-Identifier: GPL-2.0

//! Host authentication: after any messages in any order, only the proofs of this connection are
//! accepted, once.

use rpcrdma_proto::proto::connection::host::Address;
use rpcrdma_proto::proto::connection::hostauth::Verdict;
use rpcrdma_proto::proto::connection::shared_key::{
    proven, Channel, End, Handshake, Mac, Nonce, MAX_LEN,
};
use rpcrdma_proto::proto::connection::Side;

use crate::source::Source;

const SERVER: u32 = 2;
const CLIENT: u32 = 3;

fn mac(octets: &[u8]) -> Option<Mac> {
    let mut mac = [0; 32];
    let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
    for (at, byte) in octets.iter().chain(&[0; 32]).enumerate() {
        hash = (hash ^ u64::from(*byte))
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(23);
        mac[at % 32] ^= hash.to_le_bytes()[5];
    }
    Some(mac)
}

fn draw_end(source: &mut Source<'_>) -> End {
    End {
        address: Address(std::array::from_fn(|_| source.u8() % 3)),
        port: source.u16() % 3,
        queue_pair: source.u32() % 3,
    }
}

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let channel = Channel {
        client: draw_end(&mut source),
        server: draw_end(&mut source),
    };
    let other = Channel {
        client: draw_end(&mut source),
        server: draw_end(&mut source),
    };
    let side = if source.flag() {
        Side::Client
    } else {
        Side::Server
    };
    let own: Nonce = [source.u8(); 32];
    let mut host = Handshake::new(side, channel, own);
    let mut accepted = 0;
    let mut hello = None;
    while !source.is_empty() {
        let peer: Nonce = [source.u8(); 32];
        let (client, server) = match side {
            Side::Client => (own, peer),
            Side::Server => (hello.unwrap_or(peer), own),
        };
        let which = 1 + source.below(4);
        let of = if source.flag() { &channel } else { &other };
        let signed = 1 + source.below(4);
        let proof = proven(signed, &client, &server, of).ok();
        let proof = proof.and_then(|octets| mac(&octets)).expect("room");
        let mut message = [0x5053_4b32_u32, which].map(u32::to_be_bytes).concat();
        match which {
            1 => message.extend(peer),
            SERVER => message.extend([peer, proof].concat()),
            _ => message.extend(proof),
        }
        if source.u8() % 8 == 1 {
            let at = source.below(message.len() as u32) as usize;
            message[at] ^= 1 << source.below(8);
        }
        if source.u8() % 8 == 1 {
            message.truncate(source.below(80) as usize);
        }
        let verdict = host.handle(&message, mac);
        if let Some(said) = host.pending() {
            assert!(said.len() <= MAX_LEN && said.len() % 4 == 0);
        }
        match verdict {
            Verdict::Continue => {
                assert!(side == Side::Server && hello.is_none());
                hello = message[8..].try_into().ok();
            }
            Verdict::Refuse => {}
            Verdict::Accept => {
                accepted += 1;
                let signed_by = match side {
                    Side::Client => SERVER,
                    Side::Server => CLIENT,
                };
                assert_eq!(*of, channel, "a proof of another connection");
                assert_eq!((which, signed), (signed_by, signed_by));
                assert!(side == Side::Client || hello.is_some());
            }
        }
    }
    assert!(accepted <= 1);
}
