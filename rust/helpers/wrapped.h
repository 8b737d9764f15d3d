/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions of the kernel whose calls by the module the linker redirects to wrappers: `--wrap` in
 * rust/Kbuild. The wrapper of FUNCTION is __wrap_FUNCTION(), and calls __real_FUNCTION().
 */
#ifndef _RPCRDMA_WRAPPED_H
#define _RPCRDMA_WRAPPED_H

#include <linux/dma-direction.h>
#include <linux/types.h>

struct bio_vec;
struct bvec_iter;
struct ib_qp;
struct rdma_rw_ctx;
struct rpc_task;
struct rpc_xprt;

int __real_rdma_rw_ctx_init_bvec(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port,
				 const struct bio_vec *bvecs, u32 nr_bvec, struct bvec_iter iter,
				 u64 remote_addr, u32 rkey, enum dma_data_direction dir);
void __real_rdma_rw_ctx_destroy_bvec(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port,
				     const struct bio_vec *bvecs, u32 nr_bvec,
				     enum dma_data_direction dir);
void __real_xprt_release_xprt_cong(struct rpc_xprt *xprt, struct rpc_task *task);

#endif /* _RPCRDMA_WRAPPED_H */
