// SPDX-License-Identifier: GPL-2.0

//! Request slots: the memory that requests live in, and who has it.
//!
//! A slot belongs either to the table or to one RPC task. It holds the `rpc_rqst`, the buffers
//! that the Call is encoded into and the Reply is decoded from, and what the transport adds.

use crate::bindings;
use core::cell::UnsafeCell;
use core::pin::Pin;
use core::ptr::NonNull;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::SpinLock;
use kernel::types::Opaque;

/// A slot. `S` is the transport's part.
#[repr(C)]
#[pin_data]
pub(super) struct Slot<S> {
    #[pin]
    rqst: Opaque<bindings::rpc_rqst>,
    buffers: UnsafeCell<Buffers>,
    #[pin]
    data: S,
}

struct Buffers {
    call: KVec<u8>,
    reply: KVec<u8>,
}

// SAFETY: `rqst` and `buffers` belong to whoever owns the slot, `data` may be shared.
unsafe impl<S: Sync> Sync for Slot<S> {}
// SAFETY: nothing in a slot belongs to a task of its own.
unsafe impl<S: Send> Send for Slot<S> {}

impl<S> Slot<S> {
    fn new(data: impl PinInit<S, Error>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            rqst <- Opaque::zeroed(),
            buffers: UnsafeCell::new(Buffers { call: KVec::new(), reply: KVec::new() }),
            data <- data,
        })
    }

    /// The slot around a request.
    ///
    /// # Safety
    ///
    /// `rqst` must be the request of a live `Slot<S>`.
    pub(super) unsafe fn from_rqst<'a>(rqst: NonNull<bindings::rpc_rqst>) -> &'a Self {
        // SAFETY: `rqst` is the first field of a `#[repr(C)]` struct, by the caller's promise.
        unsafe { rqst.cast::<Self>().as_ref() }
    }

    /// What the transport keeps for the request.
    pub(super) fn data(&self) -> &S {
        &self.data
    }

    pub(super) fn rqst(&self) -> *mut bindings::rpc_rqst {
        self.rqst.get()
    }

    /// Provides the buffers that the request asks for, and returns by how many bytes they grew.
    ///
    /// # Safety
    ///
    /// To be called by the task that owns the slot only, before the request is encoded.
    pub(super) unsafe fn provide_buffers(&self) -> Result<usize> {
        let rqst = self.rqst();
        // SAFETY: the slot's owner is the only one to touch the buffers.
        let buffers = unsafe { &mut *self.buffers.get() };
        // SAFETY: the sizes were set by the owner before it called buf_alloc.
        let (call, reply) = unsafe { ((*rqst).rq_callsize, (*rqst).rq_rcvsize) };
        let grown = grow(&mut buffers.call, call)? + grow(&mut buffers.reply, reply)?;
        // SAFETY: as above.
        unsafe { (*rqst).rq_buffer = buffers.call.as_mut_ptr().cast() };
        // SAFETY: as above.
        unsafe { (*rqst).rq_rbuffer = buffers.reply.as_mut_ptr().cast() };
        Ok(grown)
    }
}

/// Makes `buffer` at least `len` bytes long. Its content is lost; its memory is zeroed, for a
/// decoder that reads beyond a short reply must not see what another RPC left.
fn grow(buffer: &mut KVec<u8>, len: usize) -> Result<usize> {
    if buffer.len() >= len {
        return Ok(0);
    }
    // Small sizes are rounded up, so that a slot soon fits all common requests.
    let len = len.next_power_of_two();
    // The task runs with NOFS (rpc_execute), and call_allocate tries again later.
    let flags = GFP_KERNEL | kernel::alloc::flags::__GFP_NOWARN;
    *buffer = KVec::from_elem(0, len, flags)?;
    Ok(len)
}

/// All slots of a transport.
///
/// `free` is a stack, so that the slots in use are those whose memory is warm.
#[pin_data]
pub(super) struct SlotTable<S> {
    slots: KVec<Pin<KBox<Slot<S>>>>,
    /// Slots without an owner; protects nothing but itself.
    #[pin]
    free: SpinLock<KVec<FreeSlot>>,
}

/// The request of a slot that belongs to the table.
struct FreeSlot(NonNull<bindings::rpc_rqst>);

// SAFETY: slots are `Send`.
unsafe impl Send for FreeSlot {}

impl<S> SlotTable<S> {
    /// A table of `count` slots. Context: process, may sleep.
    pub(super) fn new<I: PinInit<S, Error>>(
        count: u32,
        mut data: impl FnMut() -> I,
    ) -> Result<impl PinInit<Self, Error>> {
        let count = count as usize;
        let mut slots = KVec::with_capacity(count, GFP_KERNEL)?;
        let mut free = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let slot = KBox::pin_init(Slot::new(data()), GFP_KERNEL)?;
            let rqst = NonNull::new(slot.rqst()).ok_or(EINVAL)?;
            free.push(FreeSlot(rqst), GFP_KERNEL)?;
            slots.push(slot, GFP_KERNEL)?;
        }
        Ok(try_pin_init!(Self {
            slots,
            free <- new_spinlock!(free),
        }))
    }

    /// All slots, whoever owns them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<S>> {
        self.slots.iter().map(|slot| &**slot)
    }

    /// Takes a slot; its request is zeroed.
    pub(super) fn take(&self) -> Option<NonNull<bindings::rpc_rqst>> {
        self.free.lock().pop().map(|slot| slot.0)
    }

    /// Gives a slot back.
    ///
    /// # Safety
    ///
    /// `rqst` must have come from [`Self::take`] of this table and have no user any more.
    pub(super) unsafe fn put(&self, rqst: NonNull<bindings::rpc_rqst>) {
        // SAFETY: the caller owns the slot; the core expects a zeroed request next time.
        unsafe { rqst.write_bytes(0, 1) };
        let mut free = self.free.lock();
        // The stack was made with room for every slot, so this does not allocate.
        let _ = free.push_within_capacity(FreeSlot(rqst));
    }
}
