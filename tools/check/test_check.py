#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of the checks: every kind of failed run is reported as a failure."""

import contextlib
import dataclasses
import io
import re
import subprocess
import sys
import tempfile
import unittest

from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

from boot import Boot, Command, run_all
from suite import Verdicts, compare
from tally import PROJECT, Report, excerpt, parse

sys.path.insert(0, str(PROJECT / "tools/lab"))

from lablib import cache, klog  # pylint: disable=wrong-import-position

HERE = Path(__file__).resolve().parent


def counts(text: str, *may_skip: str) -> tuple[int, int, int]:
    tally, _ = parse(text.splitlines(), may_skip)
    return tally.passed, tally.failed, tally.skipped


class Parse(unittest.TestCase):
    """The parser of KTAP."""

    def test_results(self) -> None:
        self.assertEqual(counts("1..3\nok 1 a\nnot ok 2 b\nok 3 c # SKIP why", "c # SKIP"), (1, 1, 1))

    def test_a_skip_that_is_not_listed_fails(self) -> None:
        self.assertEqual(counts("1..2\nok 1 a\nok 2 b # SKIP why"), (1, 1, 0))
        self.assertEqual(counts("1..2\nok 1 a\nok 2 b # SKIP why", "b # SKIP because"), (1, 1, 0))

    def test_a_failure_that_says_skip_fails(self) -> None:
        self.assertEqual(counts("1..2\nok 1 a\nnot ok 2 b # SKIP why", "b # SKIP"), (1, 1, 0))

    def test_skipped_as_a_whole(self) -> None:
        self.assertEqual(counts("TAP version 13\n1..0 # SKIP why", "SKIP why"), (0, 0, 1))
        self.assertEqual(counts("TAP version 13\n1..0 # SKIP why"), (0, 1, 0))

    def test_more_results_than_planned(self) -> None:
        self.assertEqual(counts("1..1\nok 1 a\nok 2 b"), (2, 1, 0))

    def test_two_plans(self) -> None:
        self.assertEqual(counts("1..1\nok 1 a\n1..1"), (1, 1, 0))

    def test_no_test_at_all(self) -> None:
        self.assertEqual(counts("TAP version 13\n1..0"), (0, 1, 0))
        self.assertEqual(counts(""), (0, 1, 0))

    def test_ends_early(self) -> None:
        self.assertEqual(counts("1..2\nok 1 a"), (1, 1, 0))


@dataclasses.dataclass
class Played(Boot):
    """A run of the lab that only says something."""
    script: str = ""

    def command(self, client: str, out: Path) -> list[str]:
        return ["sh", "-c", self.script]


BEGUN = "echo '# selftests: rpcrdma: a.sh'; echo 1..1; echo ok 1 x; "


class Runs(unittest.TestCase):
    """Boots and commands."""

    def failures(self, boot: Boot | Command) -> int:
        with tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(io.StringIO()):
            report = Report("test")
            boot.run("ours", Path(home) / "out", report)
            return report.total.failed

    def boot(self, script: str) -> int:
        return self.failures(Played("a boot", ("a.sh",), script=script))

    def command(self, script: str) -> int:
        return self.failures(Command("a command", ("sh", "-c", script)))

    def test_a_program_that_passes(self) -> None:
        self.assertEqual(self.boot(BEGUN + "echo 'ok 1 selftests: rpcrdma: a.sh'"), 0)

    def test_a_program_that_fails_without_a_failing_test(self) -> None:
        self.assertEqual(self.boot(BEGUN + "echo 'not ok 1 selftests: rpcrdma: a.sh'; exit 1"), 1)

    def test_a_program_that_does_not_end(self) -> None:
        self.assertEqual(self.boot(BEGUN), 1)

    def test_no_program_begins(self) -> None:
        self.assertEqual(self.boot("exit 127"), 1)

    def test_skips_of_a_boot(self) -> None:
        script = "echo '# selftests: rpcrdma: a.sh'; echo 1..2; echo ok 1 x; echo 'ok 2 y # SKIP z'; " \
                 "echo 'ok 1 selftests: rpcrdma: a.sh'"
        self.assertEqual(self.boot(script), 1)
        self.assertEqual(self.failures(Played("a boot", ("a.sh",), script=script, skips=("y # SKIP z",))), 0)

    def test_a_kernel_reports(self) -> None:
        self.assertEqual(self.boot(BEGUN + "echo 'ok 1 selftests: rpcrdma: a.sh'; exit 99"), 1)

    def test_the_text_of_a_report_is_shown(self) -> None:
        report = "echo \"lab: the client's kernel reported:\"; echo 'WARNING: the text'; seq 200; "
        # The nodes may end within a program or behind it.
        for script in (BEGUN + report + "exit 99",
                       BEGUN + "echo 'ok 1 selftests: rpcrdma: a.sh'; " + report + "exit 99"):
            with contextlib.redirect_stdout(io.StringIO()) as said, tempfile.TemporaryDirectory() as home:
                Played("a boot", ("a.sh",), script=script).run("ours", Path(home) / "out", Report("test"))
            self.assertIn("WARNING: the text", said.getvalue())
        lines = ["lab: the server's kernel stalled:", "the text", *map(str, range(200))]
        self.assertEqual(excerpt(lines), lines)
        self.assertEqual(excerpt(lines[2:]), lines[-60:])

    def test_commands(self) -> None:
        self.assertEqual(self.command("echo 1..1; echo ok 1 x"), 0)
        self.assertEqual(self.command("echo 1..1; echo ok 1 x; exit 1"), 1)
        self.assertEqual(self.command("echo 1..1; echo not ok 1 x; exit 1"), 1)

    def test_a_boot_that_cannot_be_run(self) -> None:
        class Broken(Boot):
            """One with a fault of its own."""
            def run(self, client: str, out: Path, report: Report) -> None:
                raise ValueError("what")

        with tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(io.StringIO()) as said:
            report = Report("test")
            boots: list[Boot | Command] = [
                Broken("a boot", (), kernel="none"),
                Command("a command", ("sh", "-c", "echo 1..1; echo ok 1 x"), kernel="none")]
            run_all(boots, "ours", Path(home), report)
        self.assertEqual((report.total.passed, report.total.failed), (1, 1))
        self.assertIn("ValueError: what", said.getvalue())

    def test_a_boot_that_runs_alone(self) -> None:
        with tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(io.StringIO()):
            report = Report("test")
            count = f"echo 1..1; touch {home}/$$.runs; sleep 0.2; %s; rm {home}/$$.runs"
            others = f"[ ! -e {home}/alone ] && echo ok 1 x"
            alone = f"touch {home}/alone; [ $(ls {home}/*.runs | wc -l) = 1 ] && echo ok 1 x; sleep 0.2; " \
                    f"rm {home}/alone"
            boots = [Command(str(n), ("sh", "-c", count % (others if n % 3 else alone)), kernel="none", alone=not n % 3)
                     for n in range(5)]
            run_all(boots, "ours", Path(home) / "logs", report, at_a_time=3)
        self.assertEqual((report.total.passed, report.total.failed), (5, 0))


def annotated(path: Path, names: dict[str, tuple[int, ...]], *rest: str) -> list[str]:
    return [str(path), *names, *rest]


class Keys(unittest.TestCase):
    """The keys of the lab's cache."""

    def test_annotations_are_no_part_of_a_key(self) -> None:
        self.assertEqual(cache.source_of(annotated),
                         "def annotated(path, names, *rest):\n    return [str(path), *names, *rest]\n")


class Logs(unittest.TestCase):
    """The patterns of the lab for kernel logs."""

    def test_the_module_says_what_is_looked_for(self) -> None:
        source = " ".join(path.read_text(encoding="utf-8") for path in (PROJECT / "rust").rglob("*.rs"))
        for words in (*klog.OF_MODULE, *klog.OF_DEVICE):
            self.assertIn(words, source)
            line = f"[   12.345678] rpcrdma: it {words}, and more"
            self.assertEqual(klog.reports(line), [line])
            self.assertEqual(len(klog.reports(line, devices_fail=True)), words in klog.OF_MODULE)

    def test_a_report_that_is_only_a_stall(self) -> None:
        stall = "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [sh:1]"
        for text, is_stall in ((stall, True), (f"{stall}\nWARNING: CPU: 0", False)):
            self.assertEqual([klog.is_stall(report) for report in klog.reports(text)], [is_stall])

    def test_what_is_explained_is_no_report(self) -> None:
        warning = "WARNING: drivers/infiniband/sw/rxe/rxe_{}.c:827 at rxe_{}+0x6/0xe"
        self.assertEqual(klog.reports(warning.format("comp", "completer")), [])
        self.assertEqual(len(klog.reports(warning.format("req", "requester"))), 1)


class Total(unittest.TestCase):
    """The sum of all checks."""

    def total(self, script: str) -> tuple[int, str]:
        ended = subprocess.run([HERE / "total", "sh", "-c", script], capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout.splitlines()[-1]

    def test_checks_are_summed(self) -> None:
        self.assertEqual(self.total('echo 2 0 1 >>"$CHECK_TALLY"; echo 3 0 0 >>"$CHECK_TALLY"'),
                         (0, "5 passed, 0 failed"))
        self.assertEqual(self.total('echo 2 1 0 >>"$CHECK_TALLY"'), (1, "2 passed, 1 failed"))

    def test_a_command_that_fails_without_a_count(self) -> None:
        self.assertEqual(self.total('echo 2 0 0 >>"$CHECK_TALLY"; exit 1'), (1, "2 passed, 1 failed"))

    def test_no_check_at_all(self) -> None:
        self.assertEqual(self.total("true"), (1, "0 passed, 1 failed"))
        self.assertEqual(self.total('echo 0 0 3 >>"$CHECK_TALLY"'), (1, "0 passed, 1 failed"))


class Suites(unittest.TestCase):
    """Our server beside the kernel's own."""

    def verdicts(self, **failed: Iterable[int]) -> Verdicts:
        with tempfile.TemporaryDirectory() as home:
            cases = "".join(f'<testcase classname="{test}" name="x{n}">'
                            + ("<failure message=': y'/>" if n in numbers else "") + "</testcase>"
                            for test, numbers in failed.items() for n in range(3))
            (Path(home) / "report.xml").write_text(f"<testsuite>{cases}</testsuite>")
            return Verdicts(Path(home))

    def counts(self, ours: Mapping[str, Iterable[int]], stock: Mapping[str, Iterable[int]],
               reasons: Mapping[tuple[str, str], str]) -> tuple[int, int, int]:
        with contextlib.redirect_stdout(io.StringIO()):
            report = Report("test")
            compare("a suite", self.verdicts(**ours), self.verdicts(**stock), reasons, report)
            return report.total.passed, report.total.failed, report.total.skipped

    def test_what_passes_with_ours_passes(self) -> None:
        self.assertEqual(self.counts({"a": (), "b": ()}, {"a": (), "b": (0, 1)}, {}), (2, 0, 0))

    def test_what_fails_with_ours_alone_fails(self) -> None:
        reasons = {("a suite", "a"): "why"}
        self.assertEqual(self.counts({"a": (0,)}, {"a": ()}, reasons), (0, 1, 0))
        self.assertEqual(self.counts({"a": (0, 1)}, {"a": (0,)}, reasons), (0, 1, 0))
        self.assertEqual(self.counts({"a": (0,)}, {"a": (1, 2)}, reasons), (0, 1, 0))
        self.assertEqual(self.counts({}, {"a": ()}, reasons), (0, 1, 0))

    def test_what_fails_with_both_needs_a_reason(self) -> None:
        self.assertEqual(self.counts({"a": (0,)}, {"a": (0,)}, {}), (0, 1, 0))
        self.assertEqual(self.counts({"a": (0,)}, {"a": (0, 1)}, {("a suite", "a"): "why"}), (0, 0, 1))


class Skips(unittest.TestCase):
    """The skips that the boots may have."""

    def test_each_reason_is_of_a_test(self) -> None:
        loader = SourceFileLoader("check_lab", str(HERE / "check-lab"))
        spec = spec_from_loader(loader.name, loader)
        assert spec
        check_lab = module_from_spec(spec)
        loader.exec_module(check_lab)
        scripts = [path.read_text() for path in (PROJECT / "selftests").rglob("*.sh")]
        reasons = [reason for script in scripts for reason in re.findall(r'\bskip "([^"]*)"', script)]
        skips = {skip for boot in check_lab.EVERY_BOOT for skip in getattr(boot, "skips", ())}
        self.assertTrue(skips and reasons)
        for skip in skips:
            wanted = skip.rpartition("SKIP ")[2]
            self.assertTrue(any(re.match(wanted, reason) for reason in reasons), skip)


if __name__ == "__main__":
    unittest.main()
