#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Many clients of an NFS/RDMA server at a time, which do next to nothing.

usage: crowd.py SERVER PORT COUNT AT_ONCE [READY STOP]

AT_ONCE of COUNT clients connect at the same time, then as many of those that are left. Each asks for the
root's attributes and has its Reply. nfsd ends connections when there are many that have not asked for
anything: such a client connects again. With READY and STOP that file is made when all have a Reply;
when STOP is there each asks once more. In the end all leave.
"""

import os
import pathlib
import resource
import select
import struct
import sys
import time

from pyverbs.cm_enums import (RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_RESPONSE,
                              RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_PS_TCP)
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
# Of the memory of each client, what is behind the part that it receives into.
CALL = 256
PRIVATE_DATA = struct.pack(">IBBBB", 0xF6AB0E18, 1, 0, INLINE // 1024 - 1, INLINE // 1024 - 1)
SECONDS = 120
# How many RDMA Reads the server may have outstanding.
READS = int(os.environ.get("READS", "1"))


class Lost(Exception):
    """The server has ended the connection."""


def message(xid):
    """A Call: PUTROOTFH and GETATTR of root, or NULL if that is in the environment."""
    header = struct.pack(">7I", xid, 1, 1, 0, 0, 0, 0)
    if "NULL" in os.environ:
        return header + struct.pack(">10I", xid, 0, 2, 100003, 4, 0, 0, 0, 0, 0)
    call = struct.pack(">6I", xid, 0, 2, 100003, 4, 1)
    credentials = struct.pack(">7I", 1, 20, 0, 0, 0, 0, 0) + bytes(8)
    return header + call + credentials + struct.pack(">7I", 0, 0, 2, 24, 9, 1, 1 << 1)


class Common:
    """What the clients share: they are on one device."""

    def __init__(self, context, count):
        self.pd = PD(context)
        self.sent, self.received = CQ(context, count * 8), CQ(context, count * 8)
        self.memory = MR(self.pd, count * (INLINE + CALL), IBV_ACCESS_LOCAL_WRITE)


class Client:
    """One of them."""

    common = None
    # All that were made: a CMID that is closed closes the device for all.
    made = []

    def __init__(self, number, count, server, port):
        self.number = number
        self.start = number * (INLINE + CALL)
        # The channel is the next file.
        self.file = os.dup(0)
        os.close(self.file)
        self.channel = CMEventChannel()
        self.id = CMID(creator=self.channel, port_space=RDMA_PS_TCP)
        self.id.resolve_addr(AddrInfo(dst=server, dst_service=port, port_space=RDMA_PS_TCP))
        self._expect(RDMA_CM_EVENT_ADDR_RESOLVED)
        self.id.resolve_route()
        self._expect(RDMA_CM_EVENT_ROUTE_RESOLVED)
        common = Client.common = Client.common or Common(self.id.context, count)
        self.qp = QP(common.pd, QPInitAttr(
            qp_type=IBV_QPT_RC, scq=common.sent, rcq=common.received,
            cap=QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)))
        self.xid = self.number
        self.answered = False
        Client.made.append(self)

    def _expect(self, kind):
        event = CMEvent(self.channel)
        got = event.event_type
        event.ack_cm_event()
        if got != kind:
            raise Lost(f"client {self.number}: event {got} instead of {kind}")

    def connect(self):
        parameters = ConnParam(resources=READS, depth=1, retry=7, rnr_retry=7, qp_num=self.qp.qp_num,
                               data_len=len(PRIVATE_DATA))
        parameters.set_private_data(PRIVATE_DATA)
        self.id.connect(parameters)

    def establish(self):
        self._expect(RDMA_CM_EVENT_CONNECT_RESPONSE)
        for state in (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS):
            attributes, mask = self.id.init_qp_attr(state)
            self.qp.modify(attributes, mask)
        self.id.establish()

    def call(self):
        self.answered = False
        self.xid += 1 << 16
        memory = self.common.memory
        self.qp.post_recv(RecvWR(wr_id=self.number, num_sge=1, sg=[
            SGE(memory.buf + self.start, INLINE, memory.lkey)]))
        data = message(self.xid)
        memory.write(data, len(data), self.start + INLINE)
        self.qp.post_send(SendWR(wr_id=self.number, opcode=IBV_WR_SEND, num_sge=1, sg=[
            SGE(memory.buf + self.start + INLINE, len(data), memory.lkey)]))

    def is_lost(self):
        return bool(select.select([self.file], [], [], 0)[0])

    def check(self, length):
        """What it has received."""
        reply = self.common.memory.read(length, self.start)
        got = struct.unpack_from(">13I", reply)
        if (got[0], got[1], got[3:9]) != (self.xid, 1, (0, 0, 0, 0, self.xid, 1)) or any(got[9:]):
            sys.exit(f"client {self.number} got {reply.hex()}")
        if not 1 <= got[2] <= 16384:
            sys.exit(f"client {self.number} has {got[2]} credits")
        self.answered = True

    def disconnect(self):
        try:
            self.id.disconnect()
        except PyverbsRDMAError:
            # The server was first.
            pass

    def leave(self):
        self.disconnect()
        self.qp.close()


def answers(clients):
    """Waits until each of them has its Reply or no connection; returns those without."""
    waiting = {client.number: client for client in clients}
    lost = []
    end = time.monotonic() + SECONDS
    quiet = 0
    while waiting:
        count, completions = Client.common.received.poll(64)
        for done in completions or ():
            if done.status == IBV_WC_SUCCESS and done.wr_id in waiting:
                waiting.pop(done.wr_id).check(done.byte_len)
        for done in Client.common.sent.poll(64)[1] or ():
            # Nobody has acknowledged it: the machine is too slow, and the connection lost.
            if done.status != IBV_WC_SUCCESS and done.wr_id in waiting:
                lost.append(waiting.pop(done.wr_id))
        quiet = 0 if count else quiet + 1
        if quiet < 20:
            time.sleep(0 if count else 0.005)
            continue
        gone = [number for number, client in waiting.items() if client.is_lost()]
        lost += [waiting.pop(number) for number in gone]
        if time.monotonic() > end:
            sys.exit(f"{len(waiting)} clients have no Reply")
        quiet = 0
    return lost


def gather(server, port, count, at_once):
    """Returns all, and how often one had to connect again."""
    missing = list(range(count))
    there, again = [], 0
    while missing:
        clients = [Client(number, count, server, port) for number in missing[:at_once]]
        for client in clients:
            client.connect()
        asking, lost = [], []
        for client in clients:
            try:
                client.establish()
                client.call()
                asking.append(client)
            except (Lost, PyverbsRDMAError) as error:
                if "event" in str(error):
                    sys.exit(str(error))
                lost.append(client)
        lost += answers(asking)
        for client in lost:
            client.leave()
        there += [client for client in asking if client.answered]
        missing = [client.number for client in lost] + missing[at_once:]
        again += len(lost)
    return there, again


def main():
    if len(sys.argv) not in (5, 7):
        sys.exit(__doc__)
    count, at_once = map(int, sys.argv[3:5])
    resource.setrlimit(resource.RLIMIT_NOFILE, (10 * count + 100, 10 * count + 100))
    begun = time.monotonic()
    clients, again = gather(sys.argv[1], sys.argv[2], count, at_once)
    print(f"{count} clients, {at_once} at once: {time.monotonic() - begun:.1f} s, {again} times again",
          flush=True)
    if len(sys.argv) == 7:
        ready, stop = map(pathlib.Path, sys.argv[5:])
        ready.touch()
        while not stop.exists():
            time.sleep(0.1)
        for client in clients:
            client.call()
        if lost := answers(clients):
            sys.exit(f"{len(lost)} of them have lost their connections")
        print("and another Reply each", flush=True)
    for client in clients:
        client.disconnect()
    # What says good-bye may get lost, and is sent again as long as this process is there.
    end = time.monotonic() + SECONDS
    while not all(client.is_lost() for client in clients):
        if time.monotonic() > end:
            sys.exit("the server does not let all go")
        time.sleep(0.05)
    # The objects would be closed one by one, and the device with the first of them.
    os._exit(0)


if __name__ == "__main__":
    main()
