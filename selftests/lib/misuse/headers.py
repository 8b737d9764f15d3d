# SPDX-License-Identifier: GPL-2.0
"""Headers that a server has to refuse, drop or answer."""

import random
import time

from wire import (RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG, Lost, Segment,
                  announcement, words)

from .base import CONTENT, ERR_VERS, PRIVATE_DATA, Test, Wrong, case, expect
from .calls import write_by, written
from .client import Client, Options, as_answer, lists_of
from .nfs import reads, rpc


#= V1-033, V1-034, CM-002
@case()
def null(c: Client) -> None:
    c.lives()
    expect(c.private_data[:5] == PRIVATE_DATA[:5], "private data", c.private_data.hex())


def thresholds(private_data: bytes, inline: int) -> Test:
    """Returns a test of the longest message of the server, whose length PRIVATE_DATA limits to INLINE
    bytes."""
    def check(c: Client) -> None:
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
def one_read_at_a_time(c: Client) -> None:
    """The client's device serves one RDMA Read at a time."""
    other = c.caller.connect(resources=1)
    data = random.randbytes(3000)
    xids = [write_by(other, data, [(0, 1), (1, 3), (3, 500), (500, 3000)]) for _ in range(4)]
    expect({expect(other.answer(), "no Reply").xid for _ in xids} == set(xids), "other Replies")
    written(other, data)
    # Without RDMA Reads, the server could not serve NFS.
    try:
        c.caller.connect(resources=0)
    except Lost:
        return
    raise Wrong("accepted without RDMA Reads")


@case()
def refused_again_and_again(c: Client) -> None:
    """The log has the reason, but at a limited rate."""
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
def other_versions(c: Client) -> None:
    for version in (0, 2, 3, 0xFFFFFFFF):
        xid = c.ask(version=version)
        answer = expect(c.answer(), "no error message")
        expect((answer.xid, answer.version, answer.error) == (xid, version, ERR_VERS),
               as_answer(answer))
        expect(answer.versions == (1, 1), answer.versions)
    c.lives()


#= V1-095
@case(stock="drops RDMA_DONE")
def other_types(c: Client) -> None:
    for kind in (RDMA_MSGP, 5, 9, 0xFFFFFFFF, RDMA_DONE):
        c.refuses(kind=kind)


#= V1-099
@case()
def errors_of_the_client(c: Client) -> None:
    for body in (b"", words(1), words(1, 1, 1), words(1, 2, 1), words(2), words(7)):
        c.send(words(c.caller.next_xid(), 1, 1, RDMA_ERROR) + body)
        c.dropped()


#= V1-110
@case(stock="answers by an error message")
def short_messages(c: Client) -> None:
    for length in (0, 1, 4, 8, 12, 15):
        c.send(bytes(length))
    c.dropped()


#= V1-092, V1-093
@case()
def cut_headers(c: Client) -> None:
    piece = c.piece()
    _, whole = c.message(None, read=[(40, piece)], write=[[piece]], reply=[piece, piece])
    for length in range(16, len(whole), 4):
        xid = c.caller.next_xid()
        c.send(words(xid) + whole[4:length])
        c.refused(xid)


#= V1-092
@case()
def presence_words(c: Client) -> None:
    for lists in (words(2, 0, 0), words(0, 2, 0), words(0, 0, 2), words(0, 0, 0xFFFFFFFF)):
        c.refuses(lists=lists)


#= V1-111
@case()
def counts_beyond_the_message(c: Client) -> None:
    """The product of some of the counts with the size of a Segment is small in 32 bits."""
    for count in (5, 1000, 0x08000000, 0x10000000, 0x10000001, 0xFFFFFFFF):
        for lists in (words(0, 1, count), words(0, 0, 1, count)):
            c.refuses(lists=lists)


#= V1-111
@case(stock="uses such Segments")
def wrapping_segments(c: Client) -> None:
    wraps = Segment(c.memory.rkey, 8, 0xFFFFFFFFFFFFFFFC)
    all_lists: tuple[Options, ...] = (
        {"read": [(40, wraps)]}, {"write": [[wraps]]}, {"reply": [wraps]})
    for lists in all_lists:
        c.refuses(**lists)


# The Position of the RPC message.

#= V1-092
@case(stock="takes some of them")
def positions(c: Client) -> None:
    for places in ((1,), (42,), (4,), (44,), (0xFFFFFFFC,), (40, 0xFFFFFFFC), (8, 8, 1)):
        c.refuses(read=[(place, c.piece()) for place in places])


@case(stock="has the service decode it")
def chunks_inside_each_other(c: Client) -> None:
    c.refuses(read=[(12, c.piece(0, 64)), (16, c.piece(64, 4))])


@case(stock="gives no answer")
def no_payload(c: Client) -> None:
    c.refuses(kind=RDMA_NOMSG)
    # A Call without inline bytes.
    c.refuses(None)


@case(stock="takes the inline one")
def two_payloads(c: Client) -> None:
    xid = c.caller.next_xid()
    piece = c.piece(data=rpc()(xid))
    c.send(words(xid, 1, 32, RDMA_MSG) + lists_of([(0, piece)]) + rpc()(xid))
    c.refused(xid)
    # Bytes behind a NOMSG are ignored.
    c.send(words(xid, 1, 32, RDMA_NOMSG) + lists_of([(0, piece)]) + rpc()(xid))
    c.replied(xid)


#= V1-003
@case(stock="answers under the XID of the RPC message")
def xids_that_differ(c: Client) -> None:
    xid = c.caller.next_xid()
    c.send(words(xid, 1, 32, RDMA_MSG) + lists_of() + rpc()(xid + 1))
    c.refused(xid)


#= V1-003, V1-024
@case(stock="has the service decode it", harms=True)
def a_long_call_with_another_xid(c: Client) -> None:
    for message in (rpc()(1), words(0, 0), words(0, 1, 0, 0), bytes(4)):
        c.refuses(None, RDMA_NOMSG, read=[(0, c.piece(data=message))])


@case()
def replies_to_nothing(c: Client) -> None:
    for credits in (0, 1, 0xFFFFFFFF, 2, 3):
        xid = c.caller.next_xid()
        c.send(words(xid, 1, credits, RDMA_MSG) + lists_of() + words(xid, 1, 0, 0, 0, 0))
        c.dropped()
