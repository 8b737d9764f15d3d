# SPDX-License-Identifier: GPL-2.0
"""Results, counted and shown as KTAP with the time they took.

Under tools/check/total the counts go into the file that CHECK_TALLY names; otherwise the part that
counted says them itself.
"""

import os
import re
import sys
import threading
import time

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
# Before a command line: it gets SIGTERM when what has started it ends, however that was. The lab
# cleans up on that signal, and make hands it on.
TIED = ("setpriv", "--pdeathsig", "TERM")
RESULT = re.compile(r"^(not ok|ok) \d+ ?(?:- )?(.*?)(?: # (SKIP|TIMEOUT)\b ?(.*))?$")


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def count(self, ok, skipped):
        if skipped:
            self.skipped += 1
        elif ok:
            self.passed += 1
        else:
            self.failed += 1

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        words = [f"{self.passed} passed", f"{self.failed} failed"]
        if self.skipped:
            words.append(f"{self.skipped} skipped")
        return ", ".join(words)


class Report:
    """What a part of the checks prints: a result per program or step, details under failures."""

    def __init__(self, title):
        self.title = title
        self.total = Tally()
        self.number = 0
        self.begun = time.monotonic()
        self.lock = threading.Lock()
        print("TAP version 13", flush=True)

    def result(self, name, tally, details=(), took=None):
        with self.lock:
            self.number += 1
            self.total.add(tally)
            verdict = "not ok" if tally.failed else "ok"
            skip = "" if tally.passed or tally.failed or not tally.skipped else " # SKIP"
            elapsed = time.monotonic() - self.begun
            own = "" if took is None else f"{took:.0f} s, "
            print(f"{verdict} {self.number} {name}: {tally}{skip}  [{own}at {elapsed:.0f} s]")
            for line in details:
                print(f"  {line}")
            sys.stdout.flush()

    def single(self, name, ok, details=(), skipped=False):
        """A result that is one test."""
        tally = Tally()
        tally.count(ok, skipped)
        self.result(name, tally, details)

    def say(self, text):
        with self.lock:
            print(f"# [at {time.monotonic() - self.begun:.0f} s] {text}", flush=True)

    def end(self):
        """Prints the plan, hands the counts on, and returns the exit status."""
        print(f"1..{self.number}")
        total = os.environ.get("CHECK_TALLY")
        if total:
            with open(total, "a", encoding="ascii") as file:
                print(self.total.passed, self.total.failed, self.total.skipped, file=file)
        else:
            print(f"{self.title}: {self.total}")
        sys.stdout.flush()
        return 1 if self.total.failed else 0


def parse(lines):
    """Counts the results of a KTAP program; returns the tally and the lines worth showing."""
    tally = Tally()
    shown, diagnostics, planned = [], [], None
    for line in lines:
        found = RESULT.match(line.strip())
        if found:
            ok, skipped = found[1] == "ok", found[3] == "SKIP"
            tally.count(ok, skipped)
            if not ok:
                shown += [*diagnostics[-60:], line]
            elif skipped:
                shown.append(line)
            diagnostics = []
        elif re.match(r"1\.\.\d+", line):
            planned = int(line[3:].split()[0])
            if planned == 0 and "# SKIP" in line:
                tally.count(True, True)
                planned = 1
                shown.append(line)
        elif not line.startswith("TAP version"):
            diagnostics.append(line)
    ran = tally.passed + tally.failed + tally.skipped
    # No test at all is no success, unless that was said to be a skip.
    if not planned or ran < planned:
        tally.count(False, False)
        shown += [*diagnostics[-60:], f"ended after {ran} of {planned or 'its'} tests"]
    return tally, shown
