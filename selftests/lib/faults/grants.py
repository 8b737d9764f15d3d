# SPDX-License-Identifier: GPL-2.0
"""Grants, and Replies that come late."""

from __future__ import annotations

import itertools

from typing import TYPE_CHECKING

from wire import RDMA_MSG, words

from .base import READ, READDIRPLUS, spoils, strikes, swapped

if TYPE_CHECKING:
    from peer import Peer, Reply


def calls_that_come(peer: Peer, reply: Reply) -> int:
    """Withholds the Reply for a while and returns the number of Calls that arrive. Answers all of them at the end."""
    held = [reply.call]
    for _ in range(300):
        call = reply.connection.next_call()
        if call:
            held.append(call)
        peer.pause()
    peer.answer_after(reply, held[1:])
    return len(held)


@spoils(READ)
def grant_of_one(reply: Reply) -> None:
    reply.credits = reply.connection.credits = 1


@spoils(READ)
def grant_of_three(reply: Reply) -> None:
    reply.credits = reply.connection.credits = 3


@strikes(READ)
def slow_reply(peer: Peer, reply: Reply) -> None:
    """Replies after half of the time-out of the Call, which is 2 s."""
    peer.answer_after(reply, list(peer.calls(1)))


@strikes(READ)
def count_calls(peer: Peer, reply: Reply) -> str:
    return f"{calls_that_come(peer, reply)} Calls without a Reply"


@strikes(READ)
def replies_at_once(peer: Peer, reply: Reply) -> str:
    """Sends the Replies to all Calls that have arrived at once."""
    calls = list(itertools.islice(peer.calls(8), 30))
    replies = [peer.make_reply(call) for call in calls]
    reply.connection.send_at_once([each.encode() for each in [reply, *replies]])
    return f"{len(calls) + 1} Replies"


@strikes(READDIRPLUS)
def reply_to_the_dead(peer: Peer, reply: Reply) -> str:
    """Replies after the process of the Call was killed. The Call keeps its credit until then."""
    peer.wait_for_the_test()
    early = list(peer.calls(2))
    peer.answer_after(reply, early)
    return f"{len(early)} Calls beyond the grant"


@strikes(READDIRPLUS)
def reply_to_the_dying(peer: Peer, reply: Reply) -> None:
    """Replies after the process of the Call was killed, before its task has ended."""
    peer.wait_for_the_test()
    reply.send()


@strikes(READDIRPLUS)
def no_reply_at_all(_: Peer, _reply: Reply) -> None:
    pass


@strikes(READDIRPLUS)
def silence_to_the_dead(peer: Peer, _: Reply) -> None:
    peer.wait_for_the_test()
    peer.hang_up("as told")


@strikes(READDIRPLUS)
def reply_before_its_call(peer: Peer, reply: Reply) -> str:
    """Sends Replies to the XIDs of Calls that wait for the credit of a killed process, and then its Reply."""
    peer.wait_for_the_test()
    early = list(peer.calls(0.5))
    last = max(swapped(call.xid) for call in [reply.call, *early])
    forged = {swapped(last + distance & 0xFFFFFFFF) for distance in range(1, 9)}
    for xid in forged:
        # Accepted: NFS3ERR_ACCES, with nothing about the file.
        reply.connection.send(words(xid, 1, reply.credits, RDMA_MSG, 0, 0, 0) +
                              words(xid, 1, 0, 0, 0, 0, 13, 0, 0))
    later = list(peer.calls(0.5))
    peer.answer_after(reply, early + later)
    came = set()
    for call in peer.calls(2):
        peer.answer(call)
        came.add(call.xid)
    return (f"{len(early + later)} Calls beyond the grant, "
            f"{len(came & forged)} after their Replies")


@strikes(None)
def first_call(peer: Peer, reply: Reply) -> str:
    """Ends the connection at the first time, and counts the Calls before the first Reply of the next connection."""
    if peer.struck == 1:
        peer.hang_up("as told")
        return "hung up"
    return f"{calls_that_come(peer, reply)} Calls without a Reply"
