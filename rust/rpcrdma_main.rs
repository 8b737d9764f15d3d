// SPDX-License-Identifier: GPL-2.0

//! RPC over RDMA: a transport of the Linux NFS client and server (RFC 8166, RFC 8797).
//!
//! Layers, each of which uses only the layers above it in this list:
//!
//! - `proto`: the protocol, pure; `bindings`: the C side, raw
//! - `support`, `rdma`, `sunrpc`: the C side, safe; neither uses the other
//! - `endpoint`: one connection of either role
//! - `client`: the requester
//! - `server`: the responder
//! - this file: registration

#![crate_name = "rpcrdma"]

use core::borrow::Borrow;
use kernel::prelude::*;

mod bindings;
mod client;
mod endpoint;
pub mod proto;
mod rdma;
mod server;
mod sunrpc;
mod support;

module! {
    type: RpcRdma,
    name: "rpcrdma",
    authors: ["The rpcrdma developers"],
    description: "RPC-over-RDMA transport of the NFS client and server, in Rust",
    license: "GPL",
    alias: ["svcrdma", "xprtrdma", "rpcrdma6"],
    params: {
        max_version: i32 {
            default: 2,
            description: "sunrpc.rdma_max_version to begin with: 1 or 2",
        },
        negotiate: i32 {
            default: 0,
            description: "sunrpc.rdma_negotiate to begin with: 0 or 1",
        },
        svc_max_version: i32 {
            default: 2,
            description: "sunrpc.svc_rdma.max_version to begin with: 1 or 2",
        },
    },
}

/// The loaded module. The registrations are dropped in this order.
struct RpcRdma {
    _responder: server::ServerRegistration,
    _requester: sunrpc::XprtRegistration<client::transport::RdmaTransport>,
    _server_settings: support::sysctl::Table,
    _settings: support::sysctl::Table,
    _memory: Option<support::debugfs::File>,
    _debugfs: support::debugfs::Root,
    _hostauth: endpoint::hostauth::AuthRegistration,
    _pages: support::page_stash::PageStash,
    _queue: support::work::Workqueue,
}

/// Returns the value of a parameter. Linux 7.2 returns a reference, Linux 7.3 a copy.
fn value(parameter: impl Borrow<i32>) -> i32 {
    *parameter.borrow()
}

impl kernel::Module for RpcRdma {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let this = Self {
            _queue: support::work::Workqueue::new(c"rpcrdma")?,
            _pages: support::page_stash::PageStash::new()?,
            _hostauth: endpoint::hostauth::AuthRegistration::new(
                c".rpcrdma",
                support::module::host_auth(),
                support::module::svc_host_auth(),
            )?,
            _debugfs: support::debugfs::Root::new(c"rpcrdma")?,
            _memory: endpoint::memory::show_memory()?,
            _settings: client::settings::register(
                value(module_parameters::max_version.value()),
                value(module_parameters::negotiate.value()),
            )?,
            _server_settings: server::settings::register(value(
                module_parameters::svc_max_version.value(),
            ))?,
            _requester: sunrpc::XprtRegistration::new()?,
            _responder: server::ServerRegistration::new()?,
        };
        let version = support::module::version();
        pr_info!("version {version} in Rust, with RPC-over-RDMA versions 1 and 2\n");
        Ok(this)
    }
}
