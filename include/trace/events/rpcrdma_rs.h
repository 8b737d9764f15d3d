/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events, system rpcrdma. Where an event of the kernel's C transport
 * (include/trace/events/rpcrdma.h there) means the same, it has the same name;
 * the two modules are never loaded together.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rpcrdma

#if !defined(_TRACE_RPCRDMA_RS_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_RPCRDMA_RS_H

#include <linux/in6.h>
#include <linux/socket.h>
#include <linux/tracepoint.h>

/*
 * Connections
 */

TRACE_EVENT(xprtrdma_connect,
	TP_PROTO(const struct __kernel_sockaddr_storage *peer, int rc),
	TP_ARGS(peer, rc),
	TP_STRUCT__entry(
		__field(int, rc)
		__sockaddr(peer, sizeof(struct sockaddr_in6))
	),
	TP_fast_assign(
		__entry->rc = rc;
		__assign_sockaddr(peer, peer, sizeof(struct sockaddr_in6));
	),
	TP_printk("peer=%pISpc rc=%d",
		__get_sockaddr(peer), __entry->rc)
);

#endif

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rpcrdma_rs
#include <trace/define_trace.h>
