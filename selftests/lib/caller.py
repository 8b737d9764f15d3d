#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""An NFS client's side of RPC-over-RDMA version 1 that breaks the rules, against any server.

usage: caller.py SERVER [PORT [NAME...]]

Each test has connections of its own. The server must answer with the error message of RFC 8166, drop the
message, answer the Call, or end the connection. It must continue to serve a client that keeps the rules.
NAME is the beginning of a test's name.

Variables of the environment, all optional:
    FILE            the NFSv4 path of a directory that SERVER exports: "content" in it has 10,000 bytes and
                    "large" 200,000 (byte n is n modulo 251), "written" may be written, and "link" is a
                    symbolic link to TARGET
    SERVER_COMMAND  a program that runs a command on SERVER as root; with it, counters are compared
    ALONE           no other client uses SERVER
    STOCK           SERVER has the C module: its faults are printed and are no errors
    QUICK           skips tests that take long
"""

import importlib
import sys
import time

from misuse.base import CASES, QUICK, STOCK, Skip, Tap, command_line
from misuse.client import Caller

# Each registers its tests.
CONCERNS = {name: importlib.import_module(f"misuse.{name}") for name in (
    "headers", "calls", "replies", "memory", "grants", "connections", "callbacks")}


def main() -> int:
    server, port, names = command_line(__doc__)
    if names and names[0] == "--phase":
        CONCERNS["connections"].reach(server, port, names[1])
        return 0
    for beginning in names:
        if not any(name.startswith(beginning) for name in CASES):
            sys.exit(f"no test begins with {beginning}")
    caller = Caller(server, port)
    chosen = [name for name, test in CASES.items()
              if (any(name.startswith(beginning) for beginning in names) if names else not test.named)
              and not (QUICK and test.slow)]
    tap = Tap(len(chosen))
    for name in chosen:
        test = CASES[name]
        begun = time.monotonic()
        note = ""
        try:
            if STOCK and test.harms:
                raise Skip(f"the kernel's own server {test.stock}, which harms it")
            said = caller.run(test)
        except Skip as why:
            said, note = "", f"SKIP {why}"
        if said and STOCK and test.stock:
            note, said = f"the kernel's own server {test.stock}: {said.splitlines()[0]}", ""
        tap.result(name, said, note, time.monotonic() - begun)
    return tap.status()


if __name__ == "__main__":
    sys.exit(main())
