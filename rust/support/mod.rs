// SPDX-License-Identifier: GPL-2.0

//! Small safe wrappers that the kernel crate lacks, independent of RDMA and of sunrpc.

pub(crate) mod box_list;
pub(crate) mod completion;
pub(crate) mod counter;
pub(crate) mod debugfs;
pub(crate) mod errno;
pub(crate) mod foreign;
pub(crate) mod gate;
pub(crate) mod global;
pub(crate) mod key;
pub(crate) mod memalloc;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod net;
pub(crate) mod page_stash;
pub(crate) mod pages;
pub(crate) mod racy;
pub(crate) mod sysctl;
pub(crate) mod time;
pub(crate) mod trace;
pub(crate) mod work;
