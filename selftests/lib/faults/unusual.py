# SPDX-License-Identifier: GPL-2.0
"""Unusual Replies that the client must accept."""

from __future__ import annotations

import dataclasses

from typing import TYPE_CHECKING

from wire import words

from .base import READ, WRITE, into_the_reply_chunk, offered, spoils, spoils_segments, strikes

if TYPE_CHECKING:
    from peer import Peer, Reply


def inline(reply: Reply) -> None:
    """Puts the data of a READ into the message and returns the Write chunk unused."""
    reply.writes = [[dataclasses.replace(segment, length=0) for segment in chunk]
                    for chunk in reply.call.writes]
    reply.payload = reply.answer


@spoils(READ)
def result_inline(reply: Reply) -> None:
    inline(reply)


@spoils_segments()
def reply_chunk_cut_to_what_is_used(reply: Reply) -> None:
    """Leaves out the unused Segments of the Reply chunk, as Linux before 4.12 does."""
    reply.reply = [segment for segment in into_the_reply_chunk(reply) if segment.length]
    assert len(reply.reply) < len(offered(reply.call))


@spoils(READ, "comes_inline=500")
def write_chunk_cut_to_nothing(reply: Reply) -> None:
    """Returns a Write chunk without Segments."""
    inline(reply)
    reply.writes = [[] for _ in reply.writes]


@spoils(READ, "comes_inline=500")
def no_write_list(reply: Reply) -> None:
    """Leaves out the Write list when the data are inline, as ntirpc does."""
    inline(reply)
    reply.writes = []


@spoils(READ, "makes_no_difference")
def reply_chunk_not_offered_and_unused(reply: Reply) -> None:
    reply.reply = [dataclasses.replace(reply.call.writes[0][0], length=0)]


@spoils(READ, "makes_no_difference")
def write_chunk_more_than_offered_and_unused(reply: Reply) -> None:
    reply.writes += [[dataclasses.replace(reply.call.writes[0][0], length=0)]]


@strikes(READ, "comes_inline=1", "comes_inline=2", "comes_inline=3", "comes_inline=1023")
def pad_of_another_length(_: Peer, reply: Reply) -> str:
    """Pads the data with count % 4 zeros, as NFS-Ganesha 6.5 does. The message may have any length."""
    inline(reply)
    count = int.from_bytes(reply.call.payload[-4:])
    reply.payload = reply.payload[:len(reply.payload) - -count % 4] + bytes(count % 4)
    reply.send()
    return f"{len(reply.payload)} octets"


@spoils(READ)
def pad_in_the_message(reply: Reply) -> None:
    """Puts the data into the Write chunk, and their XDR pad into the message."""
    reply.payload += bytes(3)


@spoils(READ, "makes_no_difference")
def no_attributes(reply: Reply) -> None:
    """Omits the attributes of the file, so that the results before the data are short."""
    at = 28
    if reply.payload[at:at + 4] != words(1):
        raise ValueError("there are no attributes")
    reply.payload = reply.payload[:at] + words(0) + reply.payload[at + 4 + 84:]


@strikes(READ)
def nothing_written(_: Peer, reply: Reply) -> None:
    """Returns the Write chunk unused although the results have a count of data."""
    for segment in reply.writes[0]:
        segment.length = 0
    reply.send()


@strikes(WRITE)
def read_again(_: Peer, reply: Reply) -> str:
    """Reads the Read chunk again before the Reply and compares the data."""
    data = [reply.connection.read(segment) for _, segment in reply.call.reads]
    reply.send()
    return "the same" if b"".join(data) in reply.call.payload else "other data"
