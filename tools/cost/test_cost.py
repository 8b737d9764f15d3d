#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of the tables of cost: a file of counts, as the plugin writes it, gives these figures."""

import contextlib
import io
import tempfile
import unittest

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import tables


def program(path: Path):
    """Returns the program at PATH as a module."""
    loader = SourceFileLoader(path.name, str(path))
    spec = spec_from_loader(path.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


cost = program(Path(__file__).resolve().parent / "cost")

KALLSYMS = """\
0000000000001000 T kfree
0000000000001100 T __kmalloc_noprof
0000000000001200 T kfree_skb_reason
0000000000001300 T alloc_pages_bulk_noprof
0000000000001400 T __folio_batch_release
0000000000001480 T krealloc_node_align_noprof
0000000000001500 T __pfx__raw_spin_lock
0000000000001510 T _raw_spin_lock
0000000000001600 d some_data
0000000000002000 t svc_fill_pages\t[sunrpc]
0000000000002100 t xprt_request_enqueue_receive\t[sunrpc]
0000000000003000 t svc_rdma_read\t[rpcrdma]
0000000000004000 t nfsd_read\t[nfsd]
0000000000005000 t __ib_process_cq\t[ib_core]
"""
COUNTS = """\
phase 0
total 9000 entered 2 left 2 lost 0 copied 40 copies 2 receives 0 signaled 0
wr 0 4
wr 32 2
entry 3000 5010 2 100 60
memory 1100 3010 1 4 0 400 0 0
memory 1000 3010 1 6 0 300 2 8
memory 1480 3010 1 10 8 300 0 0
memory 1300 2010 0 2 0 5000 512 0
memory 1400 2020 0 2 0 7000 0 520
memory 1000 4010 0 9 0 900 0 1
memory 1200 3010 1 5 0 5 0 0
lock ffff8001 2105 4 200 40 60
lock ffff8001 3018 2 100 0 90
lock ffff8002 3018 2 20 0 10
lock ffff8003 3028 2 20 0 10
block 3000 10 0 2 2 0
block 3020 20 0 2 2 0
block 1510 4 1 6 2 0
end
"""


def counted(kallsyms: str = KALLSYMS, counts: str = COUNTS, rows: str = "row read-4k 2\n") -> dict:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory)
        for name, text in (("kallsyms", kallsyms), ("counts", counts), ("rows", rows)):
            (out / name).write_text(text)
        return cost.read(out)


class Counts(unittest.TestCase):
    """The files of a run."""

    def test_figures(self) -> None:
        figures = counted()["read-4k"].figures()
        self.assertEqual(figures["own"], 30)
        self.assertEqual(figures["incl"], 34)
        self.assertEqual(figures["locks"], 1)
        self.assertEqual(figures["locked"], 1)
        self.assertEqual(figures["WRs"], 3)
        self.assertEqual(figures["MRs"], 1)
        self.assertEqual(figures["completions"], 1)
        self.assertEqual(figures["bytes copied"], 20)

    def test_a_row_without_counts(self) -> None:
        with self.assertRaises(SystemExit):
            counted(rows="row read-4k 2\nrow write-4k 2\n")

    def test_a_call_that_does_not_return(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            count = counted(counts=COUNTS.replace("left 2", "left 1"))["read-4k"]
        self.assertEqual(len(list(count.doubts())), 1)
        self.assertIn("2 calls entered the module, 1 left it", said.getvalue())


class Memory(unittest.TestCase):
    """The calls of allocators."""

    def setUp(self) -> None:
        self.figures = counted()["read-4k"].memory_figures()

    def test_of_the_module(self) -> None:
        self.assertEqual(self.figures["allocations"], 2 + 1)
        self.assertEqual(self.figures["frees"], 3 + 4)
        self.assertEqual(self.figures["pages"], 1)
        self.assertEqual(self.figures["pages freed"], 4)

    def test_of_sunrpc(self) -> None:
        self.assertEqual(self.figures["pages, sunrpc"], 1 + 256)
        self.assertEqual(self.figures["pages freed, sunrpc"], 4 + 260)

    def test_of_others(self) -> None:
        """nfsd's calls are in no figure."""
        self.assertEqual(self.figures["frees, sunrpc"], 7)

    def test_instructions(self) -> None:
        """The instructions of sunrpc's calls are added; incl has the instructions of the module's calls."""
        self.assertEqual(self.figures["incl, memory"], 34 + 2500 + 3500)


class Locks(unittest.TestCase):
    """The time that locks are held."""

    def test_names(self) -> None:
        """Calls of functions that take a single lock name it; other calls of the same lock do not."""
        locks = cost.lock_figures(counted()["read-4k"], {0x3018: "SpinLock<State>"})
        self.assertEqual(set(locks), {"queue_lock", "SpinLock<State>", "in svc_rdma_read"})

    def test_figures(self) -> None:
        locks = cost.lock_figures(counted()["read-4k"], {})
        self.assertEqual(locks["queue_lock"], {"taken": 3, "held": 150, "apart": 20, "longest": 90})


class Tables(unittest.TestCase):
    """The tables in reStructuredText."""

    def setUp(self) -> None:
        self.figures = cost.figures_of({module: counted() for module in cost.MODULES}, {})

    def test_table(self) -> None:
        self.assertEqual(tables.table(["", "own"], [["READ", "1,000"]]),
                         "====  =====\n\\     own\n====  =====\nREAD  1,000\n====  =====\n")

    def test_both_modules(self) -> None:
        texts = self.figures.texts()
        self.assertIn("READ 4 KiB, depth 1  30         30  1.00", texts["instructions"])
        self.assertIn("READ 4 KiB, depth 1          3 / 3        7 / 7  257 / 257  264 / 264",
                      texts["memory with sunrpc"])
        self.assertIn("READ 4 KiB, depth 1  queue_lock        3            150   20     90       3         150   20",
                      texts["locks"])

    def test_file(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "figures"
            tables.write(path, {"client": self.figures})
            tables.write(path, {"server": self.figures})
            self.assertEqual(tables.read(path), {"client": self.figures, "server": self.figures})


if __name__ == "__main__":
    unittest.main()
