# SPDX-License-Identifier: GPL-2.0
"""The messages in a kernel's log that fail a run, even if its command has succeeded."""

import re

from pathlib import Path

# Reports of a kernel whose processor has done nothing else for long: a loop, or a host that has not run the
# emulated machine.
STALLS = (
    r"BUG: soft lockup", r"\bstall(ed)? on CPU", r"rcu.*detected (expedited )?stalls?",
)
STALL = re.compile("|".join(STALLS))
# The faults that the module finds in itself, and in devices: these may be, where they are made to fail.
OF_MODULE = ("cannot be given back to the RDMA device", "a memory registration could not be destroyed")
OF_DEVICE = ("an RDMA device has not completed", "an RDMA device does not end the work of a queue pair")
REPORT = re.compile("|".join((
    *STALLS,
    r"\bBUG: ", r"kernel BUG at", r"\bWARNING: ", r"\bOops\b", r"Kernel panic", r"rust_kernel: panicked",
    r"\bKASAN: ", r"\bUBSAN: ", r"\bKFENCE: ", r"general protection fault",
    r"INFO: task .* blocked for more than", r"workqueue lockup",
    r"possible (circular|recursive) locking", r"inconsistent lock state",
    r"bad unlock balance", r"suspicious RCU usage", r"held lock freed", r"lock held when returning",
    r"scheduling while atomic", r"sleeping function called from invalid context",
    r"refcount_t: ", r"list_(add|del) corruption", r"DEBUG_LOCKS_WARN_ON",
    # Of the allocator with slab_debug, which names the cache.
    r"\bBUG \S+ \((Not tainted|Tainted)",
    r"turning off the locking correctness validator", r"Unknown rela relocation",
    *(f"rpcrdma: .*{re.escape(words)}" for words in OF_MODULE),
    # Said by a node's own finish script.
    r"lab: lockdep has switched itself off", r"lab: this kernel has no kmemleak",
    r"kmemleak: (unreferenced object|no stack trace)",
)))
FAILED_DEVICE = re.compile("|".join(f"rpcrdma: .*{re.escape(words)}" for words in OF_DEVICE))
# The warnings of kernels as they ship that have a known cause: a report of these alone fails nothing.
EXPLAINED = re.compile("|".join(
    line for line in (Path(__file__).parents[3] / "selftests/lib/explained").read_text().splitlines()
    if line and not line.startswith("#")))
# The number of lines behind a report that belong to it.
FOLLOWING = 40


def reports(text: str, devices_fail: bool = False) -> list[str]:
    """The reports in the log TEXT, each with the lines that follow it. Where devices are made to fail, the log may
    say that they do."""
    def is_report(line: str) -> bool:
        return bool(REPORT.search(line) or not devices_fail and FAILED_DEVICE.search(line))

    lines = text.splitlines()
    found = []
    end = 0
    for number, line in enumerate(lines):
        if number >= end and is_report(line) and not EXPLAINED.search(line):
            end = min(number + FOLLOWING, len(lines))
            found.append("\n".join(lines[number:end]))
    return found


def is_stall(report: str) -> bool:
    """Whether nothing in a report is worse than a stall."""
    return all(STALL.search(line) for line in report.splitlines()
               if REPORT.search(line) or FAILED_DEVICE.search(line))


def explained(text: str) -> list[str]:
    """The lines of the log TEXT that would be reports if their cause were not known."""
    return [line for line in text.splitlines() if EXPLAINED.search(line)]
