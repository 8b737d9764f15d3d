/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The C functions of this module, which Rust calls by the bindings. Each is documented at its
 * definition. rust/helpers has the static inlines of the kernel.
 */
#ifndef _RPCRDMA_GLUE_H
#define _RPCRDMA_GLUE_H

#include <linux/dma-direction.h>
#include <linux/key.h>
#include <linux/types.h>

struct ib_cq;
struct ib_device;
struct ib_device_attr;
struct ib_pd;
struct ib_qp;
struct ib_qp_init_attr;
struct net;
struct page;
struct rdma_cm_id;
struct rdma_rw_ctx;
struct rpc_rqst;
struct rpc_xprt;
struct scatterlist;
struct sockaddr;
struct svc_rqst;
struct svc_serv;
struct svc_xprt;
struct workqueue_struct;

/* rdma.c */
const struct ib_device_attr *rpcrdma_device_attrs(struct ib_device *device);
void rpcrdma_dma_unmap_single_as_is(struct ib_device *dev, u64 addr, size_t size,
				    enum dma_data_direction dir);
int rpcrdma_dma_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
		       enum dma_data_direction dir);
int rpcrdma_dma_map_sg_one(struct ib_device *dev, struct scatterlist *sg,
			   enum dma_data_direction dir);
void rpcrdma_dma_unmap_sg_one(struct ib_device *dev, struct scatterlist *sg,
			      enum dma_data_direction dir);
bool rpcrdma_dma_need_sync(struct ib_device *dev, u64 addr);
int rpcrdma_qp_fail(struct ib_qp *qp);
struct ib_qp *rpcrdma_qp_create(struct rdma_cm_id *id, struct ib_pd *pd,
				struct ib_qp_init_attr *init);
int rpcrdma_qp_connect(struct rdma_cm_id *id, struct ib_qp *qp);
void rpcrdma_cq_stop(struct ib_cq *cq);
void rpcrdma_rw_ctx_withdraw(struct rdma_rw_ctx *ctx, struct ib_qp *qp);
void rpcrdma_rw_ctx_unmap(struct rdma_rw_ctx *ctx, struct ib_pd *pd, u32 nr_bvec,
			  enum dma_data_direction dir);
int rpcrdma_rw_work_requests_of_a_page(struct ib_qp *qp);

/* sunrpc.c */
bool rpcrdma_xprt_try_enqueue_bc_request(struct rpc_rqst *req);
bool rpcrdma_xprt_has_callback_service(struct rpc_xprt *xprt);
struct rpc_rqst *rpcrdma_xprt_lookup_and_pin(struct rpc_xprt *xprt, __be32 xid);
void rpcrdma_xprt_complete_and_unpin(struct rpc_rqst *rqst, int copied);
void rpcrdma_xprt_fail(struct rpc_rqst *rqst, int status);
__be32 rpcrdma_xprt_take_xid(struct rpc_xprt *xprt);
void rpcrdma_xprt_fail_and_unpin(struct rpc_rqst *rqst, int status);
bool rpcrdma_xprt_send_again_and_unpin(struct rpc_rqst *rqst);
void rpcrdma_xprt_unpin(struct rpc_rqst *rqst);
void rpcrdma_xprt_wait_for_credit(struct rpc_xprt *xprt);
void rpcrdma_xprt_credit_is_free(struct rpc_xprt *xprt);
void *rpcrdma_rpc_kzalloc(size_t size);
size_t rpcrdma_bitmap_take_first(unsigned long *map, size_t words);
void rpcrdma_bitmap_put(unsigned long *map, size_t bit);
void rpcrdma_svc_xprt_set_flag(struct svc_xprt *xprt, unsigned int flag);
void rpcrdma_svc_xprt_clear_flag(struct svc_xprt *xprt, unsigned int flag);
void rpcrdma_svc_xprt_listens(struct svc_xprt *xprt, const struct sockaddr *local);
unsigned int rpcrdma_svc_threads(const struct svc_serv *serv);
void rpcrdma_svc_xprt_connects(struct svc_xprt *xprt, const struct sockaddr *local,
			       const struct sockaddr *remote);
void rpcrdma_svc_rqst_accept(struct svc_rqst *rqst);
bool rpcrdma_svc_xprt_set_backchannel(struct svc_xprt *svc, struct rpc_xprt *xprt);
struct rpc_rqst *rpcrdma_svc_xprt_lookup_call(struct svc_xprt *svc, __be32 xid);
bool rpcrdma_xprt_has_one_request(struct rpc_xprt *xprt);
void rpcrdma_xprt_set_window(struct rpc_xprt *xprt, unsigned long credits);

/* support.c */
struct workqueue_struct *rpcrdma_alloc_long_queue(const char *name);
void rpcrdma_full_barrier(void);
unsigned int rpcrdma_node_count(void);
int rpcrdma_this_node(void);
void rpcrdma_release_page_array(struct page **pages, int count);
struct key *rpcrdma_root_keyring(const char *name, key_restrict_link_func_t check);
void rpcrdma_retire_keyring(struct key *ring);
void rpcrdma_wait_for_links(struct key *ring);
long rpcrdma_keyring_serials(const struct key *ring, key_serial_t *serials, size_t size);
const struct key_type *rpcrdma_key_type(const struct key *key);
key_serial_t rpcrdma_key_number(const struct key *key);
const char *rpcrdma_key_description(const struct key *key);
bool rpcrdma_interface_has_name(struct net *net, int index, const char *name, size_t len);
bool rpcrdma_may_log_hostauth(void);
const char *rpcrdma_host_auth(void);
const char *rpcrdma_svc_host_auth(void);
const char *rpcrdma_version(void);

#endif /* _RPCRDMA_GLUE_H */
