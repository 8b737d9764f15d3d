// SPDX-License-Identifier: GPL-2.0

#include <keys/user-type.h>
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/key.h>
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

/* A queue for work that may take long, and that memory reclaim may wait for. */
__rust_helper struct workqueue_struct *rust_helper_alloc_long_queue(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND | WQ_MEM_RECLAIM, 0, name);
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

/* A keyring that root may see and change. */
__rust_helper struct key *rust_helper_root_keyring(const char *name)
{
	return keyring_alloc(name, GLOBAL_ROOT_UID, GLOBAL_ROOT_GID, current_cred(),
			     (KEY_POS_ALL & ~KEY_POS_SETATTR) | (KEY_USR_ALL & ~KEY_USR_SETATTR),
			     KEY_ALLOC_NOT_IN_QUOTA, NULL, NULL);
}

/* Returns a reference to a key in @keyring, which whoever asks possesses, or an error. */
__rust_helper struct key *rust_helper_keyring_find(struct key *keyring, struct key_type *type,
						   const char *name)
{
	key_ref_t found = keyring_search(make_key_ref(keyring, true), type, name, true);

	return IS_ERR(found) ? ERR_CAST(found) : key_ref_to_ptr(found);
}

__rust_helper const struct user_key_payload *
rust_helper_user_key_payload_rcu(const struct key *key)
{
	return user_key_payload_rcu(key);
}

__rust_helper u64 rust_helper_get_jiffies_64(void)
{
	return get_jiffies_64();
}
