// SPDX-License-Identifier: GPL-2.0

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/auth.h>
#include <linux/sunrpc/bc_xprt.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/svc.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>

__rust_helper void rust_helper_xprt_set_connected(struct rpc_xprt *xprt)
{
	xprt_set_connected(xprt);
}

__rust_helper void rust_helper_xprt_clear_connected(struct rpc_xprt *xprt)
{
	xprt_clear_connected(xprt);
}

__rust_helper void rust_helper_xprt_clear_connecting(struct rpc_xprt *xprt)
{
	xprt_clear_connecting(xprt);
}

__rust_helper void rust_helper_xprt_set_bound(struct rpc_xprt *xprt)
{
	xprt_set_bound(xprt);
}

__rust_helper unsigned short rust_helper_rpc_get_port(const struct sockaddr *sap)
{
	return rpc_get_port(sap);
}

__rust_helper void rust_helper_rpc_set_port(struct sockaddr *sap, unsigned short port)
{
	rpc_set_port(sap, port);
}
