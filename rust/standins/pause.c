// SPDX-License-Identifier: GPL-2.0
/*
 * Pauses of `make modules BOUNCE=y`, where two events may happen within microseconds: a test can
 * decide which event is first.
 *
 * For tests only: no module for production contains it.
 */

#include <linux/delay.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/xprt.h>

#include "standins.h"

/*
 * xprt_release() takes the request off the receive queue, takes the transport lock, and calls this.
 * Two seconds pass here between the two if a signal has ended the task: in that time its Reply
 * finds no request, and the request still has its credit.
 */
void __wrap_xprt_release_xprt_cong(struct rpc_xprt *xprt, struct rpc_task *task)
{
	__real_xprt_release_xprt_cong(xprt, task);
	if (!task || !task->tk_rqstp || READ_ONCE(task->tk_rpc_status) != -ERESTARTSYS ||
	    test_bit(RPC_TASK_NEED_RECV, &task->tk_runstate))
		return;
	spin_unlock(&xprt->transport_lock);
	msleep(2000);
	spin_lock(&xprt->transport_lock);
}
