#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""An NFS client's side of RPC-over-RDMA version 1 that breaks the rules, against any server.

usage: caller.py SERVER [PORT [NAME...]]

Each test has a connection of its own and sends one message, or a few. The server has to answer by the
error message that RFC 8166 says, to drop the message, to answer the Call all the same, or to end
the connection; and it goes on serving a client that does nothing wrong.

FILE in the environment is the path of a file that SERVER exports to everybody, as NFSv4 knows it,
of 10,000 bytes: byte n is n modulo 251.
"""

import os
import struct
import sys
import time

from pyverbs.cm_enums import (RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_RESPONSE,
                              RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_PS_TCP)
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ
from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
                           IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_SEND_SIGNALED,
                           IBV_WC_SUCCESS, IBV_WR_SEND)
from pyverbs.mr import MR
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

INLINE = 4096
SENDS, RECEIVES = 256, 256
MEMORY = 2 << 20
RDMA_MSG, RDMA_NOMSG, RDMA_MSGP, RDMA_DONE, RDMA_ERROR = range(5)
# Without the R bit: the memory of a program cannot be invalidated by the server.
PRIVATE_DATA = struct.pack(">IBBBB", 0xF6AB0E18, 1, 0, INLINE // 1024 - 1, INLINE // 1024 - 1)
SECONDS = 15
QUIET = 1.5


class Lost(Exception):
    """The connection has ended."""


class Refused(Exception):
    """There was no connection."""


def words(*values):
    return struct.pack(f">{len(values)}I", *values)


def segment(handle, length, offset):
    return struct.pack(">IIQ", handle, length, offset)


def read(position, piece):
    """An element of the Read list."""
    return words(1, position) + piece


def array(*pieces):
    return words(len(pieces)) + b"".join(pieces)


def chunks(reads=(), writes=(), reply=None):
    return (b"".join(reads) + words(0) + b"".join(words(1) + chunk for chunk in writes) + words(0)
            + (words(0) if reply is None else words(1) + reply))


def header(xid, kind=RDMA_MSG, lists=None, version=1, credits=32):
    return words(xid, version, credits, kind) + (chunks() if lists is None else lists)


# AUTH_NONE, and AUTH_SYS of root.
NOBODY, ROOT = words(0, 0), words(1, 20, 0, 0, 0, 0, 0)


def call(xid, version=3, procedure=0, arguments=b"", credentials=NOBODY):
    """An NFS Call."""
    return (words(xid, 0, 2, 100003, version, procedure) + credentials + words(0, 0)
            + arguments)


def compound(xid, *operations):
    return call(xid, 4, 1, words(0, 0, len(operations)) + b"".join(operations), ROOT)


PUTROOTFH, GETFH = words(24), words(10)
# Of the attributes, the size.
GETSIZE = words(9, 1, 1 << 4)
FILE = os.environ.get("FILE")
CONTENT = bytes(n % 251 for n in range(10000))


def lookup(name):
    return words(15, len(name)) + name.encode() + bytes(-len(name) % 4)


def read_file(offset, length):
    """READ, of whoever has no open file."""
    return words(25) + bytes(16) + struct.pack(">QI", offset, length)


class Connection:
    """A queue pair and what it needs."""

    def __init__(self, server, port, private_data=PRIVATE_DATA, receives=RECEIVES, rnr_retry=7):
        self.channel = CMEventChannel()
        self.id = CMID(creator=self.channel, port_space=RDMA_PS_TCP)
        self.id.resolve_addr(AddrInfo(dst=server, dst_service=port, port_space=RDMA_PS_TCP))
        self._event(RDMA_CM_EVENT_ADDR_RESOLVED)
        self.id.resolve_route()
        self._event(RDMA_CM_EVENT_ROUTE_RESOLVED)
        self.pd = self.id.pd
        context = self.id.context
        self.sent, self.received = CQ(context, SENDS + 1), CQ(context, RECEIVES + 1)
        self.qp = QP(self.pd, QPInitAttr(
            qp_type=IBV_QPT_RC, scq=self.sent, rcq=self.received,
            cap=QPCap(max_send_wr=SENDS, max_recv_wr=RECEIVES, max_send_sge=1, max_recv_sge=1)))
        self.buffer = MR(self.pd, SENDS * INLINE * 2, IBV_ACCESS_LOCAL_WRITE)
        self.messages = MR(self.pd, RECEIVES * INLINE, IBV_ACCESS_LOCAL_WRITE)
        self.memory = MR(self.pd, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ
                         | IBV_ACCESS_REMOTE_WRITE)
        parameters = ConnParam(resources=16, depth=16, rnr_retry=rnr_retry, qp_num=self.qp.qp_num,
                               data_len=len(private_data))
        if private_data:
            parameters.set_private_data(private_data)
        self.id.connect(parameters)
        self._event(RDMA_CM_EVENT_CONNECT_RESPONSE)
        for state in (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS):
            attributes, mask = self.id.init_qp_attr(state)
            self.qp.modify(attributes, mask)
            if state == IBV_QPS_INIT:
                for number in range(receives):
                    self._receive(number)
        self.id.establish()
        self.sends = 0

    def _event(self, expected):
        event = CMEvent(self.channel)
        kind = event.event_type
        event.ack_cm_event()
        if kind != expected:
            raise Refused(f"event {kind} instead of {expected}")

    def _receive(self, number):
        self.qp.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[
            SGE(self.messages.buf + number * INLINE, INLINE, self.messages.lkey)]))

    def piece(self, start=0, length=4, data=None):
        """A Segment of memory of ours."""
        if data is not None:
            length = len(data)
            self.memory.write(data, length, start)
        return segment(self.memory.rkey, length, self.memory.buf + start)

    def send(self, message):
        start = self.sends % SENDS * INLINE * 2
        self.sends += 1
        if message:
            self.buffer.write(message, len(message), start)
        self.qp.post_send(SendWR(opcode=IBV_WR_SEND, num_sge=1, send_flags=IBV_SEND_SIGNALED, sg=[
            SGE(self.buffer.buf + start, len(message), self.buffer.lkey)]))

    def answer(self, seconds=SECONDS):
        """The next message of the server; nothing if none comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            count, completions = self.sent.poll(1)
            if count and completions[0].status != IBV_WC_SUCCESS:
                raise Lost(f"a Send ended with status {completions[0].status}")
            count, completions = self.received.poll(1)
            if count:
                done = completions[0]
                if done.status != IBV_WC_SUCCESS:
                    raise Lost(f"a Receive ended with status {done.status}")
                message = self.messages.read(done.byte_len, done.wr_id * INLINE)
                self._receive(done.wr_id)
                return message
            time.sleep(0.001)
        return None

    def close(self):
        """Ends it. The objects stay: closing one of pyverbs' CMIDs closes the device for all."""
        try:
            self.id.disconnect()
        except PyverbsRDMAError:
            pass
        self.qp.close()


class Tests:
    """Each method is a test: it sends something and says what has to come of it."""

    def __init__(self, server, port):
        self.server, self.port = server, port
        self.kept = []
        self.xid = 0x1000

    def connect(self, **options):
        connection = Connection(self.server, self.port, **options)
        self.kept.append(connection)
        return connection

    def next_xid(self):
        self.xid += 1
        return self.xid

    # What comes of a message.

    def replied(self, connection, xid, kind=RDMA_MSG):
        message = connection.answer()
        assert message, "no Reply"
        got = struct.unpack_from(">4I", message)
        assert got[0] == xid and got[1] == 1 and got[3] == kind, f"{message.hex()}"
        assert 1 <= got[2] <= 16384, f"{got[2]} credits"
        return message

    def refused(self, connection, xid, version=1):
        """ERR_CHUNK, and the connection lives."""
        message = connection.answer()
        assert message, "no error message"
        expected = words(xid, version), words(RDMA_ERROR, 2)
        assert (message[:8], message[12:]) == expected, message.hex()
        self.lives(connection)

    def dropped(self, connection):
        message = connection.answer(QUIET)
        assert message is None, f"an answer: {message.hex()}"
        self.lives(connection)

    def lives(self, connection):
        xid = self.next_xid()
        connection.send(header(xid) + call(xid))
        self.replied(connection, xid)

    def ended(self, connection):
        try:
            message = connection.answer()
        except Lost:
            return
        raise AssertionError("the connection lives, " + (message.hex() if message else "silent"))

    # Tests.

    #= V1-033, V1-034
    def null(self):
        self.lives(self.connect())

    def no_private_data(self):
        self.lives(self.connect(private_data=b""))

    def absurd_private_data(self):
        self.lives(self.connect(private_data=bytes(range(50))))
        self.lives(self.connect(private_data=PRIVATE_DATA[:5]))
        self.lives(self.connect(private_data=PRIVATE_DATA[:6] + b"\xff\xff"))
        self.lives(self.connect(private_data=PRIVATE_DATA[:6] + b"\0\0"))

    #= V1-094
    def other_versions(self):
        connection = self.connect()
        for version in (0, 2, 3, 0xFFFFFFFF):
            xid = self.next_xid()
            connection.send(header(xid, version=version) + call(xid))
            message = connection.answer()
            assert message and message[:8] == words(xid, version), message
            assert message[12:] == words(RDMA_ERROR, 1, 1, 1), message.hex()
        self.lives(connection)

    #= V1-095
    def other_types(self):
        connection = self.connect()
        for kind in (RDMA_MSGP, RDMA_DONE, 5, 0xFFFFFFFF):
            xid = self.next_xid()
            connection.send(header(xid, kind) + call(xid))
            self.refused(connection, xid)

    #= V1-099
    def errors_of_the_client(self):
        connection = self.connect()
        for body in (b"", words(1), words(1, 1, 1), words(2), words(7)):
            connection.send(words(self.next_xid(), 1, 1, RDMA_ERROR) + body)
            self.dropped(connection)

    #= V1-110
    def short_messages(self):
        connection = self.connect()
        for length in (0, 1, 4, 12, 15):
            connection.send(bytes(length))
            self.dropped(connection)

    #= V1-092, V1-093
    def cut_headers(self):
        connection = self.connect()
        piece = connection.piece()
        whole = header(0, lists=chunks([read(40, piece)], [array(piece)], array(piece, piece)))
        for length in range(16, len(whole), 4):
            xid = self.next_xid()
            connection.send(words(xid) + whole[4:length])
            self.refused(connection, xid)

    #= V1-092
    def presence_words(self):
        connection = self.connect()
        for lists in (words(2, 0, 0), words(0, 2, 0), words(0, 0, 2), words(0, 0, 0xFFFFFFFF)):
            xid = self.next_xid()
            connection.send(header(xid, lists=lists) + call(xid))
            self.refused(connection, xid)

    #= V1-111
    def counts_beyond_the_message(self):
        connection = self.connect()
        for count in (5, 0x10000000, 0x10000001, 0xFFFFFFFF):
            for lists in (words(0, 1, count), words(0, 0, 1, count)):
                xid = self.next_xid()
                connection.send(header(xid, lists=lists) + call(xid))
                self.refused(connection, xid)

    #= V1-111
    def wrapping_segments(self):
        connection = self.connect()
        wraps = segment(connection.memory.rkey, 8, 0xFFFFFFFFFFFFFFFC)
        for lists in (chunks([read(40, wraps)]), chunks((), [array(wraps)]),
                      chunks(reply=array(wraps))):
            xid = self.next_xid()
            connection.send(header(xid, lists=lists) + call(xid))
            self.refused(connection, xid)

    #= V1-092
    def positions(self):
        connection = self.connect()
        piece = connection.piece()
        for positions in ((1,), (42,), (4,), (44,), (0xFFFFFFFC,), (40, 0xFFFFFFFC), (8, 8, 1)):
            xid = self.next_xid()
            lists = chunks([read(position, piece) for position in positions])
            connection.send(header(xid, lists=lists) + call(xid))
            self.refused(connection, xid)

    def chunks_inside_each_other(self):
        connection = self.connect()
        xid = self.next_xid()
        lists = chunks([read(12, connection.piece(0, 64)), read(16, connection.piece(64, 4))])
        connection.send(header(xid, lists=lists) + call(xid))
        self.refused(connection, xid)

    #= NFS-045
    def more_than_any_call_has(self):
        connection = self.connect()
        for lengths in ((0xFFFFFFFF,), (0xFFFFFFFF, 0xFFFFFFFF, 2), (8 << 20,), (1 << 30,) * 4):
            xid = self.next_xid()
            reads = [read(40, connection.piece(0, length)) for length in lengths]
            connection.send(header(xid, lists=chunks(reads)) + call(xid))
            self.refused(connection, xid)
            xid = self.next_xid()
            reads = [read(0, connection.piece(0, length)) for length in lengths]
            connection.send(header(xid, RDMA_NOMSG, chunks(reads)))
            self.refused(connection, xid)

    #= V1-082, NFS-044
    def a_call_in_memory(self):
        connection = self.connect()
        xid = self.next_xid()
        message = call(xid)
        cuts = [message[:8], b"", message[8:9], message[9:]]
        reads, at = [], 0
        for part in cuts:
            reads.append(read(0, connection.piece(at, data=part) if part
                              else segment(connection.memory.rkey, 0, 0)))
            at += 64
        connection.send(header(xid, RDMA_NOMSG, chunks(reads)))
        self.replied(connection, xid)

    #= V1-003, V1-024
    def a_long_call_with_another_xid(self):
        connection = self.connect()
        for message in (call(1), words(0, 0), words(0, 1, 0, 0), bytes(4)):
            xid = self.next_xid()
            piece = connection.piece(data=message)
            connection.send(header(xid, RDMA_NOMSG, chunks([read(0, piece)])))
            self.refused(connection, xid)

    def no_payload_and_two(self):
        connection = self.connect()
        xid = self.next_xid()
        connection.send(header(xid, RDMA_NOMSG))
        self.refused(connection, xid)
        xid = self.next_xid()
        piece = connection.piece(data=call(xid))
        connection.send(header(xid, RDMA_MSG, chunks([read(0, piece)])) + call(xid))
        self.refused(connection, xid)
        # What follows a NOMSG is not looked at.
        connection.send(header(xid, RDMA_NOMSG, chunks([read(0, piece)])) + call(xid))
        self.replied(connection, xid)

    #= V1-057, NFS-044
    def several_read_chunks(self):
        connection = self.connect()
        for order in ((0, 1, 2), (2, 1, 0)):
            xid = self.next_xid()
            message = compound(xid, PUTROOTFH, GETFH)
            # The first words stay; three pieces of what follows are chunks.
            places = [(20, 8), (36, 4), (44, 4)]
            reads, inline, at = [], b"", 0
            for number, (position, length) in enumerate(places):
                piece = connection.piece(number * 64, data=message[position:position + length])
                reads.append(read(position, piece))
                inline += message[at:position]
                at = position + length
            inline += message[at:]
            lists = chunks([reads[number] for number in order])
            connection.send(header(xid, lists=lists) + inline)
            reply = self.replied(connection, xid)
            assert reply[28 + 24:28 + 28] == words(0), f"COMPOUND failed: {reply.hex()}"

    def a_long_call_with_a_chunk(self):
        connection = self.connect()
        xid = self.next_xid()
        message = compound(xid, PUTROOTFH, GETFH)
        reads = [read(0, connection.piece(0, data=message[:24])),
                 read(24, connection.piece(64, data=message[24:32])),
                 read(0, connection.piece(128, data=message[32:]))]
        connection.send(header(xid, RDMA_NOMSG, chunks(reads)))
        reply = self.replied(connection, xid)
        assert reply[28 + 24:28 + 28] == words(0), f"COMPOUND failed: {reply.hex()}"

    def empty_read_chunks(self):
        connection = self.connect()
        xid = self.next_xid()
        lists = chunks([read(40, segment(0, 0, 0)), read(40, segment(0, 0, 0))])
        connection.send(header(xid, lists=lists) + call(xid))
        self.replied(connection, xid)

    def many_segments(self):
        connection = self.connect()
        xid = self.next_xid()
        message = compound(xid, PUTROOTFH, GETFH)
        reads = [read(0, connection.piece(number, data=message[number:number + 1]))
                 for number in range(len(message))]
        connection.send(header(xid, RDMA_NOMSG, chunks(reads)))
        self.replied(connection, xid)

    def a_reply_chunk(self):
        connection = self.connect()
        xid = self.next_xid()
        pieces = [connection.piece(0, 10), segment(0, 0, 0), connection.piece(256, 500)]
        connection.send(header(xid, lists=chunks(reply=array(*pieces)))
                        + compound(xid, PUTROOTFH, GETFH))
        message = self.replied(connection, xid, RDMA_NOMSG)
        assert message[16:28] == words(0, 0, 1) and message[28:32] == words(3), message.hex()
        lengths = [struct.unpack_from(">I", message, 36 + 16 * n)[0] for n in range(3)]
        assert lengths[0] == 10 and lengths[1] == 0 and 0 < lengths[2] < 500, lengths
        reply = connection.memory.read(10, 0) + connection.memory.read(lengths[2], 256)
        assert reply[:8] == words(xid, 1) and len(reply) % 4 == 0, reply.hex()

    #= V1-100, NFS-003, NFS-004
    #= NFS-008
    def a_reply_chunk_that_is_too_small(self):
        connection = self.connect()
        for chunk in (array(), array(connection.piece(0, 4)), array(segment(0, 0, 0))):
            xid = self.next_xid()
            connection.send(header(xid, lists=chunks(reply=chunk)) + call(xid))
            self.refused(connection, xid)

    #= V1-065, V1-108
    #= NFS-037, NFS-038
    def write_chunks_without_a_result(self):
        connection = self.connect()
        xid = self.next_xid()
        piece = connection.piece(0, 64)
        writes = [array(piece), array(), array(piece, piece)]
        connection.send(header(xid, lists=chunks((), writes)) + compound(xid, PUTROOTFH))
        message = self.replied(connection, xid)
        unused = segment(connection.memory.rkey, 0, connection.memory.buf)
        expected = chunks((), [array(unused), array(), array(unused, unused)])
        assert message[16:16 + len(expected)] == expected, message.hex()
        # NULL has no result that could be moved.
        xid = self.next_xid()
        connection.send(header(xid, lists=chunks((), [array(piece)])) + call(xid))
        self.refused(connection, xid)

    #= V1-071, V1-074, NFS-035, NFS-036
    #= NFS-037, NFS-039
    def results_in_write_chunks(self):
        if not FILE:
            return
        path = [lookup(name) for name in FILE.split("/") if name]
        # nfsd (nfsd_iter_read) puts the data of a second READ into another page than the Reply has,
        # unless it begins with a page. Between two READs' data are 28 bytes of GETATTR and 16 of
        # READ, which end with a page here.
        reads = [(1, 4051), (7, 4050)] + [(100 * n, 4052) for n in range(9)] + [(9999, 100)]
        moved = [CONTENT[offset:offset + length] for offset, length in reads[:-1]]
        operations = [operation for read in reads for operation in (read_file(*read), GETSIZE)]
        # For the last there is an empty chunk, or none.
        for last in ((array(),), ()):
            connection = self.connect()
            connection.memory.write(bytes([0xAA]) * 0x20000, 0x20000, 0)
            sizes = [(0, 2000), (4096, 1), (8192, 4000)]
            sizes += [(0x4000 + 0x2000 * n, 4096) for n in range(10)]
            pieces = [connection.piece(*size) for size in sizes]
            writes = (array(*pieces[:3]), *map(array, pieces[3:]), *last)
            xid = self.next_xid()
            connection.send(header(xid, lists=chunks((), writes))
                            + compound(xid, PUTROOTFH, *path, *operations))
            message = self.replied(connection, xid)
            parts = [moved[0][:2000], moved[0][2000:2001], moved[0][2001:], *moved[1:]]
            used = [segment(connection.memory.rkey, len(part), connection.memory.buf + start)
                    for part, (start, _) in zip(parts, sizes)]
            lists = chunks((), (array(*used[:3]), *map(array, used[3:]), *last))
            assert message[16:16 + len(lists)] == lists, message.hex()
            for part, (start, _) in zip(parts, sizes):
                got = connection.memory.read(len(part) + 4, start)
                assert got == part + bytes([0xAA]) * 4, f"{got.hex()} at {start}"
            # What stays: the results without the data that was moved.
            at = 16 + len(lists) + 24
            assert message[at:at + 4] == words(0), "the COMPOUND has failed"
            at += 12 + 8 * (1 + len(path))
            for offset, length in reads:
                data = CONTENT[offset:offset + length]
                inline = words(25, 0, offset + length >= len(CONTENT), len(data))
                if offset == 9999:
                    inline += data + bytes(3)
                inline += words(9, 0, 1, 1 << 4, 8, 0, len(CONTENT))
                assert message[at:at + len(inline)] == inline, message[at:].hex()
                at += len(inline)
            assert at == len(message), f"{len(message) - at} bytes more"

    #= V1-003
    def xids_that_differ(self):
        connection = self.connect()
        xid = self.next_xid()
        connection.send(header(xid) + call(xid + 1))
        self.refused(connection, xid)

    def replies_to_nothing(self):
        connection = self.connect()
        for number in range(5):
            xid = self.next_xid()
            connection.send(header(xid, credits=(0, 1, 0xFFFFFFFF, 2, 3)[number])
                            + words(xid, 1, 0, 0, 0, 0))
            self.dropped(connection)

    def foreign_memory_to_read(self):
        connection = self.connect()
        xid = self.next_xid()
        piece = segment(connection.memory.rkey ^ 0x5A5A00, 64, connection.memory.buf)
        connection.send(header(xid, RDMA_NOMSG, chunks([read(0, piece)])))
        self.ended(connection)

    def foreign_memory_to_write(self):
        connection = self.connect()
        xid = self.next_xid()
        piece = segment(connection.memory.rkey ^ 0x5A5A00, 512, connection.memory.buf)
        connection.send(header(xid, lists=chunks(reply=array(piece))) + call(xid))
        self.ended(connection)

    def a_message_that_is_too_long(self):
        connection = self.connect()
        xid = self.next_xid()
        connection.send(header(xid) + call(xid, 3, 0, bytes(INLINE)))
        self.ended(connection)

    #= V1-039
    def more_calls_than_credits(self):
        connection = self.connect()
        xids = [self.next_xid() for _ in range(250)]
        for xid in xids:
            connection.send(header(xid) + call(xid))
        got = set()
        for _ in xids:
            got.add(struct.unpack_from(">I", connection.answer())[0])
        assert got == set(xids), f"{len(got)} Replies"

    def garbage(self):
        connection = self.connect()
        value = 12345
        for _ in range(200):
            body = b""
            for _ in range(30):
                value = (value * 1103515245 + 12345) & 0x7FFFFFFF
                body += words((value >> 8) % 3 if value & 1 else value)
            # Nothing that could be a handle of ours, and no Segment to read or to write.
            connection.send(words(self.next_xid(), 1, 1, (value >> 4) % 2) + body)
            try:
                connection.answer(0.02)
            except Lost:
                connection = self.connect()

    def ends_in_every_phase(self):
        for phase in range(4):
            connection = self.connect()
            xid = self.next_xid()
            if phase == 1:
                connection.send(header(xid) + call(xid))
            elif phase == 2:
                piece = connection.piece(0, 1 << 20)
                connection.send(header(xid, RDMA_NOMSG, chunks([read(0, piece)])))
            elif phase == 3:
                connection.send(header(xid, lists=chunks(reply=array(connection.piece(0, 4096))))
                                + call(xid))
            connection.close()

    def never_takes_a_reply(self):
        connection = self.connect(receives=0, rnr_retry=0)
        for _ in range(40):
            xid = self.next_xid()
            connection.send(header(xid) + call(xid))
        time.sleep(QUIET)

    # Takes long: not without being named.
    def takes_no_reply_for_ever(self):
        if "takes_no_reply_for_ever" not in sys.argv:
            return
        connection = self.connect(receives=0)
        ended, sends = 0, 0
        waited = time.monotonic()
        # Until the server takes no more: all its threads wait for room.
        while time.monotonic() < waited + 3:
            if sends - ended < SENDS - 1:
                xid = self.next_xid()
                connection.send(header(xid) + call(xid))
                sends += 1
            count, completions = connection.sent.poll(1)
            if count:
                assert completions[0].status == IBV_WC_SUCCESS, "the connection has ended at once"
                ended += 1
                waited = time.monotonic()
        assert ended > 300, f"only {ended} Calls were taken"
        other = self.connect()
        xid = self.next_xid()
        other.send(header(xid) + call(xid))
        assert other.answer(60), f"no Reply to another client, after {ended} Calls"

    def many_connections(self):
        connections = [self.connect() for _ in range(60)]
        for connection in connections:
            self.lives(connection)
        for connection in connections:
            connection.close()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tests = Tests(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "20049")
    names = [name for name, value in vars(Tests).items() if callable(value)
             and not name.startswith("_")
             and name not in ("connect", "next_xid", "replied", "refused", "dropped", "lives",
                              "ended")]
    names = [name for name in names if not sys.argv[3:] or name in sys.argv[3:]]
    print(f"TAP version 13\n1..{len(names)}", flush=True)
    failed = 0
    for number, name in enumerate(names, 1):
        said = ""
        try:
            getattr(tests, name)()
            tests.null()
        except (AssertionError, Lost, Refused, PyverbsError, struct.error, TypeError) as error:
            said = f"{type(error).__name__}: {error}"
            failed += 1
        for connection in tests.kept:
            try:
                connection.close()
            except PyverbsError:
                pass
        tests.past = getattr(tests, "past", []) + tests.kept
        tests.kept = []
        print(f"{'not ' if said else ''}ok {number} {name.replace('_', ' ')}", flush=True)
        if said:
            print(f"# {said}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
