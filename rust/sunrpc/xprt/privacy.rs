// SPDX-License-Identifier: GPL-2.0

//! Calls under `krb5p`, whose pages the core frees when it encodes them anew.
//!
//! gss_wrap_req_priv (`net/sunrpc/auth_gss/auth_gss.c`) encrypts a Call into pages of its own.
//! When an RPC times out, its task encodes the Call again at once, for the next connection, and
//! frees the pages of the last time, by `rq_release_snd_buf`; but until the connection is closed,
//! the peer can read them through the Read chunk of the Call, also after they are used for other data.
//! Therefore the transport replaces the release function, and ends the access of the peer first. Other flavours send the
//! pages of the upper layer, which stay with the RPC.

use super::{
    instance::Instance,
    rqst::Rqst,
    transport::Transport, //
};
use crate::bindings;
use core::ptr::NonNull;

/// Returns whether the pages of a request's Call are freed when it is encoded again.
#[inline]
pub(super) fn has_own_pages<S>(rqst: &Rqst<S>) -> bool {
    // SAFETY: gss_wrap_req_priv() sets `rq_release_snd_buf` when the Call is encoded, before the request is
    // queued.
    unsafe { (*rqst.as_raw()).rq_release_snd_buf }.is_some()
}

/// Installs the function that ends the peer's access to a Call's pages before they are freed.
///
/// To be called by the sender, before the request is sent.
#[cold]
pub(super) fn guard<T: Transport>(rqst: &Rqst<T::Request>) {
    let guarded = release_snd_buf_callback::<T>;
    // SAFETY: gss_wrap_req_priv() sets `rq_release_snd_buf` before the request is queued. The request is pinned
    // (xprt_pin_rqst()).
    let field = unsafe { &raw mut (*rqst.as_raw()).rq_release_snd_buf };
    // SAFETY: xprt_wait_on_pinned_rqst() keeps the owner from `rq_release_snd_buf` while the request is pinned.
    let release = unsafe { core::ptr::replace(field, Some(guarded)) };
    // Sent again without being encoded anew, it is guarded already.
    if release.is_some_and(|release| !core::ptr::fn_addr_eq(release, guarded as Guarded)) {
        // SAFETY: contract of `swap_release`: this is the request's sender.
        unsafe { rqst.slot().swap_release(release) };
    }
}

type Guarded = unsafe extern "C" fn(*mut bindings::rpc_rqst);

/// Ends the peer's access to a request's memory, then frees the pages of its Call.
///
/// # Safety
///
/// Called by alloc_enc_pages (`net/sunrpc/auth_gss/auth_gss.c`) and xprt_release only, in the
/// context of the request's task, which may sleep: the request is in a slot of a `T`, and on no
/// queue.
unsafe extern "C" fn release_snd_buf_callback<T: Transport>(raw: *mut bindings::rpc_rqst) {
    let Some(rqst) = NonNull::new(raw) else {
        return;
    };
    // SAFETY: xprt_release() calls `rq_release_snd_buf` for a request that is in a slot of ours, and its task's.
    let rqst = unsafe { Rqst::<T::Request>::from_raw(rqst) };
    // SAFETY: `rq_xprt` is alive: the task has a reference (`tk_xprt`). It is one of ours.
    let this = unsafe { Instance::<T>::from_raw((*raw).rq_xprt) };
    this.shared().transport.release(&rqst);
    // SAFETY: contract of `swap_release`: the request is its owner's, and on no queue.
    let release = unsafe { rqst.slot().swap_release(None) };
    if let Some(release) = release {
        // SAFETY: the function that the core has set for the pages, which still belong to the request.
        unsafe { release(raw) };
    }
}
