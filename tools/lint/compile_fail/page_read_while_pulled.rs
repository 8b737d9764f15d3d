// SPDX-License-Identifier: GPL-2.0

//! Memory that a device writes is nobody's until the RDMA Reads have ended.

use crate::rdma::qp::Qp;
use crate::rdma::rw::Pull;
use crate::rdma::Pulls;
use crate::support::pages::PageBuf;

fn control<H: Pulls>(qp: &Qp<H>, mut memory: PageBuf) {
    let _ = memory.write(0, b"before");
    let _ = Pull::new(qp, memory);
}

#[cfg(wrong)]
fn wrong<H: Pulls>(qp: &Qp<H>, memory: PageBuf) {
    let _ = Pull::new(qp, memory);
    let mut first = [0; 4];
    let _ = memory.read(0, &mut first); //~ E0382
}
