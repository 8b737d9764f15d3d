# SPDX-License-Identifier: GPL-2.0
"""The table of faults, the decorators that fill it, and messages that several faults send."""

from __future__ import annotations

import dataclasses
import functools
import sys

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from wire import RDMA_MSG, RDMA_NOMSG, Chunk, words

if TYPE_CHECKING:
    from peer import Call, Peer, Reply

GETATTR, READ, WRITE, READDIRPLUS = 1, 6, 7, 17
CALLBACK = 0x40000000
CREATE_SESSION, SEQUENCE, DESTROY_CLIENTID = 43, 53, 57
CB_SEQUENCE = 11

# The number of faults that a test causes, one after the other.
MOST = 6

# The class of the Replies of a version. A fault of a Reply of version 1 is also a fault of a Reply of version 2.
AnyReply = TypeVar("AnyReply", bound="Reply")
AnyReply_contra = TypeVar("AnyReply_contra", bound="Reply", contravariant=True)

# Sends a Reply, changed, or another message. Returns the outcome, or None for "sent".
Function = Callable[["Peer", AnyReply], str | None]
# Changes a Reply.
Change = Callable[["Reply"], None]


@dataclasses.dataclass(frozen=True)
class Fault(Generic[AnyReply_contra]):
    """A fault, and whether it suits the Reply to a Call."""
    name: str
    function: Function[AnyReply_contra]
    suits: Callable[[Call], bool]


class Faults(dict[str, Fault[AnyReply]]):
    """The faults of a version by name, and the tests of the programs hostile_*.sh that cause them.

    A test is the name of a function of such a program, with its first arguments. It causes each of its faults and
    compares the effect with the effect that it expects. A test that needs a value for each fault has it behind "=".
    """

    def __init__(self) -> None:
        super().__init__()
        self.expected: dict[str, list[str]] = {}

    def expect(self, name: str, *tests: str) -> None:
        """Adds a fault to these tests."""
        for test in tests:
            function, equals, value = test.partition("=")
            self.expected.setdefault(function, []).append(name + equals + value)

    def strikes(self, procedure: int | None,
                *tests: str) -> Callable[[Function[AnyReply]], Function[AnyReply]]:
        """Registers a fault of the Replies of this procedure of NFS version 3, or of any Reply if it is None."""
        def suits(call: Call) -> bool:
            return procedure in (call.procedure, None)

        def add(function: Function[AnyReply]) -> Function[AnyReply]:
            self[function.__name__] = Fault(function.__name__, function, suits)
            self.expect(function.__name__, *tests)
            return function
        return add

    def tests(self) -> Iterator[list[str]]:
        """Yields the words of each test."""
        for function, names in self.expected.items():
            for first in range(0, len(names), MOST):
                yield [function, *names[first:first + MOST]]


FAULTS: Faults[Reply] = Faults()
strikes = FAULTS.strikes


def strikes_operation(operation: int) -> Callable[[Function[Reply]], Function[Reply]]:
    """Registers a fault of the Reply to a COMPOUND of NFS version 4 that begins with this operation."""
    def suits(call: Call) -> bool:
        operations = call.operations()
        return operations is not None and operations.word() == operation

    def add(function: Function[Reply]) -> Function[Reply]:
        FAULTS[function.__name__] = Fault(function.__name__, function, suits)
        return function
    return add


def spoils(procedure: int | None, *tests: str) -> Callable[[Change], Function[Reply]]:
    """Registers a fault that changes a Reply of this procedure, which is then sent."""
    def add(change: Change) -> Function[Reply]:
        @strikes(procedure, *tests)
        @functools.wraps(change)
        def fault(_: Peer, reply: Reply) -> None:
            change(reply)
            reply.send()
        return fault
    return add


def spoils_segments(*tests: str) -> Callable[[Change], Function[Reply]]:
    """Registers a fault that changes a Reply whose Call offers a Reply chunk of several Segments."""
    def suits(call: Call) -> bool:
        return call.reply is not None and len(call.reply) > 1

    def add(change: Change) -> Function[Reply]:
        @functools.wraps(change)
        def fault(_: Peer, reply: Reply) -> None:
            change(reply)
            reply.send()
        FAULTS[change.__name__] = Fault(change.__name__, fault, suits)
        FAULTS.expect(change.__name__, *tests)
        return fault
    return add


def callback(xid: int, procedure: int = 0, credentials: bytes = words(0, 0), arguments: bytes = b"") -> bytes:
    """Returns a callback. CB_NULL needs no more than an XID."""
    return (words(xid, 1, 16, RDMA_MSG, 0, 0, 0) + words(xid, 0, 2, CALLBACK, 1, procedure) +
            credentials + words(0, 0) + arguments)


def swapped(xid: int) -> int:
    """Returns an XID in the byte order in which clients of Linux count XIDs."""
    return int.from_bytes((xid & 0xFFFFFFFF).to_bytes(4, "big"), sys.byteorder)


def instead(reply: Reply, *body: int) -> None:
    """Sends the XID, version and credits of the Reply, followed by these words."""
    reply.connection.send(reply.start()[:12] + words(*body))


def offered(call: Call) -> Chunk:
    """Returns the Reply chunk that the Call offers."""
    assert call.reply is not None
    return call.reply


def into_the_reply_chunk(reply: Reply) -> Chunk:
    """Moves the payload of the Reply into the Reply chunk, and returns that."""
    if reply.kind != RDMA_NOMSG:
        reply.reply = reply.connection.fill(offered(reply.call), reply.payload)
        reply.kind, reply.payload = RDMA_NOMSG, b""
    assert reply.reply is not None
    return reply.reply


def hang_up_and_announce(peer: Peer, private_data: bytes) -> None:
    peer.private_data = private_data
    peer.hang_up("as told")
