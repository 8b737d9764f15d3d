// SPDX-License-Identifier: GPL-2.0

//! Request slots: the memory of requests, and its owners.
//!
//! A slot belongs either to the table or to one RPC task. It holds the `rpc_rqst`, the buffers that the
//! Call is encoded into and the Reply is decoded from, and the transport's data.

use super::{
    Xprt, //
};
use crate::{
    bindings,
    support::racy::Racy, //
};
use core::{
    cell::UnsafeCell,
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    ffi::{
        c_ulong,
        c_void, //
    },
    prelude::*,
    types::Opaque, //
};

/// A slot. `S` is the transport's part.
#[repr(C)]
#[pin_data]
pub(super) struct Slot<S> {
    #[pin]
    rqst: Opaque<bindings::rpc_rqst>,
    /// The request was sent on the connection that stands, and the transport has not taken its
    /// Reply. The transport writes it; the end of a connection clears it.
    outstanding: Racy<bool>,
    /// The index of the slot in the table.
    index: u32,
    /// The function that frees the Call's encrypted pages, while ours is in its place (see `privacy`).
    release_snd_buf: UnsafeCell<ReleaseSndBuf>,
    buffers: UnsafeCell<RequestBuffers>,
    #[pin]
    request: S,
}

/// The type of `rpc_rqst.rq_release_snd_buf`.
pub(super) type ReleaseSndBuf = Option<unsafe extern "C" fn(*mut bindings::rpc_rqst)>;

struct RequestBuffers {
    call: Buffer,
    reply: Buffer,
}

// SAFETY: `rqst`, `release_snd_buf` and `buffers` belong to the owner of the slot or to the sender of its
// request, and `outstanding` and `request` may be shared.
unsafe impl<S: Sync> Sync for Slot<S> {}
// SAFETY: no field of a `Slot` belongs to one task for ever.
unsafe impl<S: Send> Send for Slot<S> {}

impl<S> Slot<S> {
    fn new(index: u32, request: impl PinInit<S, Error>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            rqst <- Opaque::zeroed(),
            outstanding: Racy::new(false),
            index,
            release_snd_buf: UnsafeCell::new(None),
            buffers: UnsafeCell::new(RequestBuffers {
                call: Buffer::EMPTY,
                reply: Buffer::EMPTY,
            }),
            request <- request,
        })
    }

    /// Returns the slot around a request.
    ///
    /// # Safety
    ///
    /// `rqst` must be the request of a live `Slot<S>`.
    #[inline]
    pub(super) unsafe fn from_rqst<'a>(rqst: NonNull<bindings::rpc_rqst>) -> &'a Self {
        // SAFETY: `rqst` is the first field of a `#[repr(C)]` struct, by the caller's promise.
        unsafe { rqst.cast::<Self>().as_ref() }
    }

    /// Returns the transport's data of the request.
    #[inline]
    pub(super) fn request(&self) -> &S {
        &self.request
    }

    /// Returns the index of the slot in the table.
    #[inline]
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Returns whether the request was sent on the present connection, and its Reply was not taken.
    #[inline]
    pub(super) fn is_outstanding(&self) -> bool {
        self.outstanding.get()
    }

    /// Notes whether a Reply to the request is outstanding.
    #[inline]
    pub(super) fn set_outstanding(&self, outstanding: bool) {
        self.outstanding.set(outstanding);
    }

    /// Replaces the function that frees the Call's encrypted pages.
    ///
    /// # Safety
    ///
    /// To be called by the request's sender, or by its owner while it is on no queue.
    pub(super) unsafe fn swap_release(&self, release: ReleaseSndBuf) -> ReleaseSndBuf {
        // SAFETY: by the caller's promise, and xprt_wait_on_pinned_rqst(): the owner waits for the sender's pin
        // before it takes the request off the queues, so one of the two calls at a time.
        unsafe { core::ptr::replace(self.release_snd_buf.get(), release) }
    }

    fn rqst(&self) -> *mut bindings::rpc_rqst {
        self.rqst.get()
    }

    /// Provides the buffers that the request asks for. Returns the bytes asked for by messages for
    /// which a buffer longer than [`USUAL_BUFFER`] was allocated.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the task tries again later (call_allocate).
    ///
    /// # Safety
    ///
    /// To be called by the task that owns the slot only, before the request is encoded.
    #[inline]
    pub(super) unsafe fn provide_buffers(&self, xprt: &Xprt) -> Result<usize> {
        let rqst = self.rqst();
        // SAFETY: the caller promises to be the slot's owner, and no other code uses the buffers.
        let buffers = unsafe { &mut *self.buffers.get() };
        // SAFETY: call_allocate has set the sizes, and the request is its owner's.
        let (call, reply) = unsafe { ((*rqst).rq_callsize, (*rqst).rq_rcvsize) };
        let mut grown = 0;
        if buffers.call.len < call {
            grown += buffers.call.grow(xprt, call)?;
        }
        if buffers.reply.len < reply {
            grown += buffers.reply.grow(xprt, reply)?;
        }
        // SAFETY: the caller promises to be the owner of the request.
        unsafe { (*rqst).rq_buffer = buffers.call.start };
        // SAFETY: the caller promises to be the owner of the request.
        unsafe { (*rqst).rq_rbuffer = buffers.reply.start };
        Ok(grown)
    }
}

/// The length that request buffers of the kernel's C transport have from the start
/// (rpcrdma_buffer_create()). mountstats counts longer buffers only.
const USUAL_BUFFER: usize = 2048;

/// Memory that a message is encoded into or decoded from.
///
/// # Invariants
///
/// `start` is null and `len` 0, or `start` came from rpcrdma_rpc_kzalloc() and has `len` bytes.
struct Buffer {
    start: *mut c_void,
    len: usize,
}

impl Buffer {
    const EMPTY: Self = Self {
        start: core::ptr::null_mut(),
        len: 0,
    };

    /// Makes the buffer at least `len` bytes long, and returns `len` if that is more than
    /// [`USUAL_BUFFER`]. Its content is lost; its memory is zeroed, for a decoder that reads beyond a
    /// short reply must not see the data of another RPC.
    ///
    /// A worker gets memory the way sunrpc's own buffers do (rpc_task_gfp_mask): it must not wait
    /// for memory that only the RPCs behind it set free, for then the workqueue's rescuer would.
    ///
    /// A task that waits here keeps its slot from the RPCs that swap memory out. Therefore usual lengths come
    /// from the reserves if necessary. Each slot asks for them once, and keeps the memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    #[cold]
    fn grow(&mut self, xprt: &Xprt, len: usize) -> Result<usize> {
        let is_usual = len <= USUAL_BUFFER;
        let _reserves = is_usual.then(|| xprt.reserves("buffers")).flatten();
        // Small sizes are rounded up, so that a slot soon fits all common requests.
        let asked = len;
        let len = len.next_power_of_two();
        // SAFETY: only allocates. The core runs the task with NOFS (rpc_execute).
        let start = unsafe { bindings::rpcrdma_rpc_kzalloc(len) };
        if start.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: just allocated; the old memory goes with the old value.
        *self = Self { start, len };
        Ok(if asked > USUAL_BUFFER { asked } else { 0 })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: null, or from kzalloc by the type invariant.
        unsafe { bindings::kfree(self.start) };
    }
}

/// All slots of a transport.
///
/// The free slots are bits of a map. The lowest free slot is taken, so that the memory of the slots
/// in use is in the caches, and taking a slot needs no lock.
pub(super) struct SlotTable<S> {
    slots: KVVec<Pin<KBox<Slot<S>>>>,
    /// One bit for each slot without an owner.
    free: UnsafeCell<KVec<c_ulong>>,
}

// SAFETY: `free` is only changed by atomic operations on its words, and `slots` not at all.
unsafe impl<S: Sync + Send> Sync for SlotTable<S> {}
// SAFETY: slots are `Send`, the map is plain memory.
unsafe impl<S: Send> Send for SlotTable<S> {}

impl<S> SlotTable<S> {
    /// Creates a table of `count` slots. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    pub(super) fn new<I: PinInit<S, Error>>(
        count: u32,
        mut request: impl FnMut(u32) -> I,
    ) -> Result<Self> {
        let mut slots = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
        let words = count.div_ceil(c_ulong::BITS) as usize;
        let mut free: KVec<c_ulong> = KVec::from_elem(0, words, GFP_KERNEL)?;
        for index in 0..count {
            let slot = KBox::pin_init(Slot::new(index, request(index)), GFP_KERNEL)?;
            slots.push(slot, GFP_KERNEL)?;
            if let Some(word) = free.get_mut((index / c_ulong::BITS) as usize) {
                *word |= 1 << (index % c_ulong::BITS);
            }
        }
        Ok(Self {
            slots,
            free: UnsafeCell::new(free),
        })
    }

    /// Returns all slots, with and without an owner.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<S>> {
        self.slots.iter().map(|slot| &**slot)
    }

    fn words(&self) -> (*mut c_ulong, usize) {
        // SAFETY: the vector itself does not change after `new`; its words are not looked at.
        let free = unsafe { &*self.free.get() };
        (free.as_ptr().cast_mut(), free.len())
    }

    /// Takes a slot; its request is zeroed.
    #[inline]
    pub(super) fn take(&self) -> Option<NonNull<bindings::rpc_rqst>> {
        let (words, count) = self.words();
        // SAFETY: `words` has `count` words, which are changed by atomic operations only.
        let index = unsafe { bindings::rpcrdma_bitmap_take_first(words, count) };
        self.slots
            .get(index)
            .and_then(|slot| NonNull::new(slot.rqst()))
    }

    /// Gives a slot back. A later check for waiters sees all tasks that looked for a slot before this.
    ///
    /// # Safety
    ///
    /// `rqst` must have come from [`Self::take`] of this table and have no user any more.
    #[inline]
    pub(super) unsafe fn put(&self, rqst: NonNull<bindings::rpc_rqst>) {
        // SAFETY: the caller owns the slot of `rqst`, which is one of this table.
        let index = unsafe { Slot::<S>::from_rqst(rqst) }.index();
        // SAFETY: the caller owns the slot; the core expects a zeroed request next time.
        unsafe { rqst.write_bytes(0, 1) };
        let (words, _) = self.words();
        // SAFETY: `index` is the index of a slot, for which there is a bit.
        unsafe { bindings::rpcrdma_bitmap_put(words, index as usize) };
    }
}
