// SPDX-License-Identifier: GPL-2.0

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>

#include "../standins/standins.h"

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
	return ib_alloc_pd(device, flags);
}

__rust_helper void rust_helper_ib_dealloc_pd(struct ib_pd *pd)
{
	ib_dealloc_pd(pd);
}

__rust_helper struct ib_cq *
rust_helper_ib_alloc_cq_any(struct ib_device *device, void *private, int nr_cqe,
			    enum ib_poll_context poll_ctx)
{
	return ib_alloc_cq_any(device, private, nr_cqe, poll_ctx);
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

__rust_helper int rust_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

__rust_helper void rust_helper_ib_dma_unmap_sg(struct ib_device *dev,
					       struct scatterlist *sg, int nents,
					       enum dma_data_direction dir)
{
	ib_dma_unmap_sg(dev, sg, nents, dir);
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
