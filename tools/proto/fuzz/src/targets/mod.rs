// SPDX-License-Identifier: GPL-2.0

//! One target for each parser, each decision and each state machine.

mod cm_private;
mod connection;
mod continuation;
mod credit;
mod error;
mod plan;
mod properties;
mod reply;
mod responder;
mod retry;
mod session;
mod v1;
mod v2;

type Target = fn(&[u8]);

pub const ALL: [(&str, Target); 13] = [
    ("cm_private", cm_private::run),
    ("connection", connection::run),
    ("continuation", continuation::run),
    ("credit", credit::run),
    ("error", error::run),
    ("plan", plan::run),
    ("properties", properties::run),
    ("reply", reply::run),
    ("responder", responder::run),
    ("retry", retry::run),
    ("session", session::run),
    ("v1", v1::run),
    ("v2", v2::run),
];
