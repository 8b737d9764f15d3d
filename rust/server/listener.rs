// SPDX-License-Identifier: GPL-2.0

//! A listener: hears of clients that want to connect, until a thread of the service accepts them.

use crate::{
    rdma::listen::{
        self,
        Accept,
        ConnectRequest,
        ConnectRequests,
        RequestId, //
    },
    sunrpc::svc::{
        self,
        SvcHandle, //
    },
    support::{
        net::{
            Net,
            SockAddr, //
        },
        trace,
        work::{
            Clock,
            Tick, //
        },
    },
};
use core::mem::take;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::Msecs, //
};

/// The number of clients that may wait on devices with a backlog (iWARP).
const BACKLOG: i32 = 1024;

/// The most clients that may wait to be accepted. A further client is refused, and tries again.
const MOST_WAITING: u32 = 1024;

/// The reasons for a refusal of a client, for trace events.
const CLOSING: &str = "the listener goes away";
const BACKLOG_FULL: &str = "too many wait";
const LOST: &str = "the client has given up, or the device goes away";

/// The pause before the next attempt to listen on an address that no device has, in milliseconds.
const RETRY: Msecs = 1_000;

/// The part of a listener that its events use.
#[pin_data]
struct ListenerShared {
    xprt: SvcHandle,
    net: Net,
    #[pin]
    state: Mutex<ListenerState>,
}

struct ListenerState {
    waiting: ConnectRequests,
    count: u32,
    /// No client is accepted any more.
    closed: bool,
    /// The listening id, or `None` while no device has the address.
    id: Option<listen::CmListener>,
    address: SockAddr,
    /// `id` hears nothing any more, since the device goes away, or the address has moved.
    listener_lost: bool,
    /// Requests whose client has given up, or whose device goes away.
    lost: ConnectRequests,
    /// Drops ids that a device waits for, and listens anew.
    caretaker: Option<Pin<KBox<Clock<Caretaker>>>>,
}

/// Traces that a client is refused.
fn refused(request: &ConnectRequest, why: &'static str) {
    let peer = request.peer();
    trace::emit(|| trace::SvcrdmaRefuse {
        peer: &peer,
        why,
        rc: 0,
    });
}

/// Refuses clients. Context: process, may sleep. Not called from an event of the listener or the
/// request.
fn refuse(mut requests: ConnectRequests, why: &'static str) {
    while let Some(request) = requests.pop() {
        refused(&request, why);
        drop(request);
    }
}

impl Accept for ListenerShared {
    fn request(&self, request: KBox<ConnectRequest>) -> Result<(), KBox<ConnectRequest>> {
        let mut state = self.state.lock();
        if state.closed || state.count >= MOST_WAITING {
            let why = if state.closed { CLOSING } else { BACKLOG_FULL };
            refused(&request, why);
            return Err(request);
        }
        state.count += 1;
        state.waiting.push_last(request);
        drop(state);
        self.xprt.connection_pending();
        Ok(())
    }

    fn listener_lost(&self) {
        let mut state = self.state.lock();
        state.listener_lost = true;
        state.call_caretaker();
    }

    fn lost(&self, request: RequestId) {
        let mut state = self.state.lock();
        // One that is not there is being accepted, or dropped.
        if let Some(request) = state.waiting.take(|waiting| waiting.is(request)) {
            state.count -= 1;
            state.lost.push_last(request);
            state.call_caretaker();
        }
    }
}

impl ListenerState {
    fn call_caretaker(&self) {
        if let Some(caretaker) = &self.caretaker {
            caretaker.start(0);
        }
    }
}

/// Drops ids that a device waits for, and listens anew.
struct Caretaker(Arc<ListenerShared>);

impl Tick for Caretaker {
    fn tick(&self) -> Option<Msecs> {
        let shared = &self.0;
        let mut state = shared.state.lock();
        let lost = take(&mut state.lost);
        let listener_lost = take(&mut state.listener_lost);
        let old = if listener_lost { state.id.take() } else { None };
        let address = state.address;
        drop(state);
        drop(old);
        refuse(lost, LOST);
        if !listener_lost {
            return None;
        }
        let id = listen::CmListener::new(shared.net, address, BACKLOG, shared.clone());
        let mut state = shared.state.lock();
        match id {
            Ok(id) if !state.closed => state.id = Some(id),
            Ok(id) => {
                drop(state);
                drop(id);
            }
            Err(_) => {
                state.listener_lost = true;
                return Some(RETRY);
            }
        }
        None
    }
}

/// A listener.
pub(crate) struct ServerListener(Arc<ListenerShared>);

impl ServerListener {
    /// Listens at `address`, at the port that the administrator names. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// As for [`listen::CmListener::new`].
    //= NFS-016, NFS-031
    pub(super) fn new(xprt: SvcHandle, net: Net, address: SockAddr) -> Result<Self> {
        let shared = Arc::pin_init(
            pin_init!(ListenerShared {
                xprt,
                net,
                state <- new_mutex!(ListenerState {
                    waiting: ConnectRequests::new(),
                    count: 0,
                    closed: false,
                    id: None,
                    address,
                    listener_lost: false,
                    lost: ConnectRequests::new(),
                    caretaker: None,
                }),
            }),
            GFP_KERNEL,
        )?;
        let this = Self(shared.clone());
        let caretaker = KBox::pin_init(Clock::new(Caretaker(shared.clone())), GFP_KERNEL)?;
        // The loss of the listener may be reported as soon as the id exists.
        shared.state.lock().caretaker = Some(caretaker);
        let id = listen::CmListener::new(net, address, BACKLOG, shared.clone())?;
        let mut state = shared.state.lock();
        state.address = id.address();
        state.id = Some(id);
        drop(state);
        Ok(this)
    }
}

impl svc::Listener for ServerListener {
    type Request = KBox<ConnectRequest>;

    fn address(&self) -> SockAddr {
        self.0.state.lock().address
    }

    fn next(&self) -> Option<KBox<ConnectRequest>> {
        let mut state = self.0.state.lock();
        let request = state.waiting.pop()?;
        state.count -= 1;
        Some(request)
    }

    fn detach(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let caretaker = state.caretaker.take();
        drop(state);
        // No event calls the caretaker any more; waits until it has ended.
        drop(caretaker);
        let mut state = self.0.state.lock();
        let id = state.id.take();
        let mut waiting = take(&mut state.waiting);
        waiting.append(take(&mut state.lost));
        drop(state);
        // Waits for events, which take the lock. Then the waiting clients are refused.
        drop(id);
        refuse(waiting, CLOSING);
    }
}

impl Drop for ServerListener {
    fn drop(&mut self) {
        svc::Listener::detach(self);
    }
}
