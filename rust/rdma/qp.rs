// SPDX-License-Identifier: GPL-2.0

//! Queue pairs, `struct ib_qp`, and posting to them.

use super::cm::CmId;
use super::cq::{
    unit_done_callback,
    Cq,
    Wqe, //
};
use super::fence::FenceWqe;
use super::mr::{
    Mapped,
    MrList,
    Registered, //
};
use super::pd::Pd;
use super::recv::RecvWqe;
use super::send::{
    SendBufs,
    SendWqe, //
};
use super::Handler;
use crate::bindings;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    SpinLock, //
};
use kernel::types::Opaque;

/// How large a queue pair is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The most work requests in the send queue.
    pub(crate) send_wr: u32,
    /// The most work requests in the receive queue.
    pub(crate) recv_wr: u32,
    /// After so many work requests in the send queue one asks for a completion.
    pub(crate) signal_interval: u32,
}

/// A queue pair that is known to be valid; Receives and fences can be posted to it.
///
/// # Invariants
///
/// The pointer is that of a queue pair whose completion queues were made for `H`, and which
/// cannot be destroyed while this is borrowed.
#[repr(transparent)]
pub(crate) struct QpRef<H>(Opaque<bindings::ib_qp>, PhantomData<H>);

impl<H: Handler> QpRef<H> {
    /// # Safety
    ///
    /// The caller vouches for the type invariant, for `'a`.
    pub(super) unsafe fn from_raw<'a>(qp: *mut bindings::ib_qp) -> &'a Self {
        // SAFETY: a transparent wrapper; promised by the caller.
        unsafe { &*qp.cast::<Self>() }
    }

    /// Posts a Receive. When the queue pair takes none, the buffer comes back.
    ///
    /// Context: any.
    pub(crate) fn post_recv(&self, buffer: KBox<RecvWqe<H>>) -> Result<(), KBox<RecvWqe<H>>> {
        buffer.prepare();
        let mut sge = buffer.sge();
        let cqe = Wqe::into_cqe(buffer);
        let wr = bindings::ib_recv_wr {
            __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 { wr_cqe: cqe },
            sg_list: &mut sge,
            num_sge: 1,
            ..Default::default()
        };
        // SAFETY: the queue pair is valid; work request and element are copied; the completion
        // entry is a box that nobody else has.
        let ret = unsafe { bindings::ib_post_recv(self.0.get(), &wr, core::ptr::null_mut()) };
        if ret == 0 {
            return Ok(());
        }
        // SAFETY: not posted, so no completion comes.
        Err(unsafe { Wqe::from_cqe(cqe) })
    }

    /// Posts a fence over `mrs`; `token` comes back with its completion.
    ///
    /// When the queue pair does not take it, the fence comes back with both inside, as one that
    /// failed.
    ///
    /// Context: any.
    pub(crate) fn post_fence(
        &self,
        mut fence: KBox<FenceWqe<H>>,
        mut mrs: MrList<Registered>,
        token: H::Fenced,
    ) -> Result<(), KBox<FenceWqe<H>>> {
        // All but the last ask for no completion, but get one if they fail: that of the last
        // follows, so they need none of their own. Those of one registration have no others.
        let mut chain = core::ptr::null();
        let last: *mut bindings::ib_cqe = core::ptr::from_mut(&mut *fence).cast();
        let mut cqe = last;
        let unit = self.unit_cqe();
        mrs.for_each(|inner| {
            chain = inner.invalidate_wr(cqe, chain, cqe == last);
            cqe = unit;
        });
        let empty = mrs.is_empty();
        fence.mrs = mrs;
        fence.token = Some(token);
        if empty {
            // Nothing to post means that no completion would come.
            return Err(fence);
        }
        let cqe = Wqe::into_cqe(fence);
        // SAFETY: the queue pair is valid; the chain is copied, and lives in the registrations,
        // which live in the fence; its completion entry is the box that was given away.
        let ret = unsafe { bindings::ib_post_send(self.0.get(), chain, core::ptr::null_mut()) };
        if ret == 0 {
            return Ok(());
        }
        // SAFETY: the chain ended before its last, so no completion comes for the box.
        Err(unsafe { Wqe::from_cqe(cqe) })
    }

    /// The completion entry of work requests that need no reaction.
    fn unit_cqe(&self) -> *mut bindings::ib_cqe {
        // SAFETY: written by `Qp::new`, and constant; valid as long as the queue pair.
        unsafe { (*self.0.get()).qp_context }.cast()
    }
}

/// The Sends whose completion nobody has asked for yet.
struct Unsignaled<H: Handler> {
    buffers: SendBufs<H>,
    work_requests: u32,
}

/// A reliable connected queue pair.
///
/// # Invariants
///
/// `raw` is the queue pair of `created.id`. Its context is `created.unit_cqe`.
#[pin_data(PinnedDrop)]
pub(crate) struct Qp<H: Handler> {
    raw: NonNull<bindings::ib_qp>,
    signal_interval: u32,
    /// Sends under way that no completion was asked for. Protects their order, too: whoever
    /// posts a Send holds this.
    #[pin]
    unsignaled: SpinLock<Unsignaled<H>>,
    _created: Created<H>,
}

/// Owns the queue pair of an id and what it was made of, so that the queue pair goes first,
/// however far its making has come: ib_free_cq() and ib_dealloc_pd() refuse what is in use.
///
/// # Invariants
///
/// rdma_create_qp() has made the queue pair of `id` with the rest.
struct Created<H: Handler> {
    id: Arc<CmId>,
    /// The completion entry of work requests that need no reaction.
    _unit_cqe: KBox<bindings::ib_cqe>,
    _pd: Arc<Pd>,
    _send_cq: Cq<H>,
    _recv_cq: Cq<H>,
}

impl<H: Handler> Drop for Created<H> {
    fn drop(&mut self) {
        // SAFETY: by the type invariant. Nothing is posted: either nothing ever was, or
        // `Qp::drop` has drained the queues.
        unsafe { bindings::rdma_destroy_qp(self.id.as_raw()) };
    }
}

// SAFETY: a queue pair does not belong to a task.
unsafe impl<H: Handler> Send for Qp<H> {}
// SAFETY: posting takes the provider's lock.
unsafe impl<H: Handler> Sync for Qp<H> {}

/// The proof that a queue pair has been drained: it executes nothing any more.
#[derive(Clone, Copy)]
pub(crate) struct Drained {
    qp: usize,
}

impl Drained {
    /// Whether this is about that queue pair.
    pub(super) fn is_of(&self, qp: usize) -> bool {
        self.qp == qp
    }
}

impl<H: Handler> Qp<H> {
    /// A queue pair on the connection of `pd`. Context: may sleep.
    pub(crate) fn new(pd: Arc<Pd>, handler: Arc<H>, size: Size) -> Result<Arc<Self>> {
        let id = pd.id().clone();
        // Room for the work request that marks the end when a queue is drained.
        let send_wr = size.send_wr + 1;
        let recv_wr = size.recv_wr + 1;
        let send_cq = Cq::new(id.clone(), handler.clone(), send_wr)?;
        let recv_cq = Cq::new(id.clone(), handler, recv_wr)?;
        let mut unit_cqe = KBox::new(
            bindings::ib_cqe {
                done: Some(unit_done_callback::<H>),
            },
            GFP_KERNEL,
        )?;
        let mut attr = bindings::ib_qp_init_attr {
            qp_context: core::ptr::from_mut(&mut *unit_cqe).cast(),
            send_cq: send_cq.as_raw(),
            recv_cq: recv_cq.as_raw(),
            cap: bindings::ib_qp_cap {
                max_send_wr: send_wr,
                max_recv_wr: recv_wr,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: id, domain and queues are valid, and kept by the queue pair.
        to_result(unsafe { bindings::rdma_create_qp(id.as_raw(), pd.as_raw(), &mut attr) })?;
        let qp_id = id.as_raw();
        // INVARIANT: created just now.
        let created = Created {
            id,
            _unit_cqe: unit_cqe,
            _pd: pd,
            _send_cq: send_cq,
            _recv_cq: recv_cq,
        };
        // SAFETY: `created` keeps the id, whose `qp` rdma_create_qp has set.
        let raw = NonNull::new(unsafe { (*qp_id).qp }).ok_or(ENOMEM)?;
        Arc::pin_init(
            pin_init!(Self {
                raw,
                signal_interval: size.signal_interval,
                unsignaled <- new_spinlock!(Unsignaled {
                    buffers: SendBufs::new(),
                    work_requests: 0,
                }),
                _created: created,
            }),
            GFP_KERNEL,
        )
    }

    /// Registers `mrs` and sends the first `len` octets of `buffer`, in this order.
    ///
    /// From here on the peer may reach the memory, also when this fails; then the connection
    /// must be closed.
    ///
    /// Context: any; callers serialise their Sends by the lock inside.
    pub(crate) fn send(
        &self,
        mut mrs: MrList<Mapped>,
        buffer: KBox<SendWqe<H>>,
        len: usize,
    ) -> (MrList<Registered>, Result) {
        buffer.prepare(len);
        let mut sge = buffer.sge(len);
        let mut wr = bindings::ib_send_wr {
            sg_list: &mut sge,
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            ..Default::default()
        };
        let unit = self.unit_cqe();
        wr.__bindgen_anon_1.wr_cqe = unit;

        let mut unsignaled = self.unsignaled.lock();
        unsignaled.work_requests += 1;
        mrs.for_each(|_| unsignaled.work_requests += 1);
        let mut signaled = None;
        if unsignaled.work_requests >= self.signal_interval {
            unsignaled.work_requests = 0;
            let mut buffer = buffer;
            buffer.covers = core::mem::take(&mut unsignaled.buffers);
            let cqe = Wqe::into_cqe(buffer);
            wr.__bindgen_anon_1.wr_cqe = cqe;
            wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
            signaled = Some(cqe);
        } else {
            unsignaled.buffers.push(buffer);
        }
        let qp = self.raw.as_ptr().addr();
        let mut chain: *const bindings::ib_send_wr = &wr;
        mrs.for_each(|inner| chain = inner.register_wr(qp, unit, chain));
        // SAFETY: the queue pair is valid; the chain is copied. The buffer is in the box that the
        // completion entry is part of, or in the list of those that a later completion covers.
        let ret =
            unsafe { bindings::ib_post_send(self.raw.as_ptr(), chain, core::ptr::null_mut()) };
        if ret != 0 {
            if let Some(cqe) = signaled {
                // SAFETY: the Send is the last of the chain, so it was not posted.
                let mut buffer: KBox<SendWqe<H>> = unsafe { Wqe::from_cqe(cqe) };
                // The connection ends; the buffers stay here until it is drained.
                let covers = core::mem::take(&mut buffer.covers);
                unsignaled.buffers.append(covers);
                unsignaled.buffers.push(buffer);
            }
        }
        drop(unsignaled);
        (mrs.registered(), to_result(ret))
    }

    /// Ends all work: what was posted has come back, and its completions have been handled.
    ///
    /// Receives first, because handling what they brought posts fences.
    ///
    /// Context: process, sleeps; not from a completion.
    pub(crate) fn drain(&self) -> Drained {
        // SAFETY: the queue pair is valid, and its queues have room for the marker.
        unsafe { bindings::ib_drain_rq(self.raw.as_ptr()) };
        // SAFETY: as above.
        unsafe { bindings::ib_drain_sq(self.raw.as_ptr()) };
        Drained {
            qp: self.raw.as_ptr().addr(),
        }
    }
}

impl<H: Handler> core::ops::Deref for Qp<H> {
    type Target = QpRef<H>;

    fn deref(&self) -> &QpRef<H> {
        // SAFETY: by the type invariant; destroyed in drop.
        unsafe { QpRef::from_raw(self.raw.as_ptr()) }
    }
}

#[pinned_drop]
impl<H: Handler> PinnedDrop for Qp<H> {
    fn drop(self: Pin<&mut Self>) {
        // Boxes that are still posted come back through their completions.
        let _ = self.drain();
    }
}
