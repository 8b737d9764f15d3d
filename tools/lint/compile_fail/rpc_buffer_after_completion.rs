// SPDX-License-Identifier: GPL-2.0

//! A completed RPC's buffers are the task's: no view of them outlives the completion.

use crate::sunrpc::PinnedRqst;

fn control<S>(mut rqst: PinnedRqst<S>, data: &[u8]) -> bool {
    let placed = rqst.reply_buf().write(0, data).is_ok();
    rqst.complete(data.len());
    placed
}

#[cfg(wrong)]
fn wrong<S>(mut rqst: PinnedRqst<S>, data: &[u8]) -> bool {
    let mut reply = rqst.reply_buf();
    rqst.complete(data.len()); //~ E0505
    reply.write(0, data).is_ok()
}
