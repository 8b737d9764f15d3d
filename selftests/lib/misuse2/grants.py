# SPDX-License-Identifier: GPL-2.0
"""Credits and grants."""

from wire import words

from misuse.base import expect
from misuse.nfs import rpc

from .talk import CEILING, CONNPROP, MORE, MSG, NOMSG, NO_LISTS, SBSIZ, Talk, a_file, properties


#= V2-044, V2-047
def a_credit_for_each_message(talk: Talk) -> None:
    talk.open()
    for _ in range(20):
        xids = {talk.ask() for _ in range(min(talk.balance, 30))}
        expect(xids, "no credits")
        expect({expect(talk.hear(), "no Reply").xid for _ in xids} == xids, "other Replies")
    expect(talk.balance >= talk.ceiling // 2, talk.balance, "credits of", talk.ceiling)


#= V2-045
def a_grant_from_the_first_message(talk: Talk) -> None:
    """The grants before the first Reply follow the setting max_requests."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    usual = talk.open().ceiling
    before = talk.caller.on_server("cat", setting).strip()
    talk.caller.on_server("sh", "-c", f"echo 4 >{setting}")
    try:
        ceiling = Talk(talk.caller).open().ceiling
        expect(ceiling == usual - 4, ceiling, "credits at a time, where there were", usual)
    finally:
        talk.caller.on_server("sh", "-c", f"echo {before} >{setting}")


#= V2-038, V2-047, V2-187
def replies_wait_for_credits(talk: Talk) -> None:
    talk.send(CONNPROP, properties((SBSIZ, 4096)), grant=1)
    talk.has_announced()
    for _ in range(2):
        # Each Call grants the credit for its Reply.
        xids = {talk.ask(grant=1) for _ in range(5)}
        expect({expect(talk.hear(), "no Reply").xid for _ in xids} == xids, "other Replies")


#= V2-049
def a_lower_ceiling(talk: Talk) -> None:
    """The server obeys a lower ceiling at once, although it has had more credits before."""
    talk.open()
    talk.lives()
    keeps_to_a_lower_ceiling(talk, CEILING)


#= V2-049
def a_lower_ceiling_while_sends_have_no_completion(talk: Talk) -> None:
    """The server counts Sends in flight whose completions it has not asked for. With several Send buffers,
    it asks for a completion once in half a ceiling."""
    for lone_replies in range(1, 5):
        talk.open()
        xids = {talk.ask() for _ in range(8)}
        expect({expect(talk.hear(), "no Reply").xid for _ in xids} == xids, "other Replies")
        for _ in range(lone_replies):
            talk.lives()
        keeps_to_a_lower_ceiling(talk, CEILING)
        talk = Talk(talk.caller)


def keeps_to_a_lower_ceiling(talk: Talk, before: int) -> None:
    """Makes a Call with a ceiling and a grant of one message, whose Reply is three messages. The ceiling of
    BEFORE holds again afterwards."""
    xid, call = talk.caller.next_xid(), a_file()
    talk.raw(words(xid, 2, 1 << 16 | 1, MSG, 0, 0) + NO_LISTS + call(xid))
    # Of the three parts, each waits for the credit of the one before.
    for number in range(3):
        part = talk.replied(xid)
        expect(bool(part.flags & MORE) == (number < 2), part)
        talk.silent()
        talk.connection.send(words(0, 2, 1 << 16 | 1, NOMSG, 0, 0) + NO_LISTS)
    talk.given = 0
    talk.grant(before)
    talk.lives()


#= V2-052, D-10
def a_part_does_not_grant_the_receive_of_a_call(talk: Talk) -> None:
    """A Reply in parts waits for a credit, which a second Call brings. The part that the server sends then must
    not grant the Receive of that Call, which the server holds until its Reply."""
    talk.open()
    talk.lives()
    xid, call = talk.caller.next_xid(), a_file()
    one = 1 << 16 | 1
    talk.raw(words(xid, 2, one, MSG, 0, 0) + NO_LISTS + call(xid))
    expect(talk.replied(xid).granted == 0, "the Receive of the first Call was granted")
    talk.silent()
    other = talk.caller.next_xid()
    talk.raw(words(other, 2, one, MSG, 0, 0) + NO_LISTS + rpc()(other))
    expect(talk.replied(xid).granted == 0, "the Receive of the second Call was granted")
    for waiting_for in xid, other:
        talk.silent()
        talk.connection.send(words(0, 2, one, NOMSG, 0, 0) + NO_LISTS)
        expect(talk.replied(waiting_for).granted == 1, "the Reply has another grant")
    talk.given = 0
    talk.grant(CEILING)
    talk.lives()


#= V2-051, V2-053
def grants_without_payload(talk: Talk) -> None:
    talk.open()
    for _ in range(50):
        talk.grant(1)
    talk.lives()
