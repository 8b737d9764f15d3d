# SPDX-License-Identifier: GPL-2.0
"""Replies with Write chunks and in memory."""

import dataclasses

from wire import INLINE, RDMA_NOMSG, VERSION, Segment, opaque, words

from .base import CONTENT, LARGE, PAGE, STOCK, TARGET, case, expect
from .calls import written
from .client import Client, lists_of
from .nfs import (GETATTR, GETFH, GETSIZE, PUTROOTFH, READ, READLINK, ROOT, compound, file_handle,
                  good, path, read_file, reads, rpc, writes)


@case(stock="refuses a chunk with an empty Segment")
def a_reply_chunk(c: Client) -> None:
    pieces = [c.piece(0, 10), Segment(0, 0, 0), c.piece(256, 500)]
    answer = c.replies(compound(PUTROOTFH, GETFH), kind=RDMA_NOMSG, reply=pieces)
    lengths = [piece.length for piece in answer.reply_chunk()]
    expect(not answer.writes and not answer.payload, answer.message[:80].hex())
    expect(lengths[:2] == [10, 0] and 0 < lengths[2] < 500, lengths)
    reply = c.got(*answer.reply_chunk())
    expect(reply[:8] == words(answer.xid, 1), reply.hex())
    good(reply)


#= V1-100, NFS-003, NFS-004
#= NFS-008
@case()
def a_reply_chunk_to_the_byte(c: Client) -> None:
    call = reads((0, 5000))
    answer = c.replies(call, kind=RDMA_NOMSG, reply=[c.piece(0, 8192)])
    length = answer.reply_chunk()[0].length
    expect(length > 5000, length)
    for offered in (length, length - 1, length - 4, 4, 0):
        c.memory.write(bytes([0xAA]) * 8192, 8192)
        chunk = [c.piece(0, offered // 2), c.piece(4096, offered - offered // 2)]
        if offered < length:
            c.refuses(call, reply=chunk)
            continue
        answer = c.replies(call, kind=RDMA_NOMSG, reply=chunk)
        expect(CONTENT[:5000] in c.got(*answer.reply_chunk()), "other data")
        expect(c.memory.read(4, 4096 + offered - offered // 2) == bytes([0xAA]) * 4, "too much")


@case()
def a_long_reply_in_pieces(c: Client) -> None:
    """The data of a READ begin and end within a page, between other results and a pad."""
    start, length = PAGE - 1, 40 * PAGE + 2
    call = rpc(READ, opaque(file_handle(c, "large")) + words(0, start, length), 3, ROOT)
    answer = c.replies(call, kind=RDMA_NOMSG, reply=[c.piece(0, length + 1024)])
    expect(LARGE[start:start + length] in c.got(*answer.reply_chunk()), "other data")


@case(stock="executes a Call that it refuses")
def a_reply_chunk_of_no_segments(c: Client) -> None:
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
def a_reply_without_room(c: Client) -> None:
    """The Reply fits neither inline nor the Reply chunk, of a single Segment and of several."""
    for ranges in (((0, 8000),), ((0, 4052), (0, 4052)), ((0, 2000), (0, 2000), (0, 2000))):
        c.refuses(reads(*ranges))
        c.refuses(reads(*ranges), reply=[c.piece(0, 64)])


@case(stock="sends the content of its buffer")
def an_inline_reply_to_the_byte(c: Client) -> None:
    around = len(c.replies(reads((0, 4))).message) - 4
    expect(len(c.replies(reads((0, INLINE - around))).message) == INLINE, "another length")
    c.refuses(reads((0, INLINE - around + 4)))


#= V1-073, V1-071, NFS-036
#= CM-013
@case(stock="lets the operation fail")
def a_write_chunk_to_the_byte(c: Client) -> None:
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
def write_chunks_without_a_result(c: Client) -> None:
    piece = c.piece(0, 64)
    answer = c.replies(compound(PUTROOTFH), write=[[piece], [], [piece, piece]])
    unused = dataclasses.replace(piece, length=0)
    expect(answer.writes == [[unused], [], [unused, unused]], answer.writes)
    # NULL has no result that could be moved.
    c.refuses(write=[[piece]])


@case()
def unused_chunks_of_both_kinds(c: Client) -> None:
    piece = c.piece(0, 4096)
    answer = c.replies(compound(PUTROOTFH, GETSIZE), kind=RDMA_NOMSG, write=[[piece]],
                       reply=[c.piece(8192, 4096)])
    expect(answer.lengths() == [[0]], answer.lengths())
    good(c.got(*answer.reply_chunk()))
    # A Call may use both chunks.
    answer = c.replies(reads((1, 3000)), kind=RDMA_NOMSG, write=[[piece]],
                       reply=[c.piece(8192, 4096)])
    expect(answer.lengths() == [[3000]], answer.lengths())
    expect(c.got(*answer.writes[0]) == CONTENT[1:3001], "other data")
    good(c.got(*answer.reply_chunk()))


# nfsd reads the result of a second READ into a page that the Reply does not have, unless the results in
# between end at the end of a page (nfsd4_encode_readv). With TCP, too.
BETWEEN = 16 + 28


def aligned(count: int, length: int = PAGE - BETWEEN) -> list[tuple[int, int]]:
    return [(7 * number, length) for number in range(count)]


#= V1-071, V1-074, V1-135
#= NFS-035, NFS-036, NFS-039
@case()
def results_in_several_write_chunks(c: Client) -> None:
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
def results_in_many_write_chunks(c: Client) -> None:
    """The number of operations of a COMPOUND; results without a chunk stay in the Reply."""
    for chunks, results in ((12, 12), (9, 12)):
        ranges = aligned(results, PAGE - 16)
        offered = [[c.piece(number * 8192, PAGE)] for number in range(chunks)]
        reply = [c.piece(1 << 20, 1 << 18)]
        answer = c.replies(reads(*ranges), kind=RDMA_NOMSG, write=offered, reply=reply)
        expect(answer.lengths() == [[PAGE - 16]] * chunks, answer.lengths())
        inline = c.got(*answer.reply_chunk())
        for number, (start, length) in enumerate(ranges):
            data = CONTENT[start:start + length]
            if number < chunks:
                expect(c.got(*answer.writes[number]) == data, "data of READ", number)
            else:
                expect(data in inline, "data of READ", number)


#= NFS-037
@case(stock="puts the second result where the first belongs")
def an_empty_write_chunk_first(c: Client) -> None:
    """The first result is wanted inline, the second in memory."""
    where, reply = c.piece(0, PAGE), [c.piece(65536, 65536)]
    answer = c.replies(reads(*aligned(2, PAGE - 16)), kind=RDMA_NOMSG, write=[[], [where]],
                       reply=reply)
    expect(answer.lengths() == [[], [PAGE - 16]], answer.lengths())
    expect(c.got(*answer.writes[1]) == CONTENT[7:7 + PAGE - 16], "data of the second READ")
    expect(CONTENT[:PAGE - 16] in c.got(*answer.reply_chunk()), "data of the first READ")


#= NFS-012, NFS-023
@case()
def a_link_in_a_write_chunk(c: Client) -> None:
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
def version_3_results(c: Client) -> None:
    handle = opaque(file_handle(c, "content"))
    where = c.piece(0, 5000)
    answer = c.replies(rpc(READ, handle + words(0, 3, 5000), 3, ROOT), write=[[where]])
    expect(answer.lengths() == [[5000]] and c.got(where) == CONTENT[3:5003], answer.lengths())
    # GETATTR has nothing eligible.
    if not STOCK:
        c.refuses(rpc(GETATTR, handle, 3, ROOT), write=[[where]])
