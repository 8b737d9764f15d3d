# SPDX-License-Identifier: GPL-2.0
"""The state as a tree for people."""

from collections.abc import Iterable, Iterator

from .state import Client, Device, Module, Server, Service, State, Transport

COLOURS = {"connected": "32", "active": "32", "pass": "32", "connecting": "33", "closing": "33", "warn": "33",
           "not connected": "31", "offline": "31", "down": "31", "fail": "31"}


def paint(word: str, coloured: bool) -> str:
    colour = COLOURS.get(word.lower())
    return f"\033[{colour}m{word}\033[0m" if coloured and colour else word


def kib(size: int) -> str:
    return f"{-(-size // 1024)} KiB"


def of_module(module: Module) -> str:
    if not module.loaded:
        return "module: rpcrdma is not loaded"
    kind = f"rpcrdma {module.version} (Rust)" if module.kind == "rust" else "the kernel's own rpcrdma (C)"
    return f"module: {kind}, {module.users} users"


def of_device(device: Device, coloured: bool) -> str:
    parts = [f"{device.name}/{device.port}: {paint(device.state, coloured)}"]
    parts += [part for part in (device.link_layer, device.rate) if part]
    if device.interface:
        parts.append(f"interface {device.interface}")
    return ", ".join(parts)


def of_transport(one: Transport, coloured: bool) -> Iterator[str]:
    state = paint(one.state, coloured)
    reasons = [one.error or one.last_close, one.next_attempt and f"next attempt in {one.next_attempt} s"]
    why = ", ".join(reason for reason in reasons if reason)
    if why and one.state != "connected":
        state += f" ({why})"
    ends = f"{one.source} -> {one.peer}" if one.source else f"-> {one.peer}"
    where = f" on {one.device}/{one.device_port}" if one.device else ""
    yield f"xprt-{one.id}: {state}, {ends}{where}"
    facts = []
    if one.version:
        facts.append(f"RPC-over-RDMA version {one.version}")
    if one.in_flight is not None:
        facts.append(f"{one.in_flight} RPCs in flight")
    if one.credits is not None:
        facts.append(f"{one.credits} credits")
    if one.backlog:
        facts.append(f"{one.backlog} tasks wait for a slot")
    if one.tasks and one.state != "connected":
        facts.append(f"{one.tasks} RPCs wait")
    if one.registrations is not None:
        facts.append(f"{one.registrations} registrations")
    if one.buffer_bytes:
        facts.append(f"{kib(one.buffer_bytes)} of buffers")
    if one.connects is not None:
        facts.append(f"{one.connects} connections made")
    if one.state == "connected" and one.last_close:
        facts.append(f"last close: {one.last_close}")
    if one.authenticated:
        facts.append("authenticated")
    if facts:
        yield "  " + ", ".join(facts)


def of_server(server: Server, coloured: bool) -> Iterator[str]:
    yield f"server {server.address}"
    for mount in server.mounts:
        yield f"  {mount.point}: {mount.export}, NFS {mount.version}, sec={mount.security}"
    for one in server.transports:
        yield from indented(of_transport(one, coloured))


def of_client(client: Client) -> Iterator[str]:
    where = f" on {client.device}/{client.device_port}" if client.device else ""
    yield f"client {client.peer} -> {client.source}{where}"
    facts = [f"RPC-over-RDMA version {client.version}", f"{client.grants} credits granted"]
    if client.buffer_bytes:
        facts.append(f"{kib(client.buffer_bytes)} of buffers")
    if client.calls_pulling:
        facts.append(f"{client.calls_pulling} Calls read their data")
    if client.waits_for_client:
        facts.append("Replies wait for the client")
    if client.authenticated:
        facts.append("authenticated")
    yield "  " + ", ".join(facts)


def of_service(service: Service) -> Iterator[str]:
    ports = ", ".join(map(str, service.ports)) or "none"
    threads = "" if service.threads is None else f", {service.threads} threads"
    yield f"nfsd: RDMA ports {ports}{threads}"
    if not service.reports_clients:
        yield "  the kernel's own module does not report its clients"
    for client in service.clients:
        yield from indented(of_client(client))


def indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def tree(state: State, coloured: bool) -> str:
    """The whole state."""
    lines = [of_module(state.module)]
    lines += [of_device(device, coloured) for device in state.devices] or ["no RDMA device"]
    for server in state.servers:
        lines += ["", *of_server(server, coloured)]
    if state.service:
        lines += ["", *of_service(state.service)]
    if not state.servers and not state.service:
        lines += ["", "no mount uses RDMA, and nfsd does not listen on an RDMA port"]
    if state.needs_root:
        lines += ["", f"Only root sees more: {', '.join(state.needs_root)}"]
    return "\n".join(lines) + "\n"
