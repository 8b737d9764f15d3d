#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of the lints: each reports every mistake of its kind, and no other line."""

import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPDX = "SPDX-License-Identifier: GPL-2.0"


class Lint(unittest.TestCase):
    """Runs a lint over a crate made for the test."""

    def setUp(self):
        # The directory ends with the test.
        # pylint: disable-next=consider-using-with
        self.top = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def write(self, name, text):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_lint(self, *argv):
        done = subprocess.run([HERE / argv[0], *argv[1:]], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class FileLint(Lint):
    """Runs a lint over a file made for the test."""

    def verdict(self, name, text):
        raise NotImplementedError

    def assert_refused(self, name, text, message):
        status, output = self.verdict(name, text)
        self.assertEqual(status, 1, output)
        self.assertIn(message, output)

    def assert_taken(self, name, text):
        status, output = self.verdict(name, text)
        self.assertEqual(status, 0, output)


class Map(Lint):
    CODE = "fn a() { b() }\nfn b() {}\nfn c() { d(); }\nfn d() {}\n"

    def verdict(self, *steps):
        self.write("rust/x.rs", self.CODE)
        self.write("map.rst", "".join(f"#. {step}\n" for step in steps * 3))
        return self.run_lint("map", self.top / "map.rst", self.top / "rust")

    def test_steps_that_follow_each_other(self):
        status, output = self.verdict("*core* ``x.rs`` ``a``", "``x.rs`` ``b``",
                                      "*completion* ``x.rs`` ``c``: more", "``x.rs`` ``d``")
        self.assertEqual(status, 0, output)

    def test_a_step_that_the_one_before_does_not_make(self):
        status, output = self.verdict("*core* ``x.rs`` ``a``", "``x.rs`` ``d``",
                                      "*core* ``x.rs`` ``c``", "``x.rs`` ``d``")
        self.assertEqual(status, 1)
        self.assertIn("map.rst:2: a does not name d", output)

    def test_a_function_or_file_that_is_gone(self):
        status, output = self.verdict("*core* ``x.rs`` ``a``", "``x.rs`` ``b``",
                                      "*core* ``x.rs`` ``gone``", "*core* ``y.rs`` ``a``")
        self.assertEqual(status, 1)
        self.assertIn("map.rst:3: there is no fn gone in x.rs", output)
        self.assertIn("map.rst:4: there is no fn a in y.rs", output)

    def test_a_caller_that_is_another_step(self):
        self.assertEqual(self.verdict("*core* ``x.rs`` ``a``", "*x.rs: c* ``x.rs`` ``d``")[0], 1)
        steps = ("*core* ``x.rs`` ``a``", "*core* ``x.rs`` ``c``", "``x.rs`` ``d``", "*x.rs: a* ``x.rs`` ``b``")
        status, output = self.verdict(*steps)
        self.assertEqual(status, 0, output)
        status, output = self.verdict(*steps, "*x.rs: a* ``x.rs`` ``d``", "*x.rs: gone* ``x.rs`` ``d``")
        self.assertIn("map.rst:5: a does not name d", output)
        self.assertIn("map.rst:6: gone does not name d", output)

    def test_no_map(self):
        self.assertEqual(self.verdict("*core* ``x.rs`` ``a``")[0], 1)


class Barriers(FileLint):
    PAIR = """impl A {
    fn give(&self) {
        self.space.store(true, Relaxed);
        // Pairs with the barrier of `A::look`.
        full_barrier();
        self.wake();
    }

    fn look(&self) {
        // Space may have come before the flag was seen. Pairs
        // with the barrier of `A::give`.
        full_barrier();
    }
}
"""

    def verdict(self, name, text):
        self.write(name, text)
        self.write("glue.c", "/* Gives. */\nvoid rpcrdma_put(int a)\n{\n\tsmp_mb();\n}\n")
        return self.run_lint("barriers", self.top)

    def test_pairs(self):
        self.assert_taken("x.rs", self.PAIR)
        look = self.PAIR.index("        // Space")
        for other in ("self.a.xchg(0, Full);", "unsafe { bindings::rpcrdma_put(0) };"):
            self.assert_taken("x.rs", f"{self.PAIR[:look]}{other}\n    }}\n}}\n")

    def test_a_call_without_a_comment_or_a_comment_without_a_call(self):
        self.assert_refused("x.rs", self.PAIR.replace("Pairs with", "See"),
                            "x.rs:5: no comment names the barrier")
        self.assert_refused("x.rs", self.PAIR.replace("        full_barrier();\n        self", "        self"),
                            "x.rs:5: the comment tells of a pair of barriers")

    def test_a_pair_of_a_function_without_a_barrier(self):
        self.assert_refused("x.rs", self.PAIR.replace("`A::look`", "`A::gone`"),
                            "no function with a barrier is named gone")

    def test_no_barriers(self):
        self.assert_refused("x.rs", "fn a() {}\n", "has a barrier")


class Events(Lint):
    CODE = "    struct TheEvent<'a> = the_event {\n        a: u32,\n        b: &'a str,\n    }\n"
    HEADER = ("DECLARE_EVENT_CLASS(a_class,\n\tTP_PROTO(u32 x),\n\tTP_STRUCT__entry(\n\t\t__field(u32, x)\n\t)\n);\n"
              "TRACE_EVENT(the_event,\n\tTP_PROTO(u32 a,\n\t\t const char *b),\n"
              "\tTP_STRUCT__entry(\n\t\t__field(unsigned int, a)\n\t\t__string_len(b, b->data, b->len)\n\t)\n);\n")
    MODULE = "the_event: unsigned int a, string b\n"

    def verdict(self, code, header, module=MODULE, missing=""):
        names = ("trace.rs", "events.h", "module", "missing")
        for name, text in zip(names, (code, header, module, missing)):
            self.write(name, text)
        return self.run_lint("events", *(self.top / name for name in names))

    def test_the_same_names(self):
        status, output = self.verdict(self.CODE, self.HEADER)
        self.assertEqual(status, 0, output)

    def test_other_names_or_another_order(self):
        for header in (self.HEADER.replace("*b", "*c"), self.HEADER.replace("u32 a", "u32 b, u32 a"),
                       self.HEADER.replace("the_event", "other")):
            status, output = self.verdict(self.CODE, header, "")
            self.assertEqual(status, 1)
            self.assertIn("TheEvent has the fields ['a', 'b'], and the_event has", output)

    def test_an_event_without_a_struct_and_a_struct_of_another_name(self):
        more = "DEFINE_EVENT(a_class, more,\n\tTP_PROTO(u32 x),\n);\n"
        status, output = self.verdict(self.CODE, self.HEADER + more)
        self.assertEqual((status, output), (1, "more has no struct\n"))
        status, output = self.verdict(self.CODE.replace("TheEvent", "Event"), self.HEADER)
        self.assertEqual((status, output), (1, "Event is not the_event in camel case\n"))

    def assert_module(self, module, missing, message):
        self.assertEqual(self.verdict(self.CODE, self.HEADER, module, missing), (1, message + "\n"))

    def test_fields_of_the_c_module(self):
        self.assert_module("the_event: int a, string c\n", "",
                           "the_event lacks fields of the C module: int a, string c")

    def test_events_of_the_c_module_that_are_missing(self):
        module = self.MODULE + "other: u32 x\n"
        self.assertEqual(self.verdict(self.CODE, self.HEADER, module, "# Why.\n\nother: no use\n")[0], 0)
        self.assert_module(module, "",
                           "other of the C module is missing, and tools/lint/events.missing gives no reason")
        self.assert_module(self.MODULE, "the_event: no use\n",
                           "the_event is there, and tools/lint/events.missing says that it is missing")
        self.assert_module(self.MODULE, "more: no use\n",
                           "tools/lint/events.missing: more is no event of the C module, or has no reason")

    def test_the_list_of_a_header(self):
        self.write("c.h", "DECLARE_EVENT_CLASS(a,\n\tTP_STRUCT__entry(\n\t\t__array(u8, x, 2)\n\t)\n);\n"
                          "#define DEFINE_A(name)\t\\\n\tDEFINE_EVENT(a, the_##name##_err,\t\\\n"
                          "\t\tTP_PROTO(int y))\nDEFINE_A(first);\nDEFINE_EVENT(a, second,\n\tTP_PROTO(int y));\n")
        self.assertEqual(self.run_lint("events", "--list", self.top / "c.h"),
                         (0, "second: u8[] x\nthe_first_err: u8[] x\n"))


class Layers(FileLint):
    def verdict(self, name, text):
        self.write("rust/rpcrdma_main.rs", "mod client;\n")
        self.write(f"rust/{name}", text)
        return self.run_lint("layers", self.top / "rust")

    def assert_refused(self, name, text, message):
        super().assert_refused(name, text, f"rust/{name}:{message}")

    def test_client_may_use_the_safe_layers(self):
        self.assert_taken("client/a.rs", "use crate::{proto::plan, rdma, sunrpc::Xprt};\n"
                                         "use kernel::prelude::*;\nuse super::b;\n")

    def test_client_may_not_use_bindings(self):
        self.assert_refused("client/a.rs", "\nuse crate::bindings;\n", "2: client uses bindings")

    def test_client_may_not_use_the_kernels_bindings(self):
        self.assert_refused("client/a.rs", "use kernel::{bindings, sync};\n",
                            "1: client uses kernel::bindings")

    def test_client_and_server_do_not_know_each_other(self):
        self.assert_refused("client/a.rs", "use super::super::server::x;\n", "1: client uses server")
        self.assert_refused("server/a.rs", "use crate::client;\n", "1: server uses client")

    def test_rdma_and_sunrpc_do_not_know_each_other(self):
        self.assert_refused("rdma/a.rs", "fn f(x: &crate::sunrpc::Xprt) {}\n", "1: rdma uses sunrpc")
        self.assert_refused("sunrpc/mod.rs", "use super::rdma::Qp;\n", "1: sunrpc uses rdma")

    def test_use_trees_are_followed(self):
        self.assert_refused("rdma/a.rs", "use crate::{\n    support::x,\n    sunrpc::{\n"
                                         "        self, //\n    },\n};\n", "1: rdma uses sunrpc")

    def test_inline_modules_count_for_super(self):
        self.assert_taken("rdma/a.rs", "mod m { use super::super::pd::Pd; }\n")
        self.assert_refused("rdma/a.rs", "mod m { use super::super::super::sunrpc::Xprt; }\n",
                            "1: rdma uses sunrpc")

    def test_proto_has_only_core(self):
        self.assert_taken("proto/a.rs", "use core::ops::Range;\nuse crate::proto::xdr;\n")
        self.assert_refused("proto/a.rs", "use kernel::prelude::*;\n", "1: proto uses kernel")
        self.assert_refused("proto/a.rs", "fn f() -> alloc::vec::Vec<u8> {}\n", "1: proto uses alloc")

    def test_the_crate_root_is_no_way_around(self):
        self.assert_refused("client/a.rs", "use crate::*;\n", "1: client uses crate::*")
        self.assert_refused("client/a.rs", "use crate as root;\n", "1: client uses crate")

    def test_main_may_not_use_bindings(self):
        self.assert_refused("rpcrdma_main.rs", "use bindings::x;\n", "1: main uses bindings")

    def test_new_folders_are_refused(self):
        self.assert_refused("other/a.rs", "\n", "1: folder other/ is no layer yet")

    def test_comments_and_strings_use_nothing(self):
        self.assert_taken("client/a.rs", "//! See [`crate::bindings`].\n/* crate::server::x */\n"
                                         "const A: &str = \"crate::server::x\";\n"
                                         "fn f<'a>(x: &'a u8, y: char) { g('\"', \"crate::server::x\") }\n")


class Unsafe(FileLint):
    SAFE = "// SAFETY: the lock is held.\n"

    def verdict(self, name, text, update=True):
        self.write(f"rust/{name}", text)
        return self.run_lint("unsafe", *["--update"] * update, self.top / "rust", self.top / "budget")

    def test_a_reason_is_wanted(self):
        self.assert_taken("rdma/a.rs", f"{self.SAFE}unsafe impl Send for X {{}}\n")
        self.assert_taken("rdma/a.rs", f"fn f() {{\n{self.SAFE}let x = g(\nunsafe {{ h() }});\n}}\n")
        self.assert_taken("rdma/a.rs", f"{self.SAFE}#[attribute]\nunsafe impl Send for X {{}}\n")
        self.assert_refused("rdma/a.rs", "fn f() {\n    unsafe { h() }\n}\n",
                            "rust/rdma/a.rs:2: unsafe code without `// SAFETY:`")
        self.assert_refused("rdma/a.rs", f"{self.SAFE}\nunsafe impl Send for X {{}}\n", "a.rs:3:")

    def test_a_reason_says_something(self):
        for empty in ("as above.", "as above; this one is never freed.", "is valid.", "",
                      "has no preconditions."):
            self.assert_refused("rdma/a.rs", f"fn f() {{\n// SAFETY: {empty}\nunsafe {{ g() }}\n}}\n",
                                "tells nothing")
        self.assert_refused("rdma/a.rs", "// SAFETY: is valid.\n// INVARIANT: that of the caller.\n"
                                         "unsafe impl Send for X {}\n", "tells nothing")
        self.assert_refused("rdma/a.rs", "// SAFETY: is valid.\n#[attribute(that is long)]\n"
                                         "unsafe impl Send for X {}\n", "tells nothing")
        self.assert_taken("rdma/a.rs", "fn f() {\n// SAFETY: g()\n// takes the lock.\nunsafe { g() }\n}\n")
        # A comment above the block counts, not the one above the function around it.
        self.assert_refused("rdma/a.rs", f"{self.SAFE}fn f() {{\n// SAFETY: fine.\nunsafe {{ g() }}\n}}\n",
                            "tells nothing")

    def test_functions_say_what_they_need(self):
        self.assert_taken("rdma/a.rs", "/// # Safety\n///\n/// Hear.\npub unsafe fn f() {}\n")
        self.assert_refused("rdma/a.rs", "/// Does.\nunsafe extern fn f() {}\n", "# Safety")

    def test_types_of_functions_are_no_code(self):
        self.assert_taken("rdma/a.rs", "struct S { f: unsafe fn(u8) }\n")
        _, output = self.verdict("rdma/a.rs", "struct S { f: unsafe fn(u8) }\n")
        self.assertIn("unsafe: 0 uses", output)

    def test_one_statement_in_a_block(self):
        self.assert_taken("rdma/a.rs", f"fn f() {{\n{self.SAFE}unsafe {{ g(); }}\n}}\n")
        self.assert_refused("rdma/a.rs", f"fn f() {{\n{self.SAFE}unsafe {{ g(); h() }}\n}}\n",
                            "more than one statement")

    def test_safe_layers_have_none(self):
        for name in ("client/a.rs", "server/a.rs", "proto/a.rs", "rpcrdma_main.rs"):
            self.assert_refused(name, f"{self.SAFE}unsafe impl Send for X {{}}\n", "unsafe code in")
            self.write(f"rust/{name}", "")
        self.assert_refused("client/a.rs", "#[allow(unsafe_code)]\n", "opens a door")

    def test_the_budget_is_exact(self):
        one = f"fn f() {{\n{self.SAFE}unsafe {{ g() }}\n}}\n"
        self.assert_taken("rdma/a.rs", one)
        status, output = self.verdict("rdma/a.rs", one * 2, update=False)
        self.assertEqual(status, 1)
        self.assertIn("rust/rdma: unsafe blocks rose from 1 to 2", output)
        status, output = self.verdict("rdma/a.rs", "", update=False)
        self.assertEqual(status, 1)
        self.assertIn("rust/rdma: unsafe blocks fell from 1 to 0", output)


class Prose(FileLint):
    def verdict(self, name, text):
        self.write(name, text)
        return self.run_lint("prose", self.top)

    def test_the_beginning_of_a_doc_comment(self):
        for beginning in ("Whether it is.", "As [`f`].", "How many there are."):
            self.assert_refused("rust/a.rs", f"/// {beginning}\n", "rust/a.rs:1: a doc comment begins with")
        self.assert_taken("rust/a.rs", "/// Returns\n/// As [`f`] does.\n// Whether.\n")

    def test_the_doc_of_a_function_begins_with_a_verb(self):
        for doc in ("The number.", "Has the number told.", "When it is time."):
            self.assert_refused("rust/a.rs", f"/// {doc}\n#[inline]\npub(crate) fn f() {{}}\n",
                                "rust/a.rs:1: the doc of a function begins with a verb")
        for doc in ("Asks the peer.", "# Safety", "Context: any."):
            self.assert_taken("rust/a.rs", f"/// {doc}\nunsafe fn f() {{}}\n")

    def test_contexts(self):
        complaint = "rust/a.rs:1: the context is one of: any; process, may sleep;"
        for text in ("/// Context: process, sleeps.", "/// Context: may\n/// sleep.", "/// Context: any; locked."):
            self.assert_refused("rust/a.rs", f"{text}\n", complaint)
        for text in ("/// Context: any.", "/// Context: process,\n    /// may sleep. Locked.", "Context::new()"):
            self.assert_taken("rust/a.rs", f"{text}\n")

    def test_errors(self):
        sentence = "a.rs:1: fn f returns a Result: its doc needs a section `# Errors`"
        for text in ("fn f() -> Result {", "pub(crate) fn f(\n    a: u32,\n) -> Result<u32, E> {",
                     "/// Returns.\n\n/// # Errors\n\nfn f() -> Result;"):
            status, output = self.verdict("rust/rdma/a.rs", f"{text}\n}}\n")
            self.assertEqual(status, 1, text)
            self.assertIn(sentence.replace(":1:", f":{text[:text.index('fn')].count(chr(10)) + 1}:"), output)
        for text in ("/// # Errors\n/// `EIO`.\n#[inline]\nfn f() -> Result {}", "fn f(g: impl Fn() -> Result) {}",
                     "impl A for B {\n    fn f() -> Result {}\n}"):
            status, output = self.verdict("rust/rdma/a.rs", f"{text}\n")
            self.assertEqual(status, 0, output)
        self.assertEqual(self.verdict("rust/proto/a.rs", "fn f() -> Result {}\n")[0], 0)

    def test_substitutes(self):
        for name, text in (("README.rst", "Nobody sends.\n"), ("rust/a.rs", "// Nobody sends.\n"),
                           ("include/a.h", "/*\n * Nobody sends.\n */\n"),
                           ("selftests/a.sh", "# Nobody sends.\n"),
                           ("tools/a.py", '"""A line.\n\nNobody sends.\n"""\n'),
                           ("tools/a", "#!/bin/sh\n# Nobody sends.\n"),
                           ("tools/b.lua", "-- Nobody sends.\n")):
            status, output = self.verdict(name, text)
            self.assertEqual(status, 1, name)
            line = text[:text.index("Nobody")].count("\n") + 1
            self.assertIn(f"{name}:{line}: name the noun instead of: Nobody", output)
            (self.top / name).unlink()

    def test_code_is_no_prose(self):
        rust = "let what = 1;\n*what += 1;\n//= what nobody\n/// Sends ``what`` to [`nobody`].\n"
        for name, text in (("rust/a.rs", rust), ("tools/a.py", "what = 1\n"),
                           ("selftests/a.sh", "what=1\n#= what\n")):
            status, output = self.verdict(name, text)
            self.assertEqual(status, 0, output)


class Messages(Lint):
    CODE = ('pr_err!("{name}={value}: has to \\\n             be {}\\n");\n'
            'fn explain(why: &str) {\n    pr_warn_once!("{why}\\n");\n}\nfn f() {\n    explain("too few");\n}\n')
    PAGE = ("Log\n---\n\n``rpcrdma: ...=...: has to be ...``\n    Text.\n\n``rpcrdma: too few``\n    Text.\n\n"
            "Tool\n----\n\n``other: a``\n    Text.\n\n``rpcrdma-status: in use by ...``\n    Text.\n")

    def verdict(self, page, code=CODE):
        self.write("rust/x.rs", code)
        self.write("rust/glue/x.c", "/* pr_err */\n")
        self.write("rust/standins/x.c", 'pr_err("of a test\\n");\n')
        self.write("tools/status/rpcrdma_status/x.py", 'def f():\n    raise Refused(f"in use by {1}")\n')
        self.write("Documentation/troubleshooting.rst", page)
        return self.run_lint("messages", self.top)

    def test_each_message_has_an_entry(self):
        status, output = self.verdict(self.PAGE)
        self.assertEqual(status, 0, output)

    def test_a_message_without_an_entry(self):
        for entry, place in (("rpcrdma: ...=...: has to be ...", "rust/x.rs:1"), ("rpcrdma: too few", "rust/x.rs:7"),
                             ("rpcrdma-status: in use by ...", "tools/status/rpcrdma_status/x.py:2")):
            status, output = self.verdict(self.PAGE.replace(f"``{entry}``\n    Text.\n", ""))
            self.assertEqual(status, 1)
            self.assertIn(f"{place}: Documentation/troubleshooting.rst has no entry ``{entry}``", output)

    def test_messages_of_c(self):
        status, output = self.verdict(self.PAGE, self.CODE + 'pr_notice("%s: " "%5u of %pISpc\\n", a, b);\n')
        self.assertEqual(status, 1)
        entry = "``rpcrdma: ...: ... of ...``"
        self.assertIn(f"rust/x.rs:9: Documentation/troubleshooting.rst has no entry {entry}", output)

    def test_an_entry_without_a_message(self):
        status, output = self.verdict(f"{self.PAGE}\n``rpcrdma-status: the end``\n    Text.\n")
        self.assertEqual(status, 1)
        self.assertIn("no code has the message of the entry ``rpcrdma-status: the end``", output)

    def test_the_order(self):
        status, output = self.verdict(self.PAGE.replace("``other: a``", "``some: a``"))
        self.assertEqual(status, 1)
        self.assertIn("troubleshooting.rst:16: the entry comes before the entry above it", output)


class Text(FileLint):
    def verdict(self, name, text):
        self.write(name, text)
        subprocess.run(["git", "init", "-q", self.top], check=True)
        return self.run_lint("text", self.top)

    def assert_refused(self, name, text, message):
        super().assert_refused(name, text, f"{name}:{message}")

    def test_tidy_files_are_taken(self):
        self.write("empty.py", "")
        self.write("notes", "No licence wanted.\n")
        status, output = self.verdict("a.c", f"// {SPDX}\nint f(void)\n{{\n\treturn 0;\n}}\n")
        self.assertEqual(status, 0, output)

    def test_licence(self):
        self.assert_refused("a.rs", "//! A file.\n", "1: no `SPDX")
        self.assert_refused("program", "#!/bin/sh\ntrue\n", "1: no `SPDX")
        self.assert_refused("b.rs", f"// {SPDX}\nmodule! {{\n    license: \"Dual BSD/GPL\",\n}}\n",
                            "3: another licence")

    def test_white_space(self):
        self.assert_refused("notes", "a \n", "1: white space at the end")
        self.assert_refused("notes", "a", "1: no end of line")
        self.assert_refused("notes", "a\n\n", "2: an empty line at the end")

    def test_scripts_can_be_read(self):
        self.assert_refused("a", f"#!/bin/sh\n# {SPDX}\nif true; then\n", "1:")
        self.assert_refused("a", f"#!/bin/sh\n# {SPDX}\nlist=(1 2)\n", "1:")

    def test_bash(self):
        for first in "#!/bin/bash\n# shellcheck", "# shellcheck shell=bash":
            status, output = self.verdict("a.sh", f"{first}\n# {SPDX}\nlist=(1 2)\n")
            self.assertEqual(status, 0, output)

    def test_functions_of_the_selftests_are_used(self):
        program = f"#!/bin/bash\n# {SPDX}\n# one two\none() {{\n\ttrue\n}}\ntwo() {{\n\ttrue\n}}\ntests"
        self.assert_refused("selftests/a.sh", f"{program} two\n", "4: nothing uses the function one")
        status, output = self.verdict("selftests/a.sh", f"{program} two 'one 1'\n")
        self.assertEqual(status, 0, output)
        self.verdict("selftests/a.py", f'# {SPDX}\nTEST = "one"\n')
        status, output = self.verdict("selftests/a.sh", f"{program} two\n")
        self.assertEqual(status, 0, output)


class House(Lint):
    def verdict(self, **files):
        for name, text in files.items():
            self.write(f"rust/{name.replace('__', '/')}.rs", text)
        return self.run_lint("house", "-v", str(self.top / "rust"))

    def figures(self, **files):
        return self.verdict(**files)[1]

    def test_a_name_of_two_types(self):
        shown = self.figures(a__x="struct Entry;\nmod inner { enum Kind { A } }\n",
                             b__y="pub(crate) trait Entry {}\nenum Kind {}\n",
                             c__z="impl Entry { type Kind = u8; }\nfn f() { struct Entry; }\n")
        self.assertIn("Entry: rust/a/x.rs, rust/b/y.rs\n", shown)
        self.assertIn("Kind: rust/a/x.rs, rust/b/y.rs\n", shown)
        self.assertIn("several meanings: 100 % (2 of 2): beyond its limit", shown)

    def test_a_long_function(self):
        long, short = (f"fn {name}() {{" + "\n" * lines + "}\n" for name, lines in (("long", 60), ("short", 59)))
        status, shown = self.verdict(a__x=long + short)
        self.assertIn("fn long has 61 lines", shown)
        self.assertIn("functions over 60 lines: 1 (1 of 2): beyond its limit\n", shown)
        self.assertEqual(status, 1)
        status, shown = self.verdict(a__x=short)
        self.assertIn("functions over 60 lines: 0 (0 of 1)\n", shown)
        self.assertEqual(status, 0)

    def test_a_circle(self):
        shown = self.figures(a__mod="pub(crate) use x::Entry;\nmod x;\n",
                             a__x="use crate::b::y::Kind;\nstruct Entry;\n",
                             b__y="use crate::a::x::Entry;\nstruct Kind;\n",
                             b__z="use super::y::Kind;\nuse crate::a::Entry;\n")
        self.assertIn("circle: rust/a/x.rs, rust/b/y.rs\n", shown)
        self.assertIn("files that use each other: 50 % (2 of 4): beyond its limit", shown)

    def test_a_reason_without_a_contract(self):
        shown = self.figures(a__x="// SAFETY: it is valid.\n// SAFETY: set by\n// ib_alloc_cq().\n")
        self.assertIn("rust/a/x.rs:1: SAFETY: it is valid.\n", shown)
        self.assertIn("an invariant: 50 % (1 of 2): beyond its limit", shown)

    def test_words_of_doc_comments(self):
        shown = self.figures(a__x="//! What it is.\n/// Posts a Send.\n// What a comment.\nfn f() {}\n")
        self.assertIn('"what" in 1,000 words of doc comments: 166.7 (1 of 6): beyond its limit', shown)

    def test_errors_of_a_function(self):
        shown = self.figures(rdma__x="/// # Errors\n///\n/// `EIO`.\nfn told() -> Result {\n}\n"
                                     "fn untold() -> Result {\n}\n")
        self.assertIn("rust/rdma/x.rs:6: fn untold has no errors\n", shown)
        self.assertIn("have `# Errors`: 50 % (1 of 2): beyond its limit", shown)


if __name__ == "__main__":
    unittest.main()
