// SPDX-License-Identifier: GPL-2.0

//! The attributes of a device, `struct ib_device_attr`.
//!
//! C header: `include/rdma/ib_verbs.h`.

use crate::{
    bindings,
    support::memory::PAGE_SIZE, //
};
use kernel::{
    fmt,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The name of a device, as `rdma link` shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name([u8; bindings::IB_DEVICE_NAME_MAX as usize]);

impl Name {
    /// # Safety
    ///
    /// `device` must be valid.
    pub(super) unsafe fn of(device: *mut bindings::ib_device) -> Self {
        // SAFETY: the address of `ib_device.name` in the caller's device.
        let name = unsafe { &raw const (*device).name }.cast();
        // SAFETY: an array of this length in the caller's device. ib_device_rename() may write it
        // meanwhile, as text whose last byte is always zero.
        Self(unsafe { core::ptr::read_volatile(name) })
    }

    /// Returns the name as text.
    pub(crate) fn as_str(&self) -> &str {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        core::str::from_utf8(name).unwrap_or("?")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The attributes of a device that a transport's sizes depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// The name of the device, for messages.
    pub(crate) name: Name,
    /// The device can register memory by a work request, and invalidate it, locally and remotely.
    pub(crate) memory_management: bool,
    /// The most pages of one registration: 0 if the device registers no pages of [`PAGE_SIZE`]. Some drivers do not
    /// refuse other pages (irdma_sc_mr_fast_register), and the device then reaches wrong memory.
    pub(crate) max_registration_pages: u32,
    /// The most work requests of one queue.
    pub(crate) max_qp_wr: u32,
    /// The most entries of one completion queue.
    pub(crate) max_cqe: u32,
    /// The most RDMA Reads that a peer may have outstanding to this device.
    pub(crate) max_reads_in: u8,
    /// The most RDMA Reads that we may have outstanding to a peer.
    pub(crate) max_reads_out: u8,
    /// The most pieces of memory of one work request.
    pub(crate) max_send_sge: u32,
}

impl Attributes {
    /// # Safety
    ///
    /// `device` must be valid.
    pub(super) unsafe fn of(device: *mut bindings::ib_device) -> Self {
        // SAFETY: the caller's device is valid; the helper returns the address of `ib_device.attrs`.
        let attrs = unsafe { bindings::rpcrdma_device_attrs(device) };
        // SAFETY: valid as the device is; its driver fills in `ib_device.attrs` before
        // ib_register_device() shows the device to others, and they are constant since.
        let attrs = unsafe { &*attrs };
        let flags = attrs.device_cap_flags;
        let registers_pages = attrs.page_size_cap & u64::from(PAGE_SIZE) != 0;
        Self {
            // SAFETY: the caller's device is valid.
            name: unsafe { Name::of(device) },
            memory_management: flags
                & bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64
                != 0,
            max_registration_pages: match registers_pages {
                true => attrs.max_fast_reg_page_list_len,
                false => 0,
            },
            max_qp_wr: attrs.max_qp_wr.max(0) as u32,
            max_cqe: attrs.max_cqe.max(0) as u32,
            max_reads_in: attrs.max_qp_rd_atom.clamp(0, 255) as u8,
            max_reads_out: attrs.max_qp_init_rd_atom.clamp(0, 255) as u8,
            max_send_sge: attrs.max_send_sge.max(1) as u32,
        }
    }
}

/// The operations for which ib_core registers this side's memory (rdma_rw_ctx_init_bvec() in
/// drivers/infiniband/core/rw.c).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    /// RDMA Reads use registrations.
    pub(crate) reads: bool,
    /// RDMA Writes use registrations.
    pub(crate) writes: bool,
    /// The most pages of a registration of ib_core.
    pub(crate) pages: u32,
    /// `writes` is an assumption until [`Self::learn`] was called.
    pub(super) uncertain: bool,
}

/// The value of ib_core's parameter `force_mr`, which makes it register all memory: [`UNKNOWN`],
/// [`DIRECT`] or [`FORCED`]. The parameter is constant, and no interface of the kernel shows it.
static FORCE_MR: Atomic<u32> = Atomic::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const DIRECT: u32 = 1;
const FORCED: u32 = 2;

/// The most pages of a registration of ib_core on any device (rdma_rw_fr_page_list_len).
const MOST_PAGES: u32 = 256;

impl Registers {
    /// Returns how ib_core uses registrations on a device.
    ///
    /// On most devices ib_core makes registrations only if `force_mr` is set. It makes them in any case
    /// on iWARP, which needs them for RDMA Reads, and on a device that prefers them (`max_sgl_rd`). On
    /// these devices [`Self::learn`] finds out the parameter; until then this assumes that it is set.
    ///
    /// # Safety
    ///
    /// `device` must be valid, with a port `port`.
    pub(super) unsafe fn of(device: *mut bindings::ib_device, port: u32) -> Self {
        // SAFETY: the caller's device and port; reads fields that are constant since registration.
        let iwarp = unsafe { bindings::rdma_protocol_iwarp(device, port) };
        // SAFETY: the caller's device and port; computes a number.
        let made = unsafe { bindings::rdma_rw_max_send_wr(device, port, 1, 0) } != 1;
        // SAFETY: the caller's device; constant since ib_register_device().
        let attrs = unsafe { &(*device).attrs };
        let known = FORCE_MR.load(Relaxed);
        let always = iwarp || attrs.max_sgl_rd != 0;
        let forced = made && (!always || known != DIRECT);
        Self {
            reads: iwarp || forced,
            writes: forced,
            pages: attrs.max_fast_reg_page_list_len.clamp(1, MOST_PAGES),
            uncertain: always && known == UNKNOWN,
        }
    }

    /// Determines the parameter `force_mr` by preparing an RDMA Write of one page on `qp`. Context:
    /// process, may sleep.
    ///
    /// # Safety
    ///
    /// `qp` must be a new queue pair that was created with registrations of ib_core (`max_rdma_ctxs`).
    pub(super) unsafe fn learn(qp: *mut bindings::ib_qp) {
        // SAFETY: the caller's queue pair; the helper posts nothing and keeps nothing.
        let work_requests = unsafe { bindings::rpcrdma_rw_work_requests_of_a_page(qp) };
        match work_requests {
            1 => FORCE_MR.store(DIRECT, Relaxed),
            2.. => FORCE_MR.store(FORCED, Relaxed),
            // The page could not be mapped. The next connection repeats this.
            _ => {}
        }
    }
}
