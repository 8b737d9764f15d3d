// SPDX-License-Identifier: GPL-2.0

//! The message of a Reply, whether the Reply is sent at once or delayed.

use crate::{
    endpoint::Terms,
    proto::{
        responder::{
            ReplyLimits,
            Response, //
        },
        wire::{
            header::Outgoing,
            types::{
                Handle,
                MsgType,
                Version,
                Xid, //
            },
        },
    },
};
use core::ops::Range;
use kernel::prelude::*;

/// Returns the limits of a Reply of `version`.
#[inline(always)]
pub(super) fn limits(version: Version, terms: &Terms) -> ReplyLimits {
    ReplyLimits {
        version,
        inline_send: terms.inline_send,
        continued: terms.continued,
        reply_chunk: true,
    }
}

/// Returns the message that conveys a Reply, or the last one of several.
#[inline(always)]
pub(super) fn outgoing(xid: Xid, response: &Response<'_>) -> Outgoing {
    Outgoing {
        xid,
        direction: MsgType::Reply,
        kind: response.kind(),
        more: false,
        inv_handle: Handle::NONE,
    }
}

/// Copies pieces of a message with `read`, and returns their length in bytes.
pub(super) fn copy(
    read: impl Fn(u32, &mut [u8]) -> Result,
    pieces: impl Iterator<Item = Range<u32>>,
    out: &mut [u8],
) -> Option<usize> {
    let mut at = 0;
    for piece in pieces {
        let end = at + (piece.end - piece.start) as usize;
        read(piece.start, out.get_mut(at..end)?).ok()?;
        at = end;
    }
    Some(at)
}
