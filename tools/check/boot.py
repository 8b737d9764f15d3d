# SPDX-License-Identifier: GPL-2.0
"""One run of the lab with test programs in it, and many of them while kernels are being built."""

import concurrent.futures
import dataclasses
import os
import re
import shutil
import subprocess
import threading
import time
import traceback

from collections.abc import Iterable
from pathlib import Path

from tally import PROJECT, REPORTED, TIED, Report, excerpt, parse, run_limited

LAB = PROJECT / "tools/lab/lab"
KDIR = PROJECT / "tools/lab/kdir"
ENDINGS = {98: "a kernel has reported a stall: the host did not run it for long, or it is caught in a loop",
           99: "a kernel has reported a fault", 124: "timed out", 125: "the lab has failed"}
EXPLAINED = "reported a known fault of its own"
START = re.compile(r"^# selftests: rpcrdma: (.*)")
END = re.compile(r"^(not )?ok \d+ selftests: rpcrdma: (.*?)( # .*)?$")


@dataclasses.dataclass
class Boot:
    """Nodes to start and the programs to run on them."""
    name: str
    programs: tuple[str, ...]
    kernel: str = "uml"
    options: tuple[str, ...] = ()
    settings: dict[str, int | str] = dataclasses.field(default_factory=dict)
    # In seconds. A host of half the usual speed that also builds kernels needs more than 900 for the longest.
    timeout: int = 1800
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    cpus: int = 2
    # Regular expressions, one for each skip that this boot may have: PROGRAM: NAME # SKIP REASON.
    skips: tuple[str, ...] = ()
    alone: bool = False

    def command(self, client: str, out: Path) -> list[str]:
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        return [*TIED, str(LAB), "--client", client, "--server", "stock", "--mount", "none",
                "--share", str(PROJECT / "selftests"), "--out", str(out),
                "--timeout", str(self.timeout), "--kernel", self.kernel,
                "--cpus", str(self.cpus), *self.options, "--",
                "env", *settings, "/share/run", *self.programs]

    def run(self, client: str, out: Path, report: Report) -> None:
        """Runs the programs, reports each as it ends, and then reports the logs of the kernels."""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        begun = time.monotonic()
        report.say(f"{self.name}: {' '.join(self.programs)}")
        program, started, failed, ended = None, 0.0, False, False
        lines: list[str] = []
        around: list[str] = []
        with open(out / "output.log", "w", encoding="utf-8", errors="replace") as log, \
                subprocess.Popen(self.command(client, out), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 errors="replace",
                                 env=os.environ | self.environment) as process:
            assert process.stdout
            for line in process.stdout:
                line = line.rstrip("\n")
                print(f"{time.monotonic() - begun:7.2f} {line}", file=log, flush=True)
                if ended or REPORTED.match(line):
                    # The nodes have ended, whether the program has or not.
                    ended = True
                    around.append(line)
                elif found := START.match(line):
                    program, started, lines = found[1], time.monotonic(), []
                elif program and (found := END.match(line)) and found[2] == program:
                    failed |= self._ended(report, program, started, lines, found)
                    program = None
                elif program and not line.startswith("lab: "):
                    lines.append(line)
                else:
                    around.append(line)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if program:
            failed |= self._ended(report, program, started, lines, None)
        report.say(f"{self.name}: {used.ru_utime + used.ru_stime:.0f} s of processor time")
        ending = ENDINGS.get(process.returncode)
        if process.returncode and not failed:
            ending = ending or f"ended with status {process.returncode}, and no program has failed"
        explained = [line for line in around if EXPLAINED in line]
        report.single(f"{self.name}: the kernels have nothing to report", not ending,
                      [ending, *excerpt(around, 80)] if ending else explained)

    def _ended(self, report: Report, program: str, started: float, lines: list[str],
               end: re.Match[str] | None) -> bool:
        """Reports a program, whose last line is END if it came so far; returns whether it has failed."""
        tally, shown = parse(lines, self.skips)
        if (not end or end[1]) and not tally.failed:
            tally.count(False, False)
            shown.append(end[0] if end else "did not end")
        report.result(f"{self.name}: {program}", tally, shown, time.monotonic() - started)
        return bool(tally.failed)


@dataclasses.dataclass
class Command:
    """A program of the host that speaks KTAP, run beside the boots."""
    name: str
    argv: tuple[str | Path, ...]
    kernel: str = "uml"
    # Runs when no kernel is being made and no other boot runs: its tests have bounds in seconds.
    alone: bool = False

    def run(self, _client: str, out: Path, report: Report) -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        started = time.monotonic()
        report.say(f"{self.name}: {' '.join(map(str, self.argv))}")
        status, lines = run_limited(self.argv)
        (out / "output.log").write_text("\n".join(lines), encoding="utf-8")
        tally, shown = parse(lines)
        if status and not tally.failed:
            tally.count(False, False)
            shown.append(f"ended with status {status}")
        report.result(self.name, tally, shown, time.monotonic() - started)


class Queue:
    """The boots that have not begun, the number of boots that run, and the kernels that are there for them."""

    def __init__(self, boots: Iterable[Boot | Command], report: Report) -> None:
        self.boots = list(boots)
        self.report = report
        self.kernels = dict.fromkeys(boot.kernel for boot in self.boots)
        self.ready: set[str] = set()
        self.running = 0
        self.alone = False
        self.changed = threading.Condition()

    def prepare(self, at_a_time: int) -> None:
        """Makes the kernels in the order of the boots, but Debian's first: they are only unpacked."""
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
            list(pool.map(self._make, sorted(self.kernels, key=lambda name: not name.startswith("debian"))))

    def _make(self, kernel: str) -> None:
        """Makes one kernel. If that fails, the boots will say why."""
        try:
            with subprocess.Popen((*TIED, KDIR, kernel), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True, errors="replace") as process:
                assert process.stderr
                for line in process.stderr:
                    self.report.say(line.rstrip("\n"))
        finally:
            with self.changed:
                self.ready.add(kernel)
                self.changed.notify_all()

    def _can_begin(self, boot: Boot | Command) -> bool:
        if self.alone or boot.kernel not in self.ready:
            return False
        return not boot.alone or (not self.running and len(self.ready) == len(self.kernels))

    def next(self) -> Boot | Command | None:
        """Waits for a boot that can begin; returns nothing when all have begun."""
        with self.changed:
            while self.boots:
                for boot in self.boots:
                    if self._can_begin(boot):
                        self.boots.remove(boot)
                        self.running += 1
                        self.alone = boot.alone
                        # Other threads may wait for the boot that was the last.
                        self.changed.notify_all()
                        return boot
                self.changed.wait()
        return None

    def ended(self) -> None:
        """Accounts the end of a boot, for which a boot that runs alone may wait, or boots behind that boot."""
        with self.changed:
            self.running -= 1
            self.alone = False
            self.changed.notify_all()


def run_all(boots: Iterable[Boot | Command], client: str, home: Path, report: Report, at_a_time: int = 2) -> None:
    """Runs BOOTS, the first ones first, AT_A_TIME of them at a time, as soon as their kernels are
    there. Boots that run alone are the last."""
    queue = Queue(boots, report)

    def work() -> None:
        while boot := queue.next():
            try:
                boot.run(client, home / boot.name.replace(" ", "-"), report)
            except Exception:  # pylint: disable=broad-exception-caught
                # After any exception this boot has failed, and this thread continues with the next boot.
                report.single(boot.name, False, traceback.format_exc().splitlines())
            queue.ended()

    workers = [threading.Thread(target=work) for _ in range(at_a_time)]
    for worker in workers:
        worker.start()
    queue.prepare(at_a_time)
    for worker in workers:
        worker.join()
