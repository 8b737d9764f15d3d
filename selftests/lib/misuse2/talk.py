# SPDX-License-Identifier: GPL-2.0
"""A connection of version 2 that counts credits, and its messages."""

import struct

from pyverbs.pyverbs_error import PyverbsError

from verbs import waiting
from wire import PRIVATE_DATA, SECONDS, Decoder, Lost, announcement, words

from misuse.base import CONTENT, FILE, Skip, Wrong, expect
from misuse.client import Client
from misuse.nfs import good, reads, rpc

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

    def __init__(self, message):
        self.message = message
        self.xid, self.version, credits, self.kind = struct.unpack_from(">4I", message)
        self.granted, self.ceiling = credits & 0xFFFF, credits >> 16
        self.flags = struct.unpack_from(">I", message, 16)[0] if self.version == 2 else None
        expect(not (self.flags or 0) & ~(RESPONSE | MORE), "flags without a meaning:", message[:36])
        self.body = message[20:]
        # The Payload stream of a Reply without chunks.
        self.payload = message[36:]

    def is_grant(self):
        return self.kind == NOMSG and self.xid == 0

    def is_call(self):
        return self.kind == MSG and not self.flags & RESPONSE

    def frees_a_receive(self):
        """Returns whether the message is the last part of a Reply, whose Call's Receive can be granted
        again."""
        return self.kind in (MSG, NOMSG) and self.flags & (RESPONSE | MORE) == RESPONSE

    def __str__(self):
        return self.message[:100].hex()


def properties(*values):
    """Returns the encoded set of properties whose values are numbers."""
    return words(len(values)) + b"".join(words(kind, 4, value) for kind, value in values)


def properties_of(message):
    """Returns the properties in a message of the server."""
    at = Decoder(message.body)
    found = {}
    for _ in range(at.word()):
        kind, value = at.word(), Decoder(at.opaque())
        found[kind] = value.opaque() if kind == HOSTAUTH else value.word()
        expect(not value.rest(), "a property that is too long:", message)
    expect(not at.rest(), "more than a property set:", message)
    return found


class Talk:
    """A connection that counts the credits of both sides."""

    def __init__(self, caller, *, private_data=PRIVATE_DATA + announcement(2), **options):
        self.caller = caller
        self.connection = Client(caller, private_data=private_data, **options)
        caller.kept.append(self.connection)
        self.balance, self.ceiling = 1, 1
        # The number of messages that it may have to send at a time, unless a message sets another.
        self.most = CEILING
        # The credits of the server, its properties, and the Calls that it has sent.
        self.given, self.announced, self.calls = 0, None, []
        # It sends more messages than it has credits for. Then the server counts more credits of the client than
        # there are, and has none left for a Reply in the end.
        self.overruns = False

    # Sending.

    def raw(self, message):
        expect(self.balance, "the server has granted too little")
        self.balance -= 1
        self.connection.send(message)

    def send(self, kind, body, xid=None, flags=0, grant=None):
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

    def grant(self, count):
        self.send(NOMSG, words(0) + NO_LISTS, 0, grant=count)

    def part(self, payload, xid, lists=NO_LISTS, **options):
        return self.send(MSG, words(0) + lists + payload, xid, **options)

    def ask(self, call=rpc(), lists=NO_LISTS, **options):
        xid = self.caller.next_xid()
        self.part(call(xid), xid, lists, **options)
        return xid

    # Receiving.

    def next_message(self, seconds):
        for _ in waiting(seconds):
            message = self.connection.next_message()
            if message is not None:
                return Message(message)
        return None

    def hear(self, seconds=SECONDS, for_credit=False):
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
            expect(len(message.message) <= (self.announced or {}).get(SBSIZ, 4096), "too long:", message)
            if message.kind == CONNPROP:
                self.announced = properties_of(message)
            elif message.is_call():
                self.calls.append(message)
            elif not message.is_grant():
                return message
            if for_credit and self.balance:
                return None

    def silent(self):
        message = self.hear(QUIET)
        expect(message is None, "nothing was to be said:", message)

    def has_announced(self):
        """Waits for the properties of the server, before any other message."""
        for _ in waiting(SECONDS):
            expect(self.hear(0) is None, "nothing was to be said")
            if self.announced:
                return
        raise Wrong("the server has announced nothing")

    def open(self, *values):
        """Opens as most clients do, and waits for the properties of the server."""
        self.send(CONNPROP, properties(*values))
        self.has_announced()
        return self

    def replied(self, xid, kind=MSG):
        message = self.hear()
        expect(message, "no Reply")
        expect((message.xid, message.version, message.kind) == (xid, 2, kind), message)
        expect(message.flags & RESPONSE, message)
        return message

    def replies(self, call):
        return self.replied(self.ask(call))

    def good(self, xid):
        """Expects that the COMPOUND has succeeded."""
        return good(self.replied(xid).payload)

    def parts_of(self, xid):
        """Returns the Payload stream of a Reply, and the number of its messages."""
        stream, parts = b"", 0
        while True:
            message = self.replied(xid)
            parts += 1
            expect(message.body[:16] == words(0) + NO_LISTS, message)
            stream += message.payload
            if not message.flags & MORE:
                return stream, parts

    def lives(self, **options):
        xid = self.ask(**options)
        reply = self.replied(xid)
        expect(reply.payload[:8] == words(xid, 1), "not the Reply to NULL")
        expect(not reply.flags & MORE, "a part, where one message does:", reply)

    def well(self):
        """Expects a Reply to NULL on a new connection."""
        self.lives()

    def error(self, xid, code, *arguments):
        message = self.hear()
        expect(message, "no error message")
        expect((message.xid, message.version, message.kind) == (xid, 2, ERROR), message)
        expect(message.flags == RESPONSE and message.body == words(code, *arguments), message)

    def refused(self, xid, code, *arguments):
        self.error(xid, code, *arguments)
        self.lives()


def a_file():
    if not FILE:
        raise Skip("FILE is not set")
    return reads((0, len(CONTENT)))


def ends(talk, act):
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
