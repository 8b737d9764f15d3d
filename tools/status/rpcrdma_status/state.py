# SPDX-License-Identifier: GPL-2.0
"""The state of NFS over RDMA on a machine, from procfs, sysfs and debugfs.

The dataclasses are the schema of `rpcrdma-status -o json`. A value that cannot be determined is null.
"""

import os
import re
from dataclasses import dataclass, field

from .machine import Machine, fields

# The version of the schema. It grows when a field changes its meaning or goes; a new field changes nothing.
SCHEMA = 1
DEBUGFS = "/sys/kernel/debug/rpcrdma"
SWITCHES = "/sys/kernel/sunrpc/xprt-switches"
DEVICES = "/sys/class/infiniband"
# A request counts as 1 << CWND_SHIFT in sunrpc's congestion window.
CWND_SHIFT = 8

# The columns of the line `xprt:` of mountstats behind `rdma`, in the kernel's order.
COLUMNS = ("port", "bind_count", "connect_count", "connect_time", "idle_time", "sends", "receives", "bad_xids",
           "request_sum", "backlog_sum", "read_segments", "write_segments", "reply_segments", "rdma_request_bytes",
           "rdma_reply_bytes", "pullup_bytes", "fixup_bytes", "hardway_bytes", "failed_marshals", "bad_replies",
           "nomsg_calls", "recovered_registrations", "orphaned_registrations", "registrations",
           "local_invalidations", "empty_send_queue", "reply_waits_for_send")


@dataclass
class Module:
    """The module that is loaded."""
    loaded: bool
    # "rust" or "c".
    kind: str | None = None
    version: str | None = None
    users: int | None = None


@dataclass
class Device:
    """A port of an RDMA device."""
    name: str
    port: int
    state: str
    link_layer: str | None = None
    rate: str | None = None
    interface: str | None = None


@dataclass
class Transport:
    """A transport of the client: one connection at a time."""
    id: int
    switch: int
    # "connected", "connecting", "closing", "not connected" or "offline".
    state: str
    # Why the last attempt to connect failed.
    error: str | None
    # Why the last connection ended.
    last_close: str | None
    peer: str
    # The seconds until the next attempt to connect.
    next_attempt: int | None = None
    # RPCs in flight, and RPCs that wait for a slot, a credit or a connection.
    tasks: int | None = None
    source: str | None = None
    device: str | None = None
    device_port: int | None = None
    # The version of RPC-over-RDMA.
    version: int | None = None
    in_flight: int | None = None
    credits: int | None = None
    slots: int | None = None
    backlog: int | None = None
    registrations: int | None = None
    # The bytes of the Send and Receive buffers.
    buffer_bytes: int | None = None
    connects: int | None = None
    authenticated: bool | None = None
    inline_send: int | None = None
    inline_receive: int | None = None


@dataclass
class Mount:
    """A mount over RDMA."""
    point: str
    export: str
    version: str
    server: str
    security: str
    # For each connection of the mount, the columns of mountstats by name.
    statistics: list[dict[str, int]] = field(default_factory=list)


@dataclass
class Server:
    """A server of the client, with its mounts and transports."""
    address: str
    mounts: list[Mount] = field(default_factory=list)
    transports: list[Transport] = field(default_factory=list)


@dataclass
class Client:
    """A connection of the server."""
    id: int
    peer: str
    source: str
    device: str | None
    device_port: int | None
    version: int
    grants: int | None
    calls_pulling: int | None
    buffer_bytes: int | None
    waits_for_client: bool
    authenticated: bool
    inline_send: int | None
    inline_receive: int | None


@dataclass
class Service:
    """The NFS server of this machine."""
    # Null unless root runs the program.
    threads: int | None
    ports: list[int]
    clients: list[Client]
    # The C module does not report its connections.
    reports_clients: bool


@dataclass
class State:
    """NFS over RDMA on a machine."""
    schema: int
    module: Module
    devices: list[Device]
    servers: list[Server]
    service: Service | None
    # Files that only root may read.
    needs_root: list[str]


def number(text: str | None) -> int | None:
    """The number of a text, or None."""
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def module(machine: Machine) -> Module:
    place = "/sys/module/rpcrdma"
    if not machine.exists(place):
        return Module(False)
    version = machine.word(f"{place}/version")
    return Module(True, "rust" if version else "c", version, number(machine.word(f"{place}/refcnt")))


def devices(machine: Machine) -> list[Device]:
    found = []
    for name in machine.names(DEVICES):
        for port in machine.names(f"{DEVICES}/{name}/ports"):
            place = f"{DEVICES}/{name}/ports/{port}"
            state = machine.word(f"{place}/state") or "unknown"
            found.append(Device(
                name, int(port), state.split(":")[-1].strip().lower(), machine.word(f"{place}/link_layer"),
                machine.word(f"{place}/rate"), machine.word(f"{place}/gid_attrs/ndevs/0")))
    return found


def with_port(address: str, port: str | None) -> str:
    """The address and port as the kernel prints both."""
    shown = f"[{address}]" if ":" in address else address
    return f"{shown}:{port}" if port else shown


def addresses(machine: Machine) -> dict[str, str]:
    """The server's address of each mount, which mountstats lacks."""
    found = {}
    for line in (machine.read("/proc/self/mounts") or "").splitlines():
        words = line.split()
        address = fields(words[3].replace(",", "\n")).get("addr") if len(words) > 3 else None
        if address:
            found[words[1]] = address
    return found


def mounts(machine: Machine) -> list[Mount]:
    """The mounts over RDMA in the order of mountstats."""
    found: list[Mount] = []
    address = addresses(machine)
    point = ""
    here: Mount | None = None
    for line in (machine.read("/proc/self/mountstats") or "").splitlines():
        begin = re.match(r"device (\S+) mounted on (.*) with fstype (\S+)", line)
        if begin:
            here, point = None, begin.group(2)
            if begin.group(3).startswith("nfs"):
                here = Mount(point.replace("\\040", " "), begin.group(1), "", "", "sys")
            continue
        words = line.split()
        if here is None or not words:
            continue
        if words[0] == "opts:":
            options = fields(words[1].replace(",", "\n"))
            if options.get("proto") not in ("rdma", "rdma6"):
                here = None
                continue
            here.version = options.get("vers", "")
            here.server = with_port(address.get(point, "unknown"), options.get("port"))
            here.security = options.get("sec", "sys")
            found.append(here)
        elif words[:2] == ["xprt:", "rdma"]:
            here.statistics.append(dict(zip(COLUMNS, map(int, words[2:]))))
    return found


def error_of(shown: dict[str, str]) -> str | None:
    """The error of the last attempt to connect."""
    error = number(shown.get("last_error"))
    return os.strerror(-error).lower() if error else None


def in_flight(info: dict[str, str], shown: dict[str, str]) -> int | None:
    """The RPCs in flight: this module counts them in its protocol, the C module in the congestion window."""
    used = number(info.get("cur_cong"))
    if "connection" in shown:
        return number(shown.get("outstanding"))
    return used >> CWND_SHIFT if used is not None else None


def last_close(shown: dict[str, str]) -> str | None:
    """The reason for the end of the last connection."""
    close = shown.get("last_close")
    return close if close != "none" else None


def transport(machine: Machine, switch: int, name: str) -> Transport:
    place = f"{SWITCHES}/switch-{switch}/{name}"
    identity = int(name.split("-")[1])
    info = fields(machine.read(f"{place}/xprt_info"))
    flags = fields(machine.read(f"{place}/xprt_state")).get("state", "").split()
    shown = fields(machine.read(f"{DEBUGFS}/xprt-{identity}"))
    if "OFFLINE" in flags:
        state = "offline"
    elif "CLOSING" in flags or "CLOSE_WAIT" in flags:
        state = "closing"
    elif "CONNECTED" in flags:
        state = "connected"
    elif "CONNECTING" in flags or shown.get("connecting") == "1":
        state = "connecting"
    else:
        state = "not connected"
    peer = machine.word(f"{place}/dstaddr") or "unknown"
    source = machine.word(f"{place}/srcaddr")
    # The C module does not know it: "<not a socket>".
    has_source = state == "connected" and source is not None and not source.startswith("<")
    window = number(info.get("cong_win"))
    return Transport(
        identity, switch, state, error_of(shown), last_close(shown),
        shown.get("peer") or with_port(peer, info.get("dst_port")),
        number(shown.get("next_attempt")) or None,
        number(shown.get("tasks") or info.get("tasks_queuelen")),
        shown.get("source") or (with_port(source or "", info.get("src_port")) if has_source else None),
        shown.get("device"), number(shown.get("device_port")), number(shown.get("version")),
        in_flight(info, shown),
        number(shown.get("credits")) or (window >> CWND_SHIFT if window else None),
        number(shown.get("requests")) or number(info.get("max_num_slots")), number(info.get("backlog_q_len")),
        number(shown.get("registrations")), number(shown.get("buffer_bytes")), number(shown.get("connects")),
        shown["authenticated"] == "1" if "authenticated" in shown else None,
        number(shown.get("inline_send")), number(shown.get("inline_recv")))


def transports(machine: Machine) -> list[Transport]:
    found = []
    for switch in machine.names(SWITCHES):
        for name in machine.names(f"{SWITCHES}/{switch}"):
            if re.fullmatch(r"xprt-\d+-rdma6?", name):
                found.append(transport(machine, int(switch.split("-")[1]), name))
    # A port of 0 is the server's way back to a client, on the connection of the client.
    return sorted((one for one in found if not one.peer.endswith(":0")), key=lambda one: one.id)


def host_of(address: str) -> str:
    """The address without the port."""
    return re.sub(r":\d+$", "", address).strip("[]")


def servers(machine: Machine) -> list[Server]:
    """The servers of the mounts and transports. A transport without a mount is of a mount in another namespace,
    or on its way out."""
    found: dict[str, Server] = {}
    for mount in mounts(machine):
        found.setdefault(host_of(mount.server), Server(mount.server)).mounts.append(mount)
    for one in transports(machine):
        found.setdefault(host_of(one.peer), Server(one.peer)).transports.append(one)
    return list(found.values())


def client(machine: Machine, name: str) -> Client | None:
    shown = fields(machine.read(f"{DEBUGFS}/{name}"))
    if "peer" not in shown:
        return None
    return Client(
        int(shown["connection"]), shown["peer"], shown.get("source", ""), shown.get("device"),
        number(shown.get("device_port")), number(shown.get("version")) or 0, number(shown.get("grants")),
        number(shown.get("calls_pulling")), number(shown.get("buffer_bytes")), shown.get("waits_for_client") == "1",
        shown.get("authenticated") == "1", number(shown.get("inline_send")), number(shown.get("inline_recv")))


def service(machine: Machine, kind: str | None) -> Service | None:
    """The server, if it has an RDMA listener or RDMA clients."""
    listed = machine.read("/proc/fs/nfsd/portlist")
    ports = sorted({int(port) for port in re.findall(r"^rdma6? (\d+)$", listed or "", re.M)})
    clients = [found for name in machine.names(DEBUGFS) if name.startswith("svc-")
               and (found := client(machine, name))]
    if not ports and not clients:
        return None
    return Service(number(machine.word("/proc/fs/nfsd/threads")), ports, clients, kind == "rust")


def read_state(machine: Machine) -> State:
    """Reads the state of the machine."""
    loaded = module(machine)
    found = State(SCHEMA, loaded, devices(machine), servers(machine), service(machine, loaded.kind), [])
    found.needs_root = sorted(machine.refused)
    return found
