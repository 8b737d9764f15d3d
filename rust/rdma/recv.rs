// SPDX-License-Identifier: GPL-2.0

//! Receives.
//!
//! A Receive buffer belongs to the queue pair from post to completion; [`Received`] is the only
//! way to its octets, so they can be read only while the device does not have it.

use super::cq::{
    Wc,
    Work,
    Wqe, //
};
use super::dma::{
    Direction,
    DmaBuf, //
};
use super::mr::Invalidated;
use super::pd::Pd;
use super::Handler;
use crate::bindings;
use core::marker::PhantomData;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A buffer that messages are received into.
pub(crate) struct RecvBuf<H> {
    buf: DmaBuf,
    _handler: PhantomData<H>,
}

/// A Receive buffer as it is posted.
pub(crate) type RecvWqe<H> = Wqe<RecvBuf<H>>;

impl<H: Handler> RecvBuf<H> {
    /// A buffer for messages of at most `len` octets. Context: may sleep.
    pub(crate) fn new(pd: Arc<Pd>, len: usize) -> Result<KBox<RecvWqe<H>>> {
        Wqe::new(Self {
            buf: DmaBuf::new(pd, len, Direction::FromDevice)?,
            _handler: PhantomData,
        })
    }

    pub(super) fn sge(&self) -> bindings::ib_sge {
        self.buf.sge(self.buf.len())
    }

    pub(super) fn prepare(&self) {
        self.buf.sync_for_device(self.buf.len());
    }
}

impl<H: Handler> Work for RecvBuf<H> {
    type Handler = H;

    fn done(wqe: KBox<RecvWqe<H>>, handler: &H, wc: &Wc<'_, H>) {
        // After a failure the buffer goes away with its connection.
        let Some(success) = wc.success() else { return };
        let len = success.byte_len().min(wqe.buf.len());
        wqe.buf.sync_for_cpu(len);
        let message = Received {
            invalidated: success.invalidated().map(Invalidated::by_completion),
            len,
            wqe,
        };
        handler.received(success.qp(), message);
    }
}

/// A message that arrived, and the buffer it is in.
pub(crate) struct Received<H> {
    wqe: KBox<RecvWqe<H>>,
    len: usize,
    invalidated: Option<Invalidated>,
}

impl<H: Handler> Received<H> {
    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.wqe.buf.bytes().get(..self.len).unwrap_or_default()
    }

    /// Which registration the peer invalidated, if it did.
    pub(crate) fn invalidated(&self) -> Option<Invalidated> {
        self.invalidated
    }

    /// Gives up the message; its buffer may be posted again.
    pub(crate) fn into_buffer(self) -> KBox<RecvWqe<H>> {
        self.wqe
    }
}
