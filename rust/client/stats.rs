// SPDX-License-Identifier: GPL-2.0

//! The counters behind the `xprt:` line of /proc/self/mountstats.
//!
//! The line's 27 numbers and their order are read by position (nfs-utils' mountstats), so they
//! never change; new ones could only be added at the end.

use crate::{
    sunrpc::Xprt,
    support::racy::Racy, //
};
use kernel::seq_file::SeqFile;

/// A counter.
///
/// Most have one writer at a time, the holder of the send lock or a connection's completions,
/// which do not run side by side. Of others an increment may be lost, which is worth less than a
/// locked instruction. Readers need no order between counters.
pub(crate) struct Counter(Racy<u64>);

impl Counter {
    const fn new() -> Self {
        Self(Racy::new(0))
    }

    /// Counts `n` more.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one transport has done since it was created.
        pub(crate) struct Stats {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        impl Stats {
            /// All zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: Counter::new(),)* }
            }
        }
    };
}

counters! {
    // Written by senders.
    /// Segments of Read chunks sent.
    read_segments,
    /// Segments of Write chunks sent.
    write_segments,
    /// Segments of Reply chunks sent.
    reply_segments,
    /// Bytes of arguments moved by RDMA Read.
    total_rdma_request,
    /// Bytes of pages and tails copied into Sends.
    pullup_copy,
    /// Messages that could not be made.
    failed_marshal,
    /// Calls sent as RDMA_NOMSG.
    nomsg_call,
    /// Times that a Send had to wait for a Send buffer.
    empty_sendctx_q,
    /// Registrations made, when connecting or when there were too few.
    mrs_allocated,

    // Written by any task.
    /// Bytes by which request buffers had to grow.
    hardway_register,

    // Written by completions.
    /// Bytes of results moved by RDMA Write.
    total_rdma_reply,
    /// Bytes of Receives copied into pages.
    fixup_copy,
    /// Messages received that were not what was asked for.
    bad_reply,
    /// Replies after which registrations had to be invalidated by ourselves.
    local_inv_needed,
}

impl Stats {
    /// Prints the line.
    pub(crate) fn print(&self, xprt: &Xprt, seq: &SeqFile) {
        let core = xprt.core_stats();
        kernel::seq_print!(
            seq,
            "\txprt:\trdma 0 {} {} {} {} {} {} {} {} {} ",
            core.bind_count,
            core.connect_count,
            core.connect_time,
            core.idle_time,
            core.sends,
            core.recvs,
            core.bad_xids,
            core.req_u,
            core.bklog_u,
        );
        kernel::seq_print!(
            seq,
            "{} {} {} {} {} {} {} {} {} {} {} ",
            self.read_segments.get(),
            self.write_segments.get(),
            self.reply_segments.get(),
            self.total_rdma_request.get(),
            self.total_rdma_reply.get(),
            self.pullup_copy.get(),
            self.fixup_copy.get(),
            self.hardway_register.get(),
            self.failed_marshal.get(),
            self.bad_reply.get(),
            self.nomsg_call.get(),
        );
        // Recovered and orphaned registrations, and replies that waited for a Send, do not
        // happen here; the columns are kept.
        kernel::seq_print!(
            seq,
            "0 0 {} {} {} 0\n",
            self.mrs_allocated.get(),
            self.local_inv_needed.get(),
            self.empty_sendctx_q.get(),
        );
    }
}
