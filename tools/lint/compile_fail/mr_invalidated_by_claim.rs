// SPDX-License-Identifier: GPL-2.0

//! A Receive's completion reports once that the peer has invalidated a registration. A number from
//! elsewhere is no report.

use crate::rdma::mr::*;
use crate::rdma::proof::Invalidated;
use crate::rdma::recv::Received;
use crate::rdma::Handler;

fn control<H: Handler>(
    exposed: &mut MrList<Registered>,
    message: &mut Received<H>,
) -> Option<Mr<Idle>> {
    let by_peer: Invalidated = message.take_invalidated()?;
    exposed.take_invalidated(by_peer, |_| ())
}

#[cfg(wrong)]
fn wrong_number(exposed: &mut MrList<Registered>, key: u32) -> Option<Mr<Idle>> {
    exposed.take_invalidated(key, |_| ()) //~ E0308
}

#[cfg(wrong)]
fn wrong_forged(exposed: &mut MrList<Registered>, key: u32) -> Option<Mr<Idle>> {
    exposed.take_invalidated(Invalidated(key), |_| ()) //~ E0423
}

#[cfg(wrong)]
fn wrong_claim<H: Handler>(
    exposed: &mut MrList<Registered>,
    qp: &crate::rdma::qp::Qp<H>,
    key: u32,
) -> Option<Mr<Idle>> {
    let qp = qp.id(); //~ E0624
    exposed.take_invalidated(Invalidated::by_completion(qp, key), |_| ()) //~ E0624
}

#[cfg(wrong)]
fn wrong_twice(
    first: &mut MrList<Registered>,
    second: &mut MrList<Registered>,
    by_peer: Invalidated,
) {
    first.take_invalidated(by_peer, |_| ());
    second.take_invalidated(by_peer, |_| ()); //~ E0382
}
