// SPDX-License-Identifier: GPL-2.0
/*
 * What `make modules BOUNCE=y` has in place of mapping memory for DMA: the device works on a copy,
 * as with swiotlb. RDMA devices that are software map nothing, so with them a wrong direction, and
 * a sync or an unmapping that is missing, would never show. Here they spoil data or warn.
 *
 * Nothing here is fast, and it is no part of a module that anybody uses.
 */

#include <linux/bug.h>
#include <linux/gfp.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/xarray.h>

/* One mapped piece of memory. */
struct bounce {
	void *memory;
	void *copy;
	size_t size;
	enum dma_data_direction dir;
};

/* What is mapped, by the address that the device has. */
static DEFINE_XARRAY(bounces);
/* Protection domains. With the last one, all mappings must have gone. */
static atomic_t bounce_domains;

/* The start and the length of the pages that the copy needs: it lies in them as the memory does. */
static size_t bounce_pages(struct bounce *b)
{
	return PAGE_ALIGN(offset_in_page(b->memory) + b->size);
}

/* Returns the address for the device, or 0. */
static u64 bounce_map(void *memory, size_t size, enum dma_data_direction dir)
{
	struct bounce *b = kmalloc_obj(*b, GFP_ATOMIC | __GFP_NOWARN);
	void *pages;

	if (!b)
		return 0;
	*b = (struct bounce){ .memory = memory, .size = size, .dir = dir };
	pages = alloc_pages_exact(bounce_pages(b), GFP_ATOMIC | __GFP_NOWARN);
	if (!pages)
		goto no_pages;
	b->copy = pages + offset_in_page(memory);
	/* In both directions: of what a device may write it need not write everything. */
	memcpy(b->copy, memory, size);
	if (xa_err(xa_store(&bounces, (unsigned long)b->copy, b, GFP_ATOMIC | __GFP_NOWARN)))
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

static void bounce_unmap(u64 addr, size_t size, enum dma_data_direction dir)
{
	bounce_end(addr, size, dir, false);
}

static void bounce_unmap_as_is(u64 addr, size_t size, enum dma_data_direction dir)
{
	bounce_end(addr, size, dir, true);
}

static void bounce_domain_made(void)
{
	atomic_inc(&bounce_domains);
}

static void bounce_domain_gone(void)
{
	WARN(atomic_dec_and_test(&bounce_domains) && !xa_empty(&bounces),
	     "rpcrdma: memory is mapped for DMA still\n");
}

/* The rest has the names that the helpers use. */

#define BOUNCES true
#define ib_dma_map_single(dev, ptr, size, dir)		bounce_map(ptr, size, dir)
#define ib_dma_mapping_error(dev, addr)			((addr) == 0)
#define ib_dma_unmap_single(dev, addr, size, dir)	bounce_unmap(addr, size, dir)
/* Short enough for the pages of each piece to be had, and for memory to have many of them. */
#define ib_dma_max_seg_size(dev)			(16 << 10)

static int bounce_map_sg(struct scatterlist *sgl, int nents, enum dma_data_direction dir)
{
	struct scatterlist *sg, *undo;
	int i, j;

	for_each_sg(sgl, sg, nents, i) {
		u64 addr = bounce_map(sg_virt(sg), sg->length, dir);

		if (!addr) {
			for_each_sg(sgl, undo, i, j)
				bounce_unmap(sg_dma_address(undo), sg_dma_len(undo), dir);
			return 0;
		}
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = sg->length;
	}
	return nents;
}

static void bounce_unmap_sg(struct scatterlist *sgl, int nents, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i)
		bounce_unmap(sg_dma_address(sg), sg_dma_len(sg), dir);
}

#define ib_dma_map_sg(dev, sg, nents, dir)		bounce_map_sg(sg, nents, dir)
#define ib_dma_unmap_sg(dev, sg, nents, dir)		bounce_unmap_sg(sg, nents, dir)

static void bounce_for_cpu(u64 addr, size_t size, enum dma_data_direction dir)
{
	struct bounce *b = bounce_at(addr, size, dir);

	if (b)
		bounce_back(b, size);
}

static void bounce_for_device(u64 addr, size_t size, enum dma_data_direction dir)
{
	struct bounce *b = bounce_at(addr, size, dir);

	if (b && b->dir == DMA_TO_DEVICE)
		memcpy(b->copy, b->memory, size);
}

#define ib_dma_sync_single_for_cpu(dev, addr, size, dir)	bounce_for_cpu(addr, size, dir)
#define ib_dma_sync_single_for_device(dev, addr, size, dir)	bounce_for_device(addr, size, dir)
