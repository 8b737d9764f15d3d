#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""An NFS server's side of RPC-over-RDMA version 2, in one of several ways.

usage: peer2.py ADDRESS PORT SERVER CONTROL PROCESS WAY

The program is the peer.py of version 2, and was written from the document
(draft-ietf-nfsv4-rpcrdma-version-two-00). The document allows each WAY:

    plain       answers CONNPROP by its own CONNPROP
    default     answers by a grant, and never announces its properties
    unwilling   answers by an error, and never announces its properties
    late        answers by a grant, and announces its properties with the first Call
    shrinks     does the same, with messages of 1024 bytes
    small       has messages of 1024 bytes
    one         grants one credit at a time
    parts       cuts each Reply into parts of 64 bytes
    strange     announces unknown properties, in parts
    invalidates invalidates the handle of each Call that has one
    reads       refuses Calls with Read chunks: it takes 0
    long        refuses Calls with Read chunks other than the Read chunk of a Long Call
    inline      ignores Write and Reply chunks: each Reply is inline, or in parts
    segments    accepts no Segment that is longer than 600,000 bytes
    writes      refuses Calls with Write chunks: it takes 0
    replies     refuses Calls whose Reply would have to go in parts
    silent      does not answer version 2; a client speaks version 1 on its next connection
    begins      does not answer its first client yet, and speaks version 2 only
    called      does not answer a CONNPROP, and speaks version 2 only
    version1    answers other messages than version 1 by ERR_CHUNK, without a check of the version
    announces   announces its version as the fault of that name selects, and ends if a client opens with
                the wrong version
    keyed       proves that it has the key KEY of the environment, and demands a proof of the client, too
    forger      does the same without the key
    hesitates   does the same, but does not answer the first message of its first client

The ways for in-band negotiation (4.3.3) announce no version during connection establishment. All others
announce version 2.
"""

import itertools
import os
import struct
import sys

from pyverbs.cmid import CMID, CMEvent

import sharedkey

from faults import version2
from peer import Call, Connection, Peer, Reply, reduced
from sharedkey import End
from verbs import waiting
from wire import INLINE, PRIVATE_DATA, SECONDS, Decoder, Lost, Segment, announcement, encoded

MSG, NOMSG, ERROR, CONNPROP = 0, 1, 4, 5
INVAL_HTYPE, READ_CHUNKS, WRITE_CHUNKS, REPLY_RESOURCE = 3, 5, 6, 9
RESPONSE, MORE = 1, 2
ERR_VERS, ERR_CHUNK = 1, 2
# The ways without an announcement of the version.
UNANNOUNCED = ("silent", "begins", "called", "version1")
# The property with the maximum number of Segments of a header, and its usual value.
RCSIZ, MOST_SEGMENTS = 4, 16
# The property with the length of the longest Segment, and its value with the way "segments".
RSSIZ, LONGEST = 3, 600000
EMPTY = bytes(16)
CEILING = 32


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def numbers(*values: tuple[int, int]) -> bytes:
    return words(len(values)) + b"".join(words(kind, 4, value) for kind, value in values)


class Call2(Call):
    """A Call of version 2. BEFORE is the payload of its earlier parts."""

    # The header of version 1 has another layout.
    # pylint: disable-next=super-init-not-called
    def __init__(self, message: bytes, before: bytes) -> None:
        at = Decoder(message)
        self.xid, _, self.credits, _, _, self.inv_handle = (at.word() for _ in range(6))
        self.reads, self.writes, self.reply = [], [], None
        while at.word():
            self.reads.append((at.word(), at.segment()))
        while at.word():
            self.writes.append(at.segments())
        if at.word():
            self.reply = at.segments()
        self.payload = before + at.rest()

    def segments(self) -> list[Segment]:
        """Returns all Segments of the chunk lists."""
        reads = (segment for _, segment in self.reads)
        return list(itertools.chain(reads, *self.writes, self.reply or ()))


class Connection2(Connection):
    """A connection of version 2 that counts its credits. WAY selects its behaviour."""

    way = "plain"
    made = 0
    # The sets of properties that the next connection announces instead of its own.
    first: tuple[bytes, ...] = ()

    def __init__(self, event: CMEvent, listener: CMID, private_data: bytes) -> None:
        super().__init__(event, listener, private_data)
        self.version: int | None = None
        # The credits of this side, the credits of the client, and the properties of the client.
        self.balance, self.given = 0, 1
        self.properties: dict[int, int] = {}
        self.arrived: list[Call] = []
        self.parts, self.announced = b"", False
        # The properties of this side are from a fault, and the client may refuse them.
        self.is_odd = False
        # The nonces of client and server, and whether the client has proven its identity.
        self.nonces: tuple[bytes, bytes] | None = None
        self.proven = self.way not in ("keyed", "forger", "hesitates")
        # Errors of the client: the XID and the error. The credit word of the next message.
        self.refusals: list[tuple[int, ...]] = []
        self.next_credits: int | None = None
        self.refusal_is_due = False
        self.most = 1024 if self.way in ("small", "shrinks") else INLINE
        self.ceiling = 1 if self.way == "one" else CEILING
        self.deaf = self.way == "silent" or self.way == "begins" and not Connection2.made
        Connection2.made += 1

    # Sending.

    def message(self, kind: int, body: bytes, xid: int, flags: int = 0,
                invalidate: int | None = None) -> None:
        """Sends a message as soon as there is a credit for it."""
        if not (kind == NOMSG and xid == 0):
            self.wait_for_credit()
            self.balance -= 1
        grant = max(self.ceiling - self.given, 1)
        self.given = min(self.given + grant, self.ceiling)
        granted = self.ceiling << 16 | grant
        if self.next_credits is not None:
            granted, self.next_credits = self.next_credits, None
        message = words(xid, 2, granted, kind, flags) + body
        if len(message) > min(self.most, self.properties.get(2, INLINE)):
            sys.exit(f"a message of {len(message)} octets")
        self.send(message, invalidate)

    def wait_for_credit(self) -> None:
        for _ in waiting(SECONDS):
            if self.balance:
                return
            self.take()
        raise Lost("the client gives no credit")

    def raw(self, message: bytes, invalidate: int | None = None) -> None:
        """Sends any octets as soon as there is a credit."""
        self.wait_for_credit()
        self.balance -= 1
        self.send(message, invalidate)

    def announce(self) -> None:
        if self.announced or self.way in ("default", "unwilling", "called"):
            return
        self.announced = True
        if self.first:
            sets, Connection2.first = self.first, ()
            self.is_odd = True
            for body in sets:
                self.message(CONNPROP, body, 7)
            return
        own = numbers((1, self.most), (2, self.most))
        if self.way == "segments":
            own = numbers((1, self.most), (2, self.most), (RSSIZ, LONGEST))
        if self.way == "strange":
            own = words(4, 99, 5) + b"hello\0\0\0" + words(1, 4, self.most, 98, 0, 2, 4, self.most)
            self.message(CONNPROP, own[:12], 7, MORE)
            own = own[12:]
        self.message(CONNPROP, own, 7)

    def grant(self) -> None:
        self.message(NOMSG, EMPTY, 0)

    def refuse(self, xid: int, *report: int) -> None:
        """Sends an error message, which takes a credit and grants none, independently of its credit word."""
        print(f"refuses a Call: {xid:08x}", flush=True)
        self.raw(words(xid, 2, self.ceiling << 16 | 1, ERROR, RESPONSE, *report))

    def next_refusal(self) -> tuple[int, ...]:
        """Waits for an error message of the client and returns it."""
        self.refusal_is_due = True
        for _ in waiting(SECONDS):
            if self.refusals:
                self.refusal_is_due = False
                return self.refusals.pop(0)
            self.take()
        raise Lost("the client refuses nothing")

    def refused(self, call: Call2) -> bool:
        """Refuses a Call if WAY requires it. Returns whether the Call was refused."""
        if self.way == "reads" and call.reads:
            self.refuse(call.xid, READ_CHUNKS, 0)
        elif self.way == "long" and any(position for position, _ in call.reads):
            self.refuse(call.xid, READ_CHUNKS, 0)
        elif self.way == "writes" and call.writes:
            self.refuse(call.xid, WRITE_CHUNKS, 0)
        else:
            return False
        return True

    # Receiving.

    def take(self) -> None:
        """Receives a message if one has arrived. A Call is kept for next_call()."""
        message = self.next_message()
        if message is None:
            return
        xid, version, credits, kind = struct.unpack_from(">4I", message)
        if self.opening not in (None, version):
            sys.exit(f"a message of version {version}, where {self.opening} is to be spoken")
        if version != 1 and self.way == "version1":
            self.send(words(xid, 1, self.ceiling, ERROR, ERR_CHUNK), None)
            return
        self.version = self.version or version
        if version == 1 and self.way in ("begins", "called"):
            self.send(words(xid, 1, self.ceiling, ERROR, ERR_VERS, 2, 2), None)
            return
        if version == 1:
            self.arrived.append(Call(message))
            return
        if self.deaf:
            return
        flags, = struct.unpack_from(">I", message, 16)
        if len(message) > self.most and self.announced:
            sys.exit(f"a message of {len(message)} octets, where {self.most} are allowed")
        if kind != ERROR:
            self.balance += credits & 0xFFFF
        if kind == NOMSG and xid == 0:
            return
        if not self.given:
            sys.exit("the client sends without a credit")
        self.given -= 1
        if kind == ERROR and self.is_odd and xid == 7:
            print(f"the client refuses the properties: {message[20:].hex()}", flush=True)
        elif kind == ERROR:
            # A Reply is never answered by an error message.
            if not self.refusal_is_due:
                sys.exit(f"an error message for a message that is no Call: {message.hex()}")
            self.refusals.append((xid, *struct.unpack(f">{len(message[20:]) // 4}I", message[20:])))
        elif kind == CONNPROP and self.way == "called":
            # Messages after a refusal in version 1 may still arrive.
            if Connection2.made > 1 and self.version == 2:
                sys.exit("a CONNPROP, once more")
        elif kind == CONNPROP:
            self.know(Decoder(message[20:]))
            if self.way in ("default", "late", "shrinks"):
                self.grant()
            elif self.way == "unwilling":
                # The refused message returns its credit, and its properties do not count.
                self.given, self.properties = self.given + 1, {}
                self.refuse(xid, INVAL_HTYPE)
            else:
                self.announce()
        elif flags & MORE:
            self.parts += message[36:]
            if not self.given:
                self.grant()
        elif not self.proven:
            sys.exit("a Call before the proof of the client")
        else:
            if self.parts and len(self.parts) + len(message) <= min(self.most, INLINE):
                sys.exit("a Call in parts, where one message does")
            call, self.parts = Call2(message, self.parts), b""
            longest = max((segment.length for segment in call.segments()), default=0)
            if self.way == "segments" and longest > LONGEST:
                sys.exit(f"a Segment of {longest} bytes")
            if not self.refused(call):
                self.arrived.append(call)

    def know(self, at: Decoder) -> None:
        for _ in range(at.word()):
            kind, value = at.word(), at.opaque()
            if kind == sharedkey.HOSTAUTH:
                self.judge(Decoder(value).opaque())
            else:
                self.properties[kind], = struct.unpack(">I", value)
        # Granted credits may exceed the Receives. A server that accepts fewer Segments than usual would not
        # have granted more.
        segments = self.properties.get(RCSIZ, MOST_SEGMENTS)
        if "RNR retries 7" not in self.request or segments < MOST_SEGMENTS:
            sys.exit(f"the client's request: {self.request}, {segments} Segments")

    def judge(self, material: bytes) -> None:
        """Handles authentication material: the first message of the client, or its proof."""
        if self.way == "hesitates" and Connection2.made == 1:
            return
        key = os.environ["KEY"].encode()
        hello = sharedkey.said(sharedkey.HELLO)
        if self.nonces is None and material.startswith(hello) and len(material) == 40:
            self.nonces = material[8:], os.urandom(32)
            forged = b"x" if self.way == "forger" else b""
            proof = sharedkey.proof(key + forged, sharedkey.SERVER, self.nonces, self.both())
            said = sharedkey.said(sharedkey.SERVER, self.nonces[1], proof)
            self.message(CONNPROP, sharedkey.property_set(said), 7)
            return
        # Before both nonces are known, nothing is a proof.
        due = self.nonces and sharedkey.proof(key, sharedkey.CLIENT, self.nonces, self.both())
        if not due or self.proven or material != sharedkey.said(sharedkey.CLIENT, due):
            sys.exit(f"the client proves nothing: {material.hex()}")
        if self.way == "forger":
            sys.exit("the client has sent its proof to a peer without the key")
        self.proven = True

    def both(self) -> list[End]:
        """Returns the two ends of the connection, the client's first."""
        return self.ends()[::-1]

    def next_call(self) -> Call | None:
        self.take()
        if not self.arrived:
            return None
        call = self.arrived.pop(0)
        if self.version == 2 and self.way in ("late", "shrinks"):
            self.announce()
        return call


class Reply2(Reply):
    """A Reply in the form in which it is sent, in either version."""

    faults = version2.FAULTS
    connection: Connection2

    def __init__(self, connection: Connection2, call: Call, answer: bytes) -> None:
        self.two = isinstance(call, Call2)
        if not self.two:
            super().__init__(connection, call, answer)
            return
        self.connection, self.call, self.answer = connection, call, answer
        self.xid, self.reply, self.kind, self.invalidate = call.xid, None, MSG, None
        self.payload, data = (answer, b"") if connection.way == "inline" else reduced(call, answer)
        self.writes = [connection.fill(chunk, data if not number else b"")
                       for number, chunk in enumerate(call.writes)]
        self.most = min(connection.most, connection.properties.get(2, INLINE))
        # With a Reply chunk, a Reply that is too long is written there; without it, the Reply is sent in
        # parts.
        too_long = 20 + len(self.body()) > self.most
        if too_long and call.reply is not None and connection.way != "inline":
            self.kind, payload, self.payload = NOMSG, self.payload, b""
            self.reply = connection.fill(call.reply, payload)

    def body(self) -> bytes:
        one, none = words(1), words(0)
        body = none + none
        for chunk in self.writes:
            body += one + encoded(chunk)
        body += none + (none if self.reply is None else one + encoded(self.reply))
        return body + self.payload

    def send(self) -> None:
        if not self.two:
            super().send()
            return
        room = (self.most - 36) & ~3
        if self.connection.way == "parts":
            room = 64
        rest = self.most - 20 - (len(self.body()) - len(self.payload))
        if self.connection.way == "parts":
            rest = min(rest, 64)
        if self.connection.way == "replies" and self.kind == MSG and len(self.payload) > rest:
            self.connection.refuse(self.xid, REPLY_RESOURCE, len(self.payload))
            return
        while self.kind == MSG and len(self.payload) > rest:
            # The last message needs some payload.
            length = min(room, (len(self.payload) - 1) & ~3)
            part, self.payload = self.payload[:length], self.payload[length:]
            self.connection.message(MSG, EMPTY + part, self.xid, RESPONSE | MORE)
        invalidate = self.invalidate
        if self.connection.way == "invalidates" and self.call.inv_handle:
            invalidate = self.call.inv_handle
        self.connection.message(self.kind, self.body(), self.xid, RESPONSE, invalidate)


class Peer2(Peer):
    """A server that accepts connections, one at a time."""

    connections, replies = Connection2, Reply2
    usual_data = PRIVATE_DATA + announcement(2)


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    *arguments, Connection2.way = sys.argv[1:]
    if Connection2.way in UNANNOUNCED:
        Peer2.usual_data = PRIVATE_DATA
    Peer2(*arguments).serve()
