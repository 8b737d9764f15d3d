# SPDX-License-Identifier: GPL-2.0
"""Shared by the checks in Python: KTAP, and running in the build root.

A program below tools/ finds it by::

    sys.path.insert(0, str(Path(__file__).resolve().parents[N]))
"""

import os
import sys

from collections.abc import Iterable
from pathlib import Path

TOOLS = Path(__file__).resolve().parent


def enter_build_root() -> None:
    """Goes on in the build root, unless this is it: runs the program there in place of this one."""
    if "RPCRDMA_BUILD_ROOT" not in os.environ:
        program = str(Path(sys.argv[0]).resolve())
        os.execv(TOOLS / "lab/buildroot", ["buildroot", "--", program, *sys.argv[1:]])


class Ktap:
    """Prints results as they come; see the kernel's Documentation/dev-tools/ktap.rst."""

    def __init__(self, count: int) -> None:
        self.count, self.number, self.failed = count, 0, 0
        print(f"KTAP version 1\n1..{count}", flush=True)

    def result(self, ok: bool, name: str, note: str = "", details: Iterable[str] = ()) -> None:
        """One result; DETAILS are lines that explain a failure."""
        self.number += 1
        self.failed += not ok
        for line in details:
            print(f"# {line}")
        print(f"{'ok' if ok else 'not ok'} {self.number} {name}{f' # {note}' if note else ''}",
              flush=True)

    def end(self) -> int:
        """Prints the totals and returns the exit status."""
        print(f"# Totals: pass:{self.number - self.failed} fail:{self.failed}", flush=True)
        return 1 if self.failed else 0
