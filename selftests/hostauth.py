#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A client that has to prove who it is, and does or does not (version 2 of RPC-over-RDMA).

usage: hostauth.py SERVER [PORT [NAME...]]

KEY in the environment is the key that SERVER has for this client. NAME is the beginning of a test's
name.
"""

import os
import sys
import time

from pyverbs.pyverbs_error import PyverbsError

from caller import expect, rpc
from caller2 import CONNPROP, MORE, SYSTEM, Talk, ends, run, tests_of
from sharedkey import CLIENT, HELLO, HOSTAUTH, SERVER, proof, property_set, said
from verbs import waiting
from wire import SECONDS, Lost, words

KEY = os.environ.get("KEY", "").encode()
# For how many seconds a client may be silent about itself: twice the time for an answer.
PATIENCE = 10


class Keyed(Talk):
    """A connection on which both sides prove who they are."""

    def __init__(self, caller):
        super().__init__(caller)
        self.nonce, self.server_nonce = os.urandom(32), None

    def material(self, which, *octets, flags=0):
        return self.send(CONNPROP, property_set(said(which, *octets)), flags=flags)

    def material_of_server(self):
        """What the server says to prove who it is."""
        for _ in waiting(SECONDS):
            expect(self.hear(0) is None, "nothing was to be said")
            if HOSTAUTH in self.announced:
                return self.announced[HOSTAUTH]
        return b""

    def challenged(self):
        """Says hello; the server proves who it is."""
        self.open()
        self.material(HELLO, self.nonce)
        return self.judged()

    def judged(self):
        answer = self.material_of_server()
        self.server_nonce = answer[8:40]
        expect(answer == said(SERVER, self.server_nonce, self.proof(SERVER)), "no proof:", answer.hex())
        return self

    def proof(self, which, key=KEY):
        return proof(key, which, self.nonce, self.server_nonce)

    def proven(self):
        self.material(CLIENT, self.proof(CLIENT))
        return self

    def well(self):
        self.challenged().proven().lives()


#= V2-134, V2-197
def proves_it(talk):
    talk.well()
    for _ in range(3):
        talk.lives()


#= V2-135
def nothing_is_executed_before(talk):
    """Neither before hello nor between hello and the proof."""
    talk.open()
    talk.error(talk.ask(), SYSTEM)
    talk.material(HELLO, talk.nonce)
    talk.judged()
    talk.error(talk.ask(), SYSTEM)
    talk.proven().lives()


#= V2-032, V2-134, V2-139
def material_in_parts(talk):
    whole = property_set(said(HELLO, talk.nonce))
    talk.open()
    xid = talk.send(CONNPROP, whole[:20], flags=MORE)
    talk.send(CONNPROP, whole[20:], xid)
    talk.judged().proven().lives()


def material_in_the_first_message(talk):
    talk.send(CONNPROP, property_set(said(HELLO, talk.nonce)))
    talk.has_announced()
    talk.judged().proven().lives()


def a_proof_with_another_key(talk):
    talk.challenged()
    ends(talk, lambda: talk.material(CLIENT, talk.proof(CLIENT, KEY + b"x")))


def the_proof_of_the_server(talk):
    talk.challenged()
    ends(talk, lambda: talk.material(CLIENT, talk.proof(SERVER)))


def a_proof_without_hello(talk):
    talk.open()
    talk.server_nonce = bytes(32)
    ends(talk, lambda: talk.material(CLIENT, talk.proof(CLIENT)))


def the_proof_of_another_connection(talk):
    talk.challenged()
    other = Keyed(talk.caller)
    other.nonce = talk.nonce
    other.challenged()
    expect(other.server_nonce != talk.server_nonce, "the server repeats itself")
    ends(talk, lambda: talk.material(CLIENT, other.proof(CLIENT)))


def hello_twice(talk):
    talk.challenged()
    ends(talk, lambda: talk.material(HELLO, talk.nonce))


def material_of_another_mechanism(talk):
    talk.open()
    ends(talk, lambda: talk.send(CONNPROP, property_set(words(1, 2, 3))))


def material_that_is_cut(talk):
    talk.open()
    ends(talk, lambda: talk.material(HELLO, talk.nonce[:16]))


def material_after_the_proof(talk):
    talk.well()
    ends(talk, lambda: talk.material(HELLO, talk.nonce))


#= V2-135
def a_call_of_version_1(talk):
    ends(talk, lambda: talk.raw(words(7, 1, 32, 0, 0, 0, 0) + rpc()(7)))


def who_says_nothing_is_given_up(talk):
    """Even one that speaks of other things."""
    begun = time.monotonic()
    talk.open()
    try:
        for _ in waiting(PATIENCE + SECONDS):
            if talk.connection.is_over():
                break
            talk.grant(1)
            time.sleep(0.5)
    except (Lost, PyverbsError):
        pass
    lived = time.monotonic() - begun
    expect(PATIENCE - 1 < lived < PATIENCE + SECONDS, "the server has waited for", lived, "seconds")


if __name__ == "__main__":
    sys.exit(run(tests_of(__name__), __doc__, Keyed))
