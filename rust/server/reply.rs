// SPDX-License-Identifier: GPL-2.0

//! A Reply, from a thread of the service to its message.
//!
//! The inline part is copied, at most one inline threshold. The rest is written into the client's memory
//! from the pages that it lies in, which may be pages of the page cache.

use super::{
    connection::{
        Delayed,
        Open,
        ServerMessage, //
    },
    message::{
        copy,
        limits,
        outgoing, //
    },
    permit::{
        Blocked,
        SendPermit, //
    },
    settings, //
};
use crate::{
    endpoint::{
        work_id,
        EndReason,
        Terms, //
    },
    proto::{
        invalidate,
        responder::{
            protects,
            respond,
            Form,
            ParsedCall,
            ReplyShape,
            Response, //
        },
        wire::{
            chunk::ChunkLists,
            error::ErrorReport,
            header::Kind,
            types::{
                Handle,
                Segment,
                Version,
                Xid, //
            },
            xdr::padded_len,
        },
    },
    rdma::{
        rw::{
            is_final,
            Remote,
            Write, //
        },
        send::end_of_data,
    },
    sunrpc::{
        svc::rqst::SvcReply,
        xdr_buf::CallBuf, //
    },
    support::{
        errno,
        trace, //
    },
};
use core::{
    iter::once,
    ops::Range, //
};
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// The number of attempts of a Reply to get registrations, and the pause between. Registrations are
/// free again when the Sends of other Replies end. A peer that lets no Send end for 30 s loses its
/// connection.
const MOST_ATTEMPTS: u32 = 3000;
const PAUSE: Delta = Delta::from_millis(10);

/// The most bytes that are copied for an RDMA Write. More bytes are written from the pages that they lie in.
const MOST_COPIED: u32 = 1024;

/// An RDMA Write whose bytes are copied: memory of the client, and the range of the Reply for it.
type ShortWrite = (Segment, Range<u32>);

/// The reaction to a Reply that cannot be conveyed.
enum ReplyError {
    /// The connection has to be closed.
    Close(EndReason),
    /// The Call is refused with this error message.
    Refuse(ErrorReport),
}

impl Open<'_> {
    /// Sends a Reply, now or when the client takes it.
    ///
    /// # Errors
    ///
    /// The connection has to end.
    pub(super) fn send(&self, reply: &mut SvcReply<'_, ServerMessage>) -> Result<(), EndReason> {
        let Some(mut call) = reply.take_call() else {
            return Err(EndReason::NotPosted);
        };
        match call.note().kept.version() {
            Version::V1 => {
                // The first Receives of a connection are for either version.
                if call.capacity() > self.recv_len() {
                    call.shorten(self.endpoint().qp(), self.recv_len());
                }
                self.convey(reply, call, Version::V1, self.terms())
            }
            Version::V2 => self.convey_v2(reply, call),
        }
    }

    /// Calls [`Self::convey`] for version 2, whose terms may change.
    ///
    /// # Errors
    ///
    /// [`EndReason`]: the connection has to be closed.
    #[cold]
    #[inline(never)]
    fn convey_v2(
        &self,
        reply: &mut SvcReply<'_, ServerMessage>,
        call: ServerMessage,
    ) -> Result<(), EndReason> {
        let terms = self.terms_now().ok_or(EndReason::NotPosted)?;
        self.convey(reply, call, Version::V2, &terms)
    }

    /// Sends the Reply to `call`, in messages of `version`. It is compiled for each version, so that
    /// version 1 does not pay for the conditions of version 2.
    ///
    /// # Errors
    ///
    /// [`EndReason`]: the connection has to be closed.
    #[inline(always)]
    fn convey(
        &self,
        reply: &mut SvcReply<'_, ServerMessage>,
        call: ServerMessage,
        version: Version,
        terms: &Terms,
    ) -> Result<(), EndReason> {
        let Some((fixed, asked, _)) = call.note().kept.open(call.bytes()) else {
            return Err(EndReason::NotPosted);
        };
        let shape = ReplyShape {
            len: reply.message().map_or(0, |message| message.len()),
            results: call.note().results(),
            protected: protects(reply.flavor()),
        };
        //= V1-073, V1-074, V1-100
        //= V2-193, NFS-003, NFS-004
        //= NFS-008
        let response = match respond(&asked.chunks, &shape, &limits(version, terms)) {
            Ok(response) => response,
            Err(report) => return self.fail(call, ReplyError::Refuse(report)),
        };
        let (copied, write) = match self.prepare(reply, &response, terms) {
            Ok(writes) => writes,
            Err(error) => return self.fail(call, error),
        };
        let invalidate = to_invalidate(version, terms, &asked.chunks, call.bytes());
        let outgoing = outgoing(fixed.xid, &response);
        let last = 1 + work_requests(&write, &copied);
        let message = reply.message();
        let payload = |out: &mut [u8]| copy_payload(message, &write, &response, out);
        self.trace_reply(&call, outgoing.xid, &response, last, invalidate);
        let mut sending = match self.permit(response.form, last) {
            Ok(sending) => sending,
            Err(Blocked::Ended) => return Err(self.cancel(write, EndReason::NotPosted)),
            Err(Blocked::Waits) => {
                let later = (write, copied.is_some(), invalidate);
                return match self.wait(reply, &response, &shape, terms, later) {
                    Ok(delayed) => self.delay_reply(reply, call, delayed, version),
                    Err(error) => self.fail(call, error),
                };
            }
        };
        let wanted = self.end_call(&mut sending, &call, version);
        let composed = sending.compose(&outgoing, &response, payload).is_ok();
        if !composed || copy_data(&mut sending, message, copied.as_ref()).is_err() {
            drop(sending);
            return Err(self.cancel(write, EndReason::NotPosted));
        }
        if write.is_none() {
            reply.copied();
        }
        self.post(call, sending, write, invalidate)?;
        if let Some(calls) = wanted {
            self.grow(calls, version);
        }
        Ok(())
    }

    /// Returns the RDMA Write of a Reply whose bytes are copied, or prepares the RDMA Writes of a Reply that needs others.
    ///
    /// # Errors
    ///
    /// [`ReplyError`]: as for [`Self::write_if_any`].
    #[inline(always)]
    fn prepare(
        &self,
        reply: &mut SvcReply<'_, ServerMessage>,
        response: &Response<'_>,
        terms: &Terms,
    ) -> Result<(Option<ShortWrite>, Option<Write>), ReplyError> {
        let outside = response.outside();
        if outside == 0 && response.form == Form::Inline {
            return Ok((None, None));
        }
        if outside <= MOST_COPIED {
            if let Some(copied) = only_short_write(response, terms) {
                return Ok((Some(copied), None));
            }
        }
        Ok((None, self.write_if_any(reply, response)?))
    }

    /// Accounts the end of a Call. Returns the Calls for which Receives should be posted, if there should be more.
    #[inline(always)]
    //= V1-033, V1-035, V1-040
    fn end_call(
        &self,
        sending: &mut SendPermit<'_>,
        call: &ServerMessage,
        version: Version,
    ) -> Option<Range<u32>> {
        let state = sending.state();
        let wanted = state.update_grant(self.cid(), settings::max_requests());
        // Version 1 holds no Receives.
        let held = match version {
            Version::V1 => 0,
            Version::V2 => call.note().held,
        };
        state.end_call(held);
        wanted
    }

    /// Traces the Reply to `call`, with `work_requests` in all.
    #[inline(always)]
    fn trace_reply(
        &self,
        call: &ServerMessage,
        xid: Xid,
        response: &Response<'_>,
        work_requests: u32,
        invalidate: Option<Handle>,
    ) {
        trace::emit(|| reply_event(self.cid(), xid, response, work_requests, invalidate));
        trace::emit_each(|| {
            let write = |(work, sqecount)| trace::SvcrdmaPostWriteChunk { work, sqecount };
            self.writes_of(call, response, Form::Inline, work_requests)
                .map(write)
        });
        trace::emit_each(|| {
            let write = |(work, sqecount)| trace::SvcrdmaPostReplyChunk { work, sqecount };
            self.writes_of(call, response, Form::ReplyChunk, work_requests)
                .map(write)
        });
    }

    /// Returns the identification of the Reply to `call` and the number of its RDMA Writes for traces, if the Reply has
    /// RDMA Writes and this form.
    #[cold]
    fn writes_of(
        &self,
        call: &ServerMessage,
        response: &Response<'_>,
        form: Form,
        work_requests: u32,
    ) -> Option<(trace::WorkId, i32)> {
        let work = work_id(self.cid(), self.endpoint().qp(), call.number());
        // Without the Send.
        let sqecount = work_requests as i32 - 1;
        (response.form == form && sqecount != 0).then_some((work, sqecount))
    }

    /// Returns the permit to send a Reply with `work_requests` in all.
    ///
    /// # Errors
    ///
    /// [`Blocked`]: the Reply waits, or the connection ends.
    #[inline(always)]
    fn permit(&self, form: Form, work_requests: u32) -> Result<SendPermit<'_>, Blocked> {
        match form {
            // Others may have to wait until all of its messages are sent.
            Form::Continued => Err(Blocked::Waits),
            Form::Inline | Form::ReplyChunk => self.sending(work_requests),
        }
    }

    /// Posts a composed Reply. The buffer of its Call receives the next message.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    #[inline(always)]
    fn post(
        &self,
        mut call: ServerMessage,
        mut sending: SendPermit<'_>,
        write: Option<Write>,
        invalidate: Option<Handle>,
    ) -> Result<(), EndReason> {
        let pull = call.note_mut().pull.take();
        let left = pull.and_then(|pull| sending.state().role.idle.push(pull));
        sending.receive_again(call);
        let posted = sending.post(write, invalidate);
        drop(left);
        posted
    }

    /// Refuses the Call whose Reply cannot be conveyed.
    ///
    /// # Errors
    ///
    /// The connection has to be closed instead.
    #[cold]
    #[inline(never)]
    fn fail(&self, call: ServerMessage, error: ReplyError) -> Result<(), EndReason> {
        match error {
            ReplyError::Close(why) => Err(why),
            ReplyError::Refuse(report) => {
                self.refuse(call, report);
                Ok(())
            }
        }
    }

    /// Prepares the RDMA Writes of a Reply that needs some.
    ///
    /// # Errors
    ///
    /// [`ReplyError`]: the reaction to the error of [`Self::write`].
    #[inline(always)]
    fn write_if_any(
        &self,
        reply: &mut SvcReply<'_, ServerMessage>,
        response: &Response<'_>,
    ) -> Result<Option<Write>, ReplyError> {
        // A few bytes outside of the message may be pad.
        let may_be_pad = response.form == Form::Inline && response.outside() <= MOST_COPIED;
        if may_be_pad && response.writes().next().is_none() {
            return Ok(None);
        }
        match self.write(reply, response) {
            Ok(write) => Ok(Some(write)),
            Err(error) if error == errno::timed_out() => {
                Err(ReplyError::Close(EndReason::Unresponsive))
            }
            Err(error) if is_final(error) => Err(ReplyError::Refuse(ErrorReport::System)),
            // The client sends the Call again, by another connection.
            Err(_) => Err(ReplyError::Close(EndReason::NoMemory)),
        }
    }

    /// Prepares a Reply that waits. A short RDMA Write, which `later` says that there is, has no Send buffer yet for its
    /// bytes, so it is made from the pages of the Reply.
    ///
    /// # Errors
    ///
    /// [`ReplyError`]: as for [`Self::write_if_any`].
    #[cold]
    #[inline(never)]
    fn wait(
        &self,
        reply: &mut SvcReply<'_, ServerMessage>,
        response: &Response<'_>,
        shape: &ReplyShape<'_>,
        terms: &Terms,
        later: (Option<Write>, bool, Option<Handle>),
    ) -> Result<KBox<Delayed>, ReplyError> {
        let (mut write, is_short, invalidate) = later;
        if is_short {
            write = self.write_if_any(reply, response)?;
        }
        let last = 1 + write.as_ref().map_or(0, Write::work_requests);
        let message = reply.message();
        let payload = |out: &mut [u8]| copy_payload(message, &write, response, out);
        match Delayed::new(response, shape, terms, invalidate, last, payload) {
            Ok(mut delayed) => {
                delayed.write = write;
                Ok(delayed)
            }
            Err(_) => Err(ReplyError::Close(self.cancel(write, EndReason::NoMemory))),
        }
    }

    /// Keeps a Reply until the client takes it.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    #[cold]
    #[inline(never)]
    fn delay_reply(
        &self,
        reply: &mut SvcReply<'_, ServerMessage>,
        call: ServerMessage,
        delayed: KBox<Delayed>,
        version: Version,
    ) -> Result<(), EndReason> {
        if delayed.write.is_none() {
            reply.copied();
        }
        self.delay(call, delayed, version)
    }

    /// Cancels the RDMA Writes of a Reply that cannot be sent. Returns `why`, the reason to close the connection.
    #[cold]
    #[inline(never)]
    fn cancel(&self, write: Option<Write>, why: EndReason) -> EndReason {
        if let Some(write) = write {
            write.cancel(self.endpoint().qp());
        }
        why
    }

    /// Prepares the RDMA Writes of a Reply. On a device that registers memory for them, waits for enough
    /// registrations.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ETIMEDOUT`: other Replies do not give registrations back, or the connection has to be closed.
    /// `EMSGSIZE`: the Reply needs more than the queue pair has. The error of the device's driver or of the DMA API,
    /// which may be [final](is_final).
    fn write(
        &self,
        reply: &mut SvcReply<'_, ServerMessage>,
        response: &Response<'_>,
    ) -> Result<Write> {
        let qp = self.endpoint().qp();
        let idle = self.shared().lock().queue.take_write();
        let mut write = Write::new(qp, idle)?;
        let memory = write.memory_mut().ok_or(EINVAL)?;
        if is_page_list(response, &reply.page_list()) {
            reply.take_page_list(memory)?;
        } else {
            reply.take_pages(memory)?;
        }
        let _registering = self.registering();
        let mut attempts = 0;
        let error = loop {
            match self.add_writes(&mut write, response) {
                // The Send comes behind.
                Ok(segments) if write.work_requests() < qp.max_work_requests() => {
                    settings::WRITES.add(segments);
                    return Ok(write);
                }
                Ok(_) => break errno::message_size(),
                // Other Replies give registrations back when their Sends have ended.
                Err(error) if error == EAGAIN && self.registrations_suffice(&write, response) => {
                    if attempts == MOST_ATTEMPTS || self.shared().is_closing() {
                        break errno::timed_out();
                    }
                    attempts += 1;
                    write.undo(qp);
                    fsleep(PAUSE);
                }
                // The queue pair has too few registrations.
                Err(error) if error == EAGAIN => break errno::message_size(),
                Err(error) => break error,
            }
        };
        write.cancel(qp);
        Err(error)
    }

    /// Calls `add` for each RDMA Write: with the bytes of the Reply, and the Segment or the part of it that
    /// they go to.
    ///
    /// # Errors
    ///
    /// The error of `add`. `EINVAL`: the pieces are shorter than the Segments.
    //= V1-071, NFS-036
    fn for_each_write(
        response: &Response<'_>,
        mut add: impl FnMut(Range<u32>, Segment) -> Result,
    ) -> Result {
        if let Some((segment, range)) = response.single_write() {
            return add(range, segment);
        }
        response
            .writes()
            .try_for_each(|(segment, range)| add(range, segment))?;
        spread(response.payload(), response.reply_writes(), add)
    }

    /// Adds the RDMA Writes of a Reply. Returns their number.
    ///
    /// # Errors
    ///
    /// The error of [`Write::add`].
    fn add_writes(&self, write: &mut Write, response: &Response<'_>) -> Result<usize> {
        let qp = self.endpoint().qp();
        let mut segments = 0;
        Self::for_each_write(response, |range, segment| {
            segments += 1;
            let remote = Remote {
                key: segment.handle.0,
                address: segment.offset,
            };
            write.add(qp, range, remote)
        })?;
        Ok(segments)
    }

    /// Returns whether the queue pair has enough registrations for the RDMA Writes of a Reply. Only
    /// ib_core's parameter `force_mr` makes RDMA Writes use registrations.
    #[cold]
    fn registrations_suffice(&self, write: &Write, response: &Response<'_>) -> bool {
        let qp = self.endpoint().qp();
        let mut count = 0;
        let counted = Self::for_each_write(response, |range, _| {
            count += write.registrations_for(qp, range);
            Ok(())
        });
        counted.is_ok() && count <= qp.registrations()
    }
}

/// Returns the number of work requests in front of the Send of a Reply.
#[inline(always)]
fn work_requests(write: &Option<Write>, copied: &Option<ShortWrite>) -> u32 {
    write
        .as_ref()
        .map_or(copied.is_some().into(), Write::work_requests)
}

/// Returns the only RDMA Write of a Reply if its bytes fit behind the message in a Send buffer.
#[inline(never)]
fn only_short_write(response: &Response<'_>, terms: &Terms) -> Option<ShortWrite> {
    let inline = match response.form {
        Form::Inline => response.payload_len,
        Form::ReplyChunk | Form::Continued => 0,
    };
    let message = response.header_len.checked_add(inline)?;
    response.only_write().filter(|(segment, _)| {
        let end = end_of_data(message, segment.length);
        segment.length != 0 && end.is_some_and(|end| end <= terms.inline_send)
    })
}

/// Copies the bytes of an RDMA Write of the Reply into its Send buffer, if there is one.
///
/// # Errors
///
/// `EFAULT`: the Reply cannot be read. `EINVAL`: the buffer is too short.
#[inline(always)]
fn copy_data(
    sending: &mut SendPermit<'_>,
    message: Option<CallBuf<'_>>,
    copied: Option<&ShortWrite>,
) -> Result {
    let Some((segment, range)) = copied else {
        return Ok(());
    };
    let remote = Remote {
        key: segment.handle.0,
        address: segment.offset,
    };
    let message = message.ok_or(EFAULT)?;
    sending.write_data(segment.length, remote, |out| message.read(range.start, out))?;
    settings::WRITES.add(1);
    Ok(())
}

/// Copies the inline part of a Reply into a Send buffer. Returns its length. `None`: it does not fit, or cannot be
/// read.
#[inline(always)]
fn copy_payload(
    message: Option<CallBuf<'_>>,
    write: &Option<Write>,
    response: &Response<'_>,
    out: &mut [u8],
) -> Option<usize> {
    // The message may be part of the memory that RDMA Writes send.
    let read = |at, out: &mut [u8]| match (message, write) {
        (Some(message), _) => message.read(at, out),
        (None, Some(write)) => write.memory().read(at, out),
        (None, None) => Err(EFAULT),
    };
    match response.kind() {
        Kind::Nomsg => Some(0),
        Kind::Msg if response.is_start() => copy(read, once(0..response.payload_len), out),
        Kind::Msg => copy(read, response.payload(), out),
    }
}

/// Returns the handle that the Reply to `call` invalidates, if there is one.
#[inline(always)]
//= CM-011, CM-012, CM-013
//= V2-111, V2-112
fn to_invalidate(
    version: Version,
    terms: &Terms,
    chunks: &ChunkLists<'_>,
    call: &[u8],
) -> Option<Handle> {
    let able = terms.remote_invalidation;
    match version {
        Version::V1 => invalidate::permitted_v1(able, chunks),
        Version::V2 => invalidate::permitted(able, ParsedCall::inv_handle(call), chunks),
    }
}

/// Returns the trace event of a Reply.
#[cold]
fn reply_event(
    cid: u32,
    xid: Xid,
    response: &Response<'_>,
    work_requests: u32,
    invalidate: Option<Handle>,
) -> trace::SvcrdmaReply<'static> {
    let written = response.writes().map(|(segment, _)| segment);
    let lens = Iterator::chain(written, response.reply_writes()).map(|segment| segment.length);
    let (segments, written) = lens.fold((0, 0), |(count, sum), len| (count + 1, sum + len));
    let (form, inline) = match response.form {
        Form::Inline if segments == 0 => ("inline", response.payload_len),
        Form::Inline => ("write list", response.payload_len),
        Form::ReplyChunk => ("reply chunk", 0),
        Form::Continued => ("continued", response.payload_len),
    };
    let len = response.header_len + inline;
    trace::SvcrdmaReply {
        cid,
        xid: xid.0,
        len,
        wtype: form,
        segments,
        written,
        sqecount: work_requests,
        handle: invalidate.map_or(0, |handle| handle.0),
    }
}

/// Returns whether the RDMA Writes take bytes of the page list, `pages`, and no other bytes of the Reply.
fn is_page_list(response: &Response<'_>, pages: &Range<u32>) -> bool {
    if response.form != Form::Inline {
        return false;
    }
    if let Some((_, range)) = response.single_write() {
        // The page list may end with the pad of the result.
        let padded = range.start + padded_len(range.end - range.start);
        return range.start == pages.start && (range.end..=padded).contains(&pages.end);
    }
    let within = |range: &Range<u32>| pages.start <= range.start && range.end <= pages.end;
    let outside = |range: &Range<u32>| range.end <= pages.start || pages.end <= range.start;
    response.writes().all(|(_, range)| within(&range))
        && response.payload().all(|piece| outside(&piece))
}

/// Distributes `pieces`, one behind the other, over `segments`: calls `add` for each piece of a Segment.
///
/// # Errors
///
/// The error of `add`. `EINVAL`: the pieces are shorter than the Segments.
fn spread(
    mut pieces: impl Iterator<Item = Range<u32>>,
    segments: impl Iterator<Item = Segment>,
    mut add: impl FnMut(Range<u32>, Segment) -> Result,
) -> Result {
    let mut piece = 0..0;
    for mut segment in segments {
        while segment.length != 0 {
            if piece.is_empty() {
                piece = pieces.next().ok_or(EINVAL)?;
                continue;
            }
            let len = segment.length.min(piece.end - piece.start);
            let part = piece.start..piece.start + len;
            add(
                part,
                Segment {
                    length: len,
                    ..segment
                },
            )?;
            piece.start += len;
            segment.length -= len;
            segment.offset = segment.offset.wrapping_add(len.into());
        }
    }
    Ok(())
}
