# SPDX-License-Identifier: GPL-2.0
"""Calls that wait, memory that is not for the server, and messages that a Receive does not hold."""

import random
import re
import time

from collections.abc import Callable

from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                           IBV_WR_SEND_WITH_IMM)
from pyverbs.mr import MR
from pyverbs.pd import PD

from verbs import waiting
from wire import INLINE, RDMA_MSG, RDMA_NOMSG, SECONDS, Lost, Segment, opaque, words

from .base import ALL_ACCESS, CONTENT, STOCK, Skip, case, expect
from .client import Answer, Arguments, Client
from .nfs import ACCESS, GETATTR, READ, ROOT, file_handle, reads, rpc, writes

TRACE = "/sys/kernel/tracing/instances/rpcrdma-caller"

# Make the arguments of a message with memory of a connection.
Makers = tuple[Callable[[Client], Arguments], ...]


def trace(c: Client, *events: str) -> None:
    """Records EVENTS in TRACE/trace of the server, until the instance is removed."""
    enable = " && ".join(f"echo 1 >{TRACE}/events/{event}/enable" for event in events)
    tracing = TRACE.partition("/instances")[0]
    c.caller.on_server("sh", "-c", f"mountpoint -q {tracing} || mount -t tracefs tracefs {tracing}; "
                       f"[ ! -d {TRACE} ] || rmdir {TRACE}; mkdir {TRACE} && {enable}")


def traced(c: Client) -> str:
    return c.caller.on_server("cat", f"{TRACE}/trace")


def are_deferred(c: Client, xids: list[int]) -> bool:
    """Returns whether the server has deferred all Calls of XIDS."""
    seen = traced(c)
    return all(f"xid={xid:#010x}" in seen for xid in xids)


@case()
def calls_that_are_deferred(c: Client) -> None:
    """nfsd asks user space for the client's identity. Without an answer for five seconds, it sets the Call
    aside until the answer arrives."""
    handle = opaque(file_handle(c, "content"))
    try:
        trace(c, "sunrpc/svc_defer")
        c.caller.on_server("sh", "-e", "-c", "pkill -STOP -x rpc.mountd; "
                           "for cache in /proc/net/rpc/*/flush; do date +%s >$cache; done; sleep 1")
        where = c.piece(0, 3000)
        xids = [c.ask(rpc(READ, handle + words(0, 5, 3000), 3, ROOT), write=[[where]]),
                c.ask(rpc(ACCESS, handle + words(63), 3, ROOT), reply=[c.piece(4096, 512)]),
                c.ask(rpc(GETATTR, handle, 3, ROOT))]
        end = time.monotonic() + SECONDS
        while not are_deferred(c, xids):
            expect(time.monotonic() < end, "not put aside")
            time.sleep(0.2)
    finally:
        c.caller.on_server("sh", "-c", f"pkill -CONT -x rpc.mountd; rmdir {TRACE}")
    got: dict[int, Answer] = {}
    for _ in xids:
        answer = expect(c.answer(), "no Reply")
        got[answer.xid] = answer
    expect(set(got) == set(xids), "other Replies")
    expect(got[xids[0]].lengths() == [[3000]] and c.got(where) == CONTENT[5:3005], "other data")
    expect(got[xids[1]].kind == RDMA_NOMSG and got[xids[2]].kind == RDMA_MSG, "other forms")


@case()
def the_same_call_twice(c: Client) -> None:
    xid, message = c.message(reads((0, 3000)), write=[[c.piece(0, 3000)]])
    c.send_at_once([message] * 8)
    expect([expect(c.answer(), "no Reply").xid for _ in range(8)] == [xid] * 8, "other Replies")


# Memory that a device refuses.

@case(counted=False)
def memory_of_nobody(c: Client) -> None:
    """Invalid handles in Read, Write and Reply chunks end the connection."""
    call = writes(64)
    makers: Makers = (lambda o: {"kind": RDMA_NOMSG, "read": [(0, o.foreign())]},
                      lambda o: {"call": call, "read": [(len(call(0)), o.foreign())]},
                      lambda o: {"call": call, "read": [(len(call(0)), o.piece(0, 32)),
                                                        (len(call(0)), o.foreign(32))]},
                      lambda o: {"reply": [o.foreign(512)]},
                      lambda o: {"call": reads((0, 4000)),
                                 "write": [[o.piece(0, 2000), o.foreign(4096)]]})
    for make in makers:
        other = c.caller.connect()
        other.loses(**make(other))
        other.close()


@case(counted=False)
def why_a_connection_ends(c: Client) -> None:
    """The trace of the server has the error of the work request, not the flushed work requests behind it."""
    if STOCK:
        raise Skip("the kernel's own server has other events")
    if "siw" in c.caller.on_server("ls", "/sys/class/infiniband"):
        raise Skip("siw does not tell the server")
    makers: Makers = (lambda o: {"reply": [o.foreign(512)]},
                      lambda o: {"call": reads((0, 4000)), "write": [[o.foreign(4096)]]})
    try:
        trace(c, "rpcrdma/svcrdma_accept", "rpcrdma/rpcrdma_close")
        for number, make in enumerate(makers):
            other = c.caller.connect()
            other.loses(**make(other))
            # The client must not close before the server has polled the error from its completion queue.
            for _ in waiting(SECONDS):
                events = traced(c)
                cid = re.findall(r"svcrdma_accept: (cid=\d+) ", events)[number:]
                why = cid and re.search(f'rpcrdma_close: {cid[0]} why="(.*)"', events)
                if why:
                    break
            other.close()
            expect(why and why[1] == "remote access error", why[0] if why else "it goes on")
    finally:
        c.caller.on_server("rmdir", TRACE)


def memory(access: int = ALL_ACCESS, beyond: int = 0, stale: bool = False,
           other_domain: bool = False) -> Callable[[Client], Segment]:
    """Returns a function that makes a Segment on a connection which the server may not access."""
    def make(c: Client) -> Segment:
        pd = PD(c.id.context) if other_domain else c.pd
        region = MR(pd, 4096, access)
        piece = Segment(region.rkey, 4096, region.buf + beyond)
        c.regions += [region, pd] if other_domain else [region]
        if stale:
            region.close()
        return piece
    return make


#= V1-138
@case(counted=False)
def memory_that_is_not_for_the_server(c: Client) -> None:
    local = IBV_ACCESS_LOCAL_WRITE
    call = writes(4096)
    for make in (memory(local), memory(beyond=100), memory(beyond=-4), memory(stale=True),
                 memory(other_domain=True)):
        other = c.caller.connect()
        other.loses(call, read=[(len(call(0)), make(other))])
        other.close()
        other = c.caller.connect()
        piece = make(other)
        other.loses(reads((0, 8100)), reply=[other.piece(0, 4100), piece])
        other.close()


#= V1-026
@case(counted=False)
def memory_of_the_server(c: Client) -> None:
    """A client cannot access memory of the server by RDMA."""
    for opcode in (IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE):
        for key in (0, 0x100 + random.randrange(1 << 16)):
            other = c.caller.connect(patient=False)
            other.lives()
            other.post(opcode, 64, (key, 0x1000))
            time.sleep(0.2)
            expect(not other.reap(), f"the server let us use its handle {key:#x}")
            other.close()


@case(counted=False)
def memory_of_the_server_that_is_invalidated(c: Client) -> None:
    """A Send With Invalidate of the client ends the connection: the server provides no handle."""
    for key in (1, 0x100 + random.randrange(1 << 16)):
        other = c.caller.connect(patient=False)
        try:
            other.send(other.message()[1], invalidate=key)
            other.answer(0.2)
        except Lost:
            pass
        other.close()
    c.lives()


@case()
def a_message_with_immediate_data(c: Client) -> None:
    """The server handles a Send with immediate data as any message."""
    xid, message = c.message()
    c.sends += 1
    c.buffer.write(message, len(message))
    c.post(IBV_WR_SEND_WITH_IMM, len(message))
    c.replied(xid)


@case(counted=False)
def a_message_that_is_too_long(c: Client) -> None:
    c.loses(rpc(arguments=bytes(INLINE)))
