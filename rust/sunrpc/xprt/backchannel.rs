// SPDX-License-Identifier: GPL-2.0

//! Calls of the server, on the connection that the client made (NFSv4.1 and later).
//!
//! A Call is copied out of its Receive, so the callback service holds no buffer of the connection.
//! Slots are made when the upper layer asks for a backchannel, and receiving a Call does not
//! allocate memory. A server that sends more Calls than there are slots loses its connection.
//!
//! A Call may arrive while there is a connection and no callback service: before the upper layer
//! has set it up, after the upper layer has taken it down, and while the transport is destroyed.
//! Such a Call is dropped without touching the transport's reference count.

use super::{
    instance::Instance,
    send_lock::SendLock,
    transport::{
        Transport,
        XprtSendError, //
    },
    Xprt, //
};
use crate::{
    bindings,
    sunrpc::xdr_buf::CallBuf,
    support::memory::PAGE_SIZE, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    ffi::{
        c_int,
        c_uint, //
    },
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        SpinLock, //
    },
    types::Opaque, //
};

/// The number of Calls of the server that may be in progress, which the server gets.
pub(crate) const SLOTS: u32 = 16;

/// The number of places for Calls. A place is freed when the Reply's task has ended. By then the server may
/// have received the Reply and sent its next Call, so each slot may need two places.
const PLACES: usize = 2 * SLOTS as usize;

/// The most bytes of such a Call, or of its Reply.
const MESSAGE: usize = 4096;

/// The length of a Reply's buffer: svcxdr_init_encode() lets a Reply grow up to a page.
const REPLY_BUFFER: usize = PAGE_SIZE as usize;

/// A Call of the server, and the place for its Reply.
#[repr(C)]
struct CallbackSlot {
    rqst: Opaque<bindings::rpc_rqst>,
    call: KVec<u8>,
    reply: KVec<u8>,
}

// SAFETY: a `CallbackSlot` belongs to the pool or to one callback; no field belongs to a task.
unsafe impl Send for CallbackSlot {}

impl CallbackSlot {
    /// Makes a slot with its buffers. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    fn new() -> Result<KBox<Self>> {
        // A slot's address must not change while a callback has it: it stays in its box.
        Ok(KBox::new(
            Self {
                rqst: Opaque::new(bindings::rpc_rqst::default()),
                call: KVec::from_elem(0, MESSAGE, GFP_KERNEL)?,
                reply: KVec::from_elem(0, REPLY_BUFFER, GFP_KERNEL)?,
            },
            GFP_KERNEL,
        )?)
    }

    /// Fills the slot with a Call; says whether it fits.
    fn fill(&mut self, xprt: &Xprt, xid: u32, call: &[u8]) -> bool {
        let Some(to) = self.call.get_mut(..call.len()) else {
            return false;
        };
        to.copy_from_slice(call);
        let mut rqst = bindings::rpc_rqst {
            rq_xprt: xprt.as_raw(),
            rq_xid: u32::from_ne_bytes(xid.to_be_bytes()),
            // Tells the core that the request is one of the backchannel.
            rq_bc_pa_state: 1 << bindings::RPC_BC_PA_IN_USE,
            // The Reply takes no credit. Said to have one, it goes ahead of Calls that wait for
            // theirs, and does not wait with them: the server may need it to answer the others.
            //= V1-119
            rq_cong: 1,
            ..Default::default()
        };
        rqst.rq_private_buf.len = call.len() as u32;
        rqst.rq_rcv_buf.head[0].iov_base = self.call.as_mut_ptr().cast();
        rqst.rq_rcv_buf.head[0].iov_len = call.len();
        rqst.rq_rcv_buf.len = call.len() as u32;
        rqst.rq_snd_buf.head[0].iov_base = self.reply.as_mut_ptr().cast();
        rqst.rq_snd_buf.head[0].iov_len = REPLY_BUFFER;
        rqst.rq_snd_buf.buflen = REPLY_BUFFER as u32;
        self.rqst = Opaque::new(rqst);
        true
    }
}

/// The reason why a Call of the server was not handed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallbackRefused {
    /// There is no callback service (yet, or any more): drop the Call.
    NoService,
    /// The server has more Calls in progress, or a larger one, than it was told it may.
    Excess,
}

/// The slots of a transport that no callback has.
#[pin_data]
pub(crate) struct Backchannel {
    /// Protects the free slots; has room for all there are.
    #[pin]
    free: SpinLock<KVec<KBox<CallbackSlot>>>,
    made: Atomic<bool>,
}

impl Backchannel {
    /// Initializes a backchannel without slots.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            free <- new_spinlock!(KVec::new()),
            made: Atomic::new(false),
        })
    }

    /// Makes the slots, once. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    fn open(&self) -> Result {
        if self.made.load(Relaxed) {
            return Ok(());
        }
        let mut slots = KVec::with_capacity(PLACES, GFP_KERNEL)?;
        for _ in 0..PLACES {
            slots.push(CallbackSlot::new()?, GFP_KERNEL)?;
        }
        let mut free = self.free.lock();
        if !self.made.load(Relaxed) {
            core::mem::swap(&mut *free, &mut slots);
            self.made.store(true, Relaxed);
        }
        drop(free);
        Ok(())
    }

    /// Hands a Call, an RPC message whose XID is `xid`, to the callback service.
    ///
    /// Context: process, does not sleep. Takes bc_pa_lock. Neither takes nor gives a reference of
    /// the transport unless there is a service.
    ///
    /// # Errors
    ///
    /// [`CallbackRefused::NoService`]: there is no callback service. [`CallbackRefused::Excess`]: no slot is free,
    /// or the Call is too long.
    pub(crate) fn receive(
        &self,
        xprt: &Xprt,
        xid: u32,
        call: &[u8],
    ) -> Result<(), CallbackRefused> {
        if !xprt.has_callback_service() {
            return Err(CallbackRefused::NoService);
        }
        let slot = self.free.lock().pop();
        let Some(mut slot) = slot else {
            return Err(CallbackRefused::Excess);
        };
        if !slot.fill(xprt, xid, call) {
            self.put(slot);
            return Err(CallbackRefused::Excess);
        }
        let rqst: *mut bindings::rpc_rqst = KBox::into_raw(slot).cast();
        // SAFETY: the request is complete, and of a transport that is alive. The callback
        // service gives it back by the `bc_free_rqst` operation.
        if !unsafe { bindings::rpcrdma_xprt_try_enqueue_bc_request(rqst) } {
            // SAFETY: rpcrdma_xprt_try_enqueue_bc_request() did not take the request, so the box is still ours.
            self.put(unsafe { KBox::from_raw(rqst.cast::<CallbackSlot>()) });
            return Err(CallbackRefused::NoService);
        }
        Ok(())
    }

    fn put(&self, slot: KBox<CallbackSlot>) {
        // There is room for all slots, so this does not allocate.
        let _ = self.free.lock().push_within_capacity(slot);
    }
}

/// The operations of the backchannel.
pub(super) struct Ops<T: Transport>(PhantomData<T>);

impl<T: Transport> Ops<T> {
    /// # Safety
    ///
    /// Called by xprt_setup_backchannel only, for a transport that `setup` made.
    pub(super) unsafe extern "C" fn setup_callback(
        xprt: *mut bindings::rpc_xprt,
        _reqs: c_uint,
    ) -> c_int {
        // SAFETY: the caller promises a transport that `setup` made.
        let this = unsafe { Instance::<T>::from_raw(xprt) };
        match this.shared().transport.backchannel().open() {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by rpc_max_bc_payload only, for a transport that `setup` made, and in an RCU
    /// read-side section.
    pub(super) unsafe extern "C" fn maxpayload_callback(xprt: *mut bindings::rpc_xprt) -> usize {
        // SAFETY: the caller promises a transport that `setup` made.
        let this = unsafe { Instance::<T>::from_raw(xprt) };
        this.shared().transport.max_callback().min(MESSAGE)
    }

    /// Returns the number of Calls that the upper layer offers to the server.
    pub(super) extern "C" fn num_slots_callback(_xprt: *mut bindings::rpc_xprt) -> c_uint {
        SLOTS
    }

    /// # Safety
    ///
    /// Called by xprt_free_bc_request only, for a request that [`Backchannel::receive`] handed to
    /// the core, and which is not used any more.
    pub(super) unsafe extern "C" fn free_rqst_callback(rqst: *mut bindings::rpc_rqst) {
        // SAFETY: the request is the first field of a `#[repr(C)]` slot that was boxed.
        let slot = unsafe { KBox::from_raw(rqst.cast::<CallbackSlot>()) };
        // SAFETY: the slot is ours again, and `fill` has set the field.
        let xprt = unsafe { (*slot.rqst.get()).rq_xprt };
        // SAFETY: `rq_xprt` has a reference, which xprt_get() took for the request; the transport is one of ours.
        let this = unsafe { Instance::<T>::from_raw(xprt) };
        this.shared().transport.backchannel().put(slot);
        // SAFETY: the reference that rpcrdma_xprt_try_enqueue_bc_request took.
        unsafe { bindings::xprt_put(xprt) };
    }

    /// Keeps the slots until the transport ends, because callbacks may still have some.
    pub(super) extern "C" fn destroy_callback(_xprt: *mut bindings::rpc_xprt, _reqs: c_uint) {}

    /// Sends the Reply to a Call of the server.
    ///
    /// # Errors
    ///
    /// [`XprtSendError`]: the Reply was not sent.
    ///
    /// # Safety
    ///
    /// To be called for a request that [`Backchannel::receive`] handed to the core and that
    /// belongs to the caller.
    pub(super) unsafe fn send_reply(
        this: &Instance<T>,
        lock: &mut SendLock<'_>,
        rqst: NonNull<bindings::rpc_rqst>,
    ) -> Result<(), XprtSendError> {
        // SAFETY: the request is the caller's; `fill` has set the XID.
        let xid = unsafe { (*rqst.as_ptr()).rq_xid };
        // SAFETY: the buffer holds the encoded Reply (svc_process_bc, xprt_init_bc_request).
        let reply = unsafe { CallBuf::from_raw(&raw const (*rqst.as_ptr()).rq_snd_buf) };
        let xid = u32::from_be_bytes(xid.to_ne_bytes());
        this.shared().transport.send_reply(lock, xid, &reply)
    }
}
