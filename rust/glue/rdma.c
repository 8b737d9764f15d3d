// SPDX-License-Identifier: GPL-2.0
/*
 * Functions over the objects of ib_core.
 */

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>

#include "../standins/standins.h"
#include "glue.h"

/* Returns the attributes of @device. */
const struct ib_device_attr *rpcrdma_device_attrs(struct ib_device *device)
{
	rpcrdma_bounce_restrict(device);
	return &device->attrs;
}

/* ib_dma_unmap_single() for memory that is in use: leaves it as it is. */
void rpcrdma_dma_unmap_single_as_is(struct ib_device *dev, u64 addr, size_t size,
				    enum dma_data_direction dir)
{
	if (!ib_uses_virt_dma(dev))
		dma_unmap_single_attrs(dev->dma_device, addr, size, dir,
				       DMA_ATTR_SKIP_CPU_SYNC);
	else
		rpcrdma_bounce_unmap_as_is(addr, size, dir);
}

/* ib_dma_map_sg() for a list whose entries may have named other memory before. */
int rpcrdma_dma_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
		       enum dma_data_direction dir)
{
#ifdef CONFIG_NEED_SG_DMA_FLAGS
	/* SG_DMA_SWIOTLB stays when such a list is unmapped (iommu_dma_map_sg_swiotlb). */
	sg->dma_flags = 0;
#endif
	return ib_dma_map_sg(dev, sg, nents, dir);
}

/* ib_dma_map_sg() for a single entry, which is not walked as a list. */
int rpcrdma_dma_map_sg_one(struct ib_device *dev, struct scatterlist *sg,
			   enum dma_data_direction dir)
{
	u64 addr = ib_dma_map_page(dev, sg_page(sg), sg->offset, sg->length, dir);

	if (unlikely(ib_dma_mapping_error(dev, addr)))
		return 0;
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = sg->length;
	return 1;
}

/* Unmaps an entry that rpcrdma_dma_map_sg_one() has mapped. */
void rpcrdma_dma_unmap_sg_one(struct ib_device *dev, struct scatterlist *sg,
			      enum dma_data_direction dir)
{
	ib_dma_unmap_page(dev, sg_dma_address(sg), sg_dma_len(sg), dir);
}

/* Returns whether mapped memory needs ib_dma_sync_single_*() between uses of processor and device. */
bool rpcrdma_dma_need_sync(struct ib_device *dev, u64 addr)
{
	return RPCRDMA_BOUNCES || (!ib_uses_virt_dma(dev) && dma_need_sync(dev->dma_device, addr));
}

/* Moves @qp to the error state: the device flushes all work requests. */
int rpcrdma_qp_fail(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return ib_modify_qp(qp, &attr, IB_QP_STATE);
}

/* Moves @qp to @state with the attributes that the connection manager knows for @id. */
static int rpcrdma_qp_move(struct rdma_cm_id *id, struct ib_qp *qp, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };
	int mask = 0;
	int ret;

	ret = rdma_init_qp_attr(id, &attr, &mask);
	if (ret)
		return ret;
	return ib_modify_qp(qp, &attr, mask);
}

/*
 * rdma_create_qp() for a queue pair that does not become the queue pair of @id: rdma_cm never changes its
 * state. Returns an ERR_PTR on failure.
 */
struct ib_qp *rpcrdma_qp_create(struct rdma_cm_id *id, struct ib_pd *pd,
				struct ib_qp_init_attr *init)
{
	struct ib_qp *qp;
	int ret;

	init->port_num = id->port_num;
	qp = ib_create_qp(pd, init);
	if (IS_ERR(qp))
		return qp;
	ret = rpcrdma_qp_move(id, qp, IB_QPS_INIT);
	if (ret) {
		ib_destroy_qp(qp);
		return ERR_PTR(ret);
	}
	return qp;
}

/*
 * Connects @qp, for which the peer of @id has accepted the connection: @qp receives and sends from then
 * on. rdma_cm does the same for the queue pair of an id (cma_rep_recv), in a work of ib_cm. The message
 * that ends the exchange (RTU) is sent by rdma_accept().
 */
int rpcrdma_qp_connect(struct rdma_cm_id *id, struct ib_qp *qp)
{
	int ret;

	ret = rpcrdma_qp_move(id, qp, IB_QPS_INIT);
	if (!ret)
		ret = rpcrdma_qp_move(id, qp, IB_QPS_RTR);
	if (!ret)
		ret = rpcrdma_qp_move(id, qp, IB_QPS_RTS);
	return ret;
}

/*
 * Waits for the completion of @cq that is being handled. No later completion of the device is
 * handled.
 */
void rpcrdma_cq_stop(struct ib_cq *cq)
{
	disable_work_sync(&cq->work);
}

/* The type of a context with registrations: RDMA_RW_MR of drivers/infiniband/core/rw.c. */
#define RW_CTX_MR 2

/*
 * Does the first half of rdma_rw_ctx_destroy_bvec() for a context whose work requests may not have
 * ended: gives the registrations back to @qp, whose destruction takes them from the device.
 */
void rpcrdma_rw_ctx_withdraw(struct rdma_rw_ctx *ctx, struct ib_qp *qp)
{
	u32 i;

	if (ctx->type != RW_CTX_MR)
		return;
	for (i = 0; i < ctx->nr_ops; i++)
		ib_mr_pool_put(qp, &qp->rdma_mrs, ctx->reg[i].mr);
	ctx->nr_ops = 0;
}

/*
 * Does the second half of rdma_rw_ctx_destroy_bvec() after the destruction of the queue pair: unmaps
 * the memory. Without registrations, rdma_rw_ctx_destroy_bvec() reads only the domain of a queue pair.
 */
void rpcrdma_rw_ctx_unmap(struct rdma_rw_ctx *ctx, struct ib_pd *pd, u32 nr_bvec,
			  enum dma_data_direction dir)
{
	struct ib_qp gone = { .pd = pd };

	rdma_rw_ctx_destroy_bvec(ctx, &gone, 0, NULL, nr_bvec, dir);
}

/*
 * Returns the number of work requests for an RDMA Write of one page, or an error number. The DMA API
 * reports a page of the kernel's constants, which ZERO_PAGE() is.
 */
int rpcrdma_rw_work_requests_of_a_page(struct ib_qp *qp)
{
	struct bvec_iter iter = { .bi_size = PAGE_SIZE };
	struct page *mapped = alloc_page(GFP_KERNEL);
	struct rdma_rw_ctx ctx = { };
	struct bio_vec page;
	int count;

	if (!mapped)
		return -ENOMEM;
	bvec_set_page(&page, mapped, PAGE_SIZE, 0);
	count = rdma_rw_ctx_init_bvec(&ctx, qp, qp->port, &page, 1, iter, 0, 0, DMA_TO_DEVICE);
	if (count > 0)
		rdma_rw_ctx_destroy_bvec(&ctx, qp, qp->port, &page, 1, DMA_TO_DEVICE);
	__free_page(mapped);
	return count;
}
