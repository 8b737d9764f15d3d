// SPDX-License-Identifier: GPL-2.0

//! How large a connection's resources are, from what the device can do.

use crate::proto::cm_private::Effective;
use crate::proto::plan::Limits;
use crate::rdma::device::Attributes;
use crate::rdma::qp;
use crate::support::errno;
use crate::support::memory::PAGE_SIZE;
use kernel::prelude::*;

/// The most pages of data in one RPC: 1 MiB that need not begin at a page boundary.
pub(crate) const MAX_DATA_PAGES: u32 = 257;

/// Receives for messages that answer no request of ours.
const EXTRA_RECEIVES: u32 = 32;

/// Send buffers beyond one a request: those whose completion has not been asked for yet.
const EXTRA_SENDS: u32 = 64;

/// The resources of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How many RPCs may be in flight.
    pub(crate) requests: u32,
    /// How many Receives are posted.
    pub(crate) receives: u32,
    /// How many Send buffers there are.
    pub(crate) sends: u32,
    /// The most pages of a registration.
    pub(crate) mr_pages: u32,
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
        let send_room = |requests: u32| (requests + EXTRA_SENDS) * (1 + per_call);
        let send_wr = |requests: u32| send_room(requests) + requests * per_call;
        let mut requests = requests.max(1);
        while requests > 1 && send_wr(requests) >= device.max_qp_wr {
            requests /= 2;
        }
        let sends = requests + EXTRA_SENDS;
        let receives = (requests + EXTRA_RECEIVES).min(device.max_qp_wr.saturating_sub(1));
        let entries = send_wr(requests) + receives + 2;
        if receives < 2 || send_wr(requests) >= device.max_qp_wr || entries > device.max_cqe {
            return Err(errno::not_supported());
        }
        Ok(Self {
            requests,
            receives,
            sends,
            mr_pages: pages,
            chunk_segments,
            qp: qp::Size {
                send_wr: send_wr(requests),
                send_room: send_room(requests),
                recv_wr: receives,
                signal_interval: EXTRA_SENDS,
                recv_batch: EXTRA_RECEIVES / 2,
            },
            reads_in: device.max_reads_in,
        })
    }

    /// What a plan has to keep to on a connection with these thresholds.
    pub(crate) fn limits(&self, thresholds: &Effective) -> Limits {
        Limits {
            page_size: PAGE_SIZE,
            segment_pages: self.mr_pages,
            chunk_segments: self.chunk_segments,
            ..Limits::v1(thresholds.inline_send, thresholds.inline_recv)
        }
    }
}
