# SPDX-License-Identifier: GPL-2.0
"""The command line."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from . import collect, metrics, swap, text
from .doctor import FAIL, findings
from .machine import Machine
from .state import State, read_state

EVENTS = ("xprtrdma_connect", "rpcrdma_close", "xprtrdma_inline_thresh", "xprtrdma_marshal_failed",
          "xprtrdma_reply_*err", "rpcrdma_qp_event", "svcrdma_accept", "svcrdma_refuse", "svcrdma_error",
          "svcrdma_sq_full", "svcrdma_cb_unsent")


def needs_root(task: str) -> None:
    if os.geteuid():
        sys.exit(f"rpcrdma-status: {task} needs root")


def show(machine: Machine, options: argparse.Namespace) -> int:
    before, began = None, 0.0
    while True:
        found, now = read_state(machine), time.monotonic()
        if options.output == "json":
            print(json.dumps(asdict(found), indent=2))
        else:
            terminal = sys.stdout.isatty()
            clear = "\033[H\033[2J" if terminal and options.watch else ""
            print(clear + text.tree(found, terminal), end="")
            print(rates(before, found, now - began) if before else "", end="")
        if not options.watch:
            return 0
        sys.stdout.flush()
        before, began = found, now
        time.sleep(options.watch)


def rates(before: State, after: State, seconds: float) -> str:
    """RPCs and bytes per second of each mount between two states."""
    old = {mount.point: mount.statistics for server in before.servers for mount in server.mounts}
    lines = []
    for server in after.servers:
        for mount in server.mounts:
            grown = {name: sum(new.get(name, 0) for new in mount.statistics)
                     - sum(was.get(name, 0) for was in old.get(mount.point, []))
                     for name in ("sends", "rdma_reply_bytes")}
            lines.append(f"{mount.point}: {grown['sends'] / seconds:.0f} RPCs/s, "
                         f"{grown['rdma_reply_bytes'] / seconds / 1e6:.1f} MB/s written by RDMA\n")
    return "".join(["\n", *lines])


def doctor(machine: Machine, _options: argparse.Namespace) -> int:
    found = findings(machine, read_state(machine))
    for one in found:
        print(f"{text.paint(one.result, sys.stdout.isatty())} {one.text}")
        if one.hint:
            print(f"     {one.hint}")
    return int(any(one.result == FAIL for one in found))


def make_archive(machine: Machine, options: argparse.Namespace) -> int:
    needs_root("collect")
    print(f"Collecting for {options.seconds:g} s ...", file=sys.stderr)
    print(collect.collect(machine, options.file, options.seconds))
    return 0


def trace(_machine: Machine, options: argparse.Namespace) -> int:
    needs_root("trace")
    with collect.Events(("*",) if options.all else EVENTS, slow=options.slow) as events:
        try:
            for line in events.each():
                print(line, end="", flush=True)
        except KeyboardInterrupt:
            pass
    return 0


def prometheus(machine: Machine, options: argparse.Namespace) -> int:
    shown = metrics.metrics(read_state(machine))
    if not options.file:
        print(shown, end="")
        return 0
    # node_exporter must not see half a file.
    part = options.file.with_suffix(".part")
    part.write_text(shown, encoding="utf-8")
    part.replace(options.file)
    return 0


def swap_module(machine: Machine, options: argparse.Namespace) -> int:
    needs_root("swap-module")
    try:
        print(swap.swap(machine, read_state(machine), options.kind, options.restart_server))
    except (swap.Refused, OSError) as why:
        print(f"rpcrdma-status: {why}", file=sys.stderr)
        return 1
    return 0


def command_line() -> argparse.ArgumentParser:
    """Returns the parser of the options and commands, which the tests of the manual page also read."""
    parser = argparse.ArgumentParser(
        prog="rpcrdma-status",
        description="Shows the state of NFS over RDMA: mounts, transports, and clients of the server.")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--watch", type=float, metavar="SECONDS", help="again and again, with rates")
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR",
                        help="shows the state in the unpacked archive DIR of collect")
    parser.set_defaults(action=show)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(name: str, action: Callable[[Machine, argparse.Namespace], int], help_: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_, description=help_)
        command.set_defaults(action=action)
        return command

    add("doctor", doctor, "Checks the machine; the exit status is 1 if a check fails")
    command = add("collect", make_archive, "Makes an archive for a bug report")
    command.add_argument("--seconds", type=float, default=10, help="how long to record events; default: 10")
    command.add_argument("file", nargs="?", type=Path, metavar="FILE.tar.xz")
    command = add("trace", trace, "Prints connections, errors, waits and slow RPCs as they happen")
    command.add_argument("--all", action="store_true", help="all events of the module")
    command.add_argument("--slow", type=float, default=1000, metavar="MILLISECONDS",
                         help="RPCs that took longer; default: 1000")
    command = add("prometheus", prometheus, "Prints metrics for the textfile collector of node_exporter")
    command.add_argument("file", nargs="?", type=Path, metavar="FILE.prom", help="writes the metrics to FILE")
    command = add("swap-module", swap_module, "Exchanges the loaded module if nothing uses it")
    command.add_argument("kind", choices=("rust", "c"), help="the module to load")
    command.add_argument("--restart-server", action="store_true", help="stops nfsd before, and starts it afterwards")
    return parser


def main() -> int:
    """Runs the program; returns the exit status."""
    options = command_line().parse_args()
    try:
        action: Callable[[Machine, argparse.Namespace], int] = options.action
        return action(Machine(options.root), options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
