// SPDX-License-Identifier: GPL-2.0

//! A peer that sends anything.

use common::{call, Random};
use rpcrdma_proto::proto::connection::negotiate::{Opening, Time};
use rpcrdma_proto::proto::connection::{Connection, Event, MAX_CONTROL_LEN};
use rpcrdma_proto::proto::responder::{accept, CallLimits};
use rpcrdma_proto::proto::wire::types::Version;
use rpcrdma_proto::proto::wire::{chunk, v1, v2};

/// Mostly words that mean something, sometimes any.
fn word(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => random.below(1 << 32) as u32,
        1 => 1 << random.below(32),
        2 => u32::MAX - random.below(8) as u32,
        3 => 4 * random.below(64) as u32,
        _ => random.below(8) as u32,
    }
}

fn message(random: &mut Random) -> Vec<u8> {
    let mut message: Vec<u8> = Vec::new();
    let xid = random.below(4) as u32;
    message.extend(xid.to_be_bytes());
    message.extend((1 + random.below(3) as u32).min(2).to_be_bytes());
    message.extend((0x0008_0000 | random.below(5) as u32).to_be_bytes());
    message.extend((random.below(7) as u32).to_be_bytes());
    let words = random.below(24);
    for _ in 0..words {
        message.extend(word(random).to_be_bytes());
    }
    if random.once_in(4) {
        message.extend(xid.to_be_bytes());
        message.extend((random.below(2) as u32).to_be_bytes());
    }
    let cut = random.below(message.len() as u64 + 1) as usize;
    if random.once_in(3) {
        message.truncate(cut);
    }
    message
}

//= V1-092, V1-110, V1-111 (test)
//= V2-037, V2-109, V2-141 (test)
//= V2-166, V2-178, V2-186 (test)
//= V2-195, CM-031, V2-047 (test)
//= V1-036, D-43 (test)
#[test]
fn nothing_a_peer_sends_breaks_a_connection() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let config = [crate::v1(), crate::v2(), crate::v2_small()][(seed % 3) as usize];
        let now = Time(0);
        let mut connection = if seed % 2 == 0 {
            Connection::server(config, &[], now)
        } else {
            Connection::client(config, Opening::InBand(config.versions.high), &[], now)
        };
        let mut uncompleted = 0;
        for time in 0..60 {
            let now = Time(time * random.below(300));
            let message = message(&mut random);
            match connection.handle_message(now, &message, None) {
                Event::Close { .. } => break,
                Event::Call(arrived) if !arrived.more => {
                    let limits = CallLimits {
                        version: connection.version().unwrap(),
                        read_chunks: 2,
                        write_chunks: 2,
                        segments: 8,
                        segment_bytes: 1 << 20,
                        call_bytes: 1 << 20,
                    };
                    match accept(&arrived.conveyed, arrived.part.len, &limits) {
                        Ok(call) => {
                            assert!(call.len <= limits.call_bytes);
                            assert!(call.sources().count() < 64);
                        }
                        Err(report) => {
                            if connection.refuse(&arrived.fixed, report).is_err() {
                                break;
                            }
                        }
                    }
                }
                Event::Call(arrived) | Event::Reply(arrived) => {
                    assert!(arrived.part.len <= config.continued.max(200));
                }
                _ => {}
            }
            if random.once_in(3) && uncompleted > 0 {
                connection.handle_sent(1);
                uncompleted -= 1;
            }
            let mut out = [0; 256];
            let sent = connection.send(now, &mut out, &call(77), &chunk::NoChunks);
            if sent.is_ok() && connection.version() == Some(Version::V2) {
                uncompleted += 1;
            }
            while let Some(message) =
                connection.poll_transmit(now, true, false, &mut out[..MAX_CONTROL_LEN])
            {
                assert!(message.len <= MAX_CONTROL_LEN.max(v1::MAX_ERROR_LEN));
                assert!(message.len >= v2::PREFIX_LEN);
                uncompleted += u32::from(message.credited);
            }
            // The peer never claimed more than eight Receives in version 2.
            assert!(uncompleted <= 8 + 1, "{uncompleted} Sends at once");
        }
    }
}
