// SPDX-License-Identifier: GPL-2.0
/*
 * Functions over keys, pages, work queues and net devices, and parameters of the module.
 */

#include <linux/cred.h>
#include <linux/key-type.h>
#include <linux/key.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/netdevice.h>
#include <linux/pagemap.h>
#include <linux/ratelimit.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "glue.h"
#include "version.h"

/* Makes a queue for work that may take long, and that memory reclaim may wait for. */
struct workqueue_struct *rpcrdma_alloc_long_queue(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND | WQ_MEM_RECLAIM, 0, name);
}

/* The kernel crate's smp_mb() takes an argument from Linux 7.3 on. */
void rpcrdma_full_barrier(void)
{
	/* The caller names the barrier that it pairs with. */
	smp_mb();
}

/* Returns the number of NUMA nodes that there may be. */
unsigned int rpcrdma_node_count(void)
{
	return nr_node_ids;
}

/* Returns the NUMA node of the processor that runs this. */
int rpcrdma_this_node(void)
{
	return numa_node_id();
}

/* Releases a reference to each of @count pages. */
void rpcrdma_release_page_array(struct page **pages, int count)
{
	release_pages(pages, count);
}

/*
 * Makes a keyring that root may see and change. @check is called before a key is linked. Root
 * may not link the keyring to another keyring: a possessor could update keys without a call of
 * @check.
 */
struct key *rpcrdma_root_keyring(const char *name, key_restrict_link_func_t check)
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

/* Retires a keyring of rpcrdma_root_keyring(): its @check is not called any more. */
void rpcrdma_retire_keyring(struct key *ring)
{
	/* Links are made with the semaphore held for writing. */
	down_write(&ring->sem);
	ring->restrict_link->check = NULL;
	up_write(&ring->sem);
	/* Removes all links, and lets no key be added. */
	key_revoke(ring);
}

/* Waits until the links are made for which the check function was called before. */
void rpcrdma_wait_for_links(struct key *ring)
{
	down_read(&ring->sem);
	up_read(&ring->sem);
}

/*
 * Writes serial numbers of the keys in a keyring, at most @size bytes. Returns the bytes that all
 * serial numbers take.
 */
long rpcrdma_keyring_serials(const struct key *ring, key_serial_t *serials, size_t size)
{
	long all;

	rcu_read_lock();
	all = key_type_keyring.read(ring, (char *)serials, size);
	rcu_read_unlock();
	return all;
}

/* Returns the type of a key. */
const struct key_type *rpcrdma_key_type(const struct key *key)
{
	return key->type;
}

/* Returns the serial number of a key. */
key_serial_t rpcrdma_key_number(const struct key *key)
{
	return key->serial;
}

/* Returns the description of a key, which lives as long as the key. */
const char *rpcrdma_key_description(const struct key *key)
{
	return key->description;
}

/* Returns whether the interface with this index has this name. */
bool rpcrdma_interface_has_name(struct net *net, int index, const char *name, size_t len)
{
	const struct net_device *interface;
	bool has_name = false;

	rcu_read_lock();
	interface = dev_get_by_index_rcu(net, index);
	if (interface && len < IFNAMSIZ)
		has_name = strlen(interface->name) == len && !memcmp(interface->name, name, len);
	rcu_read_unlock();
	return has_name;
}

/* Returns whether the log has room for another message about host authentication. */
bool rpcrdma_may_log_hostauth(void)
{
	static DEFINE_RATELIMIT_STATE(messages, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);

	return __ratelimit(&messages);
}

/* Parameters of type charp, which the macro module! does not support. */

static char *host_auth = "auto";
module_param(host_auth, charp, 0);
MODULE_PARM_DESC(host_auth, "sunrpc.rdma_host_auth to begin with: auto, none, any or addresses");

static char *svc_host_auth = "auto";
module_param(svc_host_auth, charp, 0);
MODULE_PARM_DESC(svc_host_auth,
		 "sunrpc.svc_rdma.host_auth to begin with: auto, none, any or addresses");

/* Returns the parameter host_auth. */
const char *rpcrdma_host_auth(void)
{
	return host_auth;
}

/* Returns the parameter svc_host_auth. */
const char *rpcrdma_svc_host_auth(void)
{
	return svc_host_auth;
}

/* The macro module! has no version. */
MODULE_VERSION(RPCRDMA_VERSION);

/* Returns the version of the module. */
const char *rpcrdma_version(void)
{
	return RPCRDMA_VERSION;
}
