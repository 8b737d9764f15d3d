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

#include <linux/dma-direction.h>
#include <linux/in6.h>
#include <linux/inet.h>
#include <linux/socket.h>
#include <linux/sunrpc/addr.h>
#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>

#include <trace/misc/rdma.h>
#include <trace/misc/sunrpc.h>

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

/* An RPC task (tk_pid) and its client (cl_clid), as the events of sunrpc have them. */
struct rpcrdma_task_id {
	unsigned int task_id;
	unsigned int client_id;
};

/* A memory registration: its restrack number, and the memory. */
struct rpcrdma_mr_facts {
	u32 id;
	int nents;
	u32 handle;
	u32 length;
	u64 offset;
	u32 dir;
};

/* How arguments or results of an RPC are conveyed, with the numbers of the C module. */
enum rpcrdma_chunktype {
	rpcrdma_noch = 0,
	rpcrdma_noch_pullup,
	rpcrdma_noch_mapped,
	rpcrdma_readch,
	rpcrdma_areadch,
	rpcrdma_writech,
	rpcrdma_replych,
};

/* How a work request ended (struct ib_wc). */
struct rpcrdma_completion {
	struct rpcrdma_work_id id;
	u32 status;
	u32 vendor_err;
};
#endif

#define xprtrdma_show_direction(x)					\
	__print_symbolic(x,						\
		{ DMA_BIDIRECTIONAL, "BIDIR" },				\
		{ DMA_TO_DEVICE, "TO_DEVICE" },				\
		{ DMA_FROM_DEVICE, "FROM_DEVICE" },			\
		{ DMA_NONE, "NONE" })

#define xprtrdma_show_chunktype(x)					\
	__print_symbolic(x,						\
		{ rpcrdma_noch, "inline" },				\
		{ rpcrdma_noch_pullup, "pullup" },			\
		{ rpcrdma_noch_mapped, "mapped" },			\
		{ rpcrdma_readch, "read list" },			\
		{ rpcrdma_areadch, "*read list" },			\
		{ rpcrdma_writech, "write list" },			\
		{ rpcrdma_replych, "reply chunk" })

TRACE_DEFINE_ENUM(DMA_BIDIRECTIONAL);
TRACE_DEFINE_ENUM(DMA_TO_DEVICE);
TRACE_DEFINE_ENUM(DMA_FROM_DEVICE);
TRACE_DEFINE_ENUM(DMA_NONE);

TRACE_DEFINE_ENUM(rpcrdma_noch);
TRACE_DEFINE_ENUM(rpcrdma_noch_pullup);
TRACE_DEFINE_ENUM(rpcrdma_noch_mapped);
TRACE_DEFINE_ENUM(rpcrdma_readch);
TRACE_DEFINE_ENUM(rpcrdma_areadch);
TRACE_DEFINE_ENUM(rpcrdma_writech);
TRACE_DEFINE_ENUM(rpcrdma_replych);

/* Stores the address and the port of @peer as texts, which the C module has in the same fields. */
#define rpcrdma_assign_peer(peer)					\
	do {								\
		snprintf(__get_str(addr), INET6_ADDRSTRLEN, "%pISc", peer); \
		snprintf(__get_str(port), sizeof("65535"), "%u",	\
			 rpc_get_port((const struct sockaddr *)(peer)));	\
	} while (0)

/*
 * Connections
 */

/* An attempt has ended. connect_status is 1 if the connection stands. */
TRACE_EVENT(xprtrdma_connect,
	TP_PROTO(u32 cid, const struct __kernel_sockaddr_storage *peer, int rc),
	TP_ARGS(cid, peer, rc),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(int, rc)
		__field(int, connect_status)
		__dynamic_array(char, addr, INET6_ADDRSTRLEN)
		__dynamic_array(char, port, sizeof("65535"))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->rc = rc;
		__entry->connect_status = rc ?: 1;
		rpcrdma_assign_peer(peer);
	),
	TP_printk("cid=%u peer=[%s]:%s rc=%d connection status=%d",
		__entry->cid, __get_str(addr), __get_str(port), __entry->rc,
		__entry->connect_status)
);

/*
 * rdma_disconnect() has returned rc. connect_status is 1 if the connection stood until then, 0 if
 * it never did, or else the error number by which it was lost.
 */
TRACE_EVENT(xprtrdma_disconnect,
	TP_PROTO(u32 cid, const struct __kernel_sockaddr_storage *peer, int rc, int connect_status),
	TP_ARGS(cid, peer, rc, connect_status),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(int, rc)
		__field(int, connect_status)
		__dynamic_array(char, addr, INET6_ADDRSTRLEN)
		__dynamic_array(char, port, sizeof("65535"))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->rc = rc;
		__entry->connect_status = connect_status;
		rpcrdma_assign_peer(peer);
	),
	TP_printk("cid=%u peer=[%s]:%s rc=%d connection status=%d",
		__entry->cid, __get_str(addr), __get_str(port), __entry->rc,
		__entry->connect_status)
);

TRACE_EVENT(xprtrdma_inline_thresh,
	TP_PROTO(u32 cid, u32 inline_send, u32 inline_recv, u32 max_send, u32 max_recv,
		 const struct __kernel_sockaddr_storage *source,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, inline_send, inline_recv, max_send, max_recv, source, peer),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, inline_send)
		__field(unsigned int, inline_recv)
		__field(unsigned int, max_send)
		__field(unsigned int, max_recv)
		__array(unsigned char, srcaddr, sizeof(struct sockaddr_in6))
		__array(unsigned char, dstaddr, sizeof(struct sockaddr_in6))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->inline_send = inline_send;
		__entry->inline_recv = inline_recv;
		__entry->max_send = max_send;
		__entry->max_recv = max_recv;
		memcpy(__entry->srcaddr, source, sizeof(struct sockaddr_in6));
		memcpy(__entry->dstaddr, peer, sizeof(struct sockaddr_in6));
	),
	TP_printk("cid=%u %pISpc -> %pISpc neg send/recv=%u/%u, own send/recv=%u/%u",
		__entry->cid, __entry->srcaddr, __entry->dstaddr,
		__entry->inline_send, __entry->inline_recv,
		__entry->max_send, __entry->max_recv)
);

/* A connection is needed; the attempt begins after delay jiffies. */
TRACE_EVENT(xprtrdma_op_connect,
	TP_PROTO(const struct __kernel_sockaddr_storage *peer, unsigned long delay),
	TP_ARGS(peer, delay),
	TP_STRUCT__entry(
		__field(unsigned long, delay)
		__dynamic_array(char, addr, INET6_ADDRSTRLEN)
		__dynamic_array(char, port, sizeof("65535"))
	),
	TP_fast_assign(
		__entry->delay = delay;
		rpcrdma_assign_peer(peer);
	),
	TP_printk("peer=[%s]:%s delay=%lu",
		__get_str(addr), __get_str(port), __entry->delay)
);

DECLARE_EVENT_CLASS(rpcrdma_removal_class,
	TP_PROTO(u32 cid, const struct rpcrdma_bytes *name,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, name, peer),
	TP_STRUCT__entry(
		__field(u32, cid)
		__string_len(name, name->data, name->len)
		__array(unsigned char, addr, sizeof(struct sockaddr_in6))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__assign_str(name);
		memcpy(__entry->addr, peer, sizeof(struct sockaddr_in6));
	),
	TP_printk("cid=%u device=%s peer=%pISpc", __entry->cid, __get_str(name), __entry->addr)
);

/* The device of a connection goes away. */
DEFINE_EVENT(rpcrdma_removal_class, xprtrdma_device_removal,
	TP_PROTO(u32 cid, const struct rpcrdma_bytes *name,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, name, peer));
DEFINE_EVENT(rpcrdma_removal_class, svcrdma_device_removal,
	TP_PROTO(u32 cid, const struct rpcrdma_bytes *name,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, name, peer));

/* A connection of either side has to be closed. */
TRACE_EVENT(rpcrdma_close,
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
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid, u32 hdrlen, u32 headlen,
		 u32 pagelen, u32 taillen, u32 rtype, u32 wtype, u32 reads, u32 writes),
	TP_ARGS(cid, task, xid, hdrlen, headlen, pagelen, taillen, rtype, wtype, reads, writes),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(u32, xid)
		__field(unsigned int, hdrlen)
		__field(unsigned int, headlen)
		__field(unsigned int, pagelen)
		__field(unsigned int, taillen)
		__field(unsigned int, rtype)
		__field(unsigned int, wtype)
		__field(u32, reads)
		__field(u32, writes)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->xid = xid;
		__entry->hdrlen = hdrlen;
		__entry->headlen = headlen;
		__entry->pagelen = pagelen;
		__entry->taillen = taillen;
		__entry->rtype = rtype;
		__entry->wtype = wtype;
		__entry->reads = reads;
		__entry->writes = writes;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER
		  " xid=0x%08x hdr=%u xdr=%u/%u/%u %s/%s segments=%u/%u",
		__entry->cid, __entry->task_id, __entry->client_id, __entry->xid, __entry->hdrlen,
		__entry->headlen, __entry->pagelen, __entry->taillen,
		xprtrdma_show_chunktype(__entry->rtype), xprtrdma_show_chunktype(__entry->wtype),
		__entry->reads, __entry->writes)
);

TRACE_EVENT(xprtrdma_marshal_failed,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid, int ret,
		 const struct rpcrdma_bytes *why),
	TP_ARGS(cid, task, xid, ret, why),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(u32, xid)
		__field(int, ret)
		__string_len(why, why->data, why->len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->xid = xid;
		__entry->ret = ret;
		__assign_str(why);
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x ret=%d why=\"%s\"",
		__entry->cid, __entry->task_id, __entry->client_id, __entry->xid, __entry->ret,
		__get_str(why))
);

TRACE_EVENT(xprtrdma_post_send,
	TP_PROTO(const struct rpcrdma_work_id *work, const struct rpcrdma_task_id *task, u32 xid,
		 u32 mrs, u32 len, int num_sge, bool signaled),
	TP_ARGS(work, task, xid, mrs, len, num_sge, signaled),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(int, num_sge)
		__field(int, signaled)
		__field(u32, xid)
		__field(u32, mrs)
		__field(u32, len)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->num_sge = num_sge;
		__entry->signaled = signaled ? IB_SEND_SIGNALED : 0;
		__entry->xid = xid;
		__entry->mrs = mrs;
		__entry->len = len;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER
		  " cq_id=%u completion_id=%d xid=0x%08x mrs=%u len=%u%s",
		__entry->cid, __entry->task_id, __entry->client_id,
		__entry->cq_id, __entry->completion_id,
		__entry->xid, __entry->mrs, __entry->len, __entry->signaled ? " signaled" : "")
);

/* A Segment of a chunk in the header of a Call, and whether it is the last of the chunk. */
TRACE_EVENT(xprtrdma_chunk_read,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, unsigned int pos,
		 const struct rpcrdma_mr_facts *mr, bool is_last),
	TP_ARGS(cid, task, pos, mr, is_last),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(unsigned int, pos)
		__field(int, nents)
		__field(u32, handle)
		__field(u32, length)
		__field(u64, offset)
		__field(bool, is_last)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->pos = pos;
		__entry->nents = mr->nents;
		__entry->handle = mr->handle;
		__entry->length = mr->length;
		__entry->offset = mr->offset;
		__entry->is_last = is_last;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER " pos=%u %u@0x%016llx:0x%08x (%s)",
		__entry->cid, __entry->task_id, __entry->client_id, __entry->pos,
		__entry->length, __entry->offset, __entry->handle,
		__entry->is_last ? "last" : "more")
);

DECLARE_EVENT_CLASS(xprtrdma_chunk_class,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, const struct rpcrdma_mr_facts *mr,
		 bool is_last),
	TP_ARGS(cid, task, mr, is_last),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(int, nents)
		__field(u32, handle)
		__field(u32, length)
		__field(u64, offset)
		__field(bool, is_last)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->nents = mr->nents;
		__entry->handle = mr->handle;
		__entry->length = mr->length;
		__entry->offset = mr->offset;
		__entry->is_last = is_last;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER " %u@0x%016llx:0x%08x (%s)",
		__entry->cid, __entry->task_id, __entry->client_id,
		__entry->length, __entry->offset, __entry->handle,
		__entry->is_last ? "last" : "more")
);

DEFINE_EVENT(xprtrdma_chunk_class, xprtrdma_chunk_write,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, const struct rpcrdma_mr_facts *mr,
		 bool is_last),
	TP_ARGS(cid, task, mr, is_last));
/* The Segment for pad behind a Write chunk. */
DEFINE_EVENT(xprtrdma_chunk_class, xprtrdma_chunk_wp,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, const struct rpcrdma_mr_facts *mr,
		 bool is_last),
	TP_ARGS(cid, task, mr, is_last));
DEFINE_EVENT(xprtrdma_chunk_class, xprtrdma_chunk_reply,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, const struct rpcrdma_mr_facts *mr,
		 bool is_last),
	TP_ARGS(cid, task, mr, is_last));

/*
 * Registrations
 */

DECLARE_EVENT_CLASS(xprtrdma_mr_class,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid,
		 const struct rpcrdma_mr_facts *mr),
	TP_ARGS(cid, task, xid, mr),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(u32, xid)
		__field(u32, mr_id)
		__field(int, nents)
		__field(u32, handle)
		__field(u32, length)
		__field(u64, offset)
		__field(u32, dir)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->xid = xid;
		__entry->mr_id = mr->id;
		__entry->nents = mr->nents;
		__entry->handle = mr->handle;
		__entry->length = mr->length;
		__entry->offset = mr->offset;
		__entry->dir = mr->dir;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER
		  " xid=0x%08x mr_id=%u nents=%d %u@0x%016llx:0x%08x (%s)",
		__entry->cid, __entry->task_id, __entry->client_id, __entry->xid,
		__entry->mr_id, __entry->nents, __entry->length, __entry->offset, __entry->handle,
		xprtrdma_show_direction(__entry->dir))
);

DEFINE_EVENT(xprtrdma_mr_class, xprtrdma_mr_map,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid,
		 const struct rpcrdma_mr_facts *mr),
	TP_ARGS(cid, task, xid, mr));
/* The server has invalidated it, with its Reply. */
DEFINE_EVENT(xprtrdma_mr_class, xprtrdma_mr_reminv,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid,
		 const struct rpcrdma_mr_facts *mr),
	TP_ARGS(cid, task, xid, mr));
/* We do. */
DEFINE_EVENT(xprtrdma_mr_class, xprtrdma_mr_localinv,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid,
		 const struct rpcrdma_mr_facts *mr),
	TP_ARGS(cid, task, xid, mr));

DEFINE_EVENT(xprtrdma_mr_class, xprtrdma_mr_fastreg,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid,
		 const struct rpcrdma_mr_facts *mr),
	TP_ARGS(cid, task, xid, mr));

TRACE_EVENT(xprtrdma_mr_unmap,
	TP_PROTO(const struct rpcrdma_mr_facts *mr),
	TP_ARGS(mr),
	TP_STRUCT__entry(
		__field(u32, mr_id)
		__field(int, nents)
		__field(u32, handle)
		__field(u32, length)
		__field(u64, offset)
		__field(u32, dir)
	),
	TP_fast_assign(
		__entry->mr_id = mr->id;
		__entry->nents = mr->nents;
		__entry->handle = mr->handle;
		__entry->length = mr->length;
		__entry->offset = mr->offset;
		__entry->dir = mr->dir;
	),
	TP_printk("mr_id=%u nents=%d %u@0x%016llx:0x%08x (%s)",
		__entry->mr_id, __entry->nents, __entry->length, __entry->offset, __entry->handle,
		xprtrdma_show_direction(__entry->dir))
);

/* count registrations were made. */
TRACE_EVENT(xprtrdma_createmrs,
	TP_PROTO(u32 cid, const struct __kernel_sockaddr_storage *peer, unsigned int count),
	TP_ARGS(cid, peer, count),
	TP_STRUCT__entry(
		__field(u32, cid)
		__dynamic_array(char, addr, INET6_ADDRSTRLEN)
		__dynamic_array(char, port, sizeof("65535"))
		__field(unsigned int, count)
	),
	TP_fast_assign(
		__entry->cid = cid;
		rpcrdma_assign_peer(peer);
		__entry->count = count;
	),
	TP_printk("cid=%u peer=[%s]:%s count=%u", __entry->cid, __get_str(addr), __get_str(port),
		__entry->count)
);

/* No registration is idle: the RPC waits. */
TRACE_EVENT(xprtrdma_nomrs_err,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, task, peer),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__dynamic_array(char, addr, INET6_ADDRSTRLEN)
		__dynamic_array(char, port, sizeof("65535"))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		rpcrdma_assign_peer(peer);
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER " peer=[%s]:%s", __entry->cid,
		__entry->task_id, __entry->client_id, __get_str(addr), __get_str(port))
);

TRACE_EVENT(xprtrdma_frwr_sgerr,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_mr_facts *mr, u64 addr, int nents),
	TP_ARGS(cid, xid, mr, addr, nents),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, mr_id)
		__field(u64, addr)
		__field(u32, dir)
		__field(int, nents)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->mr_id = mr->id;
		__entry->addr = addr;
		__entry->dir = mr->dir;
		__entry->nents = nents;
	),
	TP_printk("cid=%u xid=0x%08x mr_id=%u DMA addr=0x%llx (%s) nents=%d",
		__entry->cid, __entry->xid, __entry->mr_id, __entry->addr,
		xprtrdma_show_direction(__entry->dir), __entry->nents)
);

TRACE_EVENT(xprtrdma_frwr_maperr,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_mr_facts *mr, u64 addr, int nents,
		 int num_mapped),
	TP_ARGS(cid, xid, mr, addr, nents, num_mapped),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, mr_id)
		__field(u64, addr)
		__field(u32, dir)
		__field(int, num_mapped)
		__field(int, nents)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->mr_id = mr->id;
		__entry->addr = addr;
		__entry->dir = mr->dir;
		__entry->num_mapped = num_mapped;
		__entry->nents = nents;
	),
	TP_printk("cid=%u xid=0x%08x mr_id=%u DMA addr=0x%llx (%s) nents=%d num_mapped=%d",
		__entry->cid, __entry->xid, __entry->mr_id, __entry->addr,
		xprtrdma_show_direction(__entry->dir), __entry->nents, __entry->num_mapped)
);

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

/* A Receive is posted. */
DEFINE_EVENT(rpcrdma_work_class, xprtrdma_post_recv,
	TP_PROTO(const struct rpcrdma_work_id *work), TP_ARGS(work));
DEFINE_EVENT(rpcrdma_work_class, svcrdma_post_recv,
	TP_PROTO(const struct rpcrdma_work_id *work), TP_ARGS(work));

/* count Receives are posted, and then posted are. */
TRACE_EVENT(xprtrdma_post_recvs,
	TP_PROTO(u32 cid, u32 cq_id, unsigned int count, int posted,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, cq_id, count, posted, peer),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(unsigned int, count)
		__field(int, posted)
		__dynamic_array(char, addr, INET6_ADDRSTRLEN)
		__dynamic_array(char, port, sizeof("65535"))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->cq_id = cq_id;
		__entry->count = count;
		__entry->posted = posted;
		rpcrdma_assign_peer(peer);
	),
	TP_printk("cid=%u peer=[%s]:%s cq_id=%u count=%u posted=%d", __entry->cid,
		__get_str(addr), __get_str(port), __entry->cq_id, __entry->count, __entry->posted)
);

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

/* The same, at a server. */
TRACE_EVENT(svcrdma_qp_error,
	TP_PROTO(u32 cid, unsigned int event, const struct rpcrdma_bytes *device,
		 const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, event, device, peer),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, event)
		__string_len(device, device->data, device->len)
		__array(__u8, addr, INET6_ADDRSTRLEN + 10)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->event = event;
		__assign_str(device);
		snprintf(__entry->addr, sizeof(__entry->addr), "%pISpc", peer);
	),
	TP_printk("cid=%u peer=%s device=%s event=%s (%u)", __entry->cid, __entry->addr,
		__get_str(device), rdma_show_ib_event(__entry->event), __entry->event)
);

/*
 * Replies and credits
 */

TRACE_EVENT(xprtrdma_reply,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid, u32 credits),
	TP_ARGS(cid, task, xid, credits),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(u32, xid)
		__field(unsigned int, credits)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->xid = xid;
		__entry->credits = credits;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x credits=%u",
		__entry->cid, __entry->task_id, __entry->client_id, __entry->xid,
		__entry->credits)
);

/* A Reply that is of no use: the fixed words of its header, and the reason. */
DECLARE_EVENT_CLASS(xprtrdma_reply_class,
	TP_PROTO(u32 cid, u32 xid, u32 version, u32 proc,
		 const struct __kernel_sockaddr_storage *peer, const struct rpcrdma_bytes *why),
	TP_ARGS(cid, xid, version, proc, peer, why),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, version)
		__field(u32, proc)
		__dynamic_array(char, addr, INET6_ADDRSTRLEN)
		__dynamic_array(char, port, sizeof("65535"))
		__string_len(why, why->data, why->len)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->version = version;
		__entry->proc = proc;
		rpcrdma_assign_peer(peer);
		__assign_str(why);
	),
	TP_printk("cid=%u peer=[%s]:%s xid=0x%08x version=%u proc=%u why=\"%s\"",
		__entry->cid, __get_str(addr), __get_str(port), __entry->xid,
		__entry->version, __entry->proc, __get_str(why))
);

/* It is of a version that is not spoken here. */
DEFINE_EVENT(xprtrdma_reply_class, xprtrdma_reply_vers_err,
	TP_PROTO(u32 cid, u32 xid, u32 version, u32 proc,
		 const struct __kernel_sockaddr_storage *peer, const struct rpcrdma_bytes *why),
	TP_ARGS(cid, xid, version, proc, peer, why));
/* It is shorter than a header. */
DEFINE_EVENT(xprtrdma_reply_class, xprtrdma_reply_short_err,
	TP_PROTO(u32 cid, u32 xid, u32 version, u32 proc,
		 const struct __kernel_sockaddr_storage *peer, const struct rpcrdma_bytes *why),
	TP_ARGS(cid, xid, version, proc, peer, why));
/* No RPC waits for it. */
DEFINE_EVENT(xprtrdma_reply_class, xprtrdma_reply_rqst_err,
	TP_PROTO(u32 cid, u32 xid, u32 version, u32 proc,
		 const struct __kernel_sockaddr_storage *peer, const struct rpcrdma_bytes *why),
	TP_ARGS(cid, xid, version, proc, peer, why));
/* It breaks a rule. */
DEFINE_EVENT(xprtrdma_reply_class, xprtrdma_reply_hdr_err,
	TP_PROTO(u32 cid, u32 xid, u32 version, u32 proc,
		 const struct __kernel_sockaddr_storage *peer, const struct rpcrdma_bytes *why),
	TP_ARGS(cid, xid, version, proc, peer, why));

/* The server has refused the Call, and takes the versions min to max. */
TRACE_EVENT(xprtrdma_err_vers,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid, u32 min, u32 max),
	TP_ARGS(cid, task, xid, min, max),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(u32, xid)
		__field(u32, min)
		__field(u32, max)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->xid = xid;
		__entry->min = min;
		__entry->max = max;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x versions=[%u, %u]",
		__entry->cid, __entry->task_id, __entry->client_id, __entry->xid,
		__entry->min, __entry->max)
);

/* The server cannot use the header of the Call. */
TRACE_EVENT(xprtrdma_err_chunk,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid),
	TP_ARGS(cid, task, xid),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(u32, xid)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->xid = xid;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x",
		__entry->cid, __entry->task_id, __entry->client_id, __entry->xid)
);

/* The server refuses the Call with another error code. */
TRACE_EVENT(xprtrdma_err_unrecognized,
	TP_PROTO(u32 cid, const struct rpcrdma_task_id *task, u32 xid, u32 procedure),
	TP_ARGS(cid, task, xid, procedure),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(unsigned int, task_id)
		__field(unsigned int, client_id)
		__field(u32, xid)
		__field(u32, procedure)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->task_id = task->task_id;
		__entry->client_id = task->client_id;
		__entry->xid = xid;
		__entry->procedure = procedure;
	),
	TP_printk("cid=%u " SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x procedure=%u",
		__entry->cid, __entry->task_id, __entry->client_id, __entry->xid,
		__entry->procedure)
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

DECLARE_EVENT_CLASS(xprtrdma_callback_class,
	TP_PROTO(u32 cid, u32 xid, u32 len, const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, xid, len, peer),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
		__field(u32, len)
		__dynamic_array(char, addr, INET6_ADDRSTRLEN)
		__dynamic_array(char, port, sizeof("65535"))
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
		__entry->len = len;
		rpcrdma_assign_peer(peer);
	),
	TP_printk("cid=%u peer=[%s]:%s xid=0x%08x len=%u", __entry->cid,
		__get_str(addr), __get_str(port), __entry->xid, __entry->len)
);

DEFINE_EVENT(xprtrdma_callback_class, xprtrdma_cb_call,
	TP_PROTO(u32 cid, u32 xid, u32 len, const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, xid, len, peer));
DEFINE_EVENT(xprtrdma_callback_class, xprtrdma_cb_reply,
	TP_PROTO(u32 cid, u32 xid, u32 len, const struct __kernel_sockaddr_storage *peer),
	TP_ARGS(cid, xid, len, peer));

/*
 * Events of the server. The events above that do not concern a Call of a client are for either
 * side: failed work requests, and the reason for the end of a connection.
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

/*
 * The C module's show_rpcrdma_proc() has the names of version 1. proc is the type of a message of
 * version 2 otherwise.
 */
TRACE_EVENT(svcrdma_decode_rqst,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, u32 vers, u32 proc, u32 credits,
		 u32 hdrlen, u32 len, const struct rpcrdma_bytes *rtype, u32 reads, u32 writes,
		 u32 reply),
	TP_ARGS(work, xid, vers, proc, credits, hdrlen, len, rtype, reads, writes, reply),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(u32, xid)
		__field(u32, vers)
		__field(u32, proc)
		__field(u32, credits)
		__field(unsigned int, hdrlen)
		__field(u32, len)
		__string_len(rtype, rtype->data, rtype->len)
		__field(u32, reads)
		__field(u32, writes)
		__field(u32, reply)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->xid = xid;
		__entry->vers = vers;
		__entry->proc = proc;
		__entry->credits = credits;
		__entry->hdrlen = hdrlen;
		__entry->len = len;
		__assign_str(rtype);
		__entry->reads = reads;
		__entry->writes = writes;
		__entry->reply = reply;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d xid=0x%08x vers=%u proc=%u credits=%u hdrlen=%u len=%u %s segments=%u/%u/%u",
		__entry->cid, __entry->cq_id, __entry->completion_id, __entry->xid, __entry->vers,
		__entry->proc, __entry->credits, __entry->hdrlen, __entry->len,
		__get_str(rtype), __entry->reads, __entry->writes, __entry->reply)
);

/* A message that is no Call of use: the fixed words of its header. */
DECLARE_EVENT_CLASS(svcrdma_badreq_class,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, u32 vers, u32 proc, u32 credits),
	TP_ARGS(work, xid, vers, proc, credits),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(u32, xid)
		__field(u32, vers)
		__field(u32, proc)
		__field(u32, credits)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->xid = xid;
		__entry->vers = vers;
		__entry->proc = proc;
		__entry->credits = credits;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d xid=0x%08x vers=%u proc=%u credits=%u",
		__entry->cid, __entry->cq_id, __entry->completion_id, __entry->xid,
		__entry->vers, __entry->proc, __entry->credits)
);

DEFINE_EVENT(svcrdma_badreq_class, svcrdma_decode_badvers_err,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, u32 vers, u32 proc, u32 credits),
	TP_ARGS(work, xid, vers, proc, credits));
DEFINE_EVENT(svcrdma_badreq_class, svcrdma_decode_badproc_err,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, u32 vers, u32 proc, u32 credits),
	TP_ARGS(work, xid, vers, proc, credits));
DEFINE_EVENT(svcrdma_badreq_class, svcrdma_decode_parse_err,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, u32 vers, u32 proc, u32 credits),
	TP_ARGS(work, xid, vers, proc, credits));
/* It is dropped. */
DEFINE_EVENT(svcrdma_badreq_class, svcrdma_decode_drop_err,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, u32 vers, u32 proc, u32 credits),
	TP_ARGS(work, xid, vers, proc, credits));

/* It is shorter than a header: hdrlen bytes. */
TRACE_EVENT(svcrdma_decode_short_err,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 hdrlen),
	TP_ARGS(work, hdrlen),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(unsigned int, hdrlen)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->hdrlen = hdrlen;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d hdrlen=%u",
		__entry->cid, __entry->cq_id, __entry->completion_id, __entry->hdrlen)
);

/* An error message answers a Call: ERR_VERS, or another error. */
DECLARE_EVENT_CLASS(svcrdma_err_class,
	TP_PROTO(u32 cid, u32 xid),
	TP_ARGS(cid, xid),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, xid)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->xid = xid;
	),
	TP_printk("cid=%u xid=0x%08x", __entry->cid, __entry->xid)
);

DEFINE_EVENT(svcrdma_err_class, svcrdma_err_vers,
	TP_PROTO(u32 cid, u32 xid), TP_ARGS(cid, xid));
DEFINE_EVENT(svcrdma_err_class, svcrdma_err_chunk,
	TP_PROTO(u32 cid, u32 xid), TP_ARGS(cid, xid));

/*
 * The RDMA Writes of a Reply are ready: sqecount work requests. They are posted and end with the
 * Reply. completion_id is the number of the Receive of the Call.
 */
DECLARE_EVENT_CLASS(svcrdma_post_chunk_class,
	TP_PROTO(const struct rpcrdma_work_id *work, int sqecount),
	TP_ARGS(work, sqecount),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(int, sqecount)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->sqecount = sqecount;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d sqecount=%d", __entry->cid,
		__entry->cq_id, __entry->completion_id, __entry->sqecount)
);

DEFINE_EVENT(svcrdma_post_chunk_class, svcrdma_post_write_chunk,
	TP_PROTO(const struct rpcrdma_work_id *work, int sqecount), TP_ARGS(work, sqecount));
DEFINE_EVENT(svcrdma_post_chunk_class, svcrdma_post_reply_chunk,
	TP_PROTO(const struct rpcrdma_work_id *work, int sqecount), TP_ARGS(work, sqecount));

TRACE_EVENT(svcrdma_post_read_chunk,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, u32 len, u32 segments, int sqecount),
	TP_ARGS(work, xid, len, segments, sqecount),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(int, sqecount)
		__field(u32, xid)
		__field(u32, len)
		__field(u32, segments)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->sqecount = sqecount;
		__entry->xid = xid;
		__entry->len = len;
		__entry->segments = segments;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d xid=0x%08x len=%u segments=%u sqecount=%d",
		__entry->cid, __entry->cq_id, __entry->completion_id, __entry->xid, __entry->len,
		__entry->segments, __entry->sqecount)
);

/* completion_id is the number of the Receive of the Call. */
TRACE_EVENT(svcrdma_read_finished,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, int rc),
	TP_ARGS(work, xid, rc),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(u32, xid)
		__field(int, rc)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->xid = xid;
		__entry->rc = rc;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d xid=0x%08x rc=%d", __entry->cid,
		__entry->cq_id, __entry->completion_id, __entry->xid, __entry->rc)
);

/* A Reply is ready. It is posted next, or waits for the client. */
TRACE_EVENT(svcrdma_reply,
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

/* A Reply, a part of a Reply, or a Call to the client is posted. */
TRACE_EVENT(svcrdma_post_send,
	TP_PROTO(const struct rpcrdma_work_id *work, u32 xid, u32 len, u32 num_sge, u32 inv_rkey),
	TP_ARGS(work, xid, len, num_sge, inv_rkey),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(unsigned int, num_sge)
		__field(u32, inv_rkey)
		__field(u32, xid)
		__field(u32, len)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->num_sge = num_sge;
		__entry->inv_rkey = inv_rkey;
		__entry->xid = xid;
		__entry->len = len;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d xid=0x%08x len=%u num_sge=%u inv_rkey=0x%08x",
		__entry->cid, __entry->cq_id, __entry->completion_id, __entry->xid, __entry->len,
		__entry->num_sge, __entry->inv_rkey)
);

/* An error message answers a Call. */
DEFINE_EVENT(rpcrdma_why_class, svcrdma_error,
	TP_PROTO(u32 cid, u32 xid, const struct rpcrdma_bytes *why), TP_ARGS(cid, xid, why));
DEFINE_EVENT(rpcrdma_credits_class, svcrdma_credits,
	TP_PROTO(u32 cid, u32 limit), TP_ARGS(cid, limit));
/*
 * A Reply or RDMA Reads wait for room in the send queue, or for a credit. completion_id is the
 * number of the Receive of the Call.
 */
TRACE_EVENT(svcrdma_sq_full,
	TP_PROTO(const struct rpcrdma_work_id *work, int avail, int depth),
	TP_ARGS(work, avail, depth),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, cq_id)
		__field(int, completion_id)
		__field(int, avail)
		__field(int, depth)
	),
	TP_fast_assign(
		__entry->cid = work->cid;
		__entry->cq_id = work->cq_id;
		__entry->completion_id = work->completion_id;
		__entry->avail = avail;
		__entry->depth = depth;
	),
	TP_printk("cid=%u cq_id=%u completion_id=%d avail=%d depth=%d", __entry->cid,
		__entry->cq_id, __entry->completion_id, __entry->avail, __entry->depth)
);

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

DEFINE_EVENT(rpcrdma_protocol_count_class, rpcrdma_protocol_ready,
	TP_PROTO(u32 cid, u32 count), TP_ARGS(cid, count));
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
