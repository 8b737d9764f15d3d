#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of rpcrdma-status: the state of recorded machines, as a tree, as JSON, and as metrics.

A machine is a file in recorded/, which has the content of the machine's files. With --update, the outputs are
recorded again.
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rpcrdma_status.doctor import findings
from rpcrdma_status.machine import Machine
from rpcrdma_status.state import read_state

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


class Adapter(Machine):
    """A machine with an adapter for RoCE, and the outputs of commands."""

    def __init__(self, root: Path, outputs: dict[str, str]) -> None:
        super().__init__(root)
        self.outputs = outputs
        self.write("/proc/sys/kernel/osrelease", "7.2.12+deb13-amd64")
        self.write("/boot/config-7.2.12+deb13-amd64", 'CONFIG_RUSTC_VERSION_TEXT="rustc 1.85.1 (4eb161250 2025-03-15)"')
        self.write("/sys/class/infiniband/mlx5_0/device/vendor", "0x15b3")
        self.write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
        self.write("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet")
        self.write("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth0")
        self.write("/sys/class/net/eth0/mtu", "9000")
        self.write("/sys/class/net/eth0/tx_queue_len", "1000")

    def write(self, name: str, content: str) -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(content + "\n", encoding="utf-8")

    def run(self, *command: str) -> str | None:
        return self.outputs.get(command[0])

    def shown(self) -> str:
        """The findings of the doctor."""
        return "".join(f"{one.result} {one.text}\n" for one in findings(self, read_state(self)))


class Doctor(unittest.TestCase):
    """The checks that need an adapter."""

    def shown(self, files: dict[str, str], **outputs: str) -> str:
        with tempfile.TemporaryDirectory() as place:
            machine = Adapter(Path(place), outputs)
            for name, content in files.items():
                machine.write(name, content)
            return machine.shown()

    def test_traffic_class(self) -> None:
        self.assertIn("WARN connections of mlx5_0/1 have no traffic class", self.shown({}))
        place = "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"
        self.assertIn("PASS connections of mlx5_0/1 have the type of service 104 (DSCP 26)", self.shown({place: "104"}))

    def test_flow_control(self) -> None:
        self.assertNotIn("flow control", self.shown({}))
        counters = "     rx_prio3_pause: 0\n     tx_prio3_pause: {}\n     rx_discards_phy: 7\n"
        shown = self.shown({}, ethtool=counters.format(0))
        self.assertIn("PASS eth0 has sent and received no frame of priority", shown)
        shown = self.shown({}, ethtool=counters.format(5))
        self.assertIn("PASS eth0 uses priority flow control: tx_prio3_pause is 5", shown)
        self.assertIn("WARN eth0 has dropped frames: rx_discards_phy is 7", shown)

    def test_compiler(self) -> None:
        self.assertIn("PASS rustc 1.85.1 is the compiler", self.shown({}, rustc="rustc 1.85.1 (4eb161250 2025-03-15)"))
        self.assertIn("WARN rustc is 1.91.0, but the kernel was built by rustc 1.85.1",
                      self.shown({}, rustc="rustc 1.91.0 (f8297e351 2025-10-28)"))

    def test_queue_of_the_interface(self) -> None:
        self.assertNotIn("the queue of", self.shown({}))
        soft = {"/sys/class/infiniband/rxe0/ports/1/state": "4: ACTIVE",
                "/sys/class/infiniband/rxe0/ports/1/link_layer": "Ethernet",
                "/sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": "eth0"}
        self.assertIn("WARN the queue of eth0 has 1000 frames: rxe0 may overflow it", self.shown(soft))


class Metrics(unittest.TestCase):
    """Prometheus reads the metrics, and the dashboard uses metrics that exist."""

    def test_promtool(self) -> None:
        for recorded in sorted(RECORDED.glob("*.prom")):
            with self.subTest(recorded.stem):
                done = subprocess.run(["promtool", "check", "metrics"], input=recorded.read_text(encoding="utf-8"),
                                      capture_output=True, text=True, check=False)
                self.assertEqual("", done.stdout + done.stderr)
                self.assertEqual(0, done.returncode)

    def test_dashboard(self) -> None:
        dashboard = json.loads((HERE / "dashboard.json").read_text(encoding="utf-8"))
        asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        known = set(re.findall(r"^# TYPE (\S+)", "".join(
            recorded.read_text(encoding="utf-8") for recorded in RECORDED.glob("*.prom")), re.M))
        for expression in asked:
            with self.subTest(expression):
                names = set(re.findall(r"rpcrdma_\w+", expression))
                self.assertTrue(names and names <= known, names - known)


if __name__ == "__main__":
    unittest.main(argv=[argument for argument in sys.argv if argument != "--update"])
