// SPDX-License-Identifier: GPL-2.0

//! The protocol's configuration that both roles have in common.

use crate::proto::{
    connection::{
        hostauth::Policy,
        negotiate::{
            Time,
            Versions, //
        },
        Config, //
    },
    wire::{
        cm_private::CmPrivate,
        property::Properties,
        types::Xid, //
    },
};
use kernel::time::Msecs;

/// The longest silence of a peer while Calls wait for it, in milliseconds (version 2).
const KEEP_ALIVE: Msecs = 10_000;

/// The time for a server's answer to the first message, and the longest time that the first Call delays
/// the server's properties, in milliseconds (version 2).
pub(crate) const ANSWER: Msecs = 5_000;

/// The shortest of the time-outs above, in milliseconds: the polling interval.
pub(super) const SHORTEST: Msecs = if ANSWER < KEEP_ALIVE {
    ANSWER
} else {
    KEEP_ALIVE
};

/// Returns the configuration of connection number `cid`. The role sets the numbers of Calls and messages.
pub(crate) fn config(
    cid: u32,
    versions: Versions,
    cm_private: CmPrivate,
    properties: Properties,
) -> Config {
    Config {
        versions,
        cm_private,
        properties,
        // Nothing but our CONNPROP has it, and a Call that got it by chance would hardly suffer.
        xid: Xid(!cid),
        calls: 0,
        grants: 0,
        ceiling: 0,
        continued: 0,
        keep_alive: Time(KEEP_ALIVE.into()),
        answer: Time(ANSWER.into()),
        auth: Policy::Ignore,
    }
}
