// SPDX-License-Identifier: GPL-2.0

//! The version 2 encoding.

use crate::proto::wire::{
    chunk::{
        self,
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
        Flags,
        Kind,
        Outgoing, //
    },
    types::{
        Grant,
        Handle,
        MsgType,
        Version,
        Xid, //
    },
    v1,
    xdr::{
        is_pad,
        Reader,
        Writer, //
    },
};

//= V2-009, V2-010, V2-024
const RDMA2_MSG: u32 = 0;
const RDMA2_NOMSG: u32 = 1;
const RDMA2_ERROR: u32 = 4;
const RDMA2_CONNPROP: u32 = 5;

//= V2-005
const RESPONSE: u32 = 0x1;
const MORE: u32 = 0x2;

/// The length of the prefix that starts every version 2 header.
pub const PREFIX_LEN: usize = 20;

/// The length of a message that grants credits and nothing else.
pub const GRANT_LEN: usize = 36;

/// The length of the longest error message.
pub const MAX_ERROR_LEN: usize = 32;

/// A received version 2 message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The flags. If the flags are wrong, `response` still decides about the reaction.
    pub flags: Flags,
    /// The rest of the header, or the error in it.
    pub body: Result<Body<'a>, BadHeader>,
}

/// Returns whether a version 2 message is of a type that conveys RPC messages.
pub const fn is_rpc(fixed: &FixedWords) -> bool {
    matches!(fixed.htype, RDMA2_MSG | RDMA2_NOMSG)
}

/// Decodes a version 2 message from behind the fixed words.
///
/// `settled` is true if both sides speak version 2, so that an error is not expected in the layout of
/// version 1.
///
/// Returns `None` for a message that is too short to be answered. The words are checked in the
/// order of the wire, so that the first wrong word names the error. The credit word counts in all messages
/// but errors, also if the rest is bad.
#[inline(always)]
//= V2-003, V2-005, V2-007
//= V2-009, V2-012, V2-034
//= V2-035, V2-167, D-02
//= D-03, D-46
pub fn decode<'a>(
    fixed: &FixedWords,
    mut reader: Reader<'a>,
    settled: bool,
) -> Option<Message<'a>> {
    let after_fixed = reader.rest();
    let word = reader.u32().ok()?;
    let flags = Flags {
        response: word & RESPONSE != 0,
        more: word & MORE != 0,
    };
    let unknown = word & !(RESPONSE | MORE) != 0;
    let body = match fixed.htype {
        RDMA2_ERROR => return Some(decode_error(after_fixed, settled)),
        RDMA2_MSG if !unknown => decode_rpc(Kind::Msg, fixed.xid, flags, &mut reader),
        RDMA2_NOMSG if !unknown && !flags.more => {
            decode_rpc(Kind::Nomsg, fixed.xid, flags, &mut reader)
        }
        RDMA2_CONNPROP if !unknown => Ok(Body::Properties(reader.rest())),
        RDMA2_MSG | RDMA2_NOMSG | RDMA2_CONNPROP => Err(BadHeader::Flags),
        _ => Err(BadHeader::Type),
    };
    Some(Message { flags, body })
}

/// Decodes, from behind the fixed words, a message that conveys a whole RPC message of the kind `only`
/// without chunks, as most messages do. Returns `None` for any other message.
#[inline(always)]
//= V2-005, V2-007, V2-009
//= V2-012, V2-014, V2-026
pub fn decode_plain<'a>(
    fixed: &FixedWords,
    mut reader: Reader<'a>,
    only: MsgType,
) -> Option<Conveyed<'a>> {
    let (flags, msg_type) = match only {
        MsgType::Call => (0, 0),
        MsgType::Reply => (RESPONSE, 1),
    };
    let [f0, f1, f2, f3, handle @ ..] = *reader.array::<8>().ok()?;
    if fixed.htype != RDMA2_MSG || u32::from_be_bytes([f0, f1, f2, f3]) != flags {
        return None;
    }
    let inv_handle = Handle(u32::from_be_bytes(handle));
    if *reader.array().ok()? != [0; 12] {
        return None;
    }
    let payload = reader.rest();
    let start = (u64::from(fixed.xid.0) << 32) | msg_type;
    (reader.u64().ok()? == start).then_some(Conveyed {
        kind: Kind::Msg,
        inv_handle,
        chunks: ChunkLists::EMPTY,
        payload,
    })
}

/// Decodes, from behind the flags, a message of a type that conveys RPC messages.
///
/// A grant is identified by its XID and its empty lists; its other fields are ignored. An MSG without
/// a Payload stream is good only as the last part of a sequence, which its caller knows.
#[inline(always)]
//= V2-012, V2-014, V2-015
//= V2-020, V2-036, D-16
//= D-17, D-19, D-30
//= D-31
fn decode_rpc<'a>(
    kind: Kind,
    xid: Xid,
    flags: Flags,
    reader: &mut Reader<'a>,
) -> Result<Body<'a>, BadHeader> {
    let inv_handle = Handle(reader.u32()?);
    let chunks = ChunkLists::decode(reader)?;
    let payload = reader.rest();
    let payload = match kind {
        Kind::Msg if flags.more && !chunks.is_empty() => return Err(BadHeader::ChunksTooEarly),
        Kind::Msg => payload,
        Kind::Nomsg if !is_pad(payload) => return Err(BadHeader::Trailing),
        Kind::Nomsg if !chunks.is_empty() => &[],
        Kind::Nomsg if xid == Xid(0) => return Ok(Body::Grant),
        Kind::Nomsg => return Err(BadHeader::NoPayload),
    };
    Ok(Body::Conveyed(Conveyed {
        kind,
        inv_handle,
        chunks,
        payload,
    }))
}

/// Reads an error message in either layout.
///
/// A peer that knows only version 1 answers in the version 1 layout, which has no flags, with a
/// copy of our version. Its 28 bytes are told from the version 2 errors of 28 bytes by the
/// word that is a version there and an error code here. Once the version is settled, only a word
/// that can be no code of that length stands for a version. The ERR_CHUNK of version 1 is shorter than
/// any error of version 2. Its sender has not looked at the version, so it speaks version 1 alone.
#[cold]
//= V2-016, V2-018, V2-066
//= V2-144, V2-164, V2-166
//= D-02, D-05, D-31
fn decode_error(after_fixed: &[u8], settled: bool) -> Message<'_> {
    let words = after_fixed.first_chunk::<12>();
    let response = Flags {
        response: true,
        more: false,
    };
    if let (12, Some([0, 0, 0, 1, code @ .., h0, h1, h2, h3])) = (after_fixed.len(), words) {
        let low = u32::from_be_bytes(*code);
        // As a code, 1 would be ERR_VERS cut short.
        if low == 1 || !settled && !(5..=9).contains(&low) {
            let high = u32::from_be_bytes([*h0, *h1, *h2, *h3]);
            return Message {
                flags: response,
                body: Ok(Body::Error(Some(ErrorReport::Version { low, high }))),
            };
        }
    }
    if !settled && *after_fixed == v1::ERR_CHUNK.to_be_bytes() {
        return Message {
            flags: response,
            body: Ok(Body::Error(Some(ErrorReport::VERSION_1))),
        };
    }
    let mut reader = Reader::new(after_fixed);
    let flags = reader.u32().unwrap_or_default();
    let report = decode_report(&mut reader).ok();
    Message {
        // Other flags mean nothing here.
        flags: Flags {
            response: flags & RESPONSE != 0,
            more: false,
        },
        body: Ok(Body::Error(report)),
    }
}

fn decode_report(reader: &mut Reader<'_>) -> Result<ErrorReport, BadHeader> {
    Ok(match reader.u32()? {
        1 => ErrorReport::Version {
            low: reader.u32()?,
            high: reader.u32()?,
        },
        2 => ErrorReport::BadXdr,
        3 => ErrorReport::InvalHtype,
        4 => ErrorReport::InvalFlag,
        5 => ErrorReport::ReadChunks {
            max_chunks: reader.u32()?,
        },
        6 => ErrorReport::WriteChunks {
            max_chunks: reader.u32()?,
        },
        7 => ErrorReport::Segments {
            max_segments: reader.u32()?,
        },
        8 => ErrorReport::WriteResource {
            chunk_index: reader.u32()?,
            length_needed: reader.u32()?,
        },
        9 => ErrorReport::ReplyResource {
            length_needed: reader.u32()?,
        },
        10 => ErrorReport::System,
        code => ErrorReport::Unknown(code),
    })
}

#[inline(always)]
//= V2-002, V2-003, V2-006
fn prefix(
    out: &mut Writer<'_>,
    xid: Xid,
    version: u32,
    grant: Grant,
    htype: u32,
    flags: Flags,
) -> Result<(), NoRoom> {
    v1::fixed_words(out, xid, version, grant.to_word(), htype)?;
    let mut word = 0;
    if flags.response {
        word |= RESPONSE;
    }
    if flags.more {
        word |= MORE;
    }
    out.u32(word)
}

/// Writes the header of a message that conveys an RPC message or a part of one, and returns its
/// length.
///
/// A Reply names no handle to invalidate, and neither does a message that is to be continued.
#[inline]
//= V2-001, V2-005, V2-006
//= V2-007, V2-012, V2-014
//= V2-021, V2-025, V2-026
//= V2-035, D-22
pub fn encode<C: Chunks + ?Sized>(
    out: &mut [u8],
    message: &Outgoing,
    grant: Grant,
    chunks: &C,
) -> Result<usize, NoRoom> {
    let mut out = Writer::new(out);
    let htype = match message.kind {
        Kind::Msg => RDMA2_MSG,
        Kind::Nomsg => RDMA2_NOMSG,
    };
    let flags = Flags {
        response: message.direction == MsgType::Reply,
        more: message.more && message.kind == Kind::Msg,
    };
    let version = Version::V2.number();
    prefix(&mut out, message.xid, version, grant, htype, flags)?;
    let inv_handle = if flags.response || flags.more {
        Handle::NONE
    } else {
        message.inv_handle
    };
    out.u32(inv_handle.0)?;
    if flags.more {
        chunk::NoChunks.encode(&mut out)?;
    } else {
        chunks.encode(&mut out)?;
    }
    Ok(out.len())
}

/// Writes a message that only grants credits, and returns its length.
//= V2-015, V2-028, V2-051
//= D-19
pub fn encode_grant(out: &mut [u8], grant: Grant) -> Result<usize, NoRoom> {
    let message = Outgoing {
        xid: Xid(0),
        direction: MsgType::Call,
        kind: Kind::Nomsg,
        more: false,
        inv_handle: Handle::NONE,
    };
    encode(out, &message, grant, &chunk::NoChunks)
}

/// Writes a CONNPROP message around `properties`, and returns its length.
///
/// It is an announcement: its XID comes from the sender's own space.
//= V2-019, V2-027, V2-028
//= V2-136, V2-139, D-19
pub fn encode_properties(
    out: &mut [u8],
    xid: Xid,
    grant: Grant,
    properties: &[u8],
    more: bool,
) -> Result<usize, NoRoom> {
    let mut out = Writer::new(out);
    let flags = Flags {
        response: false,
        more,
    };
    let version = Version::V2.number();
    prefix(&mut out, xid, version, grant, RDMA2_CONNPROP, flags)?;
    out.bytes(properties)?;
    Ok(out.len())
}

/// Writes the error message that answers `request`, and returns its length.
///
/// ERR_VERS goes out in the version 1 layout, which every peer can read. The receiver of the
/// others ignores the credit word, so nothing is really granted here.
//= V2-016, V2-029, V2-142
//= V2-164, D-02, D-07
pub fn encode_error(
    out: &mut [u8],
    request: &FixedWords,
    grant: Grant,
    report: ErrorReport,
) -> Result<usize, NoRoom> {
    if matches!(report, ErrorReport::Version { .. }) {
        return v1::encode_error(out, request, grant.to_word(), report);
    }
    let mut out = Writer::new(out);
    let flags = Flags {
        response: true,
        more: false,
    };
    let FixedWords { xid, version, .. } = *request;
    prefix(&mut out, xid, version, grant, RDMA2_ERROR, flags)?;
    out.u32(report.code())?;
    match report {
        ErrorReport::ReadChunks { max_chunks } => out.u32(max_chunks)?,
        // A Responder that takes none says so with REPLY_RESOURCE.
        ErrorReport::WriteChunks { max_chunks } => out.u32(max_chunks.max(1))?,
        ErrorReport::Segments { max_segments } => out.u32(max_segments)?,
        ErrorReport::WriteResource {
            chunk_index,
            length_needed,
        } => {
            out.u32(chunk_index)?;
            out.u32(length_needed)?;
        }
        ErrorReport::ReplyResource { length_needed } => out.u32(length_needed)?,
        ErrorReport::Version { .. }
        | ErrorReport::BadXdr
        | ErrorReport::InvalHtype
        | ErrorReport::InvalFlag
        | ErrorReport::System
        | ErrorReport::Unknown(_) => {}
    }
    Ok(out.len())
}
