// SPDX-License-Identifier: GPL-2.0

//! Listening for peers that want to connect.
//!
//! rdma_cm makes an id for each connect request. The [`ConnectRequest`] owns the id until it is accepted. A
//! request that is dropped is rejected.
//!
//! C header: `include/rdma/rdma_cm.h`.

use super::{
    cm::{
        self,
        CmId, //
    },
    device::{
        Attributes,
        Registers, //
    },
    Handler, //
};
use crate::{
    bindings,
    support::{
        box_list::{
            BoxList,
            Link,
            Node, //
        },
        foreign::Context,
        net::{
            self,
            Net,
            SockAddr, //
        },
    },
};
use core::{
    mem::{
        offset_of,
        ManuallyDrop, //
    },
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// The receiver of the events of a listening id.
pub(crate) trait Accept: Send + Sync + 'static {
    /// Takes a connect request. A request in the return value is rejected.
    ///
    /// Context: process, may sleep. The request's and the listener's handler mutexes are held: the
    /// request must not be dropped here, and the function must not wait for a task that drops either.
    ///
    /// # Errors
    ///
    /// The request, if it cannot be taken.
    fn request(&self, request: KBox<ConnectRequest>) -> Result<(), KBox<ConnectRequest>>;

    /// Reports that the listener has ended, because its address moved or its device is removed. The owner drops
    /// it, and may create another.
    ///
    /// Context: process, may sleep. Does not drop the listener.
    fn listener_lost(&self);

    /// Reports that the client of a request has given up, or that the device is removed. The removal waits until the
    /// request is dropped.
    ///
    /// Context: process, may sleep. Does not drop the request, whose handler mutex is held.
    fn lost(&self, request: RequestId);
}

/// The request of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(usize);

impl RequestId {
    fn of(id: *mut bindings::rdma_cm_id) -> Self {
        Self(id.addr())
    }
}

/// A listening id. Dropping it waits for its events; requests that were made stay.
pub(crate) struct CmListener {
    raw: NonNull<bindings::rdma_cm_id>,
    /// Dropped after `raw` is destroyed, since the handler uses it until then.
    _context: Context,
}

// SAFETY: a `struct rdma_cm_id` does not belong to a task; any may call rdma_destroy_id().
unsafe impl Send for CmListener {}
// SAFETY: a shared `CmListener` gives read access only.
unsafe impl Sync for CmListener {}

impl CmListener {
    /// Listens at `address`, for its own family only. `backlog` bounds the requests that wait to be
    /// accepted where the device keeps them (iWARP).
    ///
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `EADDRNOTAVAIL`; `ENODEV`: no RDMA device has the address. `ENOMEM`.
    pub(crate) fn new<A: Accept>(
        net: Net,
        mut address: SockAddr,
        backlog: i32,
        acceptor: Arc<A>,
    ) -> Result<Self> {
        let context = Context::new(acceptor);
        // SAFETY: `listen_callback` treats the context as an `Arc<A>`, which it is; it is dropped after
        // the id is destroyed.
        let raw = unsafe { cm::create_id(&net, listen_callback::<A>, &context) }?;
        let this = Self {
            raw,
            _context: context,
        };
        // So that there can be a listener for each family on one port.
        // SAFETY: a new id of rdma_create_id(), which no other code uses.
        to_result(unsafe { bindings::rdma_set_afonly(raw.as_ptr(), 1) })?;
        // SAFETY: a new id of rdma_create_id(), which no other code uses. rdma_bind_addr() copies the address.
        to_result(unsafe { bindings::rdma_bind_addr(raw.as_ptr(), address.as_raw()) })?;
        // SAFETY: rdma_bind_addr() has bound the id. `listen_callback` may run from now on, and
        // `rdma_cm_id.context` is set.
        to_result(unsafe { bindings::rdma_listen(raw.as_ptr(), backlog) })?;
        Ok(this)
    }

    /// Returns the address, with the assigned port.
    pub(crate) fn address(&self) -> SockAddr {
        // SAFETY: the id is valid until drop; its source address was set by rdma_bind_addr().
        SockAddr::new(unsafe { (*self.raw.as_ptr()).route.addr.src_addr })
    }
}

impl Drop for CmListener {
    fn drop(&mut self) {
        // SAFETY: made by `new`; not called from the id's own handler, which must not drop it
        // (`Accept`). Waits for a handler that runs.
        unsafe { bindings::rdma_destroy_id(self.raw.as_ptr()) };
    }
}

/// An address as it lies in memory.
type Bytes = [u8; size_of::<bindings::__kernel_sockaddr_storage>()];

/// The most private data that a peer can send along (`RDMA_MAX_PRIVATE_DATA`).
const MOST_PRIVATE_DATA: usize = 256;

/// A peer that wants to connect. Dropping it refuses.
///
/// # Invariants
///
/// `raw` is an id that rdma_cm made for a request, and that belongs to this. Its context is that
/// of the listener, which `listener` keeps alive.
pub(crate) struct ConnectRequest {
    raw: NonNull<bindings::rdma_cm_id>,
    listener: Context,
    private_data: [u8; MOST_PRIVATE_DATA],
    private_data_len: u8,
    reads: u8,
    queue_pair: u32,
    link: Link<ConnectRequest>,
}

/// Peers that wait to be accepted.
pub(crate) type ConnectRequests = BoxList<ConnectRequest>;

// SAFETY: contract of the trait: `offset_of!` gives the offset of the field, which only lists use.
unsafe impl Node for ConnectRequest {
    const LINK: usize = offset_of!(Self, link);
}

// SAFETY: a `struct rdma_cm_id` does not belong to a task.
unsafe impl Send for ConnectRequest {}

impl ConnectRequest {
    /// Returns whether the request is the request of an event.
    pub(crate) fn is(&self, id: RequestId) -> bool {
        RequestId::of(self.raw.as_ptr()) == id
    }

    /// Returns the private data of the peer.
    pub(crate) fn private_data(&self) -> &[u8] {
        let len = usize::from(self.private_data_len);
        self.private_data.get(..len).unwrap_or_default()
    }

    /// Returns the peer's address.
    pub(crate) fn peer(&self) -> SockAddr {
        // SAFETY: the id is valid by the type invariant; `cma_dst_addr` (drivers/infiniband/core/cma.c)
        // is set before the event that the peer asks, and stays until the id goes.
        SockAddr::new(unsafe { (*self.raw.as_ptr()).route.addr.dst_addr })
    }

    /// Returns the number of the peer's queue pair; 0 on iWARP.
    pub(crate) fn queue_pair(&self) -> u32 {
        self.queue_pair
    }

    /// Returns the link to the peer.
    pub(crate) fn link(&self) -> net::NetInterface {
        // SAFETY: the id is valid by the type invariant, and has had its device since it was made.
        unsafe { cm::link(self.raw) }
    }

    /// Returns the number of RDMA Reads that the peer allows this side to have outstanding.
    pub(crate) fn reads(&self) -> u8 {
        self.reads
    }

    /// Returns the attributes of the device of the request.
    pub(crate) fn attributes(&self) -> Attributes {
        // SAFETY: the id is valid by the type invariant, and has had its device since it was made
        // (`cma_ib_acquire_dev`), which it keeps.
        unsafe { Attributes::of((*self.raw.as_ptr()).device) }
    }

    /// Returns how the device uses registrations for RDMA Reads and Writes. Context: any.
    pub(crate) fn registers(&self) -> Registers {
        // SAFETY: the id is valid by the type invariant; both fields are constant since it was made.
        let (device, port) =
            unsafe { ((*self.raw.as_ptr()).device, (*self.raw.as_ptr()).port_num) };
        // SAFETY: `rdma_cm_id.device` is valid while the id is, and has the port `port_num`.
        unsafe { Registers::of(device, port) }
    }

    /// Turns the request into the id of a connection, whose events go to `handler`. The peer has still to be
    /// accepted. Dropping the id refuses the peer.
    ///
    /// Context: process, may sleep.
    pub(crate) fn into_id<H: Handler>(this: KBox<Self>, handler: Arc<H>) -> CmId {
        let this = ManuallyDrop::new(KBox::into_inner(this));
        // SAFETY: the id is this object's, whose `drop` does not run any more. Its context is kept until
        // `CmId::adopt` has returned.
        let id = unsafe { CmId::adopt(this.raw, handler) };
        // SAFETY: `ManuallyDrop` keeps `drop` from running, so the context is taken out once.
        drop(unsafe { core::ptr::read(&this.listener) });
        id
    }
}

impl Drop for ConnectRequest {
    fn drop(&mut self) {
        // SAFETY: the id is valid by the type invariant. Refuses a peer that still waits, and is
        // an error that does not matter for any other.
        let _ = unsafe {
            bindings::rdma_reject(
                self.raw.as_ptr(),
                core::ptr::null(),
                0,
                bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8,
            )
        };
        // SAFETY: the id is this object's; not called from its own handler (`Accept`).
        unsafe { bindings::rdma_destroy_id(self.raw.as_ptr()) };
    }
}

/// Leaves the id of a request to rdma_cm, which destroys it and so refuses the peer.
fn give_up(request: ConnectRequest) {
    let request = ManuallyDrop::new(request);
    // SAFETY: `ManuallyDrop` keeps `drop` from running, so the context is taken out once.
    drop(unsafe { core::ptr::read(&request.listener) });
}

/// Makes the request of a peer out of the parameters of its message. Context: process, does not sleep.
///
/// # Safety
///
/// `id` must be an id that rdma_cm made for the request, and `conn` the parameters of its event
/// `RDMA_CM_EVENT_CONNECT_REQUEST`. The handler of the event destroys the request if it does not return 0.
unsafe fn connect_request<A: Accept>(
    id: NonNull<bindings::rdma_cm_id>,
    conn: &bindings::rdma_conn_param,
    acceptor: ArcBorrow<'_, A>,
) -> ConnectRequest {
    let mut private_data = [0; MOST_PRIVATE_DATA];
    let mut private_data_len = 0;
    if !conn.private_data.is_null() {
        private_data_len = conn.private_data_len;
        let from = conn.private_data.cast::<u8>();
        // SAFETY: `rdma_conn_param.private_data` points into the message of the peer, with
        // the length beside it, which is at most the length of the array.
        unsafe {
            core::ptr::copy_nonoverlapping(
                from,
                private_data.as_mut_ptr(),
                private_data_len.into(),
            );
        }
    }
    // INVARIANT: rdma_cm leaves a new id to the handler that returns 0.
    ConnectRequest {
        raw: id,
        listener: Context::new::<A>(acceptor.into()),
        private_data,
        private_data_len,
        reads: conn.initiator_depth,
        queue_pair: conn.qp_num,
        link: Link::new(),
    }
}

/// Hands a request to the acceptor.
///
/// # Errors
///
/// The acceptor does not want it, or there is no memory. rdma_cm has to destroy the id.
fn hand_over<A: Accept>(
    request: ConnectRequest,
    acceptor: ArcBorrow<'_, A>,
) -> core::result::Result<(), ()> {
    let Ok(room) = KBox::<ConnectRequest>::new_uninit(GFP_KERNEL) else {
        give_up(request);
        return Err(());
    };
    acceptor
        .request(KBox::write(room, request))
        .map_err(|request| give_up(KBox::into_inner(request)))
}

/// Handles an event of a listener. Called by rdma_cm (`cma_cm_event_handler`) with the id's handler mutex held.
///
/// # Safety
///
/// `id` must be a listener that [`CmListener::new`] made for an `A`, or an id that rdma_cm made for
/// a request to it and which was not accepted; `event` must be one of its events.
unsafe extern "C" fn listen_callback<A: Accept>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: `rdma_cm_id.context` is the pointer that `CmListener::new` passed, an `Arc<A>` that outlives the
    // listener and all requests (`ConnectRequest::listener`).
    let acceptor = unsafe { ArcBorrow::<'_, A>::from_raw((*id).context.cast()) };
    // SAFETY: rdma_cm's own, on its stack while the handler runs.
    let event = unsafe { &*event };
    match event.event {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST => {
            // SAFETY: `rdma_cm_event.param.conn` is the arm that CONNECT_REQUEST has.
            let conn = unsafe { event.param.conn.as_ref() };
            let Some(raw) = NonNull::new(id) else {
                return 1;
            };
            // SAFETY: rdma_cm made the id for this request. It destroys an id whose handler returns 1.
            let request = unsafe { connect_request(raw, conn, acceptor) };
            match hand_over(request, acceptor) {
                Ok(()) => 0,
                Err(()) => 1,
            }
        }
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE
        | bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => {
            // SAFETY: the id is valid while its handler runs; all bytes of the address are
            // initialised (rdma_create_id), and not written any more.
            let peer = unsafe {
                (&raw const (*id).route.addr.dst_addr)
                    .cast::<Bytes>()
                    .read()
            };
            // A listener has no peer: rdma_bind_addr() has set the family, and nothing else. A request whose
            // address has moved is accepted, and its connection may soon be lost. A request whose device goes
            // away while it is being accepted is refused by rdma_accept().
            let (_family, rest) = peer.split_at(size_of::<bindings::sa_family_t>());
            if rest.iter().all(|byte| *byte == 0) {
                acceptor.listener_lost();
            } else if event.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL {
                acceptor.lost(RequestId::of(id));
            }
            0
        }
        // A client that gives up while it waits. A listener gets none of these events.
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED
        | bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE
        | bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR
        | bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => {
            acceptor.lost(RequestId::of(id));
            0
        }
        _ => 0,
    }
}
