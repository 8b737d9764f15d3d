// SPDX-License-Identifier: GPL-2.0

//! A Call's buffer that receives another message, before the Reply goes, is not read any more.

use super::role::{Message, Server};
use crate::endpoint::{CloseReason, Endpoint};

fn control(endpoint: &Endpoint<Server>, call: Message) -> Result<(), CloseReason> {
    let _ = call.bytes().len();
    let Ok(mut sending) = endpoint.sending(1) else {
        return Ok(());
    };
    sending.receive_again(call);
    sending.post(None, None)
}

#[cfg(wrong)]
fn wrong(endpoint: &Endpoint<Server>, call: Message) -> usize {
    let Ok(mut sending) = endpoint.sending(1) else {
        return 0;
    };
    sending.receive_again(call);
    let _ = sending.post(None, None);
    call.bytes().len() //~ E0382
}
