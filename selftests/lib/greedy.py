#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Clients that prevent the server from ending their Calls, and a client that measures the effect on others.

usage: greedy.py SERVER PORT hold VERSION HOW READY STOP
       greedy.py SERVER PORT take PAUSE
       greedy.py SERVER PORT watch SECONDS FILE...

`hold` opens 16 connections of a VERSION of RPC-over-RDMA. Each sends 8 Calls and prevents the server from
ending them. HOW selects the method:

    no_credits   version 2: grants one credit, which the server takes to announce itself
    few_credits  version 2: grants two more, for the first parts of a Reply in three parts
    no_receives  has no Receive, and its device makes the server's device repeat messages for ever
    slow_reads   sends WRITEs whose data lies in memory of many Segments; the link is slow

Then it makes the file READY. When the file STOP exists, it does the step that it left out, and each Call gets
its Reply. It fails if STOP is missing after 25 seconds, because the server closes connections whose Replies have
waited for 30 seconds. With STOP "never" the server must close all connections, after 30 seconds and not before.

`take` is a client of version 2 that receives a Reply in many messages, and grants the credit for each after
PAUSE seconds. The Reply takes longer than the timeout of the server for a Reply without progress.

`watch` calls NULL, and requests the attributes of each FILE, repeatedly for SECONDS, and prints the longest
time. It fails if NULL takes two seconds, or another answer eight. FILE in the environment is as for caller.py,
without "link".
"""

import os
import pathlib
import struct
import sys
import time

from pyverbs.pyverbs_error import PyverbsError

from verbs import waiting
from wire import PRIVATE_DATA, SECONDS, Lost, announcement, words

from misuse.base import Wrong, expect
from misuse.client import Caller, Client, lists_of
from misuse.nfs import Rpc, reads, writes

from misuse2.talk import (CEILING, CONNPROP, MORE, MSG, NOMSG, PATIENCE, RESPONSE, SBSIZ,
                          properties)

CONNECTIONS, CALLS = 16, 8
# The Segments of a Reply's RDMA Writes and of a Call's RDMA Reads: two such Replies, or four such Calls, are
# more than a send queue has room for.
WRITTEN, READ = 220, 145
# The RDMA Reads that the server may have outstanding over a slow link.
FEW_READS = 4
# The limits for NULL, and for the attributes of a file, in seconds. A thread that a Call holds is free after 15
# seconds at the earliest. The repeated messages fill the queues of the link, and soft RoCE needs half a second for
# each lost frame of the node that has mounted the file.
NULL, ATTRIBUTES = 2, 8
# The number of Receives in the end.
ENOUGH = 64


class Greedy:
    """One connection."""

    def __init__(self, caller: Caller, version: int, how: str) -> None:
        self.version, self.how = version, how
        data = PRIVATE_DATA[:5] + bytes(1) + PRIVATE_DATA[6:]
        if version == 2:
            data += announcement(2)
        receives = 0 if how == "no_receives" else ENOUGH
        outstanding = FEW_READS if how == "slow_reads" else 16
        self.client = Client(caller, private_data=data, receives=receives, resources=outstanding)
        caller.kept.append(self.client)
        self.caller, self.announced, self.messages = caller, False, 0
        # The XIDs of the Calls. The value is true after the Reply.
        self.answered: dict[int, bool] = {}

    def header(self, kind: int, xid: int, grant: int, flags: int = 0) -> bytes:
        return words(xid, 2, CEILING << 16 | grant, kind, flags)

    def call(self, call: Rpc, lists: bytes, grant: int) -> bytes:
        xid = self.caller.next_xid()
        self.answered[xid] = False
        header = words(xid, 1, 32, MSG) if self.version == 1 else self.header(MSG, xid, grant) + words(0)
        return header + lists + call(xid)

    def open(self) -> None:
        """Announces itself in version 2, and grants the credits that the server needs to answer."""
        if self.version == 1:
            return
        grant = {"no_credits": 1, "take": 1, "few_credits": 3}.get(self.how, CEILING - 1)
        self.client.send(self.header(CONNPROP, self.caller.next_xid(), grant) + properties((SBSIZ, 4096)))
        if self.how != "no_receives":
            for _ in waiting(SECONDS):
                self.hear()
                if self.announced:
                    return
            raise Wrong("the server has announced nothing")

    def ask(self) -> None:
        """Sends the Calls. They grant nothing."""
        piece = self.client.piece
        if self.how == "slow_reads":
            # The second half is for the data, four bytes a Segment.
            call, half = writes(4 * READ), 1 << 20
            position = len(call(0))
            lists = lists_of([(position, piece(half + n * 64, 4)) for n in range(READ)])
        elif self.how == "no_receives":
            call, lists = reads((0, 4 * WRITTEN)), lists_of((), [[piece(n * 64, 4) for n in range(WRITTEN)]])
        else:
            call, lists = reads((0, 10000)), lists_of()
        self.client.post_all([self.call(call, lists, 0) for _ in range(CALLS)])

    def hear(self) -> None:
        """Receives the messages of the server."""
        while (message := self.client.next_message()) is not None:
            xid, _, _, kind = struct.unpack_from(">4I", message)
            flags = struct.unpack_from(">I", message, 16)[0] if self.version == 2 else RESPONSE
            if xid in self.answered:
                expect(kind in (MSG, NOMSG), "an error message:", message[:64].hex())
                self.messages += 1
                self.answered[xid] = not flags & MORE
            elif kind == CONNPROP:
                self.announced = True

    def grant(self, credits: int) -> None:
        self.client.post_all([self.header(NOMSG, 0, credits) + words(0) + lists_of()])

    def relent(self) -> None:
        """Does the step that was left out."""
        if self.how == "no_receives":
            for number in range(ENOUGH):
                self.client.post_receive(number)
        elif self.version == 2:
            self.grant(ENOUGH)

    def end(self) -> str:
        """Returns the sign of the end of the connection, or nothing. Receives the messages until then."""
        try:
            self.hear()
        except (Lost, PyverbsError) as error:
            return str(error)
        return "a disconnect" if self.client.is_disconnected() else ""

    def stands(self, begun: float) -> None:
        """Receives the messages. Expects that the connection has not ended."""
        end = self.end()
        expect(not end, "a connection has ended after", round(time.monotonic() - begun, 1), "seconds:", end)


def answered(clients: list[Greedy]) -> int:
    return sum(sum(client.answered.values()) for client in clients)


def hold(caller: Caller, version: int, how: str, ready: str, stop: str) -> int:
    clients = [Greedy(caller, version, how) for _ in range(CONNECTIONS)]
    for client in clients:
        client.open()
    pathlib.Path(ready + ".open").touch()
    while how == "slow_reads" and not pathlib.Path(ready + ".slow").exists():
        time.sleep(0.1)
    for client in clients:
        client.ask()
    begun = time.monotonic()
    pathlib.Path(ready).touch()
    if stop == "never":
        return closes(clients, begun)
    while not pathlib.Path(stop).exists():
        expect(time.monotonic() < begun + PATIENCE - 5, "the test is too slow: the server may close connections")
        for client in clients:
            client.stands(begun)
        time.sleep(0.1)
    early = answered(clients)
    relented = time.monotonic()
    print(early, "of", CONNECTIONS * CALLS, "Calls have had a Reply after", round(relented - begun, 1), "seconds")
    expect(early < CONNECTIONS * CALLS / 2, "most Calls have had a Reply")
    for client in clients:
        client.relent()
    for _ in waiting(4 * SECONDS):
        for client in clients:
            client.stands(begun)
        if answered(clients) == CONNECTIONS * CALLS:
            print("the last Reply came", round(time.monotonic() - relented, 1), "seconds later")
            return 0
    missing = {number: CALLS - sum(client.answered.values()) for number, client in enumerate(clients)}
    raise Wrong(f"the server owes Replies in the end: {missing}")


def closes(clients: list[Greedy], begun: float) -> int:
    """The server gives them up."""
    for _ in waiting(PATIENCE + 30):
        gone = [bool(client.end()) for client in clients]
        after = time.monotonic() - begun
        expect(after > PATIENCE - 5 or not any(gone), "a connection has ended after", after, "seconds only")
        if all(gone):
            print("all connections have ended after", round(after), "seconds")
            return 0
        time.sleep(0.2)
    raise Wrong(f"{gone.count(False)} connections stand after {round(after)} seconds")


def take(caller: Caller, pause: str) -> int:
    client = Greedy(caller, 2, "take")
    client.open()
    client.client.post_all([client.call(reads((0, 40000), name="large"), lists_of(), 0)])
    begun = time.monotonic()
    while not answered([client]):
        time.sleep(float(pause))
        client.stands(begun)
        before = client.messages
        client.grant(1)
        # The credit lets the Reply go on, and not the server's clock, which looks every five seconds.
        for _ in waiting(2):
            client.hear()
            if client.messages > before:
                break
        expect(client.messages == before + 1, client.messages - before, "messages for one credit")
    lasted = time.monotonic() - begun
    print(client.messages, "messages in", round(lasted), "seconds")
    expect(lasted > PATIENCE + 5, "that shows nothing")
    return 0


def watch(caller: Caller, seconds: str, *files: str) -> int:
    """Each in turn, ten times a second."""
    client = caller.connect()
    client.lives()
    longest = {"NULL": 0.0, **{file: 0.0 for file in files}}
    for _ in waiting(float(seconds)):
        for name in longest:
            begun = time.monotonic()
            if name == "NULL":
                client.lives()
            else:
                os.stat(name)
            longest[name] = max(longest[name], time.monotonic() - begun)
        time.sleep(0.1)
    print(", ".join(f"{name} has taken {took:.2f} s at most" for name, took in longest.items()))
    return int(longest["NULL"] >= NULL or max(longest.values()) >= ATTRIBUTES)


def main() -> int:
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    server, port, what, *rest = sys.argv[1:]
    caller = Caller(server, port)
    try:
        if what == "watch":
            return watch(caller, *rest)
        if what == "take":
            return take(caller, *rest)
        version, *rest = rest
        return hold(caller, int(version), *rest)
    except (Lost, Wrong, PyverbsError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    finally:
        caller.leave()


if __name__ == "__main__":
    sys.exit(main())
