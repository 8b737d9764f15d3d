// SPDX-License-Identifier: GPL-2.0

//! What a device can do.

use crate::bindings;

/// The attributes of a device that a transport's sizes depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// The device can register memory by a work request, and invalidate it, locally and remotely.
    pub(crate) memory_management: bool,
    /// A registration may have gaps between its pieces.
    pub(crate) sg_gaps: bool,
    /// The most pages of one registration.
    pub(crate) max_registration_pages: u32,
    /// The number of pages up to which a registration with gaps is quick.
    pub(crate) preferred_gap_pages: u32,
    /// The most work requests of one queue.
    pub(crate) max_qp_wr: u32,
    /// The most RDMA Reads that a peer may have outstanding to us.
    pub(crate) max_reads_in: u8,
}

impl Attributes {
    /// # Safety
    ///
    /// `device` must be valid.
    pub(super) unsafe fn of(device: *mut bindings::ib_device) -> Self {
        // SAFETY: the attributes are constant once the device is registered.
        let attrs = unsafe { &(*device).attrs };
        let flags = attrs.device_cap_flags;
        Self {
            memory_management: flags
                & bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64
                != 0,
            sg_gaps: attrs.kernel_cap_flags
                & u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG)
                != 0,
            max_registration_pages: attrs.max_fast_reg_page_list_len,
            preferred_gap_pages: attrs.max_sge_rd.max(0) as u32,
            max_qp_wr: attrs.max_qp_wr.max(0) as u32,
            max_reads_in: attrs.max_qp_rd_atom.clamp(0, 255) as u8,
        }
    }
}
