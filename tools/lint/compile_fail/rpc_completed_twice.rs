// SPDX-License-Identifier: GPL-2.0

//! An RPC is completed once: completing it lets go of the request, which may then be another's.

use crate::sunrpc::PinnedRqst;

fn control<S>(rqst: PinnedRqst<S>) {
    rqst.complete(0);
}

#[cfg(wrong)]
fn wrong<S>(rqst: PinnedRqst<S>) {
    rqst.complete(0);
    rqst.complete(0); //~ E0382
}

#[cfg(wrong)]
fn wrong_use<S>(rqst: PinnedRqst<S>) {
    rqst.complete(0);
    let _ = rqst.xid(); //~ E0382
}
