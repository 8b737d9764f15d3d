/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _RPCRDMA_VERSION_H
#define _RPCRDMA_VERSION_H

/* The version of the module and of its packages. */
#define RPCRDMA_VERSION "0.9.0"

#endif /* _RPCRDMA_VERSION_H */
