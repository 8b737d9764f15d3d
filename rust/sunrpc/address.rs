// SPDX-License-Identifier: GPL-2.0

//! The strings by which a transport's address is shown (`enum rpc_display_format_t`).
//!
//! The core prints them in sysfs, debugfs and messages, and frees some of them, so they are C
//! strings in kmalloc memory; protocol and netid are constants.

use crate::{
    bindings,
    support::errno, //
};
use kernel::{
    fmt,
    prelude::*,
    str::CString, //
};

/// The netid of RDMA over IPv4.
pub(super) const NETID: &CStr = c"rdma";
/// The netid of RDMA over IPv6.
pub(super) const NETID6: &CStr = c"rdma6";

/// Sets one of the strings, and frees the old string.
///
/// # Errors
///
/// `ENOMEM`: there is no memory.
///
/// # Safety
///
/// `xprt` must be valid, and no other code may change its strings. `what` must be the index of a string
/// that is kmalloc'ed.
unsafe fn set(xprt: *mut bindings::rpc_xprt, what: u32, text: fmt::Arguments<'_>) -> Result {
    let text = CString::try_from_fmt(text)?;
    // SAFETY: `text` is a C string that lives until the end of the function.
    let copy = unsafe { bindings::kstrdup(text.as_char_ptr(), bindings::GFP_KERNEL) };
    if copy.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: `xprt` is valid and its strings are the caller's.
    let entry = unsafe { &raw mut (*xprt).address_strings[what as usize] };
    // SAFETY: an entry of `address_strings` is a pointer, which readers of sysfs and debugfs load at once
    // (READ_ONCE()).
    let old = unsafe { core::ptr::replace(entry, copy) };
    // SAFETY: null, or kmalloc'ed by the caller's promise.
    unsafe { bindings::kfree(old.cast()) };
    Ok(())
}

/// Fills in all strings from the transport's address.
///
/// # Errors
///
/// `EAFNOSUPPORT`: the address is of another family. `ENOMEM`: there is no memory.
///
/// # Safety
///
/// `xprt` must be valid, not be published yet, and hold an address of family `family`.
pub(super) unsafe fn format_strings(xprt: *mut bindings::rpc_xprt, family: u16) -> Result {
    // SAFETY: `xprt` is valid by the caller's promise; nothing is read.
    let addr = unsafe { &raw const (*xprt).addr };
    let netid = match u32::from(family) {
        bindings::AF_INET => {
            // SAFETY: `sa_family` is the type of the address.
            let sin = unsafe { &*addr.cast::<bindings::sockaddr_in>() };
            let hex = u32::from_be(sin.sin_addr.s_addr);
            // SAFETY: `xprt` is not published yet, and the string is kmalloc'ed.
            unsafe {
                set(
                    xprt,
                    bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR,
                    fmt!("{hex:08x}"),
                )
            }?;
            NETID
        }
        bindings::AF_INET6 => {
            // SAFETY: `sa_family` is the type of the address.
            let sin6 = unsafe { &*addr.cast::<bindings::sockaddr_in6>() };
            // SAFETY: all arms of `in6_u` (struct in6_addr) are 16 bytes of any value.
            let bytes = unsafe { sin6.sin6_addr.in6_u.u6_addr8 };
            let hex = u128::from_be_bytes(bytes);
            // SAFETY: `xprt` is not published yet, and the string is kmalloc'ed.
            unsafe {
                set(
                    xprt,
                    bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR,
                    fmt!("{:016x}{:016x}", (hex >> 64) as u64, hex as u64),
                )
            }?;
            NETID6
        }
        _ => return Err(bad_family()),
    };
    let mut text = [0u8; 64];
    // SAFETY: the address is valid; writes at most `text.len()` bytes, terminated.
    unsafe { bindings::rpc_ntop(addr.cast(), text.as_mut_ptr().cast(), text.len()) };
    let text = CStr::from_bytes_until_nul(&text).map_err(|_| EINVAL)?;
    // SAFETY: `xprt` is not published yet, and the string is kmalloc'ed.
    unsafe {
        set(
            xprt,
            bindings::rpc_display_format_t_RPC_DISPLAY_ADDR,
            fmt!("{}", text.to_str().unwrap_or("")),
        )
    }?;
    // SAFETY: `xprt` is not published yet, and its address is valid.
    unsafe { format_port(xprt) }?;
    // `free_strings` does not free these two.
    for (what, text) in [
        (bindings::rpc_display_format_t_RPC_DISPLAY_PROTO, c"rdma"),
        (bindings::rpc_display_format_t_RPC_DISPLAY_NETID, netid),
    ] {
        // SAFETY: `xprt` is valid, and not published yet.
        unsafe { (*xprt).address_strings[what as usize] = text.as_char_ptr() };
    }
    Ok(())
}

/// Fills in the strings of the port.
///
/// # Errors
///
/// `ENOMEM`: there is no memory.
///
/// # Safety
///
/// As for [`set`], and the address must be valid.
unsafe fn format_port(xprt: *mut bindings::rpc_xprt) -> Result {
    // SAFETY: the caller promises a valid address of a family that has a port.
    let port = unsafe { bindings::rpc_get_port((&raw const (*xprt).addr).cast()) };
    // SAFETY: the caller promises that no other code changes the strings.
    unsafe {
        set(
            xprt,
            bindings::rpc_display_format_t_RPC_DISPLAY_PORT,
            fmt!("{port}"),
        )
    }?;
    // SAFETY: the caller promises that no other code changes the strings.
    unsafe {
        set(
            xprt,
            bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT,
            fmt!("{port:4x}"),
        )
    }
}

/// Sets the server's port, which rpcbind has told.
///
/// # Safety
///
/// As for [`set`], and the address must be valid.
pub(super) unsafe fn set_port(xprt: *mut bindings::rpc_xprt, port: u16) {
    // SAFETY: the caller promises a valid address of a family that has a port.
    unsafe { bindings::rpc_set_port((&raw mut (*xprt).addr).cast(), port) };
    // Without memory, the strings keep the old port; they are for display only.
    // SAFETY: the caller promises that no other code changes the strings, and a valid address.
    let _ = unsafe { format_port(xprt) };
}

/// Frees the strings.
///
/// # Safety
///
/// `xprt` must be valid and on its way out.
pub(super) unsafe fn free_strings(xprt: *mut bindings::rpc_xprt) {
    for what in [
        bindings::rpc_display_format_t_RPC_DISPLAY_ADDR,
        bindings::rpc_display_format_t_RPC_DISPLAY_PORT,
        bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR,
        bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT,
    ] {
        // SAFETY: `xprt` is valid by the caller's promise.
        let text = unsafe { (*xprt).address_strings[what as usize] };
        // SAFETY: null or kmalloc'ed by `set`.
        unsafe { bindings::kfree(text.cast()) };
    }
}

fn bad_family() -> Error {
    pr_err!("the server's address is neither IPv4 nor IPv6\n");
    errno::protocol()
}
