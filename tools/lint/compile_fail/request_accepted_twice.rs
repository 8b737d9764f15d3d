// SPDX-License-Identifier: GPL-2.0

//! A peer that wants to connect is accepted once.

use crate::rdma::listen::ConnectRequest;
use crate::rdma::Handler;
use kernel::prelude::*;
use kernel::sync::Arc;

fn control<H: Handler>(request: KBox<ConnectRequest>, handler: Arc<H>) {
    let _ = ConnectRequest::into_id(request, handler);
}

#[cfg(wrong)]
fn wrong<H: Handler>(request: KBox<ConnectRequest>, handler: Arc<H>) {
    let _ = ConnectRequest::into_id(request, handler.clone());
    let _ = ConnectRequest::into_id(request, handler); //~ E0382
}
