// SPDX-License-Identifier: GPL-2.0

//! Sends, `struct ib_send_wr`: made, posted, completed.
//!
//! A message is written into a Send buffer of its own, so the memory of the RPC it came from is
//! free of the Send at once; the buffer comes back when the device is done with it. Most Sends
//! ask for no completion: a later one that does brings their buffers back with its own.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{
    cq::Completions,
    dma::{
        Direction,
        DmaBuf, //
    },
    mr::{
        Mapped,
        MrList,
        Registered, //
    },
    pd::Pd,
    proof::{
        Destroyed,
        QpId, //
    },
    qp::{
        Qp,
        QpRef, //
    },
    rw::{
        IdleWrite,
        IdleWrites,
        Remote,
        Write, //
    },
    wqe::{
        unit_cqe,
        Listed,
        Prepared,
        Wc,
        WorkKind,
        WorkRequest,
        Wqe, //
    },
    Handler, //
};
use crate::{
    bindings,
    support::{
        box_list::{
            BoxList,
            Link, //
        },
        module::leak, //
    },
};
use core::{
    marker::PhantomData,
    mem::{
        offset_of,
        replace,
        take, //
    },
    ops::Range,
    ptr, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// Half of the range of a count that wraps.
const HALF: u32 = u32::MAX / 2;

/// The alignment of data in a Send buffer, in bytes.
const DATA_ALIGNMENT: u32 = 8;

/// Returns the end of `len` bytes of data behind a message of `message` bytes in a Send buffer. `None`: it does not fit
/// any buffer.
pub(crate) fn end_of_data(message: u32, len: u32) -> Option<u32> {
    message
        .checked_next_multiple_of(DATA_ALIGNMENT)?
        .checked_add(len)
}

/// A buffer that a message is sent from.
pub(crate) struct SendBuf<H: Handler> {
    wr: Prepared<bindings::ib_send_wr>,
    buf: DmaBuf,
    /// The RDMA Write of data in the buffer, in front of the Send.
    data_wr: Prepared<bindings::ib_rdma_wr>,
    data_sge: bindings::ib_sge,
    /// The bytes of the data. They are empty without such an RDMA Write.
    data: Range<u32>,
    link: Link<SendWqe<H>>,
    /// While it is posted and asks for a completion: the Sends that end no later than this one.
    covers: SendBufs<H>,
    /// The RDMA Writes in front of it, which end with it. It asks for a completion if there are.
    write: Option<Write>,
    /// A mark of the connection's user, until the Send has ended.
    mark: bool,
    _handler: PhantomData<H>,
}

/// A Send buffer as it is posted.
pub(crate) type SendWqe<H> = Wqe<SendBuf<H>>;

/// A Send buffer that is not posted.
pub(crate) type SendBox<H> = KBox<SendWqe<H>>;

/// Send buffers that are not posted.
pub(crate) type SendList<H> = BoxList<SendWqe<H>>;

// SAFETY: contract of the trait: `offset_of!` gives the offset of the field, which only lists use.
unsafe impl<H: Handler> Listed for SendBuf<H> {
    const LINK: usize = offset_of!(Self, link);
}

impl<H: Handler> SendBuf<H> {
    /// Creates a buffer for messages of at most `len` bytes. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory, or no room to map it for the device.
    pub(crate) fn new(pd: Arc<Pd>, len: u32) -> Result<SendBox<H>> {
        Wqe::new(Self {
            wr: Prepared(bindings::ib_send_wr {
                num_sge: 1,
                opcode: bindings::ib_wr_opcode_IB_WR_SEND,
                ..Default::default()
            }),
            buf: DmaBuf::new(pd, len, Direction::ToDevice)?,
            data_wr: Prepared(bindings::ib_rdma_wr {
                wr: bindings::ib_send_wr {
                    num_sge: 1,
                    opcode: bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
                    ..Default::default()
                },
                ..Default::default()
            }),
            data_sge: bindings::ib_sge::default(),
            data: 0..0,
            link: Link::new(),
            covers: SendBufs::new(),
            write: None,
            mark: false,
            _handler: PhantomData,
        })
    }

    /// Marks the Send, for [`SendBufs::take_unmarked`].
    pub(crate) fn mark(&mut self) {
        self.mark = true;
    }

    /// Puts an RDMA Write of `len` bytes to `remote` in front of the Send, and returns the memory for the bytes: it is
    /// in the buffer, behind the message of `message` bytes. Returns `None` if the buffer is too short.
    pub(crate) fn write_data(
        &mut self,
        message: u32,
        len: u32,
        remote: Remote,
    ) -> Option<&mut [u8]> {
        let end = end_of_data(message, len)?;
        let start = end - len;
        let data = self.buf.bytes_mut().get_mut(start as usize..end as usize)?;
        self.data = start..end;
        self.data_wr.0.remote_addr = remote.address;
        self.data_wr.0.rkey = remote.key;
        Some(data)
    }

    /// Takes back [`Self::write_data`].
    pub(crate) fn clear_data(&mut self) {
        self.data = 0..0;
    }

    /// Gives the device the message of `len` bytes, and data behind it. Returns the first work request, which `last`,
    /// the Send of the message, ends.
    #[inline(always)]
    fn give(
        &mut self,
        len: usize,
        qp: &QpRef<H>,
        last: *mut bindings::ib_send_wr,
    ) -> (*mut bindings::ib_send_wr, u32) {
        if self.data.is_empty() {
            self.buf.give(len as u32, qp);
            return (last, 1);
        }
        self.data_sge = self.buf.give_both(len as u32, take(&mut self.data), qp);
        let wr = &mut self.data_wr.0.wr;
        wr.__bindgen_anon_1.wr_cqe = unit_cqe::<H>();
        wr.sg_list = &raw mut self.data_sge;
        wr.next = last;
        (wr, 2)
    }

    /// Returns the memory for the message.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.buf.bytes_mut()
    }
}

impl<H: Handler> WorkRequest for SendBuf<H> {
    type Handler = H;

    const KIND: WorkKind = WorkKind::Send;

    fn done(mut buffer: SendBox<H>, cx: &mut Completions<'_, H>, _wc: &Wc<'_>) {
        cx.owed().fetch_sub(1, Relaxed);
        // Done or failed, the device does not read the buffers any more.
        let write = buffer.write.take().map(|write| write.ended(cx.qp()));
        let mut ended = take(&mut buffer.covers);
        ended.write = write;
        ended.list.push_last(buffer);
        cx.handler().sent(cx, ended);
    }

    fn withdraw(&mut self, qp: &QpRef<H>) {
        if let Some(write) = &mut self.write {
            write.withdraw(qp);
        }
    }

    fn reclaim(mut buffer: SendBox<H>, _handler: &H, pd: &Pd) {
        if let Some(write) = buffer.write.take() {
            write.reclaim(pd);
        }
    }
}

/// Sends in flight, or Sends that have ended together, with the entries of the send queue that they used.
pub(crate) struct SendBufs<H: Handler> {
    list: SendList<H>,
    /// Work requests that were posted for them, registrations with them.
    work_requests: u32,
    /// The RDMA Writes of the last of them.
    write: Option<IdleWrite>,
}

impl<H: Handler> SendBufs<H> {
    const fn new() -> Self {
        Self {
            list: BoxList::new(),
            work_requests: 0,
            write: None,
        }
    }

    /// Returns the number of Sends that were not [marked](SendBuf::mark), and clears the marks.
    pub(crate) fn take_unmarked(&mut self) -> u32 {
        let mut count = 0;
        let look = |buffer: &mut SendWqe<H>| count += u32::from(!take(&mut buffer.mark));
        // SAFETY: contract of `BoxList::for_each`: the closure exchanges no whole buffers.
        unsafe { self.list.for_each(look) };
        count
    }
}

impl<H: Handler> Default for SendBufs<H> {
    fn default() -> Self {
        Self::new()
    }
}

/// The send queue of one queue pair: the Sends without a signaled Send behind them, and the number of
/// entries in use. The lock that serialises the Sends protects it.
///
/// It belongs to one queue pair, until the queue pair is destroyed.
pub(crate) struct SendQueue<H: Handler> {
    qp: QpId,
    /// The queue pair; only compared.
    raw: usize,
    unsignaled: SendBufs<H>,
    /// RDMA Writes for the next use.
    writes: IdleWrites,
    /// Work requests whose completion, or a later one's, was not seen yet.
    in_use: u32,
    /// The most that [`Self::in_use`] may be.
    limit: u32,
    /// The number of work requests after which a Send is signaled.
    signal_interval: u32,
    /// The largest value of [`Self::signal_interval`].
    longest_interval: u32,
    /// The number of signaled Sends that were posted, and of signaled Sends that have ended. Both wrap.
    signaled: u32,
    signaled_ended: u32,
}

/// A point in the order of the work requests of a send queue.
#[derive(Clone, Copy)]
pub(crate) struct SendMark(u32);

impl<H: Handler> SendQueue<H> {
    /// Returns the identity of the queue pair.
    pub(super) fn id(&self) -> QpId {
        self.qp
    }

    /// Returns whether it is the send queue of `qp`.
    pub(super) fn is_of(&self, qp: &QpRef<H>) -> bool {
        self.raw == qp.as_raw().addr()
    }

    /// Creates the accounts of a send queue, before there is a queue pair.
    pub(crate) const fn new() -> Self {
        Self {
            qp: QpId::NONE,
            raw: 0,
            unsignaled: SendBufs::new(),
            writes: IdleWrites::new(),
            in_use: 0,
            limit: 0,
            signal_interval: 1,
            longest_interval: 1,
            signaled: 0,
            signaled_ended: 0,
        }
    }

    /// Returns the point behind all work requests that have been posted.
    pub(crate) fn mark(&self) -> SendMark {
        SendMark(self.signaled)
    }

    /// Returns whether a Send that was posted behind `mark` has ended: the device is done with all work requests
    /// before the mark.
    pub(crate) fn has_passed(&self, mark: SendMark) -> bool {
        let (ended, before) = (self.signaled_ended, mark.0);
        matches!(ended.wrapping_sub(before), 1..=HALF)
    }

    /// Makes at least one of `sends` Sends signaled, from the next Send on.
    pub(crate) fn limit_unsignaled(&mut self, sends: u32) {
        self.signal_interval = sends.clamp(1, self.longest_interval);
    }

    /// Sets the most entries of the queue without a signaled Send, which is at most the number of the queue pair.
    pub(crate) fn set_longest_interval(&mut self, entries: u32) {
        self.longest_interval = entries.max(1);
        self.limit_unsignaled(self.longest_interval);
    }

    /// Returns whether a Send with `registrations` fits now. If it does not, the completion of an earlier
    /// Send will come ([`Handler::sent`]).
    #[inline]
    pub(crate) fn has_room(&self, registrations: u32) -> bool {
        self.in_use + 1 + registrations <= self.limit
    }

    /// Returns the number of work requests that fit now, and in the empty queue, for traces.
    pub(crate) fn room(&self) -> (u32, u32) {
        (self.limit.saturating_sub(self.in_use), self.limit)
    }

    /// Returns whether a Send with `registrations` that is posted next asks for a completion.
    #[cold]
    pub(crate) fn is_next_signaled(&self, registrations: u32) -> bool {
        self.unsignaled.work_requests + 1 + registrations >= self.signal_interval
    }

    /// Returns whether `work_requests` work requests fit now.
    #[inline]
    pub(crate) fn has_room_for(&self, work_requests: u32) -> bool {
        self.in_use.saturating_add(work_requests) <= self.limit
    }

    /// Takes entries for work requests, which [`Self::release`] gives back.
    pub(super) fn reserve(&mut self, work_requests: u32) {
        self.in_use += work_requests;
    }

    /// Gives back the entries of a Pull that has ended.
    pub(crate) fn release(&mut self, work_requests: u32) {
        self.in_use = self.in_use.saturating_sub(work_requests);
    }

    /// Frees the entries of Sends that have ended, and keeps their RDMA Writes for the next use. Returns the
    /// buffers, and RDMA Writes that are not kept, which the caller drops without the lock.
    #[inline]
    pub(crate) fn ended(&mut self, ended: SendBufs<H>) -> (SendList<H>, Option<IdleWrite>) {
        self.in_use = self.in_use.saturating_sub(ended.work_requests);
        self.signaled_ended = self.signaled_ended.wrapping_add(1);
        let excess = ended.write.and_then(|write| self.writes.push(write));
        (ended.list, excess)
    }

    /// Takes RDMA Writes for the next use.
    pub(crate) fn take_write(&mut self) -> Option<IdleWrite> {
        self.writes.pop()
    }

    /// Takes all Sends as ended, after the queue pair was destroyed. Returns their memory, which the caller
    /// drops without the lock. Afterwards the accounts can be used with another queue pair.
    pub(crate) fn destroyed(&mut self, proof: &Destroyed) -> (SendList<H>, IdleWrites) {
        if !proof.is_of(self.qp) {
            return (SendList::new(), IdleWrites::new());
        }
        let unsignaled = take(&mut self.unsignaled);
        let writes = replace(&mut self.writes, IdleWrites::new());
        *self = Self::new();
        (unsignaled.list, writes)
    }

    /// Makes the send queue of a queue pair.
    pub(crate) fn of(qp: &Qp<H>) -> Self {
        Self {
            qp: qp.id(),
            raw: qp.as_raw().addr(),
            limit: qp.size().send_room,
            signal_interval: qp.size().signal_interval,
            longest_interval: qp.size().signal_interval,
            unsignaled: SendBufs::new(),
            writes: IdleWrites::new(),
            in_use: 0,
            signaled: 0,
            signaled_ended: 0,
        }
    }
}

impl<H: Handler> Drop for SendQueue<H> {
    fn drop(&mut self) {
        if !self.unsignaled.list.is_empty() {
            leak("Send buffers", take(&mut self.unsignaled).list);
        }
    }
}

impl<H: Handler> QpRef<H> {
    /// Registers `mrs` and sends the first `len` bytes of `buffer`, in this order.
    ///
    /// From here on the peer may reach the memory, also when this fails; then the connection
    /// must be closed.
    ///
    /// Context: any. `queue` is locked by the caller.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `queue` belongs to another queue pair. Otherwise the error of the driver; the buffer stays in
    /// `queue` then.
    #[inline(always)]
    pub(crate) fn post_send(
        &self,
        queue: &mut SendQueue<H>,
        mut mrs: MrList<Mapped>,
        mut buffer: SendBox<H>,
        len: usize,
    ) -> (MrList<Registered>, Result) {
        buffer.buf.give(len as u32, self);
        buffer.wr.0.sg_list = buffer.buf.sge();
        let unit = unit_cqe::<H>();
        let mut count = 1;
        let mut chain = &raw const buffer.wr.0;
        mrs.for_each(|inner| {
            chain = inner.register_wr(queue.qp, unit, chain);
            count += 1;
        });
        if !queue.is_of(self) {
            // Nothing was posted.
            return (mrs.registered(), Err(EINVAL));
        }
        queue.in_use += count;
        queue.unsignaled.work_requests += count;
        let posted = if queue.unsignaled.work_requests < queue.signal_interval {
            self.post_unsignaled(queue, chain, buffer)
        } else {
            self.post_signaled(queue, chain, buffer)
        };
        let posted = if posted == 0 {
            Ok(())
        } else {
            to_result(posted)
        };
        (mrs.registered(), posted)
    }

    /// Writes `write` and then sends the first `len` bytes of `buffer`, with one doorbell. If there
    /// is a key in `invalidate`, the peer's device takes that out of use. With `signal`, its
    /// completion comes as soon as it has ended, and with it all Sends before it.
    ///
    /// Context: any. `queue` is locked by the caller.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_send`]; the memory of `write` stays with the buffer.
    pub(crate) fn post_reply(
        &self,
        queue: &mut SendQueue<H>,
        write: Option<Write>,
        mut buffer: SendBox<H>,
        len: usize,
        invalidate: Option<u32>,
        signal: bool,
    ) -> Result {
        let last = &raw mut buffer.wr.0;
        let (first, sends) = buffer.give(len, self, last);
        let sge = buffer.buf.sge();
        let wr = &mut buffer.wr.0;
        wr.sg_list = sge;
        (wr.opcode, wr.ex.invalidate_rkey) = match invalidate {
            None => (bindings::ib_wr_opcode_IB_WR_SEND, 0),
            Some(key) => (bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV, key),
        };
        let foreign = write.as_ref().is_some_and(|write| !write.is_of(queue.qp));
        let signal = signal || write.is_some();
        buffer.write = write;
        if foreign || !queue.is_of(self) {
            // Nothing was posted.
            queue.unsignaled.list.push_last(buffer);
            return Err(EINVAL);
        }
        let count = sends + buffer.write.as_ref().map_or(0, Write::work_requests);
        queue.in_use += count;
        queue.unsignaled.work_requests += count;
        let chain = match &mut buffer.write {
            None => first,
            Some(write) => write.link_up(self, first),
        };
        let ret = if !signal && queue.unsignaled.work_requests < queue.signal_interval {
            self.post_unsignaled(queue, chain, buffer)
        } else {
            self.post_signaled(queue, chain, buffer)
        };
        to_result(ret)
    }

    /// Posts `chain`, which ends with the Send of `buffer`. A later completion covers it.
    #[inline]
    fn post_unsignaled(
        &self,
        queue: &mut SendQueue<H>,
        chain: *const bindings::ib_send_wr,
        mut buffer: SendBox<H>,
    ) -> i32 {
        buffer.wr.0.__bindgen_anon_1.wr_cqe = unit_cqe::<H>();
        buffer.wr.0.send_flags = 0;
        queue.unsignaled.list.push_last(buffer);
        // SAFETY: contract of `post_chain`: the chain lies in the registrations and in the buffer, which stays in
        // `unsignaled` until a later completion covers it or the queue pair is destroyed.
        unsafe { self.post_chain(chain) }
    }

    /// Posts `chain`, which ends with the Send of `buffer`, and asks for a completion that covers
    /// all Sends so far.
    #[inline(never)]
    fn post_signaled(
        &self,
        queue: &mut SendQueue<H>,
        chain: *const bindings::ib_send_wr,
        mut buffer: SendBox<H>,
    ) -> i32 {
        let cqe = ptr::from_mut(&mut *buffer).cast();
        buffer.wr.0.__bindgen_anon_1.wr_cqe = cqe;
        buffer.wr.0.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        buffer.covers = take(&mut queue.unsignaled);
        if let Err(mut buffer) = Wqe::give(buffer, self) {
            queue.unsignaled = take(&mut buffer.covers);
            queue.unsignaled.list.push_last(buffer);
            return EINVAL.to_errno();
        }
        self.shared().owed.fetch_add(1, Relaxed);
        queue.signaled = queue.signaled.wrapping_add(1);
        // SAFETY: contract of `post_chain`: the chain lies in the registrations and in the box that was given
        // away, which is its `wr_cqe`.
        let ret = unsafe { self.post_chain(chain) };
        if ret != 0 {
            // The Send is the last of the chain, so ib_post_send() has not taken it. The connection ends; the
            // buffers come back when the queue pair is destroyed, which may have a part of the chain.
            self.shared().owed.fetch_sub(1, Relaxed);
        }
        ret
    }
}
