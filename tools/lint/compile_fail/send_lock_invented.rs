// SPDX-License-Identifier: GPL-2.0

//! The proof that the send lock is held cannot be made, only passed on by the function that the
//! core has called.

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
