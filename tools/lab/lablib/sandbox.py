# SPDX-License-Identifier: GPL-2.0
"""Commands in a root directory of their own, in namespaces that end with them.

unshare(1) makes private mount and pid namespaces, so whatever ends the command line built here,
the kernel takes all its processes and mounts away. die_with_parent() ties it to its caller.
"""

import ctypes
import shlex
import signal

from pathlib import Path

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """For preexec_fn: the kernel kills the child when the lab is gone."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _mount(root, source, target, options):
    target = f"{root}/{str(target).lstrip('/')}"
    make = f"mkdir -p {shlex.quote(target)}"
    if Path(source).is_file():
        make = (f"mkdir -p {shlex.quote(str(Path(target).parent))}; "
                f"[ -e {shlex.quote(target)} ] || : >{shlex.quote(target)}")
    return f"{make}; mount {options} {shlex.quote(str(source))} {shlex.quote(target)}"


def command(root, argv, binds=(), readonly=(), cwd="/", env=None, network=True):
    """The command line that runs ARGV in ROOT with BINDS, pairs of (source, target)."""
    steps = ["set -e",
             f"mount -t proc proc {root}/proc", f"mount --rbind /sys {root}/sys",
              f"mount --rbind /dev {root}/dev", f"mount -t tmpfs tmpfs {root}/dev/shm"]
    steps += [_mount(root, source, target, "--rbind") for source, target in binds]
    steps += [_mount(root, source, target, "--bind -o ro") for source, target in readonly]
    if network:
        steps.append(_mount(root, "/etc/resolv.conf", "/etc/resolv.conf", "--bind -o ro"))
    else:
        steps.append("ip link set lo up")
    inner = f"cd {shlex.quote(str(cwd))} && exec " + shlex.join(map(str, argv))
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
                 **(env or {})}
    # The shell stays process 1, which has no signal handlers, so that an interrupt ends the command.
    steps.append("env -i " + shlex.join(f"{k}={v}" for k, v in variables.items())
                 + f" chroot {shlex.quote(str(root))} sh -c {shlex.quote(inner)}")
    steps[-1] = f"status=0; {steps[-1]} || status=$?; exit $status"
    spaces = ["--mount", "--pid", "--fork", "--kill-child"] + ([] if network else ["--net"])
    return ["unshare", *spaces, "sh", "-c", "\n".join(steps)]
