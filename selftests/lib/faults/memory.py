# SPDX-License-Identifier: GPL-2.0
"""Access to memory that the server was not given or no longer has, and invalidation."""

import dataclasses

from .base import READ, READDIRPLUS, WRITE, spoils, strikes


@strikes(READ, "is_refused")
def write_after_the_end(peer, reply):
    """Writes to memory that an earlier Call provided."""
    reply.connection.write(peer.ended["write"][-1], b"x" * 64)
    reply.send()


@strikes(READ)
def tells_its_handle(peer, reply):
    """Tells the handle of the Write chunk to another peer, which uses it before this Reply is sent."""
    segment = reply.call.writes[0][0]
    with open(peer.control + ".handle", "w", encoding="ascii") as told:
        print(segment.handle, segment.offset, file=told)
    peer.wait_for_the_test()
    reply.send()


@strikes(READ)
def handle_of_another_connection(peer, reply):
    """Writes to memory whose handle another peer has told."""
    with open(peer.control.removesuffix(".other") + ".handle", encoding="ascii") as told:
        handle, offset = map(int, told.read().split())
    segment = dataclasses.replace(reply.call.writes[0][0], handle=handle, offset=offset)
    reply.connection.write(segment, b"x" * 64)
    reply.send()


@strikes(WRITE, "is_refused_when_writing")
def read_after_the_end(peer, reply):
    reply.connection.read(dataclasses.replace(peer.ended["read"][-1], length=64))
    reply.send()


@strikes(READ, "is_refused")
def write_behind_the_chunk(_, reply):
    segment = reply.call.writes[0][-1]
    reply.connection.write(
        dataclasses.replace(segment, offset=segment.offset + segment.length), b"x")
    reply.send()


@strikes(READ, "is_refused")
def write_before_the_chunk(_, reply):
    segment = reply.call.writes[0][0]
    reply.connection.write(dataclasses.replace(segment, offset=segment.offset - 1), b"x")
    reply.send()


@strikes(READ, "is_refused")
def read_from_a_write_chunk(_, reply):
    reply.connection.read(dataclasses.replace(reply.call.writes[0][0], length=64))
    reply.send()


@strikes(WRITE, "is_refused_when_writing")
def write_into_a_read_chunk(_, reply):
    reply.connection.write(reply.call.reads[0][1], b"x" * 64)
    reply.send()


@strikes(READ, "is_refused")
def guessed_handle(_, reply):
    segment = reply.call.writes[0][0]
    for distance in 1, 0x100, 0x10000, 0x80000000:
        reply.connection.write(
            dataclasses.replace(segment, handle=segment.handle ^ distance), b"x")
    reply.send()


@spoils(READ)
def invalidate(reply):
    """Invalidates the handle of the Write chunk."""
    reply.invalidate = reply.call.writes[0][0].handle


@spoils(READ, "costs_the_connection")
def invalidate_nothing(reply):
    reply.invalidate = reply.call.writes[0][0].handle ^ 0x123400


@strikes(READ)
def invalidate_twice(_, reply):
    reply.invalidate = reply.call.writes[0][0].handle
    reply.send()
    reply.send()


@strikes(READ)
def invalidate_memory_of_another(peer, reply):
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
def write_for_the_dead(peer, reply):
    """Writes to the Reply chunk after the process of the Call was killed."""
    for _ in range(2000):
        peer.pause()
    reply.connection.write(dataclasses.replace(reply.call.reply[0], length=64), b"x" * 64)
    reply.send()
