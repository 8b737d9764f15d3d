// SPDX-License-Identifier: GPL-2.0

//! Error codes that `kernel::error::code` lacks.

use crate::bindings;
use kernel::error::Error;

macro_rules! declare_errno {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)*) => {
        $(
            $(#[$doc])*
            pub(crate) fn $name() -> Error {
                Error::from_errno(-(bindings::$code as i32))
            }
        )*
    };
}

declare_errno! {
    /// The transport is not connected: sunrpc reconnects and sends again.
    not_connected => ENOTCONN;
    /// The peer refused the connection.
    connection_refused => ECONNREFUSED;
    /// A resource is short: sunrpc sends again after a delay.
    no_buffers => ENOBUFS;
    /// No congestion slot: sunrpc waits for one.
    no_slot => EBADSLT;
    /// The peers have no common protocol, or no RDMA device or route leads to the peer.
    protocol => EPROTO;
    /// Another socket or id uses the local port.
    address_in_use => EADDRINUSE;
    /// Another connection has the same pair of addresses and ports.
    address_not_available => EADDRNOTAVAIL;
    /// The message is longer than the transport can carry.
    message_size => EMSGSIZE;
    /// No route leads to the peer.
    network_unreachable => ENETUNREACH;
    /// The network interface is down.
    network_down => ENETDOWN;
    /// The device lacks a capability that the transport needs.
    not_supported => EOPNOTSUPP;
    /// An attempt to connect was given up by its own side.
    canceled => ECANCELED;
    /// A step did not end in time.
    timed_out => ETIMEDOUT;
}
