// SPDX-License-Identifier: GPL-2.0
/*
 * `make modules FAULTS=y` puts this in front of a device: faults that hardware has
 * and RDMA devices in software never have. A parameter of the loaded module asks
 * for each.
 *
 * This is for tests only.
 */

#include <linux/delay.h>
#include <linux/irqflags.h>
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/sunrpc/xprt.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "standins.h"

static bool fault_modify;
module_param(fault_modify, bool, 0644);
MODULE_PARM_DESC(fault_modify, "No queue pair can be moved to the error state");

static uint fault_connect;
module_param(fault_connect, uint, 0644);
MODULE_PARM_DESC(fault_connect,
		 "The number of queue pairs that the device is going to refuse to connect");

static int fault_resolve;
module_param(fault_resolve, int, 0644);
MODULE_PARM_DESC(fault_resolve, "The error number of each attempt to resolve an address, or 0");

static bool fault_silent;
module_param(fault_silent, bool, 0644);
MODULE_PARM_DESC(fault_silent, "No completion queue reports anything");

static int fault_swallow = -1;
module_param(fault_swallow, int, 0644);
MODULE_PARM_DESC(fault_swallow,
		 "The next completion of a work request with this opcode gets lost");

static int fault_event = -1;
module_param(fault_event, int, 0644);
MODULE_PARM_DESC(fault_event, "The next queue pair that gets a Receive has this event");

static uint fault_delay;
module_param(fault_delay, uint, 0644);
MODULE_PARM_DESC(fault_delay,
		 "Microseconds between taking a work request and looking for the next");

static int fault_break = -1;
module_param(fault_break, int, 0644);
MODULE_PARM_DESC(fault_break,
		 "The next queue pair that takes a work request with this opcode breaks before it looks for the next; 128 is a Receive");

static uint fault_wake;
module_param(fault_wake, uint, 0644);
MODULE_PARM_DESC(fault_wake,
		 "Milliseconds before a worker wakes the tasks that wait for a connection");

static DEFINE_SPINLOCK(fault_lock);

/* Counts down a parameter. Returns whether it was not 0. */
static bool fault_take(uint *parameter)
{
	guard(spinlock)(&fault_lock);
	if (!*parameter)
		return false;
	--*parameter;
	return true;
}

/* A device that has failed, or that refuses to connect a queue pair. */
int rpcrdma_fault_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask)
{
	if (attr->qp_state == IB_QPS_ERR && READ_ONCE(fault_modify))
		return -EIO;
	if (attr->qp_state == IB_QPS_RTR && fault_take(&fault_connect))
		return -EINVAL;
	return (ib_modify_qp)(qp, attr, mask);
}

/* A network with an error that the lab cannot make: no path of Linux 7.2 returns ENETDOWN. */
int __wrap_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
			     const struct sockaddr *dst_addr, unsigned long timeout_ms)
{
	int error = READ_ONCE(fault_resolve);

	if (error)
		return -error;
	return __real_rdma_resolve_addr(id, src_addr, dst_addr, timeout_ms);
}

static void (*fault_reported)(struct ib_cq *cq, void *context);

static void fault_report(struct ib_cq *cq, void *context)
{
	if (!READ_ONCE(fault_silent))
		fault_reported(cq, context);
}

struct ib_cq *rpcrdma_fault_alloc_cq_any(struct ib_device *device, void *private, int nr_cqe,
					 enum ib_poll_context poll_ctx)
{
	struct ib_cq *cq = (ib_alloc_cq_any)(device, private, nr_cqe, poll_ctx);

	if (!IS_ERR(cq)) {
		/* The same for all that are polled from the same context. */
		fault_reported = cq->comp_handler;
		cq->comp_handler = fault_report;
	}
	return cq;
}

/* A silent device reports the completions when its queue pair has been destroyed. */
void __wrap_ib_free_cq(struct ib_cq *cq)
{
	if (READ_ONCE(fault_silent)) {
		fault_reported(cq, cq->cq_context);
		flush_work(&cq->work);
	}
	__real_ib_free_cq(cq);
}

/* Takes a completion out of the way of its owner. */
static void fault_swallowed_done(struct ib_cq *cq, struct ib_wc *wc) {}

static struct ib_cqe fault_swallowed = { .done = fault_swallowed_done };

static void fault_swallow_completion(struct ib_send_wr *wr)
{
	int opcode = wr->opcode;

	if (wr->send_flags & IB_SEND_SIGNALED &&
	    try_cmpxchg(&fault_swallow, &opcode, -1))
		wr->wr_cqe = &fault_swallowed;
}

/* As in a driver: the completion of a posted work request may free it from then on. */
static void fault_wait(void)
{
	uint delay = READ_ONCE(fault_delay);

	if (delay)
		udelay(delay);
}

static struct ib_qp *fault_broken;
static bool fault_is_broken;

static void fault_break_broken(struct work_struct *work)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	(ib_modify_qp)(fault_broken, &attr, IB_QP_STATE);
	WRITE_ONCE(fault_is_broken, true);
}

static DECLARE_WORK(fault_breaker, fault_break_broken);

/*
 * Breaks a queue pair while a task posts work requests to it, and gives the completions time on another
 * processor. The task may hold a spinlock. Completions that post are handled one after the other anyway.
 */
static void fault_break_at(struct ib_qp *qp, int opcode)
{
	int ms;

	if (current_work() == &qp->recv_cq->work || !try_cmpxchg(&fault_break, &opcode, -1))
		return;
	fault_broken = qp;
	WRITE_ONCE(fault_is_broken, false);
	queue_work(system_dfl_wq, &fault_breaker);
	for (ms = 0; ms < 200 && !READ_ONCE(fault_is_broken); ms++)
		mdelay(1);
	mdelay(100);
}

/*
 * Registrations whose work request the device may still have, with the queue pair of each: no work request
 * behind it has asked for a completion.
 */
static DEFINE_XARRAY(fault_registered);

static void fault_retire(struct ib_qp *qp)
{
	unsigned long index;
	void *entry;

	xa_for_each(&fault_registered, index, entry)
		if (entry == qp)
			xa_erase(&fault_registered, index);
}

static void fault_posted(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	if (wr->opcode == IB_WR_REG_MR)
		xa_store(&fault_registered, (unsigned long)reg_wr(wr)->mr, qp, GFP_ATOMIC);
	else if (wr->send_flags & IB_SEND_SIGNALED)
		fault_retire(qp);
}

int __wrap_ib_dereg_mr_user(struct ib_mr *mr, struct ib_udata *udata)
{
	WARN(xa_erase(&fault_registered, (unsigned long)mr),
	     "rpcrdma: the device still has a work request of a registration that is freed\n");
	return __real_ib_dereg_mr_user(mr, udata);
}

/* A device that learns of a queue pair when it is connected gives back no marker before. */
static void fault_drain(struct ib_qp *qp)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	if (rdma_protocol_iwarp(qp->device, 1) || ib_query_qp(qp, &attr, IB_QP_DEST_QPN, &init))
		return;
	WARN(!attr.dest_qp_num, "rpcrdma: a queue pair is drained that was never connected\n");
}

void __wrap_ib_drain_rq(struct ib_qp *qp)
{
	fault_drain(qp);
	__real_ib_drain_rq(qp);
}

void __wrap_ib_drain_sq(struct ib_qp *qp)
{
	fault_drain(qp);
	__real_ib_drain_sq(qp);
}

void __wrap_rdma_destroy_qp(struct rdma_cm_id *id)
{
	cancel_work_sync(&fault_breaker);
	fault_retire(id->qp);
	__real_rdma_destroy_qp(id);
}

int __wrap_ib_destroy_qp_user(struct ib_qp *qp, struct ib_udata *udata)
{
	cancel_work_sync(&fault_breaker);
	fault_retire(qp);
	return __real_ib_destroy_qp_user(qp, udata);
}

/* Other processors go on meanwhile, as far as a lock of the worker lets them. */
void __wrap_xprt_wake_pending_tasks(struct rpc_xprt *xprt, int status)
{
	uint delay = READ_ONCE(fault_wake);

	if (delay && current_work())
		mdelay(delay);
	__real_xprt_wake_pending_tasks(xprt, status);
}

int rpcrdma_fault_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad_wr)
{
	while (wr) {
		union {
			struct ib_send_wr send;
			struct ib_rdma_wr rdma;
			struct ib_reg_wr reg;
		} copy;
		int ret;

		switch (wr->opcode) {
		case IB_WR_REG_MR:
			copy.reg = *reg_wr(wr);
			break;
		case IB_WR_RDMA_READ:
		case IB_WR_RDMA_READ_WITH_INV:
		case IB_WR_RDMA_WRITE:
			copy.rdma = *rdma_wr(wr);
			break;
		default:
			copy.send = *wr;
		}
		copy.send.next = NULL;
		fault_posted(qp, &copy.send);
		fault_swallow_completion(&copy.send);
		ret = ib_post_send(qp, &copy.send, NULL);
		if (ret) {
			*bad_wr = wr;
			return ret;
		}
		fault_wait();
		fault_break_at(qp, copy.send.opcode);
		wr = READ_ONCE(wr->next);
	}
	return 0;
}

/* Events come in any context, for example in an interrupt. */
static void fault_report_event(struct ib_qp *qp)
{
	struct ib_event event = { .device = qp->device, .element.qp = qp };
	int type = xchg(&fault_event, -1);
	unsigned long flags;

	if (type < 0)
		return;
	event.event = type;
	local_irq_save(flags);
	qp->event_handler(&event, qp->qp_context);
	local_irq_restore(flags);
}

int rpcrdma_fault_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad_wr)
{
	while (wr) {
		struct ib_recv_wr copy = *wr;
		int ret;

		copy.next = NULL;
		ret = (ib_post_recv)(qp, &copy, NULL);
		if (ret) {
			*bad_wr = wr;
			return ret;
		}
		fault_wait();
		fault_break_at(qp, IB_WC_RECV);
		wr = READ_ONCE(wr->next);
	}
	fault_report_event(qp);
	return 0;
}
