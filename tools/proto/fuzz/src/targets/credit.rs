// SPDX-License-Identifier: GPL-2.0

//! Credits alone: for each message that a side may send, the other side has a Receive.

use std::collections::VecDeque;
use std::mem::take;

use rpcrdma_proto::proto::connection::credit::{CallCredits, RecvCredits, SendCredits};
use rpcrdma_proto::proto::wire::types::Grant;

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    match source.u8() % 3 {
        0 => version1(&mut source),
        1 => version2(&mut source),
        _ => hostile(&mut source),
    }
}

/// Any Responder: the Requester neither stops for good nor exceeds a grant, its own maximum, or its Receives.
fn version1(source: &mut Source<'_>) {
    let max = source.below(40);
    let mut calls = CallCredits::new(max);
    let (mut outstanding, mut granted, mut ready) = (0, 1, u32::MAX);
    while !source.is_empty() {
        match source.u8() % 4 {
            0 => {
                let started = calls.start();
                assert_eq!(started, outstanding < granted.min(ready));
                outstanding += u32::from(started);
            }
            1 if outstanding != 0 => {
                calls.finish();
                outstanding -= 1;
            }
            2 => {
                let count = source.below(40);
                calls.set_ready(count);
                ready = count.max(1);
            }
            _ => {
                let word = source.length(u32::MAX);
                calls.handle_grant(word);
                granted = word.min(max).max(1);
            }
        }
        let limit = granted.min(ready);
        assert_eq!((calls.outstanding(), calls.limit()), (outstanding, limit));
        let most = (calls.requested(), calls.ready(), calls.granted());
        assert_eq!(most, (max.max(1), ready, granted));
    }
}

/// The highest ceiling here.
const MOST: u16 = 8;

/// One side of a connection, with the messages in flight to it.
struct Peer {
    send: SendCredits,
    recv: RecvCredits,
    /// Credit words that arrive, and whether each takes a credit.
    inbox: VecDeque<(Grant, bool)>,
    /// Sends without a completion that was asked for, and Sends that a completion to come covers.
    unasked: u32,
    asked: u32,
    /// Messages that were looked at and keep their Receives.
    kept: u32,
}

impl Peer {
    fn new(source: &mut Source<'_>, send: u32, recv: u16) -> Self {
        let ceiling = 1 + u16::from(source.u8()) % MOST;
        let mut peer = Self {
            send: SendCredits::new(send),
            recv: RecvCredits::new(ceiling, recv),
            inbox: VecDeque::new(),
            unasked: 0,
            asked: 0,
            kept: 0,
        };
        peer.keep(0);
        peer
    }

    /// Returns the number of posted Receives.
    fn receives(&self) -> u32 {
        RecvCredits::receives(MOST) - self.kept
    }

    fn keep(&mut self, kept: u32) {
        self.kept = kept;
        self.recv.handle_posted(self.receives());
    }

    fn arrive(&mut self, message: (Grant, bool)) {
        self.inbox.push_back(message);
        assert!(
            self.inbox.len() <= self.receives() as usize,
            "no Receive is left"
        );
    }

    /// Looks at the next message, which may keep its Receive.
    fn look(&mut self, keep: bool) {
        let Some((grant, credited)) = self.inbox.pop_front() else {
            return;
        };
        assert_ne!(grant.ceiling, 0);
        if credited {
            assert!(self.recv.handle_message(), "a message without a credit");
            self.keep(self.kept + u32::from(keep));
        }
        self.send.handle_grant(grant);
    }

    /// Sends a message, which asks for a completion as the send queue does.
    fn sent(&mut self) {
        self.unasked += 1;
        if self.unasked >= self.send.unsignaled() {
            self.asked += take(&mut self.unasked);
        }
    }

    fn complete(&mut self) {
        if self.asked != 0 {
            self.asked -= 1;
            self.send.handle_sent(1);
        }
    }

    /// Grants all credits, if the other side may need them, and has processed the last grant or had
    /// the `time` for it.
    fn grant(&mut self, other: &mut Self, time: bool) {
        if self.recv.is_short() && (time || self.recv.may_grant_alone()) {
            other.arrive((self.recv.grant_alone(), false));
        }
    }
}

/// Two peers that keep the rules.
fn version2(source: &mut Source<'_>) {
    let mut peers = [Peer::new(source, 1, 0), Peer::new(source, 0, 1)];
    // The client speaks first.
    step(&mut peers, 0, 0);
    while !source.is_empty() {
        let byte = source.u8();
        step(&mut peers, usize::from(byte & 1), byte >> 1);
    }
    // Everything arrives and ends, and all Receives are free.
    for _ in 0..2 {
        for side in [0, 1] {
            let (own, other) = pair(&mut peers, side);
            while !own.inbox.is_empty() {
                own.look(false);
            }
            while own.asked != 0 {
                own.complete();
            }
            own.keep(0);
            // The other side had the time once it has looked at everything.
            let time = other.inbox.is_empty();
            own.grant(other, time);
        }
    }
    for side in [0, 1] {
        let (own, other) = pair(&mut peers, side);
        while !own.inbox.is_empty() {
            own.look(false);
        }
        // The way is open, without the completions that were not asked for.
        assert_ne!(own.send.balance(), 0);
        // Both sides count the same.
        own.send.handle_sent(own.unasked);
        assert_eq!(own.send.balance(), other.recv.balance());
    }
}

fn pair(peers: &mut [Peer; 2], side: usize) -> (&mut Peer, &mut Peer) {
    let [first, second] = peers;
    if side == 0 {
        (first, second)
    } else {
        (second, first)
    }
}

fn step(peers: &mut [Peer; 2], side: usize, action: u8) {
    let (own, other) = pair(peers, side);
    match action % 8 {
        0 | 1 if own.send.take() => {
            own.sent();
            other.arrive((own.recv.grant(), true));
        }
        2 | 3 => own.look(false),
        4 => own.look(true),
        5 => own.complete(),
        6 if own.kept != 0 => own.keep(own.kept - 1),
        7 => match action / 8 {
            0..8 => own.grant(other, false),
            ceiling => own.recv.set_ceiling(1 + u16::from(ceiling) % MOST),
        },
        _ => {}
    }
    let incomplete = own.unasked + own.asked;
    assert!(own.send.outstanding() <= incomplete);
}

/// A peer that grants anything: never more is sent than it has Receives for.
fn hostile(source: &mut Source<'_>) {
    let mut send = SendCredits::new(1);
    let mut recv = RecvCredits::new(source.u16(), 1);
    recv.handle_posted(source.u16().into());
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
                let before = recv.balance();
                let grant = recv.grant();
                assert_eq!(Grant::from_word(grant.to_word()), grant);
                let receives = recv.posted().saturating_sub(1);
                assert!(
                    recv.balance() <= before.max(receives),
                    "no Receive for a credit"
                );
                assert!(recv.balance() <= recv.ceiling().max(1).into());
                assert_eq!(recv.grantable(), 0, "a credit is kept back");
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
