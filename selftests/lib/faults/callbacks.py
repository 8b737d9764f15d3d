# SPDX-License-Identifier: GPL-2.0
"""Callbacks of a session of NFS 4.1."""

from __future__ import annotations

import itertools
import time

from typing import TYPE_CHECKING

from wire import RDMA_ERROR, words

from .base import (CB_SEQUENCE, CREATE_SESSION, DESTROY_CLIENTID, SEQUENCE, callback, instead,
                   strikes_operation)

if TYPE_CHECKING:
    from peer import Call, Peer, Reply


def callback_that_waits(xid: int, call: Call) -> bytes:
    """Returns a CB_SEQUENCE that refers to a Call in progress. The client waits half a second for the end of the Call
    before it answers this callback and later callbacks."""
    operations = call.operations()
    assert operations is not None
    operations.word()
    session_id = operations.data[operations.at:operations.at + 16]
    operations.at += 16
    sequence, slot = operations.word(), operations.word()
    return callback(xid, 1, words(1, 20, 0, 0, 0, 0, 0),
                    words(0, 1, 0, 1, CB_SEQUENCE) + session_id + words(1, 0, 0, 0) +
                    words(1) + session_id + words(1, sequence, slot))


@strikes_operation(SEQUENCE)
def callbacks_at_once(peer: Peer, reply: Reply) -> str:
    """Sends more callbacks than the session has slots. CB_NULL takes no slot."""
    first, *others = range(0x70000000, 0x70000000 + 24)
    begun = time.monotonic()
    reply.connection.send_at_once([callback_that_waits(first, reply.call),
                                   *(callback(xid) for xid in others)])
    waiting, waited = {first, *others}, 0.0
    held: list[Call] = []
    for message in peer.calls(5):
        waited = waited or time.monotonic() - begun
        if message.xid in waiting:
            waiting.remove(message.xid)
        else:
            held.append(message)
        if not waiting:
            break
    peer.answer_after(reply, held)
    return f"{24 - len(waiting)} of 24 were answered, the first after {waited:.1f} s"


@strikes_operation(DESTROY_CLIENTID)
def callbacks_after_the_end(_: Peer, reply: Reply) -> None:
    """Sends callbacks without end after the client has ended its service for them."""
    numbers = itertools.count(0x71000000)
    batch = [reply.encode()]
    while True:
        reply.connection.send_at_once(batch + [callback(next(numbers)) for _ in range(8)])
        batch = []
        while reply.connection.next_call():
            pass


@strikes_operation(SEQUENCE)
def callbacks_one_by_one(peer: Peer, reply: Reply) -> str:
    """Sends more callbacks, one after the other, than the client has Receives for both directions."""
    held: list[Call] = []
    # Credits, and whether the callback was accepted.
    answered: set[tuple[int, bool]] = set()
    for xid in range(0x72000000, 0x72000000 + 300):
        reply.connection.send(callback(xid))
        for message in peer.calls(5):
            if message.xid == xid:
                bare = not (message.reads or message.writes or message.reply)
                answered.add((message.credits, bare and message.payload[:12] == words(xid, 1, 0)))
                break
            held.append(message)
        else:
            return f"{xid:#x} was not answered"
    peer.answer_after(reply, held)
    return f"all were answered, with credits and accepted: {answered}"


@strikes_operation(SEQUENCE)
def error_in_a_session(_: Peer, reply: Reply) -> None:
    instead(reply, RDMA_ERROR, 2)


@strikes_operation(SEQUENCE)
def session_with_one_credit(_: Peer, reply: Reply) -> None:
    reply.credits = reply.connection.credits = 1
    reply.send()


@strikes_operation(SEQUENCE)
def callback_before_the_reply(peer: Peer, reply: Reply) -> str:
    """Sends a callback before the Reply whose Call has the only credit."""
    late = list(peer.calls(1))
    reply.connection.send(callback(0x73000000))
    answered = any(message.xid == 0x73000000 for message in peer.calls(2))
    reply.send()
    return f"{'answered' if answered else 'not answered'}, with {len(late)} Calls beyond the grant"


@strikes_operation(CREATE_SESSION)
def session(_peer: Peer, reply: Reply) -> str:
    """Returns the parameters of callbacks that the client has requested."""
    operations = reply.call.operations()
    assert operations is not None
    operations.at += 4 + 8 + 4 + 4
    for _ in "fore", "back":
        _, request, _, _, _, requests = (operations.word() for _ in range(6))
        for _ in range(operations.word()):
            operations.word()
    reply.send()
    return f"requests of {request}, {requests} at once; the inline limit is {reply.connection.inline}"
