// SPDX-License-Identifier: GPL-2.0

//! The decisions of a Responder: the side that gets a Call, and reads and writes the memory that it names.
//!
//! [`accept`] checks and assembles a Call. [`respond`] decides how its Reply is conveyed.

mod call;
mod reply;

pub use call::{
    accept,
    check_long,
    slice,
    splits_credential,
    Call,
    CallLimits,
    ParsedCall,
    ReadChunk,
    Source,
    CALL_START, //
};
pub use reply::{
    protects,
    respond,
    Form,
    ReplyLimits,
    ReplyShape,
    Response, //
};
