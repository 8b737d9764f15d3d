# SPDX-License-Identifier: GPL-2.0
"""Suites of the nfstest package, run on nodes of the lab, and their results."""

import re
import shutil
import subprocess
import typing
import xml.etree.ElementTree as xml

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from boot import ENDINGS, LAB
from tally import TIED, Report, Tally, excerpt

HERE = Path(__file__).resolve().parent
REPEATS = 2


class Failure(typing.NamedTuple):
    """An assertion that has failed."""
    assertion: str
    message: str = ""

    def __str__(self) -> str:
        return self.assertion + self.message


NOT_RUN = Failure("was not run")


class Verdicts:
    """The result of one run: for each test, the assertions that failed."""

    def __init__(self, directory: Path) -> None:
        self.failures: dict[str, list[Failure]] = {}
        self.assertions = 0
        for case in xml.parse(directory / "report.xml").getroot().iter("testcase"):
            self.assertions += 1
            failed = self.failures.setdefault(case.get("classname", ""), [])
            for failure in case:
                if failure.tag in ("failure", "error"):
                    failed.append(Failure(case.get("name", ""), failure.get("message") or ""))
        captured = directory / "capture.log"
        log = captured.read_text(errors="replace") if captured.exists() else ""
        counts = re.findall(r"^(\d+) packets dropped by (?:kernel|interface)", log, re.M)
        self.lost = sum(map(int, counts))
        self.captures = len(re.findall(r"^\d+ packets captured", log, re.M))

    def passed(self, test: str) -> bool:
        return test in self.failures and not self.failures[test]


def judge(name: str, home: Path, options: Sequence[str], arguments: Sequence[str], report: Report,
          captures: int = 0, timeout: int = 600) -> Verdicts | tuple[str, list[str]]:
    """Runs a suite with ARGUMENTS on nodes with OPTIONS until no capture has lost a frame and there are
    CAPTURES captures. Returns the reason and the end of the output if there is no verdict."""
    for attempt in range(REPEATS + 1):
        out = home.with_name(f"{home.name}-{attempt}")
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        report.say(f"{name}: nfstest {' '.join(arguments)}")
        ended = subprocess.run(
            [*TIED, LAB, *options, "--mount", "none", "--share", HERE, "--out", out,
             "--timeout", str(timeout), "--", "/share/nfstest", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", check=False)
        if ended.returncode:
            why = ENDINGS.get(ended.returncode, f"nfstest ended with {ended.returncode}")
            return why, excerpt(ended.stdout.splitlines())
        verdicts = Verdicts(out)
        if not verdicts.lost and verdicts.captures >= captures:
            return verdicts
        report.say(f"{name}: inconclusive, {verdicts.lost} frames lost in "
                   f"{verdicts.captures} captures")
    return "every capture has lost frames", []


def explained(name: str) -> dict[tuple[str, str], str]:
    """The lines of a file with the form `SUITE TEST REASON`: tests that do not pass with the C module either;
    * stands for each test."""
    reasons = {}
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            what, test, reason = line.split(None, 2)
            reasons[what, test] = reason
    return reasons


def compare(suite: str, ours: Verdicts, stock: Verdicts, reasons: Mapping[tuple[str, str], str],
            report: Report) -> None:
    """Reports a suite: a test passes if no assertion failed with our server. It is skipped if there is
    a reason and each assertion that failed has failed with the kernel's own server, too."""
    tally, details = Tally(), []
    for test in sorted({*ours.failures, *stock.failures}):
        failed = ours.failures.get(test, [NOT_RUN])
        elsewhere = stock.failures.get(test, [])
        reason = reasons.get((suite, test)) or reasons.get((suite, "*"))
        own = (Counter(failure.assertion for failure in failed)
               - Counter(failure.assertion for failure in elsewhere))
        known = bool(failed and reason and not own)
        tally.count(not failed or known, known)
        if failed:
            details.append(f"{test}: {len(failed)} failed with ours, {len(elsewhere)} with the "
                           f"kernel's own: {reason or 'nfstest.explained does not say why'}")
            details += [] if known else [f"  ours: {failure}" for failure in failed[:20]]
    report.result(f"nfstest_{suite}", tally, details)
