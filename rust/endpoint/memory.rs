// SPDX-License-Identifier: GPL-2.0

//! The memory that all connections share, in debugfs.

use super::{
    hostauth,
    join::ReassemblyQuota, //
};
use crate::support::{
    debugfs::{
        File,
        Show, //
    },
    page_stash, //
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::Arc, //
};

/// The content of the file `memory`.
struct SharedMemory;

/// Creates the file `memory` in debugfs. Context: process, may sleep.
///
/// # Errors
///
/// `ENOMEM`: there is no memory.
pub(crate) fn show_memory() -> Result<Option<File>> {
    Ok(File::new(
        fmt!("memory"),
        Arc::new(SharedMemory, GFP_KERNEL)?,
    ))
}

impl Show for SharedMemory {
    fn show(&self, seq: &SeqFile) {
        let (pages, most) = page_stash::counts();
        seq_print!(seq, "pages={pages}\n");
        seq_print!(seq, "most_pages={most}\n");
        for (name, quota) in [
            ("client", ReassemblyQuota::Requester),
            ("server", ReassemblyQuota::Responder),
        ] {
            let (bytes, most) = quota.counts();
            seq_print!(seq, "{name}_reassembly={bytes}\n");
            seq_print!(seq, "most_{name}_reassembly={most}\n");
        }
        seq_print!(seq, "unproven_connections={}\n", hostauth::unproven());
    }
}
