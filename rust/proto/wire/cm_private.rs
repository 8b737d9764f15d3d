// SPDX-License-Identifier: GPL-2.0

//! The private data that both sides exchange while connecting.
//!
//! The message of RFC 8797 comes first, and behind it comes an [`Announcement`], the message of this
//! module (`Documentation/version2.rst`). Each is eight octets long: a format identifier, the version
//! of the format, and three octets of content. A receiver looks for each of them at every offset, and
//! ignores all other octets.

use crate::proto::wire::types::Version;

/// The length of each message on the wire.
const MESSAGE_LEN: usize = 8;

/// The length of the private data that this side sends. A connection request over InfiniBand has the
/// smallest room: 56 octets.
pub const LEN: usize = 2 * MESSAGE_LEN;

/// Returns the private data of a side: its message of RFC 8797, and its announcement.
//= CM-002, VA-001, VA-002
//= VA-003
pub fn encode(own: &CmPrivate, announcement: Announcement) -> [u8; LEN] {
    let [m0, m1, m2, m3, m4, m5, m6, m7] = own.encode();
    let [a0, a1, a2, a3, a4, a5, a6, a7] = announcement.encode();
    [
        m0, m1, m2, m3, m4, m5, m6, m7, a0, a1, a2, a3, a4, a5, a6, a7,
    ]
}

/// Looks for the first message with this identifier and this version of its format, and returns its
/// offset and its content.
//= CM-024, CM-025, CM-026
//= CM-027, CM-028, CM-029
//= D-35, D-36
fn find(private_data: &[u8], identifier: u32, version: u8) -> Option<(usize, [u8; 3])> {
    let identifier = identifier.to_be_bytes();
    (0..private_data.len())
        .zip(private_data.windows(MESSAGE_LEN))
        .find_map(|(offset, window)| {
            let (found, rest) = window.split_first_chunk::<4>()?;
            let (found_version, content) = rest.split_first()?;
            (*found == identifier && *found_version == version)
                .then_some((offset, *content.first_chunk()?))
        })
}

/// The message of RFC 8797: the properties of a peer for version 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CmPrivate {
    /// The peer agrees to remote invalidation (the R bit).
    pub remote_invalidation: bool,
    /// The most bytes the peer puts into one Send.
    pub send_size: u32,
    /// The most bytes the peer takes in one Receive.
    pub recv_size: u32,
}

impl CmPrivate {
    /// The length of the message on the wire.
    //= CM-003, CM-005
    pub const ENCODED_LEN: usize = MESSAGE_LEN;

    //= CM-004
    const IDENTIFIER: u32 = 0xf6ab_0e18;
    const VERSION: u8 = 1;
    const R: u8 = 1;
    const UNIT: u32 = 1024;

    /// The values for a peer without a valid message.
    //= CM-023, CM-025, V1-047
    pub const DEFAULT: Self = Self {
        remote_invalidation: false,
        send_size: Self::UNIT,
        recv_size: Self::UNIT,
    };

    /// Returns the message to place at the start of the private data.
    ///
    /// Sizes are rounded down, so that never more is promised than can be kept; the smallest
    /// that can be expressed is 1024, the largest 262144.
    //= CM-001, CM-002, CM-003
    //= CM-006, CM-017, CM-019
    //= CM-020
    pub fn encode(&self) -> [u8; Self::ENCODED_LEN] {
        let [i0, i1, i2, i3] = Self::IDENTIFIER.to_be_bytes();
        let flags = if self.remote_invalidation { Self::R } else { 0 };
        [
            i0,
            i1,
            i2,
            i3,
            Self::VERSION,
            flags,
            Self::encode_size(self.send_size),
            Self::encode_size(self.recv_size),
        ]
    }

    fn encode_size(size: u32) -> u8 {
        u8::try_from((size / Self::UNIT).saturating_sub(1)).unwrap_or(u8::MAX)
    }

    //= CM-018
    fn decode_size(encoded: u8) -> u32 {
        u32::from(encoded)
            .saturating_add(1)
            .saturating_mul(Self::UNIT)
    }

    /// Searches received private data for a message, at any offset and between any other data. Returns the
    /// message with its offset.
    //= CM-007
    pub fn find(private_data: &[u8]) -> Option<(usize, Self)> {
        let (offset, [flags, send, recv]) = find(private_data, Self::IDENTIFIER, Self::VERSION)?;
        let found = Self {
            remote_invalidation: flags & Self::R != 0,
            send_size: Self::decode_size(send),
            recv_size: Self::decode_size(recv),
        };
        Some((offset, found))
    }

    /// Returns the peer's message, or the defaults.
    //= CM-010, CM-023, CM-025
    pub fn decode(private_data: &[u8]) -> Self {
        Self::find(private_data).map_or(Self::DEFAULT, |(_, found)| found)
    }
}

/// The highest version of RPC-over-RDMA that a side speaks on the connection.
//= VA-004, D-53
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Announcement {
    /// The number of the version.
    pub highest: u8,
}

impl Announcement {
    /// The length of the message on the wire.
    pub const ENCODED_LEN: usize = MESSAGE_LEN;

    // It has no octet of the identifier of RFC 8797, so no match begins in one and ends in the other.
    const IDENTIFIER: u32 = 0xd8cc_59e2;
    const VERSION: u8 = 1;

    /// The announcement of a peer that has sent none.
    //= VA-006
    pub const DEFAULT: Self = Self::of(Version::V1);

    /// Announces `highest` and all versions below it.
    pub const fn of(highest: Version) -> Self {
        Self {
            highest: match highest {
                Version::V1 => 1,
                Version::V2 => 2,
            },
        }
    }

    /// Returns the message to be placed behind the message of RFC 8797.
    //= VA-002, VA-003
    pub fn encode(self) -> [u8; Self::ENCODED_LEN] {
        let [i0, i1, i2, i3] = Self::IDENTIFIER.to_be_bytes();
        [i0, i1, i2, i3, Self::VERSION, self.highest, 0, 0]
    }

    /// Looks for an announcement in received private data, at any offset, and returns it with its offset.
    //= VA-003, VA-005
    pub fn find(private_data: &[u8]) -> Option<(usize, Self)> {
        let (offset, [highest, ..]) = find(private_data, Self::IDENTIFIER, Self::VERSION)?;
        Some((offset, Self { highest }))
    }

    /// Returns the announcement of the peer, or the default.
    //= VA-006
    pub fn decode(private_data: &[u8]) -> Self {
        Self::find(private_data).map_or(Self::DEFAULT, |(_, found)| found)
    }
}

/// The agreement of a version 1 connection, seen from one of its sides.
///
/// It does not change during the connection. The next connection has a new agreement.
//= CM-008, CM-009, V1-044
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Agreement {
    /// The most bytes this side may put into one Send.
    pub inline_send: u32,
    /// The most bytes this side has to expect in one Receive.
    pub inline_recv: u32,
    /// Replies may arrive, or may be sent, with a Send With Invalidate.
    pub remote_invalidation: bool,
}

impl Agreement {
    /// Computes the agreement of this side's message with the peer's message.
    ///
    /// No value is above this side's value.
    //= CM-011, CM-013, CM-014
    //= CM-015, CM-021, CM-022
    //= CM-030, CM-031, V1-019
    //= V1-046
    pub fn new(own: &CmPrivate, peer: &CmPrivate) -> Self {
        Self {
            inline_send: own.send_size.min(peer.recv_size),
            inline_recv: own.recv_size.min(peer.send_size),
            remote_invalidation: own.remote_invalidation && peer.remote_invalidation,
        }
    }
}
