// SPDX-License-Identifier: GPL-2.0

//! Private data: the first message of each kind in it is found wherever it is, and nothing else is.

use rpcrdma_proto::proto::connection::negotiate::Versions;
use rpcrdma_proto::proto::wire::cm_private::{self, Agreement, Announcement, CmPrivate};
use rpcrdma_proto::proto::wire::types::Version;

use crate::source::Source;

pub fn run(input: &[u8]) {
    let found = CmPrivate::find(input);
    let expected = input
        .windows(8)
        .position(|window| window[..5] == [0xf6, 0xab, 0x0e, 0x18, 1]);
    assert_eq!(found.map(|(offset, _)| offset), expected);
    if let Some((offset, peer)) = found {
        let mut again = peer.encode();
        // The other flags are the peer's affair.
        again[5] |= input[offset + 5] & !1;
        assert_eq!(again, input[offset..offset + 8]);
    }
    announcement(input);
    let mut source = Source::new(input);
    let own = CmPrivate {
        remote_invalidation: source.flag(),
        send_size: source.u32(),
        recv_size: source.u32(),
    };
    let wire = own.encode();
    let (offset, read) = CmPrivate::find(&wire).expect("there is one");
    assert_eq!(offset, 0);
    assert_eq!(read.remote_invalidation, own.remote_invalidation);
    for (read, own) in [
        (read.send_size, own.send_size),
        (read.recv_size, own.recv_size),
    ] {
        assert!(read <= own.max(1024) && read % 1024 == 0 && (1024..=262_144).contains(&read));
        assert!(!(1024..262_144).contains(&own) || own - read < 1024);
    }
    let peer = CmPrivate::decode(source.rest());
    let (ours, theirs) = (Agreement::new(&own, &peer), Agreement::new(&peer, &own));
    assert_eq!(
        (ours.inline_send, ours.inline_recv),
        (theirs.inline_recv, theirs.inline_send)
    );
    assert!(ours.inline_send <= own.send_size && ours.inline_recv <= own.recv_size);
    assert_eq!(ours.remote_invalidation, theirs.remote_invalidation);
    assert!(!ours.remote_invalidation || own.remote_invalidation);
}

fn announcement(input: &[u8]) {
    let found = Announcement::find(input);
    let expected = input
        .windows(8)
        .position(|window| window[..5] == [0xd8, 0xcc, 0x59, 0xe2, 1]);
    assert_eq!(found.map(|(offset, _)| offset), expected);
    let highest = expected.map_or(1, |offset| input[offset + 5]);
    assert_eq!(Announcement::decode(input).highest, highest);
    if let Some((offset, found)) = found {
        assert_eq!(found.encode()[..6], input[offset..offset + 6]);
    }
    let spoken = Versions::BOTH.announced_by(Announcement::decode(input));
    assert_eq!(spoken.high == Version::V2, highest >= 2);
    assert_eq!(spoken.low, Version::V1);
    // It is found behind the message of RFC 8797 and before it, with any bytes behind it.
    let peer = CmPrivate::decode(input);
    let announcement = Announcement { highest };
    let mut data = cm_private::encode(&peer, announcement).to_vec();
    data.extend(input);
    assert_eq!(CmPrivate::find(&data), Some((0, peer)));
    assert_eq!(Announcement::find(&data), Some((8, announcement)));
    data.rotate_left(8);
    assert_eq!(Announcement::find(&data), Some((0, announcement)));
}
