// SPDX-License-Identifier: GPL-2.0

//! The requester (`xprtrdma`): RPC over RDMA for the NFS client.
//!
//! One RPC goes through these files in this order:
//!
//! 1. `transport`: sunrpc's operations; hands a request to
//! 2. `send`, which asks `proto::plan` what goes where, registers the chunks, writes the message
//!    and posts it on the
//! 3. `connection`, whose completions arrive at its
//! 4. `link`, which hands what was received to
//! 5. `recv`, which lets `proto::reply` check it against what `call` remembers was offered,
//!    fences the registrations, and completes the RPC.

#![deny(unsafe_code)]

mod call;
mod connection;
mod link;
mod recv;
mod send;
pub(crate) mod settings;
mod sizes;
mod stats;
pub(crate) mod transport;
