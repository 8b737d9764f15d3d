// SPDX-License-Identifier: GPL-2.0

//! Send buffers and Receives. A connection begins with buffers for a few Calls at a time, and the number is
//! doubled when the Calls in flight use all buffers.

use super::{
    connection::Client,
    registrations::Current,
    sizes::{
        Start,
        Stock,
        FIRST_STOCK, //
    },
};
use crate::{
    endpoint::{
        EndReason,
        Endpoint,
        NewBuffers,
        State, //
    },
    proto::wire::types::Version,
    support::{
        errno,
        gate::Gate,
        memalloc::{
            retry_enomem,
            NofsScope, //
        },
        work::Run, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Makes the buffers of a new connection besides the first messages'. Context: process, may sleep.
///
/// # Errors
///
/// `ENOMEM`: there is no memory. `EIO`: the queue pair does not take the Receives. `ENOTCONN`: the connection has
/// ended.
//= V1-045, V1-046, V2-052
pub(super) fn make_first(
    endpoint: &Endpoint<Client>,
    start: &Start,
    version: Option<Version>,
) -> Result {
    let stock = start.sizes.first_stock(version);
    let sizes = (&FIRST_STOCK, &stock);
    endpoint.make(&start.sizes.more_buffers(&start.config, sizes, version))?;
    let mut state = endpoint.shared().lock();
    adopt(endpoint, &mut state, start, stock, version)
}

/// Accounts the buffers that the connection has now, and tells the server of the Receives. Endpoint's lock held.
///
/// # Errors
///
/// `ENOTCONN`: the connection has ended.
fn adopt(
    endpoint: &Endpoint<Client>,
    state: &mut State<Client>,
    start: &Start,
    stock: Stock,
    version: Option<Version>,
) -> Result {
    let messages = start.sizes.messages(stock.calls);
    let (protocol, requests) = state.established().ok_or_else(errno::not_connected)?;
    protocol.set_ready(stock.calls);
    protocol.set_ceiling(messages);
    requests.stock = stock;
    let recv_batch = start.sizes.recv_batch(stock.calls, version);
    endpoint.qp().set_recv_batch(recv_batch);
    state.set_messages(messages);
    let interval = start.sizes.signal_interval(stock.calls, version);
    state.queue.set_longest_interval(interval);
    let transmitted = state.transmit(endpoint.qp());
    transmitted.map_err(|_| errno::not_connected())
}

/// Makes buffers when the Calls in flight use all of them.
///
/// It belongs to the transport, and enters the connection only to look at it and to add buffers. So closing a
/// connection does not wait for an allocation. It does not use the reserves of memory while the kernel swaps: the
/// connection goes on with the buffers that it has.
pub(super) struct Growth {
    current: Arc<Current>,
}

impl Growth {
    pub(super) fn new(current: Arc<Current>) -> Self {
        Self { current }
    }
}

impl Run for Growth {
    fn run(&self) {
        let Some(gate) = self.current.lock().clone() else {
            return;
        };
        let _nofs = NofsScope::enter();
        // Without memory, the connection keeps the buffers that it has.
        let _ = grow(&gate);
    }
}

/// Doubles the number of Calls that a connection has buffers for, up to the most.
///
/// # Errors
///
/// `ENOMEM`: there is no memory. `EIO`: the memory cannot be mapped. `ENOTCONN`: the connection ends.
fn grow(gate: &Gate<Endpoint<Client>>) -> Result {
    let endpoint = gate.enter().ok_or_else(errno::not_connected)?;
    let shared = endpoint.shared();
    let version = endpoint.lasting_version();
    let state = shared.lock();
    let (start, stock) = (state.role.start, state.role.stock);
    drop(state);
    let start = start.ok_or_else(errno::not_connected)?;
    let larger = start.sizes.larger_stock(&stock, version);
    if larger.calls == stock.calls {
        return Ok(());
    }
    let more = start
        .sizes
        .more_buffers(&start.config, (&stock, &larger), version);
    let pd = endpoint.pd().clone();
    drop(endpoint);
    let new = retry_enomem(|| match gate.enter() {
        Some(endpoint) if !endpoint.shared().is_closing() => {
            drop(endpoint);
            NewBuffers::new(&pd, &more)
        }
        _ => Err(errno::not_connected()),
    });
    drop(pd);
    let endpoint = gate.enter().ok_or_else(errno::not_connected)?;
    let shared = endpoint.shared();
    // A message that waits for more Send buffers than there are asks again.
    let new = new.inspect_err(|_| shared.role.xprt.write_space())?;
    let mut state = shared.lock();
    let added = state
        .add_buffers(endpoint.qp(), new)
        .and_then(|()| adopt(&endpoint, &mut state, &start, larger, version));
    drop(state);
    if added.is_err() {
        shared.request_close(EndReason::NotPosted);
        return added;
    }
    // More of a Reply may come in parts.
    shared.role.peer_limits_changed.set(true);
    shared.role.xprt.credit_is_free();
    shared.role.xprt.write_space();
    Ok(())
}
