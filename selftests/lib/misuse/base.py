# SPDX-License-Identifier: GPL-2.0
"""The errors, the registration and the environment of the tests of caller.py."""

import os
import shlex
import sys

from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE

from wire import PRIVATE_DATA

MEMORY = 2 << 20
ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
# Without the R bit: the memory of a program cannot be invalidated by the server, and a connection ends
# when it tries to.
PRIVATE_DATA = PRIVATE_DATA[:5] + bytes(1) + PRIVATE_DATA[6:]
ERR_VERS, ERR_CHUNK = 1, 2
LARGE = bytes(n % 251 for n in range(200000))
CONTENT = LARGE[:10000]
TARGET = b"where/the/link/leads/to"
PAGE = 4096
# The seconds of the wait for a message that must not come.
QUIET = 0.02

FILE = os.environ.get("FILE", "")
STOCK = bool(os.environ.get("STOCK"))
ALONE = bool(os.environ.get("ALONE"))
QUICK = bool(os.environ.get("QUICK"))
COMMAND = shlex.split(os.environ.get("SERVER_COMMAND", ""))


def command_line(usage):
    """Returns the server, its port, and the beginnings of the names of the tests to run."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    server, *rest = sys.argv[1:]
    port, *names = rest or ["20049"]
    return server, port, names


class Wrong(Exception):
    """The server broke a rule."""


class Skip(Exception):
    """The test cannot be run here."""


def expect(fact, *what):
    if not fact:
        raise Wrong(" ".join(map(str, what)))


# The tests, by their names.
CASES = {}


def case(*, stock="", harms=False, counted=True, slow=False, named=False):
    """Registers a test. STOCK: the faults of the C server in it; if they HARM the server, the test is left out.
    COUNTED: each message that was sent reaches the server. NAMED: it runs only if it is named."""
    def add(function):
        CASES[function.__name__] = function
        function.stock, function.harms = stock, harms
        function.counted, function.slow, function.named = counted, slow, named
        return function
    return add


class Tap:
    """Prints the results of tests as TAP."""

    def __init__(self, count):
        self.number, self.failed = 0, 0
        print(f"TAP version 13\n1..{count}", flush=True)

    def result(self, name, said, note="", seconds=None):
        """Prints the result of a test. SAID is the fault that the test has found, if any."""
        self.number += 1
        self.failed += bool(said)
        print(f"{'not ' if said else ''}ok {self.number} {name.replace('_', ' ')}{note and f' # {note}'}",
              flush=True)
        if seconds is not None:
            print(f"# {seconds:.2f} s")
        if said:
            print(f"# {said}", flush=True)

    def status(self):
        """Returns the exit status."""
        return min(self.failed, 100)
