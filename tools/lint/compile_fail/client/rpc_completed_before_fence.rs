// SPDX-License-Identifier: GPL-2.0

//! An RPC's memory is its task's again only when no peer reaches it: completing the RPC takes the
//! proof, which only a fence gives, or a list of exposed registrations that is empty.

use super::link::Link;
use super::recv::Pending;
use crate::rdma::cq::Completions;
use crate::rdma::mr::*;
use crate::rdma::proof::Unexposed;

fn control(
    pending: Pending,
    link: &Link,
    cx: &mut Completions<'_, Link>,
    exposed: MrList<Registered>,
) {
    if let Ok(proof) = exposed.unexposed() {
        pending.finish(link, cx, None, proof);
    }
}

#[cfg(wrong)]
fn wrong_without(pending: Pending, link: &Link, cx: &mut Completions<'_, Link>) {
    pending.finish(link, cx, None); //~ E0061
}

#[cfg(wrong)]
fn wrong_forged(pending: Pending, link: &Link, cx: &mut Completions<'_, Link>) {
    pending.finish(link, cx, None, Unexposed(())); //~ E0423
}

#[cfg(wrong)]
fn wrong_reused(
    first: Pending,
    second: Pending,
    link: &Link,
    cx: &mut Completions<'_, Link>,
    proof: Unexposed,
) {
    first.finish(link, cx, None, proof);
    second.finish(link, cx, None, proof); //~ E0382
}
