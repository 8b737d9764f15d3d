// SPDX-License-Identifier: GPL-2.0

//! A request found on a transport has the type that the transport put into its slots, and no other
//! type can be read from there.

use crate::sunrpc::{
    PinnedRqst,
    XprtHandle, //
};

fn control<S>(xprt: &XprtHandle<S>) -> Option<PinnedRqst<S>> {
    xprt.lookup(0)
}

#[cfg(wrong)]
fn wrong<S>(xprt: &XprtHandle<S>) -> Option<PinnedRqst<u64>> {
    xprt.lookup(0) //~ E0308
}
