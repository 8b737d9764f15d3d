// SPDX-License-Identifier: GPL-2.0

//! What the requester remembers of one RPC.

use super::connection::Connection;
use super::link::Link;
use crate::proto::chunk::{
    Laid,
    Layout, //
};
use crate::proto::types::{
    Handle,
    Segment, //
};
use crate::rdma::local_inv::LocalInvBox;
use crate::rdma::mr::{
    MrList,
    Region,
    Registered, //
};
use crate::support::completion::Completion;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    SpinLock, //
};

/// The requester's part of a request slot.
#[pin_data]
pub(crate) struct Call {
    /// Protects the life of the request's registrations: whoever takes them out fences them.
    #[pin]
    pub(crate) state: SpinLock<State>,
    /// Ends the wait of a task that gave up its RPC. A slot has one owner, so there is one waiter.
    pub(crate) released: Arc<Completion>,
}

/// How far an RPC has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not sent on this connection.
    Idle,
    /// Sent; its Reply may come.
    Sent,
    /// Its Reply came; another one with the same XID is none of it.
    Replied,
}

/// The state of an RPC on its connection.
pub(crate) struct State {
    /// How far the RPC has come.
    pub(crate) phase: Phase,
    /// What the peer may reach, of the last Send.
    pub(crate) exposed: Option<MrList<Registered>>,
    /// The connection that `exposed` was registered on.
    pub(crate) conn: Option<Arc<Connection>>,
    /// The fence for `exposed`, made before anything is exposed.
    pub(crate) fence: Option<LocalInvBox<Link>>,
    /// The chunks that the peer was told of, made of `exposed`.
    pub(crate) layout: Layout,
}

impl Call {
    /// The state of an unused slot. Context: may sleep.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            state <- new_spinlock!(State {
                phase: Phase::Idle,
                exposed: None,
                conn: None,
                fence: None,
                layout: Layout::default(),
            }),
            released: Arc::pin_init(Completion::new(), GFP_KERNEL)?,
        })
    }
}

impl State {
    /// What the peer was offered, as it was told.
    pub(crate) fn offered(&self) -> Laid<impl Iterator<Item = Segment> + Clone + '_> {
        Laid {
            layout: self.layout,
            segments: self
                .exposed
                .iter()
                .flat_map(|mrs| mrs.regions().map(segment)),
        }
    }
}

/// What the peer is told of a registration.
pub(crate) fn segment(region: Region) -> Segment {
    Segment {
        handle: Handle(region.key),
        length: region.length,
        offset: region.address,
    }
}
