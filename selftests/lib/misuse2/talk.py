# SPDX-License-Identifier: GPL-2.0
"""A connection of version 2 that counts credits, and its messages."""

import struct

from collections.abc import Callable
from typing import Self

from pyverbs.pyverbs_error import PyverbsError

from verbs import waiting
from wire import PRIVATE_DATA, SECONDS, Decoder, Lost, announcement, words

from misuse.base import CONTENT, FILE, Skip, Wrong, expect
from misuse.client import Caller, Client
from misuse.nfs import Rpc, good, reads, rpc

MSG, NOMSG, ERROR, CONNPROP = 0, 1, 4, 5
RESPONSE, MORE = 1, 2
BAD_XDR, INVAL_HTYPE, INVAL_FLAG = 2, 3, 4
READ_CHUNKS, WRITE_CHUNKS, SYSTEM = 5, 6, 10
SBSIZ, RBSIZ, RSSIZ, RCSIZ, BRS, HOSTAUTH = 1, 2, 3, 4, 5, 6
# The number of Receives for messages of the server.
CEILING = 64
# The seconds of the wait for a message that is optional.
QUIET = 0.5
# The seconds for which messages of a server may wait for a client.
PATIENCE = 30
NO_LISTS = words(0, 0, 0)


class Message:
    """A message of the server."""

    xid: int
    version: int
    kind: int

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.xid, self.version, credits, self.kind = struct.unpack_from(">4I", message)
        self.granted, self.ceiling = credits & 0xFFFF, credits >> 16
        self.flags: int = struct.unpack_from(">I", message, 16)[0] if self.version == 2 else 0
        expect(not self.flags & ~(RESPONSE | MORE), "flags without a meaning:", message[:36])
        self.body = message[20:]
        # The Payload stream of a Reply without chunks.
        self.payload = message[36:]

    def is_grant(self) -> bool:
        return self.kind == NOMSG and self.xid == 0

    def is_call(self) -> bool:
        return self.kind == MSG and not self.flags & RESPONSE

    def frees_a_receive(self) -> bool:
        """Returns whether the message is the last part of a Reply, whose Call's Receive can be granted
        again."""
        return self.kind in (MSG, NOMSG) and self.flags & (RESPONSE | MORE) == RESPONSE

    def __str__(self) -> str:
        return self.message[:100].hex()


def properties(*values: tuple[int, int]) -> bytes:
    """Returns the encoded set of properties whose values are numbers."""
    return words(len(values)) + b"".join(words(kind, 4, value) for kind, value in values)


def properties_of(message: Message) -> tuple[dict[int, int], bytes]:
    """Returns the properties in a message of the server, and its authentication material. The value of
    HOSTAUTH is the length of the material."""
    at = Decoder(message.body)
    found: dict[int, int] = {}
    material = b""
    for _ in range(at.word()):
        kind, value = at.word(), Decoder(at.opaque())
        if kind == HOSTAUTH:
            material = value.opaque()
            found[kind] = len(material)
        else:
            found[kind] = value.word()
        expect(not value.rest(), "a property that is too long:", message)
    expect(not at.rest(), "more than a property set:", message)
    return found, material


class Talk:
    """A connection that counts the credits of both sides."""

    def __init__(self, caller: Caller, *, private_data: bytes = PRIVATE_DATA + announcement(2),
                 rnr_retry: int = 7) -> None:
        self.caller = caller
        self.connection = Client(caller, private_data=private_data, rnr_retry=rnr_retry)
        caller.kept.append(self.connection)
        self.balance, self.ceiling = 1, 1
        # The number of messages that it may have to send at a time, unless a message sets another.
        self.most = CEILING
        # The credits of the server, its authentication material and properties, and the Calls that it has
        # sent.
        self.given, self.server_material = 0, b""
        self.announced: dict[int, int] = {}
        self.calls: list[Message] = []
        # It sends more messages than it has credits for. Then the server counts more credits of the client than
        # there are, and has none left for a Reply in the end.
        self.overruns = False

    # Sending.

    def raw(self, message: bytes) -> None:
        expect(self.balance, "the server has granted too little")
        self.balance -= 1
        self.connection.send(message)

    def send(self, kind: int, body: bytes, xid: int | None = None, flags: int = 0,
             grant: int | None = None) -> int:
        """Sends a message. By default it gives the server all credits that it may have."""
        if grant is None:
            grant = self.most - self.given
        # A grant of zero is never sent: the least grant is one.
        grant = max(grant, 1)
        self.given = min(self.given + grant, CEILING)
        xid = self.caller.next_xid() if xid is None else xid
        message = words(xid, 2, CEILING << 16 | grant, kind, flags) + body
        if kind == NOMSG and xid == 0:
            self.connection.send(message)
        else:
            self.raw(message)
        return xid

    def grant(self, count: int) -> None:
        self.send(NOMSG, words(0) + NO_LISTS, 0, grant=count)

    def part(self, payload: bytes, xid: int, lists: bytes = NO_LISTS, *, flags: int = 0,
             grant: int | None = None) -> int:
        return self.send(MSG, words(0) + lists + payload, xid, flags, grant)

    def ask(self, call: Rpc = rpc(), lists: bytes = NO_LISTS, *, grant: int | None = None) -> int:
        xid = self.caller.next_xid()
        self.part(call(xid), xid, lists, grant=grant)
        return xid

    # Receiving.

    def next_message(self, seconds: float) -> Message | None:
        for _ in waiting(seconds):
            message = self.connection.next_message()
            if message is not None:
                return Message(message)
        return None

    def hear(self, seconds: float = SECONDS, for_credit: bool = False) -> Message | None:
        """Returns the next message that is no grant, no properties and no Call. With FOR_CREDIT, returns None
        as soon as there is a credit."""
        while True:
            message = self.next_message(seconds)
            if message is None or message.version == 1:
                return message
            if message.kind != ERROR:
                is_due = message.frees_a_receive() and not self.overruns
                expect(message.ceiling and (message.granted or not is_due), "a grant of nothing:", message)
                self.balance += message.granted
                self.ceiling = message.ceiling
            if not message.is_grant():
                expect(self.given, "the server has no credit for this:", message)
                self.given -= 1
            expect(len(message.message) <= self.announced.get(SBSIZ, 4096), "too long:", message)
            if message.kind == CONNPROP:
                self.announced, self.server_material = properties_of(message)
            elif message.is_call():
                self.calls.append(message)
            elif not message.is_grant():
                return message
            if for_credit and self.balance:
                return None

    def silent(self) -> None:
        message = self.hear(QUIET)
        expect(message is None, "nothing was to be said:", message)

    def has_announced(self) -> None:
        """Waits for the properties of the server, before any other message."""
        for _ in waiting(SECONDS):
            expect(self.hear(0) is None, "nothing was to be said")
            if self.announced:
                return
        raise Wrong("the server has announced nothing")

    def open(self, *values: tuple[int, int]) -> Self:
        """Opens as most clients do, and waits for the properties of the server."""
        self.send(CONNPROP, properties(*values))
        self.has_announced()
        return self

    def replied(self, xid: int, kind: int = MSG) -> Message:
        message = expect(self.hear(), "no Reply")
        expect((message.xid, message.version, message.kind) == (xid, 2, kind), message)
        expect(message.flags & RESPONSE, message)
        return message

    def replies(self, call: Rpc) -> Message:
        return self.replied(self.ask(call))

    def good(self, xid: int) -> Decoder:
        """Expects that the COMPOUND has succeeded."""
        return good(self.replied(xid).payload)

    def parts_of(self, xid: int) -> tuple[bytes, int]:
        """Returns the Payload stream of a Reply, and the number of its messages."""
        stream, parts = b"", 0
        while True:
            message = self.replied(xid)
            parts += 1
            expect(message.body[:16] == words(0) + NO_LISTS, message)
            stream += message.payload
            if not message.flags & MORE:
                return stream, parts

    def lives(self, *, grant: int | None = None) -> None:
        xid = self.ask(grant=grant)
        reply = self.replied(xid)
        expect(reply.payload[:8] == words(xid, 1), "not the Reply to NULL")
        expect(not reply.flags & MORE, "a part, where one message does:", reply)

    def well(self) -> None:
        """Expects a Reply to NULL on a new connection."""
        self.lives()

    def error(self, xid: int, code: int, *arguments: int) -> None:
        message = expect(self.hear(), "no error message")
        expect((message.xid, message.version, message.kind) == (xid, 2, ERROR), message)
        expect(message.flags == RESPONSE and message.body == words(code, *arguments), message)

    def refused(self, xid: int, code: int, *arguments: int) -> None:
        self.error(xid, code, *arguments)
        self.lives()


def a_file() -> Rpc:
    if not FILE:
        raise Skip("FILE is not set")
    return reads((0, len(CONTENT)))


def ends(talk: Talk, act: Callable[[], object]) -> None:
    """Expects that ACT ends the connection, and that the server serves the next connection."""
    try:
        act()
        for _ in waiting(SECONDS):
            if talk.connection.is_over():
                break
        else:
            raise Wrong("the connection lives")
    except (Lost, PyverbsError):
        pass
    type(talk)(talk.caller).well()
