# SPDX-License-Identifier: GPL-2.0
"""Messages of the lab itself, on stderr, and the long commands that it runs."""

import subprocess
import sys
import time

from collections.abc import Sequence
from pathlib import Path

from .sandbox import Word, die_with_parent

HEARTBEAT = 20


class LabError(Exception):
    """The lab itself failed; the text names the missing part and the next step."""


def say(text: object) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


def run(what: str, command: Sequence[Word], log: Path) -> None:
    """Runs COMMAND with its output in LOG, and says on stderr that it is still alive."""
    start = time.monotonic()
    say(f"{what} ...")
    with open(log, "ab") as out:
        # The lab has no threads.
        # pylint: disable-next=subprocess-popen-preexec-fn
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.STDOUT, preexec_fn=die_with_parent) as child:
            try:
                while True:
                    try:
                        status = child.wait(HEARTBEAT)
                        break
                    except subprocess.TimeoutExpired:
                        say(f"{what} ... {time.monotonic() - start:.0f} s")
            except BaseException:
                child.kill()
                child.wait()
                raise
    if status:
        with open(log, encoding="utf-8", errors="replace") as text:
            tail = "".join(text.readlines()[-30:])
        raise LabError(f"{what} failed with status {status}; the end of its output:\n{tail}")
    say(f"{what}: done in {time.monotonic() - start:.0f} s")
