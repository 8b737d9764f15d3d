// SPDX-License-Identifier: GPL-2.0

//! An RPC's memory is its task's again only when no peer reaches it: completing the RPC takes the
//! proof, which only an invalidation gives, or a list of exposed registrations that is empty.

use super::complete::Waiter;
use super::connection::Client;
use super::registrations::Exposed;
use crate::endpoint::Shared;
use crate::rdma::cq::Completions;
use crate::rdma::mr::*;
use crate::rdma::proof::Unexposed;

type Cx<'a, 'b> = &'a mut Completions<'b, Shared<Client>>;

fn control(waiter: Waiter, shared: &Shared<Client>, cx: Cx<'_, '_>, exposed: Exposed) {
    if let Ok(proof) = exposed.mrs.unexposed() {
        waiter.finish(shared, cx, exposed.inv, MrList::<Idle>::new(), proof);
    }
}

#[cfg(wrong)]
fn wrong_without(waiter: Waiter, shared: &Shared<Client>, cx: Cx<'_, '_>, exposed: Exposed) {
    waiter.finish(shared, cx, exposed.inv, MrList::<Idle>::new()); //~ E0061
}

#[cfg(wrong)]
fn wrong_forged(waiter: Waiter, shared: &Shared<Client>, cx: Cx<'_, '_>, exposed: Exposed) {
    let forged = Unexposed(()); //~ E0423
    waiter.finish(shared, cx, exposed.inv, MrList::<Idle>::new(), forged);
}

#[cfg(wrong)]
fn wrong_reused(
    waiters: (Waiter, Waiter),
    shared: &Shared<Client>,
    cx: Cx<'_, '_>,
    exposed: (Exposed, Exposed),
    proof: Unexposed,
) {
    let (first, second) = exposed;
    waiters
        .0
        .finish(shared, cx, first.inv, MrList::<Idle>::new(), proof);
    waiters
        .1
        .finish(shared, cx, second.inv, MrList::<Idle>::new(), proof); //~ E0382
}
