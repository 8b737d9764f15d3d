# SPDX-License-Identifier: GPL-2.0
"""Calls with Read chunks, and Calls in memory."""

import random

from collections.abc import Iterable

from wire import RDMA_MSG, RDMA_NOMSG, Segment, opaque, words

from .base import CONTENT, MEMORY, PAGE, STOCK, case, expect
from .client import Arguments, Client, as_answer, lists_of
from .nfs import (GETATTR, GETFH, GETSIZE, PUTROOTFH, ROOT, WRITE, Rpc, accepted, compound,
                  file_handle, good, reads, rpc, writes)


def long_call(c: Client, call: Rpc, cuts: Iterable[int] = (), start: int = 0) -> int:
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
def a_call_in_memory(c: Client) -> None:
    for cuts in ((), (8,), (1, 2, 3), (8, 8, 9), (4, 8, 12, 16, 20, 24, 28, 32, 36)):
        c.replied(long_call(c, rpc(), cuts))


@case()
def a_call_in_as_many_segments_as_bytes(c: Client) -> None:
    expect(good(c.replied(long_call(c, compound(PUTROOTFH, GETFH), range(1, 64))).payload),
           "no Reply")


# Read chunks.

#= V1-057, NFS-044, V1-097
#= V1-107
@case()
def several_read_chunks(c: Client) -> None:
    """The server accepts Read chunks for items that are not DDP-eligible."""
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


#= V1-057, NFS-044
@case()
def a_read_chunk_in_the_header(c: Client) -> None:
    """A part of the RPC header, with the credential or a part of it, is in a Read chunk."""
    for position in range(8, 48, 4):
        for length in (4, 12, 32):
            xid = c.caller.next_xid()
            call = compound(PUTROOTFH, GETFH)(xid)
            piece = c.piece(0, data=call[position:position + length])
            c.send(words(xid, 1, 32, RDMA_MSG) + lists_of([(position, piece)]) + call[:position]
                   + call[position + length:])
            good(c.replied(xid).payload)


def write_by(c: Client, data: bytes, cuts: list[tuple[int, int]], behind: bytes = b"", start: int = 0,
             pad: bytes = b"") -> int:
    """Sends a WRITE with a Read chunk, which has a Segment for each range of DATA in CUTS."""
    call = writes(len(data), *([behind] if behind else []))
    position = len(call(0)) - len(behind)
    segments = [(position, c.piece(start + begin * 2, data=data[begin:end])) for begin, end in cuts]
    if pad:
        segments.append((position, c.piece(start + len(data) * 2, data=pad)))
    return c.ask(call, read=segments)


def written(c: Client, data: bytes) -> None:
    """Returns whether these are the first bytes of the file."""
    where = c.piece(MEMORY // 2, len(data))
    good(c.replies(reads((0, len(data)), name="written"), write=[[where]]).payload)
    expect(c.got(where) == data, "other data was written")


#= V1-061
@case()
def data_in_odd_segments(c: Client) -> None:
    """The Read chunk has no pad."""
    for length in (1, 2, 3, 999, 1000, 5001):
        data = random.randbytes(length)
        cuts = sorted({0, 1, 3, 500, length} & set(range(length + 1)))
        good(c.replied(write_by(c, data, list(zip(cuts, cuts[1:])))).payload)
        written(c, data)


#= V1-062
@case()
def data_with_pad(c: Client) -> None:
    """The Read chunk has a pad of arbitrary bytes, in the last Segment of the data or in a further
    Segment."""
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
def data_before_other_operations(c: Client) -> None:
    for length in (3, 4, 4096, 4097):
        data = random.randbytes(length)
        good(c.replied(write_by(c, data, [(0, length)], GETSIZE)).payload)
        written(c, data)


def followed(call: Rpc, data: bytes) -> Rpc:
    """Returns the Call with DATA behind it."""
    return lambda xid: call(xid) + data


@case(stock="gives no answer")
def data_between_inline_data(c: Client) -> None:
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
        good(c.replies(followed(call, inline), read=pieces).payload)
        written(c, data)


@case(stock="gives no answer")
def long_calls_with_data(c: Client) -> None:
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
def empty_read_chunks(c: Client) -> None:
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
def more_than_any_call_has(c: Client) -> None:
    """The sum of some of the lengths is small in 32 bits."""
    for lengths in ((0xFFFFFFFF,), (0xFFFFFFFF, 0xFFFFFFFF, 2), (1024, 0xFFFFFFFF, 1), (8 << 20,),
                    (1 << 30,) * 4, (1 << 20,) * 100):
        for position, kind in ((40, RDMA_MSG), (0, RDMA_NOMSG)):
            c.refuses(kind=kind, read=[(position, c.piece(0, length)) for length in lengths])


#= NFS-045
@case(stock="reads a page more, and sends no answer")
def as_much_as_a_call_has(c: Client) -> None:
    """A Call of the largest length. NULL ignores its arguments."""
    most = c.caller.longest_call()
    memory = c.region(most + 2 * PAGE)
    for more in (0, 4, PAGE, 2 * PAGE):
        # Read at Position Zero; behind the inline part; and with 1000 bytes inline behind it.
        call = rpc()(0)
        ways: list[tuple[int, list[tuple[int, int]], Rpc | None]] = [
            (RDMA_NOMSG, [(0, len(call)), (0, most - len(call))], None),
            (RDMA_MSG, [(40, most - 40)], rpc()),
            (RDMA_MSG, [(40, most - 1040)], followed(rpc(), bytes(1000))),
            (RDMA_MSG, [(40, most - 2040), (most - 1000, 500)], followed(rpc(), bytes(1500)))]
        for kind, ranges, inline in ways:
            xid = c.caller.next_xid()
            memory.write(rpc()(xid), len(call))
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + more)
            pieces = [(position, Segment(memory.rkey, length, memory.buf)) for position, length in ranges]
            c.send(words(xid, 1, 32, kind) + lists_of(pieces) + (inline(xid) if inline else b""))
            if more:
                c.refused(xid)
            else:
                c.replied(xid)


@case()
def as_much_data_as_nfsd_moves(c: Client) -> None:
    """A WRITE and a READ of the largest payload, each with one Segment."""
    length = c.caller.largest_payload()
    memory = c.region(length)
    whole = Segment(memory.rkey, length, memory.buf)
    data = random.randbytes(length)
    memory.write(data, length)
    call = writes(length)
    good(c.replies(call, read=[(len(call(0)), whole)]).payload)
    memory.write(bytes(length), length)
    good(c.replies(reads((0, length), name="written"), write=[[whole]]).payload)
    expect(memory.read(length, 0) == data, "other data was written or read")


@case()
def as_many_chunks_as_are_taken(c: Client) -> None:
    def many(count: int) -> Arguments:
        return {"call": rpc(), "read": [(40 + 4 * n, c.piece(n * 4)) for n in range(count)]}
    c.replies(**many(32))
    if not STOCK:
        c.refuses(**many(33))
        c.refuses(reads((0, 1)), write=[[c.piece()]] * 33)


@case()
def as_many_segments_to_read_as_a_message_has_room_for(c: Client) -> None:
    """The server may read such a Call in rounds, and then the next."""
    cuts = [(n * 10, n * 10 + 10) for n in range(149)]
    for _ in range(3):
        data = random.randbytes(1640)
        good(c.replied(write_by(c, data, cuts + [(1490, 1640)])).payload)
        written(c, data)


@case()
def many_calls_in_as_many_segments(c: Client) -> None:
    """The Calls together need more registrations than a server has for one connection."""
    data = random.randbytes(1500)
    call = writes(len(data))
    pieces = [(len(call(0)), c.piece(n * 20, data=data[n * 10:n * 10 + 10])) for n in range(150)]
    messages = [c.message(call, read=pieces) for _ in range(16)]
    c.send_at_once([message for _, message in messages])
    waited = {xid for xid, _ in messages}
    while waited:
        answer = expect(c.answer(), "no Reply to", len(waited), "Calls")
        expect(answer.error is None, as_answer(answer))
        good(answer.payload)
        waited.remove(answer.xid)
    written(c, data)


@case()
def as_many_segments_to_write_as_a_message_has_room_for(c: Client) -> None:
    chunk = [c.piece(n * 64, 17) for n in range(230)]
    answer = c.replies(reads((0, 3900)), write=[chunk])
    expect(answer.lengths() == [[17] * 229 + [7]], answer.lengths())
    expect(c.got(*answer.writes[0]) == CONTENT[:3900], "other data")
    answer = c.replies(reads((0, 3000)), kind=RDMA_NOMSG, reply=chunk)
    expect(CONTENT[:3000] in c.got(*answer.reply_chunk()), "other data")


#= V1-052, V1-096
@case()
def fewer_data_than_the_arguments_say(c: Client) -> None:
    """A Read chunk whose length differs from the count of the arguments."""
    handle = file_handle(c, "written")
    for length in (4, 500, 996):
        call = rpc(WRITE, opaque(handle) + words(0, 0, 1000, 2, 1000), 3, ROOT)
        answer = c.replies(call, read=[(len(call(0)), c.piece(0, length))])
        expect(accepted(answer.payload)[1] == 4, "no GARBAGE_ARGS:", answer.payload[:80].hex())


#= V1-096
@case()
def arguments_that_do_not_decode(c: Client) -> None:
    call = rpc(GETATTR, words(64), 3, ROOT)
    expect(accepted(c.replies(call).payload)[1] == 4, "no GARBAGE_ARGS")
    answer = c.replies(call, read=[(len(call(0)), c.piece(0, 20))])
    expect(accepted(answer.payload)[1] == 4, "no GARBAGE_ARGS")
