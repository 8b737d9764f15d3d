// SPDX-License-Identifier: GPL-2.0

//! Receives, `struct ib_recv_wr`: made, posted, completed, posted again.
//!
//! A Receive buffer belongs to the queue pair from post to completion; [`Received`] is the only
//! way to its bytes, so they can be read only while the device does not have it.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::cq::Completions;
use super::dma::{
    Direction,
    DmaBuf, //
};
use super::pd::Pd;
use super::proof::{
    Invalidated,
    QpId, //
};
use super::qp::QpRef;
use super::wqe::{
    Listed,
    Prepared,
    Status,
    Wc,
    Work,
    Wqe, //
};
use super::Handler;
use crate::bindings;
use crate::support::box_list::Link;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A buffer that messages are received into.
pub(crate) struct RecvBuf<H> {
    wr: Prepared<bindings::ib_recv_wr>,
    buf: DmaBuf,
    /// To the next of those that are posted together.
    link: Link<RecvWqe<H>>,
    _handler: PhantomData<H>,
}

/// A Receive buffer as it is posted.
pub(crate) type RecvWqe<H> = Wqe<RecvBuf<H>>;

/// A Receive buffer that is not posted.
pub(crate) type RecvBox<H> = KBox<RecvWqe<H>>;

// SAFETY: the offset is that of the field, which only lists use.
unsafe impl<H> Listed for RecvBuf<H> {
    const LINK: usize = offset_of!(Self, link);
}

impl<H: Handler> RecvBuf<H> {
    /// A buffer for messages of at most `len` bytes. Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EIO`: the device cannot reach it.
    pub(crate) fn new(pd: Arc<Pd>, len: u32) -> Result<RecvBox<H>> {
        Wqe::new(Self {
            wr: Prepared(bindings::ib_recv_wr {
                num_sge: 1,
                ..Default::default()
            }),
            buf: DmaBuf::new(pd, len, Direction::FromDevice)?,
            link: Link::new(),
            _handler: PhantomData,
        })
    }

    /// Completes the work request, in front of `next`.
    fn prepare(this: &mut RecvWqe<H>, next: *mut bindings::ib_recv_wr) {
        let cqe = ptr::from_mut(this).cast();
        let len = this.buf.len();
        this.buf.give(len);
        this.wr.0.sg_list = this.buf.sge();
        this.wr.0.next = next;
        this.wr.0.__bindgen_anon_1.wr_cqe = cqe;
    }
}

impl<H: Handler> QpRef<H> {
    /// Posts a Receive. When the queue pair takes none, the buffer comes back.
    ///
    /// Context: any.
    pub(crate) fn post_recv(&self, mut buffer: RecvBox<H>) -> Result<(), RecvBox<H>> {
        RecvBuf::prepare(&mut buffer, ptr::null_mut());
        let this = KBox::into_raw(buffer);
        // SAFETY: the box is ours until it is posted.
        let wr = unsafe { &raw const (*this).wr.0 };
        // SAFETY: the queue pair is valid; drivers copy work request and element before they
        // return, and the completion entry is that of a box which nobody else has.
        let ret = unsafe { bindings::ib_post_recv(self.as_raw(), wr, ptr::null_mut()) };
        if ret == 0 {
            return Ok(());
        }
        // SAFETY: ib_post_recv() has not taken the only work request, so no completion comes.
        Err(unsafe { KBox::from_raw(this) })
    }
}

impl<H: Handler> Completions<'_, H> {
    /// The message is not needed any more: its buffer receives another, as soon as enough such
    /// buffers are there to post them together ([`Size::recv_batch`](super::qp::Size)).
    ///
    /// When the queue pair takes none, the handler hears that the connection is lost.
    #[inline]
    pub(crate) fn repost(&mut self, message: Received<H>) {
        let mut buffer = message.buffer;
        let own = self.own();
        let next = match own.withheld.first() {
            Some(first) => &raw const first.wr.0,
            None => ptr::null(),
        };
        RecvBuf::prepare(&mut buffer, next.cast_mut());
        own.withheld.push(buffer);
        own.withheld_len += 1;
        if own.withheld_len >= own.batch {
            self.post_withheld();
        }
    }

    #[inline(never)]
    fn post_withheld(&mut self) {
        let own = self.own();
        own.withheld_len = 0;
        let mut buffers = core::mem::take(&mut own.withheld);
        let Some(first) = buffers.first() else { return };
        let chain = &raw const first.wr.0;
        let mut refused = ptr::null();
        // SAFETY: as in `QpRef::post_recv`, for a chain of boxes that are linked as they are in
        // the list, which nobody else has.
        let ret = unsafe { bindings::ib_post_recv(self.qp().as_raw(), chain, &mut refused) };
        if ret == 0 {
            buffers.leak();
            return;
        }
        // Those before the refused one are posted. Their completions are handled after this one.
        while let Some(first) = buffers.first() {
            if ptr::eq(&first.wr.0, refused) {
                break;
            }
            let _ = buffers.pop().map(Wqe::into_cqe);
        }
        self.handler().lost(Status::NOT_POSTED);
    }
}

impl<H: Handler> Work for RecvBuf<H> {
    type Handler = H;

    fn done(buffer: RecvBox<H>, cx: &mut Completions<'_, H>, wc: &Wc<'_>) {
        // After a failure the buffer goes away with its connection.
        let Some(success) = wc.success() else { return };
        let len = success.byte_len();
        buffer.buf.take(len);
        let message = Received {
            buffer,
            len,
            invalidated: success.invalidated(),
            qp_id: cx.qp_id(),
        };
        cx.handler().received(cx, message);
    }
}

/// A message that arrived, and the buffer it is in.
pub(crate) struct Received<H: Handler> {
    buffer: RecvBox<H>,
    len: u32,
    invalidated: Option<u32>,
    qp_id: QpId,
}

impl<H: Handler> Received<H> {
    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.buffer.buf.bytes();
        bytes.get(..self.len as usize).unwrap_or_default()
    }

    /// The key of the registration that the peer invalidated, if it did.
    pub(crate) fn invalidated(&self) -> Option<u32> {
        self.invalidated
    }

    /// The proof of what [`Self::invalidated`] says, once.
    pub(crate) fn take_invalidated(&mut self) -> Option<Invalidated> {
        let key = self.invalidated()?;
        self.invalidated = None;
        Some(Invalidated::by_completion(self.qp_id, key))
    }
}
