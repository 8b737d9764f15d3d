// SPDX-License-Identifier: GPL-2.0

//! Addresses and network namespaces, passed from sunrpc to the RDMA connection manager.

use crate::bindings;
use core::ptr::NonNull;

/// A socket address of at most `sizeof(struct sockaddr_storage)` bytes.
#[derive(Clone, Copy)]
pub(crate) struct SockAddr {
    storage: bindings::__kernel_sockaddr_storage,
}

impl SockAddr {
    /// Wraps a copy of an address.
    pub(crate) fn new(storage: bindings::__kernel_sockaddr_storage) -> Self {
        Self { storage }
    }

    /// The address as the C functions take it.
    pub(crate) fn as_raw(&mut self) -> *mut bindings::sockaddr {
        core::ptr::from_mut(&mut self.storage).cast()
    }

    /// The address for C functions that only read it.
    pub(crate) fn as_ptr(&self) -> *const bindings::__kernel_sockaddr_storage {
        &self.storage
    }
}

/// A network namespace.
///
/// # Invariants
///
/// The namespace is alive: the transport it was taken from holds a reference for its whole life.
#[derive(Clone, Copy)]
pub(crate) struct Net(NonNull<bindings::net>);

// SAFETY: a network namespace does not belong to a task.
unsafe impl Send for Net {}

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

    /// The namespace as the C functions take it.
    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.as_ptr()
    }
}
