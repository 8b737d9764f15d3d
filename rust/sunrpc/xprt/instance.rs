// SPDX-License-Identifier: GPL-2.0

//! One transport with all its parts, from setup to destroy.

use super::{
    connect::{
        self,
        Connecting, //
    },
    owed,
    send_lock::SendLock,
    slot::SlotTable,
    transport::Transport,
    Xprt, //
};
use crate::{
    bindings,
    sunrpc::class,
    support::debugfs::File, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The memory of a transport of type `T`, which `xprt_alloc` allocates and `xprt_free` frees.
///
/// The core frees this memory itself (kfree_rcu), so no destructor runs on it: all data with a destructor
/// belong to `shared`, which the `destroy` operation frees.
#[repr(C)]
pub(super) struct Instance<T: Transport> {
    pub(super) xprt: Xprt,
    shared: *mut InstanceShared<T>,
}

/// The parts of a transport that have destructors.
#[pin_data]
pub(super) struct InstanceShared<T: Transport> {
    /// The file of `transport` in debugfs.
    _file: Option<File>,
    pub(super) transport: Arc<T>,
    #[pin]
    pub(super) connecting: Connecting<T::Connection>,
    pub(super) slots: SlotTable<T::Request>,
}

impl<T: Transport> InstanceShared<T> {
    /// Creates the parts of a new transport. Context: process, may sleep.
    ///
    /// `id` is the transport's number, and names its file in debugfs.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    pub(super) fn new(transport: Arc<T>, slots: u32, id: u32) -> Result<*mut Self> {
        let slots = SlotTable::new(slots, T::new_request)?;
        let shared = KBox::pin_init(
            pin_init!(Self {
                _file: File::new(fmt!("xprt-{id}"), transport.clone()),
                connecting <- Connecting::new(),
                slots,
                transport,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: nothing moves it: `destroy` drops the box as a whole.
        Ok(KBox::into_raw(unsafe { Pin::into_inner_unchecked(shared) }))
    }
}

impl<T: Transport> Instance<T> {
    /// Returns the instance around a transport that the core passed to an operation of this module.
    ///
    /// # Safety
    ///
    /// `xprt` must be embedded in an `Instance<T>` that was set up completely and not destroyed.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(xprt: *mut bindings::rpc_xprt) -> &'a Self {
        // SAFETY: `xprt` is the first field of a `#[repr(C)]` struct, by the caller's promise.
        unsafe { &*xprt.cast::<Self>() }
    }

    /// Gives the transport its parts with destructors, as the last step of its setup.
    ///
    /// # Safety
    ///
    /// `this` must be a transport that `setup` is making, and `shared` from [`InstanceShared::new`].
    pub(super) unsafe fn provide(this: *mut Self, shared: *mut InstanceShared<T>) {
        // SAFETY: `setup` has not published the transport yet.
        unsafe { (*this).shared = shared };
    }

    /// Returns the parts with destructors.
    #[inline]
    pub(super) fn shared(&self) -> &InstanceShared<T> {
        // SAFETY: set by `provide` before the core learns of the transport and released in
        // `destroy`, after which the core calls no operation any more.
        unsafe { &*self.shared }
    }

    /// Closes the connection. No Reply is outstanding afterwards.
    pub(super) fn close(&self, lock: &mut SendLock<'_>) {
        let shared = self.shared();
        shared.transport.close(lock, &self.xprt);
        for slot in shared.slots.iter() {
            slot.set_outstanding(false);
        }
        self.xprt.owed.clear();
    }

    /// Closes the connection and tells the core.
    pub(super) fn disconnect(&self, lock: &mut SendLock<'_>) {
        let _reserves = self.xprt.reserves("closing");
        self.close(lock);
        connect::disconnected(self);
        write_once!(
            &*lock,
            connect_cookie = self.xprt.connection().wrapping_add(1)
        );
        // SAFETY: xprt_disconnect_done() takes `transport_lock` itself. The transport is alive.
        unsafe { bindings::xprt_disconnect_done(self.xprt.as_raw()) };
    }

    /// Ends a transport, and frees it.
    ///
    /// # Safety
    ///
    /// To be called once, by xprt_destroy_cb: the transport is not used any more, and the send lock is held
    /// for good (xprt_destroy).
    pub(super) unsafe fn destroy(&self) {
        connect::end(self);
        owed::end(&self.xprt);
        // SAFETY: xprt_destroy has taken the send lock, and does not release it.
        self.close(&mut unsafe { SendLock::new(&self.xprt) });
        // SAFETY: made by `InstanceShared::new` with `KBox::into_raw`; released only here.
        drop(unsafe { KBox::from_raw(self.shared) });
        let raw = self.xprt.as_raw();
        // SAFETY: made by `setup`, and not used any more; the core leaves freeing it to `destroy`.
        unsafe { class::free(raw) };
    }
}
