#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Gives a mount one transport more while memory is short: each time another allocation fails.

scarce.py SWITCH FIRST STEP     until a transport needs fewer allocations than that

SWITCH is the mount's directory in /sys/kernel/sunrpc/xprt-switches. A transport is made as a whole,
and can be taken away again, or it is refused for want of memory.
"""

import errno
import os
import sys


def write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def fail_allocation(file: int, number: int) -> int:
    """The allocation with this number fails in this thread; 0 ends it. Returns the rest of the count."""
    left = int(os.pread(file, 20, 0))
    os.pwrite(file, str(number).encode(), 0)
    return left


def transports(switch: str) -> set[str]:
    return {name for name in os.listdir(switch) if name.startswith("xprt-")}


def main(switch: str, first: str, step: str) -> None:
    made, refused, number = 0, 0, int(first)
    nth = os.open("/proc/thread-self/fail-nth", os.O_RDWR)
    while True:
        before = transports(switch)
        add = os.open(f"{switch}/add_xprt", os.O_WRONLY)
        fail_allocation(nth, number)
        try:
            os.write(add, b"1")
            error = None
        except OSError as failure:
            error = failure
        left = fail_allocation(nth, 0)
        os.close(add)
        new = transports(switch) - before
        if error:
            if error.errno != errno.ENOMEM or left or new:
                sys.exit(f"allocation {number}, {left} left, made {new}: {error}")
            refused += 1
        else:
            made += 1
            for name in new:
                write(f"{switch}/{name}/del_xprt", "1")
        if left:
            break
        number += int(step)
    print(f"# {number} allocations: refused {refused} times, made {made} times")
    if not refused:
        sys.exit("no allocation has failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
