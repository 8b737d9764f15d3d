// SPDX-License-Identifier: GPL-2.0

//! Tests of the protocol core, one module for each of its modules.
//!
//! Properties hold for generated values and for arbitrary bytes; the other tests show one rule
//! each.

mod cm_private;
mod connection;
mod continuation;
mod credit;
mod given;
mod header;
mod host;
mod invalidate;
mod negotiate;
mod null;
mod plan;
mod property;
mod record;
mod reply;
mod resources;
mod respond;
mod responder;
mod retry;
mod shared_key;
