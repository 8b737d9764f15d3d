// SPDX-License-Identifier: GPL-2.0

//! Sends.
//!
//! A message is written into a Send buffer of its own, so the memory of the RPC it came from is
//! free of the Send at once; the buffer comes back when the device is done with it. Most Sends
//! ask for no completion: a later one that does brings their buffers back with its own.

use super::cq::{
    Wc,
    Work,
    Wqe, //
};
use super::dma::{
    Direction,
    DmaBuf, //
};
use super::pd::Pd;
use super::Handler;
use crate::bindings;
use crate::support::stack::{
    Node,
    Stack, //
};
use core::marker::PhantomData;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A buffer that a message is sent from.
pub(crate) struct SendBuf<H: Handler> {
    buf: DmaBuf,
    /// The next of the list this is in.
    next: Option<KBox<SendWqe<H>>>,
    /// While posted: the buffers whose Sends end no later than this one.
    pub(super) covers: SendBufs<H>,
    _handler: PhantomData<H>,
}

/// A Send buffer as it is posted.
pub(crate) type SendWqe<H> = Wqe<SendBuf<H>>;

impl<H: Handler> SendBuf<H> {
    /// A buffer for messages of at most `len` octets. Context: may sleep.
    pub(crate) fn new(pd: Arc<Pd>, len: usize) -> Result<KBox<SendWqe<H>>> {
        Wqe::new(Self {
            buf: DmaBuf::new(pd, len, Direction::ToDevice)?,
            next: None,
            covers: SendBufs::new(),
            _handler: PhantomData,
        })
    }

    /// Where to write the message.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.buf.bytes_mut()
    }

    pub(super) fn sge(&self, len: usize) -> bindings::ib_sge {
        self.buf.sge(len)
    }

    pub(super) fn prepare(&self, len: usize) {
        self.buf.sync_for_device(len);
    }
}

impl<H: Handler> Work for SendBuf<H> {
    type Handler = H;

    fn done(mut wqe: KBox<SendWqe<H>>, handler: &H, _wc: &Wc<'_, H>) {
        // Done or failed, the device does not read the buffers any more.
        let mut buffers = core::mem::take(&mut wqe.covers);
        buffers.push(wqe);
        handler.sent(buffers);
    }
}

impl<H: Handler> Node for SendWqe<H> {
    fn link(&self) -> &Option<KBox<Self>> {
        &self.next
    }

    fn link_mut(&mut self) -> &mut Option<KBox<Self>> {
        &mut self.next
    }
}

/// Send buffers.
pub(crate) type SendBufs<H> = Stack<SendWqe<H>>;
