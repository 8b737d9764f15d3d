# SPDX-License-Identifier: GPL-2.0
"""Credits, grants, and clients that take no Reply."""

import random
import time

from collections import Counter
from pathlib import Path

from verbs import SENDS
from wire import announcement

from .base import PRIVATE_DATA, Skip, case, expect
from .client import Client
from .nfs import reads, writes


# Flow control.

#= V1-039
@case()
def more_calls_than_credits(c: Client) -> None:
    messages = dict(c.message() for _ in range(250))
    expect(c.answers_to(list(messages.values())) == set(messages), "other Replies")


@case(slow=True)
def more_data_than_credits(c: Client) -> None:
    """Each Call has Read chunks of many Segments, and a Write chunk."""
    call = writes(4000)
    segments = [(len(call(0)), c.piece(0, 40))] * 100
    messages = [c.message(call, read=segments) for _ in range(60)]
    messages += [c.message(reads((0, 4000)), write=[[c.piece(1 << 16, 40)] * 100])
                 for _ in range(60)]
    random.Random(1).shuffle(messages)
    by_xid = dict(messages)
    expect(c.answers_to(list(by_xid.values())) == set(by_xid), "other Replies")


@case()
def credits_of_nothing_and_of_everything(c: Client) -> None:
    for credits in (0, 1, 0xFFFFFFFF):
        c.replies(credits=credits)


#= V1-034, V1-040, V1-125
@case()
def as_many_calls_as_credits(c: Client) -> None:
    """There is a Receive for each Call: this connection would end at the first RNR NAK."""
    other = c.caller.connect(patient=False)
    for _ in range(4):
        credits = other.replies(credits=0xFFFFFFFF).credits
        credits = min(credits, SENDS)
        other.send_at_once([other.message(credits=0xFFFFFFFF)[1] for _ in range(credits)])
        got = {expect(other.answer(), "no Reply").xid for _ in range(credits)}
        expect(len(got) == credits, len(got), "Replies")


#= V1-032, V1-033, V1-040
@case(stock="does not change the grant of a connection")
def a_grant_that_changes(c: Client) -> None:
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    before = c.caller.on_server("cat", setting).strip()
    try:
        for value in (8, 16384):
            c.caller.on_server("sh", "-c", f"echo {value} >{setting}")
            other = c.caller.connect(patient=False)
            for connection in (c, other):
                for _ in range(3):
                    granted = connection.replies(credits=0xFFFFFFFF).credits
                    expect(0 < granted <= value, granted, "credits, with a setting of", value)
                count = min(granted, SENDS)
                connection.send_at_once([connection.message()[1] for _ in range(count)])
                answers = [expect(connection.answer(), "no Reply") for _ in range(count)]
                expect(len({answer.xid for answer in answers}) == count, "Replies")
            other.close()
    finally:
        c.caller.on_server("sh", "-c", f"echo {before} >{setting}")


@case(stock="has the messages repeated after 655 ms")
def messages_without_a_receive_are_repeated_soon(c: Client) -> None:
    """The device of the client repeats them after 0.96 ms. The connection manager's default is 655 ms."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    counters = "/sys/class/infiniband/*/ports/1/hw_counters/send_rnr_err"
    before = c.caller.on_server("cat", setting).strip()

    def without_receive() -> int:
        return sum(map(int, c.caller.on_server("sh", "-c", f"cat {counters} 2>/dev/null || :").split()))

    if not c.caller.on_server("sh", "-c", f"ls {counters} 2>/dev/null || :"):
        raise Skip("the server's device does not count messages without a Receive")
    c.caller.on_server("sh", "-c", f"echo 4 >{setting}")
    try:
        other = c.caller.connect()
        times = []
        for _ in range(8):
            count = without_receive()
            begun = time.monotonic()
            other.send_at_once([other.message()[1] for _ in range(SENDS)])
            took = time.monotonic() - begun
            for _ in range(SENDS):
                expect(other.answer(), "no Reply")
            if without_receive() > count:
                times.append(took)
        other.close()
    finally:
        c.caller.on_server("sh", "-c", f"echo {before} >{setting}")
    expect(times, "each message found a Receive")
    expect(min(times) < 0.6, f"{min(times):.3f} s at least")


def credits_in_use(connection: Client, times: int = 4) -> int:
    """Returns the grant to a client that uses its credits TIMES times."""
    granted = connection.replies(credits=0xFFFFFFFF).credits
    for _ in range(times):
        count = min(granted, SENDS)
        connection.send_at_once([connection.message(credits=0xFFFFFFFF)[1]
                                 for _ in range(count)])
        answers = [expect(connection.answer(), "no Reply") for _ in range(count)]
        expect(len({answer.xid for answer in answers}) == count, "Replies")
        granted = answers[-1].credits
    return granted


#= V1-032, V1-033, V1-035
#= V1-040
@case(stock="does not change the grant of a connection")
def a_grant_that_is_raised(c: Client) -> None:
    """The grant follows the setting up to twice its previous value, for which the send queue has room, and
    down."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    before = c.caller.on_server("cat", setting).strip()

    def set_to(value: int | str) -> None:
        c.caller.on_server("sh", "-c", f"echo {value} >{setting}")

    try:
        set_to(16)
        other = c.caller.connect(patient=False)
        for value, most in ((16, 16), (24, 24), (16384, 32), (12, 12), (32, 32)):
            set_to(value)
            granted = credits_in_use(other)
            expect(granted == most, granted, "credits, with a setting of", value)
        other.close()
    finally:
        set_to(before)


@case(counted=False, named=True)
def receives_of_the_version_that_is_spoken(c: Client) -> None:
    """A client announces version 2 and speaks version 1. The server frees the Receives of 16 KiB as they
    are used."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    usual = c.caller.on_server("cat", setting).strip()

    def free() -> int:
        """Returns the free pages of the server, including the pages in the caches of its processors."""
        return sum(map(int, c.caller.on_server(
            "sh", "-c", "echo 3 >/proc/sys/vm/drop_caches; sleep 0.2; awk "
            "'$1 == \"nr_free_pages\" || $1 == \"count:\" { print $2 }' /proc/zoneinfo").split()))

    def ask(times: int) -> None:
        for _ in range(times):
            for other in others:
                other.lives()

    # The number of Receives stays at its initial value.
    c.caller.on_server("sh", "-c", f"echo 8 >{setting}")
    try:
        # About the number of unauthenticated clients that nfsd allows.
        data = PRIVATE_DATA + announcement(2)
        others = [c.caller.connect(patient=False, private_data=data) for _ in range(60)]
        ask(2)
        before = free()
        ask(20)
        more = free() - before
        expect(more > len(others) * 17 * 3 // 2, "only", more, "pages are free that were not")
        for other in others:
            other.close()
    finally:
        c.caller.on_server("sh", "-c", f"echo {usual} >{setting}")


#= V1-032, V1-033, V1-040
@case(counted=False)
def a_grant_from_the_first_message(c: Client) -> None:
    """An answer before the properties are settled grants no more than the setting, either."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    before = c.caller.on_server("cat", setting).strip()
    c.caller.on_server("sh", "-c", f"echo 4 >{setting}")
    try:
        other = c.caller.connect(patient=False)
        other.ask(version=9)
        granted = expect(other.answer(), "no answer").credits
        expect(0 < granted <= 4, granted, "credits, with a setting of 4")
        other.close()
    finally:
        c.caller.on_server("sh", "-c", f"echo {before} >{setting}")


@case(counted=False)
def never_takes_a_reply(c: Client) -> None:
    """The client posts no Receive: its device sends RNR NAKs, and the server's device ends the connection."""
    other = c.caller.connect(receives=0, rnr_retry=0)
    other.post_all([other.message()[1] for _ in range(40)])
    for _ in range(10):
        c.lives()


def device_counters() -> Counter[str]:
    """Returns the counters of the RDMA devices of this side."""
    counters: Counter[str] = Counter()
    for file in Path("/sys/class/infiniband").glob("*/ports/1/hw_counters/*"):
        if file.name != "lifespan":
            counters[file.name] += int(file.read_text())
    return counters


@case(counted=False, slow=True)
def never_takes_a_reply_and_says_nothing(c: Client) -> None:
    """Its device makes the device of the server repeat messages for ever. No other client may have to wait
    for it."""
    others = [c.caller.connect(receives=0, rnr_retry=7) for _ in range(2)]
    for other in others:
        under_way = 0
        for _ in range(40):
            if under_way + 32 <= SENDS:
                other.post_all([other.message(reads((0, 100)), write=[[other.piece(0, 100)]])[1]
                                for _ in range(32)])
                under_way += 32
            time.sleep(0.02)
            under_way -= other.reap()
    for _ in range(20):
        begun, running, before = time.monotonic(), time.process_time(), device_counters()
        c.lives()
        took, running = time.monotonic() - begun, time.process_time() - running
        expect(took < 2, f"a NULL took {took:.2f} s, {running:.2f} s of them on a processor;",
               "counters of the client's device:", device_counters() - before)
        time.sleep(0.05)
    for other in others:
        other.close()
