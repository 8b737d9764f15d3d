// SPDX-License-Identifier: GPL-2.0

//! The requester (`xprtrdma`): RPC over RDMA for the NFS client.
//!
//! One RPC goes through these files in this order:
//!
//! 1. `transport`: sunrpc's operations; hands a request to
//! 2. `marshal`, which gets the form of the Call from `proto::requester::plan`, maps the chunks (`registrations`),
//!    and has the [endpoint](crate::endpoint) compose and post the message. Its Reply
//!    arrives through the endpoint at
//! 3. `complete`, which takes the request (`request`) out of the table of `registrations`, checks
//!    the Reply against the provided chunks, invalidates the memory, and completes the RPC.
//!
//! `connect` makes the endpoint, and `versions` returns the version to begin with. `pool` has the idle
//! registrations of a connection. `buffers` makes Send buffers and Receives as the Calls in flight need them.

#![deny(unsafe_code)]

mod buffers;
mod complete;
mod connect;
mod connection;
mod history;
mod marshal;
mod pool;
mod registrations;
mod request;
pub(crate) mod settings;
mod sizes;
mod stats;
pub(crate) mod transport;
mod versions;
