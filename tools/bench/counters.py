# SPDX-License-Identifier: GPL-2.0
"""Counters of both nodes: processor time, context switches, completions in a batch, memory of the kernel.

lab-server runs a command on the server's node.
"""

import dataclasses
import re
import subprocess

NODES = ("client", "server")
TRACING = "/sys/kernel/tracing"
# The seconds of a trace, which takes processor time itself, so nothing else is measured in it.
TRACED = 1


def on(node: str, script: str) -> str:
    """Returns the output of a shell's SCRIPT on a node. An error of the script is an error here."""
    place = [] if node == "client" else ["lab-server"]
    return subprocess.run([*place, "sh", "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout


@dataclasses.dataclass
class Counters:
    """The counters of a node since its boot."""
    switches: int
    busy: float     # seconds of all processors

    def __sub__(self, before: "Counters") -> "Counters":
        return Counters(self.switches - before.switches, self.busy - before.busy)


def parse_stat(text: str, ticks: int) -> Counters:
    """Returns the counters in /proc/stat; a second has TICKS."""
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    user, nice, system, _, _, irq, softirq = map(int, lines["cpu"][:7])
    return Counters(int(lines["ctxt"][0]), (user + nice + system + irq + softirq) / ticks)


def read() -> dict[str, Counters]:
    """Returns the counters of both nodes."""
    shown = {node: on(node, "getconf CLK_TCK && cat /proc/stat").split("\n", 1) for node in NODES}
    return {node: parse_stat(stat, int(ticks)) for node, (ticks, stat) in shown.items()}


def since(before: dict[str, Counters]) -> dict[str, Counters]:
    """Returns the difference to the counters BEFORE."""
    now = read()
    return {node: now[node] - before[node] for node in NODES}


class Trace:
    """Traces the completion queues of both nodes while it is entered."""

    def __init__(self) -> None:
        # The number of completions of each run of a work item that polls a completion queue.
        self.batches: dict[str, list[int]] = {}

    def __enter__(self) -> "Trace":
        for node in NODES:
            on(node, f"cd {TRACING} && echo 0 >tracing_on && echo 16384 >buffer_size_kb && echo >trace &&"
                     "for event in cq_process cq_poll; do echo 1 >events/rdma_core/$event/enable; done &&"
                     "echo 1 >tracing_on")
        return self

    def __exit__(self, *_: object) -> None:
        for node in NODES:
            text = on(node, f"cd {TRACING} && echo 0 >tracing_on && echo 0 >events/rdma_core/enable &&"
                            "grep ' cq_p' trace; echo >trace; echo 1408 >buffer_size_kb; echo 1 >tracing_on")
            self.batches[node] = parse_trace(text)


def parse_trace(text: str) -> list[int]:
    """Returns the number of completions of each run: a run begins with cq_process, and polls at least once."""
    runs: dict[str, int] = {}
    done = []
    for line in text.splitlines():
        found = re.search(r" (cq_process|cq_poll): cq\.id=(\d+)(?: requested -?\d+, returned (-?\d+))?", line)
        if not found:
            continue
        event, queue, returned = found.groups()
        if event == "cq_process":
            if queue in runs:
                done.append(runs[queue])
            runs[queue] = 0
        elif queue in runs:
            runs[queue] += max(int(returned), 0)
    return done + list(runs.values())


class Runs:
    """Counts the runs of work items that poll completion queues on the server's node while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Runs":
        on("server", f"cd {TRACING} && echo >trace && echo 1 >events/rdma_core/cq_process/enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.count = parse_events(on("server", f"cd {TRACING} && echo 0 >events/rdma_core/cq_process/enable &&"
                                               "cat per_cpu/cpu*/stats && echo >trace"))


def parse_events(stats: str) -> int:
    """Returns the number of events in the buffers of all processors, including the events that were overwritten."""
    return sum(int(number) for number in re.findall(r"^(?:entries|overrun): (\d+)$", stats, re.MULTILINE))


HELD = r"""
sync
echo 3 >/proc/sys/vm/drop_caches
for cache in /sys/kernel/slab/*/shrink; do [ ! -e "$cache" ] || echo 1 >"$cache"; done
awk '/^Slab:/ { sum += $2 } /^VmallocUsed:/ { sum += $2 } END { print sum }' /proc/meminfo
"""


def held() -> dict[str, int]:
    """Returns the slab and vmalloc memory of both nodes in KiB, after unused memory was freed."""
    return {node: int(on(node, HELD)) for node in NODES}
