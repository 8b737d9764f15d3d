# SPDX-License-Identifier: GPL-2.0
"""What in a kernel's log means that the run failed whatever its command says."""

import re

REPORT = re.compile("|".join((
    r"\bBUG: ", r"kernel BUG at", r"\bWARNING: ", r"\bOops\b", r"Kernel panic", r"rust_kernel: panicked",
    r"\bKASAN: ", r"\bUBSAN: ", r"\bKFENCE: ", r"general protection fault",
    r"INFO: task .* blocked for more than", r"\bstall(ed)? on CPU", r"rcu.*detected stall",
    r"workqueue lockup", r"possible (circular|recursive) locking", r"inconsistent lock state",
    r"bad unlock balance", r"suspicious RCU usage", r"held lock freed", r"lock held when returning",
    r"scheduling while atomic", r"sleeping function called from invalid context",
    r"refcount_t: ", r"list_(add|del) corruption", r"slab .* (corruption|overwritten)",
    r"Poison overwritten", r"Redzone overwritten", r"ODEBUG: ", r"DEBUG_LOCKS_WARN_ON",
    r"turning off the locking correctness validator", r"Unknown rela relocation",
    # The faults of its own that the module finds.
    r"rpcrdma: a memory registration (could not be destroyed|was lost)",
    r"rpcrdma: (RDMA Reads or Writes|Send buffers) were lost",
    r"rpcrdma: the RDMA device does not give back",
    # Said by a node's own finish script.
    r"lab: lockdep has switched itself off", r"lab: this kernel has no kmemleak",
    r"kmemleak: (unreferenced object|no stack trace)",
)))
# What a kernel as it ships says of itself, by a cause that is known: it is shown, and fails nothing.
# - Soft RoCE of Debian's kernel asks for the rest of an RDMA Read again when the answer is late or
#   frames overtake each other, as on a busy machine, and then rejects an answer without saying why
#   (check_ack returns COMPST_ERROR and sets no status). The kernel's own client and server do it, too:
#   with `tc qdisc add dev DEVICE root netem delay 1ms 1ms` on the client, within minutes of writing.
#   The Read completes with success and without its data, so a test that compares data may fail after
#   this warning. kernels/rxe.patch has User Mode Linux fail the Read.
EXPLAINED = re.compile(r"WARNING: drivers/infiniband/sw/rxe/rxe_comp\.c:\d+ at rxe_completer\+")
# How much of the log after a report belongs to it.
FOLLOWING = 40


def reports(text):
    """The reports in the log TEXT, each with the lines that follow it."""
    lines = text.splitlines()
    found = []
    end = 0
    for number, line in enumerate(lines):
        if number >= end and REPORT.search(line) and not EXPLAINED.search(line):
            end = min(number + FOLLOWING, len(lines))
            found.append("\n".join(lines[number:end]))
    return found


def explained(text):
    """The lines of the log TEXT that would be reports if their cause were not known."""
    return [line for line in text.splitlines() if EXPLAINED.search(line)]
