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
        resources::{
            resources,
            Device, //
        },
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

/// The resources of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How many RPCs may be in flight.
    pub(crate) requests: u32,
    /// The most pages of a registration.
    pub(crate) mr_pages: u32,
    /// The most registrations that exist at a time.
    pub(crate) mrs: u32,
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
        let device_has = Device {
            registration_pages: device.max_registration_pages,
            max_qp_wr: device.max_qp_wr,
            max_cqe: device.max_cqe,
        };
        let resources =
            resources(requests, MAX_DATA_PAGES, &device_has).ok_or_else(errno::not_supported)?;
        Ok(Self {
            requests: resources.requests,
            mr_pages: resources.segment_pages,
            mrs: resources.registrations,
            buffers: Buffers {
                sends: resources.sends,
                send_len: settings::inline_send(),
                receives: resources.receives,
                recv_len: settings::inline_recv(),
            },
            chunk_segments: resources.chunk_segments,
            qp: qp::Size {
                send_wr: resources.send_wr(),
                send_room: resources.send_room,
                recv_wr: resources.receives,
                recv_batch: resources.recv_batch,
                signal_interval: resources.signal_interval,
                rw_sge: 1,
                rw_registrations: 0,
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
            //= V1-032, NFS-054
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
