// SPDX-License-Identifier: GPL-2.0

//! The sizes of a connection's resources, from the limits of the device and the settings.

use super::settings;
use crate::{
    endpoint::{
        self,
        Buffers, //
    },
    proto::{
        connection::{
            credit::Allowance,
            negotiate::Versions,
            Config, //
        },
        resources::{
            responder,
            Device,
            ResponderResources, //
        },
        responder::CallLimits,
        wire::{
            cm_private::{
                Announcement,
                CmPrivate, //
            },
            property::Properties,
            types::Version, //
        },
    },
    rdma::{
        device::Registers,
        listen::ConnectRequest,
        qp, //
    },
    sunrpc::svc::{
        backchannel::SLOTS,
        ServiceFacts, //
    },
    support::{
        memory::PAGE_SIZE,
        net, //
    },
};
use core::ops::Range;
use kernel::prelude::*;

/// The most pieces of memory of one RDMA Read or Write. More make each entry of the send queue
/// larger, fewer make more entries. The later numbers are for a queue that would be too long.
const MOST_PIECES: [u32; 3] = [16, 7, 1];

/// The longest send queue of mlx5, in bytes. `ib_device_attr.max_qp_wr` counts entries with one piece.
const MOST_QUEUE_BYTES: u32 = 2 << 20;

/// The number of messages of the largest size for which a connection has registrations, on a device whose
/// RDMA Reads or Writes need them. A Call that needs more registrations is read in rounds.
const MESSAGES_AT_A_TIME: u32 = 4;
/// The lower limit of the number of registrations.
const FEWEST_REGISTRATIONS: u32 = 64;

/// The entries of the send queue that each registration takes: an invalidation, the registration itself,
/// and the RDMA Read or Write.
const WORK_REQUESTS_EACH: u32 = 3;

/// RDMA Writes of a Reply besides its whole pages: for its head, its tail, and a page that it shares; and
/// the Send behind them.
const APART: u32 = 3;
const SEND: u32 = 1;

/// The longest Segment in bytes: any length that fits into a header.
const SEGMENT_BYTES: u32 = u32::MAX;

/// Logs the reason for refusing a client. The rate is limited, because a client may try again without end.
fn explain(why: &str) {
    if net::may_log() {
        pr_err!("{why}\n");
    }
}

/// The resources of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerSizes {
    /// The longest message of each version.
    v1: u32,
    v2: u32,
    /// The versions to speak.
    pub(super) versions: Versions,
    pub(super) qp: qp::Size,
    /// The number of RDMA Reads that may be outstanding.
    pub(super) reads: u8,
    /// The most credits that there will ever be Receives for.
    pub(super) grants: u32,
    /// The credits at the start of the connection.
    first: u32,
    remote_invalidation: bool,
    call_bytes: u32,
}

/// Returns the most work requests of a Reply whose payload has `pages` pages.
fn most_work_requests(pages: u32, sges: u32, registers: &Registers) -> u32 {
    match registers.writes {
        true => (pages.div_ceil(registers.pages) + APART) * WORK_REQUESTS_EACH + SEND,
        false => pages.div_ceil(sges) + APART + SEND,
    }
}

/// Returns the length of the messages of version 2.
///
/// Without an announcement of version 2, a client mostly speaks version 1, so its Receives have the length of
/// version 1. If it opens with version 2 in-band, its messages are as short.
//= VA-010, D-53
fn max_message(versions: Versions, request: &ConnectRequest) -> u32 {
    let announced = versions.announced_by(Announcement::decode(request.private_data()));
    match announced.high {
        Version::V1 => settings::max_message().min(settings::max_req_size()),
        Version::V2 => settings::max_message(),
    }
}

/// Returns the bytes of a send queue of mlx5 with this number of entries, of this number of pieces each
/// (`drivers/infiniband/hw/mlx5/qp.c`, `calc_sq_size`).
fn queue_bytes(entries: u32, pieces: u32) -> u32 {
    /// The parts of an entry beside its pieces, and the length of a piece.
    const OTHER: u32 = 132;
    const PIECE: u32 = 16;
    /// Entries begin at multiples of this.
    const UNIT: u32 = 64;
    let entry = (OTHER + PIECE * pieces).next_multiple_of(UNIT);
    entries.next_power_of_two().saturating_mul(entry)
}

/// Returns the number of pieces of an RDMA Read or Write, and the resources of a connection for messages of `pages`
/// pages, on a device with at most `sges` pieces. Returns `None` if its queues are too short.
fn find(
    device: &Device,
    sges: u32,
    pages: u32,
    registers: &Registers,
) -> Option<(u32, ResponderResources)> {
    let mut found = None;
    for most in MOST_PIECES {
        let sges = sges.min(most);
        let largest = most_work_requests(pages, sges, registers);
        if let Some(resources) = responder(settings::max_requests(), SLOTS, largest, device) {
            found = Some((sges, resources));
            if queue_bytes(resources.send_room, sges) <= MOST_QUEUE_BYTES {
                break;
            }
        }
    }
    found
}

impl ServerSizes {
    /// Returns the sizes for RPC messages of a `service`. Returns `None` if the device or the peer does not suffice, and
    /// logs the reason.
    pub(super) fn new(request: &ConnectRequest, service: &ServiceFacts) -> Option<Self> {
        let most = service.most;
        let device = request.attributes();
        let has = Device {
            registration_pages: device.max_registration_pages,
            max_qp_wr: device.max_qp_wr,
            max_cqe: device.max_cqe,
        };
        let pages = most.div_ceil(PAGE_SIZE);
        let registers = request.registers();
        if (registers.reads || registers.writes) && has.registration_pages == 0 {
            explain("the RDMA device registers no pages of this kernel's page size");
            return None;
        }
        let Some((sges, mut resources)) = find(&has, device.max_send_sge, pages, &registers) else {
            explain("the RDMA device's queues are too short for an NFS client");
            return None;
        };
        let mut versions = settings::versions();
        if versions.high == Version::V2 && !resources.count_messages(&has) {
            versions = Versions::V1;
        }
        //= V1-041, V2-050
        let reads = request
            .reads()
            .min(device.max_reads_out)
            .min(settings::max_reads());
        if reads == 0 {
            explain("a client lets the server have no RDMA Reads outstanding");
            return None;
        }
        let registrations = match registers.reads || registers.writes {
            true => (pages.div_ceil(registers.pages) * MESSAGES_AT_A_TIME)
                .max(FEWEST_REGISTRATIONS)
                .min(resources.send_room / WORK_REQUESTS_EACH),
            false => 1,
        };
        Some(Self {
            v1: settings::max_req_size(),
            v2: max_message(versions, request),
            versions,
            qp: qp::Size {
                send_wr: resources.send_room,
                send_room: resources.send_room,
                recv_wr: resources.receives,
                signal_interval: resources.signal_interval,
                rw_sge: sges,
                rw_registrations: registrations,
            },
            reads,
            grants: resources.grants,
            first: Allowance::first(service.threads)
                .min(settings::max_requests())
                .min(resources.grants),
            remote_invalidation: device.memory_management,
            call_bytes: most,
        })
    }

    /// Returns the buffers that are added when the Receives become sufficient for `calls.end` Calls at a time
    /// instead of `calls.start`. `version` is `None` before the version is settled. Further Send buffers are
    /// made when they are needed.
    pub(super) fn buffers(
        &self,
        config: &Config,
        calls: &Range<u32>,
        version: Option<Version>,
    ) -> Buffers {
        // The first Receives of a connection are for either version.
        let first = match self.versions.high {
            Version::V1 => 0,
            Version::V2 => ResponderResources::message_receives(self.first_calls(), SLOTS),
        };
        let receives = |calls| match version.unwrap_or(self.versions.high) {
            Version::V1 => ResponderResources::receives(calls, SLOTS).max(first),
            Version::V2 => ResponderResources::message_receives(calls, SLOTS),
        };
        let of = |calls| match calls {
            0 => (0, 0),
            _ => (receives(calls), ResponderResources::sends(calls)),
        };
        let ((had, sent), (receives, sends)) = (of(calls.start), of(calls.end));
        Buffers {
            sends: sends - sent,
            send_len: config.send_size(version),
            receives: receives - had,
            recv_len: config.receive_size(version),
        }
    }

    /// Returns the number of Calls at a time with Receives at the start of a connection.
    pub(super) fn first_calls(&self) -> u32 {
        self.first
    }

    /// Returns the protocol's configuration of connection number `cid`.
    pub(super) fn config(&self, cid: u32) -> Config {
        //= V1-033, V1-040
        let grants = self.first_calls().min(settings::max_requests());
        let cm_private = CmPrivate {
            remote_invalidation: self.remote_invalidation,
            send_size: self.v1,
            recv_size: self.v1,
        };
        let properties = Properties {
            send_size: self.v2,
            recv_size: self.v2,
            //= V2-130, V2-131
            segment_size: SEGMENT_BYTES,
            segments: self.segments(),
            ..Properties::DEFAULT
        };
        Config {
            calls: SLOTS,
            grants,
            // Calls, and Replies to ours.
            ceiling: u16::try_from(grants + SLOTS).unwrap_or(u16::MAX),
            //= V2-037
            continued: self.call_bytes,
            ..endpoint::config(cid, self.versions, cm_private, properties)
        }
    }

    /// Returns the maximum length of a message of `version`.
    pub(super) fn len(&self, version: Version) -> u32 {
        match version {
            Version::V1 => self.v1,
            Version::V2 => self.v2,
        }
    }

    /// Returns the length of a Receive for messages of `version`.
    pub(super) fn recv_len(&self, version: Version) -> u32 {
        self.len(version).max(version.default_inline())
    }

    /// Returns the maximum number of Segments of a header. No header has room for more.
    fn segments(&self) -> u32 {
        let longest = match self.versions.high {
            Version::V1 => self.v1,
            Version::V2 => self.v1.max(self.v2),
        };
        longest / 16
    }

    /// Returns the limits of a Call of `version`.
    pub(super) fn call_limits(&self, version: Version) -> CallLimits {
        CallLimits {
            version,
            read_chunks: 32,
            write_chunks: 32,
            segments: self.segments(),
            segment_bytes: SEGMENT_BYTES,
            call_bytes: self.call_bytes,
        }
    }
}
