// SPDX-License-Identifier: GPL-2.0

//! Trace events, of the system `rpcrdma` (include/trace/events/rpcrdma_rs.h).
//!
//! A disabled event costs one no-op instruction where the kernel has jump labels, and the test of a
//! counter elsewhere (User Mode Linux). Its fields are a closure, so they are computed only if the
//! event is enabled.

use super::net::SockAddr;
use crate::bindings;
use kernel::ffi::c_char;

/// A field of an event, and the argument that C gets for it.
trait Field {
    /// The value that lives until C has returned.
    type Held;
    /// The argument of the C function.
    type Passed;

    fn hold(self) -> Self::Held;
    fn pass(held: &Self::Held) -> Self::Passed;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            type Held = Self;
            type Passed = Self;

            fn hold(self) -> Self {
                self
            }

            fn pass(held: &Self) -> Self {
                *held
            }
        }
    )*};
}

numbers!(bool i32 i64 u32 u64 usize);

/// A work request, as the events of its posting and of its completion identify it.
pub(crate) type WorkId = bindings::rpcrdma_work_id;
/// An RPC task, as the events of sunrpc identify it.
pub(crate) type TaskId = bindings::rpcrdma_task_id;
/// A memory registration.
pub(crate) type MrFacts = bindings::rpcrdma_mr_facts;
/// The result of a work request.
pub(crate) type Completion = bindings::rpcrdma_completion;

macro_rules! structs {
    ($($name:ident)*) => {$(
        impl Field for $name {
            type Held = Self;
            type Passed = *const Self;

            fn hold(self) -> Self {
                self
            }

            fn pass(held: &Self) -> *const Self {
                held
            }
        }
    )*};
}

structs!(WorkId TaskId MrFacts Completion);

/// The conveyance of the arguments or results of an RPC.
pub(crate) mod chunk_type {
    use crate::bindings;

    /// In the message, into which they are copied.
    pub(crate) const PULLUP: u32 = bindings::rpcrdma_chunktype_rpcrdma_noch_pullup;
    /// In the Reply.
    pub(crate) const INLINE: u32 = bindings::rpcrdma_chunktype_rpcrdma_noch;
    /// By a Read chunk behind the message.
    pub(crate) const READ: u32 = bindings::rpcrdma_chunktype_rpcrdma_readch;
    /// By a Read chunk that has the whole message.
    pub(crate) const LONG: u32 = bindings::rpcrdma_chunktype_rpcrdma_areadch;
    /// By a Write chunk.
    pub(crate) const WRITE: u32 = bindings::rpcrdma_chunktype_rpcrdma_writech;
    /// By the Reply chunk.
    pub(crate) const REPLY: u32 = bindings::rpcrdma_chunktype_rpcrdma_replych;
}

impl Field for &[u8] {
    type Held = bindings::rpcrdma_bytes;
    type Passed = *const bindings::rpcrdma_bytes;

    fn hold(self) -> Self::Held {
        bindings::rpcrdma_bytes {
            data: self.as_ptr().cast::<c_char>(),
            len: u32::try_from(self.len()).unwrap_or(0),
        }
    }

    fn pass(held: &Self::Held) -> Self::Passed {
        held
    }
}

impl Field for &str {
    type Held = bindings::rpcrdma_bytes;
    type Passed = *const bindings::rpcrdma_bytes;

    fn hold(self) -> Self::Held {
        self.as_bytes().hold()
    }

    fn pass(held: &Self::Held) -> Self::Passed {
        held
    }
}

impl Field for &SockAddr {
    type Held = SockAddr;
    type Passed = *const bindings::__kernel_sockaddr_storage;

    fn hold(self) -> SockAddr {
        *self
    }

    fn pass(held: &SockAddr) -> Self::Passed {
        held.as_ptr()
    }
}

/// Tells the compiler that the caller of this function is seldom reached.
#[cold]
#[inline]
fn seldom() {}

/// An event with its fields.
pub(crate) trait TraceEvent: Sized {
    /// Returns whether the event is enabled. Context: any.
    fn is_enabled() -> bool;

    /// Passes the fields to C. Context: any.
    fn pass(self);
}

/// Emits the event that `event` returns, which is called only if the event is enabled. Context: any.
#[inline(always)]
pub(crate) fn emit<E: TraceEvent>(event: impl FnOnce() -> E) {
    if E::is_enabled() {
        seldom();
        event().pass();
    }
}

/// Emits the events that `events` returns, which is called only if the event is enabled. Context: any.
#[inline(always)]
pub(crate) fn emit_each<E: TraceEvent, I: IntoIterator<Item = E>>(events: impl FnOnce() -> I) {
    if E::is_enabled() {
        seldom();
        events().into_iter().for_each(E::pass);
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* struct $name:ident $(<$life:lifetime>)? = $event:ident {
        $($field:ident: $ty:ty,)*
    })*) => {
        kernel::macros::paste! {$(
            $(#[$doc])*
            pub(crate) struct $name $(<$life>)? {
                $(pub(crate) $field: $ty,)*
            }

            impl $(<$life>)? TraceEvent for $name $(<$life>)? {
                #[inline(always)]
                fn is_enabled() -> bool {
                    // SAFETY: the key belongs to a tracepoint that C defines (rpcrdma_events.c).
                    unsafe {
                        kernel::jump_label::static_branch_unlikely!(
                            bindings::[<__tracepoint_ $event>],
                            kernel::bindings::tracepoint,
                            key
                        )
                    }
                }

                #[inline(always)]
                fn pass(self) {
                    $(let $field = Field::hold(self.$field);)*
                    // SAFETY: the event copies the data behind its arguments (`TP_fast_assign`
                    // there) before it returns, and until then they are borrowed.
                    unsafe {
                        bindings::[<rust_do_trace_ $event>]($(<$ty as Field>::pass(&$field)),*)
                    };
                }
            }
        )*}
    };
}

events! {
    /// An attempt to connect has ended, with 0 or an error number.
    struct XprtrdmaConnect<'a> = xprtrdma_connect {
        cid: u32,
        peer: &'a SockAddr,
        rc: i32,
    }

    /// The inline thresholds of a connection are known: the agreed ones, and the largest ones that this
    /// side supports, in bytes.
    struct XprtrdmaInlineThresh<'a> = xprtrdma_inline_thresh {
        cid: u32,
        inline_send: u32,
        inline_recv: u32,
        max_send: u32,
        max_recv: u32,
        source: &'a SockAddr,
        peer: &'a SockAddr,
    }

    /// The connection of a client was disconnected, with the result `rc`. `connect_status` is 1 if it stood until
    /// then, 0 if it never did, or else the error number by which it was lost.
    struct XprtrdmaDisconnect<'a> = xprtrdma_disconnect {
        cid: u32,
        peer: &'a SockAddr,
        rc: i32,
        connect_status: i32,
    }

    /// A connection is needed; the attempt begins after `delay` jiffies.
    struct XprtrdmaOpConnect<'a> = xprtrdma_op_connect {
        peer: &'a SockAddr,
        delay: usize,
    }

    /// The device of a client's connection goes away.
    struct XprtrdmaDeviceRemoval<'a> = xprtrdma_device_removal {
        cid: u32,
        name: &'a str,
        peer: &'a SockAddr,
    }

    /// The device of a server's connection goes away.
    struct SvcrdmaDeviceRemoval<'a> = svcrdma_device_removal {
        cid: u32,
        name: &'a str,
        peer: &'a SockAddr,
    }

    /// A connection is closed, or has to be closed, for the reason `why`.
    struct RpcrdmaClose<'a> = rpcrdma_close {
        cid: u32,
        why: &'a str,
    }

    /// Work of a transport that carries swap begins, and may use the reserves of memory.
    struct RpcrdmaReserves<'a> = rpcrdma_reserves {
        work: &'a str,
    }

    /// A Call was marshalled: the bytes of the transport header, and of its head, page list and tail, the
    /// [forms](chunk_type) in which arguments and results are conveyed, and the number of Segments for each.
    struct XprtrdmaMarshal = xprtrdma_marshal {
        cid: u32,
        task: TaskId,
        xid: u32,
        hdrlen: u32,
        headlen: u32,
        pagelen: u32,
        taillen: u32,
        rtype: u32,
        wtype: u32,
        reads: u32,
        writes: u32,
    }

    /// A Call was not marshalled, with the error number `ret`, for the reason `why`.
    struct XprtrdmaMarshalFailed<'a> = xprtrdma_marshal_failed {
        cid: u32,
        task: TaskId,
        xid: u32,
        ret: i32,
        why: &'a str,
    }

    /// A Send of `len` bytes is about to be posted, with `mrs` registrations.
    struct XprtrdmaPostSend = xprtrdma_post_send {
        work: WorkId,
        task: TaskId,
        xid: u32,
        mrs: u32,
        len: u32,
        num_sge: i32,
        signaled: bool,
    }

    /// Memory was mapped for the device and will be registered by the next Send.
    struct XprtrdmaMrMap = xprtrdma_mr_map {
        cid: u32,
        task: TaskId,
        xid: u32,
        mr: MrFacts,
    }

    /// A registration is about to be registered by the next Send.
    struct XprtrdmaMrFastreg = xprtrdma_mr_fastreg {
        cid: u32,
        task: TaskId,
        xid: u32,
        mr: MrFacts,
    }

    /// Memory is about to be unmapped.
    struct XprtrdmaMrUnmap = xprtrdma_mr_unmap {
        mr: MrFacts,
    }

    /// `count` registrations were made.
    struct XprtrdmaCreatemrs<'a> = xprtrdma_createmrs {
        cid: u32,
        peer: &'a SockAddr,
        count: u32,
    }

    /// An RPC waits, because no registration is idle.
    struct XprtrdmaNomrsErr<'a> = xprtrdma_nomrs_err {
        cid: u32,
        task: TaskId,
        peer: &'a SockAddr,
    }

    /// A Segment of a Read chunk at `pos`.
    struct XprtrdmaChunkRead = xprtrdma_chunk_read {
        cid: u32,
        task: TaskId,
        pos: u32,
        mr: MrFacts,
        is_last: bool,
    }

    /// A Segment of a Write chunk.
    struct XprtrdmaChunkWrite = xprtrdma_chunk_write {
        cid: u32,
        task: TaskId,
        mr: MrFacts,
        is_last: bool,
    }

    /// The Segment for pad behind a Write chunk.
    struct XprtrdmaChunkWp = xprtrdma_chunk_wp {
        cid: u32,
        task: TaskId,
        mr: MrFacts,
        is_last: bool,
    }

    /// A Segment of the Reply chunk.
    struct XprtrdmaChunkReply = xprtrdma_chunk_reply {
        cid: u32,
        task: TaskId,
        mr: MrFacts,
        is_last: bool,
    }

    /// A scatterlist of `nents` entries could not be mapped for the device now.
    struct XprtrdmaFrwrSgerr = xprtrdma_frwr_sgerr {
        cid: u32,
        xid: u32,
        mr: MrFacts,
        addr: u64,
        nents: i32,
    }

    /// Of the `nents` entries that were mapped, the device could join the first `num_mapped`.
    struct XprtrdmaFrwrMaperr = xprtrdma_frwr_maperr {
        cid: u32,
        xid: u32,
        mr: MrFacts,
        addr: u64,
        nents: i32,
        num_mapped: i32,
    }

    /// The peer has invalidated a registration.
    struct XprtrdmaMrReminv = xprtrdma_mr_reminv {
        cid: u32,
        task: TaskId,
        xid: u32,
        mr: MrFacts,
    }

    /// This side invalidates a registration.
    struct XprtrdmaMrLocalinv = xprtrdma_mr_localinv {
        cid: u32,
        task: TaskId,
        xid: u32,
        mr: MrFacts,
    }

    /// A Receive of a client ended: a message of `received` bytes arrived and invalidated `handle`, unless
    /// that is 0.
    struct XprtrdmaWcReceive = xprtrdma_wc_receive {
        wc: Completion,
        received: u32,
        handle: u32,
    }

    /// A signaled Send of a client has ended, and all before it.
    struct XprtrdmaWcSend = xprtrdma_wc_send {
        wc: Completion,
    }

    /// All registrations of an RPC are invalidated, or that has failed.
    struct XprtrdmaWcLiDone = xprtrdma_wc_li_done {
        wc: Completion,
    }

    /// A message of `received` bytes arrived at a server.
    struct SvcrdmaWcRecv = svcrdma_wc_recv {
        wc: Completion,
        received: u32,
    }

    /// A Receive of a server was flushed.
    struct SvcrdmaWcRecvFlush = svcrdma_wc_recv_flush {
        wc: Completion,
    }

    /// A Receive of a server has failed.
    struct SvcrdmaWcRecvErr = svcrdma_wc_recv_err {
        wc: Completion,
    }

    /// A signaled Send of a server was done, and all before it.
    struct SvcrdmaWcSend = svcrdma_wc_send {
        work: WorkId,
    }

    /// A Send of a server was flushed.
    struct SvcrdmaWcSendFlush = svcrdma_wc_send_flush {
        wc: Completion,
    }

    /// A Send of a server has failed.
    struct SvcrdmaWcSendErr = svcrdma_wc_send_err {
        wc: Completion,
    }

    /// A Receive of a client is about to be posted.
    struct XprtrdmaPostRecv = xprtrdma_post_recv {
        work: WorkId,
    }

    /// A Receive of a server is about to be posted.
    struct SvcrdmaPostRecv = svcrdma_post_recv {
        work: WorkId,
    }

    /// `count` Receives of a client are about to be posted; then `posted` Receives are.
    struct XprtrdmaPostRecvs<'a> = xprtrdma_post_recvs {
        cid: u32,
        cq_id: u32,
        count: u32,
        posted: i32,
        peer: &'a SockAddr,
    }

    /// RDMA Reads of `totalbytes` bytes were done, `read_latency` microseconds after they were posted.
    struct SvcrdmaWcRead = svcrdma_wc_read {
        work: WorkId,
        totalbytes: u32,
        read_latency: i64,
    }

    /// RDMA Reads were flushed.
    struct SvcrdmaWcReadFlush = svcrdma_wc_read_flush {
        wc: Completion,
    }

    /// RDMA Reads have failed.
    struct SvcrdmaWcReadErr = svcrdma_wc_read_err {
        wc: Completion,
    }

    /// Any work request has failed.
    struct RpcrdmaWcErr<'a> = rpcrdma_wc_err {
        cid: u32,
        status: &'a str,
    }

    /// The device has reported an event after which the queue pair does not work.
    struct RpcrdmaQpEvent<'a> = rpcrdma_qp_event {
        cid: u32,
        event: &'a str,
    }

    /// The device of a server has reported an event after which the queue pair does not work.
    struct SvcrdmaQpError<'a> = svcrdma_qp_error {
        cid: u32,
        event: u32,
        device: &'a str,
        peer: &'a SockAddr,
    }

    /// A Reply arrived, which grants `credits`.
    struct XprtrdmaReply = xprtrdma_reply {
        cid: u32,
        task: TaskId,
        xid: u32,
        credits: u32,
    }

    /// A message has a version that this side does not speak.
    struct XprtrdmaReplyVersErr<'a> = xprtrdma_reply_vers_err {
        cid: u32,
        xid: u32,
        version: u32,
        proc: u32,
        peer: &'a SockAddr,
        why: &'a str,
    }

    /// A message arrived that is shorter than a header.
    struct XprtrdmaReplyShortErr<'a> = xprtrdma_reply_short_err {
        cid: u32,
        xid: u32,
        version: u32,
        proc: u32,
        peer: &'a SockAddr,
        why: &'a str,
    }

    /// The peer has refused a Call, because it takes the versions `min` to `max`.
    struct XprtrdmaErrVers = xprtrdma_err_vers {
        cid: u32,
        task: TaskId,
        xid: u32,
        min: u32,
        max: u32,
    }

    /// The peer has refused a Call, because it cannot use the header.
    struct XprtrdmaErrChunk = xprtrdma_err_chunk {
        cid: u32,
        task: TaskId,
        xid: u32,
    }

    /// The peer has refused a Call with the error code `procedure`.
    struct XprtrdmaErrUnrecognized = xprtrdma_err_unrecognized {
        cid: u32,
        task: TaskId,
        xid: u32,
        procedure: u32,
    }

    /// A Reply arrived that no RPC waits for.
    struct XprtrdmaReplyRqstErr<'a> = xprtrdma_reply_rqst_err {
        cid: u32,
        xid: u32,
        version: u32,
        proc: u32,
        peer: &'a SockAddr,
        why: &'a str,
    }

    /// A Reply arrived that cannot be used, for the reason `why`.
    struct XprtrdmaReplyHdrErr<'a> = xprtrdma_reply_hdr_err {
        cid: u32,
        xid: u32,
        version: u32,
        proc: u32,
        peer: &'a SockAddr,
        why: &'a str,
    }

    /// The peer has refused a Call, for the reason `why`.
    struct XprtrdmaReplyError<'a> = xprtrdma_reply_error {
        cid: u32,
        xid: u32,
        why: &'a str,
    }

    /// A Reply has ended a Call: `limit` Calls may be in flight.
    struct XprtrdmaCredits = xprtrdma_credits {
        cid: u32,
        limit: u32,
    }

    /// A Call of `len` bytes from the server arrived.
    struct XprtrdmaCbCall<'a> = xprtrdma_cb_call {
        cid: u32,
        xid: u32,
        len: u32,
        peer: &'a SockAddr,
    }

    /// The Reply of `len` bytes to a Call from the server was sent.
    struct XprtrdmaCbReply<'a> = xprtrdma_cb_reply {
        cid: u32,
        xid: u32,
        len: u32,
        peer: &'a SockAddr,
    }

    /// A client was accepted: the inline thresholds in bytes, the number of Calls that it may have in
    /// flight now and at most, and the number of RDMA Reads that may be outstanding.
    struct SvcrdmaAccept<'a> = svcrdma_accept {
        cid: u32,
        inline_send: u32,
        inline_recv: u32,
        credits: u32,
        most: u32,
        reads: u32,
        source: &'a SockAddr,
        peer: &'a SockAddr,
    }

    /// A client was refused, for the reason `why`; `rc` is an error number or 0.
    struct SvcrdmaRefuse<'a> = svcrdma_refuse {
        peer: &'a SockAddr,
        why: &'a str,
        rc: i32,
    }

    /// A Call arrived: the fixed words and the length of its transport header, the length and the form of the RPC
    /// message, and the number of Segments of the Read list, the Write list and the Reply chunk.
    struct SvcrdmaDecodeRqst<'a> = svcrdma_decode_rqst {
        work: WorkId,
        xid: u32,
        vers: u32,
        proc: u32,
        credits: u32,
        hdrlen: u32,
        len: u32,
        rtype: &'a str,
        reads: u32,
        writes: u32,
        reply: u32,
    }

    /// A message has a version that this side does not speak.
    struct SvcrdmaDecodeBadversErr = svcrdma_decode_badvers_err {
        work: WorkId,
        xid: u32,
        vers: u32,
        proc: u32,
        credits: u32,
    }

    /// A message arrived whose header type is not defined.
    struct SvcrdmaDecodeBadprocErr = svcrdma_decode_badproc_err {
        work: WorkId,
        xid: u32,
        vers: u32,
        proc: u32,
        credits: u32,
    }

    /// A message arrived whose header breaks a rule.
    struct SvcrdmaDecodeParseErr = svcrdma_decode_parse_err {
        work: WorkId,
        xid: u32,
        vers: u32,
        proc: u32,
        credits: u32,
    }

    /// A message arrived that is dropped.
    struct SvcrdmaDecodeDropErr = svcrdma_decode_drop_err {
        work: WorkId,
        xid: u32,
        vers: u32,
        proc: u32,
        credits: u32,
    }

    /// A message of `hdrlen` bytes arrived, which is shorter than a header.
    struct SvcrdmaDecodeShortErr = svcrdma_decode_short_err {
        work: WorkId,
        hdrlen: u32,
    }

    /// A Call is answered by ERR_VERS.
    struct SvcrdmaErrVers = svcrdma_err_vers {
        cid: u32,
        xid: u32,
    }

    /// A Call is answered by another error message.
    struct SvcrdmaErrChunk = svcrdma_err_chunk {
        cid: u32,
        xid: u32,
    }

    /// RDMA Writes to Write chunks are ready, of `sqecount` work requests.
    struct SvcrdmaPostWriteChunk = svcrdma_post_write_chunk {
        work: WorkId,
        sqecount: i32,
    }

    /// RDMA Writes to the Reply chunk are ready, of `sqecount` work requests.
    struct SvcrdmaPostReplyChunk = svcrdma_post_reply_chunk {
        work: WorkId,
        sqecount: i32,
    }

    /// RDMA Reads of `len` bytes for a Call are about to be posted.
    struct SvcrdmaPostReadChunk = svcrdma_post_read_chunk {
        work: WorkId,
        xid: u32,
        len: u32,
        segments: u32,
        sqecount: i32,
    }

    /// The RDMA Reads of a Call have ended, with 0 or an error number.
    struct SvcrdmaReadFinished = svcrdma_read_finished {
        work: WorkId,
        xid: u32,
        rc: i32,
    }

    /// A Reply of `len` bytes is ready: its form, the Segments and bytes of its RDMA Writes,
    /// the number of work requests, and the handle that the client's device invalidates.
    struct SvcrdmaReply<'a> = svcrdma_reply {
        cid: u32,
        xid: u32,
        len: u32,
        wtype: &'a str,
        segments: u32,
        written: u32,
        sqecount: u32,
        handle: u32,
    }

    /// A message of `len` bytes is about to be posted.
    struct SvcrdmaPostSend = svcrdma_post_send {
        work: WorkId,
        xid: u32,
        len: u32,
        num_sge: u32,
        inv_rkey: u32,
    }

    /// A Call is answered by an error message, for the reason `why`.
    struct SvcrdmaError<'a> = svcrdma_error {
        cid: u32,
        xid: u32,
        why: &'a str,
    }

    /// The grant changed: the next Reply grants `limit` Calls.
    struct SvcrdmaCredits = svcrdma_credits {
        cid: u32,
        limit: u32,
    }

    /// A Reply has to wait for room in the send queue, or for a credit.
    struct SvcrdmaSqFull = svcrdma_sq_full {
        work: WorkId,
        avail: i32,
        depth: i32,
    }

    /// A Call of `len` bytes to the client is about to be posted.
    struct SvcrdmaCbCall = svcrdma_cb_call {
        cid: u32,
        xid: u32,
        len: u32,
    }

    /// A Call to the client was not sent, for the reason `why`.
    struct SvcrdmaCbUnsent<'a> = svcrdma_cb_unsent {
        cid: u32,
        xid: u32,
        why: &'a str,
    }

    /// The Reply of `len` bytes to a Call to the client arrived.
    struct SvcrdmaCbReply = svcrdma_cb_reply {
        cid: u32,
        xid: u32,
        len: u32,
    }

    /// The configuration of a connection that is about to begin; the next event has the rest.
    struct RpcrdmaProtocolConfig<'a> = rpcrdma_protocol_config {
        cid: u32,
        ceiling: u32,
        continued: u32,
        keep: u64,
        answer: u64,
        auth: bool,
        inband: bool,
        set: &'a [u8],
    }

    /// `Connection::client`; see the header for this and the following.
    struct RpcrdmaProtocolConnect<'a> = rpcrdma_protocol_connect {
        cid: u32,
        now: u64,
        first: u32,
        low: u32,
        high: u32,
        inval: bool,
        send: u32,
        recv: u32,
        calls: u32,
        grants: u32,
        xid: u32,
        peer: &'a [u8],
    }

    /// `Connection::send`.
    struct RpcrdmaProtocolSend<'a> = rpcrdma_protocol_send {
        cid: u32,
        now: u64,
        xid: u32,
        call: bool,
        nomsg: bool,
        more: bool,
        result: u32,
        header: &'a [u8],
        limit: u32,
    }

    /// `Connection::handle_message`.
    struct RpcrdmaProtocolMessage<'a> = rpcrdma_protocol_message {
        cid: u32,
        now: u64,
        len: u32,
        inv: u32,
        bytes: &'a [u8],
        event: &'a str,
        xid: u32,
        limit: u32,
    }

    /// `Connection::poll_transmit`.
    struct RpcrdmaProtocolTransmit<'a> = rpcrdma_protocol_transmit {
        cid: u32,
        now: u64,
        waiting: bool,
        busy: bool,
        bytes: &'a [u8],
    }

    /// `Connection::refuse`, of a message with these fixed words.
    struct RpcrdmaProtocolRefuse = rpcrdma_protocol_refuse {
        cid: u32,
        xid: u32,
        vers: u32,
        credit: u32,
        htype: u32,
        code: u32,
        first: u32,
        second: u32,
    }

    /// `Connection::set_ready`.
    struct RpcrdmaProtocolReady = rpcrdma_protocol_ready {
        cid: u32,
        count: u32,
    }

    /// `Connection::set_grants`, when that changes something.
    struct RpcrdmaProtocolGrants = rpcrdma_protocol_grants {
        cid: u32,
        count: u32,
    }

    /// `Connection::set_ceiling`.
    struct RpcrdmaProtocolCeiling = rpcrdma_protocol_ceiling {
        cid: u32,
        count: u32,
    }

    /// `Connection::handle_posted`, when that changes something.
    struct RpcrdmaProtocolPosted = rpcrdma_protocol_posted {
        cid: u32,
        count: u32,
    }

    /// `Connection::handle_sent`.
    struct RpcrdmaProtocolSent = rpcrdma_protocol_sent {
        cid: u32,
        count: u32,
    }

    /// `Connection::handle_timeout`.
    struct RpcrdmaProtocolTimeout<'a> = rpcrdma_protocol_timeout {
        cid: u32,
        now: u64,
        event: &'a str,
    }

    /// `Connection::handle_call_ended`.
    struct RpcrdmaProtocolEnded = rpcrdma_protocol_ended {
        cid: u32,
    }

    /// The connection is over.
    struct RpcrdmaProtocolLost = rpcrdma_protocol_lost {
        cid: u32,
    }
}
