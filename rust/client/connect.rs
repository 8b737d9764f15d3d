// SPDX-License-Identifier: GPL-2.0

//! Connecting: from the server's address to an endpoint that has all it needs.

use super::{
    buffers,
    connection::Client,
    pool::SMALL_PAGES,
    registrations::{
        add,
        trace_made,
        Requests,
        FIRST_SMALL, //
    },
    sizes::{
        ClientSizes,
        Start,
        FIRST_MESSAGES, //
    },
    versions, //
};
use crate::{
    endpoint::{
        Endpoint,
        Judgement,
        Shared,
        Unresolved,
        ANSWER, //
    },
    proto::{
        connection::{
            negotiate::Opening,
            Side, //
        },
        wire::types::{
            Version,
            Xid, //
        },
    },
    rdma::cm::ConnectParams,
    sunrpc::{
        ConnectError,
        Xprt, //
    },
    support::net::{
        self,
        SockAddr, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The time limits for the resolution of the address and of the route, in milliseconds.
const RESOLVE_TIMEOUT: u32 = 5_000;
/// The time limit for the answer of the server, in milliseconds. The connection manager gives up after
/// 65 to 74 s.
const CONNECT_TIMEOUT: u32 = 60_000;

/// The number of times that a device retransmits a packet. The number is small, so that the client soon detects
/// that the address of a server has moved. RPC retransmits each Call on the next connection.
const RETRIES: u8 = 6;
/// The number of times that the server's device retries a Send when no Receive is posted, in version 1. A Receive is
/// posted for each credit, so a server that finds no Receive breaks the protocol, and the connection ends.
const RNR_RETRIES: u8 = 0;
/// The same number in version 2. The value 7 means without limit. One Receive is reserved for messages that take no
/// credit, and a server may send a second such message before the client has handled the first.
const RNR_RETRIES_V2: u8 = 7;

/// Finds a device that leads to the server at `peer`, and makes the queue pair there. Nothing is sent
/// yet. `begun` gets the part of the connection by which this can be given up.
///
/// The caller must close the endpoint in the end.
///
/// Context: process, may sleep.
///
/// # Errors
///
/// [`ConnectError`]: no device leads to the server, the device lacks a feature, or there is no
/// memory.
pub(super) fn resolve(
    client: Client,
    xprt: &Xprt,
    peer: SockAddr,
    begun: impl FnOnce(&Arc<Shared<Client>>),
) -> Result<(Endpoint<Client>, Start), ConnectError> {
    let net = xprt.net().ok_or(EINVAL)?;
    let unresolved = Unresolved::new(client, Requests::none(), net)?;
    begun(unresolved.shared());
    //= V1-112, V1-113, V1-114
    //= NFS-032, NFS-062, V2-043
    //= V2-173, V2-174, V2-175
    //= V2-176
    let resolved = unresolved.resolve(peer, RESOLVE_TIMEOUT)?;
    let device = resolved.attributes()?;
    let is_swapping = xprt.swappers() != 0;
    let sizes = ClientSizes::new(&device, xprt.max_reqs(), is_swapping).inspect_err(|_| {
        if net::may_log() {
            let name = device.name;
            pr_err!("the RDMA device {name} cannot register memory as RPC over RDMA needs it\n");
        }
    })?;
    let role = resolved.role();
    let judgement = Judgement::new(Side::Client, peer, &resolved.link())?;
    let proof = judgement.is_demanding();
    let (opening, by_call) = match role.negotiates_in_band {
        true => versions::opening(net, &peer, sizes.versions, proof),
        false => (Opening::Announced, false),
    };
    let mut config = sizes.config(role.cid, opening);
    if by_call {
        config.xid = Xid(0);
    }
    judgement.apply(&mut config);
    let start = Start {
        sizes,
        config,
        opening,
    };
    Ok((resolved.endpoint(sizes.qp, judgement)?, start))
}

/// Connects, and makes buffers for a few Calls. The exchange of private data settles the sizes of version 1 (RFC 8797).
/// Where both sides may speak version 2, the first messages settle the version, and most buffers are made after
/// that, because messages of version 2 are longer.
///
/// The server sends nothing before our first Call, so Receives are in time when they are posted
/// after the connection stands; and a server that refuses costs no buffers.
///
/// Context: process, may sleep.
///
/// # Errors
///
/// [`ConnectError`]: the server has refused the connection or does not answer, or there is no
/// memory.
pub(super) fn establish(
    endpoint: &Endpoint<Client>,
    start: &Start,
    xprt: &Xprt,
    peer: SockAddr,
) -> Result<(), ConnectError> {
    let Start {
        sizes,
        config: own,
        opening,
    } = start;
    let params = ConnectParams {
        //= CM-002
        private_data: own.private_data(),
        //= V1-041, V2-050
        responder_resources: sizes.reads_in,
        retry_count: RETRIES,
        //= V1-122, V2-052, D-10
        rnr_retry_count: match own.versions.high {
            Version::V1 => RNR_RETRIES,
            Version::V2 => RNR_RETRIES_V2,
        },
    };
    endpoint.connect(*own, *opening, &params, CONNECT_TIMEOUT)?;
    let requests = Requests::new(endpoint, xprt.max_reqs(), *start)?;
    endpoint.shared().lock().role = requests;
    // The announcement of the server may leave one version.
    let version = endpoint.lasting_version();
    //= V1-045, V1-046, V1-123
    //= V1-124
    endpoint.make_buffers(&sizes.first_buffers(own, version), FIRST_MESSAGES)?;
    // The large ones are enough for any one RPC, so a connection gets on without making more.
    let large = (2 * sizes.chunk_segments).min(sizes.mrs);
    let small = FIRST_SMALL.min(sizes.mrs - large);
    for (count, pages) in [
        (small, SMALL_PAGES.min(sizes.mr_pages)),
        (large, sizes.mr_pages),
    ] {
        for _ in 0..count {
            add(endpoint, pages)?;
        }
    }
    trace_made(endpoint, small + large);
    //= V2-054, V2-058, V2-061
    //= V2-062
    let settled = endpoint.wait_for_version(ANSWER);
    if let Some(net) = xprt.net() {
        versions::remember(net, &peer, endpoint);
    }
    //= V2-052, V2-056, V2-067
    buffers::make_first(endpoint, start, settled?)?;
    Ok(())
}
