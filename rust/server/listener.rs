// SPDX-License-Identifier: GPL-2.0

//! A listener: hears of clients that want to connect, until a thread of the service accepts them.

use crate::{
    rdma::listen::{
        self,
        Accept,
        Request,
        Requests, //
    },
    sunrpc::svc::{
        self,
        SvcHandle, //
    },
    support::{
        completion::Completion,
        net::{
            Net,
            SockAddr, //
        },
        trace,
        work::{
            Job,
            Run, //
        }, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// How many clients may wait on devices that keep count (iWARP).
const BACKLOG: i32 = 1024;

/// How many clients wait at most to be accepted; who comes then is refused, and tries again.
const MOST_WAITING: u32 = 1024;

/// Why a client is refused, for traces.
const GOING: &str = "the listener goes away";
const CROWDED: &str = "too many wait";

/// How long to wait before an address is tried again that no device has, in milliseconds.
const RETRY: u32 = 1_000;

/// What a listener's events reach.
#[pin_data]
struct Shared {
    xprt: SvcHandle,
    net: Net,
    #[pin]
    state: Mutex<State>,
    /// The listener goes away.
    #[pin]
    over: Completion,
}

struct State {
    waiting: Requests,
    count: u32,
    /// Nobody is taken any more.
    closed: bool,
    /// What listens; none while there is no device with the address.
    id: Option<listen::Listener>,
    address: SockAddr,
    /// Listens anew when the device has gone, or the address has moved.
    again: Option<Pin<KBox<Job<Again>>>>,
}

/// A client is going to be refused.
fn refused(request: &Request, why: &'static str) {
    let peer = request.peer();
    trace::svc_refuse(|| (&peer, why, 0));
}

impl Accept for Shared {
    fn request(&self, request: KBox<Request>) -> Result<(), KBox<Request>> {
        let mut state = self.state.lock();
        if state.closed || state.count >= MOST_WAITING {
            let why = if state.closed { GOING } else { CROWDED };
            refused(&request, why);
            return Err(request);
        }
        state.count += 1;
        state.waiting.push_last(request);
        drop(state);
        self.xprt.connection_pending();
        Ok(())
    }

    fn deaf(&self) {
        if let Some(job) = &self.state.lock().again {
            job.request();
        }
    }
}

/// Listens anew.
struct Again(Arc<Shared>);

impl Run for Again {
    fn run(&self) {
        let shared = &self.0;
        loop {
            // The device's removal waits for this.
            let old = shared.state.lock().id.take();
            drop(old);
            let address = shared.state.lock().address;
            if let Ok(id) = listen::Listener::new(shared.net, address, BACKLOG, shared.clone()) {
                let mut state = shared.state.lock();
                if !state.closed {
                    state.id = Some(id);
                    return;
                }
                drop(state);
                return drop(id);
            }
            if shared.over.wait_timeout(RETRY) {
                return;
            }
        }
    }
}

/// A listener.
pub(crate) struct Listener(Arc<Shared>);

impl Listener {
    /// Listens at `address`, at the port that the administrator names. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// As for [`listen::Listener::new`].
    //= NFS-016, NFS-031
    pub(super) fn new(xprt: SvcHandle, net: Net, address: SockAddr) -> Result<Self> {
        let shared = Arc::pin_init(
            pin_init!(Shared {
                xprt,
                net,
                state <- new_mutex!(State {
                    waiting: Requests::new(),
                    count: 0,
                    closed: false,
                    id: None,
                    address,
                    again: None,
                }),
                over <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        let this = Self(shared.clone());
        let job = KBox::pin_init(Job::new(Again(shared.clone())), GFP_KERNEL)?;
        // The listener may hear that it is deaf as soon as it is there.
        shared.state.lock().again = Some(job);
        let id = listen::Listener::new(net, address, BACKLOG, shared.clone())?;
        let mut state = shared.state.lock();
        state.address = id.address();
        state.id = Some(id);
        drop(state);
        Ok(this)
    }
}

impl svc::Listener for Listener {
    type Request = KBox<Request>;

    fn address(&self) -> SockAddr {
        self.0.state.lock().address
    }

    fn next(&self) -> Option<KBox<Request>> {
        let mut state = self.0.state.lock();
        let request = state.waiting.pop()?;
        state.count -= 1;
        Some(request)
    }

    fn detach(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let job = state.again.take();
        drop(state);
        // No event asks for the job any more; waits until it has ended.
        self.0.over.complete_all();
        drop(job);
        let mut state = self.0.state.lock();
        let id = state.id.take();
        let mut waiting = core::mem::take(&mut state.waiting);
        drop(state);
        // Waits for events, which take the lock; then those who wait are refused.
        drop(id);
        while let Some(request) = waiting.pop() {
            refused(&request, GOING);
            drop(request);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        svc::Listener::detach(self);
    }
}
