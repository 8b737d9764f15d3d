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
# Why each row of V1 is without a test, by its id.
REASONS = {
    "V1-002": "V1-002 | V | client | no capture has it\n",
    "V1-003": "V1-003 | F | lab | no peer does it\n",
    "V1-004": "V1-004 | R | review | nobody has read it\n",
}
OLD = "OLD | - | none | superseded\n"
WAITS = "".join(REASONS.values()) + OLD
# A program of selftests, whose function `one` is a test and `helps` is none.
PROGRAM = """\
helps() {
	true
}

%sone() {
	helps
}

tests "one 3" "one 4.2"
"""


def program(citation="#= V1-002\n"):
    return PROGRAM % citation


def waits_without(*ids):
    return "".join(line for name, line in REASONS.items() if name not in ids) + OLD


def boots(quick, long="", skips="()"):
    """A tools/check/check-lab whose boots run these programs."""
    head = "class Boot:\n    def __init__(self, programs, skips=()):\n" \
        "        self.programs, self.skips = programs, skips\n\n"
    return (f"{head}BOOTS = (Boot(({quick!r},), {skips}),)\n"
            f"LONG_BOOTS = (Boot(({long!r},)),) if {long!r} else ()\n")


class Tree:
    """A source tree with a handful of requirements and the given files."""

    def __init__(self, files):
        # The folder ends with the tree.
        # pylint: disable-next=consider-using-with
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        tables = {
            "v1": V1_ROWS,
            "v2": "",
            "cm": "",
            "va": "",
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
            "rust/proto/v1.rs": "//= V1-001 (test)\n#[test]\nfn a() {}\n",
            "tools/proto/tests/xdr.rs": "//= V1-001\n#[test]\nfn a() {}\n",
            "tools/proto/fuzz/src/main.rs": "//= V1-001\nfn main() {}\n",
            "selftests/credits.sh": program("#= V1-001\n"),
            "tools/lab/lab": "#!/bin/sh\n#= V1-001 (test)\ntrue\n",
        }).matrix().requirements["V1-001"]
        self.assertEqual(row.code, {"rust/proto/xdr.rs"})
        self.assertEqual(
            row.host_tests,
            {"rust/proto/v1.rs", "tools/proto/tests/xdr.rs", "tools/proto/fuzz/src/main.rs"},
        )
        self.assertEqual(row.lab_tests, {"selftests/credits.sh", "tools/lab/lab"})

    def test_unknown_id_is_refused_with_its_place(self):
        tree = self.tree({"rust/proto/xdr.rs": "\n//= V1-001, V1-999\nfn a() {}\n"})
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
        tree = self.tree({"rust/a.rs": "//= D-01\nfn a() {}\n"})
        self.assertEqual(tree.matrix().decisions["D-01"].cited, {"rust/a.rs"})


class Place(TestCase):
    """A citation stands directly above its code, so that both are removed together."""

    def problems(self, files):
        return "\n".join(self.tree(files).matrix().problems)

    def test_nothing_below(self):
        for rest in ("", "\n", "\nfn b() {}\n", "}\n", "    ]\n"):
            with self.subTest(rest):
                self.assertIn("rust/a.rs:1: nothing stands below this citation",
                              self.problems({"rust/a.rs": "//= V1-001\n" + rest}))

    def test_a_comment_of_something_else_below(self):
        for name, text in (("rust/a.rs", "//= V1-001\n/// Does it.\nfn a() {}\n"),
                           ("selftests/a.sh", program("#= V1-001\n# Does it.\n"))):
            with self.subTest(name):
                self.assertIn("put the citation behind the comment", self.problems({name: text}))

    def test_attributes_and_more_citations_between(self):
        text = "//= V1-001\n//= D-01\n#[inline]\nfn a() {}\n\nfilled(\n    //= V1-002\n    fill(x),\n)\n"
        tree = self.tree({"rust/a.rs": text})
        self.assertEqual(tree.matrix().requirements["V1-001"].code, {"rust/a.rs"})
        self.assertEqual(tree.matrix().requirements["V1-002"].code, {"rust/a.rs"})

    def test_two_at_one_test(self):
        two = "#= V1-001\n#= V1-002\n"
        self.assertIn("two citations at one test", self.problems({"selftests/a.sh": program(two)}))
        full = "//= V1-001, V1-001, V1-001 (test)\n//= V1-002 (test)\n#[test]\nfn a() {}\n"
        self.assertNotIn("two citations", self.problems({"tools/proto/tests/a.rs": full}))

    def test_at_most_three_in_a_line(self):
        text = "//= V1-001, V1-002, D-01, V1-001\nfn a() {}\n"
        self.assertIn("rust/a.rs:1: write at most 3 ids in a line", self.problems({"rust/a.rs": text}))
        self.assertNotIn("at most", self.problems({"rust/a.rs": text.replace(", V1-001", "")}))

    def test_explain(self):
        tree = self.tree({})
        for name, part in (("V1-001", "V1-001 ("), ("D-01", "why: ")):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                self.assertEqual(conformance.main(["--explain", name], tree.root), 0)
            self.assertIn(part, out.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(conformance.main(["--explain", "V1-999"], tree.root), 1)
        self.assertIn("there is no row V1-999", err.getvalue())

    def test_helpers_of_a_program_in_shell(self):
        text = program("").replace("helps() {", "#= V1-002\nhelps() {")
        self.assertIn("selftests/a.sh:1: helps is no test", self.problems({"selftests/a.sh": text}))
        # A function that only prepares another test is no test, either.
        text = text.replace('"one 3"', '"helps one 3"')
        self.assertIn("selftests/a.sh:1: helps is no test", self.problems({"selftests/a.sh": text}))
        text = text.replace('"helps one 3"', '"helps"')
        self.assertNotIn("is no test", self.problems({"selftests/a.sh": text}))

    def test_preparing_functions_of_a_sourced_file(self):
        text = '. "$(dirname "$0")/peer.sh"\n' + program().replace("one 3", "in_version_2 one 3").replace(
            'tests "in_version_2 one 3" "one 4.2"', 'tests "in_version_2 one 3"')
        files = {"selftests/a.sh": text, "selftests/peer.sh": "in_version_2() {\n\t\"$@\"\n}\n"}
        self.assertNotIn("is no test", self.problems(files))
        files["selftests/peer.sh"] = "negotiated() {\n\t\"$@\"\n}\n"
        self.assertIn("one is no test", self.problems(files))

    def test_helpers_of_a_program_in_python(self):
        for below, is_test in (("def a(talk):", True), ("def a(talk: Talk) -> None:", True),
                               ("@case()\ndef a(c):", True), ('before("fails", "one", 1)', True),
                               ('before("two", 1)', False),
                               ("def a(talk, other):", False), ("    def hear(self):", False)):
            with self.subTest(below):
                said = self.problems({"selftests/a.py": f"#= V1-002\n{below}\n", "selftests/a.sh": program("")})
                self.assertEqual("is no test" in said, not is_test)

    def test_a_test_that_a_fault_declares(self):
        text = "#= V1-002\nfails() {\n\ttrue\n}\n"
        declares = "print('fails a_fault another')\n"
        files = {"selftests/a.sh": text + '\ntests_with_faults "b"\n', "selftests/lib/expected.py": declares}
        self.assertNotIn("is no test", self.problems(files))
        files["selftests/a.sh"] = text + '\ntests "b"\n'
        self.assertIn("fails is no test", self.problems(files))

    def test_a_test_that_no_boot_runs(self):
        files = {"selftests/a.sh": program()}
        for run, said in (("a.sh", ""), ("a.sh one_4", ""), ("V=2 a.sh one", ""), ("a.sh two", "runs one"),
                          ("b.sh", "runs one")):
            with self.subTest(run):
                files["tools/check/check-lab"] = boots(run)
                self.assertEqual("no boot of tools/check/check-lab runs one" in self.problems(files),
                                 bool(said))

    def test_a_test_that_may_be_skipped_everywhere(self):
        files = {"selftests/a.sh": program()}
        for skips, refused in (('("a.sh: one .* # SKIP no device",)', True),
                               ('("a.sh: one 3 # SKIP no device",)', False)):
            with self.subTest(skips):
                files["tools/check/check-lab"] = boots("a.sh", skips=skips)
                self.assertEqual("one may be skipped in each boot" in self.problems(files), refused)

    def test_a_test_of_long_boots_is_marked(self):
        tree = self.tree({"selftests/a.sh": program(), "tools/check/check-lab": boots("b.sh", "a.sh")})
        self.assertEqual(tree.matrix().requirements["V1-002"].lab_tests,
                         {"selftests/a.sh (make check-stress)"})


class Coverage(TestCase):
    def test_every_kind_needs_its_own_evidence(self):
        tree = self.tree({
            "rust/a.rs": "//= V1-002, V1-003, V1-004\nfn a() {}\n",
            "tools/proto/tests/a.rs": "//= V1-002, V1-003\n#[test]\nfn a() {}\n",
        })
        rows = tree.matrix().requirements
        self.assertEqual(rows["V1-001"].open_kinds(), ["U"])
        self.assertEqual(rows["V1-002"].open_kinds(), ["V"])
        self.assertEqual(rows["V1-003"].open_kinds(), ["F"])
        self.assertEqual(rows["V1-004"].open_kinds(), [])
        tree.write("selftests/a.sh", program("#= V1-002, V1-003\n"))
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
        tree = self.tree({"rust/a.rs": "//= V1-002\nfn a() {}\n"})
        tree.write_table("waits", waits_without("V1-002", "V1-004"))
        self.assertEqual(tree.matrix().problems, [
            "V1-002 (lab): no citation at a test of the lab; "
            "cite it, or write why into waits.txt: V1-002 | V | LAYER | REASON",
            "V1-004 (review): no citation at the code; "
            "cite it, or write why into waits.txt: V1-004 | R | LAYER | REASON",
        ])

    def test_reason_by_id_excuses_unit_tests(self):
        tree = self.tree()
        tree.write_table("waits", waits_without("V1-002") + "V1-001, V1-002 | U | kernel | x\n"
                         "V1-002 | V | client | y\n")
        matrix = tree.matrix()
        self.assertEqual(matrix.wait_for(matrix.requirements["V1-002"], "V").layer, "client")
        self.assertEqual(matrix.core_rows(), [])

    def test_reason_that_is_no_longer_needed_is_refused(self):
        tree = self.tree({"rust/a.rs": "//= V1-001, V1-004\nfn a() {}\n//= V1-001 (test)\nfn b() {}\n"})
        tree.write_table("waits", WAITS + "V1-001 | U | kernel | x\n")
        self.assertEqual([problem[:45] for problem in tree.matrix().problems],
                         ["waits.txt: V1-004 has a reason to be without ",
                          "waits.txt: V1-001 has a reason to be without "])

    def test_kind_that_is_no_longer_open_is_refused(self):
        tree = self.tree({"rust/a.rs": "//= V1-002\nfn a() {}\n", "selftests/a.sh": program()})
        tree.write_table("waits", waits_without("V1-002") + "V1-002 | UV | kernel | x\n")
        self.assertEqual(tree.matrix().problems, [
            "waits.txt: V1-002 has a reason to be without kind V, which is cited or not asked for; "
            "remove it there"])

    def test_two_reasons_are_refused(self):
        tree = self.tree()
        tree.write_table("waits", WAITS + "V1-002 | V | kernel | x\n")
        self.assertEqual(tree.matrix().problems, ["waits.txt: V1-002 has 2 reasons for kind V"])

    def test_a_requirement_that_is_not_kept(self):
        tree = self.tree()
        tree.write_table("waits", waits_without("V1-003") + "V1-003 | F | deviation | not done\n")
        self.assertEqual(conformance.summary(tree.matrix(), conformance.by_document)[0][4:], ["3", "1", "0"])

    def test_percentages(self):
        tree = self.tree({
            "rust/a.rs": "//= V1-001, V1-004\nfn a() {}\n",
            "tools/proto/tests/a.rs": "//= V1-001\n#[test]\nfn a() {}\n",
        })
        matrix = tree.matrix()
        self.assertEqual(
            conformance.summary(matrix, conformance.by_document),
            [["rfc5666bis", "4", "1/2 50 %", "2/4 50 %", "2", "0", "0"],
             ["version two individual draft (2016)", "1", "-", "-", "0", "0", "1"]],
        )
        self.assertEqual(
            conformance.summary(matrix, conformance.by_level)[0],
            ["MUST", "1", "1/1 100 %", "1/1 100 %", "0", "0", "0"],
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

    def test_defaults(self):
        self.assert_refused("waits", "* Rsp | F | a | b\n", "there is no requirement * Rsp")
        self.assert_refused("waits", "V1 | F | a | b\n", "excuses a whole document from tests")

    def test_one_reason_for_many(self):
        ids = ", ".join(["V1-002"] * 7)
        self.assert_refused("waits", f"{ids} | V | a | b\n", "V1-002 and 6 others share a reason")
        self.assert_refused("waits", "V1-002 | V | a | b\nV1-003 | F | a | b\n",
                            "V1-003: another line has the same reason")


class Pages(TestCase):
    def test_check_wants_every_must_and_should(self):
        tree = self.tree()
        status, _, err = tree.run("--check")
        self.assertEqual(status, 1)
        self.assertIn("V1-001 (MUST) is not cited", err)
        self.assertNotIn("V1-002", err)
        tree.write("rust/a.rs", "//= V1-001\nfn a() {}\n")
        tree.write("tools/proto/tests/a.rs", "//= V1-001\n#[test]\nfn a() {}\n")
        self.assertEqual(tree.run("--check")[0], 0)
        self.assertFalse((tree.root / "build").exists())

    def test_open_lists_what_lacks(self):
        tree = self.tree({"rust/a.rs": "//= V1-001\nfn a() {}\n"})
        status, out, _ = tree.run("--open")
        self.assertEqual(status, 0)
        self.assertIn("V1-001 MUST both, no citation at test: Words are big-endian.", out)
        self.assertIn("V1-002 implied Req, no citation at code and test:", out)
        self.assertFalse((tree.root / "build/conformance.rst").exists())

    def test_pages_tell_where_and_why(self):
        tree = self.tree({
            "rust/a.rs": "//= V1-001, D-01\nfn a() {}\n",
            "tools/proto/tests/a.rs": "//= V1-001\n#[test]\nfn a() {}\n",
        })
        tree.run()
        page = tree.read("build/conformance.rst")
        self.assertIn("     - Words are big-endian. (D-01)\n     - ``rust/a.rs``\n", page)
        self.assertIn("     - ``tools/proto/tests/a.rs``\n", page)
        self.assertIn("     - A call is \\*marked\\* by rdma\\_ zero.\n", page)
        self.assertIn("unit → *core*: not cited yet; lab → *client*: no capture has it", page)
        self.assertIn("no test → *none*: superseded", page)
        self.assertIn("Cited in ``rust/a.rs``.", tree.read("build/decisions.rst"))

    def test_the_tables_of_the_project_are_sound(self):
        matrix = conformance.Matrix(conformance.ROOT)
        self.assertEqual(len(matrix.requirements), 472)
        self.assertEqual(len(matrix.decisions), 54)


if __name__ == "__main__":
    unittest.main()
