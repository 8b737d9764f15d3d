// SPDX-License-Identifier: GPL-2.0

//! A connection and its resources, from the address to the drained queue pair.

use super::call::{
    Call,
    Phase, //
};
use super::link::{
    Link,
    Step, //
};
use super::settings;
use super::sizes::Sizes;
use super::stats::Stats;
use super::transport::Rdma;
use crate::proto::chunk::Layout;
use crate::proto::cm_private::{
    CmPrivate,
    Effective, //
};
use crate::proto::plan::Limits;
use crate::rdma::cm::{
    CmId,
    ConnectParams, //
};
use crate::rdma::mr::{
    Idle,
    Mr, //
};
use crate::rdma::pd::Pd;
use crate::rdma::qp::Qp;
use crate::rdma::recv::RecvBuf;
use crate::rdma::send::SendBuf;
use crate::sunrpc::{
    Backchannel,
    XprtHandle, //
};
use crate::support::errno;
use crate::support::net::SockAddr;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    SetOnce, //
};

/// How long address and route may each take to resolve, in milliseconds.
const RESOLVE_TIMEOUT: u32 = 5_000;
/// How long the connection manager may take beyond that to say so.
const RESOLVE_GRACE: u32 = 1_000;
/// How long the server may take to answer. The connection manager itself gives up a little later:
/// after 16 attempts of 4.1 s and more each.
const CONNECT_TIMEOUT: u32 = 60_000;

/// How often a device sends a packet again. Few enough that a server whose address moved is
/// noticed soon; RPC sends everything again on the next connection.
const RETRIES: u8 = 6;
/// Receives are posted for every credit, so a peer that finds none is in error: show it.
const RNR_RETRIES: u8 = 0;

/// How many registrations a new connection starts with; more are made when they are needed.
const FIRST_MRS: u32 = 16;

/// A connection.
pub(crate) struct Connection {
    sizes: Sizes,
    /// What the peer is told of us, and what the buffers are made for.
    own: CmPrivate,
    limits: SetOnce<Limits>,
    qp: Qp<Link>,
    pd: Arc<Pd>,
    id: Arc<CmId>,
    link: Arc<Link>,
}

impl Connection {
    /// Finds a device that leads to the peer of `xprt`, and makes everything that the connection
    /// needs there. Nothing is sent yet.
    ///
    /// Whoever gets it must [`close`](Self::close) it in the end.
    ///
    /// Context: process, may sleep; send lock held.
    pub(crate) fn new(
        xprt: XprtHandle<Rdma>,
        stats: Arc<Stats>,
        backchannel: Arc<Backchannel>,
    ) -> Result<Arc<Self>> {
        let net = xprt.net().ok_or(EINVAL)?;
        let link = Link::new(xprt.clone(), stats, backchannel)?;
        let id = Arc::new(CmId::new(net, link.clone())?, GFP_KERNEL)?;

        id.resolve_address(xprt.peer(), RESOLVE_TIMEOUT)?;
        link.wait(Step::Address, RESOLVE_TIMEOUT + RESOLVE_GRACE)?;
        id.resolve_route(RESOLVE_TIMEOUT)?;
        link.wait(Step::Route, RESOLVE_TIMEOUT + RESOLVE_GRACE)?;

        let sizes = Sizes::new(&id.attributes()?, xprt.max_reqs()).inspect_err(|_| {
            pr_err!("the RDMA device cannot register memory as RPC over RDMA needs it\n");
        })?;
        link.set_max_requests(sizes.requests);
        let pd = Arc::new(Pd::new(id.clone())?, GFP_KERNEL)?;
        let qp = Qp::new(pd.clone(), link.clone(), sizes.qp)?;
        let conn = Arc::new(
            Self {
                sizes,
                own: CmPrivate {
                    remote_invalidation: true,
                    send_size: settings::inline_send(),
                    recv_size: settings::inline_recv(),
                },
                limits: SetOnce::new(),
                qp,
                pd,
                id,
                link,
            },
            GFP_KERNEL,
        )?;
        // From here on resources hold each other through the link, so it must be closed.
        match conn.provide() {
            Ok(()) => Ok(conn),
            Err(error) => {
                conn.close(core::iter::empty());
                Err(error)
            }
        }
    }

    /// Makes buffers and registrations, and posts all Receives.
    fn provide(&self) -> Result {
        for _ in 0..self.sizes.receives {
            let buffer = RecvBuf::new(self.pd.clone(), self.own.recv_size)?;
            self.qp.post_recv(buffer).map_err(|_| EIO)?;
        }
        for _ in 0..self.sizes.sends {
            let buffer = SendBuf::new(self.pd.clone(), self.own.send_size)?;
            self.link.put_send(buffer);
        }
        for _ in 0..FIRST_MRS {
            self.link.put_mr(self.new_mr()?);
        }
        Ok(())
    }

    /// Connects, and settles how large messages may be (RFC 8797).
    ///
    /// Context: process, may sleep; send lock held.
    pub(crate) fn establish(&self) -> Result {
        self.id.connect(&ConnectParams {
            private_data: self.own.encode(),
            responder_resources: self.sizes.reads_in,
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
        })?;
        self.link.wait(Step::Established, CONNECT_TIMEOUT)?;
        let thresholds = Effective::new(&self.own, &self.link.peer());
        self.limits.populate(self.sizes.limits(&thresholds));
        Ok(())
    }

    /// This side's address.
    pub(crate) fn source(&self) -> SockAddr {
        self.id.source()
    }

    /// Where events and completions arrive.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &Qp<Link> {
        &self.qp
    }

    /// What a plan has to keep to; none before the connection is established.
    pub(crate) fn limits(&self) -> Result<&Limits> {
        self.limits.as_ref().ok_or_else(errno::not_connected)
    }

    /// A free registration, made anew if all are in use.
    ///
    /// Context: process, may sleep.
    pub(crate) fn take_mr(&self) -> Result<Mr<Idle>> {
        match self.link.take_mr() {
            Some(mr) => Ok(mr),
            None => self.new_mr().map_err(|_| errno::no_buffers()),
        }
    }

    fn new_mr(&self) -> Result<Mr<Idle>> {
        let mr = Mr::new(self.pd.clone(), self.sizes.mr_pages)?;
        self.link.stats.mrs_allocated.add(1);
        Ok(mr)
    }

    /// Breaks the connection, as if the network had.
    pub(crate) fn break_up(&self) {
        self.id.disconnect();
    }

    /// Ends the connection: when this returns, the peer reaches no memory of `calls`, and no
    /// completion will come for them.
    ///
    /// Context: process, sleeps; send lock held; not from an event or a completion.
    pub(crate) fn close<'a>(&self, calls: impl Iterator<Item = &'a Call>) {
        self.link.expect_loss();
        self.id.disconnect();
        // Without the proof nothing that the peer may reach is freed.
        let Some(drained) = self.qp.drain() else {
            return;
        };
        for call in calls {
            let exposed = {
                let mut state = call.state.lock();
                state.phase = Phase::Idle;
                state.layout = Layout::default();
                state.conn = None;
                state.exposed.take()
            };
            if let Some(exposed) = exposed {
                exposed.destroy(&drained);
            }
        }
        self.link.close(drained);
    }
}
