// SPDX-License-Identifier: GPL-2.0

//! Data under the transport lock is changed by the holder of the lock.

use super::{
    TransportLock,
    Xprt, //
};

fn control(xprt: &Xprt) {
    let lock = xprt.lock_transport();
    write_once!(&lock, cong = 0usize);
}

#[cfg(wrong)]
fn wrong_write(xprt: &Xprt) {
    write_once!(xprt, cong = 0usize); //~ E0277
}

#[cfg(wrong)]
fn wrong_copy<'a>(lock: &TransportLock<'a>) -> TransportLock<'a> {
    *lock //~ E0507
}
