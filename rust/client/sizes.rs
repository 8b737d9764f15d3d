// SPDX-License-Identifier: GPL-2.0

//! How large a connection's resources are, from what the device can do.

use super::settings;
use crate::{
    endpoint::Buffers,
    proto::{
        cm_private::CmPrivate,
        connection::Config,
        hostauth::Policy,
        negotiate::{
            Time,
            Versions, //
        },
        plan::Limits,
        property::Properties,
        types::Xid, //
    },
    rdma::{
        device::Attributes,
        qp, //
    },
    sunrpc::backchannel::SLOTS,
    support::{
        errno,
        memory::PAGE_SIZE, //
    }, //
};
use kernel::prelude::*;

/// The most pages of data in one RPC: 1 MiB that need not begin at a page boundary.
pub(crate) const MAX_DATA_PAGES: u32 = 257;

/// Receives for messages that answer no request of ours.
const EXTRA_RECEIVES: u32 = 32;

/// Send buffers beyond one a request: those whose completion has not been asked for yet.
const EXTRA_SENDS: u32 = 32;

/// The resources of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How many RPCs may be in flight.
    pub(crate) requests: u32,
    /// The most pages of a registration.
    pub(crate) mr_pages: u32,
    /// The buffers.
    pub(crate) buffers: Buffers,
    /// The most Segments of a chunk.
    pub(crate) chunk_segments: u32,
    /// The queues.
    pub(crate) qp: qp::Size,
    /// How many RDMA Reads the peer may have outstanding.
    pub(crate) reads_in: u8,
}

impl Sizes {
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device cannot do what RPC over RDMA needs.
    pub(crate) fn new(device: &Attributes, requests: u32) -> Result<Self> {
        if !device.memory_management || device.max_registration_pages == 0 {
            return Err(errno::not_supported());
        }
        let pages = device.max_registration_pages.min(MAX_DATA_PAGES);

        // The pieces of a message: head, pages and tail each need registrations of their own.
        let chunk_segments = MAX_DATA_PAGES.div_ceil(pages) + 2;
        if chunk_segments > Limits::NFS_SAFE_SEGMENTS {
            return Err(errno::not_supported());
        }
        // An RPC registers at most a Read chunk and a Write or Reply chunk; later they are
        // fenced, while its Send buffer may have been used for another.
        let per_call = 2 * chunk_segments;
        let send_wr =
            |requests: u32| (requests + EXTRA_SENDS) * (1 + per_call) + requests * per_call;
        let mut requests = requests.max(1);
        let too_many = |requests: u32| {
            let cqe = send_wr(requests) + requests + EXTRA_RECEIVES + 2 * qp::Size::MARKER;
            send_wr(requests) >= device.max_qp_wr || cqe > device.max_cqe
        };
        while requests > 1 && too_many(requests) {
            requests /= 2;
        }
        let sends = requests + EXTRA_SENDS;
        let receives = (requests + EXTRA_RECEIVES).min(device.max_qp_wr.saturating_sub(1));
        if receives < 2 || too_many(requests) {
            return Err(errno::not_supported());
        }
        Ok(Self {
            requests,
            mr_pages: pages,
            buffers: Buffers {
                sends,
                send_len: settings::inline_send(),
                receives,
                recv_len: settings::inline_recv(),
            },
            chunk_segments,
            qp: qp::Size {
                send_wr: send_wr(requests),
                send_room: (requests + EXTRA_SENDS) * (1 + per_call),
                recv_wr: receives,
                recv_batch: 16,
                signal_interval: EXTRA_SENDS / 2,
            },
            reads_in: device.max_reads_in,
        })
    }

    /// What this side brings along.
    pub(crate) fn config(&self) -> Config {
        Config {
            versions: Versions::V1,
            cm_private: CmPrivate {
                remote_invalidation: true,
                send_size: self.buffers.send_len,
                recv_size: self.buffers.recv_len,
            },
            properties: Properties::DEFAULT,
            xid: Xid(0),
            calls: self.requests,
            grants: SLOTS,
            ceiling: 0,
            continued: 0,
            keep_alive: Time(0),
            answer: Time(0),
            auth: Policy::Ignore,
            mechanism: false,
        }
    }

    /// What a plan has to keep to; the protocol narrows it to what the peer allows.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            page_size: PAGE_SIZE,
            segment_pages: self.mr_pages,
            chunk_segments: self.chunk_segments,
            ..Limits::v1(self.buffers.send_len, self.buffers.recv_len)
        }
    }
}
