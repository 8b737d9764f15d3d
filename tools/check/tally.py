# SPDX-License-Identifier: GPL-2.0
"""Results, counted and shown as KTAP with the time they took.

Under tools/check/total the counts go into the file that CHECK_TALLY names; otherwise the part that
counted says them itself.
"""

import os
import re
import subprocess
import sys
import threading
import time

from collections.abc import Iterable, Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
# A prefix for command lines: the command gets SIGTERM when its parent ends for any reason. The lab cleans up
# on this signal, and make forwards it.
TIED = ("setpriv", "--pdeathsig", "TERM")
# How long a command of the host may take that runs beside others on a busy machine.
SECONDS = int(os.environ.get("STEP_SECONDS", 3600))
PLAN = re.compile(r"^1\.\.(\d+)")
# How the lab begins a kernel's report.
REPORTED = re.compile(r"^(# )?lab: the \w+'s kernel (reported|stalled):")
RESULT = re.compile(r"^(not ok|ok) \d+ ?(?:- )?(.*?)(?: # (SKIP|TIMEOUT)\b ?(.*))?$")


def run_limited(command: Iterable[str | Path],
                environment: Mapping[str, str] | None = None) -> tuple[int, list[str]]:
    """Runs COMMAND, for SECONDS at most. Returns its status, 124 after that time, and its lines."""
    with subprocess.Popen((*TIED, *map(str, command)), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env=environment) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS)
            return process.returncode, said.splitlines()
        except subprocess.TimeoutExpired:
            # Its children are tied to it or to the lab, which cleans up on this signal.
            process.terminate()
            try:
                said, _ = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
            return 124, [*said.splitlines(), f"had not ended after {SECONDS} s"]


class Tally:
    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0

    def count(self, ok: bool, skipped: bool) -> None:
        if not ok:
            self.failed += 1
        elif skipped:
            self.skipped += 1
        else:
            self.passed += 1

    def add(self, other: "Tally") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        words = [f"{self.passed} passed", f"{self.failed} failed"]
        if self.skipped:
            words.append(f"{self.skipped} skipped")
        return ", ".join(words)


class Report:
    """The output of a part of the checks: a result for each program or step, details below failures."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.total = Tally()
        self.number = 0
        self.begun = time.monotonic()
        self.lock = threading.Lock()
        print("TAP version 13", flush=True)

    def result(self, name: str, tally: Tally, details: Iterable[str] = (), took: float | None = None) -> None:
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

    def single(self, name: str, ok: bool, details: Iterable[str] = (), skipped: bool = False) -> None:
        """A result that is one test."""
        tally = Tally()
        tally.count(ok, skipped)
        self.result(name, tally, details)

    def say(self, text: str) -> None:
        with self.lock:
            print(f"# [at {time.monotonic() - self.begun:.0f} s] {text}", flush=True)

    def end(self) -> int:
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


def excerpt(lines: list[str], most: int = 60) -> list[str]:
    """Returns the last lines, MOST of them, or all from the first report of a kernel on."""
    begin = max(len(lines) - most, 0)
    return lines[next((n for n, line in enumerate(lines[:begin]) if REPORTED.match(line)), begin):]


def parse(lines: Iterable[str], may_skip: Iterable[str] = ()) -> tuple[Tally, list[str]]:
    """Counts the results of a KTAP program; returns the tally and the lines worth showing.

    A test may be skipped only if one of the regular expressions MAY_SKIP is found in its line, which
    has name and reason. Any other skip is a failure, and so is a failed test that says it was skipped.
    The number of results has to be the number in the only plan.
    """
    tally = Tally()
    shown: list[str] = []
    diagnostics: list[str] = []
    plans: list[int] = []
    for line in lines:
        found = RESULT.match(line.strip())
        if found:
            ok, skipped = found[1] == "ok", found[3] == "SKIP"
            unlisted = skipped and not is_listed(line, may_skip)
            tally.count(ok and not unlisted, skipped)
            if not ok or unlisted:
                shown += [*excerpt(diagnostics), line]
            elif skipped:
                shown.append(line)
            if unlisted:
                shown.append("this skip is not on the list of the boot")
            diagnostics = []
        elif planned := PLAN.match(line):
            plans.append(int(planned[1]))
            if plans == [0] and "# SKIP" in line:
                listed = is_listed(line, may_skip)
                tally.count(listed, True)
                plans = [1]
                shown.append(line if listed else f"not allowed here: {line}")
        elif not line.startswith("TAP version"):
            diagnostics.append(line)
    ran = tally.passed + tally.failed + tally.skipped
    # A program without a test has not succeeded, unless it was skipped as a whole.
    if len(plans) != 1 or not plans[0] or ran != plans[0]:
        tally.count(False, False)
        plan = "no plan" if not plans else f"a plan of {' and '.join(map(str, plans))}"
        shown += [*excerpt(diagnostics), f"{ran} results for {plan}"]
    return tally, shown


def is_listed(line: str, may_skip: Iterable[str]) -> bool:
    return any(re.search(pattern, line) for pattern in may_skip)
