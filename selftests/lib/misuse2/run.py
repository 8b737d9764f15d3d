# SPDX-License-Identifier: GPL-2.0
"""Runs tests of version 2."""

import inspect
import struct
import sys

from collections.abc import Callable
from types import ModuleType

from pyverbs.pyverbs_error import PyverbsError

from wire import Lost

from misuse.base import Skip, Tap, Wrong, command_line, fault_of
from misuse.client import Caller

from .talk import Talk

# A test gets a connection of the class that run() is told.
Test = Callable[[Talk], None]


def tests_of(*modules: ModuleType) -> dict[str, Test]:
    """Returns the tests of modules: the functions whose only parameter is `talk`."""
    return {name: value for module in modules for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
            and list(inspect.signature(value).parameters) == ["talk"]}


# This test takes long, and uses the whole quota for messages in parts.
BY_NAME_ONLY = "parts_of_more_calls_than_there_is_memory_for"


def attempt(caller: Caller, test: Test, talk: type[Talk]) -> str:
    """Runs a test. Returns the fault that it has found, if any. A test that cannot run raises Skip."""
    try:
        test(talk(caller))
        talk(caller).well()
    except (Lost, Wrong, PyverbsError, struct.error) as error:
        return fault_of(error)
    finally:
        caller.leave()
    return ""


def run(tests: dict[str, Test], usage: str | None, talk: type[Talk] = Talk) -> int:
    """Runs the tests that the arguments name."""
    server, port, names = command_line(usage)
    caller = Caller(server, port)
    chosen = [name for name in tests
              if (any(name.startswith(beginning) for beginning in names) if names
                  else name != BY_NAME_ONLY)]
    if not chosen:
        sys.exit("no test begins with " + " or ".join(names))
    tap = Tap(len(chosen))
    for name in chosen:
        note = ""
        try:
            said = attempt(caller, tests[name], talk)
        except Skip as why:
            said, note = "", f"SKIP {why}"
        tap.result(name, said, note)
    return tap.status()
