# SPDX-License-Identifier: GPL-2.0
"""Metrics for the textfile collector of Prometheus' node_exporter."""

from collections.abc import Iterator

from .state import Server, Service, State, Transport

Labels = dict[str, str | int]
Sample = tuple[Labels, int | float]

# The columns of mountstats that are metrics: name, unit or subject, and help. All are counters.
COLUMNS = {
    "connect_count": ("connections_total", "Connections made"),
    "sends": ("sends_total", "RPC Calls sent"),
    "receives": ("receives_total", "RPC Replies received"),
    "bad_xids": ("bad_xids_total", "Replies to no waiting RPC"),
    "read_segments": ("read_segments_total", "Segments of Read chunks"),
    "write_segments": ("write_segments_total", "Segments of Write chunks"),
    "reply_segments": ("reply_segments_total", "Segments of Reply chunks"),
    "rdma_request_bytes": ("offered_bytes_total", "Bytes of memory provided to the server for results"),
    "rdma_reply_bytes": ("written_bytes_total", "Bytes of results that the server wrote by RDMA"),
    "pullup_bytes": ("pullup_bytes_total", "Bytes copied into Sends"),
    "fixup_bytes": ("fixup_bytes_total", "Bytes copied out of Receives"),
    "failed_marshals": ("failed_marshals_total", "Failed attempts to send a Call"),
    "bad_replies": ("bad_replies_total", "Replies that failed their RPC"),
    "registrations": ("registrations_total", "Memory registrations made"),
    "local_invalidations": ("local_invalidations_total", "Registrations that the client invalidated itself"),
    "empty_send_queue": ("empty_send_queue_total", "Sends that waited for a Send buffer"),
}


def escaped(value: str | int) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def family(name: str, kind: str, text: str, samples: list[Sample]) -> Iterator[str]:
    """The lines of one metric; none without samples."""
    if not samples:
        return
    yield f"# HELP rpcrdma_{name} {text}."
    yield f"# TYPE rpcrdma_{name} {kind}"
    for labels, value in samples:
        shown = ",".join(f'{label}="{escaped(content)}"' for label, content in labels.items())
        yield f"rpcrdma_{name}{{{shown}}} {value}" if shown else f"rpcrdma_{name} {value}"


def of_mounts(servers: list[Server]) -> Iterator[str]:
    places: list[tuple[Labels, dict[str, int]]] = [
        ({"server": server.address, "mount": mount.point, "connection": number}, columns)
        for server in servers for mount in server.mounts for number, columns in enumerate(mount.statistics)]
    for column, (name, text) in COLUMNS.items():
        yield from family(f"mount_{name}", "counter", text,
                          [(labels, columns[column]) for labels, columns in places if column in columns])


def of_transports(servers: list[Server]) -> Iterator[str]:
    places: list[tuple[Labels, Transport]] = [
        ({"server": server.address, "transport": one.id}, one)
        for server in servers for one in server.transports]
    yield from family("transport_connected", "gauge", "1 if the transport is connected",
                      [(labels, int(one.state == "connected")) for labels, one in places])
    yield from family("transport_in_flight", "gauge", "RPCs in flight",
                      [(labels, one.in_flight) for labels, one in places if one.in_flight is not None])
    yield from family("transport_tasks", "gauge", "RPCs in flight, and RPCs that wait for a slot or a connection",
                      [(labels, one.tasks) for labels, one in places if one.tasks is not None])
    yield from family("transport_credits", "gauge", "RPCs that the server allows at a time",
                      [(labels, one.credits) for labels, one in places if one.credits is not None])
    yield from family("transport_buffer_bytes", "gauge", "Bytes of Send and Receive buffers",
                      [(labels, one.buffer_bytes) for labels, one in places if one.buffer_bytes is not None])
    yield from family("transport_protocol_version", "gauge", "Version of RPC-over-RDMA",
                      [(labels, one.version) for labels, one in places if one.version])


def of_service(service: Service) -> Iterator[str]:
    if service.threads is not None:
        yield from family("server_threads", "gauge", "Threads of nfsd", [({}, service.threads)])
    if service.reports_clients:
        yield from family("server_connections", "gauge", "Connections of clients", [({}, len(service.clients))])
        yield from family("server_granted_credits", "gauge", "Credits granted to all clients",
                          [({}, sum(client.grants or 0 for client in service.clients))])
        yield from family("server_buffer_bytes", "gauge", "Bytes of Send and Receive buffers of all clients",
                          [({}, sum(client.buffer_bytes or 0 for client in service.clients))])
        yield from family("server_waiting_connections", "gauge", "Connections on which Replies wait for the client",
                          [({}, sum(client.waits_for_client for client in service.clients))])


def metrics(state: State) -> str:
    """All metrics in the text format."""
    module = state.module
    lines = list(family("module_info", "gauge", "The loaded module",
                        [({"kind": module.kind or "none", "version": module.version or ""}, 1)]))
    lines += family("device_active", "gauge", "1 if the port of the RDMA device is active",
                    [({"device": one.name, "port": one.port}, int(one.state == "active")) for one in state.devices])
    lines += [*of_mounts(state.servers), *of_transports(state.servers)]
    if state.service:
        lines += of_service(state.service)
    return "\n".join(lines) + "\n"
