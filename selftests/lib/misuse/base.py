# SPDX-License-Identifier: GPL-2.0
"""The errors, the registration and the environment of the tests of caller.py."""

import dataclasses
import os
import shlex
import sys
import traceback

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE

import wire

if TYPE_CHECKING:
    from .client import Client

MEMORY = 2 << 20
ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
# Without the R bit: the memory of a program cannot be invalidated by the server, and a connection ends
# when it tries to.
PRIVATE_DATA = wire.PRIVATE_DATA[:5] + bytes(1) + wire.PRIVATE_DATA[6:]
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


def command_line(usage: str | None) -> tuple[str, str, list[str]]:
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


Fact = TypeVar("Fact")


def expect(fact: Fact | None, *what: object) -> Fact:
    """Returns the fact, which must be true."""
    if not fact:
        raise Wrong(" ".join(map(str, what)))
    return fact


# The folder of the programs, and the functions that run tests.
PROGRAMS = Path(__file__).parent.parent
RUNNERS = ("run", "attempt", "expect")


def fault_of(error: Exception) -> str:
    """Returns the fault that a test has found, with the source lines from the test to the expectation."""
    lines = [f"{type(error).__name__}: {error}"]
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(PROGRAMS) and frame.name not in RUNNERS:
            lines.append(f"  {path.relative_to(PROGRAMS)}:{frame.lineno}: {frame.name}: {frame.line}")
    return "\n".join(lines)


# A test gets a connection to the server.
Test = Callable[["Client"], None]


@dataclasses.dataclass
class Case:
    """A registered test."""
    function: Test
    stock: str
    harms: bool
    counted: bool
    slow: bool
    named: bool


# The tests, by their names.
CASES: dict[str, Case] = {}


def case(*, stock: str = "", harms: bool = False, counted: bool = True, slow: bool = False,
         named: bool = False) -> Callable[[Test], Test]:
    """Registers a test. STOCK: the faults of the C server in it; if they HARM the server, the test is left out.
    COUNTED: each message that was sent reaches the server. NAMED: it runs only if it is named."""
    def add(function: Test) -> Test:
        CASES[function.__name__] = Case(function, stock, harms, counted, slow, named)
        return function
    return add


class Tap:
    """Prints the results of tests as TAP."""

    def __init__(self, count: int) -> None:
        self.number, self.failed = 0, 0
        print(f"TAP version 13\n1..{count}", flush=True)

    def result(self, name: str, said: str, note: str = "", seconds: float | None = None) -> None:
        """Prints the result of a test. SAID is the fault that the test has found, if any."""
        self.number += 1
        self.failed += bool(said)
        print(f"{'not ' if said else ''}ok {self.number} {name.replace('_', ' ')}{note and f' # {note}'}",
              flush=True)
        if seconds is not None:
            print(f"# {seconds:.2f} s")
        for line in said.splitlines():
            print(f"# {line}", flush=True)

    def status(self) -> int:
        """Returns the exit status."""
        return min(self.failed, 100)
