#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of rpcrdma-status: the state of recorded machines, as a tree, as JSON, and as metrics.

A machine is a file in recorded/, which has the content of the machine's files. With --update, the outputs are
recorded again.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded"
VIEWS = {"text": (), "json": ("-o", "json"), "prom": ("prometheus",), "doctor": ("doctor",)}
UPDATE = "--update" in sys.argv


def unpack(recorded: Path, root: Path) -> None:
    """Makes the files of a machine. A line `=== NAME` begins a file, and `=== NAME -> TARGET` makes a link."""
    name, lines = "", []
    for line in [*recorded.read_text(encoding="utf-8").splitlines(), "==="]:
        if not line.startswith("==="):
            lines.append(line)
            continue
        if name:
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{text}\n" for text in lines), encoding="utf-8")
        name, lines = line.removeprefix("===").strip(), []


def view(root: Path, *arguments: str) -> str:
    done = subprocess.run([HERE / "rpcrdma-status", "--root", root, *arguments], capture_output=True, text=True,
                          check=False)
    return done.stdout + done.stderr


class Recorded(unittest.TestCase):
    """The views of each recorded machine are the recorded views."""

    maxDiff = None

    def compare(self, machine: Path) -> None:
        with tempfile.TemporaryDirectory() as place:
            unpack(machine, Path(place))
            for kind, arguments in VIEWS.items():
                wanted = machine.with_suffix(f".{kind}")
                shown = view(Path(place), *arguments)
                if UPDATE:
                    wanted.write_text(shown, encoding="utf-8")
                self.assertEqual(wanted.read_text(encoding="utf-8"), shown, wanted.name)

    def test_each_machine(self) -> None:
        machines = sorted(RECORDED.glob("*.machine"))
        self.assertGreater(len(machines), 3)
        for machine in machines:
            with self.subTest(machine.stem):
                self.compare(machine)

    def test_json_names_each_column_of_mountstats(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            unpack(RECORDED / "client.machine", Path(place))
            state = json.loads(view(Path(place), "-o", "json"))
        columns = state["servers"][0]["mounts"][0]["statistics"][0]
        self.assertEqual(len(columns), 27)
        self.assertEqual(columns["connect_count"], 1)

    def test_an_idle_transport_is_no_fault(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            unpack(RECORDED / "refused.machine", Path(place))
            shown = next(Path(place).glob("sys/kernel/debug/rpcrdma/xprt-*"))
            lines = [line for line in shown.read_text(encoding="utf-8").splitlines() if not line.startswith("last_")]
            lines += ["last_close=not needed any more", "last_error=0", ""]
            shown.write_text("\n".join(lines), encoding="utf-8")
            self.assertIn("not connected (not needed any more)", view(Path(place)))
            self.assertNotIn("FAIL", view(Path(place), "doctor"))

    def test_an_option_that_is_unknown(self) -> None:
        self.assertIn("usage", view(Path("/nowhere"), "--unknown"))


if __name__ == "__main__":
    unittest.main(argv=[argument for argument in sys.argv if argument != "--update"])
