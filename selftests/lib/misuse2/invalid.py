# SPDX-License-Identifier: GPL-2.0
"""Messages without a meaning, and messages without an end."""

import functools
import random
import struct
import time

from collections.abc import Callable

from pyverbs.pyverbs_error import PyverbsError

from verbs import waiting
from wire import SECONDS, Lost, words

from misuse.base import CONTENT, QUICK, Wrong, expect
from misuse.client import Client, lists_of
from misuse.nfs import GETFH, PUTROOTFH, Rpc, compound, rpc

from .talk import (CEILING, CONNPROP, ERROR, MORE, MSG, NOMSG, NO_LISTS, PATIENCE, QUIET, RBSIZ,
                   RCSIZ, RESPONSE, SBSIZ, Talk, a_file, ends, properties)


#= V2-064
def versions_that_nobody_speaks(talk: Talk) -> None:
    talk.open()
    for version in (0, 3, 0xFFFFFFFF):
        talk.raw(words(talk.caller.next_xid(), version, 1 << 16 | 1, MSG, 0, 0) + NO_LISTS)
        message = expect(talk.hear(), "no error message")
        expect(message.message[12:] == words(ERROR, 1, 1, 2), message)
        # The server has counted no credit for the message.
        talk.balance += 1
    talk.lives()


#= V2-166
def errors_of_a_client(talk: Talk) -> None:
    """The server drops error messages that answer no message, with any contents."""
    talk.open()
    for flags in (0, RESPONSE, RESPONSE | MORE):
        for body in (*(words(code) for code in range(12)), words(1, 2, 2), words(1, 3, 2), words(7, 1),
                     words(8, 0, 0xFFFFFFFF), words(9, 1), words(99, 1), b"", words(1, 2)):
            if not talk.balance:
                talk.hear(for_credit=True)
            talk.raw(words(talk.caller.next_xid(), 2, 0, ERROR, flags) + body)
    talk.silent()
    talk.lives()


#= V2-029
def replies_to_nothing(talk: Talk) -> None:
    talk.open()
    for payload in (words(0, 1, 0, 0, 0, 0), words(0, 1), bytes(4000)):
        xid = talk.caller.next_xid()
        talk.part(words(xid) + payload[4:], xid, flags=RESPONSE)
    talk.silent()
    talk.lives()


#= V2-033
def parts_of_a_reply_that_never_ends(talk: Talk) -> None:
    """A client that mixes parts with a Call gets no error, because the Call might be a Reply that is
    missing."""
    talk.open()
    xid = talk.caller.next_xid()
    talk.part(words(xid, 1, 0, 0, 0, 0), xid, flags=RESPONSE | MORE)
    talk.silent()
    ends(talk, talk.ask)


def more_messages_than_credits(talk: Talk) -> None:
    """The messages find Receives, or wait for Receives. Waiting is the fault of the sender."""
    talk.open()
    talk.overruns = True
    talk.balance = 250
    waiting_for: set[int] = set()
    for _ in range(250):
        xid = talk.caller.next_xid()
        waiting_for.add(xid)
        talk.raw(words(xid, 2, CEILING << 16 | 1, MSG, 0, 0) + NO_LISTS + rpc()(xid))
        talk.given = CEILING
    for _ in waiting(SECONDS):
        for message in iter(lambda: talk.hear(QUIET), None):
            waiting_for.discard(message.xid)
            talk.given = CEILING
        if not waiting_for:
            break
        # Credits beyond the ceiling are lost.
        talk.grant(CEILING)
        talk.given = CEILING
    expect(not waiting_for, "no Reply to", len(waiting_for), "Calls")


#= V2-044, V2-047
def receives_that_hold_calls_are_not_granted(talk: Talk) -> None:
    """A client that uses all credits and grants none to the server finds a Receive for each message: its
    device would not repeat messages."""
    talk = Talk(talk.caller, rnr_retry=0)
    # The credit of the server is for its properties.
    talk.most = 1
    talk.open()
    waiting_for: set[int] = set()
    for _ in range(20):
        for _ in range(talk.balance):
            xid = talk.caller.next_xid()
            waiting_for.add(xid)
            talk.raw(words(xid, 2, CEILING << 16, MSG, 0, 0) + NO_LISTS + rpc()(xid))
        message = talk.hear(QUIET, for_credit=True)
        expect(message is None, "a Reply without a credit:", message)
        if not talk.balance:
            break
    expect(waiting_for, "no Call waits")
    while waiting_for:
        talk.grant(CEILING)
        talk.given = CEILING
        message = expect(talk.hear(), "no Reply to", len(waiting_for), "Calls")
        waiting_for.discard(message.xid)


#= V2-045, V2-052
def grants_of_nothing_and_of_everything(talk: Talk) -> None:
    talk.open()
    for credit in (0, 1, 0xFFFF, 0xFFFF0000, 0xFFFFFFFF, 1 << 16 | 0xFFFF):
        xid = talk.caller.next_xid()
        talk.raw(words(xid, 2, credit, MSG, 0, 0) + NO_LISTS + rpc()(xid))
        talk.given = CEILING
        talk.replied(xid)


def leaves_in_the_middle(talk: Talk) -> None:
    """The client disconnects in the middle of a Call, of properties, and of a Reply."""
    call = compound(PUTROOTFH, GETFH)(0)
    beginnings: tuple[Callable[[Talk], int], ...] = (
        lambda other: other.part(call[:20], 1, flags=MORE),
        lambda other: other.send(CONNPROP, properties((SBSIZ, 4096))[:8], flags=MORE),
        lambda other: other.part(words(1, 1, 0, 0), 1, flags=RESPONSE | MORE),
        lambda other: other.ask(a_file(), grant=1),
        lambda other: other.part(call[:20], 1, lists_of([(20, other.connection.piece())])))
    for begin in beginnings:
        for opened in (False, True):
            other = Talk(talk.caller)
            if opened:
                other.open()
            begin(other)
            other.connection.close()
    talk.lives()


#= V2-178
def handles_of_nobody(talk: Talk) -> None:
    """Invalid handles in Read, Write and Reply chunks end the connection."""
    call = compound(PUTROOTFH, GETFH)
    at = len(call(0)) - 8
    bodies: tuple[Callable[[Client], tuple[bytes, Rpc]], ...] = (
        lambda c: (lists_of([(at, c.foreign(4))]), lambda xid: call(xid)[:at] + call(xid)[at + 4:]),
        lambda c: (lists_of((), [[c.foreign(len(CONTENT))]]), a_file()),
        lambda c: (lists_of(reply=[c.foreign(12000)]), a_file()))
    for body in bodies:
        other = Talk(talk.caller).open()
        lists, what = body(other.connection)
        ends(other, functools.partial(other.ask, what, lists))


def changed(source: random.Random, talk: Talk) -> bytes:
    """Returns a valid message in which some bytes are changed."""
    xid, piece = talk.caller.next_xid(), talk.connection.piece
    call = source.choice((rpc(), a_file(), compound(PUTROOTFH, GETFH)))(xid)
    lists = source.choice((
        lists_of(), lists_of((), [[piece(0, 4096)]]),
        lists_of([(len(call), piece(0, 64))], (), [piece(4096, 65536)])))
    kind, body = source.choice(((MSG, words(0) + lists + call),
                                (CONNPROP, properties((SBSIZ, 4096), (RBSIZ, 4096), (RCSIZ, 16)))))
    flags = source.choice((0, 0, MORE))
    message = bytearray(words(xid, 2, CEILING << 16 | 4, kind, flags) + body)
    for _ in range(source.randrange(1, 4)):
        message[source.randrange(4, min(len(message), 120))] = source.randrange(256)
    return bytes(message)


def mutations(talk: Talk) -> None:
    """The server answers other clients after each changed message."""
    source = random.Random(4711)
    other = Talk(talk.caller)
    for number in range(40 if QUICK else 200):
        try:
            other.connection.send(changed(source, other))
            while other.next_message(0.005):
                pass
        except (Lost, Wrong, PyverbsError, struct.error):
            other = Talk(talk.caller)
        if number % 20 == 19:
            talk.lives()


#= V2-038, V2-048
def no_message_is_waited_for_for_ever(talk: Talk) -> None:
    """The server limits its wait for a Reply's credit and for a part, although the client is never silent."""
    def grant_of_nothing(xid: int, kind: int) -> bytes:
        return words(xid, 2, CEILING << 16, kind, 0, 0) + NO_LISTS

    def waits(call: Rpc, credits: int) -> Talk:
        client = Talk(talk.caller)
        client.send(CONNPROP, properties((SBSIZ, 4096)), grant=credits)
        client.silent()
        expect(client.announced, "the server has announced nothing")
        xid = talk.caller.next_xid()
        client.raw(grant_of_nothing(xid, MSG) + call(xid))
        return client

    # There is no credit for a Reply, or for the second part of one.
    clients = {"a Reply": waits(rpc(), 1), "a part": waits(a_file(), 2)}
    # The rest of a Call is missing.
    clients["a Call"] = Talk(talk.caller).open()
    xid = talk.caller.next_xid()
    clients["a Call"].part(rpc()(xid), xid, flags=MORE)
    # A Call comes in parts, one each 8 seconds.
    slow = clients["a slow Call"] = Talk(talk.caller).open()
    slow_xid = talk.caller.next_xid()
    slow.part(rpc()(slow_xid)[:4], slow_xid, flags=MORE)
    begun = time.monotonic()
    parts = 0
    for _ in waiting(PATIENCE + 40):
        for name, client in list(clients.items()):
            try:
                gone = client.connection.is_over()
                if not gone:
                    client.connection.send(grant_of_nothing(0, NOMSG))
                if not gone and client is slow and time.monotonic() - begun > 8 * (parts + 1):
                    parts += 1
                    slow.part(bytes(4), slow_xid, flags=MORE)
            except (Lost, PyverbsError):
                gone = True
            if gone:
                lived = time.monotonic() - begun
                expect(lived > PATIENCE - 5, name, "was waited for", lived, "seconds only")
                del clients[name]
        if not clients:
            break
        time.sleep(1)
    expect(not clients, "the server still waits for", *clients)
