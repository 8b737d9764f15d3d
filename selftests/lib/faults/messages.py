# SPDX-License-Identifier: GPL-2.0
"""Messages that belong to no RPC, before the right Reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire import RDMA_ERROR, words

from .base import READ, callback, spoils, strikes

if TYPE_CHECKING:
    from peer import Peer, Reply


@strikes(READ, "is_dropped bad_messages")
def runt(_: Peer, reply: Reply) -> None:
    reply.connection.send(words(reply.xid, 1))
    reply.send()


@strikes(READ, "is_dropped bad_messages")
def empty(_: Peer, reply: Reply) -> None:
    reply.connection.send(b"")
    reply.send()


@strikes(READ, "is_dropped bad_xids")
def foreign_xid(_: Peer, reply: Reply) -> None:
    for reply.xid in reply.xid ^ 0x5A5A5A5A, reply.xid:
        reply.send()


@strikes(READ)
def twice(_: Peer, reply: Reply) -> None:
    reply.send()
    reply.send()


@strikes(READ)
def many_times_at_once(_: Peer, reply: Reply) -> None:
    """The copies arrive while the client invalidates the memory of the RPC."""
    reply.connection.send_at_once([reply.encode()] * 32)


@strikes(READ, "is_dropped bad_xids")
def flood_of_replies(_: Peer, reply: Reply) -> None:
    """Sends Replies to XIDs without an RPC, several times the number of the client's Receives."""
    for reply.xid in [reply.xid ^ 0x5A5A5A5A] * 500 + [reply.xid]:
        reply.send()


@strikes(READ, "is_dropped bad_messages")
def server_call(_: Peer, reply: Reply) -> None:
    """Sends a callback to a mount without a backchannel."""
    reply.connection.send(callback(reply.xid))
    reply.send()


@strikes(READ, "is_dropped bad_messages")
def error_cut_short(_: Peer, reply: Reply) -> None:
    for rest in (), (1,), (1, 1):
        reply.connection.send(reply.start()[:12] + words(RDMA_ERROR, *rest))
    reply.send()


@strikes(READ, "is_dropped bad_messages")
def versions_reversed(_: Peer, reply: Reply) -> None:
    reply.connection.send(reply.start()[:12] + words(RDMA_ERROR, 1, 2, 1))
    reply.send()


@strikes(READ, "is_dropped bad_messages")
def flood(_peer: Peer, reply: Reply) -> None:
    """Sends many more messages than the client has credits."""
    for _ in range(1000):
        reply.connection.send(words(reply.xid))
    reply.send()


@spoils(READ, "makes_no_difference")
def no_credits(reply: Reply) -> None:
    reply.credits = 0


@spoils(READ, "makes_no_difference")
def endless_credits(reply: Reply) -> None:
    reply.credits = 0xFFFFFFFF
