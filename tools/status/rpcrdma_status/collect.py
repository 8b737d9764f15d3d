# SPDX-License-Identifier: GPL-2.0
"""An archive for a bug report, and the trace events in it.

The files of the archive have the paths of the machine, so that `rpcrdma-status --root` shows its state.
"""

import glob
import io
import json
import os
import socket
import tarfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from . import text
from .doctor import findings
from .machine import Machine, run
from .state import read_state

# The files that the state consists of.
STATE_FILES = (
    "/proc/self/mountstats", "/proc/self/mounts", "/proc/fs/nfsd/portlist", "/proc/fs/nfsd/threads",
    "/proc/sys/kernel/osrelease", "/sys/module/rpcrdma/version", "/sys/module/rpcrdma/refcnt",
    "/sys/kernel/sunrpc/xprt-switches/*/*-rdma*/*", "/sys/kernel/debug/rpcrdma/*",
    "/sys/class/infiniband/*/ports/*/state", "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/infiniband/*/ports/*/rate", "/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/0",
    "/sys/class/net/*/mtu", "/sys/class/net/*/tx_queue_len", "/sys/kernel/iommu_groups/*/type",
    "/sys/kernel/config/rdma_cm/*/ports/*/default_roce_tos",
)
MORE_FILES = (
    "/proc/version", "/proc/cmdline", "/proc/modules", "/proc/fs/nfsd/pool_stats", "/proc/net/rpc/nfs",
    "/proc/net/rpc/nfsd", "/proc/sys/sunrpc/rdma_*", "/proc/sys/sunrpc/svc_rdma/*",
    "/sys/module/rpcrdma/parameters/*", "/sys/class/infiniband/*/ports/*/hw_counters/*",
    "/sys/class/infiniband/*/ports/*/counters/*", "/sys/class/infiniband/*/fw_ver",
)
COMMANDS = {
    "dmesg": ("dmesg",), "rdma-link": ("rdma", "-d", "link"), "rdma-device": ("rdma", "-d", "dev"),
    "rdma-resource": ("rdma", "-d", "resource"), "rdma-queue-pairs": ("rdma", "-d", "resource", "show", "qp"),
    "rdma-statistic": ("rdma", "statistic"), "modinfo": ("modinfo", "rpcrdma"), "addresses": ("ip", "address"),
    "routes": ("ip", "route"), "packages": ("dpkg", "-l", "rpcrdma*", "linux-image-*", "nfs-*", "rdma-core"),
}
TRACING = Path("/sys/kernel/tracing")
INSTANCE = TRACING / "instances/rpcrdma-status"


class Events:
    """The trace events of the module in a buffer of their own."""

    def __init__(self, wanted: tuple[str, ...] = ("*",), kilobytes: int = 4096,
                 slow: float | None = None) -> None:
        INSTANCE.mkdir()
        (INSTANCE / "buffer_size_kb").write_text(str(kilobytes), encoding="ascii")
        for pattern in wanted:
            for path in glob.glob(f"{INSTANCE}/events/rpcrdma/{pattern}/enable"):
                Path(path).write_text("1", encoding="ascii")
        latency = INSTANCE / "events/sunrpc/rpc_stats_latency"
        if slow is not None and latency.is_dir():
            # The kernel drops the events of faster RPCs.
            (latency / "filter").write_text(f"execute > {int(slow * 1000)}", encoding="ascii")
            (latency / "enable").write_text("1", encoding="ascii")

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        INSTANCE.rmdir()

    def all(self) -> str:
        """All events so far."""
        return (INSTANCE / "trace").read_text(encoding="utf-8", errors="replace")

    def each(self) -> Iterator[str]:
        """The events as they come."""
        with open(INSTANCE / "trace_pipe", encoding="utf-8", errors="replace") as pipe:
            yield from pipe


class Archive:
    """A compressed tar archive with a folder of its own name."""

    def __init__(self, path: Path) -> None:
        self.top = path.name.removesuffix(".tar.xz")
        self.tar = tarfile.open(path, "x:xz")  # pylint: disable=consider-using-with

    def add(self, name: str, content: str) -> None:
        data = content.encode()
        info = tarfile.TarInfo(f"{self.top}/{name.lstrip('/')}")
        info.size, info.mtime = len(data), int(time.time())
        self.tar.addfile(info, io.BytesIO(data))

    def close(self) -> None:
        self.tar.close()


def collect(machine: Machine, path: Path | None, seconds: float) -> Path:
    """Makes the archive, with the trace events of SECONDS."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = path or Path(f"rpcrdma-{socket.gethostname()}-{stamp}.tar.xz")
    archive = Archive(path)
    os.chmod(path, 0o600)
    if seconds and TRACING.is_dir() and os.access(TRACING, os.W_OK):
        with Events() as events:
            time.sleep(seconds)
            archive.add("trace", events.all())
    for pattern in STATE_FILES + MORE_FILES:
        for name in sorted(glob.glob(pattern)):
            content = machine.read(name) if os.path.isfile(name) else None
            if content is not None:
                archive.add(name, content)
    for name, command in COMMANDS.items():
        done = run(command)
        if done:
            archive.add(f"commands/{name}", done.stdout + done.stderr)
    found = read_state(machine)
    archive.add("status", text.tree(found, False))
    archive.add("status.json", json.dumps(asdict(found), indent=2))
    archive.add("doctor", "".join(f"{one.result} {one.text}\n" for one in findings(machine, found)))
    archive.close()
    return path
