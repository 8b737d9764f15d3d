#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of the benchmark's parsers and tables, without a measurement."""

import tempfile
import unittest

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from xml.etree import ElementTree

import counters
import places
import results


def program(path: Path):
    """Returns the program at PATH as a module."""
    loader = SourceFileLoader(path.name, str(path))
    spec = spec_from_loader(path.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


plot = program(Path(__file__).resolve().parent / "plot")
tables = program(Path(__file__).resolve().parent / "tables")

STAT = """\
cpu  100 10 200 5000 30 40 50 0 0 0
cpu0 100 10 200 5000 30 40 50 0 0 0
intr 1234 0 0
ctxt 98765
btime 1700000000
"""
TRACE = """\
 kworker/0:1-50 [000] ..... 10.000001: cq_schedule: cq.id=7
 kworker/0:1-50 [000] ..... 10.000002: cq_process: cq.id=7
 kworker/0:1-50 [000] ..... 10.000003: cq_poll: cq.id=7 requested 16, returned 16
 kworker/0:1-50 [000] ..... 10.000004: cq_poll: cq.id=7 requested 16, returned 3
 kworker/0:1-50 [000] ..... 10.000005: cq_process: cq.id=9
 kworker/0:1-50 [000] ..... 10.000006: cq_poll: cq.id=9 requested 16, returned 0
 kworker/0:1-50 [000] ..... 10.000007: cq_process: cq.id=7
 kworker/0:1-50 [000] ..... 10.000008: cq_poll: cq.id=7 requested 16, returned 1
 kworker/0:1-50 [000] ..... 10.000009: cq_poll: cq.id=8 requested 16, returned 5
"""
CONTENTION = """\
# event histogram
{ stacktrace:
         native_queued_spin_lock_slowpath+0x26d/0x2c0
         _raw_spin_lock+0x29/0x30
         xprt_lookup_rqst+0x40/0x1b0 [sunrpc]
         rpcrdma_reply_handler+0x90/0x3a0 [rpcrdma]
} hitcount:         12
{ common_stacktrace:
         native_queued_spin_lock_slowpath+0x26d/0x2c0
         _raw_spin_lock+0x29/0x30
         _RNvXs_NtNtCsabc_7rpcrdma8endpoint+0x40/0x1b0 [rpcrdma]
} hitcount:          7
{ stacktrace:
         _raw_spin_lock+0x29/0x30
         cache_check+0x40/0x1b0 [sunrpc]
} hitcount:          1
{ stacktrace:
         _raw_spin_lock+0x29/0x30
         try_to_wake_up+0x40/0x1b0
} hitcount:          2
Totals:
    Hits: 22
"""


def run(stock: list[float], ours: list[float], better: str) -> results.Run:
    return results.Run("2026-11-27", "uml", "client", len(stock), {"row": better},
                       {results.STOCK: {"row": stock}, "ours": {"row": ours}})


class Counters(unittest.TestCase):
    """The counters of a node."""

    def test_stat(self) -> None:
        before = counters.parse_stat(STAT, 100)
        self.assertEqual(before, counters.Counters(98765, 4.0))
        after = counters.parse_stat(STAT.replace("98765", "98865").replace("cpu  100", "cpu  150"), 100)
        self.assertEqual(after - before, counters.Counters(100, 0.5))

    def test_batches(self) -> None:
        """A run may poll several times; a poll whose run began before the trace is left out."""
        self.assertEqual(sorted(counters.parse_trace(TRACE)), [0, 1, 19])


    def test_events(self) -> None:
        self.assertEqual(counters.parse_events("entries: 12\noverrun: 30\ncommit overrun: 5\nbytes: 9\nentries: 1\n"),
                         43)


    def test_contention(self) -> None:
        self.assertEqual(counters.parse_contention(CONTENTION),
                         {"queue_lock": 12, "the transport's": 7, "sunrpc's": 1, "others": 2})


class Results(unittest.TestCase):
    """The figures of a run."""

    def test_parse(self) -> None:
        self.assertEqual(results.parse("said\nread\t12.5\tmore\nlatency\t3\tless\n"),
                         {"read": (12.5, "more"), "latency": (3.0, "less")})

    def test_ratio(self) -> None:
        row, = run([100, 200, 400], [150, 200, 300], results.MORE).rows()
        self.assertEqual((row.ratio, min(row.ratios), max(row.ratios)), (1.0, 0.75, 1.5))

    def test_behind(self) -> None:
        for better, ours, behind in ((results.MORE, [90, 99], True), (results.MORE, [90, 101], False),
                                     (results.LESS, [101, 110], True), (results.LESS, [99, 110], False),
                                     (results.EXPLAINS, [1, 1], False)):
            row, = run([100, 100], ours, better).rows()
            self.assertEqual(row.behind, behind, (better, ours))

    def test_a_figure_of_zero(self) -> None:
        row, = run([0, 0], [1, 2], results.LESS).rows()
        self.assertFalse(row.behind)
        self.assertIn("1.5", row.text())

    def test_a_row_of_one_module(self) -> None:
        row, = run([], [90, 100], results.LESS).rows()
        self.assertEqual(row.text().split(), ["row", "--", "95.0"])
        self.assertFalse(row.behind)

    def test_text(self) -> None:
        self.assertEqual(run([100, 200], [90, 190], results.MORE).text().splitlines()[1].split(),
                         ["row", "150.0", "140.0", "0.93", "0.90-0.95", "behind"])

    def test_worse_than_recorded(self) -> None:
        """Worse is a row whose spread does not meet the spread of the recorded run."""
        for better, ours, worse in ((results.MORE, [79, 75], True), (results.MORE, [79, 81], False),
                                    (results.LESS, [91, 95], True), (results.LESS, [89, 95], False),
                                    (results.EXPLAINS, [10, 10], False)):
            recorded, now = run([100, 100], [80, 90], better), run([100, 100], ours, better)
            self.assertEqual(bool(list(now.worse_than(recorded))), worse, (better, ours))

    def test_a_new_row_has_no_record(self) -> None:
        recorded = results.Run("2026-11-27", "uml", "client", 1, {}, {results.STOCK: {}, "ours": {}})
        self.assertEqual(list(run([100], [1], results.MORE).worse_than(recorded)), [])

    def test_plot(self) -> None:
        drawn = ElementTree.fromstring(plot.svg(run([100, 100], [80, 90], results.MORE)))
        texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("0.85", texts)
        circle, = drawn.iter("{http://www.w3.org/2000/svg}circle")
        self.assertEqual(circle.get("fill"), plot.COLOURS["worse"])

    def test_file(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "run"
            before = run([100, 200], [90, 190], results.MORE)
            before.write(path)
            self.assertEqual(results.Run.read(path), before)


class Hosts(unittest.TestCase):
    """Two hosts, with a remote shell that writes down its arguments."""

    def test_measure(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            shell, log = Path(directory) / "rsh", Path(directory) / "log"
            shell.write_text(f'#!/bin/sh\necho "$@" >>{log}\nprintf "row\\t12\\tmore\\n"\n')
            shell.chmod(0o755)
            hosts = places.Hosts("one", "two", "192.0.2.1", "/srv/a b", str(shell))
            text = hosts.measure("ours", "stock", ["vers=3", "--groups", "names"])
            lines = log.read_text().splitlines()
        self.assertEqual(results.parse(text), {"row": (12.0, "more")})
        self.assertEqual(lines[:2], ["one rpcrdma-status swap-module rust",
                                     "two rpcrdma-status swap-module --restart-server c"])
        self.assertIn("one env SERVER=192.0.2.1 EXPORT='/srv/a b' ", lines[2])
        self.assertIn("/on-node vers=3 --groups names; ", lines[2])

    def test_a_command_that_fails(self) -> None:
        with self.assertRaises(SystemExit):
            places.Hosts("one", "two", "192.0.2.1", "/srv", "false").run("one", "true")


DOCUMENT = """\
Throughput
----------

.. recorded: bench client

old

.. end of recorded

After it.
"""


class Tables(unittest.TestCase):
    """The tables of the document."""

    def filled(self, document: str) -> str:
        with tempfile.TemporaryDirectory() as directory:
            run([100, 200], [90, 190], results.MORE).write(Path(directory) / "client")
            return tables.filled(document, Path("nowhere"), Path(directory))

    def test_filled(self) -> None:
        text = self.filled(DOCUMENT)
        self.assertNotIn("old", text)
        self.assertIn("\n    row ", text)
        self.assertTrue(text.endswith(".. end of recorded\n\nAfter it.\n"))
        self.assertEqual(self.filled(text), text)

    def test_a_table_without_end(self) -> None:
        with self.assertRaises(ValueError):
            self.filled(DOCUMENT.replace(".. end of recorded\n", ""))

    def test_a_table_that_does_not_exist(self) -> None:
        with self.assertRaises(ValueError):
            self.filled(DOCUMENT.replace("bench client", "wish client"))

    def test_tables_of_the_cost(self) -> None:
        cost = tables.cost_tables()
        figures = dict.fromkeys((*cost.INSTRUCTIONS, *cost.CALLS, *cost.WORK, *cost.MEMORY, *cost.WITH_SUNRPC,
                                 cost.WITH_MEMORY), 1.0)
        recorded = cost.Figures({"null": "NULL"}, dict.fromkeys(cost.MODULES, {"null": figures}),
                                dict.fromkeys(cost.MODULES, {}))
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "recorded"
            cost.write(path, {"server": recorded})
            text = tables.filled(DOCUMENT.replace("bench client", "cost server memory"), path, Path("nowhere"))
        self.assertIn("NULL              1 / 1        1 / 1  1 / 1  1 / 1", text)


if __name__ == "__main__":
    unittest.main()
