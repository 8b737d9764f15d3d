// SPDX-License-Identifier: GPL-2.0

//! The Send buffers and Receives of a connection. A connection begins with a few, and gets more when it uses them.

use super::{
    Role,
    Shared,
    State, //
};
use crate::{
    rdma::{
        pd::Pd,
        qp::QpRef,
        recv::{
            RecvBatch,
            RecvBox,
            RecvBuf, //
        },
        send::{
            SendBuf,
            SendList, //
        },
    },
    support::memalloc::GFP_NORETRY, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The numbers and the lengths of a connection's buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Send buffers.
    pub(crate) sends: u32,
    /// Length of each, in bytes.
    pub(crate) send_len: u32,
    /// Receives kept posted.
    pub(crate) receives: u32,
    /// Length of each, in bytes.
    pub(crate) recv_len: u32,
}

/// Buffers that were made for a connection and that the connection does not have yet.
pub(crate) struct NewBuffers<R: Role> {
    sends: SendList<Shared<R>>,
    receives: KVec<RecvBox<Shared<R>>>,
}

impl<R: Role> NewBuffers<R> {
    /// Makes buffers. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory. `EIO`: the memory cannot be mapped.
    pub(crate) fn new(pd: &Arc<Pd>, buffers: &Buffers) -> Result<Self> {
        let mut sends = SendList::new();
        for _ in 0..buffers.sends {
            sends.push(SendBuf::new(pd.clone(), buffers.send_len)?);
        }
        let mut receives = KVec::with_capacity(buffers.receives as usize, GFP_NORETRY)?;
        for _ in 0..buffers.receives {
            let buffer = RecvBuf::new(pd.clone(), buffers.recv_len)?;
            receives.push(buffer, GFP_NORETRY)?;
        }
        Ok(Self { sends, receives })
    }
}

impl<R: Role> State<R> {
    /// Takes over new buffers, and posts the Receives among them. Context: any.
    ///
    /// # Errors
    ///
    /// `EIO`: the queue pair does not take the Receives, so the connection is lost.
    pub(crate) fn add_buffers(&mut self, qp: &QpRef<Shared<R>>, new: NewBuffers<R>) -> Result {
        let NewBuffers { sends, receives } = new;
        self.sends.append(sends);
        let mut batch = RecvBatch::new(receives.len() as u32);
        for buffer in receives {
            batch.add(qp, buffer);
        }
        batch.post(qp)
    }
}
