// SPDX-License-Identifier: GPL-2.0

//! A registration that a peer may reach is not free before it was invalidated, and its owner cannot
//! say by himself that it was.

use crate::rdma::mr::*;

fn control(free: &mut MrList<Idle>, invalidated: MrList<Idle>) {
    free.append(invalidated);
}

#[cfg(wrong)]
fn wrong_state(free: &mut MrList<Idle>, exposed: MrList<Registered>) {
    free.append(exposed); //~ E0308
}

#[cfg(wrong)]
fn wrong_step(mut exposed: MrList<Registered>) -> Option<Mr<Idle>> {
    exposed.pop() //~ E0599
}

#[cfg(wrong)]
fn wrong_claim(exposed: MrList<Registered>) -> MrList<Idle> {
    exposed.invalidated() //~ E0624
}

#[cfg(wrong)]
fn wrong_unmap(exposed: MrList<Registered>) -> MrList<Idle> {
    exposed.unmap() //~ E0599
}
