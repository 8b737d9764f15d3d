// SPDX-License-Identifier: GPL-2.0

//! An RPC's memory is its task's again only when no peer reaches it: completing the RPC takes the
//! proof, which only a fence gives, or a list of exposed registrations that is empty.

use super::link::Link;
use super::recv::Pending;
use crate::rdma::mr::*;
use crate::rdma::qp::QpRef;

fn control(pending: Pending, link: &Link, qp: &QpRef<Link>, exposed: MrList<Registered>) {
    if let Ok(proof) = exposed.unexposed() {
        pending.finish(link, qp, None, proof);
    }
}

#[cfg(wrong)]
fn wrong_without(pending: Pending, link: &Link, qp: &QpRef<Link>) {
    pending.finish(link, qp, None); //~ E0061
}

#[cfg(wrong)]
fn wrong_forged(pending: Pending, link: &Link, qp: &QpRef<Link>) {
    pending.finish(link, qp, None, Unexposed(())); //~ E0423
}

#[cfg(wrong)]
fn wrong_reused(first: Pending, second: Pending, link: &Link, qp: &QpRef<Link>, proof: Unexposed) {
    first.finish(link, qp, None, proof);
    second.finish(link, qp, None, proof); //~ E0382
}
