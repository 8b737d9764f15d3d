// SPDX-License-Identifier: GPL-2.0

//! What the requester remembers of one RPC.

use super::connection::Connection;
use super::link::Link;
use crate::proto::chunk::Chunks;
use crate::proto::plan::Limits;
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

/// The most Segments of one chunk.
pub(crate) const CHUNK_SEGMENTS: usize = Limits::NFS_SAFE_SEGMENTS as usize;

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
    /// The chunks that the peer was told of.
    pub(crate) offered: Offered,
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
                offered: Offered::NONE,
            }),
            released: Arc::pin_init(Completion::new(), GFP_KERNEL)?,
        })
    }
}

/// The Segments of one chunk.
#[derive(Clone, Copy)]
struct Segments<T> {
    count: usize,
    items: [T; CHUNK_SEGMENTS],
}

impl<T: Copy> Segments<T> {
    const fn none(fill: T) -> Self {
        Self {
            count: 0,
            items: [fill; CHUNK_SEGMENTS],
        }
    }

    fn push(&mut self, item: T) -> Result {
        *self.items.get_mut(self.count).ok_or(E2BIG)? = item;
        self.count += 1;
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.items.iter().take(self.count).copied()
    }
}

/// The chunk lists of a Call: at most one Read chunk, and one Write chunk or Reply chunk.
#[derive(Clone, Copy)]
pub(crate) struct Offered {
    reads: Segments<ReadSegment>,
    write: Segments<Segment>,
    reply: Segments<Segment>,
}

impl Offered {
    const NO_SEGMENT: Segment = Segment {
        handle: Handle::NONE,
        length: 0,
        offset: 0,
    };

    /// No chunk at all.
    pub(crate) const NONE: Self = Self {
        reads: Segments::none(ReadSegment {
            position: Position::ZERO,
            segment: Self::NO_SEGMENT,
        }),
        write: Segments::none(Self::NO_SEGMENT),
        reply: Segments::none(Self::NO_SEGMENT),
    };

    /// Adds a Segment to the Read chunk at `position`.
    pub(crate) fn add_read(&mut self, position: Position, region: Region) -> Result {
        self.reads.push(ReadSegment {
            position,
            segment: segment(region),
        })
    }

    /// Adds a Segment to the Write chunk.
    pub(crate) fn add_write(&mut self, region: Region) -> Result {
        self.write.push(segment(region))
    }

    /// Adds a Segment to the Reply chunk.
    pub(crate) fn add_reply(&mut self, region: Region) -> Result {
        self.reply.push(segment(region))
    }

    /// How many Segments there are of Read, Write and Reply chunks.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.reads.count, self.write.count, self.reply.count)
    }
}

fn segment(region: Region) -> Segment {
    Segment {
        handle: Handle(region.key),
        length: region.length,
        offset: region.address,
    }
}

impl Chunks for Offered {
    fn reads(&self) -> impl Iterator<Item = ReadSegment> {
        self.reads.iter()
    }

    fn writes(&self) -> impl Iterator<Item = impl Iterator<Item = Segment>> {
        (self.write.count != 0)
            .then(|| self.write.iter())
            .into_iter()
    }

    fn reply(&self) -> Option<impl Iterator<Item = Segment>> {
        (self.reply.count != 0).then(|| self.reply.iter())
    }
}
