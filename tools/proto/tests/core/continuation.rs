// SPDX-License-Identifier: GPL-2.0

//! Messages in several parts.

use common::rpc;
use proptest::prelude::*;
use rpcrdma_proto::proto::connection::continuation::{part, Assembler, Content, PartSplitter};
use rpcrdma_proto::proto::wire::error::BadHeader;
use rpcrdma_proto::proto::wire::header::RpcStart;
use rpcrdma_proto::proto::wire::types::Xid;

const CALL: Content = Content::Rpc { response: false };

//= V2-032, V2-033, D-14 (test)
//= D-15, D-17 (test)
#[test]
fn parts_have_to_belong_together() {
    let mut assembler = Assembler::new();
    let message = rpc(5, 0, 20);
    let first = assembler.add(Xid(5), CALL, &message[..6], true).unwrap();
    assert_eq!((first.offset, first.len, first.start), (0, 6, None));
    for (xid, content) in [
        (Xid(6), CALL),
        (Xid(5), Content::Rpc { response: true }),
        (Xid(5), Content::Properties),
    ] {
        let wrong = { assembler }.add(xid, content, &message, false);
        assert_eq!(wrong, Err(BadHeader::BrokenSequence));
    }
    let second = assembler.add(Xid(5), CALL, &message[6..], false).unwrap();
    assert_eq!((second.offset, second.len), (6, 20));
    assert_eq!(second.start, RpcStart::peek(&message));
    assert!(assembler.open().is_none());
}

//= D-17 (test)
#[test]
fn a_first_part_has_a_word_at_least() {
    let mut assembler = Assembler::new();
    let short = assembler.add(Xid(5), CALL, &[0; 3], true);
    assert_eq!(short, Err(BadHeader::Truncated));
    assert!(assembler.open().is_none());
}

/// A part without a Payload stream may end a sequence, but not go on with it.
//= V2-036, D-17 (test)
#[test]
fn the_last_part_may_be_empty() {
    let mut assembler = Assembler::new();
    let message = rpc(5, 0, 20);
    assembler.add(Xid(5), CALL, &message, true).unwrap();
    let more = assembler.add(Xid(5), CALL, &[], true);
    assert_eq!(more, Err(BadHeader::NoPayload));
    let last = assembler.add(Xid(5), CALL, &[], false).unwrap();
    assert_eq!((last.offset, last.len), (20, 20));
    assert_eq!(last.start, RpcStart::peek(&message));
    assert!(assembler.open().is_none());
}

//= V2-037, D-15 (test)
#[test]
fn a_failed_sequence_passes_without_effect() {
    let mut assembler = Assembler::default();
    assembler.add(Xid(5), CALL, &[0; 8], true).unwrap();
    assembler.fail();
    let rest = assembler.add(Xid(5), CALL, &[0; 8], true).unwrap();
    assert!(rest.swallowed);
    assert_eq!(assembler.abandon().unwrap().xid, Xid(5));
    assert!(
        !assembler
            .add(Xid(5), CALL, &[0; 8], false)
            .unwrap()
            .swallowed
    );
}

//= V2-042, D-17 (test)
#[test]
fn what_does_not_fit_is_not_cut() {
    assert_eq!(PartSplitter::new(0, 4096, 36).next_part(), None);
    assert_eq!(PartSplitter::new(5000, 4096, 4093).next_part(), None);
}

proptest! {
    //= V2-032, V2-035, V2-036 (test)
    //= V2-040, V2-041, V2-042 (test)
    //= V2-094, D-17 (test)
    #[test]
    fn cut_parts_join_to_the_whole(
        len in 8_u32..60_000,
        threshold in 1024_u32..8192,
        extra in 0_u32..900,
        xid in any::<u32>(),
    ) {
        let message = rpc(xid, 0, len as usize);
        let last_header = 36 + extra;
        let mut cutter = PartSplitter::new(len, threshold, last_header);
        let (count, mut cuts) = (cutter.count(), 0);
        let mut assembler = Assembler::new();
        let mut joined = Vec::new();
        loop {
            let cut = cutter.next_part().unwrap();
            cuts += 1;
            let header = if cut.more { 36 } else { last_header };
            let octets = &message[cut.range.start as usize..cut.range.end as usize];
            prop_assert!(!octets.is_empty());
            prop_assert!(header + octets.len() as u32 <= threshold);
            prop_assert!(!cut.more || octets.len() % 4 == 0);
            let part = assembler.add(Xid(xid), CALL, octets, cut.more).unwrap();
            prop_assert_eq!(part.offset as usize, joined.len());
            joined.extend_from_slice(octets);
            if !cut.more {
                prop_assert_eq!(part.len, len);
                prop_assert_eq!(part.start, RpcStart::peek(&message));
                break;
            }
        }
        prop_assert_eq!(cutter.next_part(), None);
        prop_assert_eq!(count, cuts);
        prop_assert_eq!(joined, message);
    }

    //= V2-042 (test)
    #[test]
    fn a_part_is_taken_from_pieces(
        lens in proptest::collection::vec((0_u32..9, 0_u32..9), 0..6),
        from in 0_u32..60,
        len in 0_u32..60,
    ) {
        let mut at = 0;
        let pieces: Vec<_> = lens.iter().map(|(gap, len)| {
            let start = at + gap;
            at = start + len;
            start..at
        }).collect();
        let all: Vec<u32> = pieces.iter().cloned().flatten().collect();
        let wanted: Vec<u32> = all.iter().copied().skip(from as usize).take(len as usize).collect();
        let found: Vec<u32> = part(pieces.into_iter(), from..from + len).flatten().collect();
        prop_assert_eq!(found, wanted);
    }

    //= V2-041, D-17, D-47 (test)
    #[test]
    fn the_start_is_found_however_it_is_cut(cuts in proptest::collection::vec(4_usize..9, 1..3)) {
        let message = rpc(0x0102_0304, 1, 40);
        let mut assembler = Assembler::new();
        let mut at = 0;
        for cut in cuts {
            let part = assembler.add(Xid(1), CALL, &message[at..at + cut], true).unwrap();
            at += cut;
            let start = if at >= 8 { RpcStart::peek(&message) } else { None };
            prop_assert_eq!(part.start, start);
        }
    }
}
