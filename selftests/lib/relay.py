#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A host that forwards every message without a key: the messages of a client go to SERVER.

usage: relay.py ADDRESS PORT SERVER SERVER_PORT PROCESS

It listens on ADDRESS and PORT, connects to SERVER for each client, and says when one of them has
proven itself. It ends when PROCESS has ended.
"""

import os
import select
import sys

from pyverbs.cm_enums import RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_PS_TCP
from pyverbs.cmid import CMID, CMEvent, CMEventChannel, ConnParam
from pyverbs.pyverbs_error import PyverbsError

import sharedkey

from verbs import QueuePair, descriptors, listen, waiting
from wire import Lost

from misuse.client import Caller, Client

# The seconds of silence on both sides after which the connections end.
SILENCE = 12


class Near(QueuePair):
    """The connection of the client. It gets the messages of the server."""

    def __init__(self, event: CMEvent, listener: CMID, private_data: bytes) -> None:
        super().__init__(CMID(creator=event, listen_id=listener))
        self.post_receives()
        self.go()
        parameters = ConnParam(resources=16, depth=16, qp_num=self.qp.qp_num,
                               data_len=len(private_data))
        parameters.set_private_data(private_data)
        self.id.accept(parameters)


def tell(name: str, message: bytes) -> None:
    """Prints the proof in a message."""
    for which, proven in ((sharedkey.SERVER, "the server"), (sharedkey.CLIENT, "the client")):
        if sharedkey.said(which) in message:
            print(proven, "has proven itself", flush=True)
    print(name, message.hex(), flush=True)


def pass_on(near: Near, far: Client) -> None:
    for _ in waiting(SILENCE):
        for name, one, other in (("client:", near, far), ("server:", far, near)):
            message = one.next_message()
            if message is not None:
                tell(name, message)
                other.send(message)


def main(address: str, port: str, server: str, server_port: str, process: str) -> None:
    known = set(descriptors())
    channel = CMEventChannel()
    events, = set(descriptors()) - known
    listener = CMID(creator=channel, port_space=RDMA_PS_TCP)
    listen(listener, address, port)
    print("listening", flush=True)
    # Ended connections are kept, because a closed CMID of pyverbs closes the device of all connections.
    past: list[QueuePair] = []
    while os.path.exists(f"/proc/{process}"):
        if not select.select([events], [], [], 1)[0]:
            continue
        event = CMEvent(channel)
        if event.event_type != RDMA_CM_EVENT_CONNECT_REQUEST:
            event.ack_cm_event()
            continue
        try:
            far = Client(Caller(server, server_port))
            near = Near(event, listener, far.private_data)
        except (Lost, PyverbsError) as error:
            print(error, flush=True)
            event.ack_cm_event()
            continue
        event.ack_cm_event()
        past += [near, far]
        try:
            pass_on(near, far)
        except (Lost, PyverbsError) as error:
            print(error, flush=True)
        for end in (near, far):
            end.close()


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
