// SPDX-License-Identifier: GPL-2.0

//! Queue pairs, `struct ib_qp`: created, drained, destroyed.
//!
//! What can be posted is in the file of what is posted: [`recv`](super::recv),
//! [`send`](super::send), [`local_inv`](super::local_inv).
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::cm::CmId;
use super::cq::{
    Cq,
    Shared, //
};
use super::device::Registers;
use super::dma::Direction;
use super::pd::Pd;
use super::proof::{
    Drained,
    QpId, //
};
use super::Handler;
use crate::bindings;
use crate::support::errno;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;
use kernel::time::{
    delay::fsleep,
    Delta, //
};
use kernel::types::Opaque;

/// How large a queue pair is to be, in work requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The most in the send queue, invalidations among them.
    pub(crate) send_wr: u32,
    /// Of these, the most for Sends and the registrations before them.
    pub(crate) send_room: u32,
    /// The most in the receive queue.
    pub(crate) recv_wr: u32,
    /// After so many for Sends, one asks for a completion.
    pub(crate) signal_interval: u32,
    /// How many Receives are posted again together, of those that a completion gives back.
    pub(crate) recv_batch: u32,
    /// The most pieces of memory of one RDMA Read or Write; 1 if there are none.
    pub(crate) rw_sge: u32,
    /// For how many RDMA Reads at a time there are registrations, on a device that needs some;
    /// 0 if there are no RDMA Reads and Writes.
    pub(crate) rw_registrations: u32,
}

impl Size {
    /// The room that ib_drain_sq() and ib_drain_rq() need in each queue for what marks its end.
    pub(crate) const MARKER: u32 = 1;
}

/// A queue pair that is known to be valid; Receives and invalidations can be posted to it.
///
/// # Invariants
///
/// The pointer is that of a queue pair that `Qp::<H>::new` made, and which cannot be destroyed
/// while this is borrowed.
#[repr(transparent)]
pub(crate) struct QpRef<H>(Opaque<bindings::ib_qp>, PhantomData<H>);

impl<H: Handler> QpRef<H> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant, for `'a`.
    pub(super) unsafe fn from_raw<'a>(qp: *mut bindings::ib_qp) -> &'a Self {
        // SAFETY: a transparent wrapper of the `ib_qp` that the caller vouches for.
        unsafe { &*qp.cast::<Self>() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.0.get()
    }

    /// Hands a chain of work requests to the driver, as ib_post_send() does.
    ///
    /// Returns what the driver says, a negative error number or 0.
    ///
    /// # Safety
    ///
    /// The chain must be valid during the call, and what it names until its last work request has
    /// completed or the queue pair has been drained. A completion entry in it must be that of a
    /// [`Wqe`](super::wqe::Wqe) that was given away, or that of [`unit_cqe`](super::wqe::unit_cqe).
    #[inline]
    pub(super) unsafe fn post_chain(&self, chain: *const bindings::ib_send_wr) -> i32 {
        // SAFETY: the `ib_qp` is valid; `device` is set by ib_create_qp() and constant.
        let device = unsafe { (*self.as_raw()).device };
        // SAFETY: a device stays while it has queue pairs, and has its operations set before.
        let Some(post_send) = (unsafe { (*device).ops.post_send }) else {
            return errno::not_supported().to_errno();
        };
        let mut refused = core::ptr::null();
        // SAFETY: the queue pair is valid, and the chain is what the caller promises.
        unsafe { post_send(self.as_raw(), chain, &mut refused) }
    }

    /// The number of the port that the connection is on.
    pub(super) fn port(&self) -> u32 {
        // SAFETY: the `ib_qp` is valid; `port` is set by ib_create_qp() and constant.
        unsafe { (*self.0.get()).port }
    }

    /// What is shared with the completions.
    #[inline]
    pub(super) fn shared(&self) -> &Shared<H> {
        // SAFETY: the `ib_qp` is valid; `qp_context` is set by `Qp::new` and constant.
        let shared = unsafe { (*self.0.get()).qp_context };
        // SAFETY: `Cq` owns it, which `Qp` drops after the queue pair.
        unsafe { &*shared.cast::<Shared<H>>() }
    }
}

/// A reliable connected queue pair.
///
/// # Invariants
///
/// `raw` is the queue pair of `cm_id`, created with `cq`, whose `Shared` is its context.
pub(crate) struct Qp<H: Handler> {
    raw: NonNull<bindings::ib_qp>,
    id: QpId,
    size: Size,
    registers: Registers,
    // ib_free_cq() and ib_dealloc_pd() refuse what is in use, so these go after the queue pair.
    cm_id: Arc<CmId>,
    pd: Arc<Pd>,
    _cq: Cq<H>,
}

// SAFETY: a `struct ib_qp` does not belong to a task.
unsafe impl<H: Handler> Send for Qp<H> {}
// SAFETY: ib_post_send() and ib_post_recv() take the provider's lock, ib_modify_qp() and the
// functions that drain may run beside them.
unsafe impl<H: Handler> Sync for Qp<H> {}

impl<H: Handler> Qp<H> {
    /// A queue pair on the connection of `pd`. Context: may sleep.
    ///
    /// # Errors
    ///
    /// What the driver says; `EINVAL` often means that `size` is beyond the device.
    pub(crate) fn new(pd: Arc<Pd>, handler: Arc<H>, size: Size) -> Result<Self> {
        let cm_id = pd.id().clone();
        let send_wr = size.send_wr + Size::MARKER;
        let recv_wr = size.recv_wr + Size::MARKER;
        let cq = Cq::new(cm_id.clone(), handler, send_wr + recv_wr, size.recv_batch)?;
        // ib_core makes the send queue larger by what registrations take (rdma_rw_init_qp).
        let added = match size.rw_registrations {
            0 => 0,
            // SAFETY: the device is valid while the id is; nothing is kept.
            contexts => unsafe {
                bindings::rdma_rw_max_send_wr(cm_id.device(), cm_id.port(), contexts, 0)
            },
        };
        let mut attr = bindings::ib_qp_init_attr {
            qp_context: cq.shared().cast(),
            port_num: if size.rw_registrations == 0 {
                0
            } else {
                cm_id.port()
            },
            send_cq: cq.as_raw(),
            recv_cq: cq.as_raw(),
            cap: bindings::ib_qp_cap {
                max_send_wr: send_wr.checked_sub(added).ok_or(EINVAL)?,
                max_recv_wr: recv_wr,
                max_send_sge: size.rw_sge,
                max_recv_sge: 1,
                max_rdma_ctxs: size.rw_registrations,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: id, domain and queue are valid, and kept by the `Qp`.
        to_result(unsafe { bindings::rdma_create_qp(cm_id.as_raw(), pd.as_raw(), &mut attr) })?;
        // SAFETY: the device is valid while the id is.
        let registers = unsafe { Registers::of(cm_id.device(), cm_id.port()) };
        // SAFETY: rdma_create_qp() has set it.
        let raw = NonNull::new(unsafe { (*cm_id.as_raw()).qp }).ok_or(ENOMEM)?;
        // From here on the queue pair has an owner, which destroys it before its queue.
        // INVARIANT: created just now.
        let qp = Self {
            raw,
            id: QpId::next(),
            size,
            registers,
            cm_id,
            pd,
            _cq: cq,
        };
        // SAFETY: created with this queue, and nothing was posted yet.
        unsafe { qp._cq.set_qp(qp.raw.as_ptr(), qp.id) };
        Ok(qp)
    }

    /// What tells the queue pair from others.
    pub(super) fn id(&self) -> QpId {
        self.id
    }

    pub(super) fn size(&self) -> &Size {
        &self.size
    }

    /// How many work requests fit when no others are there but Sends that owe no completion. As
    /// many find room in the end.
    pub(crate) fn most(&self) -> u32 {
        let size = &self.size;
        size.send_room.saturating_sub(size.signal_interval)
    }

    /// For how many RDMA Reads or Writes there are registrations, if the device needs some.
    pub(crate) fn registrations(&self) -> u32 {
        self.size.rw_registrations
    }

    /// Whether memory is registered for RDMA Reads (`FromDevice`), or Writes (`ToDevice`).
    pub(super) fn registers(&self, direction: Direction) -> bool {
        match direction {
            Direction::FromDevice => self.registers.reads,
            Direction::ToDevice => self.registers.writes,
        }
    }

    /// How many of these it takes at most to move `pages` pages at once. Context: any.
    pub(crate) fn registrations_for(&self, pages: u32) -> u32 {
        // SAFETY: `rdma_cm_id.device` is valid while the id is; nothing is kept.
        unsafe { bindings::rdma_rw_mr_factor(self.cm_id.device(), self.cm_id.port(), pages) }
    }

    /// The protection domain.
    pub(super) fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Ends all work: what was posted has come back, and its completions have been handled. There
    /// is no proof if the device keeps work requests that owe a completion.
    ///
    /// Receives first, because handling what they brought posts invalidations.
    ///
    /// Context: process, sleeps; not from a completion.
    pub(crate) fn drain(&self) -> Option<Drained> {
        // ib_drain_sq() returns without a word when it could not change the queue pair's state or
        // post its marker. Look what it has done, and try again: a task that gave up its RPC may
        // have posted an invalidation behind the marker.
        for attempt in 0..DRAIN_ATTEMPTS {
            if attempt != 0 {
                fsleep(DRAIN_PAUSE);
            }
            let failed = self.enter_error_state();
            // Not when there is nothing in it: soft RoCE that finds no memory while it connects a
            // queue pair stops receiving for good (rxe_qp_from_attr), and gives back no marker.
            if self.shared().receives.load(Relaxed) {
                // SAFETY: the queue pair is valid, and its queues have room for the marker.
                unsafe { bindings::ib_drain_rq(self.as_raw()) };
            }
            // SAFETY: the queue pair is valid, and its queues have room for the marker.
            unsafe { bindings::ib_drain_sq(self.as_raw()) };
            if failed.is_ok() && self.shared().owed.load(Relaxed) == 0 {
                return Some(Drained::by_drain(self.id));
            }
        }
        pr_err!("the RDMA device does not give back what was posted to it\n");
        None
    }

    /// The device stops to execute work requests, and to answer the peer's accesses.
    fn enter_error_state(&self) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        // SAFETY: the queue pair is valid; only the state is looked at, and nothing is kept.
        to_result(unsafe {
            bindings::ib_modify_qp(
                self.as_raw(),
                &mut attr,
                bindings::ib_qp_attr_mask_IB_QP_STATE as i32,
            )
        })
    }
}

/// How many times a queue pair is drained before it counts as broken, and the time between.
const DRAIN_ATTEMPTS: u32 = 50;
const DRAIN_PAUSE: Delta = Delta::from_millis(100);

impl<H: Handler> core::ops::Deref for Qp<H> {
    type Target = QpRef<H>;

    fn deref(&self) -> &QpRef<H> {
        // SAFETY: valid by the type invariant, until drop.
        unsafe { QpRef::from_raw(self.raw.as_ptr()) }
    }
}

impl<H: Handler> Drop for Qp<H> {
    fn drop(&mut self) {
        // Boxes that are still posted come back through their completions.
        let _ = self.drain();
        // SAFETY: `raw` is the queue pair of the id, by the type invariant; nobody borrows it.
        unsafe { bindings::rdma_destroy_qp(self.cm_id.as_raw()) };
    }
}
