# SPDX-License-Identifier: GPL-2.0
"""Connection establishment, and the end of connections."""

import struct

from .base import READ, hang_up_and_announce, spoils, strikes


@strikes(READ, "costs_the_connection")
def too_long(_, reply):
    reply.connection.send(reply.encode() + bytes(100000))


@spoils(READ, "costs_the_connection")
def other_version(reply):
    """Sends a Reply of a version other than the settled version."""
    reply.version = 2


@strikes(READ, "costs_the_connection")
def hang_up(peer, _):
    peer.hang_up("as told")


@strikes(READ)
def the_same_call(peer, reply):
    """Ends the connection, and compares the Call that is sent again with the first."""
    if peer.struck == 1:
        peer.unanswered = reply.call
        peer.hang_up("as told")
        return "hung up"
    reply.send()
    first, again = peer.unanswered, reply.call
    same = (first.xid, first.payload) == (again.xid, again.payload)
    return "the same Call" if same else "another Call"


@strikes(READ)
def hang_up_afterwards(peer, reply):
    """Ends the connection while no RPC is outstanding."""
    reply.send()
    for call in peer.calls(1):
        peer.answer(call)
    peer.hang_up("as told")


@strikes(READ)
def tell(peer, reply):
    """Returns the client's private data, and the credits that it requests in a Call."""
    reply.send()
    return f"{reply.call.credits} credits asked for, {peer.connection.request}"


@strikes(READ)
def segments_of_reads(peer, reply):
    """Collects the Segments of Write chunks and returns the number of different handles and offsets."""
    peer.segments = getattr(peer, "segments", []) if peer.struck > 1 else []
    peer.segments += reply.call.writes[0]
    reply.send()
    handles, offsets = ({getattr(segment, name) for segment in peer.segments}
                        for name in ("handle", "offset"))
    high = {offset >> 32 for offset in offsets}
    return f"{len(handles)} handles, {len(high)} upper halves of offsets"


@strikes(READ, "connects_with")
def no_private_data(peer, _):
    hang_up_and_announce(peer, b"")


@strikes(READ, "connects_with")
def private_data_of_others(peer, _):
    hang_up_and_announce(peer, bytes(range(180)))


@strikes(READ, "connects_with")
def private_data_of_another_version(peer, _):
    hang_up_and_announce(peer, struct.pack(">IBBBB", 0xF6AB0E18, 2, 1, 3, 3))


@strikes(READ, "connects_with")
def private_data_cut_short(peer, _):
    hang_up_and_announce(peer, struct.pack(">IBBB", 0xF6AB0E18, 1, 1, 3))


@strikes(READ, "connects_with")
def private_data_of_the_smallest(peer, _):
    hang_up_and_announce(peer, struct.pack(">IBBBB", 0xF6AB0E18, 1, 0, 0, 0))


@strikes(READ)
def silence(_, _reply):
    pass
