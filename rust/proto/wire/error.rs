// SPDX-License-Identifier: GPL-2.0

//! Errors in messages, and the error messages of the protocol.

/// An error in the bytes of a header.
///
/// The first wrong word is the reason. A Responder answers with the error message of the reason; a Requester
/// fails the transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BadHeader {
    /// The message ends inside a field, or a count exceeds the bytes behind it.
    Truncated,
    /// Bytes follow a header that has no Payload stream behind it.
    Trailing,
    /// An optional-data word is neither 0 nor 1.
    Presence,
    /// A Segment runs past the end of the 64-bit address space.
    Wrap,
    /// A Read chunk's Position is not a multiple of four.
    Unaligned,
    /// A Read chunk begins inside another one, or behind the end of the Payload stream.
    Misplaced,
    /// The version is not spoken here, or not on this connection.
    Version,
    /// The header type is not defined, or must not be used any more.
    Type,
    /// Flags are set that are not defined, or not for this header type.
    Flags,
    /// The message is to be continued and names chunks all the same.
    ChunksTooEarly,
    /// The message does not belong to the sequence of messages that is to be continued.
    BrokenSequence,
    /// A message has no inline Payload stream, and no memory named that could hold one.
    NoPayload,
    /// A message conveys its Payload stream inline and by a Position Zero Read chunk at once.
    TwoPayloads,
    /// `rdma_xid` differs from the XID of the RPC message.
    XidMismatch,
    /// The direction of the RPC message does not fit the header, or cannot arrive here.
    Direction,
    /// The parts of a message are longer than the limit.
    TooLong,
    /// A property's value is not of the property's type, or the property is there twice.
    Property,
}

impl BadHeader {
    /// Returns the error as text, for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Trailing => "trailing bytes",
            Self::Presence => "presence word",
            Self::Wrap => "address wraps",
            Self::Unaligned => "unaligned position",
            Self::Misplaced => "misplaced Read chunk",
            Self::Version => "version",
            Self::Type => "header type",
            Self::Flags => "flags",
            Self::ChunksTooEarly => "chunks too early",
            Self::BrokenSequence => "broken sequence",
            Self::NoPayload => "no payload",
            Self::TwoPayloads => "two payloads",
            Self::XidMismatch => "XIDs differ",
            Self::Direction => "direction",
            Self::TooLong => "too long",
            Self::Property => "property",
        }
    }

    /// Returns the error that a Responder reports.
    ///
    /// Version 1 has one code for all of them, with the value that BAD_XDR has in version 2.
    //= V1-095, V1-111, V2-011
    //= V2-031, V2-034, V2-035
    //= V2-145, V2-146, V2-147
    //= D-01, D-16, D-18
    pub const fn report(self) -> ErrorReport {
        match self {
            Self::Type => ErrorReport::InvalHtype,
            Self::Flags | Self::ChunksTooEarly | Self::BrokenSequence | Self::Direction => {
                ErrorReport::InvalFlag
            }
            Self::TooLong => ErrorReport::System,
            _ => ErrorReport::BadXdr,
        }
    }
}

/// The output buffer is too short for the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoRoom;

/// The content of an error message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ErrorReport {
    /// ERR_VERS: the sender supports only the versions `low` to `high`.
    Version {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// BAD_XDR, in version 1 ERR_CHUNK: the sender cannot use the header.
    BadXdr,
    /// INVAL_HTYPE: the header type is not supported.
    InvalHtype,
    /// INVAL_FLAG: the flags do not fit the type, or the sequence of messages.
    InvalFlag,
    /// READ_CHUNKS: there are more Read chunks than the sender takes.
    ReadChunks {
        /// The number that it accepts.
        max_chunks: u32,
    },
    /// WRITE_CHUNKS: there are more Write chunks than the sender takes.
    WriteChunks {
        /// The number that it accepts.
        max_chunks: u32,
    },
    /// SEGMENTS: a chunk has more Segments than the sender takes.
    Segments {
        /// The number that it accepts.
        max_segments: u32,
    },
    /// WRITE_RESOURCE: a Write chunk is too small for its result.
    WriteResource {
        /// The index of the chunk, counted from 1; 0 if unknown.
        chunk_index: u32,
        /// The length of the result in bytes; 0 if unknown.
        length_needed: u32,
    },
    /// REPLY_RESOURCE: the Reply fits nowhere.
    ReplyResource {
        /// The necessary length of a Reply chunk in bytes; 0 if unknown.
        length_needed: u32,
    },
    /// SYSTEM: anything else.
    System,
    /// A code that is not defined.
    Unknown(u32),
}

impl ErrorReport {
    /// ERR_VERS of a peer that knows version 1 alone.
    pub(super) const VERSION_1: Self = Self::Version { low: 1, high: 1 };

    /// Returns it in words, for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Version { .. } => "version",
            Self::BadXdr => "bad XDR or chunks",
            Self::InvalHtype => "header type",
            Self::InvalFlag => "flags",
            Self::ReadChunks { .. } => "too many Read chunks",
            Self::WriteChunks { .. } => "too many Write chunks",
            Self::Segments { .. } => "too many Segments",
            Self::WriteResource { .. } => "Write chunk too small",
            Self::ReplyResource { .. } => "Reply chunk too small",
            Self::System => "system",
            Self::Unknown(_) => "unknown code",
        }
    }

    /// Returns the error code.
    //= V1-020, V2-016, V2-017
    //= V2-018
    pub const fn code(self) -> u32 {
        match self {
            Self::Version { .. } => 1,
            Self::BadXdr => 2,
            Self::InvalHtype => 3,
            Self::InvalFlag => 4,
            Self::ReadChunks { .. } => 5,
            Self::WriteChunks { .. } => 6,
            Self::Segments { .. } => 7,
            Self::WriteResource { .. } => 8,
            Self::ReplyResource { .. } => 9,
            Self::System => 10,
            Self::Unknown(code) => code,
        }
    }

    /// Returns the words that may stand behind the code; zero is none, or unknown.
    pub const fn arguments(self) -> [u32; 2] {
        match self {
            Self::Version { low, high } => [low, high],
            Self::ReadChunks { max_chunks: most }
            | Self::WriteChunks { max_chunks: most }
            | Self::Segments { max_segments: most } => [most, 0],
            Self::WriteResource {
                chunk_index,
                length_needed,
            } => [chunk_index, length_needed],
            Self::ReplyResource { length_needed } => [length_needed, 0],
            _ => [0, 0],
        }
    }
}
