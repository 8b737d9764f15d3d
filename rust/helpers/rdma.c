// SPDX-License-Identifier: GPL-2.0

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>

#ifdef RPCRDMA_BOUNCE
#include "bounce.c"
#else
#define BOUNCES false
static void bounce_unmap_as_is(u64 addr, size_t size, enum dma_data_direction dir) {}
static void bounce_domain_made(void) {}
static void bounce_domain_gone(void) {}
static void bounce_restrict(struct ib_device *device) {}
#endif

#ifdef RPCRDMA_FAULTS
#include "faults.c"
#endif

__rust_helper struct rdma_cm_id *
rust_helper_rdma_create_id(struct net *net, rdma_cm_event_handler handler,
			   void *context, enum rdma_ucm_port_space ps,
			   enum ib_qp_type qp_type)
{
	return rdma_create_id(net, handler, context, ps, qp_type);
}

__rust_helper struct ib_pd *rust_helper_ib_alloc_pd(struct ib_device *device,
						    unsigned int flags)
{
	struct ib_pd *pd = ib_alloc_pd(device, flags);

	if (!IS_ERR(pd))
		bounce_domain_made();
	return pd;
}

__rust_helper void rust_helper_ib_dealloc_pd(struct ib_pd *pd)
{
	ib_dealloc_pd(pd);
	bounce_domain_gone();
}

__rust_helper struct ib_cq *
rust_helper_ib_alloc_cq_any(struct ib_device *device, void *private, int nr_cqe,
			    enum ib_poll_context poll_ctx)
{
	return ib_alloc_cq_any(device, private, nr_cqe, poll_ctx);
}

/* Returns the attributes of @device. */
__rust_helper const struct ib_device_attr *
rust_helper_ib_device_attrs(struct ib_device *device)
{
	bounce_restrict(device);
	return &device->attrs;
}

__rust_helper int rust_helper_ib_post_recv(struct ib_qp *qp,
					   const struct ib_recv_wr *wr,
					   const struct ib_recv_wr **bad_wr)
{
	return ib_post_recv(qp, wr, bad_wr);
}

__rust_helper int rust_helper_ib_dereg_mr(struct ib_mr *mr)
{
	return ib_dereg_mr(mr);
}

__rust_helper bool rust_helper_rdma_protocol_iwarp(const struct ib_device *device,
						   u32 port_num)
{
	return rdma_protocol_iwarp(device, port_num);
}

__rust_helper unsigned int rust_helper_ib_dma_max_seg_size(struct ib_device *dev)
{
	return ib_dma_max_seg_size(dev);
}

__rust_helper int rust_helper_ibdev_to_node(struct ib_device *dev)
{
	return ibdev_to_node(dev);
}

__rust_helper u64 rust_helper_ib_dma_map_single(struct ib_device *dev, void *ptr,
						size_t size,
						enum dma_data_direction dir)
{
	return ib_dma_map_single(dev, ptr, size, dir);
}

__rust_helper void rust_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr,
						   size_t size,
						   enum dma_data_direction dir)
{
	ib_dma_unmap_single(dev, addr, size, dir);
}

/* As above, but leaves the memory as it is now, because it is in use. */
__rust_helper void
rust_helper_ib_dma_unmap_single_as_is(struct ib_device *dev, u64 addr, size_t size,
				      enum dma_data_direction dir)
{
	if (!ib_uses_virt_dma(dev))
		dma_unmap_single_attrs(dev->dma_device, addr, size, dir,
				       DMA_ATTR_SKIP_CPU_SYNC);
	else
		bounce_unmap_as_is(addr, size, dir);
}

__rust_helper int rust_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

__rust_helper int rust_helper_ib_dma_map_sg(struct ib_device *dev,
					    struct scatterlist *sg, int nents,
					    enum dma_data_direction dir)
{
	return ib_dma_map_sg(dev, sg, nents, dir);
}

__rust_helper void rust_helper_ib_dma_unmap_sg(struct ib_device *dev,
					       struct scatterlist *sg, int nents,
					       enum dma_data_direction dir)
{
	ib_dma_unmap_sg(dev, sg, nents, dir);
}

/* ib_dma_map_sg() for a single entry, which is not walked as a list. */
__rust_helper int rust_helper_ib_dma_map_sg_one(struct ib_device *dev,
						struct scatterlist *sg,
						enum dma_data_direction dir)
{
	u64 addr = ib_dma_map_page(dev, sg_page(sg), sg->offset, sg->length, dir);

	if (unlikely(ib_dma_mapping_error(dev, addr)))
		return 0;
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = sg->length;
	return 1;
}

__rust_helper void rust_helper_ib_dma_unmap_sg_one(struct ib_device *dev,
						   struct scatterlist *sg,
						   enum dma_data_direction dir)
{
	ib_dma_unmap_page(dev, sg_dma_address(sg), sg_dma_len(sg), dir);
}

__rust_helper void
rust_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr, size_t size,
				       enum dma_data_direction dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

__rust_helper void
rust_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr, size_t size,
					  enum dma_data_direction dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

/* Whether processor and device have to be told whose turn it is with memory that is mapped. */
__rust_helper bool rust_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr)
{
	return BOUNCES || (!ib_uses_virt_dma(dev) && dma_need_sync(dev->dma_device, addr));
}

/* Has the device end the work of @qp and give back all work requests, which it does not execute. */
__rust_helper int rust_helper_ib_qp_fail(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return ib_modify_qp(qp, &attr, IB_QP_STATE);
}

/*
 * Waits for the completion of @cq that is being handled. No later completion of the device is
 * handled.
 */
__rust_helper void rust_helper_ib_cq_stop(struct ib_cq *cq)
{
	disable_work_sync(&cq->work);
}

/* The type of a context with registrations: RDMA_RW_MR of drivers/infiniband/core/rw.c. */
#define RW_CTX_MR 2

/*
 * The first half of rdma_rw_ctx_destroy_bvec() for a context whose work requests may not have
 * ended: gives the registrations back to @qp, whose destruction takes them from the device.
 */
__rust_helper void rust_helper_rdma_rw_ctx_withdraw(struct rdma_rw_ctx *ctx, struct ib_qp *qp)
{
	u32 i;

	if (ctx->type != RW_CTX_MR)
		return;
	for (i = 0; i < ctx->nr_ops; i++)
		ib_mr_pool_put(qp, &qp->rdma_mrs, ctx->reg[i].mr);
	ctx->nr_ops = 0;
}

/*
 * The second half, when the queue pair has been destroyed: unmaps the memory. Without
 * registrations, rdma_rw_ctx_destroy_bvec() looks at nothing of a queue pair but its domain.
 */
__rust_helper void rust_helper_rdma_rw_ctx_unmap(struct rdma_rw_ctx *ctx, struct ib_pd *pd,
						 u32 nr_bvec, enum dma_data_direction dir)
{
	struct ib_qp gone = { .pd = pd };

	rdma_rw_ctx_destroy_bvec(ctx, &gone, 0, NULL, nr_bvec, dir);
}

/* Returns the number of work requests for an RDMA Write of one page, or an error number. */
__rust_helper int rust_helper_rdma_rw_work_requests_of_a_page(struct ib_qp *qp)
{
	struct bvec_iter iter = { .bi_size = PAGE_SIZE };
	struct rdma_rw_ctx ctx = { };
	struct bio_vec page;
	int count;

	bvec_set_page(&page, ZERO_PAGE(0), PAGE_SIZE, 0);
	count = rdma_rw_ctx_init_bvec(&ctx, qp, qp->port, &page, 1, iter, 0, 0, DMA_TO_DEVICE);
	if (count > 0)
		rdma_rw_ctx_destroy_bvec(&ctx, qp, qp->port, &page, 1, DMA_TO_DEVICE);
	return count;
}
