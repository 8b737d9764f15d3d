// SPDX-License-Identifier: GPL-2.0

//! The requester (`xprtrdma`): RPC over RDMA for the NFS client.
//!
//! One RPC goes through these files in this order:
//!
//! 1. `transport`: sunrpc's operations; hands a request to
//! 2. `marshal`, which asks `proto::plan` what goes where, maps the chunks (`registrations`),
//!    and has the [endpoint](crate::endpoint) compose and post the message. Its Reply
//!    arrives through the endpoint at
//! 3. `complete`, which takes the request (`request`) out of the table of `registrations`, checks
//!    the Reply against what was provided, has the memory invalidated, and completes the RPC.
//!
//! `connect` makes the endpoint, `versions` knows which version to begin with, and `role` says what
//! the endpoint's events mean here.

#![deny(unsafe_code)]

mod complete;
mod connect;
mod history;
mod marshal;
mod registrations;
mod request;
mod role;
pub(crate) mod settings;
mod sizes;
mod stats;
pub(crate) mod transport;
mod versions;
