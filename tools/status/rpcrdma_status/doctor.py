# SPDX-License-Identifier: GPL-2.0
"""Checks of the machine, each with PASS, WARN or FAIL and a hint."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .machine import Machine
from .state import DEVICES, State, host_of

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"


@dataclass
class Finding:
    """The result of a check. The hint names a remedy."""
    result: str
    text: str
    hint: str = ""


def checks_module(machine: Machine, state: State) -> Iterator[Finding]:
    """The module that is loaded, and the module that would be loaded next."""
    if state.module.loaded:
        kind = f"{state.module.version} in Rust" if state.module.kind == "rust" else "the kernel's own, in C"
        yield Finding(PASS, f"rpcrdma is loaded: {kind}")
    else:
        yield Finding(WARN, "rpcrdma is not loaded", "modprobe rpcrdma; a mount with proto=rdma loads it as well")
    path = (machine.run("modinfo", "-n", "rpcrdma") or "").strip()
    if not machine.is_live:
        return
    if not path:
        yield Finding(FAIL, "this kernel has no module rpcrdma",
                      "install the package rpcrdma-modules for this kernel, or a kernel with CONFIG_SUNRPC_XPRT_RDMA")
        return
    yield Finding(PASS, f"the next modprobe loads {path}")
    built_for = (machine.run("modinfo", "-F", "vermagic", "rpcrdma") or "").split(" ")[0]
    running = machine.word("/proc/sys/kernel/osrelease")
    if built_for and built_for != running:
        yield Finding(FAIL, f"that file is for the kernel {built_for}, and {running} is running",
                      "run dkms autoinstall, or install the package for this kernel; then depmod")
    next_version = (machine.run("modinfo", "-F", "version", "rpcrdma") or "").strip()
    if state.module.loaded and next_version != (state.module.version or ""):
        yield Finding(WARN, "the loaded module is not the module that modprobe would load",
                      "rpcrdma-status swap-module exchanges it when no mount uses it")


def checks_compiler(machine: Machine, _state: State) -> Iterator[Finding]:
    """A module in Rust must be built by the compiler of the kernel."""
    release = machine.word("/proc/sys/kernel/osrelease")
    wanted = re.search(r'^CONFIG_RUSTC_VERSION_TEXT="rustc (\S+)', machine.read(f"/boot/config-{release}") or "", re.M)
    found = re.match(r"rustc (\S+)", machine.run("rustc", "--version") or "")
    if not wanted or not found:
        return
    if wanted.group(1) == found.group(1):
        yield Finding(PASS, f"rustc {found.group(1)} is the compiler of the kernel")
    else:
        yield Finding(WARN, f"rustc is {found.group(1)}, but the kernel was built by rustc {wanted.group(1)}",
                      "no module in Rust can be built here: install the rustc of the kernel, or the module's package")


def checks_device(_machine: Machine, state: State) -> Iterator[Finding]:
    """RDMA devices and their links."""
    if not state.devices:
        yield Finding(FAIL, "there is no RDMA device",
                      "load the adapter's driver; for tests: rdma link add rxe0 type rxe netdev INTERFACE")
    for device in state.devices:
        name = f"{device.name}/{device.port}"
        if device.state == "active":
            yield Finding(PASS, f"{name} is active ({device.link_layer or 'unknown link layer'})")
        else:
            hint = "check the cable and the switch port"
            if device.link_layer == "InfiniBand":
                hint += "; an InfiniBand port needs a subnet manager"
            yield Finding(FAIL, f"{name} is {device.state}", hint)


def checks_mtu(machine: Machine, state: State) -> Iterator[Finding]:
    """A RoCE device uses the largest of 256 to 4096 bytes that the interface's MTU allows with headers."""
    for device in state.devices:
        if not device.interface or device.link_layer != "Ethernet":
            continue
        mtu = int(machine.word(f"/sys/class/net/{device.interface}/mtu") or 0)
        if 0 < mtu < 4200:
            yield Finding(WARN, f"{device.interface} has an MTU of {mtu}: frames of {device.name} are short",
                          f"ip link set {device.interface} mtu 9000, on both hosts and on the switch")
        elif mtu:
            yield Finding(PASS, f"{device.interface} has an MTU of {mtu}")


def is_soft(machine: Machine, device: str) -> bool:
    """Whether the RDMA device is a driver without hardware, such as rxe or siw."""
    return not machine.exists(f"{DEVICES}/{device}/device")


def checks_send_queue_of_interface(machine: Machine, state: State) -> Iterator[Finding]:
    """Soft RoCE ends a connection if the queue of its interface drops a frame."""
    for device in state.devices:
        if not is_soft(machine, device.name) or not device.interface:
            continue
        length = machine.word(f"/sys/class/net/{device.interface}/tx_queue_len")
        if length and int(length) < 10000:
            yield Finding(WARN, f"the queue of {device.interface} has {length} frames: {device.name} may overflow it",
                          f"ip link set {device.interface} txqueuelen 20000")


def checks_traffic_class(machine: Machine, state: State) -> Iterator[Finding]:
    """The traffic class of RoCE connections, if an administrator may set it."""
    for device in state.devices:
        if device.link_layer != "Ethernet" or is_soft(machine, device.name):
            continue
        place = f"/sys/kernel/config/rdma_cm/{device.name}/ports/{device.port}/default_roce_tos"
        service = int(machine.word(place) or 0)
        name = f"{device.name}/{device.port}"
        if service:
            yield Finding(PASS, f"connections of {name} have the type of service {service} (DSCP {service >> 2})")
        else:
            yield Finding(WARN, f"connections of {name} have no traffic class",
                          f"if the switches have a lossless class: mkdir /sys/kernel/config/rdma_cm/{device.name}, "
                          f"then write its type of service to {place}")


def checks_route(machine: Machine, state: State) -> Iterator[Finding]:
    """The route to each server leads through an interface with an RDMA device."""
    interfaces = {device.interface for device in state.devices if device.interface}
    for server in state.servers:
        route = machine.run("ip", "-o", "route", "get", host_of(server.address)) or ""
        found = re.search(r" dev (\S+)", route)
        if not found or not interfaces:
            continue
        if found.group(1) in interfaces:
            yield Finding(PASS, f"the route to {server.address} leads through {found.group(1)}")
        else:
            yield Finding(WARN, f"the route to {server.address} leads through {found.group(1)}, "
                          "which has no RDMA device", "the server's address must be in the network of an RDMA device")


def checks_transports(_machine: Machine, state: State) -> Iterator[Finding]:
    for server in state.servers:
        for one in server.transports:
            name = f"xprt-{one.id} to {one.peer}"
            if one.state == "connected":
                ended = f"; the last connection ended: {one.last_close}" if one.last_close else ""
                yield Finding(PASS, f"{name} is connected{ended}")
            elif one.error:
                yield Finding(FAIL, f"{name} is {one.state}: {one.error}",
                              "is nfsd listening there (cat /proc/fs/nfsd/portlist), and does ping reach the server?")
            elif one.state == "not connected":
                # An idle transport closes its connection.
                yield Finding(PASS, f"{name} is not connected, and no attempt to connect has failed")
            else:
                yield Finding(WARN, f"{name} is {one.state}", "look again in a few seconds")


def checks_server(_machine: Machine, state: State) -> Iterator[Finding]:
    if state.service:
        ports = ", ".join(map(str, state.service.ports))
        yield Finding(PASS, f"nfsd listens on the RDMA port {ports}" if ports else "nfsd has RDMA clients")
        waiting = [client.peer for client in state.service.clients if client.waits_for_client]
        if waiting:
            yield Finding(WARN, f"Replies wait for {', '.join(waiting)}",
                          "these clients grant no credits or read slowly; see their state")


def checks_iommu(machine: Machine, _state: State) -> Iterator[Finding]:
    groups = machine.names("/sys/kernel/iommu_groups")
    kinds = {machine.word(f"/sys/kernel/iommu_groups/{group}/type") for group in groups}
    if not groups:
        yield Finding(PASS, "no IOMMU translates addresses")
    elif "DMA" in kinds:
        yield Finding(WARN, "the IOMMU is in strict mode, which costs throughput at many RPCs per second",
                      "iommu.strict=0 or iommu=pt on the kernel's command line, if the security policy allows it")
    else:
        yield Finding(PASS, f"the IOMMU mode is {', '.join(sorted(filter(None, kinds)))}")


def checks_dropped_frames(machine: Machine, state: State) -> Iterator[Finding]:
    """Frames that the adapter dropped, where the driver counts them."""
    for device in state.devices:
        if device.link_layer != "Ethernet" or not device.interface:
            continue
        counters = machine.run("ethtool", "-S", device.interface)
        dropped = [(name, int(value)) for name, value in
                   re.findall(r"^\s*(\S*(?:out_of_buffer|rx_discards_phy)\S*): (\d+)$", counters or "", re.M)]
        for name, value in dropped:
            if value:
                yield Finding(WARN, f"{device.interface} has dropped frames: {name} is {value}",
                              "RoCE needs lossless traffic: enable PFC for its priority on host and switch, or ECN")
        if counters and not any(value for _, value in dropped):
            yield Finding(PASS, f"{device.interface} counts no dropped frames")


def checks_flow_control(machine: Machine, state: State) -> Iterator[Finding]:
    """Priority flow control, where the driver counts its frames."""
    for device in state.devices:
        if device.link_layer != "Ethernet" or not device.interface:
            continue
        counters = machine.run("ethtool", "-S", device.interface) or ""
        paused = re.findall(r"^\s*([rt]x_prio\d_pause): (\d+)$", counters, re.M)
        active = [f"{name} is {value}" for name, value in paused if int(value)]
        if active:
            yield Finding(PASS, f"{device.interface} uses priority flow control: {', '.join(active)}")
        elif paused:
            yield Finding(PASS, f"{device.interface} has sent and received no frame of priority flow control")


def checks_threads(_machine: Machine, state: State) -> Iterator[Finding]:
    """Each RPC that nfsd executes has a thread."""
    if state.service and state.service.threads and len(state.service.clients) > state.service.threads:
        yield Finding(WARN, f"nfsd has {state.service.threads} threads for {len(state.service.clients)} RDMA clients",
                      "nfsconf --set nfsd threads 64; systemctl restart nfs-server")


CHECKS: tuple[Callable[[Machine, State], Iterator[Finding]], ...] = (
    checks_module, checks_compiler, checks_device, checks_mtu, checks_send_queue_of_interface, checks_traffic_class,
    checks_route, checks_transports, checks_server, checks_threads, checks_iommu, checks_dropped_frames,
    checks_flow_control)


def findings(machine: Machine, state: State) -> list[Finding]:
    """The results of all checks."""
    return [finding for check in CHECKS for finding in check(machine, state)]
