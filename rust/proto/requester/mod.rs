// SPDX-License-Identifier: GPL-2.0

//! The decisions of a Requester: the side that sends a Call, and registers the memory that it names.

pub mod null;
pub mod plan;
pub mod reply;
pub mod retry;
