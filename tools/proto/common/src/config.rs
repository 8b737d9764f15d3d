// SPDX-License-Identifier: GPL-2.0

//! The kinds of peers there are.

use rpcrdma_proto::proto::connection::hostauth::Policy;
use rpcrdma_proto::proto::connection::negotiate::{Time, Versions};
use rpcrdma_proto::proto::connection::Config;
use rpcrdma_proto::proto::wire::cm_private::CmPrivate;
use rpcrdma_proto::proto::wire::property::{Properties, ReverseSupport};
use rpcrdma_proto::proto::wire::types::{Version, Xid};

/// Version 2 only, which no peer has to be, but some may.
pub const V2_ONLY: Versions = Versions {
    low: Version::V2,
    high: Version::V2,
};

/// A peer with Receives for `ceiling` messages.
pub fn config(versions: Versions, ceiling: u16) -> Config {
    Config {
        versions,
        cm_private: CmPrivate {
            remote_invalidation: true,
            send_size: 4096,
            recv_size: 4096,
        },
        properties: Properties::DEFAULT,
        xid: Xid(0x7fff_0001),
        calls: ceiling.into(),
        grants: ceiling.into(),
        ceiling,
        continued: 1 << 20,
        keep_alive: Time(60_000),
        answer: Time(5_000),
        auth: Policy::Ignore,
    }
}

/// Speaks version 1 as every peer does.
pub fn v1_only(ceiling: u16) -> Config {
    config(Versions::V1, ceiling)
}

/// Speaks both versions.
pub fn both(ceiling: u16) -> Config {
    config(Versions::BOTH, ceiling)
}

/// Speaks both versions, and can do as little as a peer may.
pub fn small(ceiling: u16) -> Config {
    let small = config(Versions::BOTH, ceiling);
    Config {
        cm_private: CmPrivate {
            remote_invalidation: false,
            send_size: 1024,
            recv_size: 1024,
        },
        properties: Properties {
            send_size: 1024,
            recv_size: 1024,
            segment_size: 4096,
            segments: 1,
            reverse: ReverseSupport::Inline,
        },
        ..small
    }
}

/// A client as the kernel's: version 1 alone, and nothing that version 2 needs.
pub fn kernel(calls: u32) -> Config {
    Config {
        cm_private: CmPrivate::DEFAULT,
        xid: Xid(0xc1),
        calls,
        grants: 8,
        continued: 0,
        ..config(Versions::V1, 0)
    }
}
