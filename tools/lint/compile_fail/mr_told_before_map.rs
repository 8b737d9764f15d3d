// SPDX-License-Identifier: GPL-2.0

//! Only a mapped registration has a region that a peer could be told of, and only such ones go
//! in front of a Send.

use crate::rdma::mr::*;

fn control(mr: Mr<Mapped>, chunks: &mut MrList<Mapped>) -> Region {
    let region = mr.region();
    chunks.push(mr);
    region
}

#[cfg(wrong)]
fn wrong_region(mr: Mr<Idle>) -> Region {
    mr.region() //~ E0599
}

#[cfg(wrong)]
fn wrong_list(mr: Mr<Idle>, chunks: &mut MrList<Mapped>) {
    chunks.push(mr); //~ E0308
}
