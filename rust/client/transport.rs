// SPDX-License-Identifier: GPL-2.0

//! The transport as sunrpc sees it.

use super::call::{
    Call,
    Phase,
    Shared, //
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
    CallBuf,
    ConnectError,
    Rqst,
    SendCell,
    SendError,
    SendLock,
    Transport,
    Xprt,
    XprtHandle, //
};
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
    xprt: XprtHandle<Call>,
    /// What the requests of each slot expose, for those that were ever sent.
    calls: SendCell<KVec<Option<Arc<Shared>>>>,
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
    type Request = Call;

    const MAX_PAYLOAD: usize = (MAX_DATA_PAGES * PAGE_SIZE) as usize;

    fn slot_count() -> u32 {
        settings::slots()
    }

    fn create(xprt: XprtHandle<Call>) -> Result<Arc<Self>> {
        let stats = Arc::new(Stats::new(), GFP_KERNEL)?;
        let backchannel = Arc::pin_init(Backchannel::new(), GFP_KERNEL)?;
        let mut calls = KVec::new();
        for _ in 0..xprt.max_reqs() {
            calls.push(None, GFP_KERNEL)?;
        }
        let calls = SendCell::new(&xprt, calls);
        Arc::pin_init(
            pin_init!(Self {
                xprt,
                calls,
                conn <- new_spinlock!(None),
                failed: Atomic::new(0),
                stats,
                backchannel,
            }),
            GFP_KERNEL,
        )
    }

    fn new_request(_index: u32) -> impl PinInit<Call, Error> {
        Call::new()
    }

    fn connect(&self, _lock: &mut SendLock<'_>, xprt: &Xprt) -> Result<(), ConnectError> {
        let result = self.try_connect(xprt);
        trace::connect(&self.xprt.peer(), result.err().map_or(0, |e| e.to_errno()));
        self.failed.store(i32::from(result.is_err()), Relaxed);
        Ok(result?)
    }

    fn last_connect_failed(&self) -> bool {
        self.failed.load(Relaxed) != 0
    }

    fn close(&self, lock: &mut SendLock<'_>, xprt: &Xprt) {
        let Some(conn) = self.conn.lock().take() else {
            return;
        };
        xprt.clear_connected();
        let calls = self.calls.get(lock).iter();
        conn.close(calls.filter_map(|call| call.as_deref()));
    }

    fn send(&self, lock: &mut SendLock<'_>, rqst: &RdmaRqst) -> Result<(), SendError> {
        let conn = self.connection().ok_or(SendError::NotConnected)?;
        if let Some(call) = self.calls.get(lock).get_mut(rqst.index() as usize) {
            call.get_or_insert_with(|| rqst.request().shared.clone());
        }
        Ok(send::send(&conn, rqst)?)
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

    fn send_reply(
        &self,
        _lock: &mut SendLock<'_>,
        xid: u32,
        reply: &CallBuf<'_>,
    ) -> Result<(), SendError> {
        let conn = self.connection().ok_or(SendError::NotConnected)?;
        Ok(send::send_reply(&conn, xid, reply)?)
    }

    fn release(&self, rqst: &RdmaRqst) {
        let call = rqst.request();
        let (exposed, conn, fence) = {
            let mut state = call.state.lock();
            // The slot's next RPC is not sent yet: a Reply with its XID is a forged one.
            state.phase = Phase::Idle;
            let exposed = core::mem::take(&mut state.exposed);
            if exposed.is_empty() {
                // As always, unless the task gave up before the Reply.
                return;
            }
            (exposed, state.conn.take(), state.fence.take())
        };
        // Whatever is exposed was registered on a connection, with a fence at hand.
        let (Some(conn), Some(fence)) = (conn, fence) else {
            return;
        };
        call.released.reset();
        let waiter = Waiter::Release(call.released.clone());
        if let Err(fence) = conn.qp().post_fence(fence, exposed, waiter) {
            conn.link().fence_failed(fence);
        }
        call.released.wait();
    }

    fn buffers_grew(&self, bytes: usize) {
        self.stats.hardway_register.add(bytes as u64);
    }

    fn source_address(&self) -> Option<SockAddr> {
        self.conn.lock().as_ref().map(|conn| conn.source())
    }

    fn inject_disconnect(&self, _lock: &mut SendLock<'_>) {
        if let Some(conn) = self.connection() {
            conn.break_up();
        }
    }

    fn print_stats(&self, xprt: &Xprt, seq: &SeqFile) {
        self.stats.print(xprt, seq);
    }
}
