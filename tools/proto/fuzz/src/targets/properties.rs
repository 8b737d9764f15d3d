// SPDX-License-Identifier: GPL-2.0

//! Property sets, checked against a parser that knows nothing of the meaning.

use rpcrdma_proto::proto::wire::property::{
    material, Effective, Properties, PropertySet, ReverseSupport, HOSTAUTH_LEN, SET_LEN,
};
use rpcrdma_proto::proto::wire::xdr::Writer;

use crate::source::Source;

pub fn run(input: &[u8]) {
    let plain = parse(input);
    match PropertySet::decode(input) {
        Ok(set) => {
            let plain = plain.expect("accepted, so it is well-formed");
            check(&set, &plain);
        }
        Err(_) => {
            // Well-formed sets are refused for the contents of a property only.
            if let Some(plain) = plain {
                let bad = |(id, value): &(u32, &[u8])| match id {
                    1..=5 => !matches!(value.len(), 0 | 4),
                    _ => false,
                };
                let twice = (1..=6).any(|id| plain.iter().filter(|p| p.0 == id).count() > 1);
                assert!(twice || plain.iter().any(bad));
            }
        }
    }
    own(input);
}

/// Reads an opaque and returns it with the octets it took.
fn opaque<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], usize)> {
    let before = rest.len();
    let len = u32::from_be_bytes(*rest.first_chunk()?) as usize;
    let value = rest.get(4..4_usize.checked_add(len)?)?;
    *rest = rest.get(4 + len.next_multiple_of(4)..)?;
    Some((value, before - rest.len()))
}

fn parse(set: &[u8]) -> Option<Vec<(u32, &[u8])>> {
    let count = u32::from_be_bytes(*set.first_chunk()?);
    let mut rest = &set[4..];
    let mut properties = Vec::new();
    for _ in 0..count {
        let id = u32::from_be_bytes(*rest.first_chunk()?);
        rest = &rest[4..];
        properties.push((id, opaque(&mut rest)?.0));
    }
    rest.iter().all(|byte| *byte == 0).then_some(properties)
}

fn check(set: &PropertySet<'_>, plain: &[(u32, &[u8])]) {
    let value = |id| plain.iter().find(|p| p.0 == id).map(|p| p.1);
    let number = |id, default: u32| {
        value(id).map(|v| <[u8; 4]>::try_from(v).map_or(default, u32::from_be_bytes))
    };
    let default = Properties::DEFAULT;
    assert_eq!(set.send_size, number(1, default.send_size));
    assert_eq!(set.recv_size, number(2, default.recv_size));
    assert_eq!(set.segment_size, number(3, default.segment_size));
    assert_eq!(set.segments, number(4, default.segments));
    let reverse = number(5, 1).map(|n| match n {
        0 => ReverseSupport::None,
        2 => ReverseSupport::General,
        _ => ReverseSupport::Inline,
    });
    assert_eq!(set.reverse, reverse);
    assert_eq!(set.hostauth, value(6));
    if let Some(value) = value(6) {
        let whole = |(octets, len)| (len == value.len()).then_some(octets);
        match material(value) {
            Ok(None) => assert!(value.is_empty()),
            Ok(Some(found)) => assert_eq!(opaque(&mut &value[..]).and_then(whole), Some(found)),
            Err(_) => assert!(opaque(&mut &value[..]).and_then(whole).is_none()),
        }
    }
    let unknown: Vec<_> = plain
        .iter()
        .map(|p| p.0)
        .filter(|id| !(1..=6).contains(id))
        .collect();
    assert_eq!(set.unknown().collect::<Vec<_>>(), unknown);
}

/// The own properties are decoded unchanged, and never raise the limits of the other side.
fn own(input: &[u8]) {
    let mut source = Source::new(input);
    let mut draw = || Properties {
        send_size: source.u32(),
        recv_size: source.u32(),
        segment_size: source.u32(),
        segments: source.u32(),
        reverse: [
            ReverseSupport::None,
            ReverseSupport::Inline,
            ReverseSupport::General,
        ][source.below(3) as usize],
    };
    let (own, peer) = (draw(), draw());
    let mut wire = [0xee; SET_LEN];
    let mut out = Writer::new(&mut wire);
    own.encode(&mut out).expect("room");
    assert_eq!(out.len(), SET_LEN);
    let set = PropertySet::decode(&wire).expect("our own");
    assert_eq!(Properties::DEFAULT.with(&set), own);
    let effective = Effective::new(&own, &peer);
    assert!(effective.inline_send <= own.send_size && effective.inline_send <= peer.recv_size);
    assert!(effective.inline_recv <= own.recv_size);
    assert!(effective.segments <= peer.segments && effective.segment_size <= peer.segment_size);

    let octets = source.rest();
    let mut wire = vec![0xee; SET_LEN + HOSTAUTH_LEN + octets.len().next_multiple_of(4)];
    let mut out = Writer::new(&mut wire);
    own.encode_with(&mut out, octets).expect("room");
    assert_eq!(out.len(), wire.len());
    let set = PropertySet::decode(&wire).expect("our own");
    assert_eq!(Properties::DEFAULT.with(&set), own);
    assert_eq!(set.hostauth.map(material), Some(Ok(Some(octets))));
}
