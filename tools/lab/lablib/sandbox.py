# SPDX-License-Identifier: GPL-2.0
"""Commands in a root directory of their own, in namespaces that end with them.

unshare(1) makes private mount and pid namespaces. So the kernel removes all processes and mounts of the
command line that is built here when it ends for any reason. die_with_parent() ties it to its caller.
"""

import ctypes
import shlex
import signal

from collections.abc import Iterable, Mapping
from pathlib import Path

# A word of a command line, and the source and the target of a mount.
Word = str | Path
Bind = tuple[Word, Word]
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """For preexec_fn: the kernel kills the child when the lab is gone."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def mounts(root: Path) -> list[list[str]]:
    """The mount commands that a root directory needs before programs run in it."""
    return [["mount", "-t", "proc", "proc", f"{root}/proc"],
            ["mount", "--rbind", "/sys", f"{root}/sys"],
            ["mount", "--rbind", "/dev", f"{root}/dev"],
            ["mount", "-t", "tmpfs", "-o", "size=90%", "tmpfs", f"{root}/dev/shm"]]


def _bind(root: Path, source: Word, target: Word) -> str:
    target = f"{root}/{str(target).lstrip('/')}"
    make = f"mkdir -p {shlex.quote(target)}"
    if Path(source).is_file():
        make = (f"mkdir -p {shlex.quote(str(Path(target).parent))}; "
                f"[ -e {shlex.quote(target)} ] || : >{shlex.quote(target)}")
    return f"{make}; mount --rbind {shlex.quote(str(source))} {shlex.quote(target)}"


def command(root: Path, argv: Iterable[Word], binds: Iterable[Bind] = (), cwd: Word = "/",
            env: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs ARGV in ROOT with BINDS, pairs of (source, target)."""
    steps = ["set -e", *(shlex.join(step) for step in mounts(root))]
    steps += [_bind(root, source, target) for source, target in binds]
    steps.append(_bind(root, "/etc/resolv.conf", "/etc/resolv.conf"))
    inner = f"cd {shlex.quote(str(cwd))} && exec " + shlex.join(map(str, argv))
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
                 **(env or {})}
    # The shell stays process 1, which has no signal handlers, so that an interrupt ends the command.
    steps.append("status=0; env -i " + shlex.join(f"{k}={v}" for k, v in variables.items())
                 + f" chroot {shlex.quote(str(root))} sh -c {shlex.quote(inner)} || status=$?")
    steps.append("exit $status")
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", "\n".join(steps)]
