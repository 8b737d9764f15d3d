// SPDX-License-Identifier: GPL-2.0

//! The version 1 encoding.

use crate::proto::wire::{
    chunk::{
        ChunkLists,
        Chunks, //
    },
    error::{
        BadHeader,
        ErrorReport,
        NoRoom, //
    },
    header::{
        Body,
        Conveyed,
        FixedWords,
        Kind, //
    },
    types::{
        Handle,
        Version,
        Xid, //
    },
    xdr::{
        Reader,
        Writer, //
    },
};

//= V1-007
const RDMA_MSG: u32 = 0;
const RDMA_NOMSG: u32 = 1;
const RDMA_ERROR: u32 = 4;

const ERR_VERS: u32 = 1;
pub(super) const ERR_CHUNK: u32 = 2;

/// The length of the longest error message.
pub const MAX_ERROR_LEN: usize = 28;

/// Reads the body of an error message in the version 1 layout.
#[cold]
//= V1-018, V1-020, V1-099
fn decode_error(reader: &mut Reader<'_>) -> Result<ErrorReport, BadHeader> {
    Ok(match reader.u32()? {
        ERR_VERS => ErrorReport::Version {
            low: reader.u32()?,
            high: reader.u32()?,
        },
        ERR_CHUNK => ErrorReport::BadXdr,
        code => ErrorReport::Unknown(code),
    })
}

/// Returns whether a message of any version is an error message, which is never answered.
#[inline]
//= V1-021, V1-099
pub const fn is_error(fixed: &FixedWords) -> bool {
    fixed.htype == RDMA_ERROR
}

/// Decodes a version 1 message from behind the fixed words.
///
/// RDMA_MSGP and RDMA_DONE are not defined any more; nothing in this crate sends them.
#[inline(always)]
//= V1-007, V1-095, V1-103
//= V1-104, V1-105, V1-106
pub fn decode<'a>(fixed: &FixedWords, mut reader: Reader<'a>) -> Result<Body<'a>, BadHeader> {
    let kind = match fixed.htype {
        RDMA_MSG => Kind::Msg,
        RDMA_NOMSG => Kind::Nomsg,
        RDMA_ERROR => return Ok(Body::Error(decode_error(&mut reader).ok())),
        _ => return Err(BadHeader::Type),
    };
    let chunks = ChunkLists::decode(&mut reader)?;
    //= V1-017
    if kind == Kind::Nomsg && chunks.is_empty() {
        return Err(BadHeader::NoPayload);
    }
    //= V1-016
    Ok(Body::Conveyed(Conveyed {
        kind,
        inv_handle: Handle::NONE,
        chunks,
        payload: reader.rest(),
    }))
}

#[inline(always)]
pub(super) fn fixed_words(
    out: &mut Writer<'_>,
    xid: Xid,
    version: u32,
    credit: u32,
    htype: u32,
) -> Result<(), NoRoom> {
    // One number, so that it is stored by words and not byte by byte.
    let words = [xid.0, version, credit, htype];
    let number = words
        .iter()
        .fold(0, |number, word| (number << 32) | u128::from(*word));
    out.array(&number.to_be_bytes())
}

/// Writes the header of a message that conveys an RPC message, and returns its length.
///
/// `credit` is the requested credits in a Call and the granted credits in a Reply; zero is sent as one. An
/// inline Payload stream has to follow the header without a gap.
#[inline(always)]
//= V1-002, V1-003, V1-005
//= V1-006, V1-014, V1-016
//= V1-027, V1-034, V1-120
pub fn encode<C: Chunks + ?Sized>(
    out: &mut [u8],
    xid: Xid,
    credit: u32,
    kind: Kind,
    chunks: &C,
) -> Result<usize, NoRoom> {
    let mut out = Writer::new(out);
    let htype = match kind {
        Kind::Msg => RDMA_MSG,
        Kind::Nomsg => RDMA_NOMSG,
    };
    fixed_words(&mut out, xid, Version::V1.number(), credit.max(1), htype)?;
    chunks.encode(&mut out)?;
    Ok(out.len())
}

/// Writes the RDMA_ERROR message that answers `request`, and returns its length.
///
/// ERR_VERS has this layout in all versions, and answers messages of any version. All other errors have the
/// code ERR_CHUNK.
//= V1-018, V1-020, V1-021
//= V1-093, V1-094, V2-066
//= D-02
pub fn encode_error(
    out: &mut [u8],
    request: &FixedWords,
    credit: u32,
    report: ErrorReport,
) -> Result<usize, NoRoom> {
    let mut out = Writer::new(out);
    fixed_words(
        &mut out,
        request.xid,
        request.version,
        credit.max(1),
        RDMA_ERROR,
    )?;
    match report {
        ErrorReport::Version { low, high } => {
            out.u32(ERR_VERS)?;
            out.u32(low)?;
            out.u32(high)?;
        }
        _ => out.u32(ERR_CHUNK)?,
    }
    Ok(out.len())
}
