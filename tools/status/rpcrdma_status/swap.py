# SPDX-License-Identifier: GPL-2.0
"""Exchanges the loaded module: the kernel's own for the module in Rust, or back.

The exchange lasts until the module is loaded again: `modprobe` takes the module in `updates` if there is one.
"""

import glob
import time
from pathlib import Path

from .machine import Machine, run
from .state import State

PORTS = Path("/proc/fs/nfsd/portlist")


class Refused(Exception):
    """Why the module is not exchanged."""


def candidate(kind: str, release: str) -> str:
    """The file of the module of KIND, "rust" or "c"."""
    place = f"/lib/modules/{release}"
    patterns = {"rust": f"{place}/updates/**/rpcrdma.ko*",
                "c": f"{place}/kernel/net/sunrpc/xprtrdma/rpcrdma.ko*"}
    found = glob.glob(patterns[kind], recursive=True)
    if not found:
        raise Refused(f"there is no such module: {patterns[kind]}")
    return found[0]


def field_of(file: str, name: str) -> str | None:
    """A field of a module's file, such as `version`, which the C module does not have."""
    done = run(("modinfo", "-F", name, file), 60)
    return done.stdout.strip() or None if done else None


def holders(state: State) -> list[str]:
    """The mounts that use the module."""
    return [f"the mount {mount.point}" for server in state.servers for mount in server.mounts]


def step(*command: str) -> None:
    done = run(command, 60)
    if done is None or done.returncode:
        raise Refused(f"{' '.join(command)}: {(done.stderr.strip() if done else '') or 'failed'}")


def unload() -> None:
    """Removes the module. The last reference of a transport goes shortly after its mount."""
    for _ in range(20):
        done = run(("modprobe", "-r", "rpcrdma"), 60)
        if done is not None and not done.returncode:
            return
        time.sleep(0.5)
    raise Refused(f"modprobe -r rpcrdma: {done.stderr.strip() if done else 'failed'}")


def load(file: str) -> None:
    """Loads the module. Unloading the other one has also removed the modules that only it used."""
    needed = field_of(file, "depends")
    if needed:
        step("modprobe", "-a", *needed.split(","))
    step("insmod", file)


def swap(machine: Machine, state: State, kind: str, restart_server: bool) -> str:
    """Exchanges the module; returns a sentence about the result."""
    release = machine.word("/proc/sys/kernel/osrelease") or ""
    if state.module.kind == kind and state.module.version == field_of(candidate(kind, release), "version"):
        return "That module is loaded already."
    held = holders(state)
    if held:
        raise Refused(f"the module is in use by {', '.join(held)}: unmount first")
    file = candidate(kind, release)
    ports = state.service.ports if state.service else []
    threads = state.service.threads if state.service else None
    if ports and not restart_server:
        raise Refused(f"nfsd listens on the RDMA port {', '.join(map(str, ports))}: "
                      "--restart-server stops and starts it")
    if ports:
        step("rpc.nfsd", "0")
    try:
        if state.module.loaded:
            unload()
        load(file)
    finally:
        if ports:
            step("rpc.nfsd", str(threads or 8))
            listening = PORTS.read_text(encoding="ascii")
            for port in ports:
                if f"rdma {port}" not in listening:
                    PORTS.write_text(f"rdma {port}", encoding="ascii")
    return f"{file} is loaded."
