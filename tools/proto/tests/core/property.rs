// SPDX-License-Identifier: GPL-2.0

//! Transport properties.

use common::words;
use proptest::prelude::*;
use rpcrdma_proto::proto::wire::error::BadHeader;
use rpcrdma_proto::proto::wire::property::{
    material, subset_contains, Effective, Properties, PropertySet, ReverseSupport, HOSTAUTH_LEN,
    SET_LEN,
};
use rpcrdma_proto::proto::wire::xdr::Writer;

use crate::given::any_bytes;

fn decode(set: &[u32]) -> Result<Properties, BadHeader> {
    let bytes = words(set);
    PropertySet::decode(&bytes).map(|set| Properties::DEFAULT.with(&set))
}

//= V2-121, V2-122, V2-123 (test)
//= D-27, D-29 (test)
#[test]
fn values_of_the_wrong_size_are_bad() {
    for (set, why) in [
        (&[][..], BadHeader::Truncated),
        (&[1][..], BadHeader::Truncated),
        (&[1, 2, 400, 1], BadHeader::Truncated),
        (&[2, 2, 4, 4096], BadHeader::Truncated),
        (&[1, 2, 2, 0x1000_0000], BadHeader::Property),
        (&[1, 2, 8, 0, 4096], BadHeader::Property),
        (&[2, 2, 4, 4096, 2, 4, 4096], BadHeader::Property),
        (&[2, 5, 0, 5, 0], BadHeader::Property),
        (&[2, 6, 0, 6, 0], BadHeader::Property),
        (&[0, 1], BadHeader::Trailing),
        (&[0, 0, 0, 1], BadHeader::Trailing),
        (&[u32::MAX, 9, 0], BadHeader::Truncated),
    ] {
        assert_eq!(decode(set), Err(why), "{set:?}");
        assert_eq!(why.report().code(), 2);
    }
}

/// A set says how long it is, so pad behind it means nothing.
//= D-31 (test)
#[test]
fn pad_behind_the_set_is_let_pass() {
    for set in [&[0, 0][..], &[0, 0, 0, 0], &[1, 2, 4, 1024, 0]] {
        assert_eq!(decode(set), decode(&set[..set.len() - 1]));
        let bytes = words(set);
        assert_eq!(PropertySet::decode(&bytes).unwrap().unknown().count(), 0);
    }
}

//= V2-119, V2-121, V2-125 (test)
//= V2-132, V2-138, D-28 (test)
#[test]
fn what_is_missing_or_empty_has_its_default() {
    assert_eq!(decode(&[0]), Ok(Properties::DEFAULT));
    let expected = Properties {
        send_size: 1024,
        reverse: ReverseSupport::None,
        ..Properties::DEFAULT
    };
    assert_eq!(decode(&[3, 2, 0, 5, 4, 0, 1, 4, 1024]), Ok(expected));
    assert_eq!(decode(&[3, 1, 4, 1024, 2, 0, 5, 4, 0]), Ok(expected));
    assert_eq!(decode(&[1, 5, 4, 7]), Ok(Properties::DEFAULT));
}

//= V2-124, V2-140 (test)
#[test]
fn unknown_properties_are_skipped() {
    let bytes = words(&[3, 7, 0, 0xffff_ffff, 5, 1, 2, 4, 4, 99]);
    let set = PropertySet::decode(&bytes).unwrap();
    assert_eq!(set.segments, Some(99));
    assert_eq!(set.unknown().collect::<Vec<_>>(), [7, 0xffff_ffff]);
}

//= V2-126 (test)
#[test]
fn subsets_are_masks_of_any_length() {
    let words = [0x8000_0001, 0x2];
    let members: Vec<_> = (0..100).filter(|i| subset_contains(&words, *i)).collect();
    assert_eq!(members, [0, 31, 33]);
    assert!(!subset_contains(&[], 0));
}

//= V2-134, V2-197, D-29 (test)
//= D-50 (test)
#[test]
fn authentication_material_has_two_lengths() {
    let mut out = [0xff; 128];
    let mut writer = Writer::new(&mut out);
    Properties::DEFAULT
        .encode_with(&mut writer, b"hello")
        .unwrap();
    let len = writer.len();
    assert_eq!(out[..4], words(&[6]));
    assert_eq!(out[SET_LEN..SET_LEN + HOSTAUTH_LEN], words(&[6, 12, 5]));
    let set = PropertySet::decode(&out[..len]).unwrap();
    assert_eq!(set.hostauth, Some(&out[SET_LEN + 8..len]));
    let material = set.hostauth.map(material);
    assert_eq!(material, Some(Ok(Some(&b"hello"[..]))));
    // A peer for which a property that is left out has its default value loses nothing.
    assert_eq!(Properties::DEFAULT.with(&set), Properties::DEFAULT);
    assert!(set.recv_size.is_some() && set.reverse.is_some());
}

//= V2-134, D-29 (test)
#[test]
fn any_octets_may_be_authentication_material_of_another_mechanism() {
    for value in [
        &b"tokentokn123"[..],
        &[0, 0, 0, 64, 0, 0, 0, 1],
        &[0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2],
        &[0, 0],
    ] {
        let mut set = words(&[2, 2, 4, 8192, 6, value.len() as u32]);
        set.extend(value);
        set.resize(set.len().next_multiple_of(4), 0);
        let decoded = PropertySet::decode(&set).unwrap();
        assert_eq!(decoded.recv_size, Some(8192));
        assert_eq!(decoded.hostauth, Some(value));
        assert_eq!(material(value), Err(BadHeader::Property));
    }
    assert_eq!(material(b""), Ok(None));
    assert_eq!(material(&[0; 4]), Ok(Some(&b""[..])));
}

//= V2-055, V2-127, V2-128 (test)
//= V2-129, V2-130, V2-131 (test)
//= V2-170, D-24, D-25 (test)
//= D-28 (test)
#[test]
fn both_sides_limit_each_other() {
    let own = Properties {
        send_size: 8192,
        recv_size: 16384,
        segment_size: 1000,
        segments: 64,
        reverse: ReverseSupport::None,
    };
    let peer = Properties {
        reverse: ReverseSupport::General,
        ..Properties::DEFAULT
    };
    let effective = Effective::new(&own, &peer);
    assert_eq!(effective.inline_send, 4096);
    assert_eq!(effective.inline_recv, 4096);
    assert_eq!(effective.segment_size, 1000);
    assert_eq!(effective.segments, 16);
    // However much the peer takes, this side sends no more than it can.
    let large = Properties {
        recv_size: 65536,
        send_size: 65536,
        ..peer
    };
    let effective = Effective::new(&own, &large);
    assert_eq!(
        (effective.inline_send, effective.inline_recv),
        (8192, 16384)
    );
    // A peer that sends nothing at all would never answer.
    for (send_size, inline_recv) in [(0, 1024), (1000, 1024), (1025, 1025)] {
        let small = Properties { send_size, ..peer };
        assert_eq!(Effective::new(&own, &small).inline_recv, inline_recv);
    }
    for (reverse, inline, chunks) in [
        (ReverseSupport::None, false, false),
        (ReverseSupport::Inline, true, false),
        (ReverseSupport::General, true, true),
    ] {
        assert_eq!(reverse.allows(false), inline);
        assert_eq!(reverse.allows(true), chunks);
    }
}

proptest! {
    //= V2-019, V2-120, V2-136 (test)
    #[test]
    fn decoding_inverts_encoding(numbers in any::<[u32; 4]>(), brs in 0..3) {
        let [send_size, recv_size, segment_size, segments] = numbers;
        let reverse = [ReverseSupport::None, ReverseSupport::Inline, ReverseSupport::General]
            [brs as usize];
        let own = Properties { send_size, recv_size, segment_size, segments, reverse };
        let mut out = [0; SET_LEN];
        let mut writer = Writer::new(&mut out);
        own.encode(&mut writer).unwrap();
        prop_assert_eq!(writer.len(), SET_LEN);
        let set = PropertySet::decode(&out).unwrap();
        prop_assert_eq!(Properties::DEFAULT.with(&set), own);
    }

    //= V2-122, V2-195 (test)
    #[test]
    fn any_bytes_are_a_set_or_not(bytes in any_bytes()) {
        if let Ok(set) = PropertySet::decode(&bytes) {
            prop_assert!(set.unknown().count() <= bytes.len() / 8);
        }
    }
}
