// SPDX-License-Identifier: GPL-2.0

//! Sending a Call: plan, register, write, post.

use super::call::{
    segment,
    Phase, //
};
use super::connection::Connection;
use super::link::Link;
use super::transport::RdmaRqst;
use crate::proto::chunk::{
    Chunks,
    Laid,
    Layout,
    NoChunks, //
};
use crate::proto::header::Kind;
use crate::proto::plan::{
    plan,
    Buf,
    CallShape,
    ChunkRole,
    Conveyance,
    Part,
    PartName,
    Plan,
    Registration, //
};
use crate::proto::types::{
    Segment,
    Xid, //
};
use crate::proto::v1;
use crate::rdma::dma::Direction;
use crate::rdma::local_inv::LocalInv;
use crate::rdma::mr::{
    Mapped,
    MrList, //
};
use crate::rdma::send::{
    SendBox,
    SendWqe, //
};
use crate::sunrpc::backchannel::SLOTS;
use crate::sunrpc::XdrBuf;
use crate::support::errno;
use core::ops::Range;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Sends a request.
///
/// # Errors
///
/// As for [`crate::sunrpc::Transport::send`].
pub(crate) fn send(conn: &Arc<Connection>, rqst: &RdmaRqst) -> Result {
    let link = conn.link();
    rqst.reply().fill_sparse_pages()?;

    let shape = Shape::of(rqst);
    let call = shape.call();
    let plan = plan(&call, conn.limits()?).map_err(|error| {
        link.stats.failed_marshal.add(1);
        pr_debug!("a request fits no message: {error:?}\n");
        errno::message_size()
    })?;

    let Some(mut buffer) = take_buffer(link) else {
        return Err(EAGAIN);
    };
    let mut exposure = Exposure::new(conn, rqst);
    let written = exposure
        .register(&call, &plan)
        .and_then(|()| write(link, rqst, &call, &plan, &exposure.offered(), &mut buffer));
    let len = match written {
        Ok(len) => len,
        Err(error) => {
            link.stats.failed_marshal.add(1);
            link.put_send(buffer);
            exposure.cancel();
            return Err(error);
        }
    };
    post(conn, rqst, exposure, buffer, len).inspect(|()| count(link, &call, &plan))
}

/// Sends the Reply to a Call of the server: always in one message, for the server was told how
/// long it may be.
///
/// # Errors
///
/// As for [`crate::sunrpc::Transport::send_reply`].
//= V1-131, V1-129
pub(crate) fn send_reply(conn: &Connection, xid: u32, reply: &XdrBuf<'_>) -> Result {
    let link = conn.link();
    let limits = conn.limits()?;
    let mut buffer = take_buffer(link).ok_or(EAGAIN)?;
    let written = (|| {
        let out = buffer.bytes_mut();
        let header = v1::encode(out, Xid(xid), SLOTS, Kind::Msg, &NoChunks)
            .map_err(|_| errno::message_size())?;
        let len = header + reply.len() as usize;
        if len > limits.inline_send as usize {
            return Err(errno::message_size());
        }
        let to = out.get_mut(header..len).ok_or_else(errno::message_size)?;
        reply.read(0, to)?;
        Ok(len)
    })();
    match written {
        Ok(len) => {
            let (_, posted) = link.post(conn.qp(), MrList::new(), buffer, len);
            posted.map_err(|_| errno::not_connected())
        }
        Err(error) => {
            link.put_send(buffer);
            Err(error)
        }
    }
}

/// Takes a Send buffer, or has the sender woken when there is one.
fn take_buffer(link: &Link) -> Option<SendBox<Link>> {
    if let Some(buffer) = link.take_send() {
        return Some(buffer);
    }
    link.stats.empty_sendctx_q.add(1);
    link.xprt.wait_for_buffer_space();
    // One that came back before the core knew that we wait has woken nobody: look again.
    let buffer = link.take_send()?;
    link.xprt.write_space();
    Some(buffer)
}

/// The measures of a request.
struct Shape {
    send: Buf,
    receive: Buf,
    argument: [crate::proto::plan::Item; 1],
    has_argument: bool,
    result: [crate::proto::plan::Item; 1],
    has_result: bool,
    protected: bool,
}

impl Shape {
    fn of(rqst: &RdmaRqst) -> Self {
        let (call, reply) = (rqst.call(), rqst.reply());
        let (send, receive) = (measure(&call), measure(&reply));
        Self {
            argument: [send.page_item()],
            has_argument: call.is_write_payload(),
            result: [receive.page_item()],
            has_result: reply.is_read_payload(),
            protected: rqst.is_protected(),
            send,
            receive,
        }
    }

    fn call(&self) -> CallShape<'_> {
        CallShape {
            send: self.send,
            arguments: if self.has_argument {
                &self.argument
            } else {
                &[]
            },
            receive: self.receive,
            results: if self.has_result { &self.result } else { &[] },
            protected: self.protected,
        }
    }
}

fn measure(buf: &XdrBuf<'_>) -> Buf {
    Buf {
        head: Part {
            len: buf.head_len(),
            page_offset: buf.head_offset(),
        },
        pages: Part {
            len: buf.page_len(),
            page_offset: buf.page_offset(),
        },
        tail: Part {
            len: buf.tail_len(),
            page_offset: buf.tail_offset(),
        },
    }
}

/// The memory of a request that will be exposed, before the peer is told of it.
struct Exposure<'a> {
    conn: &'a Connection,
    rqst: &'a RdmaRqst,
    mapped: MrList<Mapped>,
    layout: Layout,
}

impl<'a> Exposure<'a> {
    fn new(conn: &'a Connection, rqst: &'a RdmaRqst) -> Self {
        Self {
            conn,
            rqst,
            mapped: MrList::new(),
            layout: Layout::default(),
        }
    }

    /// Maps what the plan names, in the order of the header.
    fn register(&mut self, call: &CallShape<'_>, plan: &Plan) -> Result {
        let limits = self.conn.limits()?;
        if plan.segments() == 0 {
            return Ok(());
        }
        self.layout = plan.layout(call);
        for registration in plan.registrations(call, limits) {
            self.map(registration)?;
        }
        Ok(())
    }

    fn map(&mut self, registration: Registration) -> Result {
        let (buf, direction) = match registration.chunk {
            ChunkRole::Read(_) => (self.rqst.call(), Direction::ToDevice),
            ChunkRole::Write(_) | ChunkRole::Reply => (self.rqst.reply(), Direction::FromDevice),
        };
        let Range { start, end } = registration.range;
        let xid = self.rqst.xid();
        let span = match registration.part {
            PartName::Head => buf.head_span(start, end),
            PartName::Pages => buf.page_span(start, end),
            PartName::Tail => buf.tail_span(start, end),
        }?;
        let mr = self.conn.take_mr()?;
        let mr = mr.map(span, direction, xid).map_err(|(mr, error)| {
            self.conn.link().put_mr(mr);
            error
        })?;
        self.mapped.push_last(mr);
        Ok(())
    }

    /// What the peer will be told.
    fn offered(&self) -> Laid<impl Iterator<Item = Segment> + Clone + '_> {
        Laid {
            layout: self.layout,
            segments: self.mapped.regions().map(segment),
        }
    }

    /// The request is not sent.
    fn cancel(self) {
        self.conn.link().put_mrs(self.mapped.unmap());
    }
}

/// Writes the message into the Send buffer and returns its length.
fn write(
    link: &Link,
    rqst: &RdmaRqst,
    call: &CallShape<'_>,
    plan: &Plan,
    offered: &impl Chunks,
    buffer: &mut SendWqe<Link>,
) -> Result<usize> {
    let out = buffer.bytes_mut();
    let mut len = v1::encode(
        out,
        Xid(rqst.xid()),
        link.max_requests(),
        plan.kind(),
        offered,
    )
    .map_err(|_| errno::message_size())?;
    if plan.conveyance == Conveyance::Long {
        return Ok(len);
    }
    let buf = rqst.call();
    for range in plan.payload(call) {
        let end = len + (range.end - range.start) as usize;
        let to = out.get_mut(len..end).ok_or_else(errno::message_size)?;
        buf.read(range.start, to)?;
        len = end;
    }
    Ok(len)
}

/// Hands registrations and message to the device.
fn post(
    conn: &Arc<Connection>,
    rqst: &RdmaRqst,
    exposure: Exposure<'_>,
    buffer: SendBox<Link>,
    len: usize,
) -> Result {
    let link = conn.link();
    let mut state = rqst.slot().state.lock();
    if state.fence.is_none() && !exposure.mapped.is_empty() {
        // The first time in this slot, or a task gave up its RPC here.
        drop(state);
        let fence = match LocalInv::new() {
            Ok(fence) => fence,
            Err(_) => {
                link.put_send(buffer);
                exposure.cancel();
                return Err(errno::no_buffers());
            }
        };
        state = rqst.slot().state.lock();
        state.fence = Some(fence);
    }
    // The Reply may come before the post returns; its handler waits for the lock.
    let exposes = !exposure.mapped.is_empty();
    state.layout = exposure.layout;
    let (exposed, posted) = link.post(conn.qp(), exposure.mapped, buffer, len);
    state.exposed = Some(exposed);
    state.conn = exposes.then(|| conn.clone());
    state.phase = Phase::Sent;
    posted.map_err(|_| errno::not_connected())
}

/// Counts what was sent.
fn count(link: &Link, call: &CallShape<'_>, plan: &Plan) {
    let stats = &link.stats;
    if plan.read_segments != 0 {
        stats.read_segments.add(u64::from(plan.read_segments));
        stats.total_rdma_request.add(u64::from(plan.read_bytes));
    }
    if plan.write_segments != 0 {
        stats.write_segments.add(u64::from(plan.write_segments));
    }
    if plan.reply_segments != 0 {
        stats.reply_segments.add(u64::from(plan.reply_segments));
    }
    if plan.conveyance == Conveyance::Long {
        stats.nomsg_call.add(1);
    }
    let pulled_up = plan.pulled_up(call);
    if pulled_up != 0 {
        stats.pullup_copy.add(u64::from(pulled_up));
    }
}
