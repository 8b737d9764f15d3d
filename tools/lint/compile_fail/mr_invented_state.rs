// SPDX-License-Identifier: GPL-2.0

//! The states of a registration are the states of `rdma::mr`; other code cannot add a state.

use crate::rdma::mr::*;

fn control(exposed: &MrList<Registered>) -> bool {
    exposed.is_empty()
}

#[cfg(wrong)]
struct Harmless;

#[cfg(wrong)]
fn wrong(_exposed: &MrList<Harmless>) {} //~ E0277
