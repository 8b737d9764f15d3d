// SPDX-License-Identifier: GPL-2.0

//! The handler of the Reply fills the Reply's buffer: not the sender, and not through a shared
//! borrow. No code writes into a Call.

use crate::sunrpc::{
    PinnedRqst,
    Rqst, //
};

fn control<S>(rqst: &mut PinnedRqst<S>, data: &mut [u8]) -> bool {
    rqst.call().read(0, data).is_ok() && rqst.reply_buf().write(0, data).is_ok()
}

#[cfg(wrong)]
fn wrong_call<S>(rqst: &Rqst<S>, data: &[u8]) -> bool {
    rqst.call().write(0, data).is_ok() //~ E0599
}

#[cfg(wrong)]
fn wrong_sender<S>(rqst: &Rqst<S>, data: &[u8]) -> bool {
    rqst.receive().write(0, data).is_ok() //~ E0599
}

#[cfg(wrong)]
fn wrong_shared<S>(rqst: &PinnedRqst<S>, data: &[u8]) -> bool {
    rqst.reply_buf().write(0, data).is_ok() //~ E0596
}

#[cfg(wrong)]
fn wrong_twice<S>(rqst: &mut PinnedRqst<S>, data: &[u8]) -> bool {
    let mut first = rqst.reply_buf();
    let mut second = rqst.reply_buf(); //~ E0499
    first.write(0, data).is_ok() && second.write(0, data).is_ok()
}
