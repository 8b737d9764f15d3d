// SPDX-License-Identifier: GPL-2.0

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/auth.h>
#include <linux/sunrpc/bc_xprt.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/svc.h>
#include <linux/sunrpc/xprt.h>

__rust_helper void rust_helper_xprt_set_connected(struct rpc_xprt *xprt)
{
	xprt_set_connected(xprt);
}

__rust_helper void rust_helper_xprt_clear_connected(struct rpc_xprt *xprt)
{
	xprt_clear_connected(xprt);
}

__rust_helper bool rust_helper_xprt_connected(struct rpc_xprt *xprt)
{
	return xprt_connected(xprt);
}

__rust_helper void rust_helper_xprt_clear_connecting(struct rpc_xprt *xprt)
{
	xprt_clear_connecting(xprt);
}

__rust_helper void rust_helper_xprt_set_bound(struct rpc_xprt *xprt)
{
	xprt_set_bound(xprt);
}

__rust_helper bool rust_helper_rpc_reply_expected(struct rpc_task *task)
{
	return rpc_reply_expected(task);
}

__rust_helper unsigned short rust_helper_rpc_get_port(const struct sockaddr *sap)
{
	return rpc_get_port(sap);
}

__rust_helper void rust_helper_rpc_set_port(struct sockaddr *sap, unsigned short port)
{
	rpc_set_port(sap, port);
}

/*
 * Hands @req, a Call of the server, to the callback service, if there is one.
 *
 * xprt_enqueue_bc_request() takes a reference of the transport before it looks for the service,
 * and gives it back if there is none. A transport that is being destroyed has no reference left,
 * and its receive queue is still drained; elsewhere the reference given back may be the last, and
 * xprt_destroy() then waits for a lock whose holder may wait for the very queue that we run from.
 * The service exists only while its client does, so here nothing is given back.
 */
__rust_helper bool rust_helper_xprt_try_enqueue_bc_request(struct rpc_rqst *req)
{
	struct rpc_xprt *xprt = req->rq_xprt;
	struct svc_serv *serv;
	bool queued = false;

	spin_lock(&xprt->bc_pa_lock);
	serv = xprt->bc_serv;
	if (serv && xprt_get(xprt)) {
		/* svc_process_bc() counts its end. */
		atomic_inc(&xprt->bc_slot_count);
		lwq_enqueue(&req->rq_bc_list, &serv->sv_cb_list);
		svc_pool_wake_idle_thread(&serv->sv_pools[0]);
		queued = true;
	}
	spin_unlock(&xprt->bc_pa_lock);
	return queued;
}

/* Whether the flavour of @rqst's credential covers the payload by a checksum or cipher. */
__rust_helper bool rust_helper_rpcauth_datatouch(const struct rpc_rqst *rqst)
{
	return test_bit(RPCAUTH_AUTH_DATATOUCH, &rqst->rq_cred->cr_auth->au_flags);
}
