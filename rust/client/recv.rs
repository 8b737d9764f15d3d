// SPDX-License-Identifier: GPL-2.0

//! What arrives: from the Receive completion to the RPC's completion.
//!
//! The order is what keeps memory safe: the Reply is checked against what was offered, then the
//! peer's access to the RPC's memory ends (by the peer itself, or by a fence), and only then is
//! the Reply copied and the RPC completed.

use super::call::{
    Phase,
    State, //
};
use super::link::{
    Link,
    Pinned,
    Waiter, //
};
use crate::proto::credit;
use crate::proto::error::BadHeader;
use crate::proto::header::{
    Body,
    FixedWords, //
};
use crate::proto::reply::{
    self,
    Arrival,
    Payload,
    Verdict, //
};
use crate::proto::xdr::padded_len;
use crate::rdma::cq::Completions;
use crate::rdma::local_inv::LocalInvBox;
use crate::rdma::mr::{
    MrList,
    Registered, //
};
use crate::rdma::proof::{
    Invalidated,
    Unexposed, //
};
use crate::rdma::recv::Received;
use crate::rdma::Handler;
use crate::sunrpc::backchannel::Refused;
use kernel::prelude::*;

/// A checked Reply and the RPC it belongs to.
pub(crate) struct Pending {
    rqst: Pinned,
    message: Received<Link>,
    form: Form,
    credits: u32,
}

/// Where a checked Reply lies.
#[derive(Clone, Copy)]
enum Form {
    /// In the last `len` octets of the message; `written` octets of results in the Write chunk.
    Inline { len: usize, written: u32 },
    /// In the Reply chunk.
    ReplyChunk { len: u32 },
    /// It is an error, or not what was asked for.
    Failed,
}

/// Handles a message.
pub(crate) fn handle(link: &Link, cx: &mut Completions<'_, Link>, mut message: Received<Link>) {
    link.xprt.peer_is_alive();
    let by_peer = message.take_invalidated();
    match reply::receive(message.bytes()) {
        Arrival::Reply { fixed, body } => {
            let Some(rqst) = link.xprt.lookup(fixed.xid.0) else {
                // The core has counted it.
                cx.repost(message);
                return;
            };
            let checked = {
                let mut state = rqst.slot().state.lock();
                check(link, &mut state, &fixed, body, by_peer)
            };
            match checked {
                Checked::Reply {
                    form,
                    exposed,
                    fence,
                } => {
                    let credits = credit::v1_limit(fixed.credit, link.max_requests());
                    let pending = Pending {
                        rqst,
                        message,
                        form,
                        credits,
                    };
                    pending.fence(link, cx, exposed, fence);
                }
                Checked::Drop => {
                    link.stats.bad_reply.add(1);
                    cx.repost(message);
                }
                Checked::Disconnect => {
                    link.stats.bad_reply.add(1);
                    link.disconnect();
                }
            }
        }
        Arrival::Call { fixed, payload } => {
            match link.backchannel.receive(&link.xprt, fixed.xid.0, payload) {
                Ok(()) => cx.repost(message),
                Err(Refused::NoService) => {
                    link.stats.bad_reply.add(1);
                    cx.repost(message);
                }
                Err(Refused::Excess) => link.disconnect(),
            }
        }
        Arrival::OtherVersion(_) | Arrival::Runt => {
            link.stats.bad_reply.add(1);
            cx.repost(message);
        }
    }
}

/// What to do with a message for an RPC.
enum Checked {
    /// It is the RPC's Reply: fence `exposed`, then complete the RPC.
    Reply {
        form: Form,
        exposed: Option<MrList<Registered>>,
        fence: Option<LocalInvBox<Link>>,
    },
    /// It is nothing; the RPC goes on waiting.
    Drop,
    /// The peer cannot be trusted with memory.
    Disconnect,
}

fn check(
    link: &Link,
    state: &mut State,
    fixed: &FixedWords,
    body: Result<Body<'_>, BadHeader>,
    invalidated: Option<Invalidated>,
) -> Checked {
    if state.phase != Phase::Sent {
        return Checked::Drop;
    }
    let form = match reply::check(fixed, body, &state.offered()) {
        Verdict::Complete(reply) => match reply.payload {
            Payload::Inline(payload) => Form::Inline {
                len: payload.len(),
                written: reply.written,
            },
            Payload::ReplyChunk { len } => Form::ReplyChunk { len },
        },
        Verdict::Fail(_) => Form::Failed,
        Verdict::Drop => return Checked::Drop,
    };
    if let Some(by_peer) = invalidated {
        // A peer that invalidates memory of another RPC, or none of ours, breaks that RPC.
        match state
            .exposed
            .as_mut()
            .and_then(|mrs| mrs.take_invalidated(by_peer))
        {
            Some(mr) => link.put_mr(mr),
            None => return Checked::Disconnect,
        }
    }
    state.phase = Phase::Replied;
    state.conn = None;
    Checked::Reply {
        form,
        exposed: state.exposed.take(),
        fence: state.fence.take(),
    }
}

impl Pending {
    /// Ends the peer's access to the RPC's memory, then finishes.
    fn fence(
        self,
        link: &Link,
        cx: &mut Completions<'_, Link>,
        exposed: Option<MrList<Registered>>,
        fence: Option<LocalInvBox<Link>>,
    ) {
        // What was sent has a list, be it empty.
        let Some(exposed) = exposed else { return };
        let exposed = match exposed.unexposed() {
            Ok(proof) => {
                self.finish(link, cx, fence, proof);
                return;
            }
            Err(exposed) => exposed,
        };
        link.stats.local_inv_needed.add(1);
        // A request that exposes memory has its fence (client::send).
        let Some(fence) = fence else { return };
        if let Err(fence) = cx.qp().post_local_inv(fence, exposed, Waiter::Reply(self)) {
            link.invalidation_failed(fence);
        }
    }

    /// The RPC's memory is its own again: completes it.
    pub(crate) fn finish(
        self,
        link: &Link,
        cx: &mut Completions<'_, Link>,
        fence: Option<LocalInvBox<Link>>,
        _proof: Unexposed,
    ) {
        let Self {
            rqst,
            message,
            form,
            credits,
        } = self;
        if let Some(fence) = fence {
            rqst.slot().state.lock().fence = Some(fence);
        }
        let copied = place(link, &rqst, &message, form);
        // Receives for all credits are posted, so the window may grow before the wake-up.
        link.xprt.set_credits(credits);
        match copied {
            Ok(len) => rqst.complete(len),
            Err(error) => {
                link.stats.bad_reply.add(1);
                rqst.fail(error);
            }
        }
        cx.repost(message);
    }

    /// The connection ended before the RPC could be completed; it goes on waiting.
    pub(crate) fn abandon(self, fence: LocalInvBox<Link>) {
        self.rqst.slot().state.lock().fence = Some(fence);
    }
}

/// Puts the Reply where the RPC's decoder expects it, and returns its length.
///
/// The decoder refuses a length that is no multiple of four. Some servers leave XDR pad out of an
/// inline Reply, or pad it wrongly; what the decoder looks at is there all the same.
fn place(link: &Link, rqst: &Pinned, message: &Received<Link>, form: Form) -> Result<usize> {
    let buf = rqst.reply();
    match form {
        Form::Inline { len, written } => {
            let bytes = message.bytes();
            let payload = bytes
                .len()
                .checked_sub(len)
                .and_then(|start| bytes.get(start..))
                .ok_or(EIO)?;
            let head = buf.head_len() as usize;
            if written == 0 {
                buf.write(0, payload).map_err(|_| EIO)?;
                let in_pages = len.saturating_sub(head).min(buf.page_len() as usize);
                link.stats.fixup_copy.add(in_pages as u64);
                return Ok(padded_len(len as u32) as usize);
            }
            // The results are in the page list already; what is inline goes around them.
            let (before, after) = payload.split_at_checked(head).unwrap_or((payload, &[]));
            buf.write(0, before).map_err(|_| EIO)?;
            let tail = buf.head_len() + buf.page_len();
            buf.write(tail, after).map_err(|_| EIO)?;
            rqst.trim_reply_head(len);
            link.stats.total_rdma_reply.add(u64::from(written));
            Ok((padded_len(len as u32) + padded_len(written)) as usize)
        }
        Form::ReplyChunk { len } => {
            link.stats.total_rdma_reply.add(u64::from(len));
            Ok(len as usize)
        }
        Form::Failed => Err(EIO),
    }
}
