#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A client without a key that connects again and again, and calls in either version.

usage: intruder.py SERVER PORT PROCESS

It says how often it has tried, and when it was served. It ends when PROCESS has ended.
"""

import os
import sys

from pyverbs.pyverbs_error import PyverbsError

from verbs import waiting
from wire import Lost, words

from misuse.base import Wrong
from misuse.client import Caller, Client
from misuse.nfs import rpc

# The limit for an answer, in seconds.
SOON = 0.3


def call(version: int, xid: int) -> bytes:
    """Returns a Call of NULL, the first message of a connection."""
    start = words(xid, version, 0x00200020 if version == 2 else 32, 0)
    return start + (words(0) * 2 if version == 2 else b"") + words(0, 0, 0) + rpc()(xid)


def is_reply(message: bytes, version: int, xid: int) -> bool:
    at = 36 if version == 2 else 28
    return message[at:at + 8] == words(xid, 1)


def main(server: str, port: str, process: str) -> None:
    caller = Caller(server, port)
    tried = 0
    while os.path.exists(f"/proc/{process}"):
        version = 1 + tried % 2
        tried += 1
        print("tried", tried, flush=True)
        try:
            connection = Client(caller)
        except (Lost, PyverbsError):
            continue
        try:
            xid = caller.next_xid()
            connection.send(call(version, xid))
            for _ in waiting(SOON):
                message = connection.next_message()
                if message is not None and is_reply(message, version, xid):
                    print("served", flush=True)
        except (Lost, Wrong, PyverbsError):
            pass
        connection.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
