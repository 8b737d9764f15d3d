#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""An NFS client's side of RPC-over-RDMA version 2, against a server that speaks it.

usage: caller2.py SERVER [PORT [NAME...]]

The program was written from the document (draft-ietf-nfsv4-rpcrdma-version-two-00). It opens connections in
every way that the document allows, and sends valid and invalid messages. FILE in the environment is as for
caller.py. NAME is the beginning of a test's name.
"""

import inspect
import random
import struct
import sys
import time

from pyverbs.pyverbs_error import PyverbsError

from verbs import waiting
from wire import PRIVATE_DATA, SECONDS, Decoder, Lost, Segment, announcement, words

from misuse.base import CONTENT, FILE, QUICK, Skip, Wrong, expect
from misuse.callbacks import Session, recall_reply
from misuse.client import Caller, Client, lists_of
from misuse.nfs import GETFH, GETSIZE, PUTROOTFH, compound, good, reads, rpc, writes

MSG, NOMSG, ERROR, CONNPROP = 0, 1, 4, 5
RESPONSE, MORE = 1, 2
BAD_XDR, INVAL_HTYPE, INVAL_FLAG = 2, 3, 4
READ_CHUNKS, WRITE_CHUNKS, SYSTEM = 5, 6, 10
SBSIZ, RBSIZ, RSSIZ, RCSIZ, BRS, HOSTAUTH = 1, 2, 3, 4, 5, 6
# The number of Receives for messages of the server.
CEILING = 64
# How long a message is waited for that need not come.
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
        # Of a Reply without chunks.
        self.payload = message[36:]

    def is_grant(self):
        return self.kind == NOMSG and self.xid == 0

    def is_call(self):
        return self.kind == MSG and not self.flags & RESPONSE

    def frees_a_receive(self):
        """A Reply without more to follow, so that there is a credit to give."""
        return self.kind in (MSG, NOMSG) and self.flags & (RESPONSE | MORE) == RESPONSE

    def __str__(self):
        return self.message[:100].hex()


def properties(*values):
    """A property set of numbers."""
    return words(len(values)) + b"".join(words(kind, 4, value) for kind, value in values)


def properties_of(message):
    """The properties that a message of the server has."""
    at = Decoder(message.body)
    found = {}
    for _ in range(at.word()):
        kind, value = at.word(), Decoder(at.opaque())
        found[kind] = value.opaque() if kind == HOSTAUTH else value.word()
        expect(not value.rest(), "a property that is too long:", message)
    expect(not at.rest(), "more than a property set:", message)
    return found


class Talk:
    """A connection that keeps the books."""

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
        # Zero is never sent, and so is one.
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
        """The COMPOUND has succeeded."""
        return good(self.replied(xid).payload)

    def parts_of(self, xid):
        """The Payload stream of a Reply, and the number of its messages."""
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
        """A new connection is as it should be."""
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


# --- How a connection is opened ---------------------------------------------------------------


#= V2-001, V2-006, V2-010
#= V2-058, V2-059, V2-092
#= V2-136, V2-137, VA-011
def opens_with_properties(talk):
    talk.open((SBSIZ, 4096), (RBSIZ, 4096))
    expect(talk.announced[RBSIZ] >= 4096, talk.announced)
    for _ in range(3):
        talk.lives()


#= V2-057, V2-119, V2-135
def opens_with_no_properties(talk):
    talk.open().lives()


# With more than one credit, the server announces its properties first.
def opens_with_a_call(talk):
    talk.lives()
    expect(talk.announced, "the server has announced nothing")
    talk.lives()


#= V2-054
def opens_with_a_call_and_one_credit(talk):
    talk.lives(grant=1)
    expect(talk.announced is None, "the Reply was to go first")
    talk.grant(4)
    talk.has_announced()
    talk.lives()


#= V2-067
def opens_with_a_long_call(talk):
    """There is room for 4096 bytes before the properties are agreed on."""
    xid = talk.caller.next_xid()
    call = rpc()(xid)
    talk.part(call + bytes(4096 - 36 - len(call)), xid)
    talk.replied(xid)
    talk.lives()


# The Reply that goes first may have parts, each of which takes a credit.
#= V2-039
def opens_with_a_call_of_a_long_reply(talk):
    xid = talk.ask(a_file(), grant=1)
    talk.grant(2)
    talk.grant(16)
    stream, parts = talk.parts_of(xid)
    expect(CONTENT in stream and parts >= 3, parts, "parts")
    talk.lives()
    expect(talk.announced, "the server has announced nothing")


def announces_itself_late(talk):
    talk.lives()
    talk.send(CONNPROP, properties((SBSIZ, 4096), (RBSIZ, 1024)))
    talk.lives()
    # From now on it gets no more at a time than it takes.
    stream, parts = talk.parts_of(talk.ask(a_file()))
    expect(CONTENT in stream and parts >= 10, parts, "parts")


#= V2-138
def properties_that_are_left_out(talk):
    """They have their defaults from the first set on, which counts."""
    talk.open((SBSIZ, 8192))
    for _ in range(2):
        _, parts = talk.parts_of(talk.ask(a_file()))
        expect(parts == 3, parts, "parts")
        talk.send(CONNPROP, properties((RBSIZ, 1024)))


#= V2-124, V2-140
def properties_that_nobody_knows(talk):
    talk.send(CONNPROP, words(3, 77, 0, SBSIZ, 4, 4096, 78, 3) + b"abc\0")
    talk.silent()
    talk.lives()


#= V2-032, V2-139
def properties_in_parts(talk):
    whole = properties((SBSIZ, 4096), (RBSIZ, 4096), (RSSIZ, 65536))
    xid = talk.send(CONNPROP, whole[:16], flags=MORE)
    talk.silent()
    talk.send(CONNPROP, whole[16:20], xid, flags=MORE)
    talk.send(CONNPROP, whole[20:], xid)
    talk.has_announced()
    talk.lives()


#= V2-122, V2-123
def properties_that_are_malformed(talk):
    talk.open()
    for body in (b"", words(1), words(1, SBSIZ, 3) + b"abc\0",
                 words(2, SBSIZ, 4, 9, SBSIZ, 4, 9), words(0, 1)):
        talk.refused(talk.send(CONNPROP, body), BAD_XDR)


#= VA-001, VA-004
def announces_its_version(talk):
    """Behind the message of RFC 8797."""
    data = talk.connection.private_data
    expect(data[:5] == PRIVATE_DATA[:5] and data[8:16] == announcement(2), data.hex())


#= VA-005, VA-006, VA-010
def announcements_of_all_kinds(talk):
    """A client may open with either version, independently of its announcement. Without an announcement of
    version 2, the server has Receives of the length of version 1."""
    longest = talk.open().announced[RBSIZ]
    for private_data, most in (
            (b"", 4096), (PRIVATE_DATA, 4096), (bytes(range(50)), 4096),
            (PRIVATE_DATA + announcement(0), 4096), (PRIVATE_DATA + announcement(1), 4096),
            (PRIVATE_DATA + announcement(3), longest), (announcement(2), longest),
            (announcement(2) + PRIVATE_DATA, longest),
            (bytes(13) + announcement(2) + bytes(range(30)), longest),
            (PRIVATE_DATA + announcement(2)[:5], 4096), (PRIVATE_DATA + announcement(2, 2), 4096),
            (PRIVATE_DATA + announcement(2)[:6] + b"\xff\xff", longest)):
        other = Talk(talk.caller, private_data=private_data).open()
        expect(other.announced[RBSIZ] == most, private_data.hex(), other.announced)
        other.lives()
        talk.caller.connect(private_data=private_data).lives()


# --- Headers ----------------------------------------------------------------------------------


#= V2-064
def another_version(talk):
    talk.open()
    xid = talk.caller.next_xid()
    talk.raw(words(xid, 1, 32, MSG) + NO_LISTS + rpc()(xid))
    message = talk.hear()
    expect(message.message[12:] == words(ERROR, 1, 1, 2), message)
    # The server has not counted it.
    talk.balance += 1
    talk.lives()


#= V2-011, V2-145
def other_types(talk):
    talk.open()
    for kind in (2, 3, 6, 0xFFFFFFFF):
        talk.refused(talk.send(kind, words(0) + NO_LISTS + words(0)), INVAL_HTYPE)


#= V2-031, V2-034, V2-035
def other_flags(talk):
    talk.open()
    piece = talk.connection.piece()
    for kind, flags, body in ((MSG, 4, words(0) + NO_LISTS), (NOMSG, MORE, words(0) + NO_LISTS),
                              (MSG, 0x80000000, b""), (CONNPROP, 8, words(0)),
                              (MSG, MORE, words(0) + lists_of((), [[piece]]) + words(1))):
        talk.refused(talk.send(kind, body, flags=flags), INVAL_FLAG)
    # The type comes first.
    talk.refused(talk.send(7, b"", flags=MORE), INVAL_HTYPE)


#= V2-147
def cut_headers(talk):
    talk.open()
    piece = talk.connection.piece()
    whole = words(0) + lists_of([(40, piece)], [[piece]], [piece, piece])
    for length in range(0, len(whole), 4):
        talk.refused(talk.send(MSG, whole[:length]), BAD_XDR)


#= V2-026
def a_direction_that_is_wrong(talk):
    talk.open()
    talk.refused(talk.ask(lambda xid: words(xid, 1, 0, 0, 0, 0)), INVAL_FLAG)


# --- Messages in parts ------------------------------------------------------------------------


#= V2-032, V2-041
def a_call_in_parts(talk):
    talk.open()
    for cuts in ((4,), (8, 12), (4, 8, 12, 16, 20, 36)):
        xid = talk.caller.next_xid()
        message = compound(PUTROOTFH, GETFH)(xid)
        for start, end in zip((0, *cuts), cuts):
            talk.part(message[start:end], xid, flags=MORE)
        talk.part(message[cuts[-1]:], xid)
        talk.good(xid)


#= V2-042
def a_call_in_parts_with_a_chunk(talk):
    talk.open()
    xid = talk.caller.next_xid()
    message = compound(PUTROOTFH, GETFH)(xid)
    at = len(message) - 8
    piece = talk.connection.piece(data=message[at:at + 4])
    talk.part(message[:20], xid, flags=MORE)
    talk.part(message[20:at] + message[at + 4:], xid, lists_of([(at, piece)]))
    talk.good(xid)


#= V2-035, V2-036
def parts_with_a_handle_and_an_empty_end(talk):
    """The header is copied into each part, and the last one has nothing else."""
    talk.open()
    xid = talk.caller.next_xid()
    message = compound(PUTROOTFH, GETFH)(xid)
    for start, end in (0, 24), (24, len(message)):
        talk.send(MSG, words(5) + NO_LISTS + message[start:end], xid, flags=MORE)
    talk.send(MSG, words(5) + NO_LISTS, xid)
    talk.good(xid)
    # Elsewhere there is something in each part.
    xid = talk.caller.next_xid()
    talk.part(rpc()(xid)[:8], xid, flags=MORE)
    talk.refused(talk.part(b"", xid, flags=MORE), BAD_XDR)


def pad_behind_headers(talk):
    """Zeros behind a message that says how long it is."""
    talk.open()
    talk.send(NOMSG, words(0) + NO_LISTS + bytes(4), 0)
    talk.send(CONNPROP, words(1, RBSIZ, 4, 4096) + bytes(8))
    talk.lives()
    for body in words(0) + NO_LISTS + bytes(3) + b"x", words(0) + NO_LISTS + words(1):
        talk.refused(talk.send(NOMSG, body), BAD_XDR)


#= V2-033
def parts_of_two_calls(talk):
    talk.open()
    first, second = talk.caller.next_xid(), talk.caller.next_xid()
    talk.part(rpc()(first)[:8], first, flags=MORE)
    talk.part(rpc()(second), second)
    errors = [talk.hear(), talk.hear()]
    expect({error.xid for error in errors} == {first, second}, *errors)
    expect(all(error.body == words(INVAL_FLAG) for error in errors), *errors)
    talk.lives()


#= V2-037, V2-162
def parts_without_end(talk):
    talk.open()
    xid = talk.caller.next_xid()
    talk.part(rpc()(xid), xid, flags=MORE)
    refusal = None
    for _ in range(2000):
        while not talk.balance and not refusal:
            refusal = talk.hear(for_credit=True)
        if refusal:
            break
        talk.part(bytes(4060), xid, flags=MORE)
    expect(refusal and refusal.xid == xid and refusal.body == words(SYSTEM), refusal)
    if not talk.balance:
        # An error message gives no credit, but something that follows it does.
        talk.hear(for_credit=True)
    talk.part(bytes(4), xid)
    talk.silent()
    talk.lives()


def begins_a_long_call(other):
    """Sends all but the last part of one, as far as the server takes it; the XID."""
    part = bytes(other.announced[RBSIZ] - 36)
    xid = other.caller.next_xid()
    other.part(rpc()(xid), xid, flags=MORE)
    for _ in range((800 << 10) // len(part)):
        while not other.balance:
            refusal = other.hear(for_credit=True)
            if refusal:
                expect(refusal.body == words(SYSTEM), refusal)
                return None
        other.part(part, xid, flags=MORE)
    return xid


def unfinished(talk, connections, most):
    """The number of Calls in parts that the server keeps until it refuses memory for more bytes than MOST."""
    begun = time.monotonic()
    last = None
    while len(connections) * (700 << 10) <= most:
        if time.monotonic() - begun > PATIENCE - 5:
            raise Skip("this machine sends too slowly: the first Calls are given up before")
        other = Talk(talk.caller).open((SBSIZ, 65536))
        connections.append(other.connection)
        # nfsd ends connections that have asked for no file when there are many.
        other.good(other.ask(compound(PUTROOTFH, GETSIZE)))
        # The server has decided about the previous message by now.
        refusal = last and last.hear(0)
        if refusal:
            expect(refusal.body == words(SYSTEM), refusal)
        if refusal or not begins_a_long_call(other):
            return len(connections)
        last = other
    raise Wrong(f"the server keeps {len(connections)} long Calls, and would keep more")


#= V2-037
def parts_of_more_calls_than_there_is_memory_for(talk):
    """All clients together have a part of the server's memory for them, and have it again later."""
    said = talk.caller.on_server("sed", "-n", "s/^MemTotal: *//p", "/proc/meminfo")
    total = int(said.split()[0]) << 10
    counts = []
    for _ in range(2):
        connections = []
        try:
            counts.append(unfinished(talk, connections, total // 16))
        finally:
            for connection in connections:
                connection.close()
        talk.lives()
        time.sleep(2)
    expect(counts[1] > counts[0] * 3 // 4, "there was room for", counts[0], "Calls, and later for", counts[1])


#= V2-040, V2-100, V2-127
def a_reply_in_parts(talk):
    talk.open()
    stream, parts = talk.parts_of(talk.ask(a_file()))
    expect(CONTENT in stream and parts == 3, parts, "parts")
    talk.lives()


# --- Chunks -----------------------------------------------------------------------------------


#= V2-098
def a_reply_chunk(talk):
    talk.open()
    pieces = [talk.connection.piece(0, 100), talk.connection.piece(256, 12000)]
    # A Reply that fits a message need not use the chunk.
    message = talk.replied(talk.ask(lists=lists_of(reply=pieces)))
    expect(message.body[4:16] == NO_LISTS, message)
    talk.replied(talk.ask(a_file(), lists_of(reply=pieces)), NOMSG)
    expect(CONTENT in talk.connection.got(*pieces), "not the file")


#= V2-101
def a_reply_chunk_that_is_too_small(talk):
    """There are parts, too."""
    talk.open()
    xid = talk.ask(a_file(), lists_of(reply=[talk.connection.piece(0, 100)]))
    stream, _ = talk.parts_of(xid)
    expect(CONTENT in stream, "not the file")


#= V2-097
def a_long_call_that_need_not_be_one(talk):
    talk.open()
    xid = talk.caller.next_xid()
    call = rpc()(xid)
    lists = lists_of([(0, talk.connection.piece(data=call))])
    talk.send(NOMSG, words(0) + lists, xid)
    talk.replied(xid)
    talk.lives()


#= V2-084, V2-085, V2-089
#= V2-186
def a_write_chunk_with_room_to_spare(talk):
    """The chunk is filled from its first Segment on; the memory behind the result does not change."""
    talk.open()
    memory = talk.connection
    for length in (1, 2, 699, 700, 999, 5001):
        pieces = [memory.piece(at, data=b"\xaa" * size)
                  for at, size in ((0, 700), (1024, 4096), (8192, 4096))]
        message = talk.replied(talk.ask(reads((0, length)), lists_of((), [pieces])))
        left, filled = length, []
        for piece in pieces:
            filled.append(Segment(piece.handle, min(left, piece.length), piece.offset))
            left -= filled[-1].length
        lists = lists_of((), [filled])
        expect(message.body[:4 + len(lists)] == words(0) + lists, "other lists:", message)
        good(message.body[4 + len(lists):])
        expect(memory.got(*filled) == CONTENT[:length], "other data")
        for piece, part in zip(pieces, filled):
            behind = memory.got(piece)[part.length:]
            expect(behind == b"\xaa" * len(behind), "bytes behind the data")


def written(talk, data):
    """Returns whether these are the first bytes of the file."""
    where = talk.connection.piece(1 << 16, len(data))
    talk.replied(talk.ask(reads((0, len(data)), name="written"), lists_of((), [[where]])))
    expect(talk.connection.got(where) == data, "other data was written")


def write(talk, data, *behind):
    """WRITE from a Read chunk, without pad."""
    call = writes(len(data), *behind)
    position = len(call(0)) - sum(map(len, behind))
    talk.good(talk.ask(call, lists_of([(position, talk.connection.piece(data=data))])))


#= V2-091
def data_without_pad(talk):
    talk.open()
    for length in (1, 2, 3, 999, 5001):
        for behind in ((), (GETSIZE,)):
            data = random.randbytes(length)
            write(talk, data, *behind)
            written(talk, data)


#= V2-148
def a_bad_header_has_no_other_effect(talk):
    talk.open()
    write(talk, b"as it was")
    xid = talk.caller.next_xid()
    talk.part(writes(4, data=b"else")(xid), xid, words(0, 2, 0))
    talk.refused(xid, BAD_XDR)
    written(talk, b"as it was")


#= V2-149
def too_many_read_chunks(talk):
    talk.open()
    piece = talk.connection.piece()
    reads_in = [(40 + 8 * number, piece) for number in range(33)]
    talk.refused(talk.ask(rpc(arguments=bytes(400)), lists_of(reads_in)), READ_CHUNKS, 32)


#= V2-153
def too_many_write_chunks(talk):
    talk.open()
    chunks = [[talk.connection.piece()] for _ in range(33)]
    talk.refused(talk.ask(lists=lists_of((), chunks)), WRITE_CHUNKS, 32)


#= V2-071, V2-185
def more_than_any_call_has(talk):
    talk.open()
    call = writes(64 << 20)
    piece = talk.connection.piece()
    for segments in (1, 8):
        large = Segment(piece.handle, (64 << 20) // segments, piece.offset)
        lists = lists_of([(len(call(0)), large)] * segments)
        talk.refused(talk.ask(call, lists), SYSTEM)


#= V2-053
def refused_calls_hold_no_receive(talk):
    """The server posts the Receive of a refused Call again, and grants it."""
    talk.open()
    call = writes(64 << 20)
    piece = talk.connection.piece()
    lists = lists_of([(len(call(0)), Segment(piece.handle, 64 << 20, piece.offset))])
    for _ in range(200):
        # An error message has no credits: they come by a grant.
        expect(talk.balance or talk.hear(for_credit=True) is None, "a message instead of a grant")
        talk.error(talk.ask(call, lists), SYSTEM)
    talk.lives()


#= V2-111, V2-114, V2-115
def a_handle_that_no_segment_has(talk):
    """It is not invalidated, for then the device would end the connection."""
    talk.open()
    xid = talk.caller.next_xid()
    foreign = talk.connection.foreign().handle
    for lists in (NO_LISTS, lists_of((), [[talk.connection.piece()]])):
        talk.send(MSG, words(foreign) + lists + rpc()(xid), xid)
        talk.replied(xid)
        talk.lives()


#= V2-093, V2-103
def a_write_chunk_that_is_too_small(talk):
    """It stays unused, and the result goes with the rest of the Reply: in parts, or in a chunk."""
    talk.open()
    memory = talk.connection
    small = memory.piece(0, data=b"\xaa" * 100)
    unused = lists_of((), [[Segment(small.handle, 0, small.offset)]])
    xid = talk.ask(a_file(), lists_of((), [[small]]))
    stream = b""
    while True:
        message = talk.replied(xid)
        if not message.flags & MORE:
            break
        stream += message.payload
    expect(message.body[:4 + len(unused)] == words(0) + unused, "other lists:", message)
    expect(CONTENT in stream + message.body[4 + len(unused):], "not the file")
    expect(memory.got(small) == b"\xaa" * 100, "the chunk was written to")
    large = memory.piece(256, 12000)
    message = talk.replied(talk.ask(a_file(), lists_of((), [[small]], [large])), NOMSG)
    expect(CONTENT in memory.got(large), "not the file")


#= V2-131
def as_many_segments_as_are_announced(talk):
    """Or as a message has room for, where that is fewer."""
    talk.open()
    room = (talk.announced[RBSIZ] - len(words(0, 0, 0, 0, 0, 0) + lists_of(reply=[]) + rpc()(0))) // 16
    for count in (16, min(talk.announced[RCSIZ], room)):
        expect(count >= 16, count, "Segments are all that it takes")
        message = talk.replied(talk.ask(lists=lists_of(reply=[Segment(0, 0, 0)] * count)))
        expect(message.body[4:16] == NO_LISTS, message)
    talk.lives()


# --- Credits ----------------------------------------------------------------------------------


#= V2-044, V2-047
def a_credit_for_each_message(talk):
    talk.open()
    for _ in range(20):
        xids = {talk.ask() for _ in range(min(talk.balance, 30))}
        expect(xids, "no credits")
        expect({talk.hear().xid for _ in xids} == xids, "other Replies")
    expect(talk.balance >= talk.ceiling // 2, talk.balance, "credits of", talk.ceiling)


#= V2-045
def a_grant_from_the_first_message(talk):
    """Before a Reply there is no more to send than the setting lets a client do."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    usual = talk.open().ceiling
    before = talk.caller.on_server("cat", setting).strip()
    talk.caller.on_server("sh", "-c", f"echo 4 >{setting}")
    try:
        ceiling = Talk(talk.caller).open().ceiling
        expect(ceiling == usual - 4, ceiling, "credits at a time, where there were", usual)
    finally:
        talk.caller.on_server("sh", "-c", f"echo {before} >{setting}")


#= V2-038, V2-047, V2-187
def replies_wait_for_credits(talk):
    talk.send(CONNPROP, properties((SBSIZ, 4096)), grant=1)
    talk.has_announced()
    for _ in range(2):
        # Each of these brings the credit for its Reply.
        xids = {talk.ask(grant=1) for _ in range(5)}
        expect({talk.hear().xid for _ in xids} == xids, "other Replies")


#= V2-049
def a_lower_ceiling(talk):
    """The server keeps to it at once, although it has had more credits before."""
    talk.open()
    talk.lives()
    keeps_to_a_lower_ceiling(talk, CEILING)


#= V2-049
def a_lower_ceiling_while_sends_have_no_completion(talk):
    """The server counts Sends in flight whose completions it has not asked for. With several Send buffers,
    it asks for a completion once in half a ceiling."""
    for lone_replies in range(1, 5):
        talk.open()
        xids = {talk.ask() for _ in range(8)}
        expect({talk.hear().xid for _ in xids} == xids, "other Replies")
        for _ in range(lone_replies):
            talk.lives()
        keeps_to_a_lower_ceiling(talk, CEILING)
        talk = Talk(talk.caller)


def keeps_to_a_lower_ceiling(talk, before):
    """Makes a Call with a ceiling and a grant of one message, whose Reply is three messages. The ceiling of
    BEFORE holds again afterwards."""
    xid, call = talk.caller.next_xid(), a_file()
    talk.raw(words(xid, 2, 1 << 16 | 1, MSG, 0, 0) + NO_LISTS + call(xid))
    # Of the three parts, each waits for the credit of the one before.
    for number in range(3):
        part = talk.replied(xid)
        expect(bool(part.flags & MORE) == (number < 2), part)
        talk.silent()
        talk.connection.send(words(0, 2, 1 << 16 | 1, NOMSG, 0, 0) + NO_LISTS)
    talk.given = 0
    talk.grant(before)
    talk.lives()


#= V2-052, D-10
def a_part_does_not_grant_the_receive_of_a_call(talk):
    """A Reply in parts waits for a credit, which a second Call brings. The part that the server sends then must
    not grant the Receive of that Call, which the server holds until its Reply."""
    talk.open()
    talk.lives()
    xid, call = talk.caller.next_xid(), a_file()
    one = 1 << 16 | 1
    talk.raw(words(xid, 2, one, MSG, 0, 0) + NO_LISTS + call(xid))
    expect(talk.replied(xid).granted == 0, "the Receive of the first Call was granted")
    talk.silent()
    other = talk.caller.next_xid()
    talk.raw(words(other, 2, one, MSG, 0, 0) + NO_LISTS + rpc()(other))
    expect(talk.replied(xid).granted == 0, "the Receive of the second Call was granted")
    for waiting_for in xid, other:
        talk.silent()
        talk.connection.send(words(0, 2, one, NOMSG, 0, 0) + NO_LISTS)
        expect(talk.replied(waiting_for).granted == 1, "the Reply has another grant")
    talk.given = 0
    talk.grant(CEILING)
    talk.lives()


#= V2-051, V2-053
def grants_without_payload(talk):
    talk.open()
    for _ in range(50):
        talk.grant(1)
    talk.lives()


# --- Calls of the server -----------------------------------------------------------------------


def lends(client):
    """A client that has a delegation for a file that another client wants to write."""
    client.caller.on_server("sh", "-c", "echo Y >/proc/fs/lockd/nlm_end_grace")
    name = Session(client, f"caller {client.caller.next_xid()}").lent()
    expect(not client.calls, "a Call of the server too early")
    client.caller.connect().ask(writes(4, data=b"data", name=name))


def called(client):
    """The Call that the server makes."""
    for _ in waiting(SECONDS):
        expect(client.hear(0) is None, "nothing was asked for")
        if client.calls:
            return client.calls[-1]
    raise Wrong("no Call of the server")


#= V2-132, V2-168
def calls_of_the_server(talk):
    talk.open((BRS, 1))
    lends(talk)
    call = called(talk)
    expect(call.body[:16] == words(0) + NO_LISTS, "chunks in a Call to a client that takes none")
    # As in version 1, behind its header.
    talk.part(recall_reply(call)[28:], call.xid, flags=RESPONSE)
    talk.lives()


def tries(talk, seconds):
    """The number of attempts of the server to call a client that cannot be called, in SECONDS."""
    counter = "/proc/sys/sunrpc/svc_rdma/rdma_stat_cb_unsent"
    before = int(talk.caller.on_server("cat", counter))
    lends(talk)
    expect(talk.hear(seconds) is None, "nothing was asked for")
    expect(not talk.calls, "a Call of the server")
    return int(talk.caller.on_server("cat", counter)) - before


# Again, but not without a pause.
#= V2-132, V2-170
def a_client_that_takes_no_calls(talk):
    talk.open((BRS, 0))
    count = tries(talk, 3)
    expect(1 <= count <= 3, "tried", count, "times in three seconds")
    talk.lives()


#= V2-038, V2-047, V2-172
def a_call_waits_for_a_credit(talk):
    talk.most = 1
    talk.open((BRS, 1))
    count = tries(talk, 1)
    expect(2 <= count <= 8, "tried", count, "times in a second")
    talk.grant(1)
    call = called(talk)
    talk.part(recall_reply(call)[28:], call.xid, flags=RESPONSE)
    talk.lives()


# --- Invalid messages -------------------------------------------------------------------------


#= V2-064
def versions_that_nobody_speaks(talk):
    talk.open()
    for version in (0, 3, 0xFFFFFFFF):
        talk.raw(words(talk.caller.next_xid(), version, 1 << 16 | 1, MSG, 0, 0) + NO_LISTS)
        message = talk.hear()
        expect(message.message[12:] == words(ERROR, 1, 1, 2), message)
        # As with another version.
        talk.balance += 1
    talk.lives()


#= V2-166
def errors_of_a_client(talk):
    """Errors without a message that they answer, with any contents."""
    talk.open()
    for flags in (0, RESPONSE, RESPONSE | MORE):
        for body in (*(words(code) for code in range(12)), words(1, 2, 2), words(1, 3, 2), words(7, 1),
                     words(8, 0, 0xFFFFFFFF), words(9, 1), words(99, 1), b"", words(1, 2)):
            if not talk.balance:
                talk.hear(for_credit=True)
            talk.raw(words(talk.caller.next_xid(), 2, 0, ERROR, flags) + body)
    talk.silent()
    talk.lives()


#= V2-029
def replies_to_nothing(talk):
    talk.open()
    for payload in (words(0, 1, 0, 0, 0, 0), words(0, 1), bytes(4000)):
        xid = talk.caller.next_xid()
        talk.part(words(xid) + payload[4:], xid, flags=RESPONSE)
    talk.silent()
    talk.lives()


#= V2-033
def parts_of_a_reply_that_never_ends(talk):
    """A client that mixes parts with a Call gets no error, because the Call might be a Reply that is
    missing."""
    talk.open()
    xid = talk.caller.next_xid()
    talk.part(words(xid, 1, 0, 0, 0, 0), xid, flags=RESPONSE | MORE)
    talk.silent()
    ends(talk, talk.ask)


def more_messages_than_credits(talk):
    """The messages find Receives, or wait for Receives. Waiting is the fault of the sender."""
    talk.open()
    talk.overruns = True
    talk.balance, waiting_for = 250, set()
    for _ in range(250):
        xid = talk.caller.next_xid()
        waiting_for.add(xid)
        talk.raw(words(xid, 2, CEILING << 16 | 1, MSG, 0, 0) + NO_LISTS + rpc()(xid))
        talk.given = CEILING
    for _ in waiting(SECONDS):
        for message in iter(lambda: talk.hear(QUIET), None):
            waiting_for.discard(message.xid)
            talk.given = CEILING
        if not waiting_for:
            break
        # Credits beyond the ceiling are lost.
        talk.grant(CEILING)
        talk.given = CEILING
    expect(not waiting_for, "no Reply to", len(waiting_for), "Calls")


#= V2-044, V2-047
def receives_that_hold_calls_are_not_granted(talk):
    """A client that uses all credits and grants none to the server finds a Receive for each message: its
    device would not repeat messages."""
    talk = Talk(talk.caller, rnr_retry=0)
    # The credit of the server is for its properties.
    talk.most = 1
    talk.open()
    waiting_for = set()
    for _ in range(20):
        for _ in range(talk.balance):
            xid = talk.caller.next_xid()
            waiting_for.add(xid)
            talk.raw(words(xid, 2, CEILING << 16, MSG, 0, 0) + NO_LISTS + rpc()(xid))
        message = talk.hear(QUIET, for_credit=True)
        expect(message is None, "a Reply without a credit:", message)
        if not talk.balance:
            break
    expect(waiting_for, "no Call waits")
    while waiting_for:
        talk.grant(CEILING)
        talk.given = CEILING
        message = talk.hear()
        expect(message, "no Reply to", len(waiting_for), "Calls")
        waiting_for.discard(message.xid)


#= V2-045, V2-052
def grants_of_nothing_and_of_everything(talk):
    talk.open()
    for credit in (0, 1, 0xFFFF, 0xFFFF0000, 0xFFFFFFFF, 1 << 16 | 0xFFFF):
        xid = talk.caller.next_xid()
        talk.raw(words(xid, 2, credit, MSG, 0, 0) + NO_LISTS + rpc()(xid))
        talk.given = CEILING
        talk.replied(xid)


def leaves_in_the_middle(talk):
    """Of a Call, of properties, of a Reply."""
    call = compound(PUTROOTFH, GETFH)(0)
    for begin in (lambda other: other.part(call[:20], 1, flags=MORE),
                  lambda other: other.send(CONNPROP, properties((SBSIZ, 4096))[:8], flags=MORE),
                  lambda other: other.part(words(1, 1, 0, 0), 1, flags=RESPONSE | MORE),
                  lambda other: other.ask(a_file(), grant=1),
                  lambda other: other.part(call[:20], 1, lists_of([(20, other.connection.piece())]))):
        for opened in (False, True):
            other = Talk(talk.caller)
            if opened:
                other.open()
            begin(other)
            other.connection.close()
    talk.lives()


def ends(talk, act):
    """The connection ends by this, for either side; with the next one all is well."""
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


#= V2-178
def handles_of_nobody(talk):
    """To be read from, and to be written to."""
    call = compound(PUTROOTFH, GETFH)
    at = len(call(0)) - 8
    for body in (lambda c: (lists_of([(at, c.foreign(4))]),
                            lambda xid: call(xid)[:at] + call(xid)[at + 4:]),
                 lambda c: (lists_of((), [[c.foreign(len(CONTENT))]]), a_file()),
                 lambda c: (lists_of(reply=[c.foreign(12000)]), a_file())):
        other = Talk(talk.caller).open()
        lists, what = body(other.connection)
        ends(other, lambda other=other, lists=lists, what=what: other.ask(what, lists))


def changed(source, talk):
    """A good message with a few bytes that are not."""
    xid, piece = talk.caller.next_xid(), talk.connection.piece
    call = source.choice((rpc(), a_file(), compound(PUTROOTFH, GETFH)))(xid)
    lists = lists_of(*source.choice((
        (), ((), [[piece(0, 4096)]]), ([(len(call), piece(0, 64))], (), [piece(4096, 65536)]))))
    kind, body = source.choice(((MSG, words(0) + lists + call),
                                (CONNPROP, properties((SBSIZ, 4096), (RBSIZ, 4096), (RCSIZ, 16)))))
    flags = source.choice((0, 0, MORE))
    message = bytearray(words(xid, 2, CEILING << 16 | 4, kind, flags) + body)
    for _ in range(source.randrange(1, 4)):
        message[source.randrange(4, min(len(message), 120))] = source.randrange(256)
    return bytes(message)


def mutations(talk):
    """The server continues after any outcome."""
    source = random.Random(4711)
    other = Talk(talk.caller)
    for number in range(40 if QUICK else 200):
        try:
            other.connection.send(changed(source, other))
            while other.next_message(0.005):
                pass
        except (Lost, Wrong, PyverbsError, struct.error):
            other = Talk(talk.caller)
        if number % 20 == 19:
            talk.lives()


# --- Endless messages -------------------------------------------------------------------------


#= V2-038, V2-048
def no_message_is_waited_for_for_ever(talk):
    """Nor is the rest of one, or a credit, although the client is never silent."""
    def grant_of_nothing(xid, kind):
        return words(xid, 2, CEILING << 16, kind, 0, 0) + NO_LISTS

    def waits(call, credits):
        client = Talk(talk.caller)
        client.send(CONNPROP, properties((SBSIZ, 4096)), grant=credits)
        client.silent()
        expect(client.announced, "the server has announced nothing")
        xid = talk.caller.next_xid()
        client.raw(grant_of_nothing(xid, MSG) + call(xid))
        return client

    # There is no credit for a Reply, or for the second part of one.
    clients = {"a Reply": waits(rpc(), 1), "a part": waits(a_file(), 2)}
    # The rest of a Call is missing.
    clients["a Call"] = Talk(talk.caller).open()
    xid = talk.caller.next_xid()
    clients["a Call"].part(rpc()(xid), xid, flags=MORE)
    begun = time.monotonic()
    for _ in waiting(PATIENCE + 40):
        for name, client in list(clients.items()):
            try:
                gone = client.connection.is_over()
                if not gone:
                    client.connection.send(grant_of_nothing(0, NOMSG))
            except (Lost, PyverbsError):
                gone = True
            if gone:
                lived = time.monotonic() - begun
                expect(lived > PATIENCE - 5, name, "was waited for", lived, "seconds only")
                del clients[name]
        if not clients:
            break
        time.sleep(1)
    expect(not clients, "the server still waits for", *clients)


def tests_of(module):
    """Its tests are the functions whose only parameter is `talk`."""
    return {name: value for name, value in vars(sys.modules[module]).items()
            if inspect.isfunction(value) and value.__module__ == module
            and list(inspect.signature(value).parameters) == ["talk"]}


# Takes long, and all of the memory for joined messages.
BY_NAME_ONLY = "parts_of_more_calls_than_there_is_memory_for"


def attempt(caller, test, talk):
    """Returns the mistakes. A test that cannot run raises Skip."""
    try:
        test(talk(caller))
        talk(caller).well()
    except (Lost, Wrong, PyverbsError, struct.error) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        caller.leave()
    return ""


def run(tests, usage, talk=Talk):
    """Runs the tests that the arguments name."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    server, port, *names = sys.argv[1:] + ["20049"][len(sys.argv) - 2:]
    caller = Caller(server, port)
    chosen = [name for name in tests
              if (any(name.startswith(beginning) for beginning in names) if names
                  else name != BY_NAME_ONLY)]
    if not chosen:
        sys.exit("no test begins with " + " or ".join(names))
    print(f"TAP version 13\n1..{len(chosen)}", flush=True)
    failed = 0
    for number, name in enumerate(chosen, 1):
        note = ""
        try:
            said = attempt(caller, tests[name], talk)
        except Skip as why:
            said, note = "", f" # SKIP {why}"
        failed += bool(said)
        print(f"{'not ' if said else ''}ok {number} {name.replace('_', ' ')}{note}", flush=True)
        if said:
            print(f"# {said}", flush=True)
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(run(tests_of(__name__), __doc__))
