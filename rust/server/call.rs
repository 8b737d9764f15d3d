// SPDX-License-Identifier: GPL-2.0

//! A Call, from its message to a thread of the service.
//!
//! A Call without Read chunks is delivered as it was received. One with Read chunks takes pages of
//! the thread that finds it, has the device fill them, and is delivered to whichever thread finds
//! it next. With a single Read chunk in an inline Call, the data goes to where a WRITE wants it, at
//! the start of a page; any other Call is put together from its start to its end.

use super::{
    connection::{
        Open,
        Server,
        ServerMessage,
        Waiting, //
    },
    settings, //
};
use crate::{
    endpoint::{
        EndReason,
        LockedState,
        Shared, //
    },
    proto::{
        responder::{
            self,
            Call,
            ReadChunk,
            Source,
            CALL_START, //
        },
        wire::{
            error::ErrorReport,
            header::Kind,
            types::{
                Segment,
                Xid, //
            },
        },
    },
    rdma::{
        pull::{
            Pull,
            PullBox, //
        },
        rw::{
            is_final,
            Remote, //
        },
    },
    sunrpc::svc::rqst::{
        Delivered,
        Placed,
        SvcRqst, //
    },
    support::{
        errno,
        memory::PAGE_SIZE,
        pages::PageBuf,
        trace::{
            self,
            TraceEvent, //
        },
    },
};
use kernel::prelude::*;

/// The use of the pages of a Call with Read chunks.
#[derive(Clone, Copy)]
enum PageUse {
    /// They hold the one Read chunk, with its pad, of an inline Call.
    Chunk {
        /// The length of the message before the chunk.
        position: u32,
        /// The length of the chunk.
        len: u32,
        /// And of its pad.
        pad: u32,
    },
    /// They hold the whole RPC message.
    Whole,
}

impl PageUse {
    /// Returns the layout of a Call with this Payload `stream`, which may have arrived in several parts. The decoder of
    /// the upper layer compares a chunk with the count before it.
    //= V1-052, V1-096, D-39
    fn of(call: &Call<'_>, stream: &[u8], joined: bool) -> Self {
        let is_behind_header =
            |chunk: &ReadChunk| !responder::splits_credential(chunk.position, stream);
        match (call.kind, call.only_read_chunk()) {
            (Kind::Msg, Some(chunk)) if !joined && is_behind_header(&chunk) => {
                // It is no longer than the message.
                let len = chunk.len as u32;
                Self::Chunk {
                    position: chunk.position.0,
                    len,
                    pad: call.len - call.stream_len - len,
                }
            }
            _ => Self::Whole,
        }
    }

    /// Returns the number of bytes of the pages that are used.
    fn len(self, call: &Call<'_>) -> u32 {
        match self {
            Self::Chunk { len, pad, .. } => len + pad,
            Self::Whole => call.len,
        }
    }
}

/// The source of some bytes of the pages.
enum Piece {
    /// From the client's memory.
    Remote(Segment),
    /// The part of the inline stream that begins there.
    Inline(u32),
    /// Nothing.
    Zero,
}

/// Calls `f` for each piece of the pages, with its offset, its length and its source.
///
/// # Errors
///
/// The error of `f`.
//= V1-061, V1-062
fn for_each_piece(
    call: &Call<'_>,
    layout: PageUse,
    mut f: impl FnMut(u32, u32, Piece) -> Result,
) -> Result {
    let mut at = 0_u32;
    if let PageUse::Chunk { len, pad, .. } = layout {
        for segment in call.chunks.reads.iter().map(|read| read.segment) {
            if segment.length != 0 {
                f(at, segment.length, Piece::Remote(segment))?;
                at += segment.length;
            }
        }
        return match pad {
            0 => Ok(()),
            _ => f(len, pad, Piece::Zero),
        };
    }
    for source in call.sources() {
        match source {
            Source::Stream(range) if call.kind == Kind::Msg => {
                let len = range.end - range.start;
                f(at, len, Piece::Inline(range.start))?;
                at += len;
            }
            Source::Stream(range) => {
                for segment in responder::slice(call.position_zero(), range) {
                    f(at, segment.length, Piece::Remote(segment))?;
                    at += segment.length;
                }
            }
            Source::Read(segment) => {
                f(at, segment.length, Piece::Remote(segment))?;
                at += segment.length;
            }
            Source::Pad(len) => {
                f(at, len, Piece::Zero)?;
                at += len;
            }
        }
    }
    Ok(())
}

/// The next step of a Call that is begun.
enum Begun {
    /// The Call is delivered from its Receive, from this byte on.
    Inline(usize),
    /// The Call is delivered from pages of the request. The number is its length in bytes.
    Placed(Placed, u32),
    /// RDMA Reads for its data, or for a part of it that begins at this byte, are ready to be posted.
    Pull(PullBox<Shared<Server>>, u32),
    /// The registrations are all in use.
    Starved,
    /// It is answered by an error message.
    Refused(ErrorReport),
    /// The connection has to end.
    Lost(EndReason),
}

/// RDMA Reads that were prepared for a Call.
struct Round {
    pull: PullBox<Shared<Server>>,
    /// The first byte that they read, and the byte behind the last one.
    from: u32,
    upto: u32,
    /// A part of the data is left for another round.
    more: bool,
    /// Nothing can be read now: the registrations or the entries of the send queue are all in use.
    is_starved: bool,
}

impl Open<'_> {
    /// Begins with a Call that has just arrived, or that has waited for registrations.
    #[inline]
    pub(super) fn begin(
        &self,
        message: ServerMessage,
        rqst: SvcRqst<'_, ServerMessage>,
    ) -> Delivered {
        // Apart, so that for a Call without Read chunks nothing else of it is decoded.
        match inline_start(&message) {
            Some(start) => rqst.deliver_inline(message, start),
            None => self.begin_reading(message, rqst),
        }
    }

    /// Begins with a Call whose data or whose message is not all where it was received.
    #[inline(never)]
    fn begin_reading(
        &self,
        mut message: ServerMessage,
        mut rqst: SvcRqst<'_, ServerMessage>,
    ) -> Delivered {
        if message.note().pull.is_some() {
            self.next_round(message);
            return Delivered::nothing();
        }
        match self.plan(&mut message, &mut rqst) {
            Begun::Inline(start) => rqst.deliver_inline(message, start),
            Begun::Placed(placed, len) => self.deliver(message, rqst, placed, len),
            other => {
                self.read(message, other);
                Delivered::nothing()
            }
        }
    }

    /// Reads more of the data of a Call that is read in rounds.
    #[cold]
    fn next_round(&self, mut message: ServerMessage) {
        let Some(pull) = message.note_mut().pull.take() else {
            return self.shared().request_close(EndReason::NotPosted);
        };
        self.shared().lock().role.pulling += 1;
        let added = match message.note().open(message.bytes()) {
            Some((fixed, call, stream)) => {
                let layout = PageUse::of(&call, stream, message.note().joined.is_some());
                self.add_reads(fixed.xid, &call, layout, message.note().read, pull)
            }
            None => Err(Begun::Lost(EndReason::NotPosted)),
        };
        let begun = self.begun(&mut message, added);
        self.read(message, begun);
    }

    /// Carries out the decision about a Call whose data has to be read.
    #[inline(always)]
    fn read(&self, message: ServerMessage, begun: Begun) {
        match begun {
            Begun::Inline(_) | Begun::Placed(..) => {}
            Begun::Pull(pull, from) => self.pull(message, pull, from),
            Begun::Starved => {
                let mut state = self.shared().lock();
                let queue = &mut state.role;
                if message.note().pull.is_some() {
                    queue.halfway = Some(message);
                } else {
                    queue.starved.push(message);
                }
                queue.pulling -= 1;
                // The last Call that held registrations may have ended before this one was queued.
                let again = queue.pulling == 0;
                queue.retry |= again;
                drop(state);
                if again {
                    self.shared().role.xprt.work_pending();
                }
            }
            Begun::Refused(report) => self.refuse(message, report),
            Begun::Lost(why) => self.shared().request_close(why),
        }
    }

    /// Notes that this Call holds no registrations any more. A Call that waits for registrations may try again.
    fn end_pulling(&self) {
        let mut state = self.shared().lock();
        state.role.pulling -= 1;
        state.role.retry = true;
        drop(state);
        self.shared().role.xprt.work_pending();
    }

    /// Decides about a Call of which nothing has been read.
    #[inline(always)]
    fn plan(&self, message: &mut ServerMessage, rqst: &mut SvcRqst<'_, ServerMessage>) -> Begun {
        let bytes = message.bytes();
        let Some((fixed, call, stream)) = message.note().open(bytes) else {
            return Begun::Lost(EndReason::NotPosted);
        };
        let joined = message.note().joined.is_some();
        // A Read list without a byte changes nothing.
        if call.chunks.reads.is_empty() || (call.kind == Kind::Msg && call.len == call.stream_len) {
            if !joined {
                return Begun::Inline(bytes.len() - stream.len());
            }
            return match place(rqst, stream) {
                Ok(placed) => Begun::Placed(placed, call.len),
                Err(_) => Begun::Lost(EndReason::NoMemory),
            };
        }
        let layout = PageUse::of(&call, stream, joined);
        let count = layout.len(&call).div_ceil(PAGE_SIZE);
        let Ok(pull) = self.begin_pulling(rqst, count) else {
            self.end_pulling();
            return Begun::Lost(EndReason::NoMemory);
        };
        let added = self.add_reads(fixed.xid, &call, layout, 0, pull);
        self.begun(message, added)
    }

    /// Prepares RDMA Reads for the data of a Call from byte `from` on. If registrations or entries of the
    /// send queue do not suffice, a part of the data is read first, and the rest in further rounds.
    ///
    /// # Errors
    ///
    /// [`Begun`]: the Call cannot be read now, or at all.
    #[inline(never)]
    fn add_reads(
        &self,
        xid: Xid,
        call: &Call<'_>,
        layout: PageUse,
        from: u32,
        mut pull: PullBox<Shared<Server>>,
    ) -> Result<Round, Begun> {
        let qp = self.endpoint().qp();
        let (mut upto, mut len, mut segments) = (from, 0, 0);
        let registering = self.registering();
        let added = for_each_piece(call, layout, |at, piece_len, piece| {
            let end = at + piece_len;
            let Piece::Remote(segment) = piece else {
                return Ok(());
            };
            if end <= from {
                return Ok(());
            }
            let start = at.max(from);
            let remote = Remote {
                key: segment.handle.0,
                address: segment.offset.wrapping_add((start - at).into()),
            };
            let (bytes, result) = pull.add(qp, start..end, remote);
            segments += usize::from(start == at);
            upto = start + bytes;
            len += bytes;
            result
        });
        drop(registering);
        let more = match added {
            Ok(()) => false,
            Err(error) if error == EAGAIN || error == errno::message_size() => true,
            Err(error) => return Err(self.not_read(from, pull, error)),
        };
        let begins_rounds = more && from == 0;
        let is_starved = more && pull.work_requests() == 0 || begins_rounds && !self.begin_rounds();
        if !is_starved {
            settings::READS.add(segments);
            self.trace_reads(xid, &mut pull, len, segments);
        }
        Ok(Round {
            pull,
            from,
            upto,
            more,
            is_starved,
        })
    }

    /// Traces RDMA Reads of `len` bytes that are posted next.
    #[inline(always)]
    fn trace_reads(&self, xid: Xid, pull: &mut PullBox<Shared<Server>>, len: u32, segments: usize) {
        if trace::SvcrdmaWcRead::is_enabled() {
            pull.note_begin(len);
        }
        trace::emit(|| trace::SvcrdmaPostReadChunk {
            work: trace::WorkId {
                cid: self.cid(),
                cq_id: self.endpoint().qp().cq_id(),
                completion_id: pull.number() as i32,
            },
            xid: xid.0,
            len,
            segments: segments as u32,
            sqecount: pull.work_requests() as i32,
        });
    }

    /// Notes the RDMA Reads of a Call in its message.
    #[inline(always)]
    fn begun(&self, message: &mut ServerMessage, added: Result<Round, Begun>) -> Begun {
        let round = match added {
            Ok(round) => round,
            Err(begun) => return begun,
        };
        let note = message.note_mut();
        if round.is_starved {
            if round.from == 0 {
                Pull::cancel(round.pull, self.endpoint().qp());
            } else {
                note.pull = Some(round.pull);
            }
            return Begun::Starved;
        }
        note.read = round.upto;
        note.more = round.more;
        Begun::Pull(round.pull, round.from)
    }

    /// Gives up a Call whose RDMA Reads cannot be prepared.
    #[cold]
    fn not_read(&self, from: u32, pull: PullBox<Shared<Server>>, error: Error) -> Begun {
        Pull::cancel(pull, self.endpoint().qp());
        if from != 0 {
            self.end_rounds();
        }
        self.end_pulling();
        if is_final(error) {
            Begun::Refused(ErrorReport::System)
        } else {
            Begun::Lost(EndReason::NoMemory)
        }
    }

    /// Notes that a Call is read in rounds. Returns `false` if the connection has another such Call. Between
    /// rounds a Call keeps its pages, so only one Call of a connection may do so.
    fn begin_rounds(&self) -> bool {
        let mut state = self.shared().lock();
        !core::mem::replace(&mut state.role.in_rounds, true)
    }

    /// Notes that the last round of a Call has begun.
    fn end_rounds(&self) {
        self.shared().lock().role.in_rounds = false;
    }

    /// Makes a Pull into `count` pages of the request. From here on the Call may hold registrations,
    /// until the Pull ends or [`Self::end_pulling`] is called.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory. `EINVAL` or `EFAULT`: the request has too few pages.
    fn begin_pulling(
        &self,
        rqst: &mut SvcRqst<'_, ServerMessage>,
        count: u32,
    ) -> Result<PullBox<Shared<Server>>> {
        let mut state = self.shared().lock();
        state.role.pulling += 1;
        let idle = state.role.idle.pop();
        drop(state);
        let mut pull = match idle {
            Some(pull) => pull,
            None => Pull::new(self.endpoint().qp())?,
        };
        rqst.take_pages(pull.memory_mut().ok_or(EINVAL)?, count)?;
        Ok(pull)
    }

    /// Begins to read the data of a Call, from byte `from` on. Without room in the send queue, the RDMA Reads wait
    /// for it, and the thread does not.
    fn pull(&self, message: ServerMessage, pull: PullBox<Shared<Server>>, from: u32) {
        let (shared, qp) = (self.shared(), self.endpoint().qp());
        let is_last_round = from != 0 && !message.note().more;
        let mut state = shared.lock();
        if shared.is_closing() {
            drop(state);
            return Pull::cancel(pull, qp);
        }
        // The RDMA Reads of another Call are posted behind these.
        state.role.in_rounds &= !is_last_round;
        // RDMA Reads and Replies that wait go first.
        if shared.role.has_unposted() || !state.queue.has_room_for(pull.work_requests()) {
            return self.pull_later(state, message, pull);
        }
        let posted = qp.post_pull(&mut state.queue, pull, message);
        drop(state);
        if posted.is_err() {
            shared.request_close(EndReason::NotPosted);
        }
    }

    /// Keeps a Call until there is room in the send queue for its RDMA Reads.
    #[cold]
    fn pull_later(
        &self,
        mut state: LockedState<'_, Server>,
        mut message: ServerMessage,
        pull: PullBox<Shared<Server>>,
    ) {
        message.note_mut().pull = Some(pull);
        let number = message.number();
        state.add_unposted(message);
        self.shared().role.note_waiting(Waiting::Unposted);
        drop(state);
        self.note_starved(number);
    }

    /// Delivers a Call whose data has been read.
    pub(super) fn complete(
        &self,
        mut message: ServerMessage,
        mut rqst: SvcRqst<'_, ServerMessage>,
    ) -> Delivered {
        if message.note().more {
            self.next_round(message);
            return Delivered::nothing();
        }
        let Some(mut pull) = message.note_mut().pull.take() else {
            return Delivered::nothing();
        };
        let Some(put) = put(&message, &mut pull, &mut rqst) else {
            self.shared().request_close(EndReason::NotPosted);
            return Delivered::nothing();
        };
        let Put {
            start,
            layout,
            len,
            placed,
            refused,
        } = put;
        message.note_mut().pull = Some(pull);
        //= V1-003, V1-024
        if let Some(report) = refused {
            self.refuse(message, report);
            return Delivered::nothing();
        }
        match layout {
            PageUse::Whole => self.deliver(message, rqst, placed, len),
            PageUse::Chunk { position, len, pad } => {
                let position = position as usize;
                let delivered = rqst.deliver_chunk(message, start, position, placed, len + pad);
                delivered.unwrap_or_else(|message| self.not_delivered(message))
            }
        }
    }

    /// Delivers a Call that is the first `len` bytes of the pages.
    #[inline(never)]
    fn deliver(
        &self,
        mut message: ServerMessage,
        rqst: SvcRqst<'_, ServerMessage>,
        placed: Placed,
        len: u32,
    ) -> Delivered {
        // The pages have it.
        message.note_mut().joined = None;
        let delivered = rqst.deliver_pages(message, placed, len);
        delivered.unwrap_or_else(|message| self.not_delivered(message))
    }

    #[cold]
    fn not_delivered(&self, message: ServerMessage) -> Delivered {
        drop(message);
        self.shared().request_close(EndReason::NotPosted);
        Delivered::nothing()
    }
}

/// A Call whose data is in the pages of a request.
struct Put {
    /// The place of the Payload stream in the message.
    start: usize,
    layout: PageUse,
    len: u32,
    placed: Placed,
    /// The reason to refuse a Long Call, of which all has been read.
    refused: Option<ErrorReport>,
}

/// Puts the pages that RDMA Reads have filled into a request.
#[inline(always)]
fn put(
    message: &ServerMessage,
    pull: &mut PullBox<Shared<Server>>,
    rqst: &mut SvcRqst<'_, ServerMessage>,
) -> Option<Put> {
    let data = pull.memory_mut()?;
    let bytes = message.bytes();
    let (fixed, call, stream) = message.note().open(bytes)?;
    let layout = PageUse::of(&call, stream, message.note().joined.is_some());
    fill(data, &call, layout, stream).ok()?;
    let mut refused = None;
    if call.kind == Kind::Nomsg {
        let mut first = [0; CALL_START];
        let first = first.get_mut(..CALL_START.min(call.len as usize))?;
        data.read(0, first).ok()?;
        let version = message.note().kept.version();
        refused = responder::check_long(version, fixed.xid, first, &call.chunks).err();
    }
    let placed = rqst.put_pages(data).ok()?;
    // Frees the pages that the request has given in exchange, but for the pages that a buffer at rest keeps.
    data.shrink_for_reuse();
    Some(Put {
        // Only a Payload stream that is all in this message begins anywhere in it.
        start: bytes.len().saturating_sub(stream.len()),
        layout,
        len: call.len,
        placed,
        refused,
    })
}

/// Returns the place of the Payload stream in a message that is a whole Call without Read chunks.
#[inline(always)]
fn inline_start(message: &ServerMessage) -> Option<usize> {
    let bytes = message.bytes();
    let (_, call, stream) = message.note().open(bytes)?;
    let is_whole = call.chunks.reads.is_empty() && message.note().joined.is_none();
    is_whole.then(|| bytes.len() - stream.len())
}

/// Puts a Payload stream that came in several parts into pages of the request.
///
/// # Errors
///
/// `ENOMEM`: there is no memory. `EINVAL` or `EFAULT`: the request has too few pages.
#[cold]
fn place(rqst: &mut SvcRqst<'_, ServerMessage>, stream: &[u8]) -> Result<Placed> {
    let mut data = PageBuf::empty();
    rqst.take_pages(&mut data, (stream.len() as u32).div_ceil(PAGE_SIZE))?;
    data.write(0, stream)?;
    rqst.put_pages(&mut data)
}

/// Writes the bytes of the pages that RDMA Reads do not write.
///
/// # Errors
///
/// `EINVAL`: the bytes are outside of `stream` or of `data`.
fn fill(data: &mut PageBuf, call: &Call<'_>, layout: PageUse, stream: &[u8]) -> Result {
    for_each_piece(call, layout, |at, len, piece| match piece {
        Piece::Remote(_) => Ok(()),
        Piece::Zero => data.write(at, [0; 4].get(..len as usize).ok_or(EINVAL)?),
        Piece::Inline(start) => {
            let end = start as usize + len as usize;
            data.write(at, stream.get(start as usize..end).ok_or(EINVAL)?)
        }
    })
}
