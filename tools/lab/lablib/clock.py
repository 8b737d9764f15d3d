# SPDX-License-Identifier: GPL-2.0
"""The clock of an emulated node.

The emulator shows the host's time-stamp counter to a node. A kernel measures the frequency of the counter against the
PIT while it begins. If the emulator does not run for some milliseconds meanwhile, the result is wrong by any factor:
one node counted 36 seconds for each second of the host. So the kernel gets the frequency as a parameter.
"""

import ctypes
import functools
import mmap
import platform
import time

from collections.abc import Callable

# rdtsc; shl $32, %rdx; or %rdx, %rax; ret
READ_COUNTER = bytes.fromhex("0f3148c1e2204809d0c3")
# In seconds.
MEASURED = 0.1


@functools.cache
def parameters() -> tuple[str, ...]:
    """Returns the parameters for the kernel of a node."""
    return (f"tsc_early_khz={frequency()}",) if platform.machine() == "x86_64" else ()


def frequency() -> int:
    """Returns the frequency of the counter in kHz."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(READ_COUNTER)
        address = ctypes.c_char.from_buffer(code)
        counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(address))
        begin, first = read(counter)
        time.sleep(MEASURED)
        end, last = read(counter)
        # The mapping ends only without references to it.
        del address
    return round((last - first) * 1_000_000 / (end - begin))


def read(counter: Callable[[], int]) -> tuple[int, int]:
    """Returns the time in nanoseconds and the counter, of the attempt with the shortest time in between."""
    attempts = ((time.monotonic_ns(), counter(), time.monotonic_ns()) for _ in range(20))
    before, count, after = min(attempts, key=lambda attempt: attempt[2] - attempt[0])
    return (before + after) // 2, count
