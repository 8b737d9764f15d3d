// SPDX-License-Identifier: GPL-2.0

//! Addresses and network namespaces, passed from sunrpc to the RDMA connection manager.

use crate::bindings;
use core::{
    net::{
        IpAddr,
        SocketAddr, //
    },
    ptr::NonNull, //
};
use kernel::{
    ffi::c_int,
    fmt, //
};

/// Returns whether the rate limit of the log admits another message about a peer. Context: any.
pub(crate) fn may_log() -> bool {
    // SAFETY: net_ratelimit() takes a lock of its own only, which it does not wait for.
    unsafe { bindings::net_ratelimit() != 0 }
}

/// Returns whether the log admits another message about host authentication, which has a rate limit of
/// its own. Context: any.
pub(crate) fn may_log_hostauth() -> bool {
    // SAFETY: __ratelimit() tries a lock of its own and does not wait for it.
    unsafe { bindings::rpcrdma_may_log_hostauth() }
}

/// A socket address of at most `sizeof(struct sockaddr_storage)` bytes.
#[derive(Clone, Copy)]
pub(crate) struct SockAddr {
    storage: bindings::__kernel_sockaddr_storage,
}

// SAFETY: an address is bytes. The pointer in `struct __kernel_sockaddr_storage` is there for its
// alignment only (include/uapi/linux/socket.h).
unsafe impl Send for SockAddr {}
// SAFETY: `as_raw` alone gives out a pointer for writing, and needs `&mut`.
unsafe impl Sync for SockAddr {}

impl SockAddr {
    /// Wraps a copy of an address.
    pub(crate) fn new(storage: bindings::__kernel_sockaddr_storage) -> Self {
        Self { storage }
    }

    /// Returns the address as the C functions take it.
    pub(crate) fn as_raw(&mut self) -> *mut bindings::sockaddr {
        core::ptr::from_mut(&mut self.storage).cast()
    }

    /// Returns the address for C functions that only read it.
    pub(crate) fn as_ptr(&self) -> *const bindings::__kernel_sockaddr_storage {
        &self.storage
    }
}

impl SockAddr {
    /// Address and port, unless it is of a family that has none.
    pub(crate) fn socket(&self) -> Option<SocketAddr> {
        let address = self.as_ptr();
        // SAFETY: every address begins with its family (`struct sockaddr_storage`).
        let family = unsafe { (*address.cast::<bindings::sockaddr>()).sa_family };
        let (address, port): (IpAddr, u16) = match u32::from(family) {
            bindings::AF_INET => {
                // SAFETY: `sa_family` is the type of the address.
                let v4 = unsafe { &*address.cast::<bindings::sockaddr_in>() };
                (v4.sin_addr.s_addr.to_ne_bytes().into(), v4.sin_port)
            }
            bindings::AF_INET6 => {
                // SAFETY: `sa_family` is the type of the address.
                let v6 = unsafe { &*address.cast::<bindings::sockaddr_in6>() };
                // SAFETY: all arms of the union are 16 bytes (`struct in6_addr`).
                let bytes = unsafe { v6.sin6_addr.in6_u.u6_addr8 };
                (bytes.into(), v6.sin6_port)
            }
            _ => return None,
        };
        Some(SocketAddr::new(address, u16::from_be(port)))
    }
}

impl PartialEq for SockAddr {
    /// Compares address and port.
    fn eq(&self, other: &Self) -> bool {
        self.socket() == other.socket()
    }
}

impl fmt::Display for SockAddr {
    /// Writes address and port, as in `192.0.2.1:20049` and `[2001:db8::1]:20049`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("none"),
        }
    }
}

/// The link of a connection: an interface of a network namespace.
#[derive(Clone, Copy)]
pub(crate) struct NetInterface {
    net: Net,
    index: c_int,
}

impl NetInterface {
    /// Makes the link of the interface with this index; 0 stands for no interface.
    pub(crate) fn new(net: Net, index: c_int) -> Self {
        Self { net, index }
    }

    /// Returns whether the interface has this name now. Context: any.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        // SAFETY: the namespace is alive by its type invariant; the length is the length of the name.
        unsafe {
            bindings::rpcrdma_interface_has_name(
                self.net.as_raw(),
                self.index,
                name.as_ptr().cast(),
                name.len(),
            )
        }
    }
}

/// A network namespace.
///
/// # Invariants
///
/// The namespace is alive: the transport or the CM's id that it was taken from holds a reference for its
/// whole life.
#[derive(Clone, Copy)]
pub(crate) struct Net(NonNull<bindings::net>);

// SAFETY: `struct net` does not belong to a task.
unsafe impl Send for Net {}
// SAFETY: a shared `Net` gives out its pointer only.
unsafe impl Sync for Net {}

impl Net {
    /// Wraps a namespace.
    ///
    /// # Safety
    ///
    /// The caller vouches for the type invariant.
    pub(crate) unsafe fn new(net: NonNull<bindings::net>) -> Self {
        // INVARIANT: promised by the caller.
        Self(net)
    }

    /// Returns the namespace as the C functions take it.
    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.as_ptr()
    }
}
