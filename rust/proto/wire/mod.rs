// SPDX-License-Identifier: GPL-2.0

//! The bytes of messages, and their meaning.
//!
//! [`header`] has the meaning of a message in either version, and [`chunk`] its chunk lists. [`v1`] and [`v2`]
//! encode and decode the headers of the versions, [`property`] the properties of version 2, and [`cm_private`]
//! the private data that is exchanged while connecting. [`types`], [`xdr`] and [`error`] are the base of all
//! modules.

pub mod chunk;
pub mod cm_private;
pub mod error;
pub mod header;
pub mod property;
pub mod types;
pub mod v1;
pub mod v2;
pub mod xdr;
