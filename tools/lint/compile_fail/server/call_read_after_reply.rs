// SPDX-License-Identifier: GPL-2.0

//! A Call's buffer that receives another message, before the Reply goes, is not read any more.

use super::connection::{Open, ServerMessage};
use crate::endpoint::EndReason;

fn control(open: &Open<'_>, call: ServerMessage) -> Result<(), EndReason> {
    let _ = call.bytes().len();
    let Ok(mut sending) = open.sending(1) else {
        return Ok(());
    };
    sending.receive_again(call);
    sending.post(None, None)
}

#[cfg(wrong)]
fn wrong(open: &Open<'_>, call: ServerMessage) -> usize {
    let Ok(mut sending) = open.sending(1) else {
        return 0;
    };
    sending.receive_again(call);
    let _ = sending.post(None, None);
    call.bytes().len() //~ E0382
}
