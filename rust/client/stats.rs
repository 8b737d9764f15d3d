// SPDX-License-Identifier: GPL-2.0

//! The counters behind the `xprt:` line of /proc/self/mountstats.
//!
//! The line has 27 numbers, which nfs-utils' mountstats and scripts read by position. Each has the
//! meaning that it has in the kernel's C transport (net/sunrpc/xprtrdma/transport.c,
//! xprt_rdma_print_stats()). Counters of this transport alone are in debugfs.

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
pub(crate) struct RacyCounter(Racy<u64>);

impl RacyCounter {
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
        /// The counters of one transport since its creation.
        pub(crate) struct Stats {
            $($(#[$doc])* pub(crate) $name: RacyCounter,)*
        }

        impl Stats {
            /// Creates counters that are zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: RacyCounter::new(),)* }
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
    /// Bytes of memory offered for results, in Write and Reply chunks.
    total_rdma_request,
    /// Bytes of pages and tails copied into Sends.
    pullup_copy,
    /// Attempts to send a Call that found it too large, or found no memory, registration, Send
    /// buffer or room in the send queue.
    failed_marshal,
    /// Calls sent as RDMA_NOMSG.
    nomsg_call,
    /// Times that a Send had to wait for a Send buffer.
    empty_sendctx_q,
    /// Registrations made, when connecting or when there were too few.
    mrs_allocated,

    // Written by any task.
    /// Bytes of Calls and Replies for which longer request buffers than usual were allocated.
    hardway_register,

    // Written by completions.
    /// Bytes of results moved by RDMA Write.
    total_rdma_reply,
    /// Bytes of Receives copied into pages.
    fixup_copy,
    /// Replies that failed their RPC: error messages, and Replies that broke a rule.
    bad_reply,
    /// LOCAL_INV work requests posted.
    local_inv_needed,

    // In debugfs only.
    /// Calls that ended their RPC because they cannot be sent: they fit no message, or the device cannot
    /// use their memory.
    unsendable,
    /// Bytes of arguments offered in Read chunks.
    bytes_read,
    /// Messages dropped or refused that failed no RPC.
    bad_messages,
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
