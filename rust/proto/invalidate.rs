// SPDX-License-Identifier: GPL-2.0

//! Remote invalidation: the Reply's Send takes one handle of the Requester out of use.

use crate::proto::wire::{
    chunk::Chunks,
    types::Handle, //
};

/// Returns every handle that chunk lists name.
fn handles<C: Chunks + ?Sized>(chunks: &C) -> impl Iterator<Item = Handle> + '_ {
    let reads = chunks.reads().map(|read| read.segment);
    let writes = chunks.writes().flatten();
    let reply = chunks.reply().into_iter().flatten();
    reads.chain(writes).chain(reply).map(|s| s.handle)
}

/// Returns the handle that a requester offers with a Call, or [`Handle::NONE`].
///
/// `capable` is true if a peer's Send can invalidate registrations of this side's device. `chunks` names
/// only dynamically registered memory.
//= V2-110, V2-113, V2-114
//= CM-014, D-23
pub fn offer<C: Chunks + ?Sized>(capable: bool, chunks: &C) -> Handle {
    if !capable {
        return Handle::NONE;
    }
    handles(chunks).last().unwrap_or(Handle::NONE)
}

/// Returns the handle that the Reply of a responder may invalidate in version 2, if there is one.
///
/// A handle that the Call does not name is left alone. With a continued Reply, only the last
/// message invalidates; error messages, property sets and grants never do.
//= V2-111, V2-112, V2-114
//= V2-115, V2-116, V2-118
//= D-22
pub fn permitted<C: Chunks + ?Sized>(
    capable: bool,
    inv_handle: Handle,
    chunks: &C,
) -> Option<Handle> {
    (capable && inv_handle != Handle::NONE && handles(chunks).any(|h| h == inv_handle))
        .then_some(inv_handle)
}

/// Returns the handle of the Call that the Reply of a responder may invalidate in version 1.
///
/// `agreed` says whether both sides set the R bit, and the device can do it.
//= CM-011, CM-012, CM-013
//= CM-015
pub fn permitted_v1<C: Chunks + ?Sized>(agreed: bool, chunks: &C) -> Option<Handle> {
    if agreed {
        handles(chunks).last()
    } else {
        None
    }
}
