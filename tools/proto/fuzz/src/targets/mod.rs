// SPDX-License-Identifier: GPL-2.0

//! One target for each parser, each decision and each state machine.

mod cm_private;
mod connection;
mod continuation;
mod credit;
mod error;
mod host;
mod plan;
mod properties;
mod reply;
mod responder;
mod retry;
mod session;
mod shared_key;
mod v1;
mod v2;

type Target = fn(&[u8]);

pub const ALL: [(&str, Target); 15] = [
    ("cm_private", cm_private::run),
    ("connection", connection::run),
    ("continuation", continuation::run),
    ("credit", credit::run),
    ("error", error::run),
    ("host", host::run),
    ("plan", plan::run),
    ("properties", properties::run),
    ("reply", reply::run),
    ("responder", responder::run),
    ("retry", retry::run),
    ("session", session::run),
    ("shared_key", shared_key::run),
    ("v1", v1::run),
    ("v2", v2::run),
];
