# SPDX-License-Identifier: GPL-2.0
"""Faults of a server in version 2, by name. peer2.py causes them.

A fault that changes a Reply independently of the form of its header is the fault of version 1.
"""

from __future__ import annotations

import time

from collections.abc import Callable
from typing import TYPE_CHECKING

from wire import PRIVATE_DATA, SECONDS, Lost, announcement, words

from . import FAULTS as FAULTS_V1
from .base import READ, WRITE, Faults, hang_up_and_announce

if TYPE_CHECKING:
    from peer import Peer
    from peer2 import Reply2

MSG, NOMSG, ERROR, CONNPROP = 0, 1, 4, 5
RESPONSE, MORE = 1, 2
NOTHING = words(0, 0, 0, 0)
# The most messages that are sent at once.
AT_ONCE = 128
READ_CHUNKS, SYSTEM = 5, 10

FAULTS: Faults[Reply2] = Faults()
strikes = FAULTS.strikes

# Makes a message from a Reply.
Make = Callable[["Reply2"], bytes]

for common_test, names in (
        ("is_dropped bad_xids", ("foreign_xid",)),
        ("fails_its_rpc", (
            "no_payload", "longer_than_its_buffers", "payload_of_another", "nowhere",
            "reply_chunk_not_offered", "write_chunk_twice", "other_handle", "other_offset", "too_much_written",
            "one_octet_too_much", "too_many_segments", "behind_the_end_of_addresses")),
        ("does_no_harm", ("result_inline", "reply_chunk_not_offered_and_unused",
                          "write_chunk_more_than_offered_and_unused")),
        ("costs_the_connection", ("hang_up", "invalidate_nothing"))):
    for each in names:
        FAULTS[each] = FAULTS_V1[each]
        FAULTS.expect(each, common_test)
for other in "silence", "twice":
    FAULTS[other] = FAULTS_V1[other]


def message(reply: Reply2, kind: int, flags: int, body: bytes = b"", xid: int | None = None) -> bytes:
    """Returns a message with this body behind the fixed words."""
    xid = reply.xid if xid is None else xid
    return words(xid, 2, 32 << 16 | 1, kind, flags) + body


def before(test: str, name: str, *made: Make) -> None:
    """Adds a fault that sends these messages before the Reply."""
    def fault(_: Peer, reply: Reply2) -> None:
        for make in made:
            reply.connection.raw(make(reply))
        reply.send()
    fault.__name__ = name
    strikes(READ, test)(fault)


def instead(test: str, name: str, *made: Make) -> None:
    """Adds a fault that sends these messages instead of the Reply."""
    def fault(_: Peer, reply: Reply2) -> None:
        for make in made:
            reply.connection.raw(make(reply))
    fault.__name__ = name
    strikes(READ, test)(fault)


def is_answered(name: str, error: str, make: Make) -> None:
    """Adds a fault that sends a message, waits for the error message of the client, and sends the Reply. ERROR has
    the numbers of the expected message."""
    def fault(_: Peer, reply: Reply2) -> str:
        reply.connection.raw(make(reply))
        xid, *numbers = reply.connection.next_refusal()
        reply.send()
        said = ",".join(map(str, numbers))
        return f"error {said}" if xid == reply.xid else "an error of another XID"
    fault.__name__ = name
    strikes(READ, f"is_answered={error}")(fault)


def called(reply: Reply2, lists: bytes) -> bytes:
    """Returns a callback with these chunk lists."""
    call = words(reply.xid, 0, 2, 0x40000000, 1, 0, 0, 0, 0, 0)
    return message(reply, MSG, 0, words(0) + lists + call)


# --- Messages that belong to no RPC ---------------------------------------------------------

before("is_dropped bad_messages", "empty", lambda _: b"")
before("is_dropped bad_messages", "runt", lambda reply: words(reply.xid, 2))
before("is_dropped bad_messages", "no_flags", lambda reply: words(reply.xid, 2, 1, MSG))
before("is_dropped bad_messages", "response_of_unknown_type", lambda reply: message(reply, 77, RESPONSE))
before("is_dropped bad_messages", "error_cut_short",
       lambda reply: message(reply, ERROR, RESPONSE),
       lambda reply: message(reply, ERROR, RESPONSE, words(5)),
       lambda reply: message(reply, ERROR, RESPONSE, words(8, 0)))
before("is_dropped bad_messages", "versions_reversed",
       lambda reply: words(reply.xid, 2, 1, ERROR, 1, 1, 0))
before("is_dropped bad_xids", "error_for_nobody",
       lambda reply: message(reply, ERROR, RESPONSE, words(SYSTEM), reply.xid ^ 0x5A5A5A5A))
before("is_dropped bad_xids", "part_for_nobody",
       lambda reply: message(reply, MSG, RESPONSE | MORE, NOTHING + words(reply.xid ^ 1, 1),
                             reply.xid ^ 1),
       lambda reply: message(reply, MSG, RESPONSE, NOTHING + words(0), reply.xid ^ 1))

# --- Messages that the client answers by an error -------------------------------------------

is_answered("type_unknown", "3", lambda reply: message(reply, 77, 0))
is_answered("flag_unknown", "4", lambda reply: message(reply, MSG, 0x80, NOTHING + words(reply.xid, 0)))
is_answered("nothing_conveyed", "2", lambda reply: message(reply, NOMSG, 0, NOTHING))
is_answered("nomsg_with_more", "4", lambda reply: message(reply, NOMSG, MORE, NOTHING))
is_answered("call_without_lists", "2", lambda reply: message(reply, MSG, 0, words(0)))
#= V2-150, V2-154
is_answered("call_that_reads", "5,0", lambda reply: called(reply, words(1, 40, 1, 64, 0, 0, 0, 0, 0)))
is_answered("call_that_writes", "9,0", lambda reply: called(reply, words(0, 1, 1, 1, 64, 0, 0, 0, 0)))
#= V2-030
is_answered("call", "10", lambda reply: called(reply, NOTHING[4:]))
is_answered("properties_cut_short", "2", lambda reply: message(reply, CONNPROP, 0, words(5, 1, 4)))
is_answered("property_twice", "2",
            lambda reply: message(reply, CONNPROP, 0, words(2, 1, 4, 4096, 1, 4, 4096)))
is_answered("property_of_another_length", "2",
            lambda reply: message(reply, CONNPROP, 0, words(1, 1, 8, 4096, 4096)))

# --- Credits --------------------------------------------------------------------------------


@strikes(READ)
def more_grants_than_receives(_: Peer, reply: Reply2) -> str:
    """Sends grants at once, which take no credit, and then the Reply. Returns the milliseconds."""
    begun = time.monotonic()
    reply.connection.send_at_once([message(reply, NOMSG, 0, NOTHING, 0)] * AT_ONCE)
    took = time.monotonic() - begun
    reply.send()
    return str(int(took * 1000))


def grants(name: str, word: int) -> None:
    """Adds a fault whose Reply has this credit word."""
    def fault(_: Peer, reply: Reply2) -> None:
        reply.connection.next_credits = word
        reply.send()
    fault.__name__ = name
    strikes(READ, "does_no_harm")(fault)


grants("no_credits", 0)
grants("no_ceiling", 1)
grants("endless_credits", 0xFFFFFFFF)


@strikes(READ, "does_no_harm")
def flood_of_grants(_peer: Peer, reply: Reply2) -> None:
    """Sends grants without payload, which take no credit."""
    for _ in range(500):
        reply.connection.send(message(reply, NOMSG, 0, NOTHING, 0))
    reply.send()


@strikes(READ, "does_no_harm")
def flood(_peer: Peer, reply: Reply2) -> None:
    """Sends many more messages than the client has granted."""
    for _ in range(500):
        reply.connection.send(words(reply.xid, 2))
    reply.send()


@strikes(READ, "does_no_harm")
def other_properties(_: Peer, reply: Reply2) -> None:
    """Sends other properties, of which only the first set counts."""
    reply.connection.raw(message(reply, CONNPROP, 0, words(2, 1, 4, 1024, 2, 4, 1024), 7))
    reply.send()


# --- Replies that the client must refuse ----------------------------------------------------

instead("fails_its_rpc", "error_unknown", lambda reply: message(reply, ERROR, RESPONSE, words(77)))
instead("fails_its_rpc", "error_bad_xdr", lambda reply: message(reply, ERROR, RESPONSE, words(2)))
instead("fails_its_rpc", "error_system", lambda reply: message(reply, ERROR, RESPONSE, words(SYSTEM)))
instead("fails_its_rpc", "error_of_a_chunk_that_is_not",
        lambda reply: message(reply, ERROR, RESPONSE, words(8, 77, 1 << 20)))
instead("fails_its_rpc", "header_cut_short", lambda reply: message(reply, MSG, RESPONSE, words(0)))
instead("fails_its_rpc", "no_chunk_lists", lambda reply: message(reply, MSG, RESPONSE))
instead("fails_its_rpc", "presence_of_two",
        lambda reply: message(reply, MSG, RESPONSE, words(0, 0, 2, 0, 0, 0)))
instead("fails_its_rpc", "endless_list",
        lambda reply: message(reply, MSG, RESPONSE, words(0, 0, *[1, 0] * 450)))
instead("fails_its_rpc", "endless_chunk",
        lambda reply: message(reply, MSG, RESPONSE, words(0, 0, 1, 0xFFFFFFFF, 1, 2, 3, 4)))
instead("fails_its_rpc", "reply_of_another",
        lambda reply: message(reply, MSG, RESPONSE | MORE, NOTHING + words(reply.xid ^ 1, 1)),
        lambda reply: message(reply, MSG, RESPONSE, NOTHING + words(0, 0)))
instead("fails_its_rpc", "reply_that_is_a_call",
        lambda reply: message(reply, MSG, RESPONSE, NOTHING + words(reply.xid, 0, 2, 100003)))
instead("fails_its_rpc", "parts_with_chunks",
        lambda reply: message(reply, MSG, RESPONSE | MORE,
                              words(0, 0, 1, 1, 1, 64, 0, 0, 0, 0) + words(reply.xid, 1)))
instead("fails_its_rpc", "parts_without_end",
        lambda reply: message(reply, MSG, RESPONSE | MORE, NOTHING + words(reply.xid, 1)),
        *[lambda reply: message(reply, MSG, RESPONSE | MORE, NOTHING + bytes(4000))] * 40,
        lambda reply: message(reply, MSG, RESPONSE, NOTHING + bytes(4)))
instead("fails_with_its_connection", "parts_of_two",
        lambda reply: message(reply, MSG, RESPONSE | MORE, NOTHING + words(reply.xid, 1)),
        lambda reply: message(reply, MSG, RESPONSE, NOTHING + words(reply.xid ^ 1, 1),
                              reply.xid ^ 1))
instead("fails_with_its_connection", "nomsg_between_parts",
        lambda reply: message(reply, MSG, RESPONSE | MORE, NOTHING + words(reply.xid, 1)),
        lambda reply: message(reply, NOMSG, RESPONSE, words(0, 0, 0, 1, 1, 1, 64, 0, 0)))


@strikes(WRITE)
def refuses_a_call_twice(peer: Peer, reply: Reply2) -> str:
    """Refuses the Read chunk with the data, and then the Position Zero Read chunk with the whole Call."""
    connection = reply.connection
    connection.refuse(reply.xid, READ_CHUNKS, 1)
    for call in peer.calls(SECONDS):
        connection.refuse(call.xid, READ_CHUNKS, 1)
        positions = {position for position, _ in call.reads}
        return f"the same Call: {call.xid == reply.xid}, Positions {positions}"
    raise Lost("the Call does not come again")


# --- The connection -------------------------------------------------------------------------

instead("fails_its_rpc", "error_that_is_no_response",
        lambda reply: message(reply, ERROR, 0, words(SYSTEM)))
instead("costs_the_connection", "other_version",
        lambda reply: words(reply.xid, 1, 32, 0, 0, 0, 0, reply.xid, 1, 0, 0, 0, 0))


@strikes(READ, "costs_the_connection")
def too_long(_: Peer, reply: Reply2) -> None:
    reply.connection.raw(message(reply, MSG, RESPONSE, reply.body() + bytes(100000)))


@strikes(READ, "costs_the_connection")
def hang_up_between_parts(peer: Peer, reply: Reply2) -> None:
    reply.connection.raw(message(reply, MSG, RESPONSE | MORE, NOTHING + words(reply.xid, 1)))
    peer.hang_up("as told")


@strikes(READ, "costs_the_connection")
def invalidate_with_a_part(_: Peer, reply: Reply2) -> None:
    part = message(reply, MSG, RESPONSE | MORE, NOTHING + words(reply.xid, 1))
    reply.connection.raw(part, reply.call.inv_handle or reply.call.writes[0][0].handle)


def begins_with(name: str, *sets: bytes) -> None:
    """Adds a fault that ends the connection. The server announces these sets of properties on the next."""
    def fault(peer: Peer, reply: Reply2) -> None:
        type(reply.connection).first = sets
        peer.hang_up("as told")
    fault.__name__ = name
    strikes(READ, "begins_with")(fault)


def announces(name: str, version: int, private_data: bytes) -> None:
    """Adds a fault that ends the connection. The next has these private data, and the client must open it with
    this version."""
    def fault(peer: Peer, reply: Reply2) -> None:
        type(reply.connection).opening = version
        hang_up_and_announce(peer, private_data)
    fault.__name__ = "announces_" + name
    strikes(READ, f"opens_with={version}")(fault)


announces("nothing", 1, b"")
announces("rfc_8797", 1, PRIVATE_DATA)
announces("other_formats", 1, bytes(range(180)))
announces("version_0", 1, PRIVATE_DATA + announcement(0))
announces("version_1", 1, PRIVATE_DATA + announcement(1))
announces("version_2", 2, PRIVATE_DATA + announcement(2))
announces("version_3", 2, PRIVATE_DATA + announcement(3))
announces("only_that", 2, announcement(2))
announces("it_first", 2, announcement(2) + PRIVATE_DATA)
announces("it_between_others", 2, PRIVATE_DATA + bytes(range(13)) + announcement(2) + bytes(range(13)))
announces("half_of_it", 1, PRIVATE_DATA + announcement(2)[:4])
# InfiniBand appends zeros.
announces("most_of_it", 1, PRIVATE_DATA + announcement(2)[:5])
announces("another_format", 1, PRIVATE_DATA + announcement(2, 2))
announces("another_format_first", 2, PRIVATE_DATA + announcement(1, 2) + announcement(2))
announces("reserved_octets", 2, PRIVATE_DATA + announcement(2)[:6] + b"\xff\xff")


begins_with("small_receives", words(1, 2, 4, 512))
begins_with("bad_properties", words(5, 1, 4))
begins_with("properties_twice", words(1, 2, 4, 4096), words(1, 2, 4, 1024))
begins_with("no_properties", words(0))
begins_with("endless_receives", words(2, 1, 4, 0xFFFFFFFF, 2, 4, 0xFFFFFFFF))
begins_with("no_segments", words(1, 4, 4, 0))
begins_with("segments_of_nothing", words(1, 3, 4, 0))
