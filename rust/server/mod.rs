// SPDX-License-Identifier: GPL-2.0

//! The responder: the server's transport of RPC over RDMA (RFC 8166, RFC 8267, RFC 8797).
//!
//! One of the two roles of an endpoint; [`client`](crate::client) is the other one. `proto` decides the
//! meaning of a message, the form of a Reply and the handle to invalidate. `sunrpc::svc` gives a Call to a
//! thread of the service, and takes its Reply.
//!
//! - `listener`: accepts clients, also after its address has moved to another device
//! - `service`: a connection as nfsd sees it: accepted, asked for the next Call, given a Reply, detached
//! - `connection`: the data of a connection
//! - `role`: messages, from the completion to the queue for the threads of the service
//! - `receives`: the Receives of a connection, and the grants that they allow
//! - `call`: a Call, from its message to a thread, with its Read chunks pulled
//! - `reply`: a Reply, from a thread to its message, with its results written
//! - `delayed`: Replies that wait for the client
//! - `permit`: room in the send queue, a Send buffer and a credit for a message
//! - `message`: the message of a Reply
//! - `callback`: a Call to the client, and the reasons for not sending it
//! - `sizes`: the sizes of a connection's resources, from the device and the settings
//! - `settings`: sysctls and counters

#![deny(unsafe_code)]

mod call;
mod callback;
mod connection;
mod delayed;
mod listener;
mod message;
mod permit;
mod receives;
mod reply;
mod role;
mod service;
pub(crate) mod settings;
mod sizes;

use crate::{
    rdma::listen::ConnectRequest,
    sunrpc::svc::{
        self,
        Addresses,
        Service,
        ServiceFacts,
        SvcHandle, //
    },
    support::{
        errno,
        net::{
            Net,
            SockAddr, //
        },
        trace, //
    },
};
use kernel::prelude::*;

/// RPC over RDMA, as transport class `rdma` of the server.
pub(crate) struct RdmaService;

impl Service for RdmaService {
    type Listener = listener::ServerListener;
    type Request = KBox<ConnectRequest>;
    type Connection = service::ServerConnection;

    /// The largest payload of the kernel's RPC server (`RPCSVC_MAXPAYLOAD`), in bytes.
    const MAX_PAYLOAD: u32 = 4 << 20;

    fn listen(xprt: SvcHandle, net: Net, address: SockAddr) -> Result<listener::ServerListener> {
        listener::ServerListener::new(xprt, net, address)
    }

    fn accept(
        xprt: SvcHandle,
        request: KBox<ConnectRequest>,
        service: &ServiceFacts,
    ) -> Result<(service::ServerConnection, Addresses)> {
        let peer = request.peer();
        service::ServerConnection::accept(xprt, request, service).inspect_err(|&error| {
            let why = match error {
                _ if error == errno::not_supported() => "the limits of the device do not suffice",
                ENOMEM => "no memory",
                _ => "not set up",
            };
            trace::emit(|| trace::SvcrdmaRefuse {
                peer: &peer,
                why,
                rc: error.to_errno(),
            });
        })
    }
}

/// The registration of both classes; dropping it unregisters them.
pub(crate) struct ServerRegistration {
    _server: svc::class::SvcRegistration<RdmaService>,
    _backchannel: svc::backchannel::BackchannelRegistration<RdmaService>,
}

impl ServerRegistration {
    /// # Errors
    ///
    /// `EEXIST`: another module has registered these classes.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            _backchannel: svc::backchannel::BackchannelRegistration::new()?,
            _server: svc::class::SvcRegistration::new()?,
        })
    }
}
