#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Many clients of an NFS/RDMA server at a time, with little traffic.

usage: crowd.py SERVER PORT COUNT AT_ONCE [READY STOP]

AT_ONCE of COUNT clients connect at the same time, then the next AT_ONCE of the rest. Each requests the
attributes of the root and waits for its Reply. nfsd ends connections without a Call when there are many: such
a client connects again. READY is a file that is made when all clients have a Reply. When the file STOP
exists, each client sends another Call. Then all disconnect.

The kernel of a server sends a single message that it has ended a connection, and the message may get lost
(cm_destroy_id). If no queue pair takes the message of a client, its device reports it. A client that waits
for a Reply sends its Call again. Such a client, too, connects again.
"""

import collections
import itertools
import os
import pathlib
import resource
import select
import struct
import sys
import time

from typing import Any

from pyverbs.cm_enums import (RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_RESPONSE,
                              RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED,
                              RDMA_PS_TCP)
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ
from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                           IBV_QPT_RC, IBV_WC_SUCCESS, IBV_WR_SEND)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

INLINE = 1024
# The memory of a client has room for two Replies, and behind each for a Call.
CALL = 256
ROOM = INLINE + CALL
PRIVATE_DATA = struct.pack(">IBBBB", 0xF6AB0E18, 1, 0, INLINE // 1024 - 1, INLINE // 1024 - 1)
SECONDS = 120
# The number of RDMA Reads that the server may have outstanding.
READS = int(os.environ.get("READS", "1"))
# The seconds of the wait for a Reply before the Call is sent again.
PATIENCE = 5
# The number of times that the device sends a packet again: as the kernel's clients do. 7 is for ever on soft
# RoCE.
RETRIES = 6
# The number of times that a client may be refused: the end of its connection may be reported before its
# establishment.
MOST_REFUSALS = 5


class Refused(Exception):
    """The server has ended a connection during its establishment."""


def message(xid: int, null: bool) -> bytes:
    """Returns a Call: PUTROOTFH and GETATTR of root, or NULL."""
    header = struct.pack(">7I", xid, 1, 1, 0, 0, 0, 0)
    if null:
        return header + struct.pack(">10I", xid, 0, 2, 100003, 4, 0, 0, 0, 0, 0)
    call = struct.pack(">6I", xid, 0, 2, 100003, 4, 1)
    credentials = struct.pack(">7I", 1, 20, 0, 0, 0, 0, 0) + bytes(8)
    return header + call + credentials + struct.pack(">7I", 0, 0, 2, 24, 9, 1, 1 << 1)


class Common:
    """The resources that the clients share, on one device."""

    def __init__(self, context: Any, count: int) -> None:
        self.pd = PD(context)
        self.sent, self.received = CQ(context, count * 8), CQ(context, count * 8)
        self.memory = MR(self.pd, count * 2 * ROOM, IBV_ACCESS_LOCAL_WRITE)


class Client:
    """A client with its connection."""

    # Made with the first client.
    common: Common
    # All CMIDs. A closed CMID closes the device of all connections.
    made: "list[Client]" = []
    # The queues of each connection: completions of an ended connection do not concern the next.
    names = itertools.count()

    def __init__(self, number: int, count: int, server: str, port: str) -> None:
        self.number = number
        self.name = next(Client.names)
        # The channel is the next file.
        self.file = os.dup(0)
        os.close(self.file)
        self.channel = CMEventChannel()
        self.id = CMID(creator=self.channel, port_space=RDMA_PS_TCP)
        self.id.resolve_addr(AddrInfo(dst=server, dst_service=port, port_space=RDMA_PS_TCP))
        self._expect(RDMA_CM_EVENT_ADDR_RESOLVED)
        self.id.resolve_route()
        self._expect(RDMA_CM_EVENT_ROUTE_RESOLVED)
        if not Client.made:
            Client.common = Common(self.id.context, count)
        common = Client.common
        self.qp = QP(common.pd, QPInitAttr(
            qp_type=IBV_QPT_RC, scq=common.sent, rcq=common.received,
            cap=QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)))
        self.xid = self.number
        self.rooms = {0, 1}
        self.answered = self.asked_again = False
        Client.made.append(self)

    def _expect(self, kind: int) -> None:
        event = CMEvent(self.channel)
        got = event.event_type
        event.ack_cm_event()
        if got == RDMA_CM_EVENT_REJECTED:
            raise Refused(f"client {self.number} is refused")
        if got != kind:
            sys.exit(f"client {self.number}: event {got} instead of {kind}")

    def connect(self) -> None:
        parameters = ConnParam(resources=READS, depth=1, retry=RETRIES, rnr_retry=7,
                               qp_num=self.qp.qp_num, data_len=len(PRIVATE_DATA))
        parameters.set_private_data(PRIVATE_DATA)
        self.id.connect(parameters)

    def establish(self) -> None:
        self._expect(RDMA_CM_EVENT_CONNECT_RESPONSE)
        for state in (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS):
            attributes, mask = self.id.init_qp_attr(state)
            self.qp.modify(attributes, mask)
        self.id.establish()

    def call(self) -> None:
        self.answered = self.asked_again = False
        self.xid += 2 << 16
        self._send(message(self.xid, "NULL" in os.environ))

    def ask_again(self) -> None:
        """Sends another Call. Its completion shows whether the connection stands."""
        self.asked_again = True
        if self.rooms:
            self._send(message(self.xid + (1 << 16), True))

    def _start(self, room: int) -> int:
        return (self.number * 2 + room) * ROOM

    def _send(self, data: bytes) -> None:
        room = self.rooms.pop()
        start, memory = self._start(room), self.common.memory
        work = self.name * 2 + room
        self.qp.post_recv(RecvWR(wr_id=work, num_sge=1, sg=[
            SGE(memory.buf + start, INLINE, memory.lkey)]))
        memory.write(data, len(data), start + INLINE)
        self.qp.post_send(SendWR(wr_id=work, opcode=IBV_WR_SEND, num_sge=1, sg=[
            SGE(memory.buf + start + INLINE, len(data), memory.lkey)]))

    def is_lost(self) -> bool:
        return bool(select.select([self.file], [], [], 0)[0])

    def take(self, room: int, length: int) -> bool:
        """Handles a received message. Returns whether it is the Reply."""
        self.rooms.add(room)
        reply = self.common.memory.read(length, self._start(room))
        got = struct.unpack_from(">13I", reply)
        # It may be the second Reply to the previous Call, which was sent twice.
        again = got[0] >> 16 & 1
        xid = got[0] if again else self.xid
        if (got[0], got[1], got[3:9]) != (xid, 1, (0, 0, 0, 0, xid, 1)) or any(got[9:]):
            sys.exit(f"client {self.number} got {reply.hex()}")
        if not 1 <= got[2] <= 16384:
            sys.exit(f"client {self.number} has {got[2]} credits")
        self.answered = self.answered or not again
        return not again

    def disconnect(self) -> None:
        try:
            self.id.disconnect()
        except PyverbsRDMAError:
            # The server has ended the connection first.
            pass

    def leave(self) -> None:
        self.disconnect()
        self.qp.close()


def answers(clients: list[Client]) -> tuple[list[Client], int]:
    """Waits until each of them has its Reply or no connection.

    Returns those without, and of how many of them the device alone has found that out.
    """
    waiting = {client.name: client for client in clients}
    lost: list[Client] = []
    untold = 0
    begun = time.monotonic()
    quiet = 0
    while waiting:
        count, completions = Client.common.received.poll(64)
        for done in completions or ():
            name, room = divmod(done.wr_id, 2)
            if done.status == IBV_WC_SUCCESS and name in waiting:
                if waiting[name].take(room, done.byte_len):
                    del waiting[name]
        for done in Client.common.sent.poll(64)[1] or ():
            # The message was not acknowledged: the machine is too slow, or the connection is lost.
            if done.status != IBV_WC_SUCCESS and done.wr_id // 2 in waiting:
                lost.append(waiting.pop(done.wr_id // 2))
                untold += not lost[-1].is_lost()
        quiet = 0 if count else quiet + 1
        if quiet < 20:
            time.sleep(0 if count else 0.005)
            continue
        gone = [name for name, client in waiting.items() if client.is_lost()]
        lost += [waiting.pop(name) for name in gone]
        waited = time.monotonic() - begun
        if waited > SECONDS:
            sys.exit(f"{len(waiting)} clients have no Reply")
        for client in waiting.values():
            if waited > PATIENCE and not client.asked_again:
                client.ask_again()
        quiet = 0
    return lost, untold


def gather(server: str, port: str, count: int, at_once: int) -> tuple[list[Client], int, int]:
    """Returns all clients, the number of new connections, and the number of these without a message of the
    server."""
    missing = list(range(count))
    there: list[Client] = []
    again, untold = 0, 0
    refused: collections.Counter[int] = collections.Counter()
    while missing:
        clients = [Client(number, count, server, port) for number in missing[:at_once]]
        for client in clients:
            client.connect()
        asking: list[Client] = []
        lost: list[Client] = []
        for client in clients:
            try:
                client.establish()
                client.call()
                asking.append(client)
            except PyverbsRDMAError:
                lost.append(client)
            except Refused as error:
                lost.append(client)
                refused[client.number] += 1
                if refused[client.number] > MOST_REFUSALS:
                    sys.exit(str(error))
        without, unheard = answers(asking)
        lost += without
        untold += unheard
        for client in lost:
            client.leave()
        there += [client for client in asking if client.answered]
        missing = [client.number for client in lost] + missing[at_once:]
        again += len(lost)
    return there, again, untold


def main() -> None:
    if len(sys.argv) not in (5, 7):
        sys.exit(__doc__)
    count, at_once = map(int, sys.argv[3:5])
    resource.setrlimit(resource.RLIMIT_NOFILE, (10 * count + 100, 10 * count + 100))
    begun = time.monotonic()
    clients, again, untold = gather(sys.argv[1], sys.argv[2], count, at_once)
    seconds = time.monotonic() - begun
    print(f"{count} clients, {at_once} at once: {seconds:.1f} s, {again} times again, {untold} untold",
          flush=True)
    if len(sys.argv) == 7:
        ready, stop = map(pathlib.Path, sys.argv[5:])
        ready.touch()
        while not stop.exists():
            time.sleep(0.1)
        for client in clients:
            client.call()
        if lost := answers(clients)[0]:
            sys.exit(f"{len(lost)} of them have lost their connections")
        print("and another Reply each", flush=True)
    for client in clients:
        client.disconnect()
    # The disconnect message may get lost, and is repeated while this process exists.
    end = time.monotonic() + SECONDS
    while not all(client.is_lost() for client in clients):
        if time.monotonic() > end:
            sys.exit("the server does not let all go")
        time.sleep(0.05)
    # The objects would be closed one by one, and the device with the first of them.
    os._exit(0)


if __name__ == "__main__":
    main()
