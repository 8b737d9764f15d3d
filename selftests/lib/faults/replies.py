# SPDX-License-Identifier: GPL-2.0
"""Replies that the client must refuse."""

from __future__ import annotations

import dataclasses
import random
import time

from typing import TYPE_CHECKING

from wire import RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG, words

from .base import (GETATTR, READ, READDIRPLUS, instead, into_the_reply_chunk, offered, spoils, spoils_segments,
                   strikes, swapped)

if TYPE_CHECKING:
    from peer import Peer, Reply


@strikes(GETATTR)
def bad_replies_to_the_next_calls(_: Peer, reply: Reply) -> str:
    """Sends bad Replies to the next 400 Calls, and begins before each Call arrives. The XIDs of Calls are
    consecutive."""
    last = swapped(reply.xid)
    reply.send()
    reply.kind, reply.payload = RDMA_NOMSG, b""
    end = time.monotonic() + 60
    for xid in range(last + 1, last + 401):
        reply.xid = swapped(xid)
        while not (call := reply.connection.next_call()):
            if time.monotonic() > end:
                return f"{xid - last - 1} Calls have come"
            reply.send()
        if call.xid != reply.xid:
            return f"a Call has come with XID {call.xid:#x} instead of {reply.xid:#x}"
        reply.send()
    return "sent"



@strikes(READ, "fails_its_rpc")
def error_version(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_ERROR, 1, 2, 3)


@strikes(READ, "fails_its_rpc")
def error_chunk(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_ERROR, 2)


@strikes(READ, "fails_its_rpc")
def error_unknown(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_ERROR, 77)


@spoils(READ, "fails_its_rpc")
def type_msgp(reply: Reply) -> None:
    reply.kind = RDMA_MSGP


@strikes(READ, "fails_its_rpc")
def type_done(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_DONE)


@spoils(READ, "fails_its_rpc")
def type_unknown(reply: Reply) -> None:
    reply.kind = 0x80000000


@strikes(READ, "fails_its_rpc")
def header_cut_short(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_MSG, 0)


@strikes(READ, "fails_its_rpc")
def no_chunk_lists(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_MSG)


@strikes(READ, "fails_its_rpc")
def presence_of_two(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_MSG, 0, 2, 0, 0, 0)


@strikes(READ, "fails_its_rpc")
def endless_list(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_MSG, 0, *[1, 0] * 500)


@strikes(READ, "fails_its_rpc")
def endless_chunk(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_MSG, 0, 1, 0xFFFFFFFF, 1, 2, 3, 4)


@spoils(READ, "fails_its_rpc")
def no_payload(reply: Reply) -> None:
    reply.payload = b""


@spoils(READ, "fails_its_rpc")
def longer_than_its_buffers(reply: Reply) -> None:
    reply.payload += bytes(3000)


@spoils(READ, "fails_its_rpc")
def payload_of_another(reply: Reply) -> None:
    reply.payload = words(reply.xid ^ 1) + reply.payload[4:]


@spoils(READ, "fails_its_rpc")
def nowhere(reply: Reply) -> None:
    """Sends RDMA_NOMSG without a Reply chunk."""
    reply.kind = RDMA_NOMSG


@spoils(READ, "fails_its_rpc")
def read_list(reply: Reply) -> None:
    reply.reads = [(0, dataclasses.replace(reply.call.writes[0][0], length=64))]


@spoils(READ, "fails_its_rpc")
def reply_chunk_not_offered(reply: Reply) -> None:
    reply.reply = [dataclasses.replace(reply.call.writes[0][0], length=64)]
    reply.kind = RDMA_NOMSG


@spoils(READ, "fails_its_rpc")
def write_chunk_twice(reply: Reply) -> None:
    reply.writes *= 2


@spoils(READ, "fails_its_rpc")
def other_handle(reply: Reply) -> None:
    reply.writes[0][0].handle ^= 0x100


@spoils(READ, "fails_its_rpc")
def other_offset(reply: Reply) -> None:
    reply.writes[0][0].offset += 4096


@spoils(READ, "fails_its_rpc")
def too_much_written(reply: Reply) -> None:
    reply.writes[0][0].length = 0xFFFFFFFC


@spoils(READ, "fails_its_rpc")
def one_octet_too_much(reply: Reply) -> None:
    reply.writes[0][0].length = reply.call.writes[0][0].length + 1


@spoils(READ, "fails_its_rpc")
def too_many_segments(reply: Reply) -> None:
    reply.writes[0] += [dataclasses.replace(reply.writes[0][0], length=0)]


@spoils(READ, "fails_its_rpc")
def behind_the_end_of_addresses(reply: Reply) -> None:
    reply.writes[0][0].offset = 0xFFFFFFFFFFFFFFF0


@spoils(READDIRPLUS, "fails_its_long_reply")
def reply_chunk_other_handle(reply: Reply) -> None:
    into_the_reply_chunk(reply)[0].handle ^= 0x100


@spoils(READDIRPLUS, "fails_its_long_reply")
def reply_chunk_too_long(reply: Reply) -> None:
    into_the_reply_chunk(reply)[0].length = offered(reply.call)[0].length + 4


@spoils(READDIRPLUS, "fails_its_long_reply")
def reply_chunk_unused(reply: Reply) -> None:
    into_the_reply_chunk(reply)[0].length = 0


@spoils_segments("fails_its_reply_in_segments")
def reply_chunk_with_a_gap(reply: Reply) -> None:
    """Leaves room in the first Segment and uses the second."""
    first, second = into_the_reply_chunk(reply)[:2]
    first.length -= 4
    second.length = max(second.length, 4)


@spoils(READDIRPLUS, "fails_its_long_reply")
def reply_chunk_one_segment_more(reply: Reply) -> None:
    chunk = into_the_reply_chunk(reply)
    chunk.append(dataclasses.replace(chunk[0], length=0))


@spoils(READDIRPLUS, "fails_its_long_reply")
def reply_chunk_and_payload(reply: Reply) -> None:
    into_the_reply_chunk(reply)
    reply.kind, reply.payload = RDMA_MSG, words(reply.xid, 1, 0, 0, 0, 0)


@strikes(READ)
def mutations(_peer: Peer, reply: Reply) -> None:
    """Changes octets of the header at random, sometimes cuts the message, and sometimes invalidates the handle."""
    message = bytearray(reply.encode())
    header = len(message) - len(reply.payload)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(header)
        message[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, message[at] ^ 1 << random.randrange(8)))
    if random.random() < 0.1:
        del message[random.randrange(len(message)):]
    reply.connection.send(bytes(message),
                          reply.call.writes[0][0].handle if random.random() < 0.1 else None)
