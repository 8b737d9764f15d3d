// SPDX-License-Identifier: GPL-2.0

//! What the requester remembers of one RPC.

use super::connection::Connection;
use super::link::Link;
use crate::proto::chunk::Chunks;
use crate::proto::types::{
    Handle,
    Position,
    ReadSegment,
    Segment, //
};
use crate::rdma::fence::FenceWqe;
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
    /// What the peer may reach.
    pub(crate) exposed: MrList<Registered>,
    /// The connection that `exposed` was registered on.
    pub(crate) conn: Option<Arc<Connection>>,
    /// The fence for `exposed`, made before anything is exposed.
    pub(crate) fence: Option<KBox<FenceWqe<Link>>>,
    /// The chunks that the peer was told of, made of `exposed`.
    pub(crate) layout: Layout,
}

impl Call {
    /// The state of an unused slot. Context: may sleep.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            state <- new_spinlock!(State {
                phase: Phase::Idle,
                exposed: MrList::new(),
                conn: None,
                fence: None,
                layout: Layout::NONE,
            }),
            released: Arc::pin_init(Completion::new(), GFP_KERNEL)?,
        })
    }
}

/// How the registrations of a Call make up its chunk lists, in this order: at most one Read chunk,
/// and one Write chunk or Reply chunk.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Where the Read chunk belongs.
    pub(crate) position: Position,
    /// The Segments of the Read chunk.
    pub(crate) reads: usize,
    /// The Segments of the Write chunk.
    pub(crate) writes: usize,
    /// The Segments of the Reply chunk.
    pub(crate) replies: usize,
}

impl Layout {
    /// No chunk at all.
    pub(crate) const NONE: Self = Self {
        position: Position::ZERO,
        reads: 0,
        writes: 0,
        replies: 0,
    };
}

/// The chunk lists of a Call, which are what it has registered.
pub(crate) struct Offered<R> {
    /// What belongs to which chunk.
    pub(crate) layout: Layout,
    /// The registrations.
    pub(crate) regions: R,
}

impl State {
    /// What the peer was offered, as it was told.
    pub(crate) fn offered(&self) -> Offered<impl Iterator<Item = Region> + Clone + '_> {
        Offered {
            layout: self.layout,
            regions: self.exposed.regions(),
        }
    }
}

impl<R: Iterator<Item = Region> + Clone> Offered<R> {
    fn segments(&self, skip: usize, count: usize) -> impl Iterator<Item = Segment> + '_ {
        let regions = self.regions.clone().skip(skip).take(count);
        regions.map(|region| Segment {
            handle: Handle(region.key),
            length: region.length,
            offset: region.address,
        })
    }
}

impl<R: Iterator<Item = Region> + Clone> Chunks for Offered<R> {
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        let position = self.layout.position;
        let segments = self.segments(0, self.layout.reads);
        segments.map(move |segment| ReadSegment { position, segment })
    }

    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        let Layout { reads, writes, .. } = self.layout;
        (writes != 0)
            .then(|| self.segments(reads, writes))
            .into_iter()
    }

    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        let Layout {
            reads,
            writes,
            replies,
            ..
        } = self.layout;
        (replies != 0).then(|| self.segments(reads + writes, replies))
    }
}
