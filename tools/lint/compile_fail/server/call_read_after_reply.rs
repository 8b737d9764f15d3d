// SPDX-License-Identifier: GPL-2.0

//! A Call's buffer receives another message before the Reply goes.

use super::role::{Message, Server};
use crate::endpoint::{CloseReason, Endpoint};

fn control(endpoint: &Endpoint<Server>, call: Message) -> Result<(), CloseReason> {
    let _ = call.bytes().len();
    let Some(sending) = endpoint.sending(1, 0) else {
        return Ok(());
    };
    sending.post(Some(call), None, None)
}

#[cfg(wrong)]
fn wrong(endpoint: &Endpoint<Server>, call: Message) -> usize {
    let Some(sending) = endpoint.sending(1, 0) else {
        return 0;
    };
    let _ = sending.post(Some(call), None, None);
    call.bytes().len() //~ E0382
}
