// SPDX-License-Identifier: GPL-2.0

//! A peer that wants to connect is accepted once.

use crate::rdma::listen::Request;
use crate::rdma::Handler;
use kernel::prelude::*;
use kernel::sync::Arc;

fn control<H: Handler>(request: KBox<Request>, handler: Arc<H>) {
    let _ = Request::into_id(request, handler);
}

#[cfg(wrong)]
fn wrong<H: Handler>(request: KBox<Request>, handler: Arc<H>) {
    let _ = Request::into_id(request, handler.clone());
    let _ = Request::into_id(request, handler); //~ E0382
}
