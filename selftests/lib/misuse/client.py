# SPDX-License-Identifier: GPL-2.0
"""A connection to the server, and its messages."""

import random
import select
import struct
import subprocess

from collections.abc import Iterable
from typing import Any, TypedDict, Unpack

from pyverbs.cm_enums import (RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_RESPONSE,
                              RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
                              RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_PS_TCP)
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.enums import IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QPS_RTR, IBV_QPS_RTS
from pyverbs.mr import MR
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPAttr

from verbs import RECEIVES, QueuePair, descriptors, waiting
from wire import (RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, SECONDS, VERSION, Chunk, Decoder, Lost,
                  Segment, encoded, words)

from .base import (ALL_ACCESS, ALONE, COMMAND, ERR_CHUNK, ERR_VERS, MEMORY, PAGE, PRIVATE_DATA,
                   QUIET, Case, Skip, Wrong, expect, fault_of)
from .nfs import Rpc, rpc

# Segments to read with their Positions.
ReadList = Iterable[tuple[int, Segment]]


class Options(TypedDict, total=False):
    """The options of Client.message()."""
    read: ReadList
    write: Iterable[Chunk]
    reply: Chunk | None
    lists: bytes | None
    version: int
    credits: int


class Arguments(Options, total=False):
    """All that Client.message() takes."""
    call: Rpc | None
    kind: int


class Parameters(TypedDict, total=False):
    """The parameters of a connection."""
    private_data: bytes
    receives: int
    rnr_retry: int
    resources: int
    patient: bool


def lists_of(read_list: ReadList = (), write_list: Iterable[Chunk] = (),
             reply: Chunk | None = None) -> bytes:
    return (b"".join(words(1, position) + piece.encode() for position, piece in read_list)
            + words(0) + b"".join(words(1) + encoded(chunk) for chunk in write_list) + words(0)
            + (words(0) if reply is None else words(1) + encoded(reply)))


class Answer:
    """A message of the server."""

    def __init__(self, message: bytes) -> None:
        self.message = message
        at = Decoder(message)
        self.xid, self.version, self.credits, self.kind = (at.word() for _ in range(4))
        self.error = at.word() if self.kind == RDMA_ERROR else None
        self.writes: list[Chunk] = []
        self.reply: Chunk | None = None
        self.payload = b""
        if self.error is not None:
            self.versions = (at.word(), at.word()) if self.error == ERR_VERS else None
            expect(not at.rest(), "more behind an error:", message.hex())
            return
        expect(not at.word(), "a Read list in a Reply:", message.hex())
        while at.word():
            self.writes.append(at.segments())
        if at.word():
            self.reply = at.segments()
        self.payload = at.rest()

    def lengths(self) -> list[list[int]]:
        return [[segment.length for segment in chunk] for chunk in self.writes]

    def reply_chunk(self) -> Chunk:
        return expect(self.reply, "no Reply chunk:", self.message[:80].hex())


def as_answer(message: Answer) -> str:
    return f"error {message.error}" if message.error else message.message[:80].hex()


class Client(QueuePair):
    """A connection to the server."""

    def __init__(self, caller: "Caller", *, private_data: bytes = PRIVATE_DATA,
                 receives: int = RECEIVES, rnr_retry: int = 7, resources: int = 16,
                 patient: bool = True) -> None:
        self.caller = caller
        known = set(descriptors())
        self.channel = CMEventChannel()
        self.events, = set(descriptors()) - known
        self.id = CMID(creator=self.channel, port_space=RDMA_PS_TCP)
        self.id.resolve_addr(AddrInfo(dst=caller.server, dst_service=caller.port,
                                      port_space=RDMA_PS_TCP))
        self.event(RDMA_CM_EVENT_ADDR_RESOLVED)
        self.id.resolve_route()
        self.event(RDMA_CM_EVENT_ROUTE_RESOLVED)
        super().__init__(self.id)
        self.post_receives(receives, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
        parameters = ConnParam(resources=resources, depth=16, retry=7, rnr_retry=rnr_retry,
                               qp_num=self.qp.qp_num, data_len=len(private_data))
        if private_data:
            parameters.set_private_data(private_data)
        self.id.connect(parameters)
        self.private_data = self.event(RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED)
        # With iWARP this event says that the connection stands, and the queue pair is ready.
        if self.happened == RDMA_CM_EVENT_CONNECT_RESPONSE:
            self.go(patient)
            self.id.establish()
        self.sends = 0
        # Memory, and protection domains of memory.
        self.regions: list[Any] = []
        self._memory: MR | None = None
        self.calls: list[Answer] = []
        self.closed = self.disconnected = False

    def go(self, patient: bool = True) -> QPAttr:
        """Without patience, a message for which there is no Receive ends the connection, and one
        that is not acknowledged does so soon."""
        if patient:
            return super().go()
        self._modify(IBV_QPS_RTR)
        attributes, mask = self.id.init_qp_attr(IBV_QPS_RTS)
        attributes.rnr_retry, attributes.retry_cnt = 0, 1
        self.qp.modify(attributes, mask)
        return attributes

    def event(self, *wanted: int) -> bytes:
        """Waits for an event of the kinds WANTED. Returns its private data."""
        if not select.select([self.events], [], [], SECONDS)[0]:
            raise Lost(f"no event {wanted} within {SECONDS} s")
        kind, data = self._take_event()
        if kind not in wanted:
            raise Lost(f"event {kind} instead of {wanted}")
        self.happened = kind
        return data

    def _take_event(self) -> tuple[int, bytes]:
        event = CMEvent(self.channel)
        kind, data = event.event_type, event.private_data
        event.ack_cm_event()
        return kind, data

    def is_disconnected(self) -> bool:
        """Returns whether the connection has ended. Other events are printed."""
        while not self.disconnected and select.select([self.events], [], [], 0)[0]:
            kind, _ = self._take_event()
            # The server rejects the connection if the RTU of the client has not arrived.
            self.disconnected = kind in (RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_REJECTED)
            if not self.disconnected:
                print("event", kind, "of the connection manager", flush=True)
        return self.disconnected

    # Memory for the server.

    def region(self, length: int, access: int = ALL_ACCESS) -> MR:
        self.regions.append(MR(self.pd, length, access))
        return self.regions[-1]

    @property
    def memory(self) -> MR:
        self._memory = self._memory or self.region(MEMORY)
        return self._memory

    def piece(self, start: int = 0, length: int = 4, data: bytes | None = None) -> Segment:
        """Returns a Segment of the memory of this client."""
        if data is not None:
            length = len(data)
            if data:
                self.memory.write(data, length, start)
        return Segment(self.memory.rkey, length, self.memory.buf + start)

    def foreign(self, length: int = 64) -> Segment:
        """Returns a Segment with an invalid handle."""
        return Segment(self.memory.rkey ^ 0x5A5A00, length, self.memory.buf)

    def got(self, *pieces: Segment) -> bytes:
        return b"".join(self.memory.read(piece.length, piece.offset - self.memory.buf)
                        for piece in pieces if piece.length)

    # Messages.

    def send(self, message: bytes, invalidate: int | None = None) -> None:
        self.sends += 1
        super().send(message, invalidate)

    def post_all(self, messages: list[bytes]) -> None:
        self.sends += len(messages)
        super().post_all(messages)

    def answers_to(self, messages: list[bytes]) -> set[int]:
        """Sends any number of Calls without waiting for a Reply. Returns the XIDs of the Replies."""
        got: set[int] = set()
        for start in range(0, len(messages), 32):
            self.send_at_once(messages[start:start + 32])
            for answer in iter(lambda: self.answer(0), None):
                got.add(answer.xid)
        while len(got) < len(messages):
            answer = expect(self.answer(), len(got), "Replies to", len(messages), "Calls")
            got.add(answer.xid)
        return got

    def message(self, call: Rpc | None = rpc(), kind: int = RDMA_MSG, *, read: ReadList = (),
                write: Iterable[Chunk] = (), reply: Chunk | None = None, lists: bytes | None = None,
                version: int = VERSION, credits: int = 32) -> tuple[int, bytes]:
        """Returns the XID and the bytes of a message with CALL, or without an RPC message if CALL is None."""
        xid = self.caller.next_xid()
        lists = lists_of(read, write, reply) if lists is None else lists
        return xid, (words(xid, version, credits, kind) + lists
                     + (call(xid) if call and kind != RDMA_NOMSG else b""))

    def ask(self, call: Rpc | None = rpc(), kind: int = RDMA_MSG, **options: Unpack[Options]) -> int:
        xid, message = self.message(call, kind, **options)
        self.send(message)
        return xid

    def answer(self, seconds: float = SECONDS) -> Answer | None:
        """Returns the next message of the server, or None after SECONDS."""
        for _ in waiting(seconds):
            message = self.next_message()
            if message is not None:
                answer = Answer(message)
                # A Call to the client.
                if answer.error is None and answer.payload[4:8] == words(0):
                    self.calls.append(answer)
                    continue
                return answer
        return None

    # Expected results.

    def replied(self, xid: int, kind: int = RDMA_MSG) -> Answer:
        answer = expect(self.answer(), "no Reply")
        expect((answer.xid, answer.version, answer.kind) == (xid, VERSION, kind), as_answer(answer))
        expect(1 <= answer.credits <= 16384, answer.credits, "credits")
        return answer

    def replies(self, call: Rpc | None = rpc(), *, kind: int = RDMA_MSG, form: int = RDMA_MSG,
                **options: Unpack[Options]) -> Answer:
        """Sends a Call and returns its Reply, which is of KIND."""
        return self.replied(self.ask(call, form, **options), kind)

    def refused(self, xid: int) -> None:
        """Expects ERR_CHUNK, and a connection that lives on."""
        answer = expect(self.answer(), "no error message")
        expect((answer.xid, answer.version, answer.error) == (xid, VERSION, ERR_CHUNK),
               as_answer(answer))
        expect(answer.credits, "a grant of nothing")
        self.lives()

    def refuses(self, call: Rpc | None = rpc(), kind: int = RDMA_MSG,
                **options: Unpack[Options]) -> None:
        self.refused(self.ask(call, kind, **options))

    def dropped(self) -> None:
        """Expects no answer: the next message is the Reply to the next Call."""
        self.lives()
        answer = self.answer(QUIET)
        expect(not answer, "an answer:", answer and as_answer(answer))

    def lives(self) -> None:
        self.replied(self.ask())

    def loses(self, call: Rpc | None = rpc(), kind: int = RDMA_MSG, **options: Unpack[Options]) -> None:
        """Sends a message that ends the connection, maybe before its Send completes."""
        self.post_all([self.message(call, kind, **options)[1]])
        self.ended()

    def is_over(self) -> bool:
        """Returns whether the server has ended the connection. Drops the messages until then."""
        while self.next_message() is not None:
            pass
        return self.is_disconnected()

    def ended(self) -> None:
        """Expects that the server, or the device of either side, has ended the connection."""
        for _ in waiting(SECONDS):
            try:
                message = self.next_message()
            except Lost:
                return
            expect(message is None, "the connection lives:", message and message.hex())
            if self.is_disconnected():
                return
        raise Wrong("the connection lives, silent")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            super().close()
            release(*self.regions, self.buffer, self.messages, self.sent, self.received, self.pd)


def release(*objects: Any) -> None:
    for thing in objects:
        try:
            thing.close()
        except PyverbsError:
            pass


COUNTERS = ("read", "recv", "write")


class Caller:
    """The server, and all connections to it."""

    def __init__(self, server: str, port: str) -> None:
        self.server, self.port = server, port
        self.kept: list[Client] = []
        self.past: list[Client] = []
        self.xid = random.randrange(1 << 31)
        self.largest, self.lent = 0, 0

    def next_xid(self) -> int:
        self.xid += 1
        return self.xid

    def next_lent(self) -> int:
        self.lent += 1
        return self.lent

    def connect(self, **options: Unpack[Parameters]) -> Client:
        connection = Client(self, **options)
        self.kept.append(connection)
        return connection

    def on_server(self, *command: str) -> str:
        if not COMMAND:
            raise Skip("SERVER_COMMAND is not set")
        said: str = subprocess.run([*COMMAND, *command], check=True, stdout=subprocess.PIPE,
                                   text=True).stdout
        return said

    def largest_payload(self) -> int:
        """Returns the most bytes of data that nfsd moves in an RPC."""
        if not self.largest:
            self.largest = int(self.on_server("cat", "/proc/fs/nfsd/max_block_size"))
        return self.largest

    def longest_call(self) -> int:
        """Returns the length of the longest Call that nfsd accepts."""
        return (self.largest_payload() + 2 * PAGE - 1) // PAGE * PAGE

    def counters(self) -> list[int]:
        files = [f"/proc/sys/sunrpc/svc_rdma/rdma_stat_{name}" for name in COUNTERS]
        return [int(line) for line in self.on_server("cat", *files).split()]

    def leave(self) -> int:
        sends = sum(connection.sends for connection in self.kept)
        for connection in self.kept:
            try:
                connection.close()
            except PyverbsError:
                pass
        self.past += self.kept
        self.kept = []
        return sends

    def run(self, test: Case) -> str:
        """Runs a test. Returns the fault that it has found, if any."""
        counting = ALONE and COMMAND and test.counted
        before = self.counters() if counting else []
        said = ""
        try:
            test.function(self.connect())
            self.connect().lives()
        except Skip:
            self.leave()
            raise
        except (Lost, Wrong, PyverbsError, struct.error, subprocess.CalledProcessError) as error:
            said = fault_of(error)
        sends = self.leave()
        if counting and not said:
            received = self.counters()[1] - before[1]
            if received != sends:
                said = f"the server has counted {received} messages, not {sends}"
        return said
