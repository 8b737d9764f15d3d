/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stand-ins for hardware that the devices of the lab do not imitate, for tests only: devices that
 * map memory (`make modules BOUNCE=y`), and devices that fail on demand (`make modules FAULTS=y`).
 * No module for production contains them.
 *
 * The macros replace functions of ib_core in the files that include this header behind the headers
 * of ib_core. The linker redirects the calls from Rust to FUNCTION to __wrap_FUNCTION(), which
 * calls __real_FUNCTION() (`--wrap` in rust/Kbuild).
 */
#ifndef _RPCRDMA_STANDINS_H
#define _RPCRDMA_STANDINS_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

#ifdef RPCRDMA_BOUNCE

struct bio_vec;
struct bvec_iter;
struct rdma_rw_ctx;
struct rpc_task;
struct rpc_xprt;

void rpcrdma_bounce_restrict(struct ib_device *device);
struct ib_pd *rpcrdma_bounce_alloc_pd(struct ib_device *device, unsigned int flags);
void rpcrdma_bounce_dealloc_pd(struct ib_pd *pd);
u64 rpcrdma_bounce_map(void *memory, size_t size, enum dma_data_direction dir);
void rpcrdma_bounce_unmap(u64 addr, size_t size, enum dma_data_direction dir);
void rpcrdma_bounce_unmap_as_is(u64 addr, size_t size, enum dma_data_direction dir);
int rpcrdma_bounce_map_sg(struct scatterlist *sgl, int nents, enum dma_data_direction dir);
void rpcrdma_bounce_unmap_sg(struct scatterlist *sgl, int nents, enum dma_data_direction dir);
void rpcrdma_bounce_for_cpu(u64 addr, size_t size, enum dma_data_direction dir);
void rpcrdma_bounce_for_device(u64 addr, size_t size, enum dma_data_direction dir);

#define RPCRDMA_BOUNCES true
#undef ib_alloc_pd
#define ib_alloc_pd(dev, flags)		rpcrdma_bounce_alloc_pd(dev, flags)
#define ib_dealloc_pd(pd)		rpcrdma_bounce_dealloc_pd(pd)
#define ib_dma_map_single(dev, ptr, size, dir) \
	((void)(dev), rpcrdma_bounce_map(ptr, size, dir))
#define ib_dma_mapping_error(dev, addr)	((void)(dev), (addr) == 0)
#define ib_dma_unmap_single(dev, addr, size, dir) \
	((void)(dev), rpcrdma_bounce_unmap(addr, size, dir))
#define ib_dma_map_page(dev, page, offset, size, dir) \
	((void)(dev), rpcrdma_bounce_map(page_address(page) + (offset), size, dir))
#define ib_dma_unmap_page(dev, addr, size, dir) \
	((void)(dev), rpcrdma_bounce_unmap(addr, size, dir))
/* Short enough for the pages of each piece to be had, and for memory to have many of them. */
#define ib_dma_max_seg_size(dev)	((void)(dev), 16 << 10)
#define ib_dma_map_sg(dev, sg, nents, dir) \
	((void)(dev), rpcrdma_bounce_map_sg(sg, nents, dir))
#define ib_dma_unmap_sg(dev, sg, nents, dir) \
	((void)(dev), rpcrdma_bounce_unmap_sg(sg, nents, dir))
#define ib_dma_sync_single_for_cpu(dev, addr, size, dir) \
	((void)(dev), rpcrdma_bounce_for_cpu(addr, size, dir))
#define ib_dma_sync_single_for_device(dev, addr, size, dir) \
	((void)(dev), rpcrdma_bounce_for_device(addr, size, dir))

struct rdma_cm_id;
int __real_rdma_create_qp(struct rdma_cm_id *id, struct ib_pd *pd, struct ib_qp_init_attr *attr);
int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ib_pd *pd, struct ib_qp_init_attr *attr);
int __real_rdma_rw_ctx_init_bvec(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port,
				 const struct bio_vec *bvecs, u32 nr_bvec, struct bvec_iter iter,
				 u64 remote_addr, u32 rkey, enum dma_data_direction dir);
int __wrap_rdma_rw_ctx_init_bvec(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port,
				 const struct bio_vec *bvecs, u32 nr_bvec, struct bvec_iter iter,
				 u64 remote_addr, u32 rkey, enum dma_data_direction dir);
void __real_rdma_rw_ctx_destroy_bvec(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port,
				     const struct bio_vec *bvecs, u32 nr_bvec,
				     enum dma_data_direction dir);
void __wrap_rdma_rw_ctx_destroy_bvec(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port,
				     const struct bio_vec *bvecs, u32 nr_bvec,
				     enum dma_data_direction dir);
void __real_xprt_release_xprt_cong(struct rpc_xprt *xprt, struct rpc_task *task);
void __wrap_xprt_release_xprt_cong(struct rpc_xprt *xprt, struct rpc_task *task);

#else

#define RPCRDMA_BOUNCES false
static inline void rpcrdma_bounce_restrict(struct ib_device *device) {}
static inline void rpcrdma_bounce_unmap_as_is(u64 addr, size_t size, enum dma_data_direction dir) {}

#endif /* RPCRDMA_BOUNCE */

#ifdef RPCRDMA_FAULTS

int rpcrdma_fault_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask);
struct ib_cq *rpcrdma_fault_alloc_cq_any(struct ib_device *device, void *private, int nr_cqe,
					 enum ib_poll_context poll_ctx);
int rpcrdma_fault_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad_wr);
/* Rust calls this in place of `ib_device.ops.post_send`. */
int rpcrdma_fault_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad_wr);

struct rdma_cm_id;
struct rpc_xprt;
struct sockaddr;

int __real_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
			     const struct sockaddr *dst_addr, unsigned long timeout_ms);
int __wrap_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
			     const struct sockaddr *dst_addr, unsigned long timeout_ms);
void __real_ib_free_cq(struct ib_cq *cq);
void __wrap_ib_free_cq(struct ib_cq *cq);
void __real_rdma_destroy_qp(struct rdma_cm_id *id);
void __wrap_rdma_destroy_qp(struct rdma_cm_id *id);
int __real_ib_destroy_qp_user(struct ib_qp *qp, struct ib_udata *udata);
int __wrap_ib_destroy_qp_user(struct ib_qp *qp, struct ib_udata *udata);
int __real_ib_dereg_mr_user(struct ib_mr *mr, struct ib_udata *udata);
int __wrap_ib_dereg_mr_user(struct ib_mr *mr, struct ib_udata *udata);
void __real_ib_drain_rq(struct ib_qp *qp);
void __wrap_ib_drain_rq(struct ib_qp *qp);
void __real_ib_drain_sq(struct ib_qp *qp);
void __wrap_ib_drain_sq(struct ib_qp *qp);
void __real_xprt_wake_pending_tasks(struct rpc_xprt *xprt, int status);
void __wrap_xprt_wake_pending_tasks(struct rpc_xprt *xprt, int status);

/* A name in parentheses is the name of the replaced function. */
#define ib_modify_qp(qp, attr, mask)	rpcrdma_fault_modify_qp(qp, attr, mask)
#define ib_post_recv(qp, wr, bad_wr)	rpcrdma_fault_post_recv(qp, wr, bad_wr)
#define ib_alloc_cq_any(dev, private, nr_cqe, poll_ctx) \
	rpcrdma_fault_alloc_cq_any(dev, private, nr_cqe, poll_ctx)

#endif /* RPCRDMA_FAULTS */

#endif /* _RPCRDMA_STANDINS_H */
