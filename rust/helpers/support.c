// SPDX-License-Identifier: GPL-2.0

#include <keys/user-type.h>
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/key-type.h>
#include <linux/key.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/netdevice.h>
#include <linux/pagemap.h>
#include <linux/ratelimit.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
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
	/* The caller names the barrier that it pairs with. */
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

/*
 * Makes a keyring that root may see and change. @check is called before a key is linked. Root
 * may not link the keyring to another keyring: a possessor could update keys without a call of
 * @check.
 */
__rust_helper struct key *rust_helper_root_keyring(const char *name,
						   key_restrict_link_func_t check)
{
	struct key_restriction *restriction = kzalloc(sizeof(*restriction), GFP_KERNEL);
	struct key *ring;

	if (!restriction)
		return ERR_PTR(-ENOMEM);
	restriction->check = check;
	ring = keyring_alloc(name, GLOBAL_ROOT_UID, GLOBAL_ROOT_GID, current_cred(),
			     KEY_USR_VIEW | KEY_USR_READ | KEY_USR_SEARCH | KEY_USR_WRITE,
			     KEY_ALLOC_NOT_IN_QUOTA, restriction, NULL);
	if (IS_ERR(ring))
		kfree(restriction);
	return ring;
}

/* Retires a keyring of rust_helper_root_keyring(): its @check is not called any more. */
__rust_helper void rust_helper_retire_keyring(struct key *ring)
{
	/* Links are made with the semaphore held for writing. */
	down_write(&ring->sem);
	ring->restrict_link->check = NULL;
	up_write(&ring->sem);
	/* Removes all links, and lets no key be added. */
	key_revoke(ring);
}

/* Waits until the links are made for which the check function was called before. */
__rust_helper void rust_helper_wait_for_links(struct key *ring)
{
	down_read(&ring->sem);
	up_read(&ring->sem);
}

/*
 * Writes serial numbers of the keys in a keyring, at most @size bytes. Returns the bytes that all
 * serial numbers take.
 */
__rust_helper long rust_helper_keyring_serials(const struct key *ring, key_serial_t *serials,
					       size_t size)
{
	long all;

	rcu_read_lock();
	all = key_type_keyring.read(ring, (char *)serials, size);
	rcu_read_unlock();
	return all;
}

__rust_helper struct key *rust_helper_key_get(struct key *key)
{
	return key_get(key);
}

__rust_helper const struct key_type *rust_helper_key_type(const struct key *key)
{
	return key->type;
}

__rust_helper key_serial_t rust_helper_key_number(const struct key *key)
{
	return key->serial;
}

__rust_helper const char *rust_helper_key_description(const struct key *key)
{
	return key->description;
}

/* Whether the interface with this index has this name. */
__rust_helper bool rust_helper_interface_has_name(struct net *net, int index,
						  const char *name, size_t len)
{
	const struct net_device *interface;
	bool has_name = false;

	rcu_read_lock();
	interface = dev_get_by_index_rcu(net, index);
	if (interface && len < IFNAMSIZ)
		has_name = !strncmp(interface->name, name, len) && !interface->name[len];
	rcu_read_unlock();
	return has_name;
}

/* Whether the log has room for another message about host authentication. */
__rust_helper bool rust_helper_may_log_hostauth(void)
{
	static DEFINE_RATELIMIT_STATE(messages, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);

	return __ratelimit(&messages);
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

/* Parameters of type charp, which the macro module! does not support. */

static char *host_auth = "auto";
module_param(host_auth, charp, 0);
MODULE_PARM_DESC(host_auth, "sunrpc.rdma_host_auth to begin with: auto, none, any or addresses");

static char *svc_host_auth = "auto";
module_param(svc_host_auth, charp, 0);
MODULE_PARM_DESC(svc_host_auth,
		 "sunrpc.svc_rdma.host_auth to begin with: auto, none, any or addresses");

__rust_helper const char *rust_helper_host_auth(void)
{
	return host_auth;
}

__rust_helper const char *rust_helper_svc_host_auth(void)
{
	return svc_host_auth;
}
