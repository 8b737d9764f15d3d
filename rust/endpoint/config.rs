// SPDX-License-Identifier: GPL-2.0

//! What both roles bring to their connections.

use crate::proto::{
    cm_private::CmPrivate,
    connection::Config,
    hostauth::Policy,
    negotiate::{
        Time,
        Versions, //
    },
    property::Properties,
    types::Xid, //
};
use kernel::time::Msecs;

/// How long a peer may be silent while Calls wait for it, in milliseconds (version 2).
const KEEP_ALIVE: Msecs = 10_000;

/// How long a server may take to answer the first message, and how long the first Call may hold up what
/// else a server has to say, in milliseconds (version 2).
pub(crate) const ANSWER: Msecs = 5_000;

/// What one of these makes due is due no sooner after it began, in milliseconds.
pub(super) const SHORTEST: Msecs = if ANSWER < KEEP_ALIVE {
    ANSWER
} else {
    KEEP_ALIVE
};

/// What a side brings along on connection number `cid`. Calls and messages are not taken yet: those
/// numbers are the role's.
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
