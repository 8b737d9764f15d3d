// SPDX-License-Identifier: GPL-2.0

#include <keys/user-type.h>
#include <linux/completion.h>
#include <linux/highmem.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/key.h>
#include <linux/mm.h>
#include <linux/module.h>
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

__rust_helper unsigned int rust_helper_memalloc_noreclaim_save(void)
{
	return memalloc_noreclaim_save();
}

__rust_helper void rust_helper_memalloc_noreclaim_restore(unsigned int flags)
{
	memalloc_noreclaim_restore(flags);
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

__rust_helper bool rust_helper_queue_work(struct workqueue_struct *queue,
					  struct work_struct *work)
{
	return queue_work(queue, work);
}

__rust_helper bool rust_helper_mod_delayed_work(struct workqueue_struct *queue,
						struct delayed_work *work, unsigned long delay)
{
	return mod_delayed_work(queue, work, delay);
}

__rust_helper unsigned long rust_helper_totalram_pages(void)
{
	return totalram_pages();
}

__rust_helper void *rust_helper_page_address(const struct page *page)
{
	return page_address(page);
}

__rust_helper void rust_helper_memcpy_from_page(char *to, struct page *page, size_t offset,
						size_t len)
{
	memcpy_from_page(to, page, offset, len);
}

__rust_helper struct key *rust_helper_key_get(struct key *key)
{
	return key_get(key);
}

__rust_helper const struct user_key_payload *
rust_helper_user_key_payload_rcu(const struct key *key)
{
	return user_key_payload_rcu(key);
}
