#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of the conformance tool on small source trees."""

import contextlib
import io
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

HERE = Path(__file__).resolve().parent


def load_tool():
    loader = SourceFileLoader("conformance", str(HERE / "conformance"))
    module = module_from_spec(spec_from_loader("conformance", loader))
    loader.exec_module(module)
    return module


conformance = load_tool()

V1_ROWS = """\
# A comment, and a blank line.

V1-001 | 5 | MUST | both | U | D-01 | Words are big-endian.
V1-002 | 5 | implied | Req | UV | - | A call is *marked* by rdma_ zero.
V1-003 | 6 | MAY | Rsp | F | - | Grants may change.
V1-004 | 6 | SHOULD NOT | both | R | - | Nothing is guessed.
"""
DECISIONS = "D-01 | Byte order | All of it is big-endian. | XDR says so.\n"
WAITS = """\
* * | V | client | seen in a capture
* * | F | lab | a scripted peer
* * | R | review | read it
OLD * | - | none | superseded
"""


class Tree:
    """A source tree with a handful of requirements and the given files."""

    def __init__(self, files):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        tables = {
            "v1": V1_ROWS,
            "v2": "",
            "cm": "",
            "nfs": "",
            "old": "OLD-001 | 4.2 | - | both | - | - | Had a union. Now a prefix.\n",
            "decisions": DECISIONS,
            "waits": WAITS,
        }
        for name, text in tables.items():
            self.write_table(name, text)
        for name, text in files.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name):
        return (self.root / name).read_text()

    def write_table(self, name, text):
        self.write(f"Documentation/requirements/{name}.txt", text)

    def matrix(self):
        return conformance.Matrix(self.root)

    def run(self, *arguments):
        """Run the tool: exit status, standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = conformance.main(list(arguments), self.root)
        return status, out.getvalue(), err.getvalue()


class TestCase(unittest.TestCase):
    def tree(self, files=None):
        tree = Tree(files or {})
        self.addCleanup(tree.folder.cleanup)
        return tree


class Citations(TestCase):
    def test_code_and_tests_are_told_apart(self):
        row = self.tree({
            "rust/proto/xdr.rs": "    //= V1-001, V1-002\n    let x = 1; //= V1-003\n",
            "rust/proto/v1.rs": "//= V1-001 (test)\n",
            "tools/proto/tests/xdr.rs": "//= V1-001\n",
            "tools/proto/fuzz/src/main.rs": "//= V1-001\n",
            "selftests/credits.sh": "#= V1-001\n",
            "tools/lab/lab": "#!/bin/sh\n#= V1-001 (test)\n",
        }).matrix().requirements["V1-001"]
        self.assertEqual(row.code, {"rust/proto/xdr.rs"})
        self.assertEqual(
            row.host_tests,
            {"rust/proto/v1.rs", "tools/proto/tests/xdr.rs", "tools/proto/fuzz/src/main.rs"},
        )
        self.assertEqual(row.lab_tests, {"selftests/credits.sh", "tools/lab/lab"})

    def test_unknown_id_is_refused_with_its_place(self):
        tree = self.tree({"rust/proto/xdr.rs": "\n//= V1-001, V1-999\n"})
        status, _, err = tree.run()
        self.assertEqual(status, 1)
        self.assertIn("rust/proto/xdr.rs:2: there is no requirement or decision V1-999", err)

    def test_malformed_citation_is_refused(self):
        for text in ("//= V1-001,", "//= V1-001 V1-002", "//= section 5", "//=V1-001 (tests)"):
            with self.subTest(text):
                status, _, err = self.tree({"rust/a.rs": text + "\n"}).run()
                self.assertEqual(status, 1)
                self.assertIn("rust/a.rs:1: write a citation as", err)

    def test_what_is_no_citation_is_left_alone(self):
        tree = self.tree({
            "rust/a.rs": "//=====\n// = V1-999\n",
            "tools/a.py": "a //= 2\n",
            "tools/notes.txt": "#= V1-999\n",
            "tools/notes": "#= V1-999\n",
            "tools/proto/target/a.rs": "//= V1-999\n",
            "tools/conformance/test_a.py": "#= V1-999\n",
        })
        self.assertEqual(tree.matrix().problems, [])

    def test_decision_is_cited_too(self):
        tree = self.tree({"rust/a.rs": "//= D-01\n"})
        self.assertEqual(tree.matrix().decisions["D-01"].cited, {"rust/a.rs"})


class Coverage(TestCase):
    def test_every_kind_needs_its_own_evidence(self):
        tree = self.tree({
            "rust/a.rs": "//= V1-002, V1-003, V1-004\n",
            "tools/proto/tests/a.rs": "//= V1-002, V1-003\n",
        })
        rows = tree.matrix().requirements
        self.assertEqual(rows["V1-001"].open_kinds(), ["U"])
        self.assertEqual(rows["V1-002"].open_kinds(), ["V"])
        self.assertEqual(rows["V1-003"].open_kinds(), ["F"])
        self.assertEqual(rows["V1-004"].open_kinds(), [])
        tree.write("selftests/a.sh", "#= V1-002, V1-003\n")
        rows = tree.matrix().requirements
        self.assertEqual(rows["V1-002"].open_kinds(), [])
        self.assertEqual(rows["V1-003"].open_kinds(), [])

    def test_level_is_the_strongest_keyword(self):
        for keyword, level in (
            ("MUST NOT/MAY", "MUST"),
            ("MAY/REQUIRED", "MUST"),
            ("SHOULD NOT/SHOULD", "SHOULD"),
            ("OPTIONAL", "MAY"),
            ("implied", "implied"),
        ):
            row = conformance.Requirement("V1-001", "5", keyword, "both", "U", "-", "x")
            self.assertEqual(row.level, level)

    def test_requirement_without_test_or_reason_is_refused(self):
        tree = self.tree()
        tree.write_table("waits", "* Rsp | F | lab | later\nOLD * | - | x | y\n")
        problems = "\n".join(tree.matrix().problems)
        self.assertIn("V1-002 (lab) is not covered", problems)
        self.assertIn("V1-004 (review) is not covered", problems)
        self.assertNotIn("V1-003", problems)

    def test_reason_by_id_comes_first_and_excuses_unit_tests(self):
        tree = self.tree()
        tree.write_table("waits", WAITS + "V1-001, V1-002 | UV | kernel | x\n")
        matrix = tree.matrix()
        self.assertEqual(matrix.wait_for(matrix.requirements["V1-002"], "V").layer, "kernel")
        self.assertEqual(matrix.core_rows(), [])

    def test_reason_that_is_no_longer_needed_is_refused(self):
        tree = self.tree({"rust/a.rs": "//= V1-001\n//= V1-001 (test)\n"})
        tree.write_table("waits", WAITS + "V1-001 | U | kernel | x\n")
        message = "waits.txt: V1-001 no longer waits for kernel; remove it there"
        self.assertEqual(tree.matrix().problems, [message])

    def test_percentages(self):
        tree = self.tree({
            "rust/a.rs": "//= V1-001, V1-004\n",
            "tools/proto/tests/a.rs": "//= V1-001\n",
        })
        matrix = tree.matrix()
        self.assertEqual(
            conformance.summary(matrix, conformance.by_document),
            [["rfc5666bis", "4", "1/2 50 %", "2/4 50 %"]],
        )
        self.assertEqual(
            conformance.summary(matrix, conformance.by_level)[0],
            ["MUST", "1", "1/1 100 %", "1/1 100 %"],
        )


class Data(TestCase):
    def assert_refused(self, table, text, message):
        tree = self.tree()
        tree.write_table(table, text)
        status, _, err = tree.run()
        self.assertEqual(status, 1)
        self.assertIn(message, err)

    def test_row_with_missing_columns(self):
        self.assert_refused("v1", "V1-001 | 5 | MUST\n", "v1.txt:1: expected 7 columns")

    def test_id_defined_twice(self):
        row = V1_ROWS.splitlines()[2] + "\n"
        self.assert_refused("v1", row + row, "an id is defined twice")

    def test_unknown_decision(self):
        row = "V1-001 | 5 | MUST | both | U | D-77 | Text.\n"
        self.assert_refused("v1", row, "V1-001 refers to the unknown decision D-77")

    def test_wait_for_unknown_id(self):
        self.assert_refused("waits", "V1-077 | V | a | b\n", "there is no requirement V1-077")

    def test_default_that_excuses_unit_tests(self):
        self.assert_refused("waits", "* * | UV | a | b\n", "excuses unit tests")


class Pages(TestCase):
    def test_check_wants_every_must_and_should(self):
        tree = self.tree()
        status, _, err = tree.run("--check")
        self.assertEqual(status, 1)
        self.assertIn("V1-001 (MUST) is not cited", err)
        self.assertNotIn("V1-002", err)
        tree.write("rust/a.rs", "//= V1-001\n")
        tree.write("tools/proto/tests/a.rs", "//= V1-001\n")
        self.assertEqual(tree.run("--check")[0], 0)
        self.assertFalse((tree.root / "build").exists())

    def test_open_lists_what_lacks(self):
        tree = self.tree({"rust/a.rs": "//= V1-001\n"})
        status, out, _ = tree.run("--open")
        self.assertEqual(status, 0)
        self.assertIn("V1-001 MUST both, no citation at test: Words are big-endian.", out)
        self.assertIn("V1-002 implied Req, no citation at code and test:", out)
        self.assertFalse((tree.root / "build/conformance.rst").exists())

    def test_pages_tell_where_and_why(self):
        tree = self.tree({
            "rust/a.rs": "//= V1-001, D-01\n",
            "tools/proto/tests/a.rs": "//= V1-001\n",
        })
        tree.run()
        page = tree.read("build/conformance.rst")
        self.assertIn("     - Words are big-endian. (D-01)\n     - ``rust/a.rs``\n", page)
        self.assertIn("     - ``tools/proto/tests/a.rs``\n", page)
        self.assertIn("     - A call is \\*marked\\* by rdma\\_ zero.\n", page)
        self.assertIn("unit → *core*: not cited yet; lab → *client*: seen in a capture", page)
        self.assertIn("no test → *none*: superseded", page)
        self.assertIn("Cited in ``rust/a.rs``.", tree.read("build/decisions.rst"))

    def test_the_tables_of_the_project_are_sound(self):
        matrix = conformance.Matrix(conformance.ROOT)
        self.assertEqual(len(matrix.requirements), 460)
        self.assertEqual(len(matrix.decisions), 52)


if __name__ == "__main__":
    unittest.main()
