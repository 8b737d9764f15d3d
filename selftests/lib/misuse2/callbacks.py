# SPDX-License-Identifier: GPL-2.0
"""Calls of the server to a client."""

from verbs import waiting
from wire import SECONDS, words

from misuse.base import Wrong, expect
from misuse.callbacks import Session, recall_reply
from misuse.nfs import writes

from .talk import BRS, NO_LISTS, RESPONSE, Message, Talk


def lends(client: Talk) -> None:
    """Makes the server recall a delegation of CLIENT: another client begins to write the file."""
    client.caller.on_server("sh", "-c", "echo Y >/proc/fs/lockd/nlm_end_grace")
    name = Session(client, f"caller {client.caller.next_xid()}").lent()
    expect(not client.calls, "a Call of the server too early")
    client.caller.connect().ask(writes(4, data=b"data", name=name))


def called(client: Talk) -> Message:
    """Returns the next Call of the server."""
    for _ in waiting(SECONDS):
        expect(client.hear(0) is None, "nothing was asked for")
        if client.calls:
            return client.calls[-1]
    raise Wrong("no Call of the server")


#= V2-132, V2-168
def calls_of_the_server(talk: Talk) -> None:
    talk.open((BRS, 1))
    lends(talk)
    call = called(talk)
    expect(call.body[:16] == words(0) + NO_LISTS, "chunks in a Call to a client that takes none")
    # The RPC message is the same as in version 1.
    talk.part(recall_reply(call)[28:], call.xid, flags=RESPONSE)
    talk.lives()


def tries(talk: Talk, seconds: float) -> int:
    """Returns the number of Calls to a client that the server could not send within SECONDS."""
    counter = "/proc/sys/sunrpc/svc_rdma/rdma_stat_cb_unsent"
    before = int(talk.caller.on_server("cat", counter))
    lends(talk)
    expect(talk.hear(seconds) is None, "nothing was asked for")
    expect(not talk.calls, "a Call of the server")
    return int(talk.caller.on_server("cat", counter)) - before


# The server repeats the Call after a pause.
#= V2-132, V2-170
def a_client_that_takes_no_calls(talk: Talk) -> None:
    talk.open((BRS, 0))
    count = tries(talk, 3)
    expect(1 <= count <= 3, "tried", count, "times in three seconds")
    talk.lives()


#= V2-038, V2-047, V2-172
def a_call_waits_for_a_credit(talk: Talk) -> None:
    talk.most = 1
    talk.open((BRS, 1))
    count = tries(talk, 1)
    expect(2 <= count <= 8, "tried", count, "times in a second")
    talk.grant(1)
    call = called(talk)
    talk.part(recall_reply(call)[28:], call.xid, flags=RESPONSE)
    talk.lives()
