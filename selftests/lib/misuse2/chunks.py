# SPDX-License-Identifier: GPL-2.0
"""Chunks, and data that moves by RDMA."""

import random

from wire import Segment, words

from misuse.base import CONTENT, expect
from misuse.client import lists_of
from misuse.nfs import GETSIZE, good, reads, rpc, writes

from .talk import (BAD_XDR, MORE, MSG, NOMSG, NO_LISTS, RBSIZ, RCSIZ, READ_CHUNKS, SYSTEM,
                   WRITE_CHUNKS, Talk, a_file)


#= V2-098
def a_reply_chunk(talk: Talk) -> None:
    talk.open()
    pieces = [talk.connection.piece(0, 100), talk.connection.piece(256, 12000)]
    # A Reply that fits a message need not use the chunk.
    message = talk.replied(talk.ask(lists=lists_of(reply=pieces)))
    expect(message.body[4:16] == NO_LISTS, message)
    talk.replied(talk.ask(a_file(), lists_of(reply=pieces)), NOMSG)
    expect(CONTENT in talk.connection.got(*pieces), "not the file")


#= V2-101
def a_reply_chunk_that_is_too_small(talk: Talk) -> None:
    """The server sends the Reply in parts."""
    talk.open()
    xid = talk.ask(a_file(), lists_of(reply=[talk.connection.piece(0, 100)]))
    stream, _ = talk.parts_of(xid)
    expect(CONTENT in stream, "not the file")


#= V2-097
def a_long_call_that_need_not_be_one(talk: Talk) -> None:
    talk.open()
    xid = talk.caller.next_xid()
    call = rpc()(xid)
    lists = lists_of([(0, talk.connection.piece(data=call))])
    talk.send(NOMSG, words(0) + lists, xid)
    talk.replied(xid)
    talk.lives()


#= V2-084, V2-085, V2-089
#= V2-186
def a_write_chunk_with_room_to_spare(talk: Talk) -> None:
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


def written(talk: Talk, data: bytes) -> None:
    """Returns whether these are the first bytes of the file."""
    where = talk.connection.piece(1 << 16, len(data))
    talk.replied(talk.ask(reads((0, len(data)), name="written"), lists_of((), [[where]])))
    expect(talk.connection.got(where) == data, "other data was written")


def write(talk: Talk, data: bytes, *behind: bytes) -> None:
    """Sends a WRITE with a Read chunk, without pad."""
    call = writes(len(data), *behind)
    position = len(call(0)) - sum(map(len, behind))
    talk.good(talk.ask(call, lists_of([(position, talk.connection.piece(data=data))])))


#= V2-091
def data_without_pad(talk: Talk) -> None:
    talk.open()
    for length in (1, 2, 3, 999, 5001):
        for behind in ((), (GETSIZE,)):
            data = random.randbytes(length)
            write(talk, data, *behind)
            written(talk, data)


#= V2-148
def a_bad_header_has_no_other_effect(talk: Talk) -> None:
    talk.open()
    write(talk, b"as it was")
    xid = talk.caller.next_xid()
    talk.part(writes(4, data=b"else")(xid), xid, words(0, 2, 0))
    talk.refused(xid, BAD_XDR)
    written(talk, b"as it was")


#= V2-149
def too_many_read_chunks(talk: Talk) -> None:
    talk.open()
    piece = talk.connection.piece()
    reads_in = [(40 + 8 * number, piece) for number in range(33)]
    talk.refused(talk.ask(rpc(arguments=bytes(400)), lists_of(reads_in)), READ_CHUNKS, 32)


#= V2-153
def too_many_write_chunks(talk: Talk) -> None:
    talk.open()
    chunks = [[talk.connection.piece()] for _ in range(33)]
    talk.refused(talk.ask(lists=lists_of((), chunks)), WRITE_CHUNKS, 32)


#= V2-071, V2-185
def more_than_any_call_has(talk: Talk) -> None:
    talk.open()
    call = writes(64 << 20)
    piece = talk.connection.piece()
    for segments in (1, 8):
        large = Segment(piece.handle, (64 << 20) // segments, piece.offset)
        lists = lists_of([(len(call(0)), large)] * segments)
        talk.refused(talk.ask(call, lists), SYSTEM)


#= V2-053
def refused_calls_hold_no_receive(talk: Talk) -> None:
    """The server posts the Receive of a refused Call again, and grants it."""
    talk.open()
    call = writes(64 << 20)
    piece = talk.connection.piece()
    lists = lists_of([(len(call(0)), Segment(piece.handle, 64 << 20, piece.offset))])
    for _ in range(200):
        # An error message grants no credits, so a grant follows.
        expect(talk.balance or talk.hear(for_credit=True) is None, "a message instead of a grant")
        talk.error(talk.ask(call, lists), SYSTEM)
    talk.lives()


#= V2-111, V2-114, V2-115
def a_handle_that_no_segment_has(talk: Talk) -> None:
    """The server does not invalidate a handle that no Segment has: the device would end the connection."""
    talk.open()
    xid = talk.caller.next_xid()
    foreign = talk.connection.foreign().handle
    for lists in (NO_LISTS, lists_of((), [[talk.connection.piece()]])):
        talk.send(MSG, words(foreign) + lists + rpc()(xid), xid)
        talk.replied(xid)
        talk.lives()


#= V2-093, V2-103
def a_write_chunk_that_is_too_small(talk: Talk) -> None:
    """A Write chunk that is too small stays unused. The result is in the Payload stream: in parts, or in a
    chunk."""
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
def as_many_segments_as_are_announced(talk: Talk) -> None:
    """The server accepts the announced number of Segments, or the number that fits a message."""
    talk.open()
    room = (talk.announced[RBSIZ] - len(words(0, 0, 0, 0, 0, 0) + lists_of(reply=[]) + rpc()(0))) // 16
    for count in (16, min(talk.announced[RCSIZ], room)):
        expect(count >= 16, count, "Segments are all that it takes")
        message = talk.replied(talk.ask(lists=lists_of(reply=[Segment(0, 0, 0)] * count)))
        expect(message.body[4:16] == NO_LISTS, message)
    talk.lives()
