// SPDX-License-Identifier: GPL-2.0
/*
 * Sizes and offsets of the C structures that the Rust code embeds or accesses by field, as the C
 * compiler lays them out for the kernel that is being built for. This file is compiled to assembly
 * only. rust/Kbuild turns each line that begins with "->" into a static_assert! over the type that
 * bindgen has made (layout_generated.rs), so a structure that libclang reads otherwise than the C
 * compiler fails the build instead of corrupting memory.
 */

#include "bindings_helper.h"

#define SIZE(type) \
	({ asm volatile("\n.ascii \"->size " #type " %0\"" : : "i" (sizeof(struct type))); })

#define FIELD(type, field)                                             \
	({ asm volatile("\n.ascii \"->field " #type " " #field " %0\"" \
			: : "i" (offsetof(struct type, field))); })

int main(void)
{
	/* Structures of sunrpc that the module embeds, or whose fields it uses. */
	SIZE(rpc_xprt);
	FIELD(rpc_xprt, ops);
	FIELD(rpc_xprt, timeout);
	FIELD(rpc_xprt, addr);
	FIELD(rpc_xprt, addrlen);
	FIELD(rpc_xprt, prot);
	FIELD(rpc_xprt, cong);
	FIELD(rpc_xprt, cwnd);
	FIELD(rpc_xprt, max_payload);
	FIELD(rpc_xprt, pending);
	FIELD(rpc_xprt, max_reqs);
	FIELD(rpc_xprt, state);
	FIELD(rpc_xprt, swapper);
	FIELD(rpc_xprt, bind_timeout);
	FIELD(rpc_xprt, reestablish_timeout);
	FIELD(rpc_xprt, connect_cookie);
	FIELD(rpc_xprt, last_used);
	FIELD(rpc_xprt, idle_timeout);
	FIELD(rpc_xprt, connect_timeout);
	FIELD(rpc_xprt, max_reconnect_timeout);
	FIELD(rpc_xprt, transport_lock);
	FIELD(rpc_xprt, queue_lock);
	FIELD(rpc_xprt, snd_task);
	FIELD(rpc_xprt, bc_xprt);
	FIELD(rpc_xprt, bc_serv);
	FIELD(rpc_xprt, bc_alloc_count);
	FIELD(rpc_xprt, bc_pa_lock);
	FIELD(rpc_xprt, bc_pa_list);
	FIELD(rpc_xprt, stat);
	FIELD(rpc_xprt, xprt_net);
	FIELD(rpc_xprt, address_strings);
	FIELD(rpc_xprt, xprt_class);
	SIZE(rpc_rqst);
	FIELD(rpc_rqst, rq_xprt);
	FIELD(rpc_rqst, rq_snd_buf);
	FIELD(rpc_rqst, rq_rcv_buf);
	FIELD(rpc_rqst, rq_task);
	FIELD(rpc_rqst, rq_cred);
	FIELD(rpc_rqst, rq_xid);
	FIELD(rpc_rqst, rq_cong);
	FIELD(rpc_rqst, rq_buffer);
	FIELD(rpc_rqst, rq_callsize);
	FIELD(rpc_rqst, rq_rbuffer);
	FIELD(rpc_rqst, rq_rcvsize);
	FIELD(rpc_rqst, rq_xmit_bytes_sent);
	FIELD(rpc_rqst, rq_reply_bytes_recvd);
	FIELD(rpc_rqst, rq_private_buf);
	FIELD(rpc_rqst, rq_connect_cookie);
	FIELD(rpc_rqst, rq_pin);
	FIELD(rpc_rqst, rq_xtime);
	FIELD(rpc_rqst, rq_bc_pa_state);
	FIELD(rpc_rqst, rq_bc_pa_list);
	SIZE(rpc_task);
	FIELD(rpc_task, tk_status);
	FIELD(rpc_task, tk_msg);
	FIELD(rpc_task, tk_client);
	FIELD(rpc_task, tk_xprt);
	FIELD(rpc_task, tk_rqstp);
	SIZE(xdr_buf);
	FIELD(xdr_buf, head);
	FIELD(xdr_buf, tail);
	FIELD(xdr_buf, bvec);
	FIELD(xdr_buf, pages);
	FIELD(xdr_buf, page_base);
	FIELD(xdr_buf, page_len);
	FIELD(xdr_buf, flags);
	FIELD(xdr_buf, buflen);
	FIELD(xdr_buf, len);
	SIZE(xprt_class);
	FIELD(xprt_class, list);
	FIELD(xprt_class, ident);
	FIELD(xprt_class, setup);
	FIELD(xprt_class, owner);
	FIELD(xprt_class, name);
	FIELD(xprt_class, netid);
	SIZE(rpc_xprt_ops);

	/* Structures of the verbs and of the connection manager that the module builds or uses. */
	SIZE(ib_wc);
	FIELD(ib_wc, status);
	FIELD(ib_wc, byte_len);
	FIELD(ib_wc, ex);
	FIELD(ib_wc, wc_flags);
	SIZE(ib_mr);
	FIELD(ib_mr, lkey);
	FIELD(ib_mr, rkey);
	FIELD(ib_mr, iova);
	FIELD(ib_mr, length);
	SIZE(ib_send_wr);
	SIZE(ib_reg_wr);
	SIZE(ib_recv_wr);
	SIZE(ib_sge);
	SIZE(ib_cqe);
	SIZE(ib_qp_init_attr);
	SIZE(rdma_conn_param);
	SIZE(rdma_cm_event);
	SIZE(rdma_cm_id);
	SIZE(ib_device_attr);

	/* Structures of the kernel's core that the module embeds. */
	SIZE(scatterlist);
	SIZE(work_struct);
	SIZE(delayed_work);
	SIZE(completion);

	/* Only read. */
	SIZE(ib_device);
	FIELD(ib_device, attrs);
	FIELD(ib_device, ops);
	return 0;
}
