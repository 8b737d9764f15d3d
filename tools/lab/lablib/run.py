# SPDX-License-Identifier: GPL-2.0
"""One run: boots the nodes, carries messages between them, and says how it ended."""

import argparse
import os
import selectors
import shutil
import signal
import time

from io import FileIO
from pathlib import Path
from socket import socket

from . import jail, klog, modules, nodes, roots
from .cache import HOME
from .kernels import Kernel
from .progress import LabError, say
from .sandbox import mounts

LAB_FAILED, TIMED_OUT, REPORTED, STALLED = 125, 124, 99, 98
BOOT_TIMEOUT = 300
# Nodes are started once more if a kernel has not started its first process after KERNEL_TIMEOUT seconds, or if a node
# has ended before that: an emulated machine with two processors may hang in its first second, or an assertion of the
# emulator fails in its first seconds (iotlb_to_section).
KERNEL_TIMEOUT = 120
FIRST_PROCESS = b"lab: the first process"
FINISH_TIMEOUT = 60


class Run:
    """The work of the lab in the private namespaces of jail.run(), as process 1 of them."""

    def __init__(self, options: argparse.Namespace, kernels: dict[str, Kernel], image: Path,
                 wanted: dict[str, bytes | None]) -> None:
        self.options = options
        self.kernels = kernels      # per node name
        self.image = image
        self.wanted = wanted        # per node name: the bytes of our module, or None for stock
        self.root = HOME / "run/root"
        self.lab = self.root / "lab"
        self.nodes: dict[str, nodes.Node] = {}
        self.logs: dict[str, FileIO] = {}
        self.status: int | None = None      # the command's
        self.outcome: int | None = None     # the run's
        self.deadline = 0.0
        self.pending: dict[socket, bytes] = {}      # per channel: the beginning of a line
        self.ready: set[str] = set()
        self.begun = 0.0
        self.started_again = False
        self.nudge_at = 0.0
        self.selector = selectors.DefaultSelector()
        # The source of this run's file systems in the mount table, by the caller's process number.
        self.source = f"rpcrdma-lab-{os.getpid()}"

    def __call__(self) -> int:
        try:
            self._prepare()
            self._boot()
            self._serve()
        except (LabError, OSError) as error:
            say(error)
            self.outcome = LAB_FAILED
        self._stop()
        return self._judge()

    def _prepare(self) -> None:
        """Makes the root that the nodes' processes live in; it is in memory and private."""
        run = HOME / "run"
        run.mkdir(exist_ok=True)
        jail.mount("-t", "tmpfs", "-o", "size=90%", self.source, run)
        for name in ("upper", "work", "root"):
            (run / name).mkdir()
        jail.mount("-t", "overlay", "-o", f"lowerdir={roots.build_root()},upperdir={run}/upper,"
                   f"workdir={run}/work", self.source, self.root)
        for step in mounts(self.root):
            jail.check(step)
        jail.check(["chroot", self.root, "ip", "link", "set", "lo", "up"])
        for name, bound in (("lab/exchange", None), ("lab/share", self.options.share),
                            ("lab/out", self.options.out)):
            (self.root / name).mkdir(parents=True)
            if bound:
                jail.mount("--bind", bound, self.root / name)
        for path in dict.fromkeys((self.image, *(k.boot for k in self.kernels.values()))):
            target = self.root / str(path)[1:]
            if path.is_dir():
                target.mkdir(parents=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
            jail.mount("--bind", path, target)

    def _boot(self) -> None:
        roles = self._roles()
        for name in roles:
            home = self.lab / name
            home.mkdir()
            kernel = self.kernels[name]
            modules.install(kernel, self.wanted[name], home)
            jail.check(["chroot", self.root, "depmod", "-b", f"/lab/{name}", kernel.release])
            (home / "node").write_text(nodes.settings(self.options, name, roles[name]))
            (home / "command").write_text(nodes.command_file(self.options.command))
            self.logs[name] = self._log(name)
        self._start()

    def _roles(self) -> dict[str, tuple[str, ...]]:
        if self.options.nodes == 2:
            return {"server": ("server",), "client": ("client",)}
        return {"client": ("server", "client")}

    def _start(self) -> None:
        self.begun = time.monotonic()
        roles = self._roles()
        ends = nodes.link(self.kernels["client"]) if len(roles) == 2 else [None]
        for name, end in zip(roles, ends):
            plugin = (self.options.plugin and name == self.options.plugin_on
                      and f"/lab/share/{self.options.plugin}")
            memory = self.options.memory if name == "client" else nodes.MEMORY
            args = {"client": self.options.client_args, "server": self.options.server_args}[name]
            node = nodes.boot(self.kernels[name], self.image, self.root, name, roles[name], end,
                              self.options.cpus, memory, args.split(), plugin)
            self.nodes[name] = node
            self.selector.register(node.console, selectors.EVENT_READ, (self._console, node))
            for channel, end in node.channels.items():
                relay = {"stdout": self._stdout, "stderr": self._stderr}.get(channel, self._lines)
                self.selector.register(end, selectors.EVENT_READ, (relay, node, channel))

    def _look_after_boot(self, seconds: float) -> None:
        if seconds > KERNEL_TIMEOUT and not self.started_again and self._begins():
            self._start_again(f"a kernel has not come to its first process in {KERNEL_TIMEOUT} s")
        elif seconds > BOOT_TIMEOUT:
            raise LabError(f"the nodes did not start within {BOOT_TIMEOUT} s")

    def _start_again(self, why: str) -> None:
        say(f"{why}: once more")
        self.started_again = True
        for node in self.nodes.values():
            node.process.kill()
            node.process.wait()
        for key in list(self.selector.get_map().values()):
            self.selector.unregister(key.fileobj)
        self.ready.clear()
        self.pending.clear()
        self._start()

    def _begins(self) -> bool:
        """Whether some kernel has not come to its first process."""
        return any(FIRST_PROCESS not in os.pread(log.fileno(), 1 << 20, 0)
                   for log in self.logs.values())

    def _log(self, name: str) -> FileIO:
        directory = Path(self.options.out) if self.options.out else HOME / "run"
        return open(directory / f"{name}.log", "w+b", buffering=0)

    def _serve(self) -> None:
        self.deadline = self.begun + self.options.timeout
        while self.outcome is None:
            now = time.monotonic()
            if now > self.deadline and self.status is None:
                say(f"time-out: the command had not ended after {self.options.timeout:g} s")
                self.outcome = TIMED_OUT
            elif now > self.deadline:
                raise LabError(f"the server's node did not answer for {FINISH_TIMEOUT} s at the end")
            elif len(self.ready) < 2:
                self._look_after_boot(now - self.begun)
            else:
                self._nudge(now)
            for key, _ in self.selector.select(0.5):
                handle, *arguments = key.data
                handle(key.fileobj, *arguments)
            for node in self.nodes.values():
                if self.outcome is None and node.process.poll() is not None:
                    if self.started_again or not self._begins():
                        raise LabError(f"the {node.name} node ended by itself")
                    self._start_again(f"the {node.name} node ended before its kernel came to its first process")
                    break

    def _nudge(self, now: float) -> None:
        """Makes User Mode Linux poll its devices once a second. It polls them when it gets the signal of a
        device, and has once missed the signal of its network: the node was without a network for ten
        minutes."""
        if now < self.nudge_at:
            return
        self.nudge_at = now + 1
        for node in self.nodes.values():
            if self.kernels[node.name].is_uml:
                node.process.send_signal(signal.SIGIO)

    def _console(self, descriptor: int, node: nodes.Node) -> None:
        text = os.read(descriptor, 65536)
        if text:
            self.logs[node.name].write(text)
        else:
            self.selector.unregister(descriptor)

    def _stdout(self, end: socket, _node: nodes.Node, _channel: str) -> None:
        self._relay(end, 1)

    def _stderr(self, end: socket, _node: nodes.Node, _channel: str) -> None:
        self._relay(end, 2)

    def _relay(self, end: socket, descriptor: int) -> None:
        text = end.recv(65536)
        if not text:
            self.selector.unregister(end)
        while text:
            text = text[os.write(descriptor, text):]

    def _lines(self, end: socket, _node: nodes.Node, channel: str) -> None:
        text = end.recv(65536)
        if not text:
            self.selector.unregister(end)
        *lines, self.pending[end] = (self.pending.get(end, b"") + text).split(b"\n")
        for line in lines:
            verb, _, rest = line.decode(errors="replace").partition(" ")
            self._message(channel, verb, rest)

    def _message(self, channel: str, verb: str, rest: str) -> None:
        if verb == "failed":
            raise LabError(rest)
        if verb in ("up", "ready"):
            self.ready.add(verb)
            if len(self.ready) == 2:
                self._send("client", "start")
        elif verb == "lost":
            say(f"the capture lost {rest} frames")
        elif verb == "exit":
            self.status = int(rest)
            if self.options.nodes == 1:
                self.outcome = self.status
            else:
                self.deadline = time.monotonic() + FINISH_TIMEOUT
                self._send("server", "finish")
        elif verb == "finished":
            self.outcome = self.status
        elif verb == "server":
            self._send("server", f"run {rest}")
        elif verb == "done":
            self._send("client", f"done {rest}")
        else:
            raise LabError(f"the {channel}'s role says: {verb} {rest}")

    def _send(self, role: str, text: str) -> None:
        node = next(n for n in self.nodes.values() if role in n.roles)
        node.channels[role].sendall(f"{text}\n".encode())

    def _stop(self) -> None:
        """Ends the nodes, and reads the rest of their output."""
        for node in self.nodes.values():
            node.process.kill()
            node.process.wait()
        while ready := self.selector.select(0):
            for key, _ in ready:
                handle, *arguments = key.data
                # A bound method is a new object at each access.
                if handle == self._lines:  # pylint: disable=comparison-with-callable
                    self.selector.unregister(key.fileobj)
                else:
                    handle(key.fileobj, *arguments)
        pcap = self.lab / "client/pcap"
        if self.options.pcap and pcap.exists():
            shutil.copyfile(pcap, self.options.pcap)

    def _judge(self) -> int:
        """The exit status: a report of a kernel has priority over the status of the command."""
        reported = set()
        devices_fail = "ours-faults" in (self.options.client, self.options.server)
        for name, log in self.logs.items():
            log.seek(0)
            text = log.read().decode(errors="replace")
            for report in klog.reports(text, devices_fail):
                stalled = klog.is_stall(report)
                reported.add(STALLED if stalled else REPORTED)
                say(f"the {name}'s kernel {'stalled' if stalled else 'reported'}:\n{report}")
            for line in klog.explained(text):
                say(f"the {name}'s kernel reported a known fault of its own: {line}")
            if self.outcome == LAB_FAILED and not reported:
                say(f"the end of the {name}'s log:\n" + "\n".join(text.splitlines()[-15:]))
        assert self.outcome is not None
        return max(reported, default=self.outcome)
