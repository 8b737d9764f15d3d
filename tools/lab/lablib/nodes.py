# SPDX-License-Identifier: GPL-2.0
"""A node: a kernel booted as a process, and the channels to it.

A channel is one end of a socket pair; the node finds the other as /dev/lab-NAME. The console is a
pipe that only the kernel's log goes down.
"""

import argparse
import dataclasses
import os
import shlex
import socket
import subprocess

from collections.abc import Iterable, Sequence
from pathlib import Path

from . import clock
from .kernels import Kernel
from .sandbox import Word, die_with_parent

CHANNELS = ("client", "stdout", "stderr", "server")
MEMORY = 2048
SO_SNDBUFFORCE = 32
LINK_BUFFER = 1 << 20
KMEMLEAK = os.environ.get("LAB_KMEMLEAK")

SERVER, CLIENT = "192.168.77.1", "192.168.77.2"
SERVER6, CLIENT6 = "fd00::1", "fd00::2"
EXPORT = "/srv/export"


@dataclasses.dataclass
class Node:
    name: str
    roles: tuple[str, ...]
    process: subprocess.Popen[bytes]
    console: int
    channels: dict[str, socket.socket]


def settings(options: argparse.Namespace, name: str, roles: Iterable[str]) -> str:
    """The file that the node's init reads: shell variables."""
    first = name == "server" or options.nodes == 1
    values = {
        "NAME": name, "ROLES": " ".join(roles), "NODES": options.nodes,
        "PROVIDER": options.provider, "MOUNT": options.mount,
        "SERVER": SERVER, "SERVER6": SERVER6,
        "CLIENT": SERVER if options.nodes == 1 else CLIENT,
        "CLIENT6": SERVER6 if options.nodes == 1 else CLIENT6,
        "ADDRESS": SERVER if first else CLIENT, "ADDRESS6": SERVER6 if first else CLIENT6,
        "PEER": CLIENT if first else SERVER, "EXPORT": EXPORT,
        "SHARE": options.share and "yes" or "", "OUT": options.out and "yes" or "",
        "KMEMLEAK": KMEMLEAK and "yes" or "",
        "PCAP": options.pcap and "yes" or "no",
        "PCAP_FILTER": "udp port 4791" if options.provider == "rxe" else "tcp",
    }
    return "".join(f"{key}={shlex.quote(str(value))}\n" for key, value in values.items())


def command_file(argv: Sequence[str]) -> str:
    """The script that the client's role runs."""
    lines = ["export " + shlex.join(f"{key}={value}" for key, value in {
        "SERVER": SERVER, "SERVER6": SERVER6, "EXPORT": EXPORT, "HOSTNAME": "client"}.items())]
    return "\n".join([*lines, "exec " + shlex.join(argv), ""])


def _uml(kernel: Kernel, image: Path, name: str, end: socket.socket | None, fds: dict[str, int], cpus: int,
         memory: int, args: Iterable[str], _plugin: str | None) -> list[Word]:
    """User Mode Linux."""
    argv: list[Word] = [
        kernel.image, f"mem={memory}M", f"ncpus={cpus}", "con=null", "con0=null,fd:1", "ssl=null",
        *(f"ssl{n}=fd:{fds[c]}" for n, c in enumerate(CHANNELS, 1)),
        f"ubd0r={image}", "root=/dev/ubda", "rootfstype=erofs", "init=/lab-node/init",
        f"umid={name}", "uml_dir=/tmp", f"lab={name}", "panic=-1",
        # As Debian's kernels do by default. The core's gss_create_new() relies on it: without it,
        # au_flags of a new flavour may have the value of krb5i for krb5.
        "init_on_alloc=1", *args]
    if cpus > 1:
        argv.append("seccomp=on")
    if KMEMLEAK:
        argv.append("kmemleak=on")
    if end:
        argv.append(f"vec0:transport=fd,fd={end.fileno()},depth=128,mtu=4200")
    return argv


def _qemu(kernel: Kernel, image: Path, name: str, end: socket.socket | None, fds: dict[str, int], cpus: int,
          memory: int, args: Iterable[str], plugin: str | None) -> list[Word]:
    """QEMU without hardware virtualisation, which not every machine has."""
    # The kernel calls a timer broken that has not interrupted it for some milliseconds of its own
    # clock. On a host with more work than processors the emulator may not have run in that time. Beside builds
    # it may not have run for half a minute, which is a soft lockup by default: a loop lasts longer than a minute.
    append = " ".join(("console=ttyS0 quiet loglevel=6 panic=-1 rdinit=/init", f"lab={name}",
                       "mitigations=off no_timer_check", *clock.parameters(),
                       "watchdog_thresh=30 rcupdate.rcu_cpu_stall_timeout=60", *args))
    argv: list[Word] = [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus),
        "-m", str(memory), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
        "-kernel", kernel.image, "-initrd", kernel.boot / "initrd.cpio", "-append", append,
        "-drive", f"file={image},format=raw,if=virtio,readonly=on,file.locking=off",
        "-device", "virtio-serial", "-device", "virtio-rng-pci"]
    for channel in CHANNELS:
        argv += ["-chardev", f"socket,id={channel},fd={fds[channel]}",
                 "-device", f"virtserialport,chardev={channel},name=lab-{channel}"]
    for tag in (name, "exchange", "share", "out"):
        argv += ["-virtfs", f"local,path=/lab/{tag},mount_tag=lab-{tag},security_model=none,"
                 "multidevs=remap"]
    if end:
        mac = "52:54:00:00:00:01" if name == "server" else "52:54:00:00:00:02"
        argv += ["-netdev", f"stream,id=link,addr.type=fd,addr.str={end.fileno()}",
                 "-device", f"virtio-net-pci,netdev=link,mac={mac},host_mtu=4200"]
    if plugin:
        # Without the parameter, a kernel with one processor takes its locked instructions away.
        argv[argv.index(append)] = f"{append} noreplace-smp"
        argv += ["-plugin", plugin]
    return argv


def link(kernel: Kernel) -> tuple[socket.socket, socket.socket]:
    """The two ends of a network link, which loses nothing: a full one makes the sender wait."""
    ends = socket.socketpair(type=socket.SOCK_SEQPACKET if kernel.is_uml else socket.SOCK_STREAM)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, LINK_BUFFER)
    return ends


def boot(kernel: Kernel, image: Path, root: Path, name: str, roles: tuple[str, ...], end: socket.socket | None,
         cpus: int, memory: int, args: Iterable[str] = (), plugin: str | None = None) -> Node:
    """Starts node NAME in ROOT, which holds the run's directories under /lab.

    END is the node's end of the link, or None; MEMORY is in MiB; ARGS are added to the kernel's command
    line; PLUGIN is one of the emulator, by its path in ROOT.
    """
    ours, theirs = zip(*(socket.socketpair() for _ in CHANNELS))
    console, write_end = os.pipe()
    fds = {channel: node_end.fileno() for channel, node_end in zip(CHANNELS, theirs)}
    link_end = [end] if end else []
    line = (_uml if kernel.is_uml else _qemu)(kernel, image, name, end, fds, cpus, memory, args, plugin)
    # The node lives on. The lab has no threads.
    # pylint: disable-next=consider-using-with,subprocess-popen-preexec-fn
    process = subprocess.Popen(["chroot", str(root), *map(str, line)], stdin=subprocess.DEVNULL,
                               stdout=write_end, stderr=subprocess.STDOUT,
                               pass_fds=[*fds.values(), *(used.fileno() for used in link_end)],
                               preexec_fn=die_with_parent, env={"PATH": os.environ["PATH"],
                                                                "TMPDIR": "/dev/shm"})
    os.close(write_end)
    for used in (*theirs, *link_end):
        used.close()
    return Node(name, roles, process, console, dict(zip(CHANNELS, ours)))
