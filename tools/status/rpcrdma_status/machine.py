# SPDX-License-Identifier: GPL-2.0
"""The files and commands of a machine, or the files of an archive that `rpcrdma-status collect` has made."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path


class Machine:
    """Reads files below ROOT. Remembers the files that only root may read."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.refused: set[str] = set()

    @property
    def is_live(self) -> bool:
        """Whether this is the running machine, where commands can be run."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it cannot be read."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace")
        except PermissionError:
            self.refused.add(name)
        except OSError:
            pass
        return None

    def word(self, name: str) -> str | None:
        """The text of a file of one line."""
        text = self.read(name)
        return text.strip() if text is not None else None

    def names(self, directory: str) -> list[str]:
        """The names in a directory; none if it cannot be read."""
        try:
            return sorted(os.listdir(self.path(directory)))
        except PermissionError:
            self.refused.add(directory)
        except OSError:
            pass
        return []

    def exists(self, name: str) -> bool:
        try:
            return self.path(name).exists()
        except PermissionError:
            self.refused.add(name)
            return False

    def link(self, name: str) -> str | None:
        """The last part of the target of a symbolic link."""
        try:
            return os.path.basename(os.readlink(self.path(name)))
        except OSError:
            return None

    def run(self, *command: str) -> str | None:
        """The output of a command of the running machine; None if it fails or there is no such command."""
        if not self.is_live:
            return None
        done = run(command)
        return done.stdout if done and done.returncode == 0 else None


def run(command: Sequence[str], seconds: float = 10) -> subprocess.CompletedProcess[str] | None:
    """Runs a command; None if there is no such command, or it does not end in time."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def fields(text: str | None) -> dict[str, str]:
    """The lines NAME=VALUE of a file."""
    found = {}
    for line in (text or "").splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found
