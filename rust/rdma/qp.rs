// SPDX-License-Identifier: GPL-2.0

//! Queue pairs, `struct ib_qp`: created, drained, destroyed.
//!
//! The functions that post work requests are in the files of the objects: [`recv`](super::recv),
//! [`send`](super::send), [`local_inv`](super::local_inv).
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{
    cm::{
        AcceptParams,
        CmId,
        ConnectParams, //
    },
    cq::{
        self,
        Cq,
        CqShared, //
    },
    device::Registers,
    dma::Direction,
    ledger::Ledger,
    pd::Pd,
    proof::{
        Destroyed,
        QpId, //
    },
    Handler, //
};
use crate::{
    bindings,
    support::errno, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::c_void,
    pr_warn_once,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    types::Opaque, //
};

/// The size of a queue pair, in work requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The most in the send queue, invalidations among them.
    pub(crate) send_wr: u32,
    /// Of these, the most for Sends and the registrations before them.
    pub(crate) send_room: u32,
    /// The most in the receive queue.
    pub(crate) recv_wr: u32,
    /// The number of work requests for Sends after which a Send is signaled.
    pub(crate) signal_interval: u32,
    /// The most pieces of memory of one RDMA Read or Write; 1 if there are none.
    pub(crate) rw_sge: u32,
    /// The number of RDMA Reads at a time with registrations, on a device that needs registrations;
    /// 0 if there are no RDMA Reads and Writes.
    pub(crate) rw_registrations: u32,
}

impl Size {
    /// The room that ib_drain_sq() and ib_drain_rq() need in each queue for their marker.
    pub(crate) const MARKER: u32 = 1;

    /// Returns the number of work requests that fit beside Sends that owe no completion.
    const fn max_work_requests(&self) -> u32 {
        self.send_room.saturating_sub(self.signal_interval)
    }
}

/// An asynchronous event of a queue pair or of its device (`enum ib_event_type`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpEvent(bindings::ib_event_type);

impl QpEvent {
    pub(super) fn new(event: bindings::ib_event_type) -> Self {
        Self(event)
    }

    /// Returns whether the queue pair still works: the connection is established or has moved to another path,
    /// or a queue has been drained on request of this side.
    fn is_harmless(self) -> bool {
        matches!(
            self.0,
            bindings::ib_event_type_IB_EVENT_COMM_EST
                | bindings::ib_event_type_IB_EVENT_PATH_MIG
                | bindings::ib_event_type_IB_EVENT_SQ_DRAINED
                | bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED
        )
    }

    /// Returns the value of `enum ib_event_type`, for traces.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns the event in words.
    pub(crate) fn message(self) -> &'static str {
        // SAFETY: ib_event_msg() takes any value and returns a constant string.
        let message = unsafe { CStr::from_char_ptr(bindings::ib_event_msg(self.0)) };
        message.to_str().unwrap_or("unknown")
    }
}

/// A queue pair that is known to be valid; Receives and invalidations can be posted to it.
///
/// # Invariants
///
/// The pointer is the pointer of a queue pair that `Qp::<H>::new` made, and which cannot be destroyed
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

    /// Gives a chain of work requests to the driver, as ib_post_send() does.
    ///
    /// Returns the driver's return value, a negative error number or 0.
    ///
    /// # Safety
    ///
    /// The chain must be valid during the call. The memory that it refers to must be valid until its last
    /// work request has completed or the queue pair is destroyed. A completion entry in it must belong to a
    /// [`Wqe`](super::wqe::Wqe) that was given away, or be [`unit_cqe`](super::wqe::unit_cqe).
    #[inline]
    pub(super) unsafe fn post_chain(&self, chain: *const bindings::ib_send_wr) -> i32 {
        // SAFETY: the `ib_qp` is valid; `device` is set by ib_create_qp() and constant.
        let device = unsafe { (*self.as_raw()).device };
        // SAFETY: `rdma_cm_id.device` stays while the id does, which is destroyed after the queue pair.
        // ib_set_device_ops() has set the operations before the device was registered.
        let post_send = unsafe { (*device).ops.post_send };
        // A device that fails on demand (rust/standins/faults.c).
        #[cfg(rpcrdma_faults)]
        let post_send = post_send.map(|_| bindings::rpcrdma_fault_post_send);
        let Some(post_send) = post_send else {
            return errno::not_supported().to_errno();
        };
        let mut refused = core::ptr::null();
        // SAFETY: the queue pair is valid, and the caller vouches for the chain.
        unsafe { post_send(self.as_raw(), chain, &mut refused) }
    }

    /// Returns the ledger of posted boxes.
    #[inline(always)]
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.shared().ledger
    }

    /// Returns the handler of the events and completions.
    pub(crate) fn handler(&self) -> &H {
        self.shared().handler()
    }

    /// Returns the number of Receives that are posted, for traces. Counts them one by one.
    #[cold]
    pub(crate) fn posted_receives(&self) -> u32 {
        self.ledger().posted_receives()
    }

    /// Returns the restrack number of the completion queue, for traces.
    #[cold]
    pub(crate) fn cq_id(&self) -> u32 {
        // SAFETY: the `ib_qp` is valid; `send_cq` is set by ib_create_qp() and constant.
        let cq = unsafe { (*self.as_raw()).send_cq };
        // SAFETY: `Qp` frees the queue after the queue pair.
        unsafe { cq::restrack_id(cq) }
    }

    /// Returns the number of the connection's port.
    pub(super) fn port(&self) -> u32 {
        // SAFETY: the `ib_qp` is valid; `port` is set by ib_create_qp() and constant.
        unsafe { (*self.0.get()).port }
    }

    /// Returns the data that are shared with the completions.
    #[inline]
    pub(super) fn shared(&self) -> &CqShared<H> {
        // SAFETY: the `ib_qp` is valid; `qp_context` is set by `Qp::new` and constant.
        let shared = unsafe { (*self.0.get()).qp_context };
        // SAFETY: `Cq` owns it, which `Qp` drops after the queue pair.
        unsafe { &*shared.cast::<CqShared<H>>() }
    }
}

/// A reliable connected queue pair.
///
/// The queue pair of a side that opens a connection is not the queue pair of its id, except with iWARP:
/// [`Self::establish`] and [`Self::disconnect`] change its state, in the context of the caller. rdma_cm would change
/// it in a work of ib_cm, where a driver that allocates memory waits for the kernel to swap pages out. If the
/// kernel swaps over this connection, it would wait for ever.
///
/// # Invariants
///
/// `raw` is a queue pair on the device of `cm_id`, created with `cq`, whose `CqShared` is its context. It is the queue
/// pair of `cm_id`, or else `is_own` is set. It is valid unless `destroyed` is set, which only the last use of a `Qp`
/// does.
pub(crate) struct Qp<H: Handler> {
    raw: NonNull<bindings::ib_qp>,
    destroyed: bool,
    /// Set if this module changes the state of the queue pair, not set if rdma_cm does.
    is_own: bool,
    id: QpId,
    size: Size,
    registers: Registers,
    /// The values of [`Self::most_pieces`] for RDMA Reads and for RDMA Writes.
    most_pieces: (u32, u32),
    // ib_free_cq() and ib_dealloc_pd() refuse objects in use, so these are dropped after the queue pair.
    cm_id: Arc<CmId>,
    pd: Arc<Pd>,
    cq: Cq<H>,
}

// SAFETY: a `struct ib_qp` does not belong to a task.
unsafe impl<H: Handler> Send for Qp<H> {}
// SAFETY: ib_post_send() and ib_post_recv() take the provider's lock, ib_modify_qp() and the
// functions that drain may run beside them.
unsafe impl<H: Handler> Sync for Qp<H> {}

impl<H: Handler> Qp<H> {
    /// Makes a queue pair on the connection of `pd`, which this side `opens` or accepts. Context: process, may
    /// sleep.
    ///
    /// # Errors
    ///
    /// The error of the driver; `EINVAL` often means that `size` is beyond the device.
    pub(crate) fn new(pd: Arc<Pd>, handler: Arc<H>, size: Size, opens: bool) -> Result<Self> {
        let cm_id = pd.id().clone();
        let send_wr = size.send_wr + Size::MARKER;
        let recv_wr = size.recv_wr + Size::MARKER;
        let cq = Cq::new(cm_id.clone(), handler, send_wr + recv_wr)?;
        // ib_core adds entries for registrations to the send queue (rdma_rw_init_qp).
        let added = match size.rw_registrations {
            0 => 0,
            // SAFETY: `rdma_cm_id.device` is valid while the id is. rdma_rw_max_send_wr() keeps nothing.
            contexts => unsafe {
                bindings::rdma_rw_max_send_wr(cm_id.device(), cm_id.port(), contexts, 0)
            },
        };
        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(event_callback::<H>),
            qp_context: cq.as_context().cast(),
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
        let is_own = opens && !cm_id.is_iwarp();
        // SAFETY: id, domain and queue are valid, and kept by the `Qp`.
        let raw = unsafe { create(&cm_id, &pd, &mut attr, is_own) }?;
        // From here on the queue pair has an owner, which destroys it before its queue.
        // INVARIANT: created just now.
        let mut qp = Self {
            raw,
            destroyed: false,
            is_own,
            id: QpId::next(),
            size,
            // SAFETY: `rdma_cm_id.device` is valid while the id is, and has the port `port_num`.
            registers: unsafe { Registers::of(cm_id.device(), cm_id.port()) },
            most_pieces: (0, 0),
            cm_id,
            pd,
            cq,
        };
        // SAFETY: contract of `set_qp`: created with this queue, and no work request was posted yet.
        unsafe { qp.cq.set_qp(qp.raw.as_ptr(), qp.id) };
        if size.rw_registrations != 0 {
            qp.prepare_for_rw();
        }
        Ok(qp)
    }

    /// Finds the limits of rdma_rw contexts on this queue pair. Context: process, may sleep.
    fn prepare_for_rw(&mut self) {
        let raw = self.raw.as_ptr();
        if self.registers.uncertain {
            // SAFETY: ib_create_qp() has made the queue pair, with registrations (`max_rdma_ctxs`).
            unsafe { Registers::learn(raw) };
            // SAFETY: `rdma_cm_id.device` is valid while the id is, and has the port `port_num`.
            self.registers = unsafe { Registers::of(self.cm_id.device(), self.cm_id.port()) };
        }
        // SAFETY: a valid queue pair, whose limits are constant since ib_create_qp().
        let (read, write) = unsafe { ((*raw).max_read_sge, (*raw).max_write_sge) };
        let Registers {
            reads,
            writes,
            pages,
            ..
        } = self.registers;
        let most = |registered, sges: u32| match registered {
            true => pages,
            false => sges.max(1).saturating_mul(self.max_work_requests()),
        };
        self.most_pieces = (most(reads, read), most(writes, write));
    }

    /// Returns the identity of the queue pair.
    pub(super) fn id(&self) -> QpId {
        self.id
    }

    /// Returns the number of the queue pair that the connection manager tells the peer.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is valid by the type invariant; its number is constant.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    pub(super) fn size(&self) -> &Size {
        &self.size
    }

    /// Sets the number of Receives that completions repost together. There must be `batch` Receives more than
    /// the peer has credits for. Until this is called, each Receive is reposted at once.
    pub(crate) fn set_recv_batch(&self, batch: u32) {
        self.shared().recv_batch.set(batch.max(1));
    }

    /// Returns the number of work requests that fit when the send queue has only unsignaled Sends. This number
    /// of work requests always fits in the end.
    pub(crate) fn max_work_requests(&self) -> u32 {
        self.size.max_work_requests()
    }

    /// Returns the number of RDMA Reads or Writes with registrations, if the device needs
    /// registrations.
    pub(crate) fn registrations(&self) -> u32 {
        self.size.rw_registrations
    }

    /// Returns whether memory is registered for RDMA Reads (`FromDevice`), or Writes (`ToDevice`).
    pub(crate) fn registers(&self, direction: Direction) -> bool {
        match direction {
            Direction::FromDevice => self.registers.reads,
            Direction::ToDevice => self.registers.writes,
        }
    }

    /// Returns the most pieces of memory of one rdma_rw context: the pages of a registration, or the
    /// pieces that fit the send queue.
    #[inline]
    pub(super) fn most_pieces(&self, direction: Direction) -> u32 {
        match direction {
            Direction::FromDevice => self.most_pieces.0,
            Direction::ToDevice => self.most_pieces.1,
        }
    }

    /// Returns the protection domain.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the longest piece of memory of an rdma_rw context, in bytes. Where memory is registered,
    /// ib_core counts pieces as pages (rdma_rw_init_mr_wrs_bvec), so that pages are not joined.
    pub(super) fn longest_piece(&self, direction: Direction) -> u32 {
        if self.registers(direction) {
            0
        } else {
            self.pd.max_segment()
        }
    }

    /// Starts to connect. [`CmEvent::Established`](super::cm::CmEvent::Established) reports that the peer has
    /// accepted, and [`Self::establish`] follows. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the route is not resolved. `ENOMEM`, or the error of the driver.
    pub(crate) fn connect(&self, params: &ConnectParams) -> Result {
        if !self.is_own {
            // The provider connects it at any time from now on.
            self.shared().connected.store(true, Relaxed);
        }
        self.cm_id.connect(params, self.number())
    }

    /// Makes the queue pair receive and send, and tells the peer so. Called once after the peer has accepted. Context:
    /// process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the connection has ended. `ENOMEM`, or the error of the driver.
    pub(crate) fn establish(&self) -> Result {
        if !self.is_own {
            return Ok(());
        }
        // SAFETY: type invariant: the queue pair is valid, and on the device of the id.
        to_result(unsafe { bindings::rpcrdma_qp_connect(self.cm_id.as_raw(), self.as_raw()) })?;
        self.shared().connected.store(true, Relaxed);
        self.cm_id.confirm()
    }

    /// Accepts the connection, by which rdma_cm makes the queue pair receive and send. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// As for [`CmId::accept`].
    pub(crate) fn accept(&self, params: &AcceptParams) -> Result {
        self.cm_id.accept(params)?;
        self.shared().connected.store(true, Relaxed);
        Ok(())
    }

    /// Ends the connection: the queue pair goes to the error state, so that all work requests come back. Returns 0,
    /// or an error number if the connection has ended already, for traces. Context: process, may sleep.
    pub(crate) fn disconnect(&self) -> i32 {
        if self.is_own {
            // SAFETY: type invariant: the queue pair is valid. An error is reported by `Self::drain`.
            unsafe { bindings::rpcrdma_qp_fail(self.as_raw()) };
        }
        self.cm_id.disconnect()
    }

    /// Ends all work and destroys the queue pair. It is taken by value, so
    /// [`Completions`](super::cq::Completions) alone have it besides, and these end first.
    ///
    /// Boxes that the device has not given back come back here: invalidations by
    /// [`Invalidates::invalidation_failed`](super::Invalidates::invalidation_failed); all others are freed.
    ///
    /// Context: process, may sleep. Not called from a completion.
    pub(crate) fn destroy(mut self) -> Destroyed {
        self.end()
    }

    fn end(&mut self) -> Destroyed {
        self.drain();
        self.cq.stop();
        let shared = self.cq.shared();
        let qp: *const QpRef<H> = &raw const **self;
        // SAFETY: the queue pair is `H`'s, and valid. `self` is borrowed alone, so nothing is posted but by
        // completions, which have been stopped.
        unsafe { shared.ledger.withdraw(qp.cast()) };
        self.destroyed = true;
        if self.is_own {
            // SAFETY: the queue pair is valid by the type invariant, and not borrowed.
            unsafe { bindings::ib_destroy_qp_user(self.raw.as_ptr(), core::ptr::null_mut()) };
        } else {
            // SAFETY: `raw` is the queue pair of the id, by the type invariant, and not borrowed.
            unsafe { bindings::rdma_destroy_qp(self.cm_id.as_raw()) };
        }
        let handler: *const H = shared.handler();
        // SAFETY: ib_destroy_qp_user() has destroyed the queue pair, and `Cq::stop` has ended its completions
        // (disable_work_sync()). The handler is the queue pair's.
        unsafe { shared.ledger.reclaim(handler.cast(), &self.pd) };
        let owed = shared.owed.load(Relaxed);
        if owed != 0 {
            pr_warn_once!(
                "an RDMA device has not completed {owed} work requests of a connection; \
                 they have ended with its queue pair\n"
            );
        }
        Destroyed::by_destruction(self.id)
    }

    /// Makes the device give back all work requests, and waits until their completions have been handled.
    ///
    /// Receives come first, because handling a message posts invalidations.
    fn drain(&self) {
        // SAFETY: type invariant: the queue pair is valid.
        if let Err(error) = to_result(unsafe { bindings::rpcrdma_qp_fail(self.as_raw()) }) {
            // ib_drain_rq() and ib_drain_sq() could not do it either, and would only warn.
            pr_warn_once!(
                "an RDMA device does not end the work of a queue pair: error {}\n",
                error.to_errno()
            );
            return;
        }
        // A device may not have the state of a queue pair that was never connected, and gives back no marker then
        // (qed_roce_modify_qp). Soft RoCE that finds no memory while it connects a queue pair stops receiving for
        // good (rxe_qp_from_attr). The destruction of such a queue pair ends its Receives.
        if !self.shared().connected.load(Relaxed) {
            return;
        }
        // SAFETY: type invariant: the queue pair is valid. Its queues have an entry for the marker of
        // ib_drain_qp().
        unsafe { bindings::ib_drain_rq(self.as_raw()) };
        // SAFETY: type invariant: the queue pair is valid. Its queues have an entry for the marker of
        // ib_drain_qp().
        unsafe { bindings::ib_drain_sq(self.as_raw()) };
    }
}

impl<H: Handler> core::ops::Deref for Qp<H> {
    type Target = QpRef<H>;

    fn deref(&self) -> &QpRef<H> {
        // SAFETY: valid by the type invariant, until `Self::end`, whose callers use it no more.
        unsafe { QpRef::from_raw(self.raw.as_ptr()) }
    }
}

impl<H: Handler> Drop for Qp<H> {
    fn drop(&mut self) {
        if !self.destroyed {
            self.end();
        }
    }
}

/// Creates a queue pair, which is the queue pair of `cm_id` unless it `is_own`. Context: process, may sleep.
///
/// # Errors
///
/// The error of the driver.
///
/// # Safety
///
/// The completion queue of `attr` must be valid. It must be freed after the queue pair, and so must `cm_id` and `pd`.
unsafe fn create(
    cm_id: &CmId,
    pd: &Pd,
    attr: &mut bindings::ib_qp_init_attr,
    is_own: bool,
) -> Result<NonNull<bindings::ib_qp>> {
    let raw = if is_own {
        // SAFETY: id and domain are valid, and so is the queue, as the caller promises.
        from_err_ptr(unsafe { bindings::rpcrdma_qp_create(cm_id.as_raw(), pd.as_raw(), attr) })?
    } else {
        // SAFETY: id and domain are valid, and so is the queue, as the caller promises.
        to_result(unsafe { bindings::rdma_create_qp(cm_id.as_raw(), pd.as_raw(), attr) })?;
        // SAFETY: rdma_create_qp() has set it.
        unsafe { (*cm_id.as_raw()).qp }
    };
    NonNull::new(raw).ok_or(ENOMEM)
}

/// Handles an event of the queue pair. Called by a driver, by way of ib_core (`__ib_qp_event_handler`), in any
/// context, and not any more once ib_destroy_qp_user() has returned.
///
/// # Safety
///
/// `context` must be the context of a queue pair of [`Qp::<H>`], and `event` one of its events.
unsafe extern "C" fn event_callback<H: Handler>(
    event: *mut bindings::ib_event,
    context: *mut c_void,
) {
    // SAFETY: `ib_qp.qp_context` comes from `Qp::new`, and `Qp` drops it after the queue pair.
    let shared = unsafe { &*context.cast::<CqShared<H>>() };
    // SAFETY: the caller's, on its stack meanwhile.
    let event = unsafe { (*event).event };
    if !QpEvent(event).is_harmless() {
        shared.event.target().note(event);
        shared.event.request();
    }
}
