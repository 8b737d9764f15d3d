# SPDX-License-Identifier: GPL-2.0
"""The ways to open a connection."""

from wire import PRIVATE_DATA, announcement, words

from misuse.base import CONTENT, expect
from misuse.nfs import rpc

from .talk import BAD_XDR, CONNPROP, MORE, RBSIZ, RSSIZ, SBSIZ, Talk, a_file, properties


#= V2-001, V2-006, V2-010
#= V2-058, V2-059, V2-092
#= V2-136, V2-137, VA-011
def opens_with_properties(talk: Talk) -> None:
    talk.open((SBSIZ, 4096), (RBSIZ, 4096))
    expect(talk.announced[RBSIZ] >= 4096, talk.announced)
    for _ in range(3):
        talk.lives()


#= V2-057, V2-119, V2-135
def opens_with_no_properties(talk: Talk) -> None:
    talk.open().lives()


# With more than one credit, the server announces its properties first.
def opens_with_a_call(talk: Talk) -> None:
    talk.lives()
    expect(talk.announced, "the server has announced nothing")
    talk.lives()


#= V2-054
def opens_with_a_call_and_one_credit(talk: Talk) -> None:
    talk.lives(grant=1)
    expect(not talk.announced, "the Reply was to go first")
    talk.grant(4)
    talk.has_announced()
    talk.lives()


#= V2-067
def opens_with_a_long_call(talk: Talk) -> None:
    """There is room for 4096 bytes before the properties are agreed on."""
    xid = talk.caller.next_xid()
    call = rpc()(xid)
    talk.part(call + bytes(4096 - 36 - len(call)), xid)
    talk.replied(xid)
    talk.lives()


# The first Reply may have several parts, and each part takes a credit.
#= V2-039
def opens_with_a_call_of_a_long_reply(talk: Talk) -> None:
    xid = talk.ask(a_file(), grant=1)
    talk.grant(2)
    talk.grant(16)
    stream, parts = talk.parts_of(xid)
    expect(CONTENT in stream and parts >= 3, parts, "parts")
    talk.lives()
    expect(talk.announced, "the server has announced nothing")


def announces_itself_late(talk: Talk) -> None:
    talk.lives()
    talk.send(CONNPROP, properties((SBSIZ, 4096), (RBSIZ, 1024)))
    talk.lives()
    # The server has the properties now, and sends no longer message than they allow.
    stream, parts = talk.parts_of(talk.ask(a_file()))
    expect(CONTENT in stream and parts >= 10, parts, "parts")


#= V2-138
def properties_that_are_left_out(talk: Talk) -> None:
    """Properties that the first set leaves out have their defaults."""
    talk.open((SBSIZ, 8192))
    for _ in range(2):
        _, parts = talk.parts_of(talk.ask(a_file()))
        expect(parts == 3, parts, "parts")
        talk.send(CONNPROP, properties((RBSIZ, 1024)))


#= V2-124, V2-140
def properties_that_nobody_knows(talk: Talk) -> None:
    talk.send(CONNPROP, words(3, 77, 0, SBSIZ, 4, 4096, 78, 3) + b"abc\0")
    talk.silent()
    talk.lives()


#= V2-032, V2-139
def properties_in_parts(talk: Talk) -> None:
    whole = properties((SBSIZ, 4096), (RBSIZ, 4096), (RSSIZ, 65536))
    xid = talk.send(CONNPROP, whole[:16], flags=MORE)
    talk.silent()
    talk.send(CONNPROP, whole[16:20], xid, flags=MORE)
    talk.send(CONNPROP, whole[20:], xid)
    talk.has_announced()
    talk.lives()


#= V2-122, V2-123
def properties_that_are_malformed(talk: Talk) -> None:
    talk.open()
    for body in (b"", words(1), words(1, SBSIZ, 3) + b"abc\0",
                 words(2, SBSIZ, 4, 9, SBSIZ, 4, 9), words(0, 1)):
        talk.refused(talk.send(CONNPROP, body), BAD_XDR)


#= VA-001, VA-004
def announces_its_version(talk: Talk) -> None:
    """The announcement follows the message of RFC 8797 in the private data."""
    data = talk.connection.private_data
    expect(data[:5] == PRIVATE_DATA[:5] and data[8:16] == announcement(2), data.hex())


#= VA-005, VA-006, VA-010
def announcements_of_all_kinds(talk: Talk) -> None:
    """A client may open with either version, independently of its announcement. Without an announcement of
    version 2, the server has Receives of the length of version 1."""
    longest = talk.open().announced[RBSIZ]
    for private_data, most in (
            (b"", 4096), (PRIVATE_DATA, 4096), (bytes(range(50)), 4096),
            (PRIVATE_DATA + announcement(0), 4096), (PRIVATE_DATA + announcement(1), 4096),
            (PRIVATE_DATA + announcement(3), longest), (announcement(2), longest),
            (announcement(2) + PRIVATE_DATA, longest),
            (bytes(13) + announcement(2) + bytes(range(30)), longest),
            (PRIVATE_DATA + announcement(2)[:5], 4096), (PRIVATE_DATA + announcement(2, 2), 4096),
            (PRIVATE_DATA + announcement(2)[:6] + b"\xff\xff", longest)):
        other = Talk(talk.caller, private_data=private_data).open()
        expect(other.announced[RBSIZ] == most, private_data.hex(), other.announced)
        other.lives()
        talk.caller.connect(private_data=private_data).lives()
