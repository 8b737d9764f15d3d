// SPDX-License-Identifier: GPL-2.0

//! That the send lock is held cannot be claimed, only passed on by whoever the core gave it.

use crate::sunrpc::{
    SendCell,
    SendLock, //
};

fn control(cell: &SendCell<u32>, lock: &mut SendLock<'_>) -> u32 {
    *cell.get(lock)
}

#[cfg(wrong)]
fn wrong(cell: &SendCell<u32>, xprt: &crate::sunrpc::Xprt) -> u32 {
    let mut lock = SendLock::new(xprt); //~ E0624
    *cell.get(&mut lock)
}

#[cfg(wrong)]
fn wrong_copy<'a>(lock: &SendLock<'a>) -> SendLock<'a> {
    lock.clone() //~ E0308
}
