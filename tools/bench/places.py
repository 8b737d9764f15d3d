# SPDX-License-Identifier: GPL-2.0
"""The place of a measurement: two nodes of the lab, or two hosts."""

import shlex
import shutil
import subprocess
import tempfile

from pathlib import Path
from typing import Protocol

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
LAB = HERE.parent / "lab/lab"
# The files that the client needs.
FILES = (*(HERE / name for name in ("on-node", "counters.py", "results.py", "crowd-rate")),
         TOP / "selftests/lib/crowd.py")
SECONDS = 1200
# The client's folder for the files, and its mount point.
FOLDER, MOUNT = "/run/rpcrdma-bench", "/run/rpcrdma-bench/mnt"
# Describes a host.
DESCRIPTION = """
uname -a
cat /etc/os-release /proc/cmdline
lscpu
free -m
rdma link
for device in /sys/class/infiniband/*; do
	echo "${device##*/}: $(cat "$device/hca_type" "$device/fw_ver" "$device"/ports/*/rate 2>/dev/null | tr '\\n' ' ')"
done
rpcrdma-status || :
"""


class Place(Protocol):
    """A client and a server that measure."""
    name: str

    def measure(self, client: str, server: str, arguments: list[str]) -> str:
        """Returns the output of on-node with ARGUMENTS; CLIENT and SERVER are the modules, ours or stock."""


class Lab:
    """Two nodes of the lab, booted for each measurement."""

    def __init__(self, kernel: str, cpus: int) -> None:
        self.kernel = kernel
        self.cpus = cpus
        self.name = kernel if cpus == 1 else f"{kernel}, {cpus} processors"

    def measure(self, client: str, server: str, arguments: list[str]) -> str:
        """As of Place."""
        with tempfile.TemporaryDirectory(prefix="bench-") as share:
            for file in FILES:
                shutil.copy(file, share)
            return subprocess.run(
                [LAB, "--kernel", self.kernel, "--cpus", str(self.cpus), "--client", client, "--server", server,
                 "--mount", "none", "--timeout", str(SECONDS), "--share", share, "--", "/share/on-node", *arguments],
                check=True, stdout=subprocess.PIPE, text=True).stdout


class Hosts:
    """Two hosts, on which a remote shell runs commands as root. rpcrdma-status exchanges their modules."""

    def __init__(self, client: str, server: str, address: str, export: str, rsh: str) -> None:
        self.client, self.server = client, server
        self.rsh = shlex.split(rsh)
        self.name = f"{client} and {server}"
        self.environment = {"SERVER": address, "EXPORT": export, "BENCH_MOUNT": MOUNT, "RSH": rsh, "RSH_SERVER": server}

    def run(self, host: str, script: str, sent: bytes = b"") -> str:
        """Returns the output of a shell's SCRIPT on HOST, whose standard input is SENT."""
        done = subprocess.run([*self.rsh, host, script], input=sent, check=False, stdout=subprocess.PIPE)
        if done.returncode:
            raise SystemExit(f"{host}: this command has failed with status {done.returncode}: {script}")
        return done.stdout.decode(errors="replace")

    def describe(self) -> dict[str, str]:
        """Returns a description of each host."""
        return {"client": self.run(self.client, DESCRIPTION), "server": self.run(self.server, DESCRIPTION)}

    def prepare(self) -> None:
        """Copies the files to the client."""
        files = [*FILES, HERE / "lab-server", TOP / "tools/lab/node/lab-speak"]
        packed = subprocess.run(["tar", "c", *(word for file in files for word in ("-C", str(file.parent), file.name))],
                                check=True, stdout=subprocess.PIPE).stdout
        self.run(self.client, f"mkdir -p {MOUNT} && tar x -C {FOLDER}", packed)

    def end(self) -> None:
        """Removes the files, and loads our module again."""
        self.load("ours", "ours")
        self.run(self.client, f"rm -r {FOLDER}")

    def load(self, client: str, server: str) -> None:
        """Loads the modules."""
        kinds = {"ours": "rust", "stock": "c"}
        self.run(self.client, f"rpcrdma-status swap-module {kinds[client]}")
        self.run(self.server, f"rpcrdma-status swap-module --restart-server {kinds[server]}")

    def measure(self, client: str, server: str, arguments: list[str]) -> str:
        """As of Place."""
        self.load(client, server)
        values = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment.items())
        line = shlex.join([f"{FOLDER}/on-node", *arguments])
        return self.run(self.client, f"env {values} PATH={FOLDER}:$PATH {line}; status=$?; rm -f {MOUNT}/bench; "
                                     f"umount {MOUNT}; exit $status")
