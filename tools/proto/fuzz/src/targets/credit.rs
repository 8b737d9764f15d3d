// SPDX-License-Identifier: GPL-2.0

//! Credits alone: what one side believes it may send, the other has Receives for.

use std::collections::VecDeque;

use rpcrdma_proto::proto::credit::{CallCredits, Grant, RecvCredits, SendCredits};

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    match source.u8() % 3 {
        0 => version1(&mut source),
        1 => version2(&mut source),
        _ => hostile(&mut source),
    }
}

/// Any Responder: the Requester neither stops for good nor exceeds a grant or its own maximum.
fn version1(source: &mut Source<'_>) {
    let max = source.below(40);
    let mut calls = CallCredits::new(max);
    let (mut outstanding, mut limit) = (0, 1);
    while !source.is_empty() {
        match source.u8() % 3 {
            0 => {
                let started = calls.start();
                assert_eq!(started, outstanding < limit);
                outstanding += u32::from(started);
            }
            1 if outstanding != 0 => {
                calls.finish();
                outstanding -= 1;
            }
            _ => {
                let word = source.length(u32::MAX);
                calls.handle_grant(word);
                limit = word.min(max).max(1);
            }
        }
        assert_eq!((calls.outstanding(), calls.limit()), (outstanding, limit));
    }
    assert!(calls.requested() >= 1);
}

/// One side of a connection, with what is on its way to it.
struct Peer {
    send: SendCredits,
    recv: RecvCredits,
    inbox: VecDeque<Grant>,
    incomplete: u32,
    ceiling: u16,
    /// How many credits the other side may have that this side does not count.
    excess: u32,
}

/// How many fillers there are spare Receives for.
const SPARE: u32 = 8;

/// Two peers that keep the rules.
fn version2(source: &mut Source<'_>) {
    let mut peer = |send, recv| {
        let ceiling = 1 + source.u8() % 8;
        Peer {
            send: SendCredits::new(send),
            recv: RecvCredits::new(ceiling.into(), recv),
            inbox: VecDeque::new(),
            incomplete: 0,
            ceiling: ceiling.into(),
            excess: 0,
        }
    };
    let mut peers = [peer(1, 0), peer(0, 1)];
    while !source.is_empty() {
        let byte = source.u8();
        step(&mut peers, usize::from(byte & 1), byte >> 1);
    }
    for action in [1, 2] {
        for side in 0..2 {
            for _ in 0..40 {
                step(&mut peers, side, action);
            }
        }
    }
    // Nothing is on its way any more: no credit was lost. A filler can have been one too many.
    for (side, other) in [(0, 1), (1, 0)] {
        assert!(peers[side].send.balance() >= peers[other].recv.balance());
    }
}

fn step(peers: &mut [Peer; 2], side: usize, action: u8) {
    if peers
        .iter()
        .all(|peer| peer.inbox.is_empty() && peer.incomplete == 0)
    {
        for (side, other) in [(0, 1), (1, 0)] {
            let counted = peers[side].recv.balance();
            peers[side].excess = peers[other].send.balance() - counted;
        }
    }
    let [first, second] = peers;
    let (own, peer) = if side == 0 {
        (first, second)
    } else {
        (second, first)
    };
    let filler = own.recv.grantable() == 0;
    match action % 3 {
        // Who has given that many fillers has to look at what came first.
        0 if filler && own.excess == SPARE => {}
        0 if own.send.take() => {
            own.excess += u32::from(filler);
            own.incomplete += 1;
            peer.inbox.push_back(own.recv.grant());
            let receives = RecvCredits::receives(peer.ceiling);
            assert!(peer.inbox.len() <= receives as usize, "no Receive is left");
        }
        1 => {
            if let Some(grant) = own.inbox.pop_front() {
                assert!(grant.granted != 0 && grant.ceiling != 0);
                own.recv.handle_message();
                assert!(own.send.handle_grant(grant));
            }
        }
        2 if own.incomplete != 0 => {
            own.incomplete -= 1;
            own.send.handle_sent(1);
        }
        _ => {}
    }
    assert_eq!(own.send.outstanding(), own.incomplete);
    assert!(own.recv.balance() <= own.ceiling.into());
}

/// A peer that grants anything: never more is sent than it has Receives for.
fn hostile(source: &mut Source<'_>) {
    let mut send = SendCredits::new(1);
    let mut recv = RecvCredits::new(source.u16(), 1);
    let (mut granted, mut taken, mut ceiling) = (1_u64, 0_u64, 1_u32);
    while !source.is_empty() {
        match source.u8() % 6 {
            0 => taken += u64::from(send.take()),
            1 if send.outstanding() != 0 => send.handle_sent(1),
            2 => {
                let grant = Grant::from_word(source.u32());
                granted += u64::from(grant.granted);
                if grant.ceiling != 0 {
                    ceiling = grant.ceiling.into();
                }
                assert_eq!(
                    send.handle_grant(grant),
                    grant.granted != 0 && grant.ceiling != 0
                );
                let room = ceiling.saturating_sub(send.outstanding());
                assert!(send.balance() <= room.max(1));
            }
            3 => {
                let grant = recv.grant();
                assert_eq!(Grant::from_word(grant.to_word()), grant);
                let [ceiling, granted] = [source.u16(), source.u16()];
                let sent = Grant::from_word(Grant { granted, ceiling }.to_word());
                assert_eq!(
                    (sent.granted, sent.ceiling),
                    (granted.max(1), ceiling.max(1))
                );
                assert!(recv.balance() <= recv.ceiling().max(1).into());
            }
            4 => {
                recv.handle_message();
            }
            _ => recv.handle_posted(source.u16().into()),
        }
        assert!(taken <= granted, "more is sent than was granted");
        assert!(recv.grantable() <= recv.ceiling().into());
    }
}
