#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Makes listeners of the NFS server while memory is short: each time another allocation fails.

listeners.py FIRST STEP     until a listener needs fewer allocations than that; runs on the server

A listener is made as a whole, or it is refused for want of memory and leaves nothing.
"""

import errno
import os
import subprocess
import sys

PORTS = "/proc/fs/nfsd/portlist"


def listening(port: int) -> bool:
    with open(PORTS, encoding="ascii") as ports:
        return f"rdma {port}" in ports.read().splitlines()


def resources() -> bytes:
    shown: bytes = subprocess.run(["rdma", "resource", "show"], check=True,
                                  stdout=subprocess.PIPE).stdout
    return shown


def main(first: str, step: str) -> None:
    number, made, refused = int(first), 0, 0
    nth = os.open("/proc/thread-self/fail-nth", os.O_RDWR)
    while True:
        port = 21000 + number
        before = resources()
        ports = os.open(PORTS, os.O_WRONLY)
        os.pwrite(nth, str(number).encode(), 0)
        try:
            os.write(ports, f"rdma {port}".encode())
            error = None
        except OSError as failure:
            error = failure
        left = int(os.pread(nth, 20, 0))
        os.pwrite(nth, b"0", 0)
        os.close(ports)
        if bool(error) == listening(port) or (error and error.errno != errno.ENOMEM):
            sys.exit(f"allocation {number}, {left} left: {error}, listening: {listening(port)}")
        if error and resources() != before:
            sys.exit(f"allocation {number}: {before!r} before, {resources()!r} after")
        refused += bool(error)
        made += not error
        if left:
            break
        number += int(step)
    print(f"# {number} allocations: refused {refused} times, made {made} times")
    if not refused:
        sys.exit("no allocation has failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
