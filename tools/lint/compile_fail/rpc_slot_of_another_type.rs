// SPDX-License-Identifier: GPL-2.0

//! A request found on a transport carries what that transport put into its slots, and nothing
//! else can be read from there.

use crate::sunrpc::xprt::XprtHandle;
use crate::sunrpc::{
    PinnedRqst,
    Transport, //
};

fn control<T: Transport>(xprt: &XprtHandle<T>) -> Option<PinnedRqst<T::Slot>> {
    xprt.lookup(0)
}

#[cfg(wrong)]
fn wrong<T: Transport>(xprt: &XprtHandle<T>) -> Option<PinnedRqst<u64>> {
    xprt.lookup(0) //~ E0308
}
