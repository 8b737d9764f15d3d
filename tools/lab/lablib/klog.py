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
    # Said by a node's own finish script.
    r"lab: lockdep has switched itself off", r"kmemleak: unreferenced object",
)))
# How much of the log after a report belongs to it.
FOLLOWING = 40


def reports(text):
    """The reports in the log TEXT, each with the lines that follow it."""
    lines = text.splitlines()
    found = []
    end = 0
    for number, line in enumerate(lines):
        if number >= end and REPORT.search(line):
            end = min(number + FOLLOWING, len(lines))
            found.append("\n".join(lines[number:end]))
    return found
