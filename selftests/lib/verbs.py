# SPDX-License-Identifier: GPL-2.0
"""A queue pair for a scripted peer, with methods that wait for their work requests."""

import errno
import json
import os
import subprocess
import time

from collections.abc import Iterator

from pyverbs.cm_enums import RDMA_PS_TCP
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.cq import CQ
from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                           IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WR_RDMA_READ,
                           IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND_WITH_INV)
from pyverbs.librdmacm_enums import RAI_PASSIVE
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import SGE, RecvWR, SendWR

from sharedkey import End
from wire import INLINE, SECONDS, Lost, Segment

BUFFER = 1 << 20
RECEIVES = 128
SENDS = 128
# The seconds of polling for a completion before waiting() sleeps between polls.
BRISK = 0.05

# Memory of the peer: handle and address.
Remote = tuple[int, int]


def descriptors() -> Iterator[int]:
    """Yields the file descriptors of this process that belong to RDMA connection managers."""
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + number).endswith("rdma_cm"):
                yield int(number)
        except OSError:
            pass


def waiting(seconds: float) -> Iterator[None]:
    """Repeats the body of a loop for SECONDS, at least once, and lets other tasks run between the rounds."""
    begun = time.monotonic()
    while True:
        yield
        gone = time.monotonic() - begun
        if gone >= seconds:
            return
        if gone < BRISK:
            os.sched_yield()
        else:
            time.sleep(0.001)


def listen(listener: CMID, address: str, port: str) -> None:
    """Listens on ADDRESS and PORT. The peer of the test program before this one may be about to end."""
    where = AddrInfo(src=address, src_service=port, port_space=RDMA_PS_TCP, flags=RAI_PASSIVE)
    for _ in waiting(SECONDS):
        try:
            listener.bind_addr(where)
            listener.listen(8)
            return
        except PyverbsRDMAError as error:
            if error.error_code != errno.EADDRINUSE:
                raise
    raise Lost(f"port {port} stays in use")


def split(address: str) -> tuple[str, int]:
    """Splits ADDRESS:PORT into text and number."""
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


class QueuePair:
    """A queue pair on the device of a connection manager's ID that is bound or resolved."""

    def __init__(self, cmid: CMID) -> None:
        # The ID, and the number of the peer's queue pair, which go() finds.
        self.id, self.remote = cmid, 0
        context = self.id.context
        self.pd = PD(context)
        self.sent, self.received = CQ(context, SENDS + 1), CQ(context, RECEIVES + 1)
        self.qp = QP(self.pd, QPInitAttr(
            qp_type=IBV_QPT_RC, scq=self.sent, rcq=self.received,
            cap=QPCap(max_send_wr=SENDS, max_recv_wr=RECEIVES, max_send_sge=1, max_recv_sge=1)))
        self.buffer = MR(self.pd, BUFFER, IBV_ACCESS_LOCAL_WRITE)
        self.messages = MR(self.pd, RECEIVES * INLINE, IBV_ACCESS_LOCAL_WRITE)

    def post_receives(self, count: int = RECEIVES, access: int = 0) -> None:
        """Initializes the queue pair and posts Receives. The peer has ACCESS to memory."""
        attributes, mask = self.id.init_qp_attr(IBV_QPS_INIT)
        attributes.qp_access_flags |= access
        self.qp.modify(attributes, mask)
        for number in range(count):
            self.post_receive(number)

    def go(self) -> QPAttr:
        """Moves the queue pair to RTS. Returns the attributes that the peer has requested."""
        self.remote = self._modify(IBV_QPS_RTR).dest_qp_num
        return self._modify(IBV_QPS_RTS)

    def ends(self) -> list[End]:
        """Returns the two ends of the connection, this one first."""
        shown = subprocess.run(["rdma", "-j", "resource", "show", "cm_id"], check=True,
                               stdout=subprocess.PIPE).stdout
        this, = (found for found in json.loads(shown)
                 if (found.get("pid"), found.get("lqpn")) == (os.getpid(), self.qp.qp_num))
        numbers = self.qp.qp_num, self.remote
        # The connection manager of iWARP does not exchange the numbers of queue pairs.
        if this["ifname"].startswith("siw"):
            numbers = 0, 0
        return [End(*split(this[name]), number)
                for name, number in zip(("src-addr", "dst-addr"), numbers)]

    def _modify(self, state: int) -> QPAttr:
        attributes, mask = self.id.init_qp_attr(state)
        self.qp.modify(attributes, mask)
        return attributes

    def post_receive(self, number: int) -> None:
        self.qp.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[
            SGE(self.messages.buf + number * INLINE, INLINE, self.messages.lkey)]))

    def next_message(self) -> bytes | None:
        """Returns the next message, or None if no message has arrived."""
        count, completions = self.received.poll(1)
        if not count:
            return None
        done = completions[0]
        if done.status != IBV_WC_SUCCESS:
            raise Lost(f"a Receive ended with status {done.status}")
        message: bytes = self.messages.read(done.byte_len, done.wr_id * INLINE)
        self.post_receive(done.wr_id)
        return message

    def _do(self, opcode: int, length: int, remote: Remote | None = None, invalidate: int = 0) -> None:
        self._post(opcode, 0, length, remote, invalidate)
        self._done()

    def _post(self, opcode: int, start: int, length: int, remote: Remote | None = None,
              invalidate: int = 0) -> None:
        # The handle to be invalidated lies where the immediate data of other requests do.
        request = SendWR(opcode=opcode, num_sge=1, send_flags=IBV_SEND_SIGNALED,
                         imm_data=invalidate,
                         sg=[SGE(self.buffer.buf + start, length, self.buffer.lkey)])
        if remote:
            request.set_wr_rdma(*remote)
        self.qp.post_send(request)

    def _done(self) -> None:
        """Waits for the end of a work request."""
        for _ in waiting(SECONDS):
            count, completions = self.sent.poll(1)
            if count:
                if completions[0].status != IBV_WC_SUCCESS:
                    raise Lost(f"a request ended with status {completions[0].status}")
                return
        raise Lost("a request does not end")

    def post_all(self, messages: list[bytes]) -> None:
        """Posts Sends of at most SENDS messages. Does not wait."""
        for number, message in enumerate(messages):
            self.buffer.write(message, len(message), number * INLINE)
            self._post(IBV_WR_SEND, number * INLINE, len(message))

    def send_at_once(self, messages: list[bytes]) -> None:
        """Posts Sends of at most SENDS messages, and waits for all of them."""
        self.post_all(messages)
        for _ in messages:
            self._done()

    def reap(self) -> int:
        """Returns the number of work requests that have ended since the last call."""
        ended: int = sum(done.status == IBV_WC_SUCCESS for done in self.sent.poll(SENDS)[1] or ())
        return ended

    def post(self, opcode: int, length: int, remote: Remote | None = None) -> None:
        """Posts a work request with LENGTH bytes of the buffer. Does not wait."""
        self._post(opcode, 0, length, remote)

    def send(self, message: bytes, invalidate: int | None = None) -> None:
        if message:
            self.buffer.write(message, len(message))
        self._do(IBV_WR_SEND if invalidate is None else IBV_WR_SEND_WITH_INV, len(message),
                 invalidate=invalidate or 0)

    def read(self, segment: Segment) -> bytes:
        if segment.length:
            self._do(IBV_WR_RDMA_READ, segment.length, (segment.handle, segment.offset))
        data: bytes = self.buffer.read(segment.length, 0)
        return data

    def write(self, segment: Segment, data: bytes) -> None:
        if data:
            self.buffer.write(data, len(data))
            self._do(IBV_WR_RDMA_WRITE, len(data), (segment.handle, segment.offset))

    def close(self) -> None:
        """Ends the connection. The objects stay: a closed CMID of pyverbs closes the device of all connections."""
        try:
            self.id.disconnect()
        except PyverbsRDMAError as error:
            print(error, flush=True)
        self.qp.close()
