#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""An NFS server's side of RPC-over-RDMA version 1 that breaks the rules on request.

usage: peer.py ADDRESS PORT SERVER CONTROL PROCESS

The program listens on ADDRESS and PORT, forwards the Calls to the TCP port of SERVER, and conveys the Replies
as RFC 8166 requires. If the file CONTROL has the name of a fault (see the folder faults) and a number N, the next N
suitable Replies get the fault. CONTROL is removed at the first of them. CONTROL.done has a line with the
outcome of each. A fault that waits for its test waits for the file CONTROL.go. The program ends when PROCESS
has ended.

Results are moved by RDMA Write for version 3 only. With version 4 they are sent inline or in a Reply chunk.
"""

import dataclasses
import os
import select
import socket
import struct
import sys
import time

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from pyverbs.cm_enums import (RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED,
                              RDMA_PS_TCP)
from pyverbs.cmid import CMID, CMEvent, CMEventChannel, ConnParam

from faults import FAULTS, Fault
from verbs import QueuePair, descriptors, listen
from wire import (INLINE, NFS, PRIVATE_DATA, RDMA_MSG, RDMA_NOMSG, SECONDS, VERSION, Chunk, Decoder, Lost,
                  Segment, encoded, padded)

CREDITS = 64
READ = 6


class Call:
    """A Call of the client with the data of its chunks."""

    # The handle that the client lets the server invalidate (version 2), or 0.
    inv_handle = 0

    def __init__(self, message: bytes) -> None:
        words = Decoder(message)
        self.xid, version, self.credits, kind = (words.word() for _ in range(4))
        if version != VERSION or kind not in (RDMA_MSG, RDMA_NOMSG):
            raise Lost(f"version {version}, type {kind}")
        # The Positions and Segments of the Read list, the Write list, and the Reply chunk.
        self.reads: list[tuple[int, Segment]] = []
        self.writes: list[Chunk] = []
        self.reply: Chunk | None = None
        while words.word():
            self.reads.append((words.word(), words.segment()))
        while words.word():
            self.writes.append(words.segments())
        if words.word():
            self.reply = words.segments()
        self.payload = words.rest()
        # gather() finds these numbers.
        self.program: int | None = None
        self.program_version: int | None = None
        self.procedure: int | None = None

    def gather(self, connection: "Connection") -> None:
        """Reads the Read chunks and inserts their data into the payload."""
        chunks: dict[int, bytes] = {}
        for position, segment in self.reads:
            chunks[position] = chunks.get(position, b"") + connection.read(segment)
        if 0 in chunks:
            self.payload = chunks.pop(0)
        grown = 0
        for position, data in sorted(chunks.items()):
            at = position + grown
            self.payload = self.payload[:at] + padded(data) + self.payload[at:]
            grown += len(padded(data))
        self.program, self.program_version, self.procedure = struct.unpack_from(
            ">III", self.payload, 12)

    def operations(self) -> Decoder | None:
        """Returns a decoder at the first operation of a COMPOUND, or None for another procedure."""
        if (self.program, self.program_version, self.procedure) != (NFS, 4, 1):
            return None
        words = Decoder(self.payload).arguments()
        words.opaque()
        words.word()
        return words if words.word() else None


def reduced(call: Call, answer: bytes) -> tuple[bytes, bytes]:
    """Splits an RPC Reply into the Payload stream and the data of a READ."""
    if (call.program, call.program_version, call.procedure) != (NFS, 3, READ) or not call.writes:
        return answer, b""
    words = Decoder(answer)
    words.at = 12
    words.word()
    words.opaque()
    if words.word() or words.word():
        return answer, b""
    if words.word():
        words.at += 84
    words.at += 8
    before = words.at + 4
    return answer[:before], words.opaque()


class Reply:
    """A Reply in the form in which it is sent. Faults change it before that."""

    # The faults of Replies of this class, by name.
    faults: Mapping[str, Fault[Self]] = FAULTS

    def __init__(self, connection: "Connection", call: Call, answer: bytes) -> None:
        self.connection, self.call = connection, call
        self.xid, self.version, self.kind = call.xid, VERSION, RDMA_MSG
        self.credits: int = connection.credits
        self.reads: list[tuple[int, Segment]] = []
        self.reply: Chunk | None = None
        # The handle to be invalidated.
        self.invalidate: int | None = None
        self.answer: bytes = answer
        payload, data = reduced(call, answer)
        # The data of a READ.
        self.data: bytes = data
        self.writes: list[Chunk] = [connection.fill(chunk, data) for chunk in call.writes[:1]]
        self.writes += [connection.fill(chunk, b"") for chunk in call.writes[1:]]
        self.payload: bytes = payload
        if len(self.encode()) > connection.inline:
            if call.reply is None:
                raise Lost(f"no room for {len(payload)} octets")
            self.kind, self.payload = RDMA_NOMSG, b""
            self.reply = connection.fill(call.reply, payload)

    def start(self) -> bytes:
        return struct.pack(">IIII", self.xid, self.version, self.credits, self.kind)

    def encode(self) -> bytes:
        one, none = struct.pack(">I", 1), bytes(4)
        message = self.start()
        for position, segment in self.reads:
            message += one + struct.pack(">I", position) + segment.encode()
        message += none
        for chunk in self.writes:
            message += one + encoded(chunk)
        message += none
        message += none if self.reply is None else one + encoded(self.reply)
        return message + self.payload

    def send(self) -> None:
        self.connection.send(self.encode(), self.invalidate)


def inline_threshold(private_data: bytes) -> int:
    """Returns the length of messages that the client accepts: 1024 bytes without private data."""
    return INLINE if PRIVATE_DATA in private_data else 1024


class Connection(QueuePair):
    """A connection that was accepted."""

    # The version with which the client must open the connection, or None for any (peer2.py).
    opening: int | None = None

    def __init__(self, event: CMEvent, listener: CMID, private_data: bytes) -> None:
        super().__init__(CMID(creator=event, listen_id=listener))
        self.credits = CREDITS
        self.inline = inline_threshold(private_data)
        self.post_receives()
        attributes = self.go()
        # The attributes of the request are valid until it is accepted.
        self.request = (f"private data {event.private_data.hex()}, Reads {attributes.max_rd_atomic}, "
                        f"RNR retries {attributes.rnr_retry}, retries {attributes.retry_cnt}")
        parameters = ConnParam(resources=16, depth=16, qp_num=self.qp.qp_num,
                               data_len=len(private_data))
        if private_data:
            parameters.set_private_data(private_data)
        self.id.accept(parameters)

    def next_call(self) -> Call | None:
        """Returns the next Call, or None if no Call has arrived."""
        message = self.next_message()
        if message is None:
            return None
        if len(message) > self.inline:
            sys.exit(f"a Call of {len(message)} octets, where {self.inline} are allowed")
        return Call(message)

    def fill(self, chunk: Chunk, data: bytes) -> Chunk:
        """Writes DATA into a chunk. Returns the chunk with the used lengths."""
        used = []
        for segment in chunk:
            part, data = data[:segment.length], data[segment.length:]
            self.write(segment, part)
            used.append(dataclasses.replace(segment, length=len(part)))
        if data:
            raise Lost(f"{len(data)} octets have no place in a chunk")
        return used


class Answers:
    """A connection to the NFS server over TCP (RFC 5531, section 11)."""

    def __init__(self, server: str) -> None:
        for port in range(1023, 600, -1):
            try:
                self.stream = socket.create_connection((server, 2049), SECONDS, ("", port))
                return
            except OSError as error:
                last = error
        raise last

    def _take(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self.stream.recv(length - len(data))
            if not part:
                sys.exit("the NFS server has closed the connection")
            data += part
        return data

    def to(self, payload: bytes) -> bytes:
        self.stream.sendall(struct.pack(">I", 0x80000000 | len(payload)) + payload)
        answer, last = b"", False
        while not last:
            mark, = struct.unpack(">I", self._take(4))
            last = mark & 0x80000000
            answer += self._take(mark & 0x7FFFFFFF)
        return answer


class Peer:
    """A server that accepts connections, one at a time."""

    connections: type[Connection] = Connection
    replies: type[Reply] = Reply
    # The private data with which a connection is accepted, unless a fault replaces them.
    usual_data = PRIVATE_DATA

    def __init__(self, address: str, port: str, server: str, control: str, process: str) -> None:
        self.answers = Answers(server)
        self.control = control
        self.process = f"/proc/{process}"
        known = set(descriptors())
        self.channel = CMEventChannel()
        self.events, = set(descriptors()) - known
        self.listener = CMID(creator=self.channel, port_space=RDMA_PS_TCP)
        listen(self.listener, address, port)
        print("listening", flush=True)
        self.connection: Connection | None = None
        self.past: list[Connection] = []
        self.private_data = self.usual_data
        # An event does not name its connection, but each connection has one event of its end.
        self.ends_to_come = 0
        self.fault: Fault[Reply] | None = None
        self.times, self.struck = 0, 0
        # State of a fault between two of its times: XID and payload of a Call, or Segments.
        self.unanswered: tuple[int, bytes] | None = None
        self.segments: list[Segment] = []
        # Segments of Calls whose RPCs have ended: their handles must be invalid.
        self.ended: dict[str, list[Segment]] = {}

    def serve(self) -> None:
        while os.path.exists(self.process):
            if select.select([self.events], [], [], 0 if self.connection else 1)[0]:
                self.event()
            try:
                call = self.connection and self.connection.next_call()
                if call:
                    self.answer(call)
                elif self.connection:
                    self.pause()
            except Lost as lost:
                self.hang_up(lost)

    def event(self) -> None:
        event = CMEvent(self.channel)
        kind = event.event_type
        if kind == RDMA_CM_EVENT_CONNECT_REQUEST:
            self.hang_up("another connection is requested")
            self.connection = self.connections(event, self.listener, self.private_data)
            self.ended = {"write": [], "read": []}
        event.ack_cm_event()
        if kind == RDMA_CM_EVENT_DISCONNECTED:
            if not self.ends_to_come:
                self.hang_up("the client has disconnected")
            self.ends_to_come -= 1

    def hang_up(self, why: str | Lost) -> None:
        if self.connection:
            print(why, flush=True)
            self.ends_to_come += 1
            self.connection.close()
            self.past.append(self.connection)
            self.connection = None

    def connected(self) -> Connection:
        """Returns the connection. A fault may have ended it."""
        if self.connection is None:
            raise Lost("there is no connection")
        return self.connection

    def make_reply(self, call: Call) -> Reply:
        connection = self.connected()
        call.gather(connection)
        return self.replies(connection, call, self.answers.to(call.payload))

    def answer(self, call: Call) -> None:
        reply = self.make_reply(call)
        self.look_for_a_fault()
        if self.fault and call.program == NFS and self.fault.suits(call):
            self.strike(self.fault, reply)
        else:
            reply.send()
        self.ended["write"] += [segment for chunk in call.writes for segment in chunk]
        self.ended["read"] += [segment for _, segment in call.reads]

    def answer_after(self, reply: Reply, calls: Iterable[Call]) -> None:
        """Sends a withheld Reply, and answers the Calls that have arrived before it."""
        reply.send()
        for call in calls:
            self.answer(call)

    def look_for_a_fault(self) -> None:
        try:
            with open(self.control, encoding="ascii") as control:
                name, times = control.read().split()
        except FileNotFoundError:
            return
        self.fault, self.times, self.struck = self.replies.faults[name], int(times), 0
        self.private_data = self.usual_data
        self.connections.opening = None
        os.remove(self.control)

    def strike(self, fault: Fault[Reply], reply: Reply) -> None:
        outcome = "sent"
        self.struck += 1
        if self.struck == self.times:
            self.fault = None
        print(fault.name, flush=True)
        try:
            outcome = fault.function(self, reply) or outcome
        except Lost as lost:
            outcome = str(lost)
            raise
        finally:
            with open(self.control + ".done", "a", encoding="ascii") as done:
                print(outcome, file=done)

    def wait_for_the_test(self) -> None:
        """Waits until the test has made the file CONTROL.go."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if os.path.exists(self.control + ".go"):
                os.remove(self.control + ".go")
                return
            self.pause()
        raise Lost("the test does not go on")

    def calls(self, seconds: float) -> Iterator[Call]:
        """Yields the Calls that arrive within SECONDS."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            call = self.connected().next_call()
            if call:
                yield call
            self.pause()

    @staticmethod
    def pause() -> None:
        time.sleep(0.001)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    Peer(*sys.argv[1:]).serve()
