// SPDX-License-Identifier: GPL-2.0

//! Mapping consumes the registration: it cannot be mapped over other memory meanwhile.

use crate::rdma::dma::Direction;
use crate::rdma::mr::*;
use crate::support::memory::Span;
use kernel::prelude::*;

fn control(mr: Mr<Idle>, span: Span) -> Result<Mr<Mapped>> {
    mr.map([Ok(span)].into_iter(), Direction::ToDevice, 0)
}

#[cfg(wrong)]
fn wrong(mr: Mr<Idle>, span: Span) -> Result<Mr<Mapped>> {
    let _first = mr.map([Ok(span)].into_iter(), Direction::ToDevice, 0)?;
    mr.map([Ok(span)].into_iter(), Direction::ToDevice, 0) //~ E0382
}
