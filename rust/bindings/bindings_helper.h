/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel headers that the module's bindings are generated from. */

#include <crypto/sha2.h>
#include <keys/user-type.h>
#include <linux/completion.h>
#include <linux/errno.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/jiffies.h>
#include <linux/key.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/scatterlist.h>
#include <linux/seq_file.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysctl.h>
#include <linux/workqueue.h>

#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/auth.h>
#include <linux/sunrpc/bc_xprt.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/svc.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xdr.h>
#include <linux/sunrpc/xprt.h>

#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>

#include <trace/events/rpcrdma_rs.h>

#include "../glue/glue.h"
#include "../standins/standins.h"

/* For bindgen HZ is the HZ of user space, which is defined first (include/asm-generic/param.h). */
static const unsigned long rpcrdma_hz = HZ;

/* bindgen does not evaluate flags that are made by casts of macros. */
static const gfp_t rpcrdma_gfp_noretry = GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN;
static const unsigned int rpcrdma_shrinker_numa_aware = SHRINKER_NUMA_AWARE;
