/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events, system rpcrdma. An event with the name of an event of the kernel's C transport
 * (include/trace/events/rpcrdma.h there) has all fields of that event, with the same meaning, and
 * may have more; the two modules are never loaded together.
 *
 * The field cid numbers connections, as in debugfs. The C module has no such field.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rpcrdma

#if !defined(_TRACE_RPCRDMA_RS_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_RPCRDMA_RS_H

#include <linux/in6.h>
#include <linux/socket.h>
#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>

#include <trace/misc/rdma.h>

#ifndef _TRACE_RPCRDMA_BYTES
#define _TRACE_RPCRDMA_BYTES
/* A slice of Rust: bytes, or a text without a final NUL. */
struct rpcrdma_bytes {
	const char *data;
	u32 len;
};

/*
 * A work request: the number of its connection, the restrack number of its completion queue, and
 * its own number. Both events of a work request, of posting and of its completion, have the same.
 */
struct rpcrdma_work_id {
	u32 cid;
	u32 cq_id;
	int completion_id;
};

/* How a work request ended (struct ib_wc). */
struct rpcrdma_completion {
	struct rpcrdma_work_id id;
	u32 status;
	u32 vendor_err;
};
#endif

/*
 * Connections
 */

TRACE_EVENT(xprtrdma_connect,
	TP_PROTO(u32 cid, const struct __kernel_sockaddr_storage *peer, int rc),
	TP_ARGS(cid, peer, rc),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(int, rc)
		__sockaddr(peer, sizeof(struct sockaddr_in6))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->rc = rc;
		__assign_sockaddr(peer, peer, sizeof(struct sockaddr_in6));
	),
	TP_printk("cid=%u peer=%pISpc rc=%d",
		__entry->cid, __get_sockaddr(peer), __entry->rc)
);

TRACE_EVENT(xprtrdma_inline_thresh,
	TP_PROTO(u32 cid, u32 inline_send, u32 inline_recv, u32 max_send, u32 max_recv,
		 const struct __kernel_sockaddr_storage *source,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, inline_send, inline_recv, max_send, max_recv, source, peer),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, inline_send)
		__field(u32, inline_recv)
		__field(u32, max_send)
		__field(u32, max_recv)
		__sockaddr(source, sizeof(struct sockaddr_in6))
		__sockaddr(peer, sizeof(struct sockaddr_in6))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->inline_send = inline_send;
		__entry->inline_recv = inline_recv;
		__entry->max_send = max_send;
		__entry->max_recv = max_recv;
		__assign_sockaddr(source, source, sizeof(struct sockaddr_in6));
		__assign_sockaddr(peer, peer, sizeof(struct sockaddr_in6));
	),
	TP_printk("cid=%u %pISpc -> %pISpc neg send/recv=%u/%u, own send/recv=%u/%u",
		__entry->cid, __get_sockaddr(source), __get_sockaddr(peer),
		__entry->inline_send, __entry->inline_recv,
		__entry->max_send, __entry->max_recv)
);

TRACE_EVENT(xprtrdma_disconnect,
	TP_PROTO(u32 cid, const struct rpcrdma_bytes *why),
	TP_ARGS(cid, why),
	TP_STRUCT__entry(
		__field(u32, cid)
		__string_len(why, why->data, why->len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__assign_str(why);
	),
	TP_printk("cid=%u why=\"%s\"", __entry->cid, __get_str(why))
);

/* The flag of the task, as the allocator finds it. */
TRACE_EVENT(rpcrdma_reserves,
	TP_PROTO(const struct rpcrdma_bytes *work),
	TP_ARGS(work),
	TP_STRUCT__entry(
		__string_len(work, work->data, work->len)
		__field(bool, memalloc)
	),
	TP_fast_assign(
		__assign_str(work);
		__entry->memalloc = current->flags & PF_MEMALLOC;
	),
	TP_printk("work=\"%s\" memalloc=%d", __get_str(work), __entry->memalloc)
);

/*
 * Sending
 */

TRACE_EVENT(xprtrdma_marshal,
	TP_PROTO(u32 cid, u32 xid, u32 headlen, u32 pagelen, u32 taillen,
		 const struct rpcrdma_bytes *rtype, const struct rpcrdma_bytes *wtype,
		 u32 reads, u32 writes),
	TP_ARGS(cid, xid, headlen, pagelen, taillen, rtype, wtype, reads, writes),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, headlen)
		__field(u32, pagelen)
		__field(u32, taillen)
		__string_len(rtype, rtype->data, rtype->len)
		__string_len(wtype, wtype->data, wtype->len)
		__field(u32, reads)
		__field(u32, writes)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->headlen = headlen;
		__entry->pagelen = pagelen;
		__entry->taillen = taillen;
		__assign_str(rtype);
		__assign_str(wtype);
		__entry->reads = reads;
		__entry->writes = writes;
	),
	TP_printk("cid=%u xid=0x%08x xdr=%u/%u/%u %s/%s segments=%u/%u",
		__entry->cid, __entry->xid,
		__entry->headlen, __entry->pagelen, __entry->taillen,
		__get_str(rtype), __get_str(wtype), __entry->reads, __entry->writes)
);

TRACE_EVENT(xprtrdma_marshal_failed,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_bytes *why),
	TP_ARGS(cid, xid, why),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__string_len(why, why->data, why->len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__assign_str(why);
	),
	TP_printk("cid=%u xid=0x%08x why=\"%s\"",
		__entry->cid, __entry->xid, __get_str(why))
);

TRACE_EVENT(xprtrdma_post_send,
	TP_PROTO(u32 cid, u32 xid, u32 mrs, u32 len),
	TP_ARGS(cid, xid, mrs, len),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, mrs)
		__field(u32, len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->mrs = mrs;
		__entry->len = len;
	),
	TP_printk("cid=%u xid=0x%08x mrs=%u len=%u",
		__entry->cid, __entry->xid, __entry->mrs, __entry->len)
);

/*
 * Registrations
 */

TRACE_EVENT(xprtrdma_mr_map,
	TP_PROTO(u32 cid, u32 xid, u32 handle, u32 length, u64 offset, bool from_device),
	TP_ARGS(cid, xid, handle, length, offset, from_device),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, handle)
		__field(u32, length)
		__field(u64, offset)
		__field(bool, from_device)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->handle = handle;
		__entry->length = length;
		__entry->offset = offset;
		__entry->from_device = from_device;
	),
	TP_printk("cid=%u xid=0x%08x %u@0x%016llx:0x%08x (%s)",
		__entry->cid, __entry->xid, __entry->length, __entry->offset, __entry->handle,
		__entry->from_device ? "FROM_DEVICE" : "TO_DEVICE")
);

TRACE_EVENT(xprtrdma_frwr_sgerr,
	TP_PROTO(u32 cid, u32 xid, u32 nents),
	TP_ARGS(cid, xid, nents),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, nents)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->nents = nents;
	),
	TP_printk("cid=%u xid=0x%08x nents=%u", __entry->cid, __entry->xid, __entry->nents)
);

TRACE_EVENT(xprtrdma_frwr_maperr,
	TP_PROTO(u32 cid, u32 xid, int nents, int num_mapped),
	TP_ARGS(cid, xid, nents, num_mapped),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(int, nents)
		__field(int, num_mapped)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->nents = nents;
		__entry->num_mapped = num_mapped;
	),
	TP_printk("cid=%u xid=0x%08x nents=%d num_mapped=%d", __entry->cid, __entry->xid,
		__entry->nents, __entry->num_mapped)
);

DECLARE_EVENT_CLASS(xprtrdma_mr_class,
	TP_PROTO(u32 cid, u32 xid, u32 handle),
	TP_ARGS(cid, xid, handle),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, handle)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->handle = handle;
	),
	TP_printk("cid=%u xid=0x%08x handle=0x%08x",
		__entry->cid, __entry->xid, __entry->handle)
);

/* The server has invalidated it, with its Reply. */
DEFINE_EVENT(xprtrdma_mr_class, xprtrdma_mr_reminv,
	TP_PROTO(u32 cid, u32 xid, u32 handle), TP_ARGS(cid, xid, handle));
/* We do. */
DEFINE_EVENT(xprtrdma_mr_class, xprtrdma_mr_localinv,
	TP_PROTO(u32 cid, u32 xid, u32 handle), TP_ARGS(cid, xid, handle));

/*
 * Completions
 */

DECLARE_EVENT_CLASS(rpcrdma_completion_class,
	TP_PROTO(const struct rpcrdma_completion *wc),
	TP_ARGS(wc),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(unsigned long, status)
		__field(unsigned int, vendor_err)
	),
	TP_fast_assign(
		__entry->cid = wc->id.cid;
		__entry->cq_id = wc->id.cq_id;
		__entry->completion_id = wc->id.completion_id;
		__entry->status = wc->status;
		__entry->vendor_err = wc->status ? wc->vendor_err : 0;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d status=%s (%lu/0x%x)",
		__entry->cid, __entry->cq_id, __entry->completion_id,
		rdma_show_wc_status(__entry->status), __entry->status, __entry->vendor_err)
);

/* A signaled Send and all Sends before it have ended. */
DEFINE_EVENT(rpcrdma_completion_class, xprtrdma_wc_send,
	TP_PROTO(const struct rpcrdma_completion *wc), TP_ARGS(wc));
/* All registrations of an RPC have been invalidated. completion_id is the last one's. */
DEFINE_EVENT(rpcrdma_completion_class, xprtrdma_wc_li_done,
	TP_PROTO(const struct rpcrdma_completion *wc), TP_ARGS(wc));
DEFINE_EVENT(rpcrdma_completion_class, svcrdma_wc_send_flush,
	TP_PROTO(const struct rpcrdma_completion *wc), TP_ARGS(wc));
DEFINE_EVENT(rpcrdma_completion_class, svcrdma_wc_send_err,
	TP_PROTO(const struct rpcrdma_completion *wc), TP_ARGS(wc));
DEFINE_EVENT(rpcrdma_completion_class, svcrdma_wc_recv_flush,
	TP_PROTO(const struct rpcrdma_completion *wc), TP_ARGS(wc));
DEFINE_EVENT(rpcrdma_completion_class, svcrdma_wc_recv_err,
	TP_PROTO(const struct rpcrdma_completion *wc), TP_ARGS(wc));
DEFINE_EVENT(rpcrdma_completion_class, svcrdma_wc_read_flush,
	TP_PROTO(const struct rpcrdma_completion *wc), TP_ARGS(wc));
DEFINE_EVENT(rpcrdma_completion_class, svcrdma_wc_read_err,
	TP_PROTO(const struct rpcrdma_completion *wc), TP_ARGS(wc));

TRACE_EVENT(xprtrdma_wc_receive,
	TP_PROTO(const struct rpcrdma_completion *wc, u32 received, u32 handle),
	TP_ARGS(wc, received, handle),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(u32, received)
		__field(unsigned long, status)
		__field(unsigned int, vendor_err)
		__field(u32, handle)
	),
	TP_fast_assign(
		__entry->cid = wc->id.cid;
		__entry->cq_id = wc->id.cq_id;
		__entry->completion_id = wc->id.completion_id;
		__entry->received = received;
		__entry->status = wc->status;
		__entry->vendor_err = wc->status ? wc->vendor_err : 0;
		__entry->handle = handle;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d status=%s (%lu/0x%x) received=%u invalidated=0x%08x",
		__entry->cid, __entry->cq_id, __entry->completion_id,
		rdma_show_wc_status(__entry->status), __entry->status, __entry->vendor_err,
		__entry->received, __entry->handle)
);

TRACE_EVENT(svcrdma_wc_recv,
	TP_PROTO(const struct rpcrdma_completion *wc, u32 received),
	TP_ARGS(wc, received),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(u32, received)
	),
	TP_fast_assign(
		__entry->cid = wc->id.cid;
		__entry->cq_id = wc->id.cq_id;
		__entry->completion_id = wc->id.completion_id;
		__entry->received = received;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d received=%u",
		__entry->cid, __entry->cq_id, __entry->completion_id, __entry->received)
);

DECLARE_EVENT_CLASS(rpcrdma_work_class,
	TP_PROTO(const struct rpcrdma_work_id *work),
	TP_ARGS(work),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d",
		__entry->cid, __entry->cq_id, __entry->completion_id)
);

/* A signaled Send and all Sends before it have ended, with the RDMA Writes before them. */
DEFINE_EVENT(rpcrdma_work_class, svcrdma_wc_send,
	TP_PROTO(const struct rpcrdma_work_id *work), TP_ARGS(work));

/* The RDMA Reads of a Call, or of a round of it, have ended. */
TRACE_EVENT(svcrdma_wc_read,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 totalbytes, s64 read_latency),
	TP_ARGS(work, totalbytes, read_latency),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(s64, read_latency)
		__field(unsigned int, totalbytes)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->read_latency = read_latency;
		__entry->totalbytes = totalbytes;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d totalbytes=%u latency-us=%lld",
		__entry->cid, __entry->cq_id, __entry->completion_id,
		__entry->totalbytes, __entry->read_latency)
);

DECLARE_EVENT_CLASS(rpcrdma_cid_class,
	TP_PROTO(u32 cid),
	TP_ARGS(cid),
	TP_STRUCT__entry(
		__field(u32, cid)
	),
	TP_fast_assign(
		__entry->cid = cid;
	),
	TP_printk("cid=%u", __entry->cid)
);

/* Any work request has failed, of either side. */
TRACE_EVENT(rpcrdma_wc_err,
	TP_PROTO(u32 cid, const struct rpcrdma_bytes *status),
	TP_ARGS(cid, status),
	TP_STRUCT__entry(
		__field(u32, cid)
		__string_len(status, status->data, status->len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__assign_str(status);
	),
	TP_printk("cid=%u status=\"%s\"", __entry->cid, __get_str(status))
);

/* The device has reported an event after which the queue pair does not work. */
TRACE_EVENT(rpcrdma_qp_event,
	TP_PROTO(u32 cid, const struct rpcrdma_bytes *event),
	TP_ARGS(cid, event),
	TP_STRUCT__entry(
		__field(u32, cid)
		__string_len(event, event->data, event->len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__assign_str(event);
	),
	TP_printk("cid=%u event=\"%s\"", __entry->cid, __get_str(event))
);

/*
 * Replies and credits
 */

TRACE_EVENT(xprtrdma_reply,
	TP_PROTO(u32 cid, u32 xid, u32 credits),
	TP_ARGS(cid, xid, credits),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, credits)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->credits = credits;
	),
	TP_printk("cid=%u xid=0x%08x credits=%u",
		__entry->cid, __entry->xid, __entry->credits)
);

DECLARE_EVENT_CLASS(rpcrdma_why_class,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_bytes *why),
	TP_ARGS(cid, xid, why),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__string_len(why, why->data, why->len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__assign_str(why);
	),
	TP_printk("cid=%u xid=0x%08x why=\"%s\"",
		__entry->cid, __entry->xid, __get_str(why))
);

/* No RPC waits for it. */
DEFINE_EVENT(rpcrdma_why_class, xprtrdma_reply_rqst_err,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_bytes *why), TP_ARGS(cid, xid, why));
/* It breaks a rule. */
DEFINE_EVENT(rpcrdma_why_class, xprtrdma_reply_hdr_err,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_bytes *why), TP_ARGS(cid, xid, why));
/* The server has refused the Call. */
DEFINE_EVENT(rpcrdma_why_class, xprtrdma_reply_error,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_bytes *why), TP_ARGS(cid, xid, why));

DECLARE_EVENT_CLASS(rpcrdma_credits_class,
	TP_PROTO(u32 cid, u32 limit),
	TP_ARGS(cid, limit),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, limit)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->limit = limit;
	),
	TP_printk("cid=%u limit=%u", __entry->cid, __entry->limit)
);

DEFINE_EVENT(rpcrdma_credits_class, xprtrdma_credits,
	TP_PROTO(u32 cid, u32 limit), TP_ARGS(cid, limit));

/*
 * The server's Calls
 */

DECLARE_EVENT_CLASS(rpcrdma_callback_class,
	TP_PROTO(u32 cid, u32 xid, u32 len),
	TP_ARGS(cid, xid, len),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->len = len;
	),
	TP_printk("cid=%u xid=0x%08x len=%u", __entry->cid, __entry->xid, __entry->len)
);

DEFINE_EVENT(rpcrdma_callback_class, xprtrdma_cb_call,
	TP_PROTO(u32 cid, u32 xid, u32 len), TP_ARGS(cid, xid, len));
DEFINE_EVENT(rpcrdma_callback_class, xprtrdma_cb_reply,
	TP_PROTO(u32 cid, u32 xid, u32 len), TP_ARGS(cid, xid, len));

/*
 * Events of the server. The events above that do not concern a Call of a client are for either
 * side: completions, and the reason for the end of a connection.
 */

TRACE_EVENT(svcrdma_accept,
	TP_PROTO(u32 cid, u32 inline_send, u32 inline_recv, u32 credits, u32 most, u32 reads,
		 const struct __kernel_sockaddr_storage *source,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, inline_send, inline_recv, credits, most, reads, source, peer),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, inline_send)
		__field(u32, inline_recv)
		__field(u32, credits)
		__field(u32, most)
		__field(u32, reads)
		__sockaddr(source, sizeof(struct sockaddr_in6))
		__sockaddr(peer, sizeof(struct sockaddr_in6))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->inline_send = inline_send;
		__entry->inline_recv = inline_recv;
		__entry->credits = credits;
		__entry->most = most;
		__entry->reads = reads;
		__assign_sockaddr(source, source, sizeof(struct sockaddr_in6));
		__assign_sockaddr(peer, peer, sizeof(struct sockaddr_in6));
	),
	TP_printk("cid=%u %pISpc -> %pISpc neg send/recv=%u/%u credits=%u of %u reads=%u",
		__entry->cid, __get_sockaddr(source), __get_sockaddr(peer),
		__entry->inline_send, __entry->inline_recv,
		__entry->credits, __entry->most, __entry->reads)
);

TRACE_EVENT(svcrdma_refuse,
	TP_PROTO(const struct __kernel_sockaddr_storage *peer, const struct rpcrdma_bytes *why,
		 int rc),
	TP_ARGS(peer, why, rc),
	TP_STRUCT__entry(
		__field(int, rc)
		__sockaddr(peer, sizeof(struct sockaddr_in6))
		__string_len(why, why->data, why->len)
	),
	TP_fast_assign(
		__entry->rc = rc;
		__assign_sockaddr(peer, peer, sizeof(struct sockaddr_in6));
		__assign_str(why);
	),
	TP_printk("peer=%pISpc why=\"%s\" rc=%d",
		__get_sockaddr(peer), __get_str(why), __entry->rc)
);

TRACE_EVENT(svcrdma_decode_rqst,
	TP_PROTO(u32 cid, u32 xid, u32 credits, u32 len, const struct rpcrdma_bytes *rtype,
		 u32 reads, u32 writes, u32 reply),
	TP_ARGS(cid, xid, credits, len, rtype, reads, writes, reply),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, credits)
		__field(u32, len)
		__string_len(rtype, rtype->data, rtype->len)
		__field(u32, reads)
		__field(u32, writes)
		__field(u32, reply)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->credits = credits;
		__entry->len = len;
		__assign_str(rtype);
		__entry->reads = reads;
		__entry->writes = writes;
		__entry->reply = reply;
	),
	TP_printk("cid=%u xid=0x%08x credits=%u len=%u %s segments=%u/%u/%u",
		__entry->cid, __entry->xid, __entry->credits, __entry->len,
		__get_str(rtype), __entry->reads, __entry->writes, __entry->reply)
);

TRACE_EVENT(svcrdma_post_read_chunk,
	TP_PROTO(u32 cid, u32 xid, u32 len, u32 segments, u32 sqecount),
	TP_ARGS(cid, xid, len, segments, sqecount),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, len)
		__field(u32, segments)
		__field(u32, sqecount)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->len = len;
		__entry->segments = segments;
		__entry->sqecount = sqecount;
	),
	TP_printk("cid=%u xid=0x%08x len=%u segments=%u sqecount=%u",
		__entry->cid, __entry->xid, __entry->len, __entry->segments, __entry->sqecount)
);

TRACE_EVENT(svcrdma_read_finished,
	TP_PROTO(u32 cid, u32 xid, int rc),
	TP_ARGS(cid, xid, rc),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(int, rc)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->rc = rc;
	),
	TP_printk("cid=%u xid=0x%08x rc=%d", __entry->cid, __entry->xid, __entry->rc)
);

TRACE_EVENT(svcrdma_post_send,
	TP_PROTO(u32 cid, u32 xid, u32 len, const struct rpcrdma_bytes *wtype, u32 segments,
		 u32 written, u32 sqecount, u32 handle),
	TP_ARGS(cid, xid, len, wtype, segments, written, sqecount, handle),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, len)
		__string_len(wtype, wtype->data, wtype->len)
		__field(u32, segments)
		__field(u32, written)
		__field(u32, sqecount)
		__field(u32, handle)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->len = len;
		__assign_str(wtype);
		__entry->segments = segments;
		__entry->written = written;
		__entry->sqecount = sqecount;
		__entry->handle = handle;
	),
	TP_printk("cid=%u xid=0x%08x len=%u %s segments=%u written=%u sqecount=%u invalidates=0x%08x",
		__entry->cid, __entry->xid, __entry->len, __get_str(wtype), __entry->segments,
		__entry->written, __entry->sqecount, __entry->handle)
);

/* An error message answers a Call. */
DEFINE_EVENT(rpcrdma_why_class, svcrdma_error,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_bytes *why), TP_ARGS(cid, xid, why));
DEFINE_EVENT(rpcrdma_credits_class, svcrdma_credits,
	TP_PROTO(u32 cid, u32 limit), TP_ARGS(cid, limit));
/* A Reply waits for room in the send queue, or for a credit. */
DEFINE_EVENT(rpcrdma_cid_class, svcrdma_sq_full, TP_PROTO(u32 cid), TP_ARGS(cid));
DEFINE_EVENT(rpcrdma_callback_class, svcrdma_cb_call,
	TP_PROTO(u32 cid, u32 xid, u32 len), TP_ARGS(cid, xid, len));
DEFINE_EVENT(rpcrdma_why_class, svcrdma_cb_unsent,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_bytes *why), TP_ARGS(cid, xid, why));
DEFINE_EVENT(rpcrdma_callback_class, svcrdma_cb_reply,
	TP_PROTO(u32 cid, u32 xid, u32 len), TP_ARGS(cid, xid, len));

/*
 * Inputs and results of the protocol state of a connection, with enough bytes to repeat the call
 * (tools/proto/tests/replay.rs). Times are in milliseconds.
 */

/* Beside rpcrdma_protocol_connect, which follows. */
TRACE_EVENT(rpcrdma_protocol_config,
	TP_PROTO(u32 cid, u32 ceiling, u32 continued, u64 keep, u64 answer, bool auth,
		 bool inband, const struct rpcrdma_bytes *set),
	TP_ARGS(cid, ceiling, continued, keep, answer, auth, inband, set),
	TP_STRUCT__entry(
		__field(u64, keep)
		__field(u64, answer)
		__field(u32, cid)
		__field(u32, ceiling)
		__field(u32, continued)
		__field(u32, auth)
		__field(u32, inband)
		__dynamic_array(u8, set, set->len)
	),
	TP_fast_assign(
		__entry->keep = keep;
		__entry->answer = answer;
		__entry->cid = cid;
		__entry->ceiling = ceiling;
		__entry->continued = continued;
		__entry->auth = auth;
		__entry->inband = inband;
		memcpy(__get_dynamic_array(set), set->data, set->len);
	),
	TP_printk("cid=%u ceiling=%u continued=%u keep=%llu answer=%llu auth=%u inband=%u set=%s",
		__entry->cid, __entry->ceiling, __entry->continued, __entry->keep,
		__entry->answer, __entry->auth, __entry->inband,
		__print_hex_str(__get_dynamic_array(set), __get_dynamic_array_len(set)))
);

TRACE_EVENT(rpcrdma_protocol_connect,
	TP_PROTO(u32 cid, u64 now, u32 first, u32 low, u32 high, bool inval,
		 u32 send, u32 recv, u32 calls, u32 grants, u32 xid,
		 const struct rpcrdma_bytes *peer),
	TP_ARGS(cid, now, first, low, high, inval, send, recv, calls, grants, xid, peer),
	TP_STRUCT__entry(
		__field(u64, now)
		__field(u32, cid)
		__field(u32, first)
		__field(u32, low)
		__field(u32, high)
		__field(u32, inval)
		__field(u32, send)
		__field(u32, recv)
		__field(u32, calls)
		__field(u32, grants)
		__field(u32, xid)
		__dynamic_array(u8, peer, peer->len)
	),
	TP_fast_assign(
		__entry->now = now;
		__entry->cid = cid;
		__entry->first = first;
		__entry->low = low;
		__entry->high = high;
		__entry->inval = inval;
		__entry->send = send;
		__entry->recv = recv;
		__entry->calls = calls;
		__entry->grants = grants;
		__entry->xid = xid;
		memcpy(__get_dynamic_array(peer), peer->data, peer->len);
	),
	TP_printk("cid=%u now=%llu first=%u low=%u high=%u inval=%u send=%u recv=%u calls=%u grants=%u xid=0x%08x peer=%s",
		__entry->cid, __entry->now, __entry->first, __entry->low, __entry->high,
		__entry->inval, __entry->send, __entry->recv, __entry->calls, __entry->grants,
		__entry->xid,
		__print_hex_str(__get_dynamic_array(peer), __get_dynamic_array_len(peer)))
);

TRACE_EVENT(rpcrdma_protocol_send,
	TP_PROTO(u32 cid, u64 now, u32 xid, bool call, bool nomsg, bool more, u32 result,
		 const struct rpcrdma_bytes *header, u32 limit),
	TP_ARGS(cid, now, xid, call, nomsg, more, result, header, limit),
	TP_STRUCT__entry(
		__field(u64, now)
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, call)
		__field(u32, nomsg)
		__field(u32, more)
		__field(u32, result)
		__field(u32, limit)
		__dynamic_array(u8, header, header->len)
	),
	TP_fast_assign(
		__entry->now = now;
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->call = call;
		__entry->nomsg = nomsg;
		__entry->more = more;
		__entry->result = result;
		__entry->limit = limit;
		memcpy(__get_dynamic_array(header), header->data, header->len);
	),
	TP_printk("cid=%u now=%llu xid=0x%08x call=%u nomsg=%u more=%u result=%u header=%s limit=%u",
		__entry->cid, __entry->now, __entry->xid, __entry->call, __entry->nomsg,
		__entry->more, __entry->result,
		__print_hex_str(__get_dynamic_array(header), __get_dynamic_array_len(header)),
		__entry->limit)
);

TRACE_EVENT(rpcrdma_protocol_message,
	TP_PROTO(u32 cid, u64 now, u32 len, u32 inv, const struct rpcrdma_bytes *bytes,
		 const struct rpcrdma_bytes *event, u32 xid, u32 limit),
	TP_ARGS(cid, now, len, inv, bytes, event, xid, limit),
	TP_STRUCT__entry(
		__field(u64, now)
		__field(u32, cid)
		__field(u32, len)
		__field(u32, inv)
		__field(u32, xid)
		__field(u32, limit)
		__dynamic_array(u8, bytes, bytes->len)
		__string_len(event, event->data, event->len)
	),
	TP_fast_assign(
		__entry->now = now;
		__entry->cid = cid;
		__entry->len = len;
		__entry->inv = inv;
		__entry->xid = xid;
		__entry->limit = limit;
		memcpy(__get_dynamic_array(bytes), bytes->data, bytes->len);
		__assign_str(event);
	),
	TP_printk("cid=%u now=%llu len=%u inv=0x%x bytes=%s event=%s xid=0x%08x limit=%u",
		__entry->cid, __entry->now, __entry->len, __entry->inv,
		__print_hex_str(__get_dynamic_array(bytes), __get_dynamic_array_len(bytes)),
		__get_str(event), __entry->xid, __entry->limit)
);

TRACE_EVENT(rpcrdma_protocol_transmit,
	TP_PROTO(u32 cid, u64 now, bool waiting, bool busy, const struct rpcrdma_bytes *bytes),
	TP_ARGS(cid, now, waiting, busy, bytes),
	TP_STRUCT__entry(
		__field(u64, now)
		__field(u32, cid)
		__field(u32, waiting)
		__field(u32, busy)
		__dynamic_array(u8, bytes, bytes->len)
	),
	TP_fast_assign(
		__entry->now = now;
		__entry->cid = cid;
		__entry->waiting = waiting;
		__entry->busy = busy;
		memcpy(__get_dynamic_array(bytes), bytes->data, bytes->len);
	),
	TP_printk("cid=%u now=%llu waiting=%u busy=%u bytes=%s",
		__entry->cid, __entry->now, __entry->waiting, __entry->busy,
		__print_hex_str(__get_dynamic_array(bytes), __get_dynamic_array_len(bytes)))
);

TRACE_EVENT(rpcrdma_protocol_refuse,
	TP_PROTO(u32 cid, u32 xid, u32 vers, u32 credit, u32 htype, u32 code, u32 first, u32 second),
	TP_ARGS(cid, xid, vers, credit, htype, code, first, second),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, vers)
		__field(u32, credit)
		__field(u32, type)
		__field(u32, code)
		__field(u32, first)
		__field(u32, second)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->vers = vers;
		__entry->credit = credit;
		__entry->type = htype;
		__entry->code = code;
		__entry->first = first;
		__entry->second = second;
	),
	TP_printk("cid=%u xid=0x%08x vers=%u credit=%u type=%u code=%u first=%u second=%u",
		__entry->cid, __entry->xid, __entry->vers, __entry->credit, __entry->type,
		__entry->code, __entry->first, __entry->second)
);

TRACE_EVENT(rpcrdma_protocol_timeout,
	TP_PROTO(u32 cid, u64 now, const struct rpcrdma_bytes *event),
	TP_ARGS(cid, now, event),
	TP_STRUCT__entry(
		__field(u64, now)
		__field(u32, cid)
		__string_len(event, event->data, event->len)
	),
	TP_fast_assign(
		__entry->now = now;
		__entry->cid = cid;
		__assign_str(event);
	),
	TP_printk("cid=%u now=%llu event=%s", __entry->cid, __entry->now, __get_str(event))
);

DECLARE_EVENT_CLASS(rpcrdma_protocol_count_class,
	TP_PROTO(u32 cid, u32 count),
	TP_ARGS(cid, count),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, count)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->count = count;
	),
	TP_printk("cid=%u count=%u", __entry->cid, __entry->count)
);

DEFINE_EVENT(rpcrdma_protocol_count_class, rpcrdma_protocol_grants,
	TP_PROTO(u32 cid, u32 count), TP_ARGS(cid, count));
DEFINE_EVENT(rpcrdma_protocol_count_class, rpcrdma_protocol_ceiling,
	TP_PROTO(u32 cid, u32 count), TP_ARGS(cid, count));
DEFINE_EVENT(rpcrdma_protocol_count_class, rpcrdma_protocol_posted,
	TP_PROTO(u32 cid, u32 count), TP_ARGS(cid, count));
DEFINE_EVENT(rpcrdma_protocol_count_class, rpcrdma_protocol_sent,
	TP_PROTO(u32 cid, u32 count), TP_ARGS(cid, count));

DEFINE_EVENT(rpcrdma_cid_class, rpcrdma_protocol_ended, TP_PROTO(u32 cid), TP_ARGS(cid));
DEFINE_EVENT(rpcrdma_cid_class, rpcrdma_protocol_lost, TP_PROTO(u32 cid), TP_ARGS(cid));

#endif

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rpcrdma_rs
#include <trace/define_trace.h>
