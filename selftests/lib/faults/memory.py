# SPDX-License-Identifier: GPL-2.0
"""Access to memory that the server was not given or no longer has, and invalidation."""

from __future__ import annotations

import dataclasses

from typing import TYPE_CHECKING

from .base import READ, READDIRPLUS, WRITE, offered, spoils, strikes

if TYPE_CHECKING:
    from peer import Peer, Reply


@strikes(READ, "is_refused")
def write_after_the_end(peer: Peer, reply: Reply) -> None:
    """Writes to memory that an earlier Call provided."""
    reply.connection.write(peer.ended["write"][-1], b"x" * 64)
    reply.send()


@strikes(READ)
def tells_its_handle(peer: Peer, reply: Reply) -> None:
    """Tells the handle of the Write chunk to another peer, which uses it before this Reply is sent."""
    segment = reply.call.writes[0][0]
    with open(peer.control + ".handle", "w", encoding="ascii") as told:
        print(segment.handle, segment.offset, file=told)
    peer.wait_for_the_test()
    reply.send()


@strikes(READ)
def handle_of_another_connection(peer: Peer, reply: Reply) -> None:
    """Writes to memory whose handle another peer has told."""
    with open(peer.control.removesuffix(".other") + ".handle", encoding="ascii") as told:
        handle, offset = map(int, told.read().split())
    segment = dataclasses.replace(reply.call.writes[0][0], handle=handle, offset=offset)
    reply.connection.write(segment, b"x" * 64)
    reply.send()


@strikes(WRITE, "is_refused_when_writing")
def read_after_the_end(peer: Peer, reply: Reply) -> None:
    reply.connection.read(dataclasses.replace(peer.ended["read"][-1], length=64))
    reply.send()


@strikes(READ, "is_refused")
def write_behind_the_chunk(_: Peer, reply: Reply) -> None:
    segment = reply.call.writes[0][-1]
    reply.connection.write(
        dataclasses.replace(segment, offset=segment.offset + segment.length), b"x")
    reply.send()


@strikes(READ, "is_refused")
def write_before_the_chunk(_: Peer, reply: Reply) -> None:
    segment = reply.call.writes[0][0]
    reply.connection.write(dataclasses.replace(segment, offset=segment.offset - 1), b"x")
    reply.send()


@strikes(READ, "is_refused")
def read_from_a_write_chunk(_: Peer, reply: Reply) -> None:
    reply.connection.read(dataclasses.replace(reply.call.writes[0][0], length=64))
    reply.send()


@strikes(WRITE, "is_refused_when_writing")
def write_into_a_read_chunk(_: Peer, reply: Reply) -> None:
    reply.connection.write(reply.call.reads[0][1], b"x" * 64)
    reply.send()


@strikes(READ, "is_refused")
def guessed_handle(_: Peer, reply: Reply) -> None:
    segment = reply.call.writes[0][0]
    for distance in 1, 0x100, 0x10000, 0x80000000:
        reply.connection.write(
            dataclasses.replace(segment, handle=segment.handle ^ distance), b"x")
    reply.send()


@spoils(READ)
def invalidate(reply: Reply) -> None:
    """Invalidates the handle of the Write chunk."""
    reply.invalidate = reply.call.writes[0][0].handle


@spoils(READ, "costs_the_connection")
def invalidate_nothing(reply: Reply) -> None:
    reply.invalidate = reply.call.writes[0][0].handle ^ 0x123400


@strikes(READ)
def invalidate_twice(_: Peer, reply: Reply) -> None:
    reply.invalidate = reply.call.writes[0][0].handle
    reply.send()
    reply.send()


@strikes(READ)
def invalidate_memory_of_another(peer: Peer, reply: Reply) -> str:
    """Invalidates the memory of another Call by the Reply."""
    for _ in range(5000):
        other = reply.connection.next_call()
        if other and other.writes:
            reply.invalidate = other.writes[0][0].handle
            reply.send()
            return "done"
        if other:
            peer.answer(other)
        peer.pause()
    return "no other Call has come"


@strikes(READDIRPLUS)
def write_for_the_dead(peer: Peer, reply: Reply) -> None:
    """Writes to the Reply chunk after the process of the Call was killed."""
    for _ in range(2000):
        peer.pause()
    reply.connection.write(dataclasses.replace(offered(reply.call)[0], length=64), b"x" * 64)
    reply.send()
