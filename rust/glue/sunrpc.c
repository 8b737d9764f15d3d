// SPDX-License-Identifier: GPL-2.0
/*
 * Functions over the structs of sunrpc: critical sections that Rust could only make of several
 * calls, and fields that C macros access.
 */

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/auth.h>
#include <linux/sunrpc/bc_xprt.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/svc.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>

#include "glue.h"

/*
 * Hands @req, a Call of the server, to the callback service, if there is one.
 *
 * xprt_enqueue_bc_request() takes a reference of the transport before it looks for the service,
 * and gives it back if there is none. A transport that is being destroyed has no reference left,
 * and its receive queue is still drained; elsewhere the reference given back may be the last, and
 * xprt_destroy() then waits for a lock whose holder may wait for the very queue that we run from.
 * The service exists only while its client does, so here nothing is given back.
 */
bool rpcrdma_xprt_try_enqueue_bc_request(struct rpc_rqst *req)
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

/* Returns whether there is a callback service for Calls of the server. */
bool rpcrdma_xprt_has_callback_service(struct rpc_xprt *xprt)
{
	bool has;

	spin_lock(&xprt->bc_pa_lock);
	has = xprt->bc_serv;
	spin_unlock(&xprt->bc_pa_lock);
	return has;
}

/*
 * Senders, tasks and the handler of a Reply contend for the queue lock. Each function below takes it
 * once, where calls from Rust would take it several times.
 */

/* Finds a request. The core documents that the caller holds the queue lock; here lockdep checks it. */
static struct rpc_rqst *lookup_locked(struct rpc_xprt *xprt, __be32 xid)
{
	lockdep_assert_held(&xprt->queue_lock);
	return xprt_lookup_rqst(xprt, xid);
}

/* Unpins a request. The caller holds the queue lock. */
static void unpin_locked(struct rpc_rqst *rqst)
{
	lockdep_assert_held(&rqst->rq_xprt->queue_lock);
	xprt_unpin_rqst(rqst);
}

/* Finds the request that waits for a reply with @xid, and pins it. */
struct rpc_rqst *rpcrdma_xprt_lookup_and_pin(struct rpc_xprt *xprt, __be32 xid)
{
	struct rpc_rqst *rqst;

	spin_lock(&xprt->queue_lock);
	rqst = lookup_locked(xprt, xid);
	if (rqst)
		xprt_pin_rqst(rqst);
	spin_unlock(&xprt->queue_lock);
	return rqst;
}

/* Completes a pinned request, and unpins it before its task can find it pinned. */
void rpcrdma_xprt_complete_and_unpin(struct rpc_rqst *rqst, int copied)
{
	struct rpc_xprt *xprt = rqst->rq_xprt;

	spin_lock(&xprt->queue_lock);
	xprt_complete_rqst(rqst->rq_task, copied);
	unpin_locked(rqst);
	spin_unlock(&xprt->queue_lock);
}

/*
 * Ends the RPC of a pinned request with @status. tk_status is the task's own as long as the task
 * runs: it may still be about to wait, and call_transmit_status() then clears it, so that the
 * request would be sent again.
 */
void rpcrdma_xprt_fail(struct rpc_rqst *rqst, int status)
{
	cmpxchg(&rqst->rq_task->tk_rpc_status, 0, status);
}

/* Ends the RPC of a pinned request that waits for a Reply with @status, and unpins it. */
void rpcrdma_xprt_fail_and_unpin(struct rpc_rqst *rqst, int status)
{
	rpcrdma_xprt_fail(rqst, status);
	rpcrdma_xprt_complete_and_unpin(rqst, 0);
}

/*
 * Makes the core send a pinned request again on the same connection, and unpins it. Returns false
 * if the sender has not stored the connect cookie yet (xprt_request_transmit() takes the request
 * off the transmit queue after that). The core retransmits only requests whose cookie differs, so
 * a different cookie is stored; call_decode() treats a Reply without bytes as truncated.
 */
bool rpcrdma_xprt_send_again_and_unpin(struct rpc_rqst *rqst)
{
	struct rpc_xprt *xprt = rqst->rq_xprt;
	bool noted;

	spin_lock(&xprt->queue_lock);
	noted = !test_bit(RPC_TASK_NEED_XMIT, &rqst->rq_task->tk_runstate);
	if (noted) {
		rqst->rq_connect_cookie = READ_ONCE(xprt->connect_cookie) - 1;
		xprt_complete_rqst(rqst->rq_task, 0);
	}
	unpin_locked(rqst);
	spin_unlock(&xprt->queue_lock);
	return noted;
}

/* Unpins a request, which continues to wait. */
void rpcrdma_xprt_unpin(struct rpc_rqst *rqst)
{
	struct rpc_xprt *xprt = rqst->rq_xprt;

	spin_lock(&xprt->queue_lock);
	unpin_locked(rqst);
	spin_unlock(&xprt->queue_lock);
}

/* Takes an XID that no request has, as xprt_alloc_xid() does. */
__be32 rpcrdma_xprt_take_xid(struct rpc_xprt *xprt)
{
	guard(spinlock)(&xprt->reserve_lock);
	return (__force __be32)xprt->xid++;
}

/*
 * Makes senders wait for a credit. A request with rq_cong, such as the Reply to a Call of the server, does
 * not wait with them (xprt_request_enqueue_transmit).
 */
void rpcrdma_xprt_wait_for_credit(struct rpc_xprt *xprt)
{
	set_bit(XPRT_CWND_WAIT, &xprt->state);
}

/* Ends the wait for a credit, and wakes the next sender, as __xprt_put_cong() does for its own window. */
void rpcrdma_xprt_credit_is_free(struct rpc_xprt *xprt)
{
	spin_lock(&xprt->transport_lock);
	/* The holder of the send lock wakes the next sender when it releases the lock. */
	if (test_and_clear_bit(XPRT_CWND_WAIT, &xprt->state) &&
	    !test_and_set_bit(XPRT_LOCKED, &xprt->state)) {
		xprt->snd_task = NULL;
		xprt_release_xprt_cong(xprt, NULL);
		/* xprt_destroy() may have found the bit set meanwhile. */
		smp_mb__after_atomic();
		wake_up_bit(&xprt->state, XPRT_LOCKED);
	}
	spin_unlock(&xprt->transport_lock);
}

/* Allocates zeroed memory for a task that may run in a worker. */
void *rpcrdma_rpc_kzalloc(size_t size)
{
	return kzalloc(size, rpc_task_gfp_mask() | __GFP_NOWARN);
}

/*
 * Takes the first bit that is set in the @words words of @map, and returns its number, or one
 * beyond the last if there is none.
 */
size_t rpcrdma_bitmap_take_first(unsigned long *map, size_t words)
{
	size_t i;

	for (i = 0; i < words; i++) {
		unsigned long word;

		while ((word = READ_ONCE(map[i])) != 0) {
			unsigned long bit = __ffs(word);

			if (test_and_clear_bit(bit, &map[i]))
				return i * BITS_PER_LONG + bit;
		}
	}
	return words * BITS_PER_LONG;
}

/* Gives a bit back, with full ordering against the accesses before and after. */
void rpcrdma_bitmap_put(unsigned long *map, size_t bit)
{
	/* The next owner of the bit finds the work of this owner complete. */
	smp_mb__before_atomic();
	set_bit(bit, map);
	/* Pairs with rpcrdma_full_barrier() of a task that waits for a bit. */
	smp_mb__after_atomic();
}

/* Sets the bit @flag (XPT_*) of a transport. */
void rpcrdma_svc_xprt_set_flag(struct svc_xprt *xprt, unsigned int flag)
{
	set_bit(flag, &xprt->xpt_flags);
}

/* Clears the bit @flag (XPT_*) of a transport. */
void rpcrdma_svc_xprt_clear_flag(struct svc_xprt *xprt, unsigned int flag)
{
	clear_bit(flag, &xprt->xpt_flags);
	/* The caller then reads the queue of work, and finds work that was queued before the flag was set. */
	smp_mb__after_atomic();
}

/* Sets the addresses and the flag of a listener at @local. */
void rpcrdma_svc_xprt_listens(struct svc_xprt *xprt, const struct sockaddr *local)
{
	set_bit(XPT_LISTENER, &xprt->xpt_flags);
	strscpy(xprt->xpt_remotebuf, "listener");
	svc_xprt_set_local(xprt, local, svc_addr_len(local));
}

/*
 * Returns the number of threads of @serv: that run now, or that its first pool was told to have at most. The threads of
 * a service start one after another, and idle threads may end. A service has a single pool by default.
 */
unsigned int rpcrdma_svc_threads(const struct svc_serv *serv)
{
	return max(READ_ONCE(serv->sv_nrthreads), READ_ONCE(serv->sv_pools->sp_nrthrmax));
}

/*
 * Sets the addresses of a connection to @remote. The port is cleared: it changes with each connection,
 * and the duplicate reply cache identifies a client by its address.
 */
void rpcrdma_svc_xprt_connects(struct svc_xprt *xprt, const struct sockaddr *local,
			       const struct sockaddr *remote)
{
	svc_xprt_set_local(xprt, local, svc_addr_len(local));
	svc_xprt_set_remote(xprt, remote, svc_addr_len(remote));
	snprintf(xprt->xpt_remotebuf, sizeof(xprt->xpt_remotebuf) - 1, "%pISc", remote);
	rpc_set_port((struct sockaddr *)&xprt->xpt_remote, 0);
}

/*
 * Sets the sender of the Call in @rqst. RDMA has no privileged ports, so every port counts as
 * privileged.
 */
void rpcrdma_svc_rqst_accept(struct svc_rqst *rqst)
{
	svc_xprt_copy_addrs(rqst, rqst->rq_xprt);
	set_bit(RQ_SECURE, &rqst->rq_flags);
}

/*
 * Sets @xprt as the transport of Calls to the client of @svc, with a reference. Returns false if @svc
 * has such a transport already.
 */
bool rpcrdma_svc_xprt_set_backchannel(struct svc_xprt *svc, struct rpc_xprt *xprt)
{
	if (!cmpxchg(&svc->xpt_bc_xprt, NULL, xprt_get(xprt)))
		return true;
	xprt_put(xprt);
	return false;
}

/* Finds the Call to the client of @svc that waits for a Reply with @xid, and pins it. */
struct rpc_rqst *rpcrdma_svc_xprt_lookup_call(struct svc_xprt *svc, __be32 xid)
{
	/* Pairs with the cmpxchg() of rpcrdma_svc_xprt_set_backchannel(). */
	struct rpc_xprt *xprt = smp_load_acquire(&svc->xpt_bc_xprt);

	return xprt ? rpcrdma_xprt_lookup_and_pin(xprt, xid) : NULL;
}

/* Returns whether only the request of the caller is in flight. */
bool rpcrdma_xprt_has_one_request(struct rpc_xprt *xprt)
{
	bool one;

	spin_lock(&xprt->transport_lock);
	one = xprt->cong <= RPC_CWNDSCALE;
	spin_unlock(&xprt->transport_lock);
	return one;
}

/* Sets the congestion window to @credits requests. The core wakes a waiter when a request ends. */
void rpcrdma_xprt_set_window(struct rpc_xprt *xprt, unsigned long credits)
{
	spin_lock(&xprt->transport_lock);
	xprt->cwnd = credits << RPC_CWNDSHIFT;
	spin_unlock(&xprt->transport_lock);
}
