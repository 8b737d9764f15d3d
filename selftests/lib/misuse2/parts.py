# SPDX-License-Identifier: GPL-2.0
"""Messages in parts."""

import time

from wire import Lost, words

from misuse.base import CONTENT, Wrong, expect
from misuse.client import Client, lists_of
from misuse.nfs import GETFH, GETSIZE, PUTROOTFH, compound, rpc

from .talk import (BAD_XDR, CONNPROP, INVAL_FLAG, MORE, MSG, NOMSG, NO_LISTS, RBSIZ, SBSIZ,
                   SYSTEM, Talk, a_file)


# The length in bytes of a long Call without its end.
LONG_CALL = 700 << 10


#= V2-032, V2-041
def a_call_in_parts(talk: Talk) -> None:
    talk.open()
    for cuts in ((4,), (8, 12), (4, 8, 12, 16, 20, 36)):
        xid = talk.caller.next_xid()
        message = compound(PUTROOTFH, GETFH)(xid)
        for start, end in zip((0, *cuts), cuts):
            talk.part(message[start:end], xid, flags=MORE)
        talk.part(message[cuts[-1]:], xid)
        talk.good(xid)


#= V2-042
def a_call_in_parts_with_a_chunk(talk: Talk) -> None:
    talk.open()
    xid = talk.caller.next_xid()
    message = compound(PUTROOTFH, GETFH)(xid)
    at = len(message) - 8
    piece = talk.connection.piece(data=message[at:at + 4])
    talk.part(message[:20], xid, flags=MORE)
    talk.part(message[20:at] + message[at + 4:], xid, lists_of([(at, piece)]))
    talk.good(xid)


#= V2-035, V2-036
def parts_with_a_handle_and_an_empty_end(talk: Talk) -> None:
    """Each part has a copy of the header, and the last part has nothing else."""
    talk.open()
    xid = talk.caller.next_xid()
    message = compound(PUTROOTFH, GETFH)(xid)
    for start, end in (0, 24), (24, len(message)):
        talk.send(MSG, words(5) + NO_LISTS + message[start:end], xid, flags=MORE)
    talk.send(MSG, words(5) + NO_LISTS, xid)
    talk.good(xid)
    # In all other tests each part has a part of the RPC message.
    xid = talk.caller.next_xid()
    talk.part(rpc()(xid)[:8], xid, flags=MORE)
    talk.refused(talk.part(b"", xid, flags=MORE), BAD_XDR)


def pad_behind_headers(talk: Talk) -> None:
    """The server ignores zeros behind a message with a length."""
    talk.open()
    talk.send(NOMSG, words(0) + NO_LISTS + bytes(4), 0)
    talk.send(CONNPROP, words(1, RBSIZ, 4, 4096) + bytes(8))
    talk.lives()
    for body in words(0) + NO_LISTS + bytes(3) + b"x", words(0) + NO_LISTS + words(1):
        talk.refused(talk.send(NOMSG, body), BAD_XDR)


#= V2-033
def parts_of_two_calls(talk: Talk) -> None:
    talk.open()
    first, second = talk.caller.next_xid(), talk.caller.next_xid()
    talk.part(rpc()(first)[:8], first, flags=MORE)
    talk.part(rpc()(second), second)
    errors = [expect(talk.hear(), "no error message") for _ in range(2)]
    expect({error.xid for error in errors} == {first, second}, *errors)
    expect(all(error.body == words(INVAL_FLAG) for error in errors), *errors)
    talk.lives()


#= V2-037, V2-162
def parts_without_end(talk: Talk) -> None:
    talk.open()
    xid = talk.caller.next_xid()
    talk.part(rpc()(xid), xid, flags=MORE)
    refusal = None
    for _ in range(2000):
        while not talk.balance and not refusal:
            refusal = talk.hear(for_credit=True)
        if refusal:
            break
        talk.part(bytes(4060), xid, flags=MORE)
    expect(refusal and refusal.xid == xid and refusal.body == words(SYSTEM), refusal)
    if not talk.balance:
        # An error message grants no credit, but a grant follows it.
        talk.hear(for_credit=True)
    talk.part(bytes(4), xid)
    talk.silent()
    talk.lives()


def begins_a_long_call(other: Talk) -> bool:
    """Sends the parts of a long Call without the last part. Returns false if the server ends the connection."""
    part = bytes(other.announced[RBSIZ] - 36)
    xid = other.caller.next_xid()
    try:
        other.part(rpc()(xid), xid, flags=MORE)
        for _ in range(LONG_CALL // len(part) + 1):
            while not other.balance:
                refusal = other.hear(for_credit=True)
                expect(not refusal, "an error ends the RPC of a hard mount:", refusal)
            other.part(part, xid, flags=MORE)
    except Lost:
        return False
    return True


def unfinished(others: list[Talk]) -> int:
    """Returns the number of Calls in parts that the server keeps before it ends a connection for memory."""
    begin = time.monotonic()
    for count, other in enumerate(others):
        if count:
            # After this Reply, the server has decided about the previous message.
            other.lives()
        if count and others[count - 1].connection.is_disconnected() or not begins_a_long_call(other):
            print(f"# {count + 1} long Calls within {time.monotonic() - begin:.0f} s")
            return count + 1
    raise Wrong(f"the server keeps {len(others)} long Calls, and would keep more, "
                f"after {time.monotonic() - begin:.0f} s")


#= V2-037
def parts_of_more_calls_than_there_is_memory_for(talk: Talk) -> None:
    """All clients share the quota for Calls in parts, and the server frees it when their connections end."""
    said = talk.caller.on_server("sed", "-n", "s/^MemTotal: *//p", "/proc/meminfo")
    total = int(said.split()[0]) << 10
    counts = []
    for _ in range(2):
        connections: list[Client] = []
        others: list[Talk] = []
        try:
            # The time-out of a Call begins with its first part, so all connections are there before.
            for _ in range(total // 16 // LONG_CALL + 2):
                other = Talk(talk.caller).open((SBSIZ, 65536))
                connections.append(other.connection)
                # nfsd ends connections that have asked for no file when there are many.
                other.good(other.ask(compound(PUTROOTFH, GETSIZE)))
                others.append(other)
            counts.append(unfinished(others))
        finally:
            for connection in connections:
                connection.close()
        talk.lives()
        time.sleep(2)
    expect(counts[1] > counts[0] * 3 // 4, "there was room for", counts[0], "Calls, and later for", counts[1])


#= V2-040, V2-100, V2-127
def a_reply_in_parts(talk: Talk) -> None:
    talk.open()
    stream, parts = talk.parts_of(talk.ask(a_file()))
    expect(CONTENT in stream and parts == 3, parts, "parts")
    talk.lives()
