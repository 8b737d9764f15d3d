#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A client that has to prove its identity, and does or does not (version 2 of RPC-over-RDMA).

usage: hostauth.py SERVER [PORT [NAME...]]

KEY in the environment is the key that SERVER has for this client. NAME is the beginning of a test's
name.
"""

import os
import sys
import time

from collections.abc import Sequence
from typing import Self

from pyverbs.pyverbs_error import PyverbsError

from sharedkey import CLIENT, HELLO, HOSTAUTH, SERVER, End, material, proof, property_set, said
from verbs import waiting
from wire import SECONDS, Lost, words

from misuse.base import expect
from misuse.client import Caller
from misuse.nfs import rpc

from misuse2.run import run, tests_of
from misuse2.talk import CONNPROP, MORE, Talk, ends

KEY = os.environ.get("KEY", "").encode()
# The seconds for which a client need not announce its properties: twice the time for an answer.
PATIENCE = 10


class Keyed(Talk):
    """A connection on which both sides prove their identity."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self.nonce, self.server_nonce = os.urandom(32), b""
        self.ends = self.connection.ends()

    def material(self, which: int, *octets: bytes, flags: int = 0) -> int:
        return self.send(CONNPROP, property_set(said(which, *octets)), flags=flags)

    def material_of_server(self) -> bytes:
        """Receives the proof of the server."""
        for _ in waiting(SECONDS):
            expect(self.hear(0) is None, "nothing was to be said")
            if HOSTAUTH in self.announced:
                # A property that is missing has its default value.
                expect(sorted(self.announced) == [1, 2, 3, 4, 5, HOSTAUTH], self.announced)
                return self.server_material
        return b""

    def challenged(self) -> Self:
        """Sends the first message and receives the proof of the server."""
        self.open()
        self.material(HELLO, self.nonce)
        return self.judged()

    def judged(self) -> Self:
        answer = self.material_of_server()
        self.server_nonce = answer[8:40]
        expect(answer == said(SERVER, self.server_nonce, self.proof(SERVER)), "no proof:", answer.hex())
        return self

    def proof(self, which: int, key: bytes = KEY, between: Sequence[End] | None = None) -> bytes:
        return proof(key, which, (self.nonce, self.server_nonce), between or self.ends)

    def proven(self) -> Self:
        self.material(CLIENT, self.proof(CLIENT))
        return self

    def well(self) -> None:
        self.challenged().proven().lives()


#= V2-134, V2-197
def proves_it(talk: Keyed) -> None:
    talk.well()
    for _ in range(3):
        talk.lives()


def is_given_up(talk: Keyed, begun: float) -> None:
    """Waits for the end of the time for the proof. The server sends nothing more and ends the connection."""
    try:
        for _ in waiting(PATIENCE + SECONDS):
            expect(talk.connection.next_message() is None, "nothing was to be said")
            if talk.connection.is_over():
                break
            time.sleep(0.1)
    except (Lost, PyverbsError):
        pass
    lived = time.monotonic() - begun
    expect(PATIENCE - 1 < lived < PATIENCE + SECONDS, "the server has waited for", lived, "seconds")


#= V2-135
def nothing_is_executed_before(talk: Keyed) -> None:
    """Sends a Call before the hello, between hello and proof, and in version 1. The server answers no Call."""
    begun = time.monotonic()
    early, old = Keyed(talk.caller), Keyed(talk.caller)
    early.open().ask()
    old.raw(words(7, 1, 32, 0, 0, 0, 0) + rpc()(7))
    talk.open()
    talk.material(HELLO, talk.nonce)
    talk.judged()
    talk.ask()
    talk.balance = 1
    talk.proven()
    early.balance = 1
    early.material(HELLO, early.nonce)
    for given_up in (talk, early, old):
        is_given_up(given_up, begun)


#= V2-032, V2-134, V2-139
def material_in_parts(talk: Keyed) -> None:
    whole = property_set(said(HELLO, talk.nonce))
    talk.open()
    xid = talk.send(CONNPROP, whole[:20], flags=MORE)
    talk.send(CONNPROP, whole[20:], xid)
    talk.judged().proven().lives()


def material_in_the_first_message(talk: Keyed) -> None:
    talk.send(CONNPROP, words(2, 2, 4, 4096) + material(said(HELLO, talk.nonce)))
    talk.has_announced()
    talk.judged().proven().lives()


def a_proof_with_another_key(talk: Keyed) -> None:
    talk.challenged()
    ends(talk, lambda: talk.material(CLIENT, talk.proof(CLIENT, KEY + b"x")))


def the_proof_of_the_server(talk: Keyed) -> None:
    talk.challenged()
    ends(talk, lambda: talk.material(CLIENT, talk.proof(SERVER)))


def a_proof_of_another_channel(talk: Keyed) -> None:
    """Sends proofs of another address, port or queue pair on either side, and with the sides exchanged."""
    client, server = talk.ends
    for between in ((client._replace(address="192.0.2.66"), server),
                 (client._replace(port=client.port ^ 1), server),
                 (client._replace(queue_pair=client.queue_pair ^ 1), server),
                 (client, server._replace(address="2001:db8::66")),
                 (client, server._replace(port=server.port ^ 1)),
                 (client, server._replace(queue_pair=server.queue_pair ^ 1)),
                 (server, client)):
        talk = Keyed(talk.caller)
        talk.challenged()
        other = talk.proof(CLIENT, between=between)
        # ends() calls the function at once.
        # pylint: disable-next=cell-var-from-loop
        ends(talk, lambda: talk.material(CLIENT, other))


def a_proof_without_hello(talk: Keyed) -> None:
    talk.open()
    talk.server_nonce = bytes(32)
    ends(talk, lambda: talk.material(CLIENT, talk.proof(CLIENT)))


def the_proof_of_another_connection(talk: Keyed) -> None:
    talk.challenged()
    other = Keyed(talk.caller)
    other.nonce = talk.nonce
    other.challenged()
    expect(other.server_nonce != talk.server_nonce, "the server repeats itself")
    ends(talk, lambda: talk.material(CLIENT, other.proof(CLIENT)))


def hello_twice(talk: Keyed) -> None:
    talk.challenged()
    ends(talk, lambda: talk.material(HELLO, talk.nonce))


def material_of_another_mechanism(talk: Keyed) -> None:
    talk.open()
    ends(talk, lambda: talk.send(CONNPROP, property_set(words(1, 2, 3))))


#= D-29
def material_that_is_no_xdr(talk: Keyed) -> None:
    ends(talk, lambda: talk.send(CONNPROP, words(1, HOSTAUTH, 8) + b"tokenn12"))


def material_that_is_cut(talk: Keyed) -> None:
    talk.open()
    ends(talk, lambda: talk.material(HELLO, talk.nonce[:16]))


def material_after_the_proof(talk: Keyed) -> None:
    talk.well()
    ends(talk, lambda: talk.material(HELLO, talk.nonce))


def who_says_nothing_is_given_up(talk: Keyed) -> None:
    """Sends grants, but no authentication material. The server ends the connection when the time is over.

    A Send to a server that has ended the connection completes only after all its repetitions, so no grant is sent
    in the last second."""
    begun = time.monotonic()
    talk.open()
    try:
        for _ in waiting(PATIENCE + SECONDS):
            if talk.connection.is_over():
                break
            if time.monotonic() < begun + PATIENCE - 1:
                talk.grant(1)
            time.sleep(0.5)
    except (Lost, PyverbsError):
        pass
    lived = time.monotonic() - begun
    expect(PATIENCE - 1 < lived < PATIENCE + SECONDS, "the server has waited for", lived, "seconds")


if __name__ == "__main__":
    sys.exit(run(tests_of(sys.modules[__name__]), __doc__, Keyed))
