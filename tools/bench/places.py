# SPDX-License-Identifier: GPL-2.0
"""The place of a measurement: two nodes of the lab."""

import shutil
import subprocess
import tempfile

from pathlib import Path

HERE = Path(__file__).resolve().parent
LAB = HERE.parent / "lab/lab"
# The files that the client needs.
FILES = (*(HERE / name for name in ("on-node", "counters.py", "results.py", "crowd-rate")),
         HERE.parent.parent / "selftests/lib/crowd.py")
SECONDS = 1200


class Lab:
    """Two nodes of the lab, booted for each measurement."""

    def __init__(self, kernel: str, cpus: int) -> None:
        self.kernel = kernel
        self.cpus = cpus
        self.name = kernel if cpus == 1 else f"{kernel}, {cpus} processors"

    def measure(self, client: str, server: str, arguments: list[str]) -> str:
        """Returns the output of on-node with ARGUMENTS; CLIENT and SERVER are the modules."""
        with tempfile.TemporaryDirectory(prefix="bench-") as share:
            for file in FILES:
                shutil.copy(file, share)
            return subprocess.run(
                [LAB, "--kernel", self.kernel, "--cpus", str(self.cpus), "--client", client, "--server", server,
                 "--mount", "none", "--timeout", str(SECONDS), "--share", share, "--", "/share/on-node", *arguments],
                check=True, stdout=subprocess.PIPE, text=True).stdout
