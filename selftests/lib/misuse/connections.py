# SPDX-License-Identifier: GPL-2.0
"""Connections that carry garbage, or that end at any time."""

import random
import struct
import subprocess
import sys
import time

from pyverbs.cm_enums import RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_PS_TCP
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam

from verbs import QueuePair, waiting
from wire import RDMA_NOMSG, SECONDS, Lost, words

from .base import PRIVATE_DATA, QUICK, Wrong, case, expect
from .client import Arguments, Caller, Client, Options, release
from .nfs import reads, writes


@case(counted=False)
def garbage(c: Client) -> None:
    source = random.Random(8166)
    for _ in range(100):
        body = b"".join(words(source.choice((0, 1, 2, source.randrange(1 << 32))))
                        for _ in range(30))
        # No word is a handle of this client, and no header names a Segment.
        c.send(words(c.caller.next_xid(), 1, 1, source.randrange(2)) + body)
        try:
            while c.answer(0.005):
                pass
        except (Lost, Wrong):
            c = c.caller.connect()


@case(counted=False)
def mutations(c: Client) -> None:
    """Sends Calls with every kind of chunk, in which some bytes are changed."""
    source = random.Random(4711)
    for _ in range(30 if QUICK else 100):
        options: Options = {"write": [[c.piece(0, 4096)]], "reply": [c.piece(4096, 65536)]}
        call = reads((0, 4096))
        if source.random() < 0.5:
            options["read"] = [(source.choice((0, len(call(0)))), c.piece(0, 64))]
        message = bytearray(c.message(call, **options)[1])
        for _ in range(source.randrange(1, 4)):
            message[source.randrange(4, len(message) - len(call(0)) + 40)] = source.randrange(256)
        try:
            c.send(bytes(message))
            while c.answer(0.005):
                pass
        except (Lost, Wrong, struct.error):
            c = c.caller.connect()


# Clients that disconnect.

@case(counted=False)
def leaves_with_calls_open(c: Client) -> None:
    call = writes(1 << 20)
    large = [(len(call(0)), c.piece(0, 1 << 20))]
    messages: tuple[Arguments, ...] = (
        {}, {"call": call, "read": large}, {"kind": RDMA_NOMSG, "read": [(0, c.piece(0, 1 << 20))]},
        {"call": reads((0, 8192)), "write": [[c.piece(0, 8192)]]},
        {"call": reads((0, 8192)), "reply": [c.piece(0, 16384)]},
        {"call": reads((0, 8192))}, {"version": 7}, {"kind": 9})
    for message in messages:
        for pause in (0, 0.002):
            other = c.caller.connect()
            # A handle of another protection domain works as well: the device does not check whether it is
            # read.
            arguments = own(other, message) if pause else message
            other.post_all([other.message(**arguments)[1] for _ in range(16)])
            time.sleep(pause)
            other.close()


def own(c: Client, arguments: Arguments) -> Arguments:
    """Returns the same arguments with memory of this connection in the chunk lists."""
    result = arguments.copy()
    if "read" in arguments:
        result["read"] = [(position, c.piece(0, piece.length)) for position, piece in arguments["read"]]
    if "write" in arguments:
        result["write"] = [[c.piece(0, piece.length) for piece in chunk] for chunk in arguments["write"]]
    if reply := arguments.get("reply"):
        result["reply"] = [c.piece(0, piece.length) for piece in reply]
    return result


PHASES = ("resolved", "asked", "accepted", "established", "called", "read", "written")


@case(counted=False, slow=True)
def killed_in_every_phase(c: Client) -> None:
    """A client is killed in every phase of connecting and of an RPC."""
    # A test that fails leaves its processes to the end of the node.
    # pylint: disable-next=consider-using-with
    children = [subprocess.Popen([sys.executable, sys.argv[0], c.caller.server, c.caller.port,
                                  "--phase", phase], stdout=subprocess.PIPE) for phase in PHASES]
    for child, phase in zip(children, PHASES):
        expect(child.stdout and child.stdout.readline() == b"there\n", phase, "was not reached")
        child.kill()
        child.wait()
    c.lives()


def reach(server: str, port: str, phase: str) -> None:
    """Reaches a phase, and waits until the process is killed."""
    caller = Caller(server, port)
    number = PHASES.index(phase)
    if number >= 3:
        c = caller.connect()
        if phase == "called":
            c.post_all([c.message()[1] for _ in range(32)])
        elif phase == "read":
            c.post_all([c.message(kind=RDMA_NOMSG, read=[(0, c.piece(0, 1 << 20))])[1]
                        for _ in range(32)])
        elif phase == "written":
            c.post_all([c.message(reply=[c.piece(0, 1 << 20)])[1] for _ in range(32)])
    else:
        asking = Asking(caller)
        while asking.state < number:
            asking.step()
    print("there", flush=True)
    time.sleep(60)


class Asking:
    """Connects step by step: resolved, asked, accepted, established."""

    def __init__(self, caller: Caller, channel: CMEventChannel | None = None) -> None:
        self.channel = channel or CMEventChannel()
        self.id = CMID(creator=self.channel, port_space=RDMA_PS_TCP)
        self.id.resolve_addr(AddrInfo(dst=caller.server, dst_service=caller.port,
                                      port_space=RDMA_PS_TCP))
        self._event()
        self.id.resolve_route()
        self._event()
        self.pair = QueuePair(self.id)
        self.pair.post_receives(1)
        self.state = 0

    def _event(self) -> int:
        event = CMEvent(self.channel)
        kind: int = event.event_type
        event.ack_cm_event()
        return kind

    def step(self) -> None:
        if self.state == 0:
            parameters = ConnParam(resources=16, depth=16, rnr_retry=7, qp_num=self.pair.qp.qp_num,
                                   data_len=len(PRIVATE_DATA))
            parameters.set_private_data(PRIVATE_DATA)
            self.id.connect(parameters)
        elif self.state == 1:
            kind = self._event()
            expect(kind == RDMA_CM_EVENT_CONNECT_RESPONSE, "event", kind)
        elif self.state == 2:
            self.pair.go()
            self.id.establish()
        self.state += 1

    def close(self) -> None:
        self.pair.close()
        release(self.pair.buffer, self.pair.messages, self.pair.sent, self.pair.received,
                self.pair.pd)


@case(counted=False)
def connects_and_leaves(c: Client) -> None:
    for _ in range(20 if QUICK else 60):
        c.caller.connect(receives=4).close()


@case(counted=False, slow=True)
def many_ask_at_once(c: Client) -> None:
    """The server accepts all clients, including clients that send nothing."""
    asking = [Asking(c.caller) for _ in range(60)]
    for _ in range(3):
        for one in asking:
            one.step()
    for one in asking[::2]:
        one.pair.send(c.message()[1])
    for one in asking[::2]:
        for _ in waiting(SECONDS):
            if one.pair.next_message() is not None:
                break
        else:
            raise Wrong("one has no Reply")
    for one in asking:
        one.close()


@case()
def many_connections(c: Client) -> None:
    others = [c.caller.connect(receives=4) for _ in range(40)]
    for other in others:
        other.lives()
    for other in others:
        other.close()
