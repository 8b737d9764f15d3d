// SPDX-License-Identifier: GPL-2.0

#include <linux/completion.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

__rust_helper void rust_helper_init_delayed_work(struct delayed_work *work,
						 work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}

__rust_helper struct page *rust_helper_virt_to_page(const void *addr)
{
	return virt_to_page(addr);
}

__rust_helper void rust_helper_reinit_completion(struct completion *done)
{
	reinit_completion(done);
}

__rust_helper unsigned int rust_helper_memalloc_nofs_save(void)
{
	return memalloc_nofs_save();
}

__rust_helper void rust_helper_memalloc_nofs_restore(unsigned int flags)
{
	memalloc_nofs_restore(flags);
}

__rust_helper void rust_helper_non_block_start(void)
{
	non_block_start();
}

__rust_helper void rust_helper_non_block_end(void)
{
	non_block_end();
}

__rust_helper struct module *rust_helper_this_module(void)
{
	return THIS_MODULE;
}

__rust_helper void rust_helper_init_work(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}

__rust_helper bool rust_helper_schedule_work(struct work_struct *work)
{
	return schedule_work(work);
}

__rust_helper bool rust_helper_mod_system_delayed_work(struct delayed_work *work,
						       unsigned long delay)
{
	return mod_delayed_work(system_power_efficient_wq, work, delay);
}

/* The kernel crate's smp_mb() takes an argument from Linux 7.3 on. */
__rust_helper void rust_helper_full_barrier(void)
{
	smp_mb();
}

__rust_helper unsigned long rust_helper_totalram_pages(void)
{
	return totalram_pages();
}

__rust_helper void *rust_helper_page_address(const struct page *page)
{
	return page_address(page);
}

__rust_helper void rust_helper_release_page_array(struct page **pages, int count)
{
	release_pages(pages, count);
}

/* Copies a piece of @page, which others may write meanwhile. */
__rust_helper void rust_helper_copy_from_page(void *to, struct page *page, size_t offset,
					      size_t len)
{
	memcpy_from_page(to, page, offset, len);
}
