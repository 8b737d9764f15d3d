// SPDX-License-Identifier: GPL-2.0

//! The private data that both sides of a version 1 connection exchange while connecting.

/// What one peer says about itself.
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
    pub const ENCODED_LEN: usize = 8;

    //= CM-004
    const IDENTIFIER: [u8; 4] = 0xf6ab_0e18_u32.to_be_bytes();
    const VERSION: u8 = 1;
    const R: u8 = 1;
    const UNIT: u32 = 1024;

    /// What holds for a peer that said nothing that can be understood.
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
    //= CM-001, CM-002, CM-003, CM-006, CM-017, CM-019, CM-020
    pub fn encode(&self) -> [u8; Self::ENCODED_LEN] {
        let [i0, i1, i2, i3] = Self::IDENTIFIER;
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

    /// Looks for a message in received private data, at any offset and between whatever else
    /// is there, and returns it with its offset.
    //= CM-007, CM-024, CM-026, CM-027, CM-028, CM-029, D-35, D-36
    pub fn find(private_data: &[u8]) -> Option<(usize, Self)> {
        (0..private_data.len())
            .zip(private_data.windows(Self::ENCODED_LEN))
            .find_map(|(offset, window)| {
                let (identifier, rest) = window.split_first_chunk::<4>()?;
                let [version, flags, send, recv] = *rest.first_chunk()?;
                if *identifier != Self::IDENTIFIER || version != Self::VERSION {
                    return None;
                }
                let found = Self {
                    remote_invalidation: flags & Self::R != 0,
                    send_size: Self::decode_size(send),
                    recv_size: Self::decode_size(recv),
                };
                Some((offset, found))
            })
    }

    /// Returns what the peer said, or the defaults.
    //= CM-010, CM-023, CM-025
    pub fn decode(private_data: &[u8]) -> Self {
        Self::find(private_data).map_or(Self::DEFAULT, |(_, found)| found)
    }
}

/// What holds on a version 1 connection, seen from one of its sides.
///
/// It never changes while the connection lasts, and is worked out anew for the next one.
//= CM-008, CM-009, V1-044
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Effective {
    /// The most bytes this side may put into one Send.
    pub inline_send: u32,
    /// The most bytes this side has to expect in one Receive.
    pub inline_recv: u32,
    /// Replies may arrive, or may be sent, with a Send With Invalidate.
    pub remote_invalidation: bool,
}

impl Effective {
    /// Joins what this side offered with what the peer offered.
    ///
    /// Nothing the peer says can raise a value above what this side offered.
    //= CM-011, CM-013, CM-014, CM-015, CM-021, CM-022, CM-030, CM-031, V1-019, V1-046
    pub fn new(own: &CmPrivate, peer: &CmPrivate) -> Self {
        Self {
            inline_send: own.send_size.min(peer.recv_size),
            inline_recv: own.recv_size.min(peer.send_size),
            remote_invalidation: own.remote_invalidation && peer.remote_invalidation,
        }
    }
}
