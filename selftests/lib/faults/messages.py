# SPDX-License-Identifier: GPL-2.0
"""Messages that belong to no RPC, before the right Reply."""

from wire import RDMA_ERROR, words

from .base import READ, callback, spoils, strikes


@strikes(READ, "is_dropped bad_messages")
def runt(_, reply):
    reply.connection.send(words(reply.xid, 1))
    reply.send()


@strikes(READ, "is_dropped bad_messages")
def empty(_, reply):
    reply.connection.send(b"")
    reply.send()


@strikes(READ, "is_dropped bad_xids")
def foreign_xid(_, reply):
    for reply.xid in reply.xid ^ 0x5A5A5A5A, reply.xid:
        reply.send()


@strikes(READ, "is_dropped bad_xids")
def twice(_, reply):
    reply.send()
    reply.send()


@strikes(READ)
def many_times_at_once(_, reply):
    """The copies arrive while the client invalidates the memory of the RPC."""
    reply.connection.send_at_once([reply.encode()] * 32)


@strikes(READ, "is_dropped bad_xids")
def flood_of_replies(_, reply):
    """Sends Replies to XIDs without an RPC, several times the number of the client's Receives."""
    for reply.xid in [reply.xid ^ 0x5A5A5A5A] * 500 + [reply.xid]:
        reply.send()


@strikes(READ, "is_dropped bad_messages")
def server_call(_, reply):
    """Sends a callback to a mount without a backchannel."""
    reply.connection.send(callback(reply.xid))
    reply.send()


@strikes(READ, "is_dropped bad_messages")
def error_cut_short(_, reply):
    for rest in (), (1,), (1, 1):
        reply.connection.send(reply.start()[:12] + words(RDMA_ERROR, *rest))
    reply.send()


@strikes(READ, "is_dropped bad_messages")
def versions_reversed(_, reply):
    reply.connection.send(reply.start()[:12] + words(RDMA_ERROR, 1, 2, 1))
    reply.send()


@strikes(READ, "is_dropped bad_messages")
def flood(_, reply):
    """Sends many more messages than the client has credits."""
    for _ in range(1000):
        reply.connection.send(words(reply.xid))
    reply.send()


@spoils(READ, "makes_no_difference")
def no_credits(reply):
    reply.credits = 0


@spoils(READ, "makes_no_difference")
def endless_credits(reply):
    reply.credits = 0xFFFFFFFF
