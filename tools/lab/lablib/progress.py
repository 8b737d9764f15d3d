# SPDX-License-Identifier: GPL-2.0
"""Messages of the lab itself, on stderr, and the long commands that it runs."""

import subprocess
import sys
import time

from .sandbox import die_with_parent

HEARTBEAT = 20


class LabError(Exception):
    """The lab itself failed; the text names the missing part and the next step."""


def say(text):
    print(f"lab: {text}", file=sys.stderr, flush=True)


def run(what, command, log):
    """Runs COMMAND with its output in LOG, and says on stderr that it is still alive."""
    start = time.monotonic()
    say(f"{what} ...")
    with open(log, "ab") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, preexec_fn=die_with_parent)
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
        with open(log, errors="replace") as text:
            tail = "".join(text.readlines()[-30:])
        raise LabError(f"{what} failed with status {status}; the end of its output:\n{tail}")
    say(f"{what}: done in {time.monotonic() - start:.0f} s")
