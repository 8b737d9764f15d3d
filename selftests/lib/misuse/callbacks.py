# SPDX-License-Identifier: GPL-2.0
"""Calls of the server to a client."""

import random
import struct
import time

from typing import TYPE_CHECKING, Union

from verbs import waiting
from wire import RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, Decoder, Lost, opaque, words

from .base import ERR_CHUNK, ERR_VERS, Wrong, case, expect
from .client import Answer, Client, lists_of
from .nfs import accepted, compound_41, good, path, writes

if TYPE_CHECKING:
    from misuse2.talk import Message, Talk


# Calls of the server.

class Session:
    """An NFSv4.1 client with a delegation, which the server has to recall."""

    def __init__(self, c: Union[Client, "Talk"], owner: str) -> None:
        self.c, self.sequence = c, 1
        verifier = random.randbytes(8)
        at = good(c.replies(compound_41(words(42) + verifier + opaque(owner.encode())
                                        + words(0, 0, 0))).payload)
        at.at += 8
        self.client = at.data[at.at:at.at + 8]
        sequence = struct.unpack_from(">I", at.data, at.at + 8)[0]
        channel = words(0, 65536, 65536, 4096, 16, 8, 0)
        at = good(c.replies(compound_41(
            words(43) + self.client + words(sequence, 2) + channel
            + words(0, 4096, 4096, 0, 2, 2, 0) + words(0x40000000, 1, 0))).payload)
        at.at += 8
        self.id = at.data[at.at:at.at + 16]
        self.compound(words(58, 0))

    def compound(self, *operations: bytes, wanted: int = 0) -> Decoder:
        sequence = words(53) + self.id + words(self.sequence, 0, 0, 0)
        self.sequence += 1
        answer = self.c.replies(compound_41(sequence, *operations))
        at, verdict = accepted(answer.payload)
        expect(verdict == 0, "not executed")
        status = at.word()
        expect(status == wanted, "NFS error", status)
        return at

    def is_lent(self, name: str) -> bool:
        """Opens a file for reading. Returns whether the server grants a delegation."""
        *directory, last = path(name)
        claim = words(0) + last[4:]
        at = self.compound(*directory, words(18, 0, 1 | 0x100, 0) + self.client
                           + opaque(b"owner") + words(0) + claim)
        at.opaque()
        # SEQUENCE, the operations of DIRECTORY, and the stateid, change and flags of OPEN.
        at.at += 4 + 44 + 8 * len(directory) + 8 + 16 + 20 + 4
        attributes = at.word()
        at.at += 4 * attributes
        return at.word() == 1

    def lent(self) -> str:
        """The name of a file. nfsd lends none before it has looked at the way back, and none for a
        while that was recalled, or that has the hash of such a one."""
        name = ""
        for attempt in range(100):
            if attempt % 20 == 0:
                name = f"lent{self.c.caller.next_lent()}"
            if self.is_lent(name):
                return name
            time.sleep(0.1)
        raise Wrong("nothing is lent")


def asked_back(c: Client, count: int = 1, seconds: float = 10) -> int:
    """Waits for Calls of the server."""
    for _ in waiting(seconds):
        if len(c.calls) >= count:
            break
        c.answer(0.01)
    return len(c.calls)


def lends(c: Client, count: int) -> tuple[Session, list[str]]:
    """Returns a session, and names of files for which it has delegations."""
    c.caller.on_server("sh", "-c", "echo Y >/proc/fs/lockd/nlm_end_grace")
    session = Session(c, f"caller {c.caller.next_xid()}")
    return session, [session.lent() for _ in range(count)]


def somebody_writes(c: Client, names: list[str]) -> None:
    """Writes to files for which another client, which waits for Calls on C, has delegations."""
    conflict = c.caller.connect()
    expect(not c.calls, "a Call of the server too early")
    for name in names:
        conflict.ask(writes(4, data=b"data", name=name))
    expect(asked_back(c), "no Call of the server")


def recalled(c: Client, count: int = 1) -> Session:
    """Returns a session with delegations that the server has recalled."""
    session, names = lends(c, count)
    somebody_writes(c, names)
    return session


def callback_reply(call: Union[Answer, "Message"], body: bytes, credits: int = 4) -> bytes:
    return words(call.xid, 1, credits, RDMA_MSG) + lists_of() + words(call.xid, 1, 0, 0, 0) + body


def recall_reply(call: Union[Answer, "Message"], status: int = 0) -> bytes:
    """Returns the Reply to CB_SEQUENCE and CB_RECALL."""
    at = Decoder(call.payload).arguments()
    at.opaque()
    at.at += 12
    expect(at.word() == 11, "no CB_SEQUENCE:", call.payload[:80].hex())
    sequence = at.data[at.at:at.at + 28]
    return callback_reply(call, words(0, 0, 0, 2, 11, 0) + sequence + sequence[-4:]
                          + words(4, status))


#= V1-119, V1-121, V1-126
#= V1-127, NFS-053
@case(counted=False)
def callbacks(c: Client) -> None:
    """The server sends callbacks inline once there is a session, and has at most one outstanding."""
    c = c.caller.connect(patient=False)
    recalled(c, 2)
    call = c.calls[-1]
    expect(not call.writes and call.reply is None, "chunks in a callback:", call.message.hex())
    expect(call.credits, "no credits asked for")
    at = Decoder(call.payload)
    expect([at.word() for _ in range(6)] == [call.xid, 0, 2, 0x40000000, 1, 1],
           call.payload[:80].hex())
    # The Receive for the Reply comes in addition to the Receives for Calls.
    c.answers_to([c.message()[1] for _ in range(call.credits)])
    expect(asked_back(c, 2, 0.3) == 1, "two Calls with one credit")
    c.send(recall_reply(call))
    expect(asked_back(c, 2) == 2, "no second Call")
    c.lives()


#= V1-121, NFS-049
@case(counted=False)
def callbacks_with_odd_answers(c: Client) -> None:
    """Replies that are cut short, Replies with an unknown XID, repeated Replies, and Replies with surplus
    bytes."""
    recalled(c)
    call = c.calls[-1]
    for answer in (callback_reply(call, b"")[:-8],
                   words(call.xid ^ 1, 1, 4, RDMA_MSG) + lists_of() + words(call.xid ^ 1, 1, 0, 0),
                   words(call.xid, 1, 0, RDMA_ERROR, 7)):
        c.send(answer)
        c.dropped()
    # The XID of the header and the XID of the RPC message differ.
    c.send(words(call.xid, 1, 4, RDMA_MSG) + lists_of() + words(call.xid ^ 2, 1, 0, 0))
    c.refused(call.xid)
    for _ in range(3):
        c.send(callback_reply(call, words(0, 0) + bytes(3900)))
    c.lives()


@case(counted=False)
def callbacks_refused(c: Client) -> None:
    """The client refuses a callback by an error message, and by an error message of another version."""
    for body in (words(1, 1, 4, RDMA_ERROR, ERR_CHUNK), words(1, 1, 4, RDMA_ERROR, ERR_VERS, 1, 1)):
        other = c.caller.connect()
        recalled(other)
        other.send(words(other.calls[-1].xid) + body[4:])
        other.lives()


@case(counted=False)
def callbacks_with_chunks(c: Client) -> None:
    """A Reply to a callback with a chunk is dropped."""
    recalled(c)
    call = c.calls[-1]
    piece = c.piece(0, 64)
    for options in (lists_of([(8, piece)]), lists_of((), [[piece]]), lists_of((), (), [piece])):
        c.send(words(call.xid, 1, 4, RDMA_MSG) + options + words(call.xid, 1, 0, 0, 0, 0))
        c.dropped()
    # A message of type RDMA_NOMSG counts as a Call.
    c.send(words(call.xid, 1, 4, RDMA_NOMSG) + lists_of((), (), [piece]))
    c.refused(call.xid)


@case(counted=False)
def callbacks_to_who_leaves(c: Client) -> None:
    """The owner of a delegation binds its session to another connection while a callback is outstanding."""
    session = recalled(c)
    other = c.caller.connect()
    # BIND_CONN_TO_SESSION for the fore and the back channel. Without a back channel, nfsd gives up callbacks.
    good(other.replies(compound_41(words(41) + session.id + words(3, 0))).payload)
    c.close()
    expect(asked_back(other), "not asked again")
    other.send(recall_reply(other.calls[-1]))
    other.lives()


def is_gone(c: Client) -> bool:
    try:
        return c.is_over()
    except Lost:
        return True


def never_answers(c: Client) -> tuple[Session, list[str]]:
    """A client that is called until the server ends its connection: its session, and the name of a file
    for which it has a delegation still."""
    other = c.caller.connect()
    session, names = lends(other, 3)
    somebody_writes(other, names[:2])
    begun = time.monotonic()
    for _ in waiting(60):
        if is_gone(other):
            break
        time.sleep(0.1)
    lived = time.monotonic() - begun
    expect(3 < lived < 60, "the connection has lived", lived, "s")
    return session, names[2:]


#= V1-036, V1-037
@case(stock="it calls a client again that has no credit for that", counted=False, slow=True)
def callbacks_without_answers(c: Client) -> None:
    """Only a Reply brings a credit. A client that sends no Reply is not called any more."""
    never_answers(c)


@case(stock="it calls a client again that has no credit for that", counted=False, slow=True)
def callbacks_never_answered(c: Client) -> None:
    """A client that connects again is called again."""
    session, names = never_answers(c)
    again = c.caller.connect()
    good(again.replies(compound_41(words(41) + session.id + words(3, 0))).payload)
    # nfsd gives up a recall that begins while there is no back channel.
    somebody_writes(again, names)
    again.send(recall_reply(again.calls[-1]))
    again.lives()
