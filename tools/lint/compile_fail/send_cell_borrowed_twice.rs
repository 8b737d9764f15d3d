// SPDX-License-Identifier: GPL-2.0

//! The data of the holder of the send lock has one user at a time, and is returned with the lock.

use crate::sunrpc::{
    SendCell,
    SendLock, //
};

fn control(cell: &SendCell<u32>, lock: &mut SendLock<'_>) {
    *cell.get(lock) += 1;
    *cell.get(lock) += 1;
}

#[cfg(wrong)]
fn wrong(cell: &SendCell<u32>, lock: &mut SendLock<'_>) {
    let first = cell.get(lock);
    let second = cell.get(lock); //~ E0499
    core::mem::swap(first, second);
}

#[cfg(wrong)]
fn wrong_lifetime<'a>(cell: &'a SendCell<u32>, lock: &mut SendLock<'_>) -> &'a mut u32 {
    cell.get(lock) //~ E0621
}

#[cfg(wrong)]
fn wrong_shared(cell: &SendCell<u32>, lock: &SendLock<'_>) {
    *cell.get(lock) += 1; //~ E0308
}
