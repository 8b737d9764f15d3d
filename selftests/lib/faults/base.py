# SPDX-License-Identifier: GPL-2.0
"""The table of faults, the decorators that fill it, and messages that several faults send."""

import functools
import sys

from wire import RDMA_MSG, RDMA_NOMSG, words

GETATTR, READLINK, READ, WRITE, READDIRPLUS = 1, 5, 6, 7, 17
CALLBACK = 0x40000000
CREATE_SESSION, SEQUENCE, DESTROY_CLIENTID = 43, 53, 57
CB_SEQUENCE = 11

# The number of faults that a test causes, one after the other.
MOST = 6


class Faults(dict):
    """The faults of a version by name, and the tests of the programs hostile_*.sh that cause them.

    A test is the name of a function of such a program, with its first arguments. It causes each of its faults and
    compares the effect with the effect that it expects. A test that needs a value for each fault has it behind "=".
    """

    def __init__(self):
        super().__init__()
        self.expected = {}

    def expect(self, name, *tests):
        """Adds a fault to these tests."""
        for test in tests:
            function, equals, value = test.partition("=")
            self.expected.setdefault(function, []).append(name + equals + value)

    def strikes(self, procedure, *tests):
        """Registers a fault of the Replies of this procedure of NFS version 3, or of any Reply if it is None."""
        def add(fault):
            self[fault.__name__] = fault
            fault.suits = lambda call: procedure in (call.procedure, None)
            self.expect(fault.__name__, *tests)
            return fault
        return add

    def tests(self):
        """Yields the words of each test."""
        for function, names in self.expected.items():
            for first in range(0, len(names), MOST):
                yield [function, *names[first:first + MOST]]


FAULTS = Faults()
strikes = FAULTS.strikes


def strikes_operation(operation):
    """Registers a fault of the Reply to a COMPOUND of NFS version 4 that begins with this operation."""
    def suits(call):
        operations = call.operations()
        return operations and operations.word() == operation

    def add(fault):
        FAULTS[fault.__name__] = fault
        fault.suits = suits
        return fault
    return add


def spoils(procedure, *tests):
    """Registers a fault that changes a Reply of this procedure, which is then sent."""
    def add(change):
        @strikes(procedure, *tests)
        @functools.wraps(change)
        def fault(_, reply):
            change(reply)
            reply.send()
        return fault
    return add


def callback(xid, procedure=0, credentials=words(0, 0), arguments=b""):
    """Returns a callback. CB_NULL needs no more than an XID."""
    return (words(xid, 1, 16, RDMA_MSG, 0, 0, 0) + words(xid, 0, 2, CALLBACK, 1, procedure) +
            credentials + words(0, 0) + arguments)


def swapped(xid):
    """Returns an XID in the byte order in which clients of Linux count XIDs."""
    return int.from_bytes((xid & 0xFFFFFFFF).to_bytes(4, "big"), sys.byteorder)


def instead(reply, *body):
    """Sends the XID, version and credits of the Reply, followed by these words."""
    reply.connection.send(reply.start()[:12] + words(*body))


def into_the_reply_chunk(reply):
    if reply.kind != RDMA_NOMSG:
        reply.reply = reply.connection.fill(reply.call.reply, reply.payload)
        reply.kind, reply.payload = RDMA_NOMSG, b""


def hang_up_and_announce(peer, private_data):
    peer.private_data = private_data
    peer.hang_up("as told")
