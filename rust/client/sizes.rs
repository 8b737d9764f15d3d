// SPDX-License-Identifier: GPL-2.0

//! The sizes of a connection's resources, from the limits of the device.

use super::settings;
use crate::{
    endpoint::{
        self,
        Buffers, //
    },
    proto::{
        connection::{
            credit::RecvCredits,
            negotiate::{
                Opening,
                Versions, //
            },
            Config, //
        },
        requester::plan::Limits,
        resources::{
            resources,
            Device, //
        },
        wire::{
            cm_private::CmPrivate,
            property::{
                Properties,
                ReverseSupport, //
            },
            types::Version, //
        },
    },
    rdma::{
        device::Attributes,
        qp, //
    },
    sunrpc::backchannel::SLOTS,
    support::{
        errno,
        memory::PAGE_SIZE, //
    },
};
use kernel::prelude::*;

/// The most pages of data in one RPC: 1 MiB that need not begin at a page boundary.
pub(crate) const MAX_DATA_PAGES: u32 = (1 << 20) / PAGE_SIZE + 1;

/// The longest Payload stream, in bytes, that goes in several messages although chunks could hold it
/// (version 2).
pub(super) const CONTINUED: u32 = 65_536;

/// The longest Reply that is joined from several messages, in bytes. A server may use no chunks, so there
/// is room for the data of any RPC and for the bytes around them.
const LONGEST_REPLY: u32 = MAX_DATA_PAGES * PAGE_SIZE + CONTINUED;

/// The number of messages each way at a time that settling the version needs.
pub(super) const FIRST_MESSAGES: u16 = 1;
/// The buffers for these messages. There is a Receive more, because its message is handled before it is posted again.
pub(super) const FIRST_STOCK: Stock = Stock {
    calls: 1,
    sends: 1,
    receives: RecvCredits::receives(FIRST_MESSAGES) + 1,
};

/// The number of Calls at a time that a new connection has buffers for. Messages of version 2 are longer.
const FIRST_CALLS_V1: u32 = 16;
const FIRST_CALLS_V2: u32 = 4;

/// The most RPCs in flight on a connection that is made while the kernel swaps over its transport, and the
/// most bytes of its messages. The memory of this connection comes from the reserves, which devices and
/// networks need as well, and where pages seldom lie next to each other.
const SWAP_REQUESTS: u32 = 16;
const SWAP_MESSAGE: u32 = PAGE_SIZE;

/// The number of Segments that this side always accepts in a header (version 2).
const SEGMENTS: u32 = 64;

/// The longest messages, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub(crate) send: u32,
    pub(crate) recv: u32,
}

/// The buffers that a connection has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stock {
    /// The number of Calls at a time that the buffers are for.
    pub(super) calls: u32,
    /// The number of Send buffers.
    pub(super) sends: u32,
    /// The number of Receives that are kept posted.
    pub(super) receives: u32,
}

/// The resources of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientSizes {
    /// The number of RPCs that may be in flight.
    pub(crate) requests: u32,
    /// A new connection has buffers for all Calls.
    is_swapping: bool,
    /// The most pages of a registration.
    pub(crate) mr_pages: u32,
    /// The most registrations that exist at a time.
    pub(crate) mrs: u32,
    /// The number of Receives of version 1 besides the Receives for Replies.
    extra_receives: u32,
    /// The most Receives that are posted again together.
    recv_batch: u32,
    /// The most Segments of a chunk.
    pub(crate) chunk_segments: u32,
    /// The queues.
    pub(crate) qp: qp::Size,
    /// The number of RDMA Reads that the peer may have outstanding.
    pub(crate) reads_in: u8,
    /// The versions to speak.
    pub(crate) versions: Versions,
    /// The longest messages of each version.
    v1: Lengths,
    v2: Lengths,
    /// The most messages that the server may send at a time (version 2): Replies, and Calls.
    messages: u16,
}

/// The configuration of a connection, once the device is known.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub(super) sizes: ClientSizes,
    pub(super) config: Config,
    pub(super) opening: Opening,
}

impl ClientSizes {
    /// Returns the resources for `requests` RPCs in flight, or for fewer. With `is_swapping`, the kernel swaps
    /// over the transport.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device lacks a capability that RPC over RDMA needs.
    pub(crate) fn new(device: &Attributes, requests: u32, is_swapping: bool) -> Result<Self> {
        if !device.memory_management || device.max_registration_pages == 0 {
            return Err(errno::not_supported());
        }
        let (requests, longest) = if is_swapping {
            (requests.min(SWAP_REQUESTS), SWAP_MESSAGE)
        } else {
            (requests, u32::MAX)
        };
        let device_has = Device {
            registration_pages: device.max_registration_pages,
            max_qp_wr: device.max_qp_wr,
            max_cqe: device.max_cqe,
        };
        let mut resources =
            resources(requests, MAX_DATA_PAGES, &device_has).ok_or_else(errno::not_supported)?;
        let extra_receives = resources.receives - resources.requests;
        let mut versions = settings::versions();
        let mut messages = 0;
        if versions.high == Version::V2 {
            messages = resources.add_messages(resources.requests + SLOTS, &device_has);
            if messages == 0 {
                versions = Versions::V1;
            }
        }
        Ok(Self {
            versions,
            messages,
            requests: resources.requests,
            is_swapping,
            mr_pages: resources.segment_pages,
            mrs: resources.registrations,
            extra_receives,
            recv_batch: resources.recv_batch,
            v1: Lengths {
                send: settings::inline_send().min(longest),
                recv: settings::inline_recv().min(longest),
            },
            v2: Lengths {
                send: settings::message().min(longest),
                recv: settings::message().min(longest),
            },
            chunk_segments: resources.chunk_segments,
            qp: qp::Size {
                send_wr: resources.send_wr(),
                send_room: resources.send_room,
                recv_wr: resources.receives,
                signal_interval: resources.signal_interval,
                rw_sge: 1,
                rw_registrations: 0,
            },
            reads_in: device.max_reads_in,
        })
    }

    /// Returns the maximum lengths of messages of `version`.
    pub(crate) fn lengths(&self, version: Version) -> Lengths {
        match version {
            Version::V1 => self.v1,
            Version::V2 => self.v2,
        }
    }

    /// Returns the configuration of connection number `cid`.
    pub(crate) fn config(&self, cid: u32, opening: Opening) -> Config {
        // A connection that is negotiated in-band and begins with version 1 has Receives of that length.
        // Its server may still ask for version 2.
        let longest = self.lengths(match opening {
            Opening::Announced => Version::V2,
            Opening::InBand(first) => first,
        });
        let properties = Properties {
            send_size: longest.send,
            //= V2-056, V2-067
            recv_size: longest.recv.max(Version::V2.default_inline()),
            //= V2-130
            segment_size: u32::MAX,
            segments: self.header_segments(),
            reverse: ReverseSupport::Inline,
        };
        let cm_private = CmPrivate {
            remote_invalidation: true,
            send_size: self.v1.send,
            recv_size: self.v1.recv,
        };
        Config {
            //= V1-032, NFS-054
            calls: self.requests,
            grants: SLOTS,
            ceiling: FIRST_MESSAGES,
            continued: LONGEST_REPLY,
            ..endpoint::config(cid, self.versions, cm_private, properties)
        }
    }

    /// Returns the buffers of a new connection. `version` is `None` before the version is settled.
    pub(super) fn first_stock(&self, version: Option<Version>) -> Stock {
        let calls = match version {
            // No memory may be left for more.
            _ if self.is_swapping => self.requests,
            Some(Version::V2) => FIRST_CALLS_V2,
            Some(Version::V1) | None => FIRST_CALLS_V1,
        };
        self.stock(calls.min(self.requests), version)
    }

    /// Returns twice the buffers of `stock`, or the buffers for the most Calls.
    pub(super) fn larger_stock(&self, stock: &Stock, version: Option<Version>) -> Stock {
        let larger = self.stock(self.requests.min(2 * stock.calls), version);
        Stock {
            calls: larger.calls,
            // The first buffers may be for either version.
            sends: larger.sends.max(stock.sends),
            receives: larger.receives.max(stock.receives),
        }
    }

    fn stock(&self, calls: u32, version: Option<Version>) -> Stock {
        let v1 = calls + self.extra_receives;
        let v2 = RecvCredits::receives(self.messages(calls)) + self.recv_batch(calls, version);
        Stock {
            calls,
            sends: calls + self.signal_interval(calls, version),
            receives: match version {
                Some(Version::V1) => v1,
                Some(Version::V2) => v2,
                None => v1.max(v2),
            },
        }
    }

    /// Returns the buffers that are added to `stock` to make it `larger`.
    pub(super) fn more_buffers(
        &self,
        config: &Config,
        (stock, larger): (&Stock, &Stock),
        version: Option<Version>,
    ) -> Buffers {
        Buffers {
            sends: larger.sends - stock.sends,
            send_len: config.send_size(version),
            receives: larger.receives - stock.receives,
            recv_len: config.receive_size(version),
        }
    }

    /// Returns the buffers for the messages that settle the version. If `version` is the only possible version, the
    /// buffers have its length.
    pub(super) fn first_buffers(&self, config: &Config, version: Option<Version>) -> Buffers {
        let none = Stock {
            calls: 0,
            sends: 0,
            receives: 0,
        };
        self.more_buffers(config, (&none, &FIRST_STOCK), version)
    }

    /// Returns the number of Receives that are posted again together while there are buffers for `calls` Calls. The
    /// Receives of version 2 are long, so fewer of them wait to be posted.
    pub(super) fn recv_batch(&self, calls: u32, version: Option<Version>) -> u32 {
        match version {
            Some(Version::V2) => self.recv_batch.min(calls),
            Some(Version::V1) | None => self.recv_batch,
        }
    }

    /// Returns the number of entries of the send queue after which a Send is signaled while there are buffers for
    /// `calls` Calls. In version 2, it is at most half of the number of messages that the server takes, which is as
    /// small at first.
    pub(super) fn signal_interval(&self, calls: u32, version: Option<Version>) -> u32 {
        let most = self.qp.signal_interval;
        match version {
            Some(Version::V2) => most.min((calls + SLOTS) / 2),
            Some(Version::V1) | None => most,
        }
    }

    /// Returns the number of messages that the server may send at a time while there are buffers for `calls` Calls
    /// (version 2).
    pub(super) fn messages(&self, calls: u32) -> u16 {
        let messages = u16::try_from(calls + SLOTS).unwrap_or(u16::MAX);
        messages.min(self.messages)
    }

    /// Returns the maximum number of Segments of a header that this side accepts. It sends no more than that
    /// (D-25), and a Call may have several chunks.
    fn header_segments(&self) -> u32 {
        (2 * self.chunk_segments).max(SEGMENTS)
    }

    /// Returns the limits of this side for a plan; the protocol lowers them to the limits of the peer.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            page_size: PAGE_SIZE,
            segment_pages: self.mr_pages,
            chunk_segments: self.chunk_segments,
            joins_reply: true,
            ..Limits::v1(self.v1.send, self.v1.recv)
        }
    }
}
