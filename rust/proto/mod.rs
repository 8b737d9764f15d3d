// SPDX-License-Identifier: GPL-2.0

//! The RPC-over-RDMA protocol, versions 1 and 2, as pure decisions over bytes.
//!
//! Nothing here allocates, blocks, sleeps, reads a clock or calls out. Time, memory and memory
//! registrations come in as arguments, and what is to be done comes back as values. No input can
//! make this code panic or touch a byte outside the slices it was handed.
//!
//! Requirements that a piece of code fulfils are cited above it as `//= V1-014`; the identifiers
//! are those of `Documentation/conformance.rst`. `V1` stands for the version 1 protocol, `V2` for
//! version 2, `CM` for the private data exchanged while connecting, `NFS` for the NFS upper-layer
//! binding and `D` for the decisions taken where the documents leave a choice.

#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unreachable,
    clippy::unwrap_used
)]

pub mod chunk;
pub mod cm_private;
pub mod connection;
pub mod continuation;
pub mod credit;
pub mod error;
pub mod header;
pub mod hostauth;
pub mod invalidate;
pub mod negotiate;
pub mod plan;
pub mod property;
pub mod reply;
pub mod respond;
pub mod responder;
pub mod retry;
pub mod types;
pub mod v1;
pub mod v2;
pub mod xdr;
