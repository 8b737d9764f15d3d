// SPDX-License-Identifier: GPL-2.0

//! The transport as sunrpc sees it.

use super::call::{
    Call,
    Phase, //
};
use super::connection::Connection;
use super::link::Waiter;
use super::send;
use super::settings;
use super::sizes::MAX_DATA_PAGES;
use super::stats::Stats;
use crate::proto::types::Version::V1;
use crate::rdma::Handler;
use crate::sunrpc::{
    Backchannel,
    Rqst,
    Transport,
    XdrBuf,
    Xprt,
    XprtHandle, //
};
use crate::support::errno;
use crate::support::memory::PAGE_SIZE;
use crate::support::net::SockAddr;
use crate::support::trace;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use kernel::sync::{
    Arc,
    SpinLock, //
};

/// A request of this transport.
pub(crate) type RdmaRqst = Rqst<Call>;

/// RPC over RDMA, as transport class `rdma`.
#[pin_data]
pub(crate) struct Rdma {
    xprt: XprtHandle<Rdma>,
    /// The connection, if there is one. Changes with the send lock held only; protects itself
    /// for those who look without it.
    #[pin]
    conn: SpinLock<Option<Arc<Connection>>>,
    /// The last attempt to connect failed.
    failed: Atomic<i32>,
    stats: Arc<Stats>,
    backchannel: Arc<Backchannel>,
}

impl Rdma {
    fn connection(&self) -> Option<Arc<Connection>> {
        self.conn.lock().clone()
    }

    fn try_connect(&self, xprt: &Xprt) -> Result {
        let conn = Connection::new(
            self.xprt.clone(),
            self.stats.clone(),
            self.backchannel.clone(),
        )?;
        *self.conn.lock() = Some(conn.clone());
        xprt.clear_connected();
        xprt.reset_credits();
        conn.establish()
    }
}

impl Transport for Rdma {
    type Slot = Call;

    const MAX_PAYLOAD: usize = (MAX_DATA_PAGES * PAGE_SIZE) as usize;

    fn slot_count() -> u32 {
        settings::slots()
    }

    fn create(xprt: XprtHandle<Self>) -> Result<Arc<Self>> {
        let stats = Arc::new(Stats::new(), GFP_KERNEL)?;
        let backchannel = Arc::pin_init(Backchannel::new(), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                xprt,
                conn <- new_spinlock!(None),
                failed: Atomic::new(0),
                stats,
                backchannel,
            }),
            GFP_KERNEL,
        )
    }

    fn new_slot() -> impl PinInit<Call, Error> {
        Call::new()
    }

    fn connect(&self, xprt: &Xprt) -> Result {
        let result = self.try_connect(xprt);
        trace::connect(&self.xprt.peer(), result.err().map_or(0, |e| e.to_errno()));
        self.failed.store(i32::from(result.is_err()), Relaxed);
        result
    }

    fn last_connect_failed(&self) -> bool {
        self.failed.load(Relaxed) != 0
    }

    fn disconnect<'a>(&self, xprt: &Xprt, calls: impl Iterator<Item = &'a Call>) {
        let Some(conn) = self.conn.lock().take() else {
            return;
        };
        xprt.clear_connected();
        conn.close(calls);
    }

    fn send(&self, rqst: &RdmaRqst) -> Result {
        let conn = self.connection().ok_or_else(errno::not_connected)?;
        send::send(&conn, rqst)
    }

    fn backchannel(&self) -> &Backchannel {
        &self.backchannel
    }

    fn max_callback(&self) -> usize {
        let limits = self
            .connection()
            .and_then(|conn| conn.limits().ok().copied());
        let inline = limits.map_or(V1.default_inline(), |limits| {
            limits.inline_send.min(limits.inline_recv)
        });
        inline.saturating_sub(V1.empty_header_len()) as usize
    }

    fn send_reply(&self, xid: u32, reply: &XdrBuf<'_>) -> Result {
        let conn = self.connection().ok_or_else(errno::not_connected)?;
        send::send_reply(&conn, xid, reply)
    }

    fn release(&self, rqst: &RdmaRqst) {
        let call = rqst.slot();
        let (exposed, conn, fence) = {
            let mut state = call.state.lock();
            // The slot's next RPC is not sent yet: a Reply with its XID is a forged one.
            state.phase = Phase::Idle;
            let exposed = state.exposed.take();
            let Some(exposed) = exposed.filter(|mrs| !mrs.is_empty()) else {
                // As always, unless the task gave up before the Reply.
                return;
            };
            (exposed, state.conn.take(), state.fence.take())
        };
        // Whatever is exposed was registered on a connection, with a fence at hand.
        let (Some(conn), Some(fence)) = (conn, fence) else {
            return;
        };
        call.released.reset();
        let waiter = Waiter::Release(call.released.clone());
        if let Err(fence) = conn.qp().post_local_inv(fence, exposed, waiter) {
            conn.link().invalidation_failed(fence);
        }
        call.released.wait();
    }

    fn buffers_grew(&self, bytes: usize) {
        self.stats.hardway_register.add(bytes as u64);
    }

    fn source_address(&self) -> Option<SockAddr> {
        self.conn.lock().as_ref().map(|conn| conn.source())
    }

    fn inject_disconnect(&self) {
        if let Some(conn) = self.connection() {
            conn.break_up();
        }
    }

    fn print_stats(&self, xprt: &Xprt, seq: &SeqFile) {
        self.stats.print(xprt, seq);
    }
}
