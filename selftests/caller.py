#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""An NFS client's side of RPC-over-RDMA version 1 that breaks the rules, against any server.

usage: caller.py SERVER [PORT [NAME...]]

Each test has connections of its own. The server must answer with the error message of RFC 8166, drop the
message, answer the Call, or end the connection. It must continue to serve a client that keeps the rules.
NAME is the beginning of a test's name.

Variables of the environment, all optional:
    FILE            the NFSv4 path of a directory that SERVER exports: "content" in it has 10,000 bytes and
                    "large" 200,000 (byte n is n modulo 251), "written" may be written, and "link" is a
                    symbolic link to TARGET
    SERVER_COMMAND  a program that runs a command on SERVER as root; with it, counters are compared
    ALONE           no other client uses SERVER
    STOCK           SERVER has the C module: its faults are printed and are no errors
    QUICK           skips tests that take long
"""

import dataclasses
import os
import random
import re
import select
import shlex
import struct
import subprocess
import sys
import time

from pyverbs.cm_enums import (RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_RESPONSE,
                              RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
                              RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_PS_TCP)
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
                           IBV_QPS_RTR, IBV_QPS_RTS, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                           IBV_WR_SEND_WITH_IMM)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError

from verbs import RECEIVES, SENDS, QueuePair, descriptors, waiting
from wire import (INLINE, NFS, PRIVATE_DATA, RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG,
                  SECONDS, VERSION, Decoder, Lost, Segment, announcement, encoded, opaque, words)

MEMORY = 2 << 20
ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
# Without the R bit: the memory of a program cannot be invalidated by the server, and a connection ends
# when it tries to.
PRIVATE_DATA = PRIVATE_DATA[:5] + bytes(1) + PRIVATE_DATA[6:]
ERR_VERS, ERR_CHUNK = 1, 2
LARGE = bytes(n % 251 for n in range(200000))
CONTENT = LARGE[:10000]
TARGET = b"where/the/link/leads/to"
PAGE = 4096
# How long a message is waited for that must not come.
QUIET = 0.02

FILE = os.environ.get("FILE", "")
STOCK = bool(os.environ.get("STOCK"))
ALONE = bool(os.environ.get("ALONE"))
QUICK = bool(os.environ.get("QUICK"))
COMMAND = shlex.split(os.environ.get("SERVER_COMMAND", ""))


class Wrong(Exception):
    """The server did something else than it should."""


class Skip(Exception):
    """The test cannot be run here."""


def expect(fact, *what):
    if not fact:
        raise Wrong(" ".join(map(str, what)))


# --- RPC and NFS ------------------------------------------------------------------------------

NULL, GETATTR, ACCESS, READ, WRITE, COMPOUND = 0, 1, 4, 6, 7, 1
# AUTH_NONE, and AUTH_SYS of root.
NOBODY, ROOT = words(0, 0), words(1, 20, 0, 0, 0, 0, 0)
ANONYMOUS = bytes(16)


def rpc(procedure=NULL, arguments=b"", version=3, credentials=NOBODY):
    """An NFS Call, which gets its XID when it is sent."""
    return lambda xid: (words(xid, 0, 2, NFS, version, procedure) + credentials + words(0, 0)
                        + arguments)


def compound(*operations):
    return rpc(COMPOUND, words(0, 0, len(operations)) + b"".join(operations), 4, ROOT)


def compound_41(*operations):
    return rpc(COMPOUND, words(0, 1, len(operations)) + b"".join(operations), 4, ROOT)


PUTROOTFH, GETFH, READLINK = words(24), words(10), words(27)
# Of the attributes, the size.
GETSIZE = words(9, 1, 1 << 4)


def lookup(name):
    return words(15) + opaque(name.encode())


def path(name):
    """The operations that lead to a file."""
    if not FILE:
        raise Skip("FILE is not set")
    parts = [part for part in FILE.split("/") if part] + ([name] if name else [])
    return [PUTROOTFH, *map(lookup, parts)]


def read_file(offset, length):
    """READ with the stateid of a client without an open file."""
    return words(25) + ANONYMOUS + struct.pack(">QI", offset, length)


def write_file(length):
    """WRITE, without the data."""
    return words(38) + ANONYMOUS + words(0, 0, 2, length)


def reads(*ranges, name="content"):
    return compound(*path(name), *(read_file(*part) for part in ranges))


def writes(length, *behind, data=b"", name="written"):
    return compound(*path(name), write_file(length) + data, *behind)


def accepted(payload):
    """The words after the head of an RPC Reply, and the RPC status of the arguments."""
    at = Decoder(payload)
    expect([at.word(), at.word(), at.word()][1:] == [1, 0], "denied:", payload[:80].hex())
    at.word()
    at.opaque()
    return at, at.word()


def good(payload):
    """A decoder behind the status of a COMPOUND that has succeeded."""
    at, verdict = accepted(payload)
    expect(verdict == 0, "not executed:", payload[:80].hex())
    status = at.word()
    expect(status == 0, "NFS error", status)
    at.opaque()
    at.word()
    return at


# --- The header -------------------------------------------------------------------------------


def lists_of(read_list=(), write_list=(), reply=None):
    return (b"".join(words(1, position) + piece.encode() for position, piece in read_list)
            + words(0) + b"".join(words(1) + encoded(chunk) for chunk in write_list) + words(0)
            + (words(0) if reply is None else words(1) + encoded(reply)))


class Answer:
    """A message of the server."""

    def __init__(self, message):
        self.message = message
        at = Decoder(message)
        self.xid, self.version, self.credits, self.kind = (at.word() for _ in range(4))
        self.error = at.word() if self.kind == RDMA_ERROR else None
        self.writes, self.reply, self.payload = [], None, b""
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

    def lengths(self):
        return [[segment.length for segment in chunk] for chunk in self.writes]


def as_answer(message):
    return f"error {message.error}" if message.error else message.message[:80].hex()


# --- A connection -----------------------------------------------------------------------------


class Client(QueuePair):
    """A connection to the server."""

    def __init__(self, caller, *, private_data=PRIVATE_DATA, receives=RECEIVES, rnr_retry=7,
                 resources=16, patient=True):
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
        self.sends, self.regions = 0, []
        self._memory = None
        self.calls = []
        self.closed = False

    def go(self, patient=True):
        """Without patience, a message for which there is no Receive ends the connection, and one
        that is not acknowledged does so soon."""
        if patient:
            return super().go()
        self._modify(IBV_QPS_RTR)
        attributes, mask = self.id.init_qp_attr(IBV_QPS_RTS)
        attributes.rnr_retry, attributes.retry_cnt = 0, 1
        self.qp.modify(attributes, mask)
        return attributes

    def event(self, *wanted):
        """Waits for one of these events; returns its private data."""
        if not select.select([self.events], [], [], SECONDS)[0]:
            raise Lost(f"no event {wanted} within {SECONDS} s")
        event = CMEvent(self.channel)
        kind, data = event.event_type, event.private_data
        event.ack_cm_event()
        if kind not in wanted:
            raise Lost(f"event {kind} instead of {wanted}")
        self.happened = kind
        return data

    # Memory for the server.

    def region(self, length, access=ALL_ACCESS):
        self.regions.append(MR(self.pd, length, access))
        return self.regions[-1]

    @property
    def memory(self):
        self._memory = self._memory or self.region(MEMORY)
        return self._memory

    def piece(self, start=0, length=4, data=None):
        """A Segment of it."""
        if data is not None:
            length = len(data)
            if data:
                self.memory.write(data, length, start)
        return Segment(self.memory.rkey, length, self.memory.buf + start)

    def foreign(self, length=64):
        """A Segment with an invalid handle."""
        return Segment(self.memory.rkey ^ 0x5A5A00, length, self.memory.buf)

    def got(self, *pieces):
        return b"".join(self.memory.read(piece.length, piece.offset - self.memory.buf)
                        for piece in pieces if piece.length)

    # Messages.

    def send(self, message, invalidate=None):
        self.sends += 1
        super().send(message, invalidate)

    def post_all(self, messages):
        self.sends += len(messages)
        super().post_all(messages)

    def answers_to(self, messages):
        """Sends any number of Calls without waiting for a Reply; returns whose Replies came."""
        got = set()
        for start in range(0, len(messages), 32):
            self.send_at_once(messages[start:start + 32])
            for answer in iter(lambda: self.answer(0), None):
                got.add(answer.xid)
        while len(got) < len(messages):
            answer = self.answer()
            expect(answer, len(got), "Replies to", len(messages), "Calls")
            got.add(answer.xid)
        return got

    def message(self, call=rpc(), kind=RDMA_MSG, *, read=(), write=(), reply=None, lists=None,
                version=VERSION, credits=32):
        """The XID and the bytes of a Call; CALL is not sent if it is None."""
        xid = self.caller.next_xid()
        lists = lists_of(read, write, reply) if lists is None else lists
        return xid, (words(xid, version, credits, kind) + lists
                     + (call(xid) if call and kind != RDMA_NOMSG else b""))

    def ask(self, *arguments, **options):
        xid, message = self.message(*arguments, **options)
        self.send(message)
        return xid

    def answer(self, seconds=SECONDS):
        """The next message of the server; nothing if none comes."""
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

    # The results of these operations.

    def replied(self, xid, kind=RDMA_MSG):
        answer = self.answer()
        expect(answer, "no Reply")
        expect((answer.xid, answer.version, answer.kind) == (xid, VERSION, kind), as_answer(answer))
        expect(1 <= answer.credits <= 16384, answer.credits, "credits")
        return answer

    def replies(self, *arguments, kind=RDMA_MSG, **options):
        """Asks, and has a Reply of KIND."""
        how = {"kind": options.pop("form", RDMA_MSG)}
        return self.replied(self.ask(*arguments, **how, **options), kind)

    def refused(self, xid):
        """ERR_CHUNK, and the connection lives."""
        answer = self.answer()
        expect(answer, "no error message")
        expect((answer.xid, answer.version, answer.error) == (xid, VERSION, ERR_CHUNK),
               as_answer(answer))
        expect(answer.credits, "a grant of nothing")
        self.lives()

    def refuses(self, *arguments, **options):
        self.refused(self.ask(*arguments, **options))

    def dropped(self):
        """No answer: the next message is the Reply to the next Call."""
        self.lives()
        answer = self.answer(QUIET)
        expect(not answer, "an answer:", answer and as_answer(answer))

    def lives(self):
        self.replied(self.ask())

    def loses(self, *arguments, **options):
        """Sends a message that ends the connection, maybe before its Send completes."""
        self.post_all([self.message(*arguments, **options)[1]])
        self.ended()

    def is_over(self):
        """Returns whether the server has ended the connection. Drops the messages until then."""
        while self.next_message() is not None:
            pass
        return bool(select.select([self.events], [], [], 0)[0])

    def ended(self):
        """The server, or either device, has ended the connection."""
        for _ in waiting(SECONDS):
            try:
                message = self.next_message()
            except Lost:
                return
            expect(message is None, "the connection lives:", message and message.hex())
            if select.select([self.events], [], [], 0)[0]:
                # The latter, if our RTU was still on its way.
                self.event(RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_REJECTED)
                return
        raise Wrong("the connection lives, silent")

    def close(self):
        if not self.closed:
            self.closed = True
            super().close()
            release(*self.regions, self.buffer, self.messages, self.sent, self.received, self.pd)


def release(*objects):
    for thing in objects:
        try:
            thing.close()
        except PyverbsError:
            pass


# --- The tests --------------------------------------------------------------------------------

CASES = {}


def case(*, stock="", harms=False, counted=True, slow=False, named=False):
    """A test. STOCK: the faults of the C server in it; if they HARM the server, the test is left out.
    COUNTED: each message that was sent reaches the server. NAMED: it runs only if it is named."""
    def add(function):
        CASES[function.__name__] = function
        function.stock, function.harms = stock, harms
        function.counted, function.slow, function.named = counted, slow, named
        return function
    return add


# Connecting.

#= V1-033, V1-034, CM-002
@case()
def null(c):
    c.lives()
    expect(c.private_data[:5] == PRIVATE_DATA[:5], "private data", c.private_data.hex())


def thresholds(private_data, inline):
    """The length of the longest message that the server may send, in the private data."""
    def check(c):
        other = c.caller.connect(private_data=private_data)
        for length in (800, 2000, 5000):
            xid = other.ask(reads((0, length)))
            if length + 200 <= inline:
                expect(CONTENT[:length] in other.replied(xid).payload, "other data")
            else:
                other.refused(xid)
    return check


for title, private, limit in (
        ("no_private_data", b"", 1024),
        ("private_data", PRIVATE_DATA, 4096),
        ("private_data_of_others", bytes(range(50)), 1024),
        ("private_data_cut_short", PRIVATE_DATA[:7], 1024),
        ("private_data_cut_shorter", PRIVATE_DATA[:5], 1024),
        ("private_data_of_another_version", PRIVATE_DATA[:4] + b"\x02" + PRIVATE_DATA[5:], 1024),
        ("private_data_with_more_flags", PRIVATE_DATA[:5] + b"\xfe" + PRIVATE_DATA[6:], 4096),
        ("private_data_with_large_sizes", PRIVATE_DATA[:6] + b"\xff\xff", 4096),
        ("private_data_with_small_sizes", PRIVATE_DATA[:6] + b"\0\0", 1024),
        ("private_data_before_others", PRIVATE_DATA + announcement(2), 4096),
        ("private_data_behind_others", bytes(13) + PRIVATE_DATA, 4096)):
    test = thresholds(private, limit)
    test.__name__ = title
    case(stock="sends more than the client can receive")(test)


#= V1-041, V2-050
@case()
def one_read_at_a_time(c):
    """The client's device serves one RDMA Read at a time."""
    other = c.caller.connect(resources=1)
    data = random.randbytes(3000)
    xids = [write_by(other, data, [(0, 1), (1, 3), (3, 500), (500, 3000)]) for _ in range(4)]
    expect({other.answer().xid for _ in xids} == set(xids), "other Replies")
    written(other, data)
    # That it lets the server have none is no use for NFS.
    try:
        c.caller.connect(resources=0)
    except Lost:
        return
    raise Wrong("accepted without RDMA Reads")


@case()
def refused_again_and_again(c):
    """The log says why, but not each time."""
    said = "no RDMA Reads outstanding"
    mark = f"rpcrdma-test: refusals from {c.caller.next_xid()} on"
    c.caller.on_server("sh", "-c", f"echo '{mark}' >/dev/kmsg")
    begun = time.monotonic()
    tries = 0
    # Long enough for the log to be ready for another ten lines.
    while tries < 50 or time.monotonic() - begun < 6:
        try:
            c.caller.connect(resources=0)
        except Lost:
            tries += 1
            continue
        raise Wrong("accepted without RDMA Reads")
    most = 10 * ((time.monotonic() - begun) // 5 + 2)
    log = c.caller.on_server("dmesg")
    expect(mark in log, "the log has been lost")
    lines = log.rpartition(mark)[2].count(said)
    expect(1 <= lines <= most, lines, "lines in the log about", tries, "refusals")


# Headers.

#= V1-094
@case()
def other_versions(c):
    for version in (0, 2, 3, 0xFFFFFFFF):
        xid = c.ask(version=version)
        answer = c.answer()
        expect(answer, "no error message")
        expect((answer.xid, answer.version, answer.error) == (xid, version, ERR_VERS),
               as_answer(answer))
        expect(answer.versions == (1, 1), answer.versions)
    c.lives()


#= V1-095
@case(stock="drops RDMA_DONE")
def other_types(c):
    for kind in (RDMA_MSGP, 5, 9, 0xFFFFFFFF, RDMA_DONE):
        c.refuses(kind=kind)


#= V1-099
@case()
def errors_of_the_client(c):
    for body in (b"", words(1), words(1, 1, 1), words(1, 2, 1), words(2), words(7)):
        c.send(words(c.caller.next_xid(), 1, 1, RDMA_ERROR) + body)
        c.dropped()


#= V1-110
@case(stock="answers by an error message")
def short_messages(c):
    for length in (0, 1, 4, 8, 12, 15):
        c.send(bytes(length))
    c.dropped()


#= V1-092, V1-093
@case()
def cut_headers(c):
    piece = c.piece()
    _, whole = c.message(None, read=[(40, piece)], write=[[piece]], reply=[piece, piece])
    for length in range(16, len(whole), 4):
        xid = c.caller.next_xid()
        c.send(words(xid) + whole[4:length])
        c.refused(xid)


#= V1-092
@case()
def presence_words(c):
    for lists in (words(2, 0, 0), words(0, 2, 0), words(0, 0, 2), words(0, 0, 0xFFFFFFFF)):
        c.refuses(lists=lists)


#= V1-111
@case()
def counts_beyond_the_message(c):
    """Including numbers whose product with the size of a Segment is small in 32 bits."""
    for count in (5, 1000, 0x08000000, 0x10000000, 0x10000001, 0xFFFFFFFF):
        for lists in (words(0, 1, count), words(0, 0, 1, count)):
            c.refuses(lists=lists)


#= V1-111
@case(stock="uses such Segments")
def wrapping_segments(c):
    wraps = Segment(c.memory.rkey, 8, 0xFFFFFFFFFFFFFFFC)
    for lists in ({"read": [(40, wraps)]}, {"write": [[wraps]]}, {"reply": [wraps]}):
        c.refuses(**lists)


# Where the Call is.

#= V1-092
@case(stock="takes some of them")
def positions(c):
    for places in ((1,), (42,), (4,), (44,), (0xFFFFFFFC,), (40, 0xFFFFFFFC), (8, 8, 1)):
        c.refuses(read=[(place, c.piece()) for place in places])


@case(stock="has the service decode it")
def chunks_inside_each_other(c):
    c.refuses(read=[(12, c.piece(0, 64)), (16, c.piece(64, 4))])


@case(stock="gives no answer")
def no_payload(c):
    c.refuses(kind=RDMA_NOMSG)
    # And a Call of which nothing is inline.
    c.refuses(None)


@case(stock="takes the inline one")
def two_payloads(c):
    xid = c.caller.next_xid()
    piece = c.piece(data=rpc()(xid))
    c.send(words(xid, 1, 32, RDMA_MSG) + lists_of([(0, piece)]) + rpc()(xid))
    c.refused(xid)
    # Bytes behind a NOMSG are ignored.
    c.send(words(xid, 1, 32, RDMA_NOMSG) + lists_of([(0, piece)]) + rpc()(xid))
    c.replied(xid)


#= V1-003
@case(stock="answers under the XID of the RPC message")
def xids_that_differ(c):
    xid = c.caller.next_xid()
    c.send(words(xid, 1, 32, RDMA_MSG) + lists_of() + rpc()(xid + 1))
    c.refused(xid)


#= V1-003, V1-024
@case(stock="has the service decode it", harms=True)
def a_long_call_with_another_xid(c):
    for message in (rpc()(1), words(0, 0), words(0, 1, 0, 0), bytes(4)):
        c.refuses(None, RDMA_NOMSG, read=[(0, c.piece(data=message))])


@case()
def replies_to_nothing(c):
    for credits in (0, 1, 0xFFFFFFFF, 2, 3):
        xid = c.caller.next_xid()
        c.send(words(xid, 1, credits, RDMA_MSG) + lists_of() + words(xid, 1, 0, 0, 0, 0))
        c.dropped()


def long_call(c, call, cuts=(), start=0):
    """Sends a Call in a Position Zero Read chunk whose Segments end at CUTS."""
    xid = c.caller.next_xid()
    message = call(xid)
    pieces, at = [], 0
    for end in (*cuts, len(message)):
        pieces.append((0, c.piece(start, data=message[at:end])))
        start += (end - at + 63) // 64 * 64
        at = end
    c.send(words(xid, 1, 32, RDMA_NOMSG) + lists_of(pieces))
    return xid


#= V1-082, NFS-044
@case(stock="gives no answer")
def a_call_in_memory(c):
    for cuts in ((), (8,), (1, 2, 3), (8, 8, 9), (4, 8, 12, 16, 20, 24, 28, 32, 36)):
        c.replied(long_call(c, rpc(), cuts))


@case()
def a_call_in_as_many_segments_as_bytes(c):
    expect(good(c.replied(long_call(c, compound(PUTROOTFH, GETFH), range(1, 64))).payload),
           "no Reply")


# Read chunks.

#= V1-057, NFS-044, V1-097
#= V1-107
@case()
def several_read_chunks(c):
    """Any contents: items that are not eligible are no reason to refuse."""
    for order in ((0, 1, 2), (2, 1, 0)):
        xid = c.caller.next_xid()
        call = compound(PUTROOTFH, GETFH)(xid)
        pieces, inline, at = [], b"", 0
        for number, (position, length) in enumerate(((20, 8), (36, 4), (44, 4))):
            pieces.append((position, c.piece(number * 64, data=call[position:position + length])))
            inline += call[at:position]
            at = position + length
        c.send(words(xid, 1, 32, RDMA_MSG) + lists_of([pieces[number] for number in order])
               + inline + call[at:])
        good(c.replied(xid).payload)


def write_by(c, data, cuts, behind=b"", start=0, pad=b""):
    """WRITE from a Read chunk: a Segment for each range of DATA in CUTS."""
    call = writes(len(data), *([behind] if behind else []))
    position = len(call(0)) - len(behind)
    segments = [(position, c.piece(start + begin * 2, data=data[begin:end])) for begin, end in cuts]
    if pad:
        segments.append((position, c.piece(start + len(data) * 2, data=pad)))
    return c.ask(call, read=segments)


def written(c, data):
    """Returns whether these are the first bytes of the file."""
    where = c.piece(MEMORY // 2, len(data))
    good(c.replies(reads((0, len(data)), name="written"), write=[[where]]).payload)
    expect(c.got(where) == data, "other data was written")


#= V1-061
@case()
def data_in_odd_segments(c):
    """The pad is missing, as it should."""
    for length in (1, 2, 3, 999, 1000, 5001):
        data = random.randbytes(length)
        cuts = sorted({0, 1, 3, 500, length} & set(range(length + 1)))
        good(c.replied(write_by(c, data, list(zip(cuts, cuts[1:])))).payload)
        written(c, data)


#= V1-062
@case()
def data_with_pad(c):
    """The pad is there, with anything in it, in the same Segment or in one of its own."""
    for length in (1, 2, 999, 4095):
        pad = b"\xff" * (-length % 4)
        for together in (False, True):
            data = random.randbytes(length)
            whole = data + (pad if together else b"")
            call = writes(length, GETSIZE)
            position = len(call(0)) - len(GETSIZE)
            segments = [(position, c.piece(0, data=whole))]
            if not together:
                segments.append((position, c.piece(65536, data=pad)))
            good(c.replies(call, read=segments).payload)
            written(c, data)


@case()
def data_before_other_operations(c):
    for length in (3, 4, 4096, 4097):
        data = random.randbytes(length)
        good(c.replied(write_by(c, data, [(0, length)], GETSIZE)).payload)
        written(c, data)


@case(stock="gives no answer")
def data_between_inline_data(c):
    """Bytes that come inline go behind bytes that do not, over the ends of pages."""
    for first, between, second in ((2000, 1500, 2000), (4000, 400, 4000), (4096, 3000, 4), (4, 3000,
                                   70000), (1, 2000, 4096)):
        lead = -first % 4
        length = first + lead + between + second
        data = random.randbytes(first) + bytes(lead) + random.randbytes(between + second)
        call = writes(length)
        position = len(call(0))
        pieces = [(position, c.piece(0, data=data[:first])),
                  (position + first + lead + between, c.piece(1 << 18, data=data[-second:]))]
        inline = data[first + lead:first + lead + between]
        good(c.replies(lambda xid, part=inline, whole=call: whole(xid) + part, read=pieces).payload)
        written(c, data)


@case(stock="gives no answer")
def long_calls_with_data(c):
    """The Position Zero chunk is cut before, at, in and behind the place of the other."""
    data = random.randbytes(501)
    length = len(writes(501, GETSIZE)(0))
    position = length - len(GETSIZE)
    for cut in (1, 8, position - 4, position - 1, position, position + 1, length - 1):
        xid = c.caller.next_xid()
        call = writes(501, GETSIZE)(xid)
        pieces = [(0, c.piece(0, data=call[:cut])), (position, c.piece(4096, data=data)),
                  (0, c.piece(8192, data=call[cut:]))]
        c.send(words(xid, 1, 32, RDMA_NOMSG) + lists_of(pieces))
        good(c.replied(xid).payload)
        written(c, data)


@case(stock="gives no answer")
def empty_read_chunks(c):
    nothing = Segment(0, 0, 0)
    c.replies(read=[(40, nothing), (40, nothing)])
    c.replies(read=[(8, nothing), (40, nothing)])
    data = random.randbytes(100)
    call = writes(100)
    position = len(call(0))
    good(c.replies(call, read=[(8, nothing), (position, nothing), (position, c.piece(data=data)),
                               (position, nothing)]).payload)
    written(c, data)


#= NFS-045
@case()
def more_than_any_call_has(c):
    """Lengths whose sum is small in 32 bits among them."""
    for lengths in ((0xFFFFFFFF,), (0xFFFFFFFF, 0xFFFFFFFF, 2), (1024, 0xFFFFFFFF, 1), (8 << 20,),
                    (1 << 30,) * 4, (1 << 20,) * 100):
        for position, kind in ((40, RDMA_MSG), (0, RDMA_NOMSG)):
            c.refuses(kind=kind, read=[(position, c.piece(0, length)) for length in lengths])


#= NFS-045
@case(stock="reads, and answers not at all, what is one page more")
def as_much_as_a_call_has(c):
    """To the byte. A NULL Call does not look at its arguments."""
    most = c.caller.longest_call()
    for more in (0, 4, PAGE, 2 * PAGE):
        # Read at Position Zero; behind the inline part; and with 1000 bytes inline behind it.
        call = rpc()(0)
        ways = [(RDMA_NOMSG, [(0, len(call)), (0, most - len(call))], None),
                (RDMA_MSG, [(40, most - 40)], rpc()),
                (RDMA_MSG, [(40, most - 1040)], lambda xid: rpc()(xid) + bytes(1000)),
                (RDMA_MSG, [(40, most - 2040), (most - 1000, 500)],
                 lambda xid: rpc()(xid) + bytes(1500))]
        for kind, ranges, inline in ways:
            xid = c.caller.next_xid()
            c.memory.write(rpc()(xid), len(call))
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + more)
            pieces = [(position, c.piece(0, length)) for position, length in ranges]
            c.send(words(xid, 1, 32, kind) + lists_of(pieces) + (inline(xid) if inline else b""))
            if more:
                c.refused(xid)
            else:
                c.replied(xid)


@case()
def as_many_chunks_as_are_taken(c):
    def many(count):
        return {"call": rpc(), "read": [(40 + 4 * n, c.piece(n * 4)) for n in range(count)]}
    c.replies(**many(32))
    if not STOCK:
        c.refuses(**many(33))
        c.refuses(reads((0, 1)), write=[[c.piece()]] * 33)


@case()
def as_many_segments_to_read_as_a_message_has_room_for(c):
    data = random.randbytes(1640)
    cuts = [(n * 10, n * 10 + 10) for n in range(149)]
    good(c.replied(write_by(c, data, cuts + [(1490, 1640)])).payload)
    written(c, data)


@case()
def many_calls_in_as_many_segments(c):
    """Together they need more registrations than a server has for one connection."""
    data = random.randbytes(1500)
    call = writes(len(data))
    pieces = [(len(call(0)), c.piece(n * 20, data=data[n * 10:n * 10 + 10])) for n in range(150)]
    messages = [c.message(call, read=pieces) for _ in range(16)]
    c.send_at_once([message for _, message in messages])
    waited = {xid for xid, _ in messages}
    while waited:
        answer = c.answer()
        expect(answer, "no Reply to", len(waited), "Calls")
        expect(answer.error is None, as_answer(answer))
        good(answer.payload)
        waited.remove(answer.xid)
    written(c, data)


@case()
def as_many_segments_to_write_as_a_message_has_room_for(c):
    chunk = [c.piece(n * 64, 17) for n in range(230)]
    answer = c.replies(reads((0, 3900)), write=[chunk])
    expect(answer.lengths() == [[17] * 229 + [7]], answer.lengths())
    expect(c.got(*answer.writes[0]) == CONTENT[:3900], "other data")
    answer = c.replies(reads((0, 3000)), kind=RDMA_NOMSG, reply=chunk)
    expect(CONTENT[:3000] in c.got(*answer.reply), "other data")


#= V1-052, V1-096
@case()
def fewer_data_than_the_arguments_say(c):
    """A Read chunk whose length differs from the count of the arguments."""
    handle = file_handle(c, "written")
    for length in (4, 500, 996):
        call = rpc(WRITE, opaque(handle) + words(0, 0, 1000, 2, 1000), 3, ROOT)
        answer = c.replies(call, read=[(len(call(0)), c.piece(0, length))])
        expect(accepted(answer.payload)[1] == 4, "no GARBAGE_ARGS:", answer.payload[:80].hex())


#= V1-096
@case()
def arguments_that_do_not_decode(c):
    call = rpc(GETATTR, words(64), 3, ROOT)
    expect(accepted(c.replies(call).payload)[1] == 4, "no GARBAGE_ARGS")
    answer = c.replies(call, read=[(len(call(0)), c.piece(0, 20))])
    expect(accepted(answer.payload)[1] == 4, "no GARBAGE_ARGS")


# Replies.

def file_handle(c, name):
    at = good(c.replies(compound(*path(name), GETFH)).payload)
    for _ in path(name):
        at.at += 8
    at.at += 8
    return at.opaque()


@case(stock="refuses a chunk with an empty Segment")
def a_reply_chunk(c):
    pieces = [c.piece(0, 10), Segment(0, 0, 0), c.piece(256, 500)]
    answer = c.replies(compound(PUTROOTFH, GETFH), kind=RDMA_NOMSG, reply=pieces)
    lengths = [piece.length for piece in answer.reply]
    expect(not answer.writes and not answer.payload, answer.message[:80].hex())
    expect(lengths[:2] == [10, 0] and 0 < lengths[2] < 500, lengths)
    reply = c.got(*answer.reply)
    expect(reply[:8] == words(answer.xid, 1), reply.hex())
    good(reply)


#= V1-100, NFS-003, NFS-004
#= NFS-008
@case()
def a_reply_chunk_to_the_byte(c):
    call = reads((0, 5000))
    answer = c.replies(call, kind=RDMA_NOMSG, reply=[c.piece(0, 8192)])
    length = answer.reply[0].length
    expect(length > 5000, length)
    for offered in (length, length - 1, length - 4, 4, 0):
        c.memory.write(bytes([0xAA]) * 8192, 8192)
        chunk = [c.piece(0, offered // 2), c.piece(4096, offered - offered // 2)]
        if offered < length:
            c.refuses(call, reply=chunk)
            continue
        answer = c.replies(call, kind=RDMA_NOMSG, reply=chunk)
        expect(CONTENT[:5000] in c.got(*answer.reply), "other data")
        expect(c.memory.read(4, 4096 + offered - offered // 2) == bytes([0xAA]) * 4, "too much")


@case()
def a_long_reply_in_pieces(c):
    """Of data that begin and end within a page, with something before and a pad behind."""
    start, length = PAGE - 1, 40 * PAGE + 2
    call = rpc(READ, opaque(file_handle(c, "large")) + words(0, start, length), 3, ROOT)
    answer = c.replies(call, kind=RDMA_NOMSG, reply=[c.piece(0, length + 1024)])
    expect(LARGE[start:start + length] in c.got(*answer.reply), "other data")


@case(stock="executes what it refuses")
def a_reply_chunk_of_no_segments(c):
    """A Call whose Reply has no room is not executed either."""
    good(c.replies(writes(4, data=b"good")).payload)
    for chunk in ([], [c.piece(0, 4)], [Segment(0, 0, 0)], [c.piece(0, 19)]):
        c.refuses(reply=chunk)
        c.refuses(writes(4, data=b"evil"), reply=chunk)
        xid = c.caller.next_xid()
        call = c.piece(4096, data=writes(4, data=b"evil")(xid))
        c.send(words(xid, VERSION, 32, RDMA_NOMSG) + lists_of([(0, call)], reply=chunk))
        c.refused(xid)
    written(c, b"good")


@case(stock="sends more than the client can receive")
def a_reply_without_room(c):
    """Neither inline nor in a chunk, in one piece and in several."""
    for ranges in (((0, 8000),), ((0, 4052), (0, 4052)), ((0, 2000), (0, 2000), (0, 2000))):
        c.refuses(reads(*ranges))
        c.refuses(reads(*ranges), reply=[c.piece(0, 64)])


@case(stock="sends what its buffer holds")
def an_inline_reply_to_the_byte(c):
    around = len(c.replies(reads((0, 4))).message) - 4
    expect(len(c.replies(reads((0, INLINE - around))).message) == INLINE, "another length")
    c.refuses(reads((0, INLINE - around + 4)))


#= V1-073, V1-071, NFS-036
#= CM-013
@case(stock="lets the operation fail")
def a_write_chunk_to_the_byte(c):
    for length in (1, 1000, 4097):
        where = c.piece(100, length)
        answer = c.replies(reads((7, length)), write=[[where]])
        expect(answer.writes == [[where]], answer.writes)
        expect(c.got(where) == CONTENT[7:7 + length], "other data")
        expect(CONTENT[7:27] not in answer.payload, "data inline, too")
        c.refuses(reads((7, length)), write=[[c.piece(100, length - 1)]])
        more = [c.piece(100, length), c.piece(8192, 1000)]
        answer = c.replies(reads((7, length)), write=[more])
        expect(answer.lengths() == [[length, 0]], answer.lengths())


#= V1-065, V1-108, NFS-037
#= NFS-038
@case(stock="answers NULL")
def write_chunks_without_a_result(c):
    piece = c.piece(0, 64)
    answer = c.replies(compound(PUTROOTFH), write=[[piece], [], [piece, piece]])
    unused = dataclasses.replace(piece, length=0)
    expect(answer.writes == [[unused], [], [unused, unused]], answer.writes)
    # NULL has no result that could be moved.
    c.refuses(write=[[piece]])


@case()
def unused_chunks_of_both_kinds(c):
    piece = c.piece(0, 4096)
    answer = c.replies(compound(PUTROOTFH, GETSIZE), kind=RDMA_NOMSG, write=[[piece]],
                       reply=[c.piece(8192, 4096)])
    expect(answer.lengths() == [[0]], answer.lengths())
    good(c.got(*answer.reply))
    # And both are used.
    answer = c.replies(reads((1, 3000)), kind=RDMA_NOMSG, write=[[piece]],
                       reply=[c.piece(8192, 4096)])
    expect(answer.lengths() == [[3000]], answer.lengths())
    expect(c.got(*answer.writes[0]) == CONTENT[1:3001], "other data")
    good(c.got(*answer.reply))


# nfsd reads the result of a second READ into a page that the Reply does not have, unless the results in
# between end at the end of a page (nfsd4_encode_readv). With TCP, too.
BETWEEN = 16 + 28


def aligned(count, length=PAGE - BETWEEN):
    return [(7 * number, length) for number in range(count)]


#= V1-071, V1-074, V1-135
#= NFS-035, NFS-036, NFS-039
@case()
def results_in_several_write_chunks(c):
    ranges = [(1, 2 * PAGE - BETWEEN - 1), (7, PAGE - BETWEEN - 2), (9000, PAGE - BETWEEN)]
    # The third ends with the file.
    lengths = [ranges[0][1], ranges[1][1], 1000]
    operations = [operation for part in ranges for operation in (read_file(*part), GETSIZE)]
    chunks = [[c.piece(0, 2000), c.piece(4096, 1), c.piece(8192, 8000)], [c.piece(65536, PAGE)],
              [c.piece(131072, PAGE)]]
    c.memory.write(bytes([0xAA]) * 200000, 200000)
    answer = c.replies(compound(*path("content"), *operations), write=chunks)
    expect(answer.lengths() == [[2000, 1, lengths[0] - 2001], [lengths[1]], [1000]],
           answer.lengths())
    for number, chunk in enumerate(answer.writes):
        start = ranges[number][0]
        expect(c.got(*chunk) == CONTENT[start:start + lengths[number]], "data of READ", number)
    for place in (2000, 4097, 8192 + lengths[0] - 2001, 65536 + lengths[1], 131072 + 1000):
        expect(c.memory.read(4, place) == bytes([0xAA]) * 4, "written at", place)
    # The Payload stream: the results without the data.
    at = good(answer.payload)
    at.at += 8 * len(path("content"))
    for number in range(3):
        expected = words(25, 0, number == 2, lengths[number]) + words(9, 0, 1, 1 << 4, 8, 0, 10000)
        expect(at.data[at.at:at.at + len(expected)] == expected, at.rest().hex())
        at.at += len(expected)
    expect(not at.rest(), len(at.rest()), "bytes more")


@case()
def results_in_many_write_chunks(c):
    """The number of operations of a COMPOUND; results without a chunk stay in the Reply."""
    for chunks, results in ((12, 12), (9, 12)):
        ranges = aligned(results, PAGE - 16)
        offered = [[c.piece(number * 8192, PAGE)] for number in range(chunks)]
        reply = [c.piece(1 << 20, 1 << 18)]
        answer = c.replies(reads(*ranges), kind=RDMA_NOMSG, write=offered, reply=reply)
        expect(answer.lengths() == [[PAGE - 16]] * chunks, answer.lengths())
        inline = c.got(*answer.reply)
        for number, (start, length) in enumerate(ranges):
            data = CONTENT[start:start + length]
            if number < chunks:
                expect(c.got(*answer.writes[number]) == data, "data of READ", number)
            else:
                expect(data in inline, "data of READ", number)


#= NFS-037
@case(stock="puts the second result where the first belongs")
def an_empty_write_chunk_first(c):
    """The first result is wanted inline, the second in memory."""
    where, reply = c.piece(0, PAGE), [c.piece(65536, 65536)]
    answer = c.replies(reads(*aligned(2, PAGE - 16)), kind=RDMA_NOMSG, write=[[], [where]],
                       reply=reply)
    expect(answer.lengths() == [[], [PAGE - 16]], answer.lengths())
    expect(c.got(*answer.writes[1]) == CONTENT[7:7 + PAGE - 16], "data of the second READ")
    expect(CONTENT[:PAGE - 16] in c.got(*answer.reply), "data of the first READ")


#= NFS-012, NFS-023
@case()
def a_link_in_a_write_chunk(c):
    where = c.piece(0, 1024)
    answer = c.replies(rpc(5, opaque(file_handle(c, "link")), 3, ROOT), write=[[where]])
    expect(answer.lengths() == [[len(TARGET)]], answer.lengths())
    expect(c.got(*answer.writes[0]) == TARGET, "another target:", c.got(*answer.writes[0]))
    expect(TARGET not in answer.payload, "inline, too")
    # nfsd says of version 4 that the target begins where its length is (nfsd4_encode_readlink).
    answer = c.replies(compound(*path("link"), READLINK), write=[[where]])
    expect(answer.lengths() == [[len(TARGET)]], answer.lengths())
    got = c.got(*answer.writes[0])
    expect(got in (TARGET, (words(len(TARGET)) + TARGET)[:len(TARGET)]), "another target:", got)


#= NFS-011, NFS-013
@case()
def version_3_results(c):
    handle = opaque(file_handle(c, "content"))
    where = c.piece(0, 5000)
    answer = c.replies(rpc(READ, handle + words(0, 3, 5000), 3, ROOT), write=[[where]])
    expect(answer.lengths() == [[5000]] and c.got(where) == CONTENT[3:5003], answer.lengths())
    # GETATTR has nothing eligible.
    if not STOCK:
        c.refuses(rpc(GETATTR, handle, 3, ROOT), write=[[where]])


TRACE = "/sys/kernel/tracing/instances/rpcrdma-caller"


def trace(c, *events):
    """From now on they are in TRACE/trace of the server, until that is removed."""
    enable = " && ".join(f"echo 1 >{TRACE}/events/{event}/enable" for event in events)
    tracing = TRACE.partition("/instances")[0]
    c.caller.on_server("sh", "-c", f"mountpoint -q {tracing} || mount -t tracefs tracefs {tracing}; "
                       f"[ ! -d {TRACE} ] || rmdir {TRACE}; mkdir {TRACE} && {enable}")


def traced(c):
    return c.caller.on_server("cat", f"{TRACE}/trace")


def are_deferred(c, xids):
    """Whether the server has put all of them aside."""
    seen = traced(c)
    return all(f"xid={xid:#010x}" in seen for xid in xids)


@case()
def calls_that_are_deferred(c):
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
    got = {}
    for _ in xids:
        answer = c.answer()
        expect(answer, "no Reply")
        got[answer.xid] = answer
    expect(set(got) == set(xids), "other Replies")
    expect(got[xids[0]].lengths() == [[3000]] and c.got(where) == CONTENT[5:3005], "other data")
    expect(got[xids[1]].kind == RDMA_NOMSG and got[xids[2]].kind == RDMA_MSG, "other forms")


@case()
def the_same_call_twice(c):
    xid, message = c.message(reads((0, 3000)), write=[[c.piece(0, 3000)]])
    c.send_at_once([message] * 8)
    expect([c.answer().xid for _ in range(8)] == [xid] * 8, "other Replies")


# Memory that a device refuses.

@case(counted=False)
def memory_of_nobody(c):
    """To be read from, or to be written to."""
    call = writes(64)
    for options in (lambda o: {"kind": RDMA_NOMSG, "read": [(0, o.foreign())]},
                    lambda o: {"call": call, "read": [(len(call(0)), o.foreign())]},
                    lambda o: {"call": call, "read": [(len(call(0)), o.piece(0, 32)),
                                                      (len(call(0)), o.foreign(32))]},
                    lambda o: {"reply": [o.foreign(512)]},
                    lambda o: {"call": reads((0, 4000)),
                               "write": [[o.piece(0, 2000), o.foreign(4096)]]}):
        other = c.caller.connect()
        other.loses(**options(other))
        other.close()


@case(counted=False)
def why_a_connection_ends(c):
    """The server's trace has the findings of the device, and not their effects."""
    if STOCK:
        raise Skip("the kernel's own server has other events")
    if "siw" in c.caller.on_server("ls", "/sys/class/infiniband"):
        raise Skip("siw does not tell the server")
    try:
        trace(c, "rpcrdma/svcrdma_accept", "rpcrdma/xprtrdma_disconnect")
        for number, options in enumerate((
                lambda o: {"reply": [o.foreign(512)]},
                lambda o: {"call": reads((0, 4000)), "write": [[o.foreign(4096)]]})):
            other = c.caller.connect()
            other.loses(**options(other))
            # A busy server may not have seen the findings of its device; closing would overtake them.
            for _ in waiting(SECONDS):
                events = traced(c)
                cid = re.findall(r"svcrdma_accept: (cid=\d+) ", events)[number:]
                why = cid and re.search(f'xprtrdma_disconnect: {cid[0]} why="(.*)"', events)
                if why:
                    break
            other.close()
            expect(why and why[1] == "remote access error", why[0] if why else "it goes on")
    finally:
        c.caller.on_server("rmdir", TRACE)


def memory(access=ALL_ACCESS, beyond=0, stale=False, other_domain=False):
    """A function of a connection that returns a Segment which the server may not use."""
    def make(c):
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
def memory_that_is_not_for_the_server(c):
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
def memory_of_the_server(c):
    """It offers none."""
    for opcode in (IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE):
        for key in (0, 0x100 + random.randrange(1 << 16)):
            other = c.caller.connect(patient=False)
            other.lives()
            other.post(opcode, 64, (key, 0x1000))
            time.sleep(0.2)
            expect(not other.reap(), f"the server let us use its handle {key:#x}")
            other.close()


@case(counted=False)
def memory_of_the_server_that_is_invalidated(c):
    """A message may invalidate a handle; the server has none for that."""
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
def a_message_with_immediate_data(c):
    """Is a message."""
    xid, message = c.message()
    c.sends += 1
    c.buffer.write(message, len(message))
    c.post(IBV_WR_SEND_WITH_IMM, len(message))
    c.replied(xid)


@case(counted=False)
def a_message_that_is_too_long(c):
    c.loses(rpc(arguments=bytes(INLINE)))


# Flow control.

#= V1-039
@case()
def more_calls_than_credits(c):
    messages = dict(c.message() for _ in range(250))
    expect(c.answers_to(list(messages.values())) == set(messages), "other Replies")


@case(slow=True)
def more_data_than_credits(c):
    """Each Call has something to be read, in many pieces, and something to be written."""
    call = writes(4000)
    segments = [(len(call(0)), c.piece(0, 40))] * 100
    messages = [c.message(call, read=segments) for _ in range(60)]
    messages += [c.message(reads((0, 4000)), write=[[c.piece(1 << 16, 40)] * 100])
                 for _ in range(60)]
    random.Random(1).shuffle(messages)
    messages = dict(messages)
    expect(c.answers_to(list(messages.values())) == set(messages), "other Replies")


@case()
def credits_of_nothing_and_of_everything(c):
    for credits in (0, 1, 0xFFFFFFFF):
        c.replies(credits=credits)


#= V1-034, V1-040, V1-125
@case()
def as_many_calls_as_credits(c):
    """There is a Receive for each, or this connection, which has no patience, ends."""
    other = c.caller.connect(patient=False)
    for _ in range(4):
        credits = other.replies(credits=0xFFFFFFFF).credits
        credits = min(credits, SENDS)
        other.send_at_once([other.message(credits=0xFFFFFFFF)[1] for _ in range(credits)])
        got = {other.answer().xid for _ in range(credits)}
        expect(len(got) == credits, len(got), "Replies")


#= V1-032, V1-033, V1-040
@case(stock="does not change the grant of a connection")
def a_grant_that_changes(c):
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    before = c.caller.on_server("cat", setting).strip()
    try:
        for value in (8, 16384):
            c.caller.on_server("sh", "-c", f"echo {value} >{setting}")
            other = c.caller.connect(patient=False)
            for connection in (c, other):
                for _ in range(3):
                    granted = connection.replies(credits=0xFFFFFFFF).credits
                    expect(0 < granted <= value, granted, "credits, with a setting of", value)
                count = min(granted, SENDS)
                connection.send_at_once([connection.message()[1] for _ in range(count)])
                expect(len({connection.answer().xid for _ in range(count)}) == count, "Replies")
            other.close()
    finally:
        c.caller.on_server("sh", "-c", f"echo {before} >{setting}")


def credits_in_use(connection, times=4):
    """The grant to a client that uses its credits this number of times."""
    granted = connection.replies(credits=0xFFFFFFFF).credits
    for _ in range(times):
        count = min(granted, SENDS)
        connection.send_at_once([connection.message(credits=0xFFFFFFFF)[1]
                                 for _ in range(count)])
        answers = [connection.answer() for _ in range(count)]
        expect(len({answer.xid for answer in answers}) == count, "Replies")
        granted = answers[-1].credits
    return granted


#= V1-032, V1-033, V1-035
#= V1-040
@case(stock="does not change the grant of a connection")
def a_grant_that_is_raised(c):
    """Up to twice the previous setting, for which there is room, and down again."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    before = c.caller.on_server("cat", setting).strip()

    def set_to(value):
        c.caller.on_server("sh", "-c", f"echo {value} >{setting}")

    try:
        set_to(16)
        other = c.caller.connect(patient=False)
        for value, most in ((16, 16), (24, 24), (16384, 32), (12, 12), (32, 32)):
            set_to(value)
            granted = credits_in_use(other)
            expect(granted == most, granted, "credits, with a setting of", value)
        other.close()
    finally:
        set_to(before)


@case(counted=False, named=True)
def receives_of_the_version_that_is_spoken(c):
    """A client announces version 2 and speaks version 1: its Receives are for either, and go as they are used."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    usual = c.caller.on_server("cat", setting).strip()

    def free():
        """Free pages of the server, including the pages in the caches of its processors."""
        return sum(map(int, c.caller.on_server(
            "sh", "-c", "echo 3 >/proc/sys/vm/drop_caches; sleep 0.2; awk "
            "'$1 == \"nr_free_pages\" || $1 == \"count:\" { print $2 }' /proc/zoneinfo").split()))

    def ask(times):
        for _ in range(times):
            for other in others:
                other.lives()

    # The number of Receives stays at its initial value.
    c.caller.on_server("sh", "-c", f"echo 8 >{setting}")
    try:
        # About the number of unauthenticated clients that nfsd allows.
        data = PRIVATE_DATA + announcement(2)
        others = [c.caller.connect(patient=False, private_data=data) for _ in range(60)]
        ask(2)
        before = free()
        ask(20)
        more = free() - before
        expect(more > len(others) * 17 * 3 // 2, "only", more, "pages are free that were not")
        for other in others:
            other.close()
    finally:
        c.caller.on_server("sh", "-c", f"echo {usual} >{setting}")


#= V1-032, V1-033, V1-040
@case(counted=False)
def a_grant_from_the_first_message(c):
    """An answer before the properties are settled grants no more than the setting, either."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    before = c.caller.on_server("cat", setting).strip()
    c.caller.on_server("sh", "-c", f"echo 4 >{setting}")
    try:
        other = c.caller.connect(patient=False)
        other.ask(version=9)
        granted = other.answer().credits
        expect(0 < granted <= 4, granted, "credits, with a setting of 4")
        other.close()
    finally:
        c.caller.on_server("sh", "-c", f"echo {before} >{setting}")


@case(counted=False)
def never_takes_a_reply(c):
    """Its device says so, and gives the connection up."""
    other = c.caller.connect(receives=0, rnr_retry=0)
    other.post_all([other.message()[1] for _ in range(40)])
    for _ in range(10):
        c.lives()


@case(counted=False, slow=True)
def never_takes_a_reply_and_says_nothing(c):
    """Its device makes the device of the server repeat messages for ever. No other client may have to wait
    for it."""
    others = [c.caller.connect(receives=0, rnr_retry=7) for _ in range(2)]
    for other in others:
        under_way = 0
        for _ in range(40):
            if under_way + 32 <= SENDS:
                other.post_all([other.message(reads((0, 100)), write=[[other.piece(0, 100)]])[1]
                                for _ in range(32)])
                under_way += 32
            time.sleep(0.02)
            under_way -= other.reap()
    for _ in range(20):
        begun = time.monotonic()
        c.lives()
        expect(time.monotonic() - begun < 2, "a NULL took", time.monotonic() - begun, "s")
        time.sleep(0.05)
    for other in others:
        other.close()


# Random messages.

@case(counted=False)
def garbage(c):
    source = random.Random(8166)
    for _ in range(100):
        body = b"".join(words(source.choice((0, 1, 2, source.randrange(1 << 32))))
                        for _ in range(30))
        # Nothing that could be a handle of ours, and no Segment to read or to write.
        c.send(words(c.caller.next_xid(), 1, 1, source.randrange(2)) + body)
        try:
            while c.answer(0.005):
                pass
        except (Lost, Wrong):
            c = c.caller.connect()


@case(counted=False)
def mutations(c):
    """Of a Call with every kind of chunk."""
    source = random.Random(4711)
    for _ in range(30 if QUICK else 100):
        options = {"write": [[c.piece(0, 4096)]], "reply": [c.piece(4096, 65536)]}
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


# Leaving.

@case(counted=False)
def leaves_with_calls_open(c):
    call = writes(1 << 20)
    large = [(len(call(0)), c.piece(0, 1 << 20))]
    for options in ({}, {"call": call, "read": large},
                    {"kind": RDMA_NOMSG, "read": [(0, c.piece(0, 1 << 20))]},
                    {"call": reads((0, 8192)), "write": [[c.piece(0, 8192)]]},
                    {"call": reads((0, 8192)), "reply": [c.piece(0, 16384)]},
                    {"call": reads((0, 8192))}, {"version": 7}, {"kind": 9}):
        for pause in (0, 0.002):
            other = c.caller.connect()
            options = dict(options)
            # A handle of another protection domain works as well: the device does not check whether it is
            # read.
            if pause:
                for name in {"read", "write", "reply"} & set(options):
                    options[name] = own(other, options[name])
            other.post_all([other.message(**options)[1] for _ in range(16)])
            time.sleep(pause)
            other.close()


def own(c, lists):
    """The same lists with memory of this connection."""
    if isinstance(lists, Segment):
        return c.piece(0, lists.length)
    if isinstance(lists, list):
        return [own(c, item) for item in lists]
    if isinstance(lists, tuple):
        return tuple(own(c, item) for item in lists)
    return lists


PHASES = ("resolved", "asked", "accepted", "established", "called", "read", "written")


@case(counted=False, slow=True)
def killed_in_every_phase(c):
    """A process that ends, at once."""
    # A test that fails leaves its processes to the end of the node.
    # pylint: disable-next=consider-using-with
    children = [subprocess.Popen([sys.executable, __file__, c.caller.server, c.caller.port,
                                  "--phase", phase], stdout=subprocess.PIPE) for phase in PHASES]
    for child, phase in zip(children, PHASES):
        expect(child.stdout.readline() == b"there\n", phase, "was not reached")
        child.kill()
        child.wait()
    c.lives()


def reach(server, port, phase):
    """Gets to a phase and waits there to be killed."""
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

    def __init__(self, caller, channel=None):
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

    def _event(self):
        event = CMEvent(self.channel)
        kind = event.event_type
        event.ack_cm_event()
        return kind

    def step(self):
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

    def close(self):
        self.pair.close()
        release(self.pair.buffer, self.pair.messages, self.pair.sent, self.pair.received,
                self.pair.pd)


@case(counted=False)
def connects_and_leaves(c):
    for _ in range(20 if QUICK else 60):
        c.caller.connect(receives=4).close()


@case(counted=False, slow=True)
def many_ask_at_once(c):
    """All are accepted, whether they then say something or not."""
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
def many_connections(c):
    others = [c.caller.connect(receives=4) for _ in range(40)]
    for other in others:
        other.lives()
    for other in others:
        other.close()


# Calls of the server.

class Session:
    """An NFSv4.1 client with a delegation, which the server has to ask back."""

    def __init__(self, c, owner):
        self.c, self.sequence = c, 1
        verifier = random.randbytes(8)
        at = good(c.replies(compound_41(words(42) + verifier + opaque(owner.encode())
                                        + words(0, 0, 0))).payload)
        at.at += 8
        self.client = at.data[at.at:at.at + 8]
        sequence = struct.unpack_from(">I", at.data, at.at + 8)[0]
        channel = words(0, 65536, 65536, 4096, 16, 8, 0)
        at = good(c.replies(compound_41(
            words(43) + self.client + words(sequence, 2) + channel
            + words(0, 4096, 4096, 0, 2, 2, 0) + words(0x40000000, 1, 0))).payload)
        at.at += 8
        self.id = at.data[at.at:at.at + 16]
        self.compound(words(58, 0))

    def compound(self, *operations, wanted=0):
        sequence = words(53) + self.id + words(self.sequence, 0, 0, 0)
        self.sequence += 1
        answer = self.c.replies(compound_41(sequence, *operations))
        at, verdict = accepted(answer.payload)
        expect(verdict == 0, "not executed")
        status = at.word()
        expect(status == wanted, "NFS error", status)
        return at

    def is_lent(self, name):
        """Opens it for reading; whether there is a delegation."""
        *directory, last = path(name)
        claim = words(0) + last[4:]
        at = self.compound(*directory, words(18, 0, 1 | 0x100, 0) + self.client
                           + opaque(b"owner") + words(0) + claim)
        at.opaque()
        # SEQUENCE, the operations of DIRECTORY, and the stateid, change and flags of OPEN.
        at.at += 4 + 44 + 8 * len(directory) + 8 + 16 + 20 + 4
        attributes = at.word()
        at.at += 4 * attributes
        return at.word() == 1

    def lent(self):
        """The name of a file. nfsd lends none before it has looked at the way back, and none for a
        while that was recalled, or that has the hash of such a one."""
        name = ""
        for attempt in range(100):
            if attempt % 20 == 0:
                name = f"lent{self.c.caller.next_lent()}"
            if self.is_lent(name):
                return name
            time.sleep(0.1)
        raise Wrong("nothing is lent")


def asked_back(c, count=1, seconds=10):
    """Waits for Calls of the server."""
    for _ in waiting(seconds):
        if len(c.calls) >= count:
            break
        c.answer(0.01)
    return len(c.calls)


def lends(c, count):
    """A session, and names of files for which it has delegations."""
    c.caller.on_server("sh", "-c", "echo Y >/proc/fs/lockd/nlm_end_grace")
    session = Session(c, f"caller {c.caller.next_xid()}")
    return session, [session.lent() for _ in range(count)]


def somebody_writes(c, names):
    """To files for which another client has delegations, that waits for Calls on C."""
    conflict = c.caller.connect()
    expect(not c.calls, "a Call of the server too early")
    for name in names:
        conflict.ask(writes(4, data=b"data", name=name))
    expect(asked_back(c), "no Call of the server")


def recalled(c, count=1):
    """A session with delegations that the server has asked for."""
    session, names = lends(c, count)
    somebody_writes(c, names)
    return session


def callback_reply(call, body, credits=4):
    return words(call.xid, 1, credits, RDMA_MSG) + lists_of() + words(call.xid, 1, 0, 0, 0) + body


def recall_reply(call, status=0):
    """CB_SEQUENCE and CB_RECALL, done."""
    at = Decoder(call.payload).arguments()
    at.opaque()
    at.at += 12
    expect(at.word() == 11, "no CB_SEQUENCE:", call.payload[:80].hex())
    sequence = at.data[at.at:at.at + 28]
    return callback_reply(call, words(0, 0, 0, 2, 11, 0) + sequence + sequence[-4:]
                          + words(4, status))


#= V1-119, V1-121, V1-126
#= V1-127, NFS-053
@case(counted=False)
def callbacks(c):
    """They come when there is a session, inline, and no more than one is outstanding."""
    c = c.caller.connect(patient=False)
    recalled(c, 2)
    call = c.calls[-1]
    expect(not call.writes and call.reply is None, "chunks in a callback:", call.message.hex())
    expect(call.credits, "no credits asked for")
    at = Decoder(call.payload)
    expect([at.word() for _ in range(6)] == [call.xid, 0, 2, 0x40000000, 1, 1],
           call.payload[:80].hex())
    # The Receive for the Reply comes in addition to the Receives for Calls.
    c.answers_to([c.message()[1] for _ in range(call.credits)])
    expect(asked_back(c, 2, 0.3) == 1, "two Calls with one credit")
    c.send(recall_reply(call))
    expect(asked_back(c, 2) == 2, "no second Call")
    c.lives()


#= V1-121, NFS-049
@case(counted=False)
def callbacks_with_odd_answers(c):
    """Answers that are none, of a length that is none, twice, and behind their end."""
    recalled(c)
    call = c.calls[-1]
    for answer in (callback_reply(call, b"")[:-8],
                   words(call.xid ^ 1, 1, 4, RDMA_MSG) + lists_of() + words(call.xid ^ 1, 1, 0, 0),
                   words(call.xid, 1, 0, RDMA_ERROR, 7)):
        c.send(answer)
        c.dropped()
    # Whose Call it was cannot be told.
    c.send(words(call.xid, 1, 4, RDMA_MSG) + lists_of() + words(call.xid ^ 2, 1, 0, 0))
    c.refused(call.xid)
    for _ in range(3):
        c.send(callback_reply(call, words(0, 0) + bytes(3900)))
    c.lives()


@case(counted=False)
def callbacks_refused(c):
    """By an error message, and by one of another version."""
    for body in (words(1, 1, 4, RDMA_ERROR, ERR_CHUNK), words(1, 1, 4, RDMA_ERROR, ERR_VERS, 1, 1)):
        other = c.caller.connect()
        recalled(other)
        other.send(words(other.calls[-1].xid) + body[4:])
        other.lives()


@case(counted=False)
def callbacks_with_chunks(c):
    """A Reply to a callback has none."""
    recalled(c)
    call = c.calls[-1]
    piece = c.piece(0, 64)
    for options in (lists_of([(8, piece)]), lists_of((), [[piece]]), lists_of((), (), [piece])):
        c.send(words(call.xid, 1, 4, RDMA_MSG) + options + words(call.xid, 1, 0, 0, 0, 0))
        c.dropped()
    # This can only be a Call.
    c.send(words(call.xid, 1, 4, RDMA_NOMSG) + lists_of((), (), [piece]))
    c.refused(call.xid)


@case(counted=False)
def callbacks_to_who_leaves(c):
    """The delegation's owner goes on by another connection, with a callback outstanding."""
    session = recalled(c)
    other = c.caller.connect()
    # BIND_CONN_TO_SESSION, fore and back. Without a way back, nfsd gives callbacks up.
    good(other.replies(compound_41(words(41) + session.id + words(3, 0))).payload)
    c.close()
    expect(asked_back(other), "not asked again")
    other.send(recall_reply(other.calls[-1]))
    other.lives()


def is_gone(c):
    try:
        return c.is_over()
    except Lost:
        return True


def never_answers(c):
    """A client that is called until the server ends its connection: its session, and the name of a file
    for which it has a delegation still."""
    other = c.caller.connect()
    session, names = lends(other, 3)
    somebody_writes(other, names[:2])
    begun = time.monotonic()
    for _ in waiting(60):
        if is_gone(other):
            break
        time.sleep(0.1)
    lived = time.monotonic() - begun
    expect(3 < lived < 60, "the connection has lived", lived, "s")
    return session, names[2:]


#= V1-036, V1-037
@case(stock="it calls a client again that has no credit for that", counted=False, slow=True)
def callbacks_without_answers(c):
    """Only a Reply brings a credit. A client that sends no Reply is not called any more."""
    never_answers(c)


@case(stock="it calls a client again that has no credit for that", counted=False, slow=True)
def callbacks_never_answered(c):
    """A client that connects again is called again."""
    session, names = never_answers(c)
    again = c.caller.connect()
    good(again.replies(compound_41(words(41) + session.id + words(3, 0))).payload)
    # nfsd gives up a recall that begins while there is no way back.
    somebody_writes(again, names)
    again.send(recall_reply(again.calls[-1]))
    again.lives()


# --- Running them -----------------------------------------------------------------------------

COUNTERS = ("read", "recv", "write")


class Caller:
    """The server, and all connections to it."""

    def __init__(self, server, port):
        self.server, self.port = server, port
        self.kept, self.past = [], []
        self.xid = random.randrange(1 << 31)
        self.longest, self.lent = 0, 0

    def next_xid(self):
        self.xid += 1
        return self.xid

    def next_lent(self):
        self.lent += 1
        return self.lent

    def connect(self, **options):
        connection = Client(self, **options)
        self.kept.append(connection)
        return connection

    def on_server(self, *command):
        if not COMMAND:
            raise Skip("SERVER_COMMAND is not set")
        return subprocess.run([*COMMAND, *command], check=True, stdout=subprocess.PIPE,
                              text=True).stdout

    def longest_call(self):
        """The longest Call that nfsd accepts."""
        if not self.longest:
            most = int(self.on_server("cat", "/proc/fs/nfsd/max_block_size"))
            self.longest = (most + 2 * PAGE - 1) // PAGE * PAGE
        return self.longest

    def counters(self):
        files = [f"/proc/sys/sunrpc/svc_rdma/rdma_stat_{name}" for name in COUNTERS]
        return [int(line) for line in self.on_server("cat", *files).split()]

    def leave(self):
        sends = sum(connection.sends for connection in self.kept)
        for connection in self.kept:
            try:
                connection.close()
            except PyverbsError:
                pass
        self.past += self.kept
        self.kept = []
        return sends

    def run(self, function):
        """Returns the mistakes."""
        counting = ALONE and COMMAND and function.counted
        before = self.counters() if counting else None
        said = ""
        try:
            function(self.connect())
            self.connect().lives()
        except Skip:
            self.leave()
            raise
        except (Lost, Wrong, PyverbsError, struct.error, subprocess.CalledProcessError) as error:
            said = f"{type(error).__name__}: {error}"
        sends = self.leave()
        if counting and not said:
            received = self.counters()[1] - before[1]
            if received != sends:
                said = f"the server has counted {received} messages, not {sends}"
        return said


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    server, port, *names = sys.argv[1:] + ["20049"][len(sys.argv) - 2:]
    if names and names[0] == "--phase":
        return reach(server, port, names[1])
    for beginning in names:
        if not any(name.startswith(beginning) for name in CASES):
            sys.exit(f"no test begins with {beginning}")
    caller = Caller(server, port)
    chosen = [name for name, function in CASES.items()
              if (any(name.startswith(beginning) for beginning in names) if names else not function.named)
              and not (QUICK and function.slow)]
    print(f"TAP version 13\n1..{len(chosen)}", flush=True)
    failed = 0
    for number, name in enumerate(chosen, 1):
        function = CASES[name]
        begun = time.monotonic()
        note = ""
        try:
            if STOCK and function.harms:
                raise Skip(f"the kernel's own server {function.stock}, which harms it")
            said = caller.run(function)
        except Skip as why:
            said, note = "", f" # SKIP {why}"
        if said and STOCK and function.stock:
            note, said = f" # the kernel's own server {function.stock}: {said}", ""
        failed += bool(said)
        print(f"{'not ' if said else ''}ok {number} {name.replace('_', ' ')}{note}", flush=True)
        print(f"# {time.monotonic() - begun:.2f} s")
        if said:
            print(f"# {said}", flush=True)
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
