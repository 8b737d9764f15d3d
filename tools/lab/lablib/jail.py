# SPDX-License-Identifier: GPL-2.0
"""One run of the lab in namespaces of its own.

The process that runs the nodes is process 1 of a private pid namespace. Its mounts and sockets are in
private mount and network namespaces. When it ends, even by SIGKILL, the kernel removes all of them. It ends
with its parent.
"""

import ctypes
import os
import signal
import subprocess

from collections.abc import Callable, Iterable
from types import FrameType

from .progress import LabError
from .sandbox import Word, die_with_parent

CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def check(command: Iterable[Word]) -> None:
    """Runs COMMAND, which must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


def mount(*arguments: Word) -> None:
    check(["mount", *arguments])


def run(function: Callable[[], int]) -> int:
    """Calls FUNCTION in new namespaces and returns the exit status it returned.

    A signal that asks to stop ends the namespaces and then this process in the usual way.
    """
    if _libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET):
        raise LabError(f"cannot make namespaces: {os.strerror(ctypes.get_errno())}")
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    child = os.fork()
    if child == 0:
        os._exit(_first_process(function))

    def stop(number: int, _frame: FrameType | None) -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in STOPPING:
        signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _first_process(function: Callable[[], int]) -> int:
    die_with_parent()
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    mount("--make-rprivate", "/")
    return function()
