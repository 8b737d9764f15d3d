// SPDX-License-Identifier: GPL-2.0

//! Mapping consumes the registration: it cannot be mapped over other memory meanwhile.

use crate::rdma::dma::Direction;
use crate::rdma::mr::*;
use crate::support::memory::Span;

fn control(mr: Mr<Idle>, span: Span<'_>) -> Option<Mr<Mapped>> {
    mr.map(span, Direction::ToDevice, 0).ok()
}

#[cfg(wrong)]
fn wrong(mr: Mr<Idle>, span: Span<'_>) -> Option<Mr<Mapped>> {
    let _first = mr.map(span, Direction::ToDevice, 0).ok()?;
    mr.map(span, Direction::ToDevice, 0).ok() //~ E0382
}
