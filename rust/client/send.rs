// SPDX-License-Identifier: GPL-2.0

//! Sending a Call: plan, register, write, post.

use super::call::{
    Layout,
    Offered,
    Phase, //
};
use super::connection::Connection;
use super::link::Link;
use super::transport::RdmaRqst;
use crate::proto::chunk::{
    Chunks,
    NoChunks, //
};
use crate::proto::header::Kind;
use crate::proto::plan::{
    plan,
    Buf,
    CallShape,
    Conveyance,
    Limits,
    Part,
    PartName,
    Piece,
    Plan, //
};
use crate::proto::types::Xid;
use crate::proto::v1;
use crate::rdma::dma::Direction;
use crate::rdma::fence::Fence;
use crate::rdma::mr::{
    Mapped,
    MrList,
    Region, //
};
use crate::rdma::send::SendWqe;
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
    let layout = exposure.layout;
    post(conn, rqst, exposure, buffer, len).inspect(|()| count(link, &call, &plan, layout))
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
            let (_, posted) = conn.qp().send(MrList::new(), buffer, len);
            posted.map_err(|_| errno::not_connected())
        }
        Err(error) => {
            link.put_send(buffer);
            Err(error)
        }
    }
}

/// Takes a Send buffer, or has the sender woken when there is one.
fn take_buffer(link: &Link) -> Option<KBox<SendWqe<Link>>> {
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
            layout: Layout::NONE,
        }
    }

    /// Maps what the plan names, in the order of the header.
    fn register(&mut self, call: &CallShape<'_>, plan: &Plan) -> Result {
        let limits = self.conn.limits()?;
        for (position, range) in plan.read_chunks(call) {
            self.layout.position = position;
            self.layout.reads += self.map_range(limits, Direction::ToDevice, &call.send, range)?;
        }
        for range in plan.write_chunks(call) {
            self.layout.writes +=
                self.map_range(limits, Direction::FromDevice, &call.receive, range)?;
        }
        if plan.reply_chunk {
            for range in plan.reply_payload(call) {
                self.layout.replies +=
                    self.map_range(limits, Direction::FromDevice, &call.receive, range)?;
            }
        }
        Ok(())
    }

    /// Maps a range of a buffer and returns how many Segments it takes.
    fn map_range(
        &mut self,
        limits: &Limits,
        direction: Direction,
        measures: &Buf,
        range: Range<u32>,
    ) -> Result<usize> {
        let buf = match direction {
            Direction::ToDevice => self.rqst.call(),
            Direction::FromDevice => self.rqst.reply(),
        };
        let mut count = 0;
        for piece in limits.cut(measures, range) {
            self.map(&buf, piece, direction)?;
            count += 1;
        }
        Ok(count)
    }

    fn map(&mut self, buf: &XdrBuf<'_>, piece: Piece, direction: Direction) -> Result {
        let Range { start, end } = piece.range;
        let mr = self.conn.take_mr()?;
        let xid = self.rqst.xid();
        let mr = match piece.part {
            PartName::Head => mr.map(core::iter::once(buf.head_span(start, end)), direction, xid),
            PartName::Pages => mr.map(buf.page_spans(start, end), direction, xid),
            PartName::Tail => mr.map(core::iter::once(buf.tail_span(start, end)), direction, xid),
        }
        .map_err(|(mr, error)| {
            self.conn.link().put_mr(mr);
            error
        })?;
        self.mapped.push_last(mr);
        Ok(())
    }

    /// What the peer will be told.
    fn offered(&self) -> Offered<impl Iterator<Item = Region> + Clone + '_> {
        Offered {
            layout: self.layout,
            regions: self.mapped.regions(),
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
    buffer: KBox<SendWqe<Link>>,
    len: usize,
) -> Result {
    let link = conn.link();
    let mut state = rqst.slot().state.lock();
    if state.fence.is_none() && !exposure.mapped.is_empty() {
        // The first time in this slot, or a task gave up its RPC here.
        drop(state);
        let fence = match Fence::new() {
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
    let (exposed, posted) = conn.qp().send(exposure.mapped, buffer, len);
    state.exposed = exposed;
    state.conn = exposes.then(|| conn.clone());
    state.phase = Phase::Sent;
    posted.map_err(|_| errno::not_connected())
}

/// Counts what was sent.
fn count(link: &Link, call: &CallShape<'_>, plan: &Plan, layout: Layout) {
    let stats = &link.stats;
    if layout.reads != 0 {
        let moved: u32 = plan.read_chunks(call).map(|(_, r)| r.end - r.start).sum();
        stats.read_segments.add(layout.reads as u64);
        stats.total_rdma_request.add(u64::from(moved));
    }
    if layout.writes != 0 {
        stats.write_segments.add(layout.writes as u64);
    }
    if layout.replies != 0 {
        stats.reply_segments.add(layout.replies as u64);
    }
    if plan.conveyance == Conveyance::Long {
        stats.nomsg_call.add(1);
    } else {
        let inline: u32 = plan.payload(call).map(|r| r.end - r.start).sum();
        let pulled_up = inline.saturating_sub(call.send.head.len);
        if pulled_up != 0 {
            stats.pullup_copy.add(u64::from(pulled_up));
        }
    }
}
