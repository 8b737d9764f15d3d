#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of the reader of the documents' commands, and of the comparison of outputs."""

import importlib.machinery
import importlib.util
import tempfile
import unittest
from pathlib import Path

import console

HERE = Path(__file__).resolve().parent


def program(name):
    """A program without a suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(HERE / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class Tried(unittest.TestCase):
    """The selftests run a command of the documents, of which they have a copy."""

    def test_the_replacement_of_a_key(self):
        test = (HERE.parents[1] / "selftests/version2/hostauth.sh").read_text(encoding="utf-8")
        guide = console.read(HERE.parents[1] / "Documentation/security.rst")
        command, = (one.text for one in guide.tried() + guide.untried() if one.text.startswith("keyctl session"))
        self.assertIn(f"\t\t{command}\n", test)


class Read(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as top:
            path = Path(top) / "page.rst"
            path.write_text(text, encoding="utf-8")
            return console.read(path)

    def refused(self, text, message):
        with self.assertRaisesRegex(console.Wrong, message):
            self.read(text)

    def test_commands(self):
        page = self.read("A\n=\n\n.. lab: bare siw\n\n.. code-block:: console\n\n   # a\n   client# b\n   server# c\n"
                         "   $ d\n   server$ e <<END\n   > f\n   > END\n\nText.\n")
        self.assertEqual(page.lab, ("bare", "siw"))
        self.assertEqual([(one.line, one.node, one.is_user, one.text) for one in page.tried()], [
            (8, "client", False, "a"), (9, "client", False, "b"), (10, "server", False, "c"),
            (11, "client", True, "d"), (12, "server", True, "e <<END\nf\nEND")])

    def test_output_and_interrupts(self):
        commands = self.read(".. code-block:: console\n\n   # a\n   one\n\n     two\n   # b\n   ^C\n").tried()
        self.assertEqual([one.output for one in commands], [["one", "  two"], []])
        self.assertEqual([one.is_interrupted for one in commands], [False, True])

    def test_blocks_that_are_not_tried(self):
        page = self.read("Text.\n\n.. untried: no switch\n\n.. code-block:: console\n\n   # a\n   # b\n\n"
                         "- An item:\n\n  .. code-block:: console\n\n     # c\n")
        self.assertEqual([one.text for one in page.untried()], ["a", "b"])
        self.assertEqual([one.text for one in page.tried()], ["c"])
        self.assertEqual(page.blocks[0].reason, "no switch")

    def test_blocks_of_another_kind(self):
        self.assertEqual(self.read(".. code-block:: text\n\n   # a::\n\n   b::\n").blocks, [])
        for text in ("Type::\n\n    a\n", "Type\n\n::\n\n    a\n", ".. code-block::\n\n   a\n",
                     ".. code:: sh\n\n   a\n"):
            self.refused(text, "page.rst:.*one of the languages text")

    def test_mistakes(self):
        self.refused(".. code-block:: console\n\n   a\n", "page.rst:3: the first line of a block has no prompt: a")
        self.refused(".. code-block:: console\n\nText.\n", "page.rst:1: the block has no command")
        self.refused(".. untried: no switch\n\nText.\n", "page.rst:3: no block follows the comment")

    def test_the_pages_of_the_tree(self):
        names = [path.name for path in console.pages()]
        self.assertIn("quick-start.rst", names)
        self.assertNotIn("architecture.rst", names)


class Output(unittest.TestCase):
    def test_missing_lines(self):
        missing = program("on-node").missing
        self.assertIsNone(missing([], "x\n"))
        self.assertIsNone(missing(["a ... c", "  d"], "0\n  a b c\nz\nd\n"))
        self.assertEqual(missing(["d", "a"], "a\nd\n"), "a")
        self.assertEqual(missing(["a"], "ab\n"), "a")
        self.assertEqual(missing(["a.c"], "abc\n"), "a.c")


if __name__ == "__main__":
    unittest.main()
