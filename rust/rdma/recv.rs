// SPDX-License-Identifier: GPL-2.0

//! Receives, `struct ib_recv_wr`: made, posted, completed, posted again.
//!
//! A Receive buffer belongs to the queue pair from post to completion; [`Received`] is the only
//! way to its bytes, so they can be read only while the device does not have it.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{
    cq::Completions,
    dma::{
        Direction,
        DmaBuf, //
    },
    pd::Pd,
    proof::{
        Invalidated,
        QpId, //
    },
    qp::{
        Qp,
        QpRef, //
    },
    wqe::{
        CompletionFacts,
        Listed,
        Prepared,
        Status,
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
        foreign::Lent,
        module::leak, //
    },
};
use core::{
    mem::offset_of,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    ffi::c_void,
    prelude::*,
    sync::Arc, //
};

/// A buffer that messages are received into.
pub(crate) struct RecvBuf<H: Handler> {
    wr: Prepared<bindings::ib_recv_wr>,
    buf: DmaBuf,
    /// The link to the next Receive that is posted with this one, or waits with it.
    link: Link<RecvWqe<H>>,
    /// The length of its message.
    len: u32,
    /// The key that came with it.
    invalidated: Option<u32>,
    qp_id: QpId,
    /// The handler's data for the message.
    note: H::Note,
}

/// A Receive buffer as it is posted.
pub(crate) type RecvWqe<H> = Wqe<RecvBuf<H>>;

/// A Receive buffer that is not posted.
pub(crate) type RecvBox<H> = KBox<RecvWqe<H>>;

// SAFETY: contract of the trait: `offset_of!` gives the offset of the field, which only lists use.
unsafe impl<H: Handler> Listed for RecvBuf<H> {
    const LINK: usize = offset_of!(Self, link);
}

impl<H: Handler> RecvBuf<H> {
    /// Creates a buffer for messages of at most `len` bytes. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory, or no room to map it for the device.
    pub(crate) fn new(pd: Arc<Pd>, len: u32) -> Result<RecvBox<H>> {
        Wqe::new(Self {
            wr: Prepared(bindings::ib_recv_wr {
                num_sge: 1,
                ..Default::default()
            }),
            buf: DmaBuf::new(pd, len, Direction::FromDevice)?,
            link: Link::new(),
            len: 0,
            invalidated: None,
            qp_id: QpId::NONE,
            note: H::Note::default(),
        })
    }

    /// Completes the work request, in front of `next`.
    #[inline(always)]
    fn prepare(this: &mut RecvWqe<H>, next: *mut bindings::ib_recv_wr, qp: &QpRef<H>) {
        let cqe = ptr::from_mut(this).cast();
        let len = this.buf.len();
        this.buf.give(len, qp);
        this.wr.0.sg_list = this.buf.sge();
        this.wr.0.next = next;
        this.wr.0.__bindgen_anon_1.wr_cqe = cqe;
    }
}

impl<H: Handler> QpRef<H> {
    /// Posts a Receive.
    ///
    /// Context: any. A task has the lock that the handler takes before it posts a completed Receive again
    /// ([`Handler::received`]): a provider may look at a work request after it has
    /// completed, as long as ib_post_recv() has not returned.
    ///
    /// # Errors
    ///
    /// `EIO`: the queue pair takes none, so the connection is lost. The buffer comes back when the queue pair
    /// is destroyed.
    pub(crate) fn post_recv(&self, buffer: RecvBox<H>) -> Result {
        let mut one = RecvBatch::new(1);
        one.add(self, buffer);
        one.post(self)
    }
}

/// Receives that are to be posted together, each linked to the one before it.
pub(crate) struct RecvBatch<H: Handler> {
    withheld: BoxList<RecvWqe<H>>,
    /// The number of these Receives.
    len: u32,
    /// The number at which they are posted.
    batch: u32,
}

impl<H: Handler> RecvBatch<H> {
    /// Creates an empty batch, which posts `batch` buffers at a time.
    pub(crate) fn new(batch: u32) -> Self {
        Self {
            withheld: BoxList::new(),
            len: 0,
            batch: batch.max(1),
        }
    }

    /// Gives back the buffer of a handled message. It is posted as a Receive together with others, when there
    /// are enough of them.
    ///
    /// Context: any. `self` is locked by the caller, and always used with the same queue pair.
    ///
    /// # Errors
    ///
    /// `EIO`: the queue pair takes none, so the connection is lost.
    #[inline]
    pub(crate) fn repost(&mut self, qp: &QpRef<H>, message: Received<H>) -> Result {
        self.add(qp, message.buffer);
        if self.len >= self.batch {
            return self.post(qp);
        }
        Ok(())
    }

    /// Changes the number of Receives that are posted together.
    pub(crate) fn set_batch(&mut self, batch: u32) {
        self.batch = batch.max(1);
    }

    /// Adds a buffer, to be posted to `qp` with the others.
    #[inline(always)]
    pub(crate) fn add(&mut self, qp: &QpRef<H>, mut buffer: RecvBox<H>) {
        if !Wqe::enter(&mut buffer, qp) {
            return leak("a Receive of another queue pair", buffer);
        }
        let next = match self.withheld.first() {
            Some(first) => &raw const first.wr.0,
            None => ptr::null(),
        };
        RecvBuf::prepare(&mut buffer, next.cast_mut(), qp);
        self.withheld.push(buffer);
        self.len += 1;
    }

    /// Posts all Receives that were added. Context and errors: as for [`QpRef::post_recv`].
    ///
    /// # Errors
    ///
    /// `EIO`: the queue pair does not take the Receives.
    #[inline(never)]
    pub(crate) fn post(&mut self, qp: &QpRef<H>) -> Result {
        self.len = 0;
        let buffers = core::mem::take(&mut self.withheld);
        let Some(first) = buffers.first() else {
            return Ok(());
        };
        qp.handler()
            .trace_receives(qp, || buffers.iter().map(|buffer| buffer.number()));
        let chain = &raw const first.wr.0;
        Wqe::give_all(buffers);
        let mut refused = ptr::null();
        // SAFETY: the queue pair is valid. The chain lies in boxes that were given away, which are linked as
        // they were in the list, and each completion entry belongs to its box. A box that completes
        // meanwhile is not changed before this has returned, since the caller has the lock that
        // `Handler::received` takes, or is a completion itself; one that was flushed stays where it is.
        let ret = unsafe { bindings::ib_post_recv(qp.as_raw(), chain, &mut refused) };
        if ret == 0 {
            Ok(())
        } else {
            Err(EIO)
        }
    }
}

impl<H: Handler> Completions<'_, H> {
    /// Reposts a Receive by [`RecvBatch::repost`]. If the queue pair does not take it, the handler gets the
    /// loss of the connection.
    #[inline(always)]
    pub(crate) fn repost(&mut self, message: Received<H>) {
        let qp = self.qp();
        let receives = &mut self.own().receives;
        receives.batch = qp.shared().recv_batch.get();
        if receives.repost(qp, message).is_err() {
            self.handler().lost(Status::NOT_POSTED);
        }
    }
}

impl<H: Handler> WorkRequest for RecvBuf<H> {
    type Handler = H;

    const KIND: WorkKind = WorkKind::Receive;

    const MAPPING: Option<usize> = Some(offset_of!(Self, buf) + DmaBuf::MAPPING);

    fn done(mut buffer: RecvBox<H>, cx: &mut Completions<'_, H>, wc: &Wc<'_>) {
        let Some(success) = wc.success() else {
            // The task that has posted it may still be in ib_post_recv().
            return Wqe::leave(buffer);
        };
        let len = success.byte_len();
        buffer.buf.take(len, cx.qp());
        buffer.len = len;
        buffer.invalidated = success.invalidated();
        buffer.qp_id = cx.qp_id();
        cx.handler().received(cx, Received { buffer });
    }

    fn complete_facts(&mut self, facts: &mut CompletionFacts, wc: Wc<'_>) {
        facts.bytes = wc.success().map_or(0, |success| success.byte_len());
    }

    fn reclaim(buffer: RecvBox<H>, _handler: &H, _pd: &Pd) {
        drop(buffer);
    }
}

/// A message that arrived: the buffer it is in.
pub(crate) struct Received<H: Handler> {
    buffer: RecvBox<H>,
}

impl<H: Handler> Received<H> {
    /// Returns the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.buffer.buf.bytes();
        bytes.get(..self.buffer.len as usize).unwrap_or_default()
    }

    /// Returns the number of the Receive, by which traces identify it.
    pub(crate) fn number(&self) -> u32 {
        self.buffer.number()
    }

    /// Returns the length of the buffer, in bytes.
    #[inline]
    pub(crate) fn capacity(&self) -> u32 {
        self.buffer.buf.len()
    }

    /// Moves the message to a buffer of `len` bytes, which receives in place of this one from now
    /// on. If it does not fit, or there is no memory, everything stays. `qp` is the queue pair that
    /// the message came by. Context: process, may sleep.
    #[cold]
    pub(crate) fn shorten(&mut self, qp: &Qp<H>, len: u32) {
        let Ok(mut buf) = DmaBuf::new(qp.pd().clone(), len, Direction::FromDevice) else {
            return;
        };
        let message = self.bytes();
        let Some(moved) = buf.bytes_mut().get_mut(..message.len()) else {
            return;
        };
        moved.copy_from_slice(message);
        self.buffer.buf = buf;
    }

    /// Takes the registration that the peer has invalidated with the message.
    pub(crate) fn take_invalidated(&mut self) -> Option<Invalidated> {
        let key = self.buffer.invalidated.take()?;
        Some(Invalidated::by_completion(self.buffer.qp_id, key))
    }

    /// Returns the handler's data for the message.
    pub(crate) fn note(&self) -> &H::Note {
        &self.buffer.note
    }

    /// Returns the handler's data for the message, for writing.
    pub(crate) fn note_mut(&mut self) -> &mut H::Note {
        &mut self.buffer.note
    }
}

/// Messages that wait, in the order in which they arrived.
pub(crate) struct ReceivedList<H: Handler>(BoxList<RecvWqe<H>>);

impl<H: Handler> ReceivedList<H> {
    /// Creates an empty list.
    pub(crate) const fn new() -> Self {
        Self(BoxList::new())
    }

    /// Adds a message behind the others.
    pub(crate) fn push(&mut self, message: Received<H>) {
        self.0.push_last(message.buffer);
    }

    /// Adds a message in front of the others.
    pub(crate) fn push_first(&mut self, message: Received<H>) {
        self.0.push(message.buffer);
    }

    /// Returns whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the first.
    pub(crate) fn pop(&mut self) -> Option<Received<H>> {
        self.0.pop().map(|buffer| Received { buffer })
    }
}

// SAFETY: contract of the trait: the pointer comes from a box, and the message lies in a buffer that is used
// through the box only.
unsafe impl<H: Handler> Lent for Received<H> {
    fn into_ptr(self) -> NonNull<c_void> {
        let buffer = KBox::into_raw(self.buffer);
        // SAFETY: `KBox::into_raw` returns no null pointer.
        unsafe { NonNull::new_unchecked(buffer.cast()) }
    }

    /// # Safety
    ///
    /// As the trait says: `ptr` is from `into_ptr`, and not used again.
    unsafe fn from_ptr(ptr: NonNull<c_void>) -> Self {
        Self {
            // SAFETY: made by `into_ptr`, and not used again, by the caller's promise.
            buffer: unsafe { KBox::from_raw(ptr.as_ptr().cast()) },
        }
    }

    fn memory(&mut self) -> &mut [u8] {
        let len = self.buffer.len as usize;
        self.buffer
            .buf
            .bytes_mut()
            .get_mut(..len)
            .unwrap_or_default()
    }
}
