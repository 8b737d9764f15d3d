#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""An NFS client's side of RPC-over-RDMA version 2, against a server that speaks it.

usage: caller2.py SERVER [PORT [NAME...]]

The program was written from the document (draft-ietf-nfsv4-rpcrdma-version-two-00). It opens connections in
every way that the document allows, and sends valid and invalid messages. FILE in the environment is as for
caller.py. NAME is the beginning of a test's name.
"""

import sys

from misuse2 import callbacks, chunks, grants, headers, invalid, opening, parts
from misuse2.run import run, tests_of

# The tests, in this order.
CONCERNS = (opening, headers, parts, chunks, grants, callbacks, invalid)

if __name__ == "__main__":
    sys.exit(run(tests_of(*CONCERNS), __doc__))
