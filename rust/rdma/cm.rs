// SPDX-License-Identifier: GPL-2.0

//! The RDMA connection manager, `struct rdma_cm_id`.
//!
//! An id is never destroyed from its own event handler: the handler always returns 0, and the
//! owner drops the id from another context. Dropping waits for a handler that runs, so none runs
//! afterwards. A device that goes away waits until its ids are dropped, too.
//!
//! C header: `include/rdma/rdma_cm.h`.

use super::{
    device::{
        Attributes,
        Name, //
    },
    Handler, //
};
use crate::{
    bindings,
    support::{
        foreign::Context,
        net::{
            Net,
            NetInterface,
            SockAddr, //
        },
    },
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::c_int,
    prelude::*,
    sync::Arc, //
};

/// After which time a message that found no Receive is sent again: 0.96 ms.
const MIN_RNR_TIMER: u8 = bindings::ib_rnr_timeout_IB_RNR_TIMER_000_96 as u8;

/// An event of a connection.
pub(crate) enum CmEvent<'a> {
    /// The address is resolved and a device chosen.
    AddressResolved,
    /// No RDMA device leads to the address.
    AddressError,
    /// The route is resolved.
    RouteResolved,
    /// There is no route.
    RouteError,
    /// The peer has accepted, or it has taken the acceptance of this side.
    Established {
        /// The private data of the peer's answer.
        private_data: &'a [u8],
        /// The number of the peer's queue pair on the connecting side; 0 on iWARP.
        queue_pair: u32,
    },
    /// The connection could not be set up.
    ConnectError,
    /// The peer does not answer.
    Unreachable,
    /// The peer refused; `stale` if it still knows the old connection.
    Rejected {
        /// The peer has not noticed yet that an older connection is gone.
        stale: bool,
    },
    /// The connection ended.
    Disconnected,
    /// The local address moved, for instance a bond failed over.
    AddressChanged,
    /// The device goes away.
    DeviceRemoval {
        /// The name of the device.
        device: Name,
        /// The address of the peer.
        peer: SockAddr,
    },
    /// Something that needs no reaction.
    Other,
}

impl CmEvent<'_> {
    fn new(event: &bindings::rdma_cm_event) -> CmEvent<'_> {
        match event.event {
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => CmEvent::AddressResolved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => CmEvent::AddressError,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::RouteResolved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => CmEvent::RouteError,
            // The first is the event of an id without a queue pair.
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_RESPONSE
            | bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
                // SAFETY: `rdma_cm_event.param.conn` is the arm that both events have.
                let conn = unsafe { event.param.conn.as_ref() };
                let private_data = if conn.private_data.is_null() {
                    &[]
                } else {
                    // SAFETY: `rdma_conn_param.private_data` points into the message of the peer,
                    // which rdma_cm keeps for the duration of the event, with the length beside it.
                    unsafe {
                        core::slice::from_raw_parts(
                            conn.private_data.cast::<u8>(),
                            usize::from(conn.private_data_len),
                        )
                    }
                };
                CmEvent::Established {
                    private_data,
                    queue_pair: conn.qp_num,
                }
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => CmEvent::ConnectError,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => CmEvent::Unreachable,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => CmEvent::Rejected {
                stale: event.status == bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN as c_int,
            },
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => CmEvent::Disconnected,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => CmEvent::AddressChanged,
            _ => CmEvent::Other,
        }
    }
}

/// The parameters of a connect request.
pub(crate) struct ConnectParams {
    /// The private data for the peer.
    pub(crate) private_data: [u8; 16],
    /// The number of RDMA Reads that the peer may have outstanding.
    pub(crate) responder_resources: u8,
    /// The number of times that the device retransmits a packet before the connection fails.
    pub(crate) retry_count: u8,
    /// The number of retries when the peer has no Receive posted. With 0, a flow control error of either
    /// side ends the connection at once.
    pub(crate) rnr_retry_count: u8,
}

/// The parameters of the answer that accepts a request.
pub(crate) struct AcceptParams {
    /// The private data for the peer.
    pub(crate) private_data: [u8; 16],
    /// The number of RDMA Reads that this side may have outstanding.
    pub(crate) initiator_depth: u8,
    /// The number of retries of the peer's device when no Receive is posted; 7 means without end.
    pub(crate) rnr_retry_count: u8,
}

/// The handler of an id does not run while this lives.
struct HandlerLock<'a>(&'a CmId);

impl Drop for HandlerLock<'_> {
    fn drop(&mut self) {
        // SAFETY: locked in `lock_handler`, and unlocked once.
        unsafe { bindings::rdma_unlock_handler(self.0.as_raw()) };
    }
}

/// A connection id; before its address is resolved it belongs to no device.
///
/// # Invariants
///
/// `raw` is a valid id that only drop destroys; its context is `context`.
pub(crate) struct CmId {
    raw: NonNull<bindings::rdma_cm_id>,
    /// Dropped after `raw` is destroyed, since the handler uses it until then.
    _context: Context,
}

// SAFETY: a `struct rdma_cm_id` does not belong to a task; any may call rdma_destroy_id().
unsafe impl Send for CmId {}
// SAFETY: each function that is called here changes the id's state by compare and exchange under
// `rdma_id_private.lock`, or takes its handler mutex (drivers/infiniband/core/cma.c).
unsafe impl Sync for CmId {}

impl CmId {
    /// Creates an id whose events go to `handler`.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new<H: Handler>(net: Net, handler: Arc<H>) -> Result<Self> {
        let context = Context::new(handler);
        // SAFETY: `event_callback` treats the context as an `Arc<H>`, which it is; it is dropped after
        // the id is destroyed.
        let raw = unsafe { create_id(&net, event_callback::<H>, &context) }?;
        // INVARIANT: just created, with `context`.
        Ok(Self {
            raw,
            _context: context,
        })
    }

    pub(super) fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Starts to resolve the address `peer` to a device. An event reports the result, after `timeout`
    /// milliseconds at the latest.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not a new id. `ENODEV`, `EADDRNOTAVAIL` or the error of the routing: no device leads to
    /// the address.
    pub(crate) fn resolve_address(&self, mut peer: SockAddr, timeout: u32) -> Result {
        // SAFETY: the id is valid by the type invariant; rdma_resolve_addr() refuses one in another
        // state than new, and copies the address.
        to_result(unsafe {
            bindings::rdma_resolve_addr(
                self.as_raw(),
                core::ptr::null_mut(),
                peer.as_raw(),
                timeout as kernel::ffi::c_ulong,
            )
        })
    }

    /// Starts to find the route; ends with an event, at the latest after `timeout` milliseconds.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the address is not resolved. `ENOMEM`, `ENODEV`.
    pub(crate) fn resolve_route(&self, timeout: u32) -> Result {
        // SAFETY: the id is valid by the type invariant; rdma_resolve_route() refuses one whose
        // address is not resolved.
        to_result(unsafe {
            bindings::rdma_resolve_route(self.as_raw(), timeout as kernel::ffi::c_ulong)
        })
    }

    /// Makes the device tell a peer whose message finds no Receive to send the message again soon. Without
    /// this, rdma_cm makes the peer wait for 655 ms. Context: process, may sleep. Called before the queue pair
    /// receives.
    ///
    /// # Errors
    ///
    /// The error of rdma_set_min_rnr_timer(): the device does not support it.
    fn set_min_rnr_timer(&self) -> Result {
        // SAFETY: the id is valid by the type invariant, and of type RC (`create_id`).
        to_result(unsafe { bindings::rdma_set_min_rnr_timer(self.as_raw(), MIN_RNR_TIMER) })
    }

    /// Starts to connect the queue pair with the number `queue_pair`. An event reports the result.
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the route is not resolved. `ENOMEM`, or the error of the driver.
    pub(super) fn connect(&self, params: &ConnectParams, queue_pair: u32) -> Result {
        self.set_min_rnr_timer()?;
        let mut param = bindings::rdma_conn_param {
            private_data: params.private_data.as_ptr().cast(),
            private_data_len: params.private_data.len() as u8,
            responder_resources: params.responder_resources,
            initiator_depth: 0,
            retry_count: params.retry_count,
            rnr_retry_count: params.rnr_retry_count,
            qp_num: queue_pair,
            ..Default::default()
        };
        // SAFETY: the id is valid by the type invariant; rdma_connect() refuses one without a
        // route, and copies parameters and private data.
        to_result(unsafe { bindings::rdma_connect(self.as_raw(), &mut param) })
    }

    /// Tells a peer that has accepted that the queue pair of this side is ready. Context: process, may sleep. Not
    /// called from an event.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the connection has ended. `ENOMEM`.
    pub(super) fn confirm(&self) -> Result {
        let _handler = self.lock_handler();
        // SAFETY: the id is valid by the type invariant, and rdma_accept() refuses one in another state. Without
        // parameters it ends the exchange that rdma_connect() has begun.
        to_result(unsafe { bindings::rdma_accept(self.as_raw(), core::ptr::null_mut()) })
    }

    /// Ends the connection. If the id has a queue pair, it goes to the error state. Returns 0, or an error number if
    /// the connection has ended already. Context: process, may sleep.
    pub(super) fn disconnect(&self) -> i32 {
        // SAFETY: the id is valid by the type invariant; rdma_disconnect() may be called in each of
        // its states.
        unsafe { bindings::rdma_disconnect(self.as_raw()) }
    }

    /// Accepts the connect request of the peer. An event reports the result.
    ///
    /// Context: process, may sleep. Not called from an event.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the peer has given up, or the device goes away. `ENOMEM`, or the error of the driver. The
    /// peer is rejected then.
    pub(crate) fn accept(&self, params: &AcceptParams) -> Result {
        self.set_min_rnr_timer()?;
        let mut param = bindings::rdma_conn_param {
            private_data: params.private_data.as_ptr().cast(),
            private_data_len: params.private_data.len() as u8,
            responder_resources: 0,
            initiator_depth: params.initiator_depth,
            rnr_retry_count: params.rnr_retry_count,
            ..Default::default()
        };
        let _handler = self.lock_handler();
        // SAFETY: the id is valid by the type invariant, and rdma_accept() refuses one in another
        // state than asked for; it wants the handler's lock, and copies parameters and data.
        to_result(unsafe { bindings::rdma_accept(self.as_raw(), &mut param) })
    }

    /// Keeps the handler from running. Context: process, may sleep. Not called from an event.
    fn lock_handler(&self) -> HandlerLock<'_> {
        // SAFETY: the id is valid by the type invariant; takes `rdma_id_private.handler_mutex`.
        unsafe { bindings::rdma_lock_handler(self.as_raw()) };
        HandlerLock(self)
    }

    /// Returns the attributes of the device, once the address is resolved.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the address is not resolved, or the device was removed.
    pub(crate) fn attributes(&self) -> Result<Attributes> {
        let device = self.device();
        if device.is_null() {
            return Err(ENODEV);
        }
        // SAFETY: cma_attach_to_dev() makes the id keep the device, until rdma_destroy_id().
        Ok(unsafe { Attributes::of(device) })
    }

    /// Returns this side's address, once the peer's address is resolved.
    pub(crate) fn source(&self) -> SockAddr {
        // SAFETY: the id is valid; `cma_src_addr` (drivers/infiniband/core/cma.c) is set while
        // the address is being resolved or the connection made, and stays until the id goes. All
        // of its bytes are initialised for any family.
        SockAddr::new(unsafe { (*self.as_raw()).route.addr.src_addr })
    }

    /// Returns the peer's address, once it is resolved or the peer has asked for the connection.
    pub(crate) fn peer(&self) -> SockAddr {
        // SAFETY: the id is valid; `cma_dst_addr` (drivers/infiniband/core/cma.c) is set by
        // rdma_resolve_addr(), or before the event that the peer asks, and stays until the id goes. All
        // its bytes are initialised.
        SockAddr::new(unsafe { (*self.as_raw()).route.addr.dst_addr })
    }

    /// Returns the link to the peer, once its address is resolved.
    pub(crate) fn link(&self) -> NetInterface {
        // SAFETY: the id is valid by the type invariant, and has its device.
        unsafe { link(self.raw) }
    }

    /// Returns whether the connection manager of iWARP makes the connection. It exchanges no numbers of queue
    /// pairs. The address must be resolved.
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: the id keeps its device, which has the port (cma_attach_to_dev()).
        unsafe { bindings::rdma_protocol_iwarp(self.device(), self.port()) }
    }

    /// Returns the number of the device's port; 0 before the address is resolved.
    pub(crate) fn port(&self) -> u32 {
        // SAFETY: the id is valid by the type invariant; `rdma_cm_id.port_num` is set with the
        // device, before the event that says so.
        unsafe { (*self.as_raw()).port_num }
    }

    /// Takes over an id that a connect request has made: its events go to `handler` from now on.
    ///
    /// Context: process, may sleep. Not from an event.
    ///
    /// # Safety
    ///
    /// `raw` must be an id that no other code destroys. Its old context must stay until this returns.
    pub(super) unsafe fn adopt<H: Handler>(
        raw: NonNull<bindings::rdma_cm_id>,
        handler: Arc<H>,
    ) -> Self {
        let context = Context::new(handler);
        let pointer = context.as_ptr();
        // INVARIANT: the caller's, whose context is set before the handler can run again.
        let this = Self {
            raw,
            _context: context,
        };
        let lock = this.lock_handler();
        // SAFETY: type invariant: the id is valid. `rdma_cm_id.context` is read by the handler only, whose mutex
        // is held (rdma_lock_handler()).
        unsafe { (*this.as_raw()).context = pointer };
        // SAFETY: the id is valid, and rdma_cm reads this field with the handler's lock.
        unsafe { (*this.as_raw()).event_handler = Some(event_callback::<H>) };
        drop(lock);
        this
    }

    /// Returns the device, or null before the address is resolved. The device is valid as long as the id.
    pub(super) fn device(&self) -> *mut bindings::ib_device {
        // SAFETY: the id is valid by the type invariant; `rdma_cm_id.device` is set once, before the
        // event that says so.
        unsafe { (*self.as_raw()).device }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: valid by the type invariant. rdma_destroy_id() must not be called from the id's
        // own handler, which has no `CmId` to drop; it waits for one that runs.
        unsafe { bindings::rdma_destroy_id(self.as_raw()) };
    }
}

/// Returns the link of an id that has a device.
///
/// # Safety
///
/// The id must be valid, and have its device.
pub(super) unsafe fn link(id: NonNull<bindings::rdma_cm_id>) -> NetInterface {
    // SAFETY: the id is valid by the caller's contract; takes an address and reads no memory.
    let address = unsafe { &raw const (*id.as_ptr()).route.addr.dev_addr };
    // SAFETY: set before the event that the address is resolved, or that a peer asks
    // (rdma_copy_src_l2_addr()).
    let index = unsafe { (*address).bound_dev_if };
    // SAFETY: __rdma_create_id() has set `dev_addr.net`, and it is not changed.
    let net = unsafe { NonNull::new_unchecked((*address).net) };
    // SAFETY: the id holds a reference to the namespace (__rdma_create_id()).
    NetInterface::new(unsafe { Net::new(net) }, index)
}

/// The callback of an id; rdma_cm calls it (`cma_cm_event_handler`) with the id's handler mutex held.
type Callback =
    unsafe extern "C" fn(*mut bindings::rdma_cm_id, *mut bindings::rdma_cm_event) -> c_int;

/// Creates an id whose events go to `callback`, with `context`. Context: process, may sleep.
///
/// # Errors
///
/// `ENOMEM`: there is no memory.
///
/// # Safety
///
/// `callback` must be one for such a context, which must be dropped only after the id is destroyed.
pub(super) unsafe fn create_id(
    net: &Net,
    callback: Callback,
    context: &Context,
) -> Result<NonNull<bindings::rdma_cm_id>> {
    // SAFETY: the namespace is alive (`Net`); callback and context fit, as the caller promises.
    let raw = unsafe {
        bindings::rdma_create_id(
            net.as_raw(),
            Some(callback),
            context.as_ptr(),
            bindings::rdma_ucm_port_space_RDMA_PS_TCP,
            bindings::ib_qp_type_IB_QPT_RC,
        )
    };
    NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)
}

/// Returns the event that the device of an id goes away.
///
/// # Safety
///
/// The id must be valid, and have its device.
#[cold]
unsafe fn removal(id: *mut bindings::rdma_cm_id) -> CmEvent<'static> {
    // SAFETY: the caller's id; `device` is set before the event.
    let device = unsafe { (*id).device };
    CmEvent::DeviceRemoval {
        // SAFETY: the device of the id, which cma_attach_to_dev() keeps.
        device: unsafe { Name::of(device) },
        // SAFETY: the caller's id; all bytes of `cma_dst_addr` are initialised (`CmId::peer`).
        peer: SockAddr::new(unsafe { (*id).route.addr.dst_addr }),
    }
}

/// Handles an event. Called by rdma_cm (`cma_cm_event_handler`) with the id's handler mutex held.
///
/// # Safety
///
/// `id` must have been made by [`CmId::new`] with a handler `H`, and `event` be one of its events.
unsafe extern "C" fn event_callback<H: Handler>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: `rdma_cm_id.context` is the pointer that `CmId::new` passed: an `Arc<H>` that outlives the id.
    let handler = unsafe { &*(*id).context.cast::<H>() };
    // SAFETY: rdma_cm's own, on its stack while the handler runs.
    let event = unsafe { &*event };
    handler.cm_event(
        if event.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL {
            // SAFETY: the caller's id, which is valid. It has a device, which waits for the id to be destroyed.
            unsafe { removal(id) }
        } else {
            CmEvent::new(event)
        },
    );
    0
}
