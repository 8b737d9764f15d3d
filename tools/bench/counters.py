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


# The lock that a function of sunrpc takes first, by the beginning of the name of the function.
LOCKS_OF_SUNRPC = {
    "xprt_lookup_rqst": "queue_lock", "xprt_request_": "queue_lock", "xprt_complete_rqst": "queue_lock",
    "xprt_transmit": "queue_lock", "xprt_reserve_xprt": "transport_lock", "xprt_release_": "transport_lock",
    "xprt_write_space": "transport_lock", "xprt_wait_for_buffer_space": "transport_lock",
    "xprt_alloc_slot": "reserve_lock", "xprt_free_slot": "reserve_lock", "svc_": "service pool", "rpc_": "RPC queues",
}
# The functions between the caller of a lock and the trace event.
LOCK_FUNCTIONS = re.compile(r"spin_lock|_slowpath|lock_backend|contention")


class Contention:
    """Counts the contended acquisitions of spinlocks on both nodes while it is entered."""

    EVENT = f"{TRACING}/events/lock/contention_begin"
    # Flag 1: the waiting processor spins.
    TRIGGER = "hist:keys=stacktrace:size=4096 if flags & 1"

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}

    def __enter__(self) -> "Contention":
        for node in NODES:
            on(node, f"echo '{self.TRIGGER}' >{self.EVENT}/trigger")
        return self

    def __exit__(self, *_: object) -> None:
        for node in NODES:
            text = on(node, f"cat {self.EVENT}/hist && echo '!{self.TRIGGER}' >{self.EVENT}/trigger")
            self.counts[node] = parse_contention(text)


def parse_contention(text: str) -> dict[str, int]:
    """Returns the number of contended acquisitions by lock, of a histogram by stack."""
    counts: dict[str, int] = {}
    for stack, hits in re.findall(r"^\{ \w*stacktrace:\n(.*?)^\} hitcount: +(\d+)", text, re.MULTILINE | re.DOTALL):
        name = lock_of(stack.split("\n"))
        counts[name] = counts.get(name, 0) + int(hits)
    return counts


def lock_of(stack: list[str]) -> str:
    """Returns the name of the lock for which the top of STACK waits."""
    for line in stack:
        found = re.match(r"\s*([^\s+]+)\+0x\S+(?: \[(\w+)\])?", line)
        if not found or LOCK_FUNCTIONS.search(found[1]):
            continue
        if found[2] == "rpcrdma":
            return "the transport's"
        if found[2] == "sunrpc":
            return next((lock for begin, lock in LOCKS_OF_SUNRPC.items() if found[1].startswith(begin)), "sunrpc's")
        return "others"
    return "others"


HELD = r"""
sync
echo 3 >/proc/sys/vm/drop_caches
for cache in /sys/kernel/slab/*/shrink; do [ ! -e "$cache" ] || echo 1 >"$cache"; done
awk '/^Slab:/ { sum += $2 } /^VmallocUsed:/ { sum += $2 } END { print sum }' /proc/meminfo
"""


def held() -> dict[str, int]:
    """Returns the slab and vmalloc memory of both nodes in KiB, after unused memory was freed."""
    return {node: int(on(node, HELD)) for node in NODES}
