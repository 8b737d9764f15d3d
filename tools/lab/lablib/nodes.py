# SPDX-License-Identifier: GPL-2.0
"""A node: a kernel booted as a process, and the channels to it.

A channel is one end of a socket pair; the node finds the other as /dev/lab-NAME. The console is a
pipe that only the kernel's log goes down.
"""

import dataclasses
import os
import shlex
import socket
import subprocess

from .sandbox import die_with_parent

CHANNELS = ("client", "stdout", "stderr", "server")
MEMORY = 2048

SERVER, CLIENT = "192.168.77.1", "192.168.77.2"
SERVER6, CLIENT6 = "fd00::1", "fd00::2"
EXPORT = "/srv/export"


@dataclasses.dataclass
class Node:
    name: str
    roles: tuple
    process: subprocess.Popen
    console: int
    channels: dict


def settings(options, name, roles):
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
        "PCAP": options.pcap and "yes" or "no",
        "PCAP_FILTER": "udp port 4791" if options.provider == "rxe" else "tcp",
    }
    return "".join(f"{key}={shlex.quote(str(value))}\n" for key, value in values.items())


def command_file(argv):
    """The script that the client's role runs."""
    lines = ["export " + shlex.join(f"{key}={value}" for key, value in {
        "SERVER": SERVER, "SERVER6": SERVER6, "EXPORT": EXPORT, "HOSTNAME": "client"}.items())]
    return "\n".join([*lines, "exec " + shlex.join(argv), ""])


def _uml(kernel, image, name, link, fds):
    """User Mode Linux: the link is L2TP over UDP on the run's own loop-back."""
    mine, peer = (7001, 7002) if name == "server" else (7002, 7001)
    argv = [kernel.image, f"mem={MEMORY}M", "ncpus=1", "con=null", "con0=null,fd:1", "ssl=null",
            *(f"ssl{n}=fd:{fds[c]}" for n, c in enumerate(CHANNELS, 1)),
            f"ubd0r={image}", "root=/dev/ubda", "rootfstype=erofs", "init=/lab-node/init",
            f"umid={name}", "uml_dir=/tmp", f"lab={name}", "panic=-1"]
    if link:
        argv.append(f"vec0:transport=l2tpv3,udp=1,src=127.0.0.1,dst=127.0.0.1,srcport={mine},"
                    f"dstport={peer},depth=128,mtu=4200,rx_session=0x5,tx_session=0x5,cookie=0")
    return argv


def _qemu(kernel, image, name, link, fds):
    """QEMU without hardware virtualisation: the link is a stream between the two machines."""
    append = f"console=ttyS0 quiet loglevel=6 panic=-1 rdinit=/init lab={name} mitigations=off"
    argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1",
            "-m", str(MEMORY), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
            "-kernel", kernel.image, "-initrd", kernel.initrd, "-append", append,
            "-drive", f"file={image},format=raw,if=virtio,readonly=on",
            "-device", "virtio-serial", "-device", "virtio-rng-pci"]
    for channel in CHANNELS:
        argv += ["-chardev", f"socket,id={channel},fd={fds[channel]}",
                 "-device", f"virtserialport,chardev={channel},name=lab-{channel}"]
    for tag in (name, "exchange", "share", "out"):
        if os.path.isdir(f"/lab/{tag}"):
            argv += ["-virtfs", f"local,path=/lab/{tag},mount_tag=lab-{tag},security_model=none"]
    if link:
        server = "on" if name == "server" else "off,reconnect-ms=100"
        mac = "52:54:00:00:00:01" if name == "server" else "52:54:00:00:00:02"
        argv += ["-netdev", f"stream,id=link,addr.type=unix,addr.path=/lab/link,server={server}",
                 "-device", f"virtio-net-pci,netdev=link,mac={mac},host_mtu=4200"]
    return argv


def boot(kernel, image, root, name, roles, link):
    """Starts node NAME in ROOT, which holds the run's directories under /lab."""
    ours, theirs = zip(*(socket.socketpair() for _ in CHANNELS))
    console, write_end = os.pipe()
    fds = {channel: end.fileno() for channel, end in zip(CHANNELS, theirs)}
    line = (_uml if kernel.is_uml else _qemu)(kernel, image, name, link, fds)
    process = subprocess.Popen(["chroot", str(root), *map(str, line)], stdin=subprocess.DEVNULL,
                               stdout=write_end, stderr=subprocess.STDOUT, pass_fds=fds.values(),
                               preexec_fn=die_with_parent, env={"PATH": os.environ["PATH"],
                                                                "TMPDIR": "/dev/shm"})
    os.close(write_end)
    for end in theirs:
        end.close()
    return Node(name, roles, process, console, dict(zip(CHANNELS, ours)))
