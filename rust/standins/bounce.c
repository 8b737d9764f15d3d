// SPDX-License-Identifier: GPL-2.0
/*
 * DMA mappings of `make modules BOUNCE=y`: the device works on a copy of the memory, as with
 * swiotlb. Software RDMA devices map nothing, so with them a wrong direction, a missing sync or a
 * missing unmapping has no effect. Here these mistakes spoil data or warn. Memory that an IOMMU
 * cannot map to one range of addresses is refused, as the kernel refuses it.
 *
 * For tests only: it is slow, and no module for production contains it.
 */

#include <linux/bug.h>
#include <linux/bvec.h>
#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/moduleparam.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/swiotlb.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>

#include "standins.h"

/* The place of a copy within its pages. */
enum {
	/* The offset of the memory within its page. */
	BOUNCE_KEEPS,
	/*
	 * The offset that swiotlb chooses for a device without dma_set_min_align_mask(): a slot
	 * boundary for less than a page, the start of a page for more.
	 */
	BOUNCE_MOVES,
	/* Never the start of a page: two pieces are never one range of addresses. */
	BOUNCE_PARTS,
};

static unsigned int bounce_copies = BOUNCE_KEEPS;
module_param_named(copies, bounce_copies, uint, 0644);

/* Limits below the limits of the device; 0 keeps the limit of the device. */
static unsigned int limit_sges, limit_work_requests, limit_registration_pages;
module_param_named(sges, limit_sges, uint, 0644);
module_param_named(work_requests, limit_work_requests, uint, 0644);
module_param_named(registration_pages, limit_registration_pages, uint, 0644);

/* The number of pieces above which the device prefers registrations; 0 keeps its number. */
static unsigned int prefer_registrations;
module_param_named(prefer_registrations, prefer_registrations, uint, 0644);

/* Page sizes that the device registers; 0 keeps the page sizes of the device. */
static unsigned int limit_page_sizes;
module_param_named(page_sizes, limit_page_sizes, uint, 0644);

/* Lowers the attributes of a device, for this module and for ib_core. */
void rpcrdma_bounce_restrict(struct ib_device *device)
{
	struct ib_device_attr *attrs = &device->attrs;

	if (limit_sges) {
		attrs->max_send_sge = min_t(int, attrs->max_send_sge, limit_sges);
		attrs->max_sge_rd = min_t(int, attrs->max_sge_rd, limit_sges);
	}
	if (limit_work_requests)
		attrs->max_qp_wr = min_t(int, attrs->max_qp_wr, limit_work_requests);
	if (limit_registration_pages)
		attrs->max_fast_reg_page_list_len =
			min(attrs->max_fast_reg_page_list_len, limit_registration_pages);
	if (limit_page_sizes)
		attrs->page_size_cap &= limit_page_sizes;
	if (prefer_registrations)
		attrs->max_sgl_rd = prefer_registrations;
}

/* One mapped piece of memory. */
struct bounce {
	void *memory;
	void *copy;
	size_t size;
	enum dma_data_direction dir;
};

/* The mappings, by the address that the device has. */
static DEFINE_XARRAY(bounces);
/* Protection domains. With the last one, all mappings must have gone. */
static atomic_t bounce_domains;

/* The offset of the copy within its first page. */
static size_t bounce_offset(const void *memory, size_t size)
{
	switch (READ_ONCE(bounce_copies)) {
	case BOUNCE_KEEPS:
		return offset_in_page(memory);
	case BOUNCE_MOVES:
		return size < PAGE_SIZE ? IO_TLB_SIZE : 0;
	default:
		return IO_TLB_SIZE;
	}
}

/* The length of the pages that have the copy. */
static size_t bounce_pages(const struct bounce *b)
{
	return PAGE_ALIGN(offset_in_page(b->copy) + b->size);
}

/* Returns the address for the device, or 0. */
static u64 bounce_map(void *memory, size_t size, enum dma_data_direction dir, gfp_t gfp)
{
	struct bounce *b = kmalloc_obj(*b, gfp | __GFP_NOWARN);
	size_t offset = bounce_offset(memory, size);
	void *pages;

	if (!b)
		return 0;
	*b = (struct bounce){ .memory = memory, .size = size, .dir = dir };
	pages = alloc_pages_exact(PAGE_ALIGN(offset + size), gfp | __GFP_NOWARN);
	if (!pages)
		goto no_pages;
	b->copy = pages + offset;
	/* In both directions, because a device may leave a part of the memory unwritten. */
	memcpy(b->copy, memory, size);
	if (xa_err(xa_store(&bounces, (unsigned long)b->copy, b, gfp | __GFP_NOWARN)))
		goto no_entry;
	return (unsigned long)b->copy;

no_entry:
	free_pages_exact(pages, bounce_pages(b));
no_pages:
	kfree(b);
	return 0;
}

/* The mapping at an address, if it is one that @size and @dir fit. */
static struct bounce *bounce_at(u64 addr, size_t size, enum dma_data_direction dir)
{
	struct bounce *b = xa_load(&bounces, addr);

	if (WARN(!b || size > b->size || dir != b->dir, "rpcrdma: no such DMA mapping\n"))
		return NULL;
	return b;
}

static void bounce_back(struct bounce *b, size_t size)
{
	if (b->dir == DMA_FROM_DEVICE)
		memcpy(b->memory, b->copy, size);
}

static void bounce_end(u64 addr, size_t size, enum dma_data_direction dir, bool as_is)
{
	struct bounce *b = bounce_at(addr, size, dir);

	if (!b)
		return;
	WARN(size != b->size, "rpcrdma: a part of a DMA mapping is unmapped\n");
	xa_erase(&bounces, addr);
	if (!as_is)
		bounce_back(b, b->size);
	/* A device that goes on with it must not find anything right there. */
	memset(b->copy, 0x5a, b->size);
	free_pages_exact(b->copy - offset_in_page(b->copy), bounce_pages(b));
	kfree(b);
}

static uint buffer_errors;
module_param(buffer_errors, uint, 0644);
MODULE_PARM_DESC(buffer_errors, "The next mappings of buffers and pages that find no room");

u64 rpcrdma_bounce_map(void *memory, size_t size, enum dma_data_direction dir)
{
	uint errors = READ_ONCE(buffer_errors);

	if (errors && try_cmpxchg(&buffer_errors, &errors, errors - 1))
		return 0;
	return bounce_map(memory, size, dir, GFP_ATOMIC);
}

void rpcrdma_bounce_unmap(u64 addr, size_t size, enum dma_data_direction dir)
{
	bounce_end(addr, size, dir, false);
}

/* Unmaps memory that is in use, and leaves it as it is. */
void rpcrdma_bounce_unmap_as_is(u64 addr, size_t size, enum dma_data_direction dir)
{
	bounce_end(addr, size, dir, true);
}

struct ib_pd *rpcrdma_bounce_alloc_pd(struct ib_device *device, unsigned int flags)
{
	struct ib_pd *pd = __ib_alloc_pd(device, flags, KBUILD_MODNAME);

	if (!IS_ERR(pd))
		atomic_inc(&bounce_domains);
	return pd;
}

void rpcrdma_bounce_dealloc_pd(struct ib_pd *pd)
{
	(ib_dealloc_pd)(pd);
	WARN(atomic_dec_and_test(&bounce_domains) && !xa_empty(&bounces),
	     "rpcrdma: memory is mapped for DMA still\n");
}

int rpcrdma_bounce_map_sg(struct scatterlist *sgl, int nents, enum dma_data_direction dir)
{
	struct scatterlist *sg, *undo;
	int i, j;

	for_each_sg(sgl, sg, nents, i) {
		u64 addr = bounce_map(sg_virt(sg), sg->length, dir, GFP_ATOMIC);

		if (!addr) {
			for_each_sg(sgl, undo, i, j)
				rpcrdma_bounce_unmap(sg_dma_address(undo), sg_dma_len(undo), dir);
			return 0;
		}
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = sg->length;
	}
	return nents;
}

void rpcrdma_bounce_unmap_sg(struct scatterlist *sgl, int nents, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i)
		rpcrdma_bounce_unmap(sg_dma_address(sg), sg_dma_len(sg), dir);
}

void rpcrdma_bounce_for_cpu(u64 addr, size_t size, enum dma_data_direction dir)
{
	struct bounce *b = bounce_at(addr, size, dir);

	if (b)
		bounce_back(b, size);
}

void rpcrdma_bounce_for_device(u64 addr, size_t size, enum dma_data_direction dir)
{
	struct bounce *b = bounce_at(addr, size, dir);

	if (b && b->dir == DMA_TO_DEVICE)
		memcpy(b->copy, b->memory, size);
}

/* The copies of a context. */
struct bounce_rw {
	enum dma_data_direction dir;
	u32 count;
	struct bio_vec copies[] __counted_by(count);
};

/* The copies of each context, by its address. */
static DEFINE_XARRAY(bounce_rws);

/*
 * Fails as rdma_rw_init_iova_wrs_bvec() does behind an IOMMU, where it links one piece behind the
 * other into one range of addresses (dma_iova_link() in drivers/iommu/dma-iommu.c).
 */
static int bounce_link(const struct bio_vec *bvecs, u32 nr_bvec)
{
	size_t at = offset_in_page(bvecs[0].bv_offset);
	u32 i;

	for (i = 0; i < nr_bvec; i++) {
		if (WARN_ON_ONCE(i && offset_in_page(bvecs[i].bv_offset)))
			return -EIO;
		/* The IOMMU's driver maps whole pages. */
		if (i && offset_in_page(at))
			return -EINVAL;
		at += bvecs[i].bv_len;
	}
	return 0;
}

static void bounce_rw_free(struct bounce_rw *rw)
{
	u32 i;

	for (i = 0; i < rw->count; i++)
		rpcrdma_bounce_unmap((unsigned long)bvec_virt(&rw->copies[i]), rw->copies[i].bv_len,
			     rw->dir);
	kfree(rw);
}

/* The longest send queue in bytes, with the entries of mlx5; 0 is any length. */
static unsigned int limit_queue_bytes;
module_param_named(queue_bytes, limit_queue_bytes, uint, 0644);

int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ib_pd *pd, struct ib_qp_init_attr *attr)
{
	u64 entry = ALIGN(132 + 16 * attr->cap.max_send_sge, 64);

	if (limit_queue_bytes && roundup_pow_of_two(attr->cap.max_send_wr) * entry > limit_queue_bytes)
		return -ENOMEM;
	return __real_rdma_create_qp(id, pd, attr);
}

static uint mapping_errors;
module_param(mapping_errors, uint, 0644);
MODULE_PARM_DESC(mapping_errors, "The next rdma_rw contexts whose memory does not fit the bounce buffers");

/* Fails as dma_direct_map_sg() does when swiotlb is full. */
static int bounce_is_full(void)
{
	uint errors = READ_ONCE(mapping_errors);

	return errors && try_cmpxchg(&mapping_errors, &errors, errors - 1) ? -EIO : 0;
}

int __wrap_rdma_rw_ctx_init_bvec(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port,
				 const struct bio_vec *bvecs, u32 nr_bvec, struct bvec_iter iter,
				 u64 remote_addr, u32 rkey, enum dma_data_direction dir)
{
	struct bounce_rw *rw;
	int ret = bounce_link(bvecs, nr_bvec) ?: bounce_is_full();
	u32 i;

	if (ret)
		return ret;
	rw = kzalloc(struct_size(rw, copies, nr_bvec), GFP_KERNEL);
	if (!rw)
		return -ENOMEM;
	rw->dir = dir;
	for (i = 0; i < nr_bvec; i++) {
		u64 copy = bounce_map(bvec_virt(&bvecs[i]), bvecs[i].bv_len, dir, GFP_KERNEL);

		ret = -ENOMEM;
		if (!copy)
			goto out;
		rw->count++;
		bvec_set_virt(&rw->copies[i], (void *)(unsigned long)copy, bvecs[i].bv_len);
	}
	ret = xa_insert(&bounce_rws, (unsigned long)ctx, rw, GFP_KERNEL);
	if (WARN_ON_ONCE(ret))
		goto out;
	ret = __real_rdma_rw_ctx_init_bvec(ctx, qp, port, rw->copies, nr_bvec, iter, remote_addr,
					   rkey, dir);
	if (ret >= 0)
		return ret;
	xa_erase(&bounce_rws, (unsigned long)ctx);
out:
	bounce_rw_free(rw);
	return ret;
}

void __wrap_rdma_rw_ctx_destroy_bvec(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port,
				     const struct bio_vec *bvecs, u32 nr_bvec,
				     enum dma_data_direction dir)
{
	struct bounce_rw *rw = xa_erase(&bounce_rws, (unsigned long)ctx);

	if (WARN(!rw || nr_bvec != rw->count || dir != rw->dir,
		 "rpcrdma: no such rdma_rw context\n"))
		return;
	__real_rdma_rw_ctx_destroy_bvec(ctx, qp, port, bvecs, nr_bvec, dir);
	bounce_rw_free(rw);
}
