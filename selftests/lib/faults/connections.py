# SPDX-License-Identifier: GPL-2.0
"""Connection establishment, and the end of connections."""

from __future__ import annotations

import struct

from typing import TYPE_CHECKING

from wire import padded, words

from .base import READ, hang_up_and_announce, spoils, strikes

if TYPE_CHECKING:
    from peer import Peer, Reply

NFS3ERR_INVAL = 22


@strikes(READ, "costs_the_connection")
def too_long(_: Peer, reply: Reply) -> None:
    reply.connection.send(reply.encode() + bytes(100000))


@spoils(READ, "costs_the_connection")
def other_version(reply: Reply) -> None:
    """Sends a Reply of a version other than the settled version."""
    reply.version = 2


@strikes(READ, "costs_the_connection")
def hang_up(peer: Peer, _: Reply) -> None:
    peer.hang_up("as told")


@strikes(READ)
def the_same_call(peer: Peer, reply: Reply) -> str:
    """Ends the connection, and compares the Call that is sent again with the first."""
    if peer.struck == 1:
        peer.unanswered = reply.call.xid, reply.call.payload
        peer.hang_up("as told")
        return "hung up"
    reply.send()
    same = peer.unanswered == (reply.call.xid, reply.call.payload)
    return "the same Call" if same else "another Call"


@strikes(READ)
def hang_up_afterwards(peer: Peer, reply: Reply) -> None:
    """Ends the connection while no RPC is outstanding."""
    reply.send()
    for call in peer.calls(1):
        peer.answer(call)
    peer.hang_up("as told")


@strikes(READ)
def tell(_: Peer, reply: Reply) -> str:
    """Returns the client's private data, and the credits that it requests in a Call."""
    reply.send()
    return f"{reply.call.credits} credits asked for, {reply.connection.request}"


@strikes(READ)
def segments_of_reads(peer: Peer, reply: Reply) -> str:
    """Collects the Segments of Write chunks and returns the number of different handles and offsets."""
    if peer.struck == 1:
        peer.segments = []
    peer.segments += reply.call.writes[0]
    reply.send()
    handles = {segment.handle for segment in peer.segments}
    high = {segment.offset >> 32 for segment in peer.segments}
    return f"{len(handles)} handles, {len(high)} upper halves of offsets"


@strikes(READ)
def demands_room_for_pad(_: Peer, reply: Reply) -> str:
    """Refuses a READ if the Write chunk has no room for the XDR padding of the data. Otherwise writes the padding."""
    chunk, data = reply.call.writes[0], padded(reply.data)
    has_room = sum(segment.length for segment in chunk) >= len(data)
    reply.writes = [reply.connection.fill(chunk, data if has_room else b"")]
    if not has_room:
        reply.payload = words(reply.xid, 1, 0, 0, 0, 0, NFS3ERR_INVAL, 0)
    reply.send()
    segments = [segment.length for segment in chunk]
    return f"{'padded' if has_room else 'refused'}, Segments of {segments}"


@strikes(READ, "connects_with")
def no_private_data(peer: Peer, _: Reply) -> None:
    hang_up_and_announce(peer, b"")


@strikes(READ, "connects_with")
def private_data_of_others(peer: Peer, _: Reply) -> None:
    hang_up_and_announce(peer, bytes(range(180)))


@strikes(READ, "connects_with")
def private_data_of_another_version(peer: Peer, _: Reply) -> None:
    hang_up_and_announce(peer, struct.pack(">IBBBB", 0xF6AB0E18, 2, 1, 3, 3))


@strikes(READ, "connects_with")
def private_data_cut_short(peer: Peer, _: Reply) -> None:
    hang_up_and_announce(peer, struct.pack(">IBBB", 0xF6AB0E18, 1, 1, 3))


@strikes(READ, "connects_with")
def private_data_of_the_smallest(peer: Peer, _: Reply) -> None:
    hang_up_and_announce(peer, struct.pack(">IBBBB", 0xF6AB0E18, 1, 0, 0, 0))


@strikes(READ)
def silence(_: Peer, _reply: Reply) -> None:
    pass
