// SPDX-License-Identifier: GPL-2.0

//! The data of a connection of the requester besides the endpoint's.

use super::{
    history::History,
    pool::Pool,
    request::Request,
    stats::Stats, //
};
use crate::{
    rdma::mr::{
        Idle,
        Mr,
        MrList, //
    },
    sunrpc::{
        Backchannel,
        XprtHandle, //
    },
    support::{
        memory::Scratch,
        net::SockAddr,
        racy::Racy, //
    },
};
use kernel::sync::{
    Arc,
    SetOnce, //
};

/// The requester's side of a connection.
pub(crate) struct Client {
    /// The transport whose connection this is.
    pub(super) xprt: XprtHandle<Request>,
    /// Its counters.
    pub(super) stats: Arc<Stats>,
    /// The receiver of the server's Calls.
    pub(super) backchannel: Arc<Backchannel>,
    /// The memory of its connections.
    pub(super) history: Arc<History>,
    /// The idle registrations of the connection.
    pub(super) pool: Pool,
    /// Memory for pad, if the server may demand it. The registrations of the connection end before this.
    pub(super) scratch: SetOnce<Scratch>,
    /// True if properties may have arrived since the sender has looked (version 2). Properties that arrive
    /// before a Reply are seen by the sender of each Call after that Reply.
    pub(super) peer_limits_changed: Racy<bool>,
    /// The number of the connection.
    pub(super) cid: u32,
    /// The server.
    pub(super) peer: SockAddr,
    /// The version is negotiated in-band, and not by the announcement of the server.
    pub(super) negotiates_in_band: bool,
}

impl Client {
    pub(super) fn new(
        xprt: XprtHandle<Request>,
        stats: Arc<Stats>,
        backchannel: Arc<Backchannel>,
        history: Arc<History>,
        cid: u32,
        peer: SockAddr,
        negotiates_in_band: bool,
    ) -> Self {
        Self {
            history,
            pool: Pool::new(),
            scratch: SetOnce::new(),
            peer_limits_changed: Racy::new(false),
            cid,
            peer,
            xprt,
            stats,
            backchannel,
            negotiates_in_band,
        }
    }

    /// Gives a registration back. Context: process, does not sleep.
    #[inline]
    pub(super) fn give_back(&self, mr: Mr<Idle>) {
        let wanted = self.pool.put(mr);
        self.wake_sender(wanted);
    }

    /// Gives registrations back. Context: process, does not sleep.
    pub(super) fn give_back_all(&self, mrs: MrList<Idle>) {
        let wanted = self.pool.put_all(mrs);
        self.wake_sender(wanted);
    }

    /// Wakes the sender, if it waits for registrations. Context: process, does not sleep.
    #[inline]
    pub(super) fn wake_sender(&self, wanted: bool) {
        if wanted {
            self.xprt.write_space();
        }
    }
}
