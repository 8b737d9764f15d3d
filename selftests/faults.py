# SPDX-License-Identifier: GPL-2.0
"""Faults of a server, by name. peer.py causes them.

The arguments of a fault are the peer and the Reply. The fault sends the Reply, changed, or another message;
its result is shown to the test.
"""

import dataclasses
import functools
import itertools
import random
import struct
import sys
import time

NFS = 100003
GETATTR, READLINK, READ, WRITE, READDIRPLUS = 1, 5, 6, 7, 17
CALLBACK = 0x40000000
CREATE_SESSION, SEQUENCE, DESTROY_CLIENTID = 43, 53, 57
CB_SEQUENCE = 11
RDMA_MSG, RDMA_NOMSG, RDMA_MSGP, RDMA_DONE, RDMA_ERROR = range(5)

FAULTS = {}


def register(faults):
    """A decorator that adds a fault to FAULTS."""
    def of_procedure(procedure):
        """The fault is one for Replies of this procedure of NFS version 3; None is any."""
        def add(fault):
            faults[fault.__name__] = fault
            fault.suits = lambda call: procedure in (call.procedure, None)
            return fault
        return add
    return of_procedure


strikes = register(FAULTS)


def strikes_operation(operation):
    """The fault is one for a COMPOUND of NFS version 4 that begins with this operation."""
    def suits(call):
        operations = call.operations()
        return operations and operations.word() == operation

    def add(fault):
        FAULTS[fault.__name__] = fault
        fault.suits = suits
        return fault
    return add


def spoils(procedure):
    """The fault changes such a Reply, which then goes its way."""
    def add(change):
        @strikes(procedure)
        @functools.wraps(change)
        def fault(_, reply):
            change(reply)
            reply.send()
        return fault
    return add


def words(*values):
    return struct.pack(f">{len(values)}I", *values)


def callback(xid, procedure=0, credentials=words(0, 0), arguments=b""):
    """A Call of the server; CB_NULL needs no more than an XID."""
    return (words(xid, 1, 16, RDMA_MSG, 0, 0, 0) + words(xid, 0, 2, CALLBACK, 1, procedure) +
            credentials + words(0, 0) + arguments)


# --- Messages that are for no RPC, before the good Reply ------------------------------------


@strikes(READ)
def runt(_, reply):
    reply.connection.send(words(reply.xid, 1))
    reply.send()


@strikes(READ)
def empty(_, reply):
    reply.connection.send(b"")
    reply.send()


@strikes(READ)
def foreign_xid(_, reply):
    for reply.xid in reply.xid ^ 0x5A5A5A5A, reply.xid:
        reply.send()


@strikes(READ)
def twice(_, reply):
    reply.send()
    reply.send()


@strikes(READ)
def many_times_at_once(_, reply):
    """The others come while the memory of the first is being taken from the server."""
    reply.connection.send_at_once([reply.encode()] * 32)


@strikes(READ)
def flood_of_replies(_, reply):
    """To XIDs without an RPC, several times the number of the client's Receives."""
    for reply.xid in [reply.xid ^ 0x5A5A5A5A] * 500 + [reply.xid]:
        reply.send()


@strikes(READ)
def server_call(_, reply):
    """A Call of the server, where no service of the client takes any."""
    reply.connection.send(callback(reply.xid))
    reply.send()


@strikes(READ)
def error_cut_short(_, reply):
    for rest in (), (1,), (1, 1):
        reply.connection.send(reply.start()[:12] + words(RDMA_ERROR, *rest))
    reply.send()


@strikes(READ)
def versions_reversed(_, reply):
    reply.connection.send(reply.start()[:12] + words(RDMA_ERROR, 1, 2, 1))
    reply.send()


@strikes(READ)
def flood(_, reply):
    """Many times more messages than credits."""
    for _ in range(1000):
        reply.connection.send(words(reply.xid))
    reply.send()


@spoils(READ)
def no_credits(reply):
    reply.credits = 0


@spoils(READ)
def endless_credits(reply):
    reply.credits = 0xFFFFFFFF


# --- Replies that cannot be used ------------------------------------------------------------


@strikes(GETATTR)
def bad_replies_to_the_next_calls(_, reply):
    """They begin before the Calls come, whose XIDs are known, and are all that does."""
    last = swapped(reply.xid)
    reply.send()
    reply.kind, reply.payload = RDMA_NOMSG, b""
    end = time.monotonic() + 60
    for xid in range(last + 1, last + 401):
        reply.xid = swapped(xid)
        while not (call := reply.connection.next_call()):
            if time.monotonic() > end:
                return f"{xid - last - 1} Calls have come"
            reply.send()
        if call.xid != reply.xid:
            return f"a Call has come with XID {call.xid:#x} instead of {reply.xid:#x}"
        reply.send()
    return "sent"


def swapped(xid):
    """Clients of Linux count XIDs in their own order of bytes."""
    return int.from_bytes((xid & 0xFFFFFFFF).to_bytes(4, "big"), sys.byteorder)


def instead(reply, *body):
    """Sends the XID, version and credits of the Reply, and then these words."""
    reply.connection.send(reply.start()[:12] + words(*body))


@strikes(READ)
def error_version(_, reply):
    instead(reply, RDMA_ERROR, 1, 2, 3)


@strikes(READ)
def error_chunk(_, reply):
    instead(reply, RDMA_ERROR, 2)


@strikes(READ)
def error_unknown(_, reply):
    instead(reply, RDMA_ERROR, 77)


@spoils(READ)
def type_msgp(reply):
    reply.kind = RDMA_MSGP


@strikes(READ)
def type_done(_, reply):
    instead(reply, RDMA_DONE)


@spoils(READ)
def type_unknown(reply):
    reply.kind = 0x80000000


@strikes(READ)
def header_cut_short(_, reply):
    instead(reply, RDMA_MSG, 0)


@strikes(READ)
def no_chunk_lists(_, reply):
    instead(reply, RDMA_MSG)


@strikes(READ)
def presence_of_two(_, reply):
    instead(reply, RDMA_MSG, 0, 2, 0, 0, 0)


@strikes(READ)
def endless_list(_, reply):
    instead(reply, RDMA_MSG, 0, *[1, 0] * 500)


@strikes(READ)
def endless_chunk(_, reply):
    instead(reply, RDMA_MSG, 0, 1, 0xFFFFFFFF, 1, 2, 3, 4)


@spoils(READ)
def no_payload(reply):
    reply.payload = b""


@spoils(READ)
def longer_than_its_buffers(reply):
    reply.payload += bytes(3000)


@spoils(READ)
def payload_of_another(reply):
    reply.payload = words(reply.xid ^ 1) + reply.payload[4:]


@spoils(READ)
def nowhere(reply):
    """RDMA_NOMSG, and no Reply chunk."""
    reply.kind = RDMA_NOMSG


@spoils(READ)
def read_list(reply):
    reply.reads = [(0, dataclasses.replace(reply.call.writes[0][0], length=64))]


@spoils(READ)
def reply_chunk_not_offered(reply):
    reply.reply = [dataclasses.replace(reply.call.writes[0][0], length=64)]
    reply.kind = RDMA_NOMSG


@spoils(READ)
def write_chunk_twice(reply):
    reply.writes *= 2


@spoils(READ)
def other_handle(reply):
    reply.writes[0][0].handle ^= 0x100


@spoils(READ)
def other_offset(reply):
    reply.writes[0][0].offset += 4096


@spoils(READ)
def too_much_written(reply):
    reply.writes[0][0].length = 0xFFFFFFFC


@spoils(READ)
def one_octet_too_much(reply):
    reply.writes[0][0].length = reply.call.writes[0][0].length + 1


@spoils(READ)
def too_many_segments(reply):
    reply.writes[0] += [dataclasses.replace(reply.writes[0][0], length=0)]


@spoils(READ)
def behind_the_end_of_addresses(reply):
    reply.writes[0][0].offset = 0xFFFFFFFFFFFFFFF0


@spoils(READDIRPLUS)
def reply_chunk_other_handle(reply):
    into_the_reply_chunk(reply)
    reply.reply[0].handle ^= 0x100


@spoils(READDIRPLUS)
def reply_chunk_too_long(reply):
    into_the_reply_chunk(reply)
    reply.reply[0].length = reply.call.reply[0].length + 4


@spoils(READDIRPLUS)
def reply_chunk_unused(reply):
    into_the_reply_chunk(reply)
    reply.reply[0].length = 0


@spoils(READDIRPLUS)
def reply_chunk_with_a_gap(reply):
    """Its first segment is not full, and the second has something."""
    into_the_reply_chunk(reply)
    first, second = reply.reply[:2]
    first.length -= 4
    second.length = max(second.length, 4)


@spoils(READDIRPLUS)
def reply_chunk_one_segment_more(reply):
    into_the_reply_chunk(reply)
    reply.reply.append(dataclasses.replace(reply.reply[0], length=0))


@spoils(READDIRPLUS)
def reply_chunk_and_payload(reply):
    into_the_reply_chunk(reply)
    reply.kind, reply.payload = RDMA_MSG, words(reply.xid, 1, 0, 0, 0, 0)


def into_the_reply_chunk(reply):
    if reply.kind != RDMA_NOMSG:
        reply.reply = reply.connection.fill(reply.call.reply, reply.payload)
        reply.kind, reply.payload = RDMA_NOMSG, b""


# --- Replies that are unusual, and right ----------------------------------------------------


def inline(reply):
    """The data of a READ goes with the message, although there may be a Write chunk for it."""
    reply.writes = [[dataclasses.replace(segment, length=0) for segment in chunk]
                    for chunk in reply.call.writes]
    reply.payload = reply.answer


@spoils(READ)
def result_inline(reply):
    inline(reply)


@spoils(READDIRPLUS)
def reply_chunk_cut_to_what_is_used(reply):
    """Linux before 4.12 leaves out the Segments that it did not use."""
    into_the_reply_chunk(reply)
    reply.reply = [segment for segment in reply.reply if segment.length]
    assert len(reply.reply) < len(reply.call.reply)


@spoils(READLINK)
def link_cut_to_what_is_used(reply):
    into_the_reply_chunk(reply)
    reply.reply = [segment for segment in reply.reply if segment.length]
    assert len(reply.reply) < len(reply.call.reply)


@spoils(READ)
def write_chunk_cut_to_nothing(reply):
    """As when nothing of it was used."""
    inline(reply)
    reply.writes = [[] for _ in reply.writes]


@spoils(READ)
def no_write_list(reply):
    """ntirpc leaves the Write list out when it has put the data inline."""
    inline(reply)
    reply.writes = []


@spoils(READ)
def reply_chunk_not_offered_and_unused(reply):
    reply.reply = [dataclasses.replace(reply.call.writes[0][0], length=0)]


@spoils(READ)
def write_chunk_more_than_offered_and_unused(reply):
    reply.writes += [[dataclasses.replace(reply.call.writes[0][0], length=0)]]


@strikes(READ)
def pad_of_another_length(_, reply):
    """NFS-Ganesha 6.5 pads with count % 4 zeros, so its message may have any length."""
    inline(reply)
    count = int.from_bytes(reply.call.payload[-4:])
    reply.payload = reply.payload[:len(reply.payload) - -count % 4] + bytes(count % 4)
    reply.send()
    return f"{len(reply.payload)} octets"


@spoils(READ)
def pad_in_the_message(reply):
    """The data are in the Write chunk, and the XDR pad that ends them goes with the message."""
    reply.payload += bytes(3)


@spoils(READ)
def no_attributes(reply):
    """A server may omit the attributes of the file, so this head is short."""
    at = 28
    if reply.payload[at:at + 4] != words(1):
        raise ValueError("there are no attributes")
    reply.payload = reply.payload[:at] + words(0) + reply.payload[at + 4 + 84:]


@strikes(READ)
def nothing_written(_, reply):
    """The READ claims to have data, and the Write chunk is returned unused."""
    for segment in reply.writes[0]:
        segment.length = 0
    reply.send()


@strikes(WRITE)
def read_again(_, reply):
    """Until the Reply, the data of a Call's Read chunk stays readable and does not change."""
    data = [reply.connection.read(segment) for _, segment in reply.call.reads]
    reply.send()
    return "the same" if b"".join(data) in reply.call.payload else "other data"


# --- Credits --------------------------------------------------------------------------------


def calls_that_come(peer, reply):
    """Holds the Reply back and takes Calls for a while; answers all of them in the end."""
    held = [reply.call]
    for _ in range(300):
        call = reply.connection.next_call()
        if call:
            held.append(call)
        peer.pause()
    reply.send()
    for call in held[1:]:
        peer.answer(call)
    return len(held)


@spoils(READ)
def grant_of_one(reply):
    reply.credits = reply.connection.credits = 1


@spoils(READ)
def grant_of_three(reply):
    reply.credits = reply.connection.credits = 3


@strikes(READ)
def count_calls(peer, reply):
    return f"{calls_that_come(peer, reply)} Calls without a Reply"


@strikes(READ)
def replies_at_once(peer, reply):
    """The number of Calls that have arrived, at once."""
    calls = list(itertools.islice(peer.calls(8), 30))
    replies = [peer.make_reply(call) for call in calls]
    reply.connection.send_at_once([each.encode() for each in [reply, *replies]])
    return f"{len(calls) + 1} Replies"


@strikes(READDIRPLUS)
def reply_to_the_dead(peer, reply):
    """The process that waited is killed; as long as its Call has no Reply, it has its credit."""
    peer.wait_for_the_test()
    early = list(peer.calls(2))
    reply.send()
    for call in early:
        peer.answer(call)
    return f"{len(early)} Calls beyond the grant"


@strikes(READDIRPLUS)
def reply_to_the_dying(peer, reply):
    """The process that waited has been killed, and its task has not ended yet."""
    peer.wait_for_the_test()
    reply.send()


@strikes(READDIRPLUS)
def no_reply_at_all(_, _reply):
    pass


@strikes(READDIRPLUS)
def silence_to_the_dead(peer, _):
    peer.wait_for_the_test()
    peer.hang_up("as told")


@strikes(READDIRPLUS)
def reply_before_its_call(peer, reply):
    """When the waiting process is dead, its slot is reused for a Call that cannot be sent before the Reply. A
    Reply with the XID of that Call is not valid."""
    peer.wait_for_the_test()
    early = list(peer.calls(0.5))
    last = max(counted(call.xid) for call in [reply.call, *early])
    forged = {counted(last + distance & 0xFFFFFFFF) for distance in range(1, 9)}
    for xid in forged:
        # Accepted: NFS3ERR_ACCES, with nothing about the file.
        reply.connection.send(words(xid, 1, reply.credits, RDMA_MSG, 0, 0, 0) +
                              words(xid, 1, 0, 0, 0, 0, 13, 0, 0))
    later = list(peer.calls(0.5))
    reply.send()
    for call in early + later:
        peer.answer(call)
    came = set()
    for call in peer.calls(2):
        peer.answer(call)
        came.add(call.xid)
    return (f"{len(early + later)} Calls beyond the grant, "
            f"{len(came & forged)} after their Replies")


def counted(xid):
    """The client counts its Calls in its own order of octets."""
    return int.from_bytes(xid.to_bytes(4, "big"), sys.byteorder)


@strikes(None)
def first_call(peer, reply):
    """On a new connection no second Call may come before the first Reply."""
    if peer.struck == 1:
        peer.hang_up("as told")
        return "hung up"
    return f"{calls_that_come(peer, reply)} Calls without a Reply"


# --- Memory that is not the server's, or not any more ---------------------------------------


@strikes(READ)
def write_after_the_end(peer, reply):
    """Into memory that an earlier Call had offered."""
    reply.connection.write(peer.ended["write"][-1], b"x" * 64)
    reply.send()


@strikes(READ)
def tells_its_handle(peer, reply):
    """To another peer, which uses it before this Reply is sent."""
    segment = reply.call.writes[0][0]
    with open(peer.control + ".handle", "w", encoding="ascii") as told:
        print(segment.handle, segment.offset, file=told)
    peer.wait_for_the_test()
    reply.send()


@strikes(READ)
def handle_of_another_connection(peer, reply):
    """Writes to memory that another peer was offered, and has told this one of."""
    with open(peer.control.removesuffix(".other") + ".handle", encoding="ascii") as told:
        handle, offset = map(int, told.read().split())
    segment = dataclasses.replace(reply.call.writes[0][0], handle=handle, offset=offset)
    reply.connection.write(segment, b"x" * 64)
    reply.send()


@strikes(WRITE)
def read_after_the_end(peer, reply):
    reply.connection.read(dataclasses.replace(peer.ended["read"][-1], length=64))
    reply.send()


@strikes(READ)
def write_behind_the_chunk(_, reply):
    segment = reply.call.writes[0][-1]
    reply.connection.write(
        dataclasses.replace(segment, offset=segment.offset + segment.length), b"x")
    reply.send()


@strikes(READ)
def write_before_the_chunk(_, reply):
    segment = reply.call.writes[0][0]
    reply.connection.write(dataclasses.replace(segment, offset=segment.offset - 1), b"x")
    reply.send()


@strikes(READ)
def read_from_a_write_chunk(_, reply):
    reply.connection.read(dataclasses.replace(reply.call.writes[0][0], length=64))
    reply.send()


@strikes(WRITE)
def write_into_a_read_chunk(_, reply):
    reply.connection.write(reply.call.reads[0][1], b"x" * 64)
    reply.send()


@strikes(READ)
def guessed_handle(_, reply):
    segment = reply.call.writes[0][0]
    for distance in 1, 0x100, 0x10000, 0x80000000:
        reply.connection.write(
            dataclasses.replace(segment, handle=segment.handle ^ distance), b"x")
    reply.send()


@spoils(READ)
def invalidate(reply):
    """As it should be."""
    reply.invalidate = reply.call.writes[0][0].handle


@spoils(READ)
def invalidate_nothing(reply):
    reply.invalidate = reply.call.writes[0][0].handle ^ 0x123400


@strikes(READ)
def invalidate_twice(_, reply):
    reply.invalidate = reply.call.writes[0][0].handle
    reply.send()
    reply.send()


@strikes(READ)
def invalidate_memory_of_another(peer, reply):
    """The Reply to one RPC ends the access to the memory of another one."""
    for _ in range(5000):
        other = reply.connection.next_call()
        if other and other.writes:
            reply.invalidate = other.writes[0][0].handle
            reply.send()
            return "done"
        if other:
            peer.answer(other)
        peer.pause()
    return "no other Call has come"


@strikes(READDIRPLUS)
def write_for_the_dead(peer, reply):
    """The process that waited is killed, and the answer comes after that."""
    for _ in range(2000):
        peer.pause()
    reply.connection.write(dataclasses.replace(reply.call.reply[0], length=64), b"x" * 64)
    reply.send()


# --- Calls of the server --------------------------------------------------------------------


def callback_that_waits(xid, call):
    """A CB_SEQUENCE that refers to a Call in progress: the client waits half a second for its end before it
    answers this and later callbacks."""
    operations = call.operations()
    operations.word()
    session_id = operations.data[operations.at:operations.at + 16]
    operations.at += 16
    sequence, slot = operations.word(), operations.word()
    return callback(xid, 1, words(1, 20, 0, 0, 0, 0, 0),
                    words(0, 1, 0, 1, CB_SEQUENCE) + session_id + words(1, 0, 0, 0) +
                    words(1) + session_id + words(1, sequence, slot))


@strikes_operation(SEQUENCE)
def callbacks_at_once(peer, reply):
    """More Calls than the session has slots: the place of one may not be free again when its Reply
    has come, and CB_NULL is in no slot."""
    first, *others = range(0x70000000, 0x70000000 + 24)
    begun = time.monotonic()
    peer.connection.send_at_once([callback_that_waits(first, reply.call),
                                  *(callback(xid) for xid in others)])
    waiting, held, waited = {first, *others}, [], None
    for message in peer.calls(5):
        waited = waited or time.monotonic() - begun
        if message.xid in waiting:
            waiting.remove(message.xid)
        else:
            held.append(message)
        if not waiting:
            break
    reply.send()
    for call in held:
        peer.answer(call)
    return f"{24 - len(waiting)} of 24 were answered, the first after {waited:.1f} s"


@strikes_operation(DESTROY_CLIENTID)
def callbacks_after_the_end(peer, reply):
    """The client has no service for them any more, and its transport is about to go."""
    numbers = itertools.count(0x71000000)
    batch = [reply.encode()]
    while True:
        peer.connection.send_at_once(batch + [callback(next(numbers)) for _ in range(8)])
        batch = []
        while peer.connection.next_call():
            pass


@strikes_operation(SEQUENCE)
def callbacks_one_by_one(peer, reply):
    """More of them than the client has Receives for both directions."""
    held, answered = [], set()
    for xid in range(0x72000000, 0x72000000 + 300):
        peer.connection.send(callback(xid))
        for message in peer.calls(5):
            if message.xid == xid:
                bare = not (message.reads or message.writes or message.reply)
                answered.add((message.credits, bare and message.payload[:12] == words(xid, 1, 0)))
                break
            held.append(message)
        else:
            return f"{xid:#x} was not answered"
    reply.send()
    for call in held:
        peer.answer(call)
    return f"all were answered, with credits and accepted: {answered}"


@strikes_operation(SEQUENCE)
def error_in_a_session(_, reply):
    instead(reply, RDMA_ERROR, 2)


@strikes_operation(SEQUENCE)
def session_with_one_credit(_, reply):
    reply.credits = reply.connection.credits = 1
    reply.send()


@strikes_operation(SEQUENCE)
def callback_before_the_reply(peer, reply):
    """The server may need the answer before it can reply, and the Reply's credit is the only one."""
    late = list(peer.calls(1))
    peer.connection.send(callback(0x73000000))
    answered = any(message.xid == 0x73000000 for message in peer.calls(2))
    reply.send()
    return f"{'answered' if answered else 'not answered'}, with {len(late)} Calls beyond the grant"


@strikes_operation(CREATE_SESSION)
def session(peer, reply):
    """The parameters of callbacks that the client has requested."""
    operations = reply.call.operations()
    operations.at += 4 + 8 + 4 + 4
    for _ in "fore", "back":
        _, request, _, _, _, requests = (operations.word() for _ in range(6))
        for _ in range(operations.word()):
            operations.word()
    reply.send()
    return f"requests of {request}, {requests} at once; the inline limit is {peer.connection.inline}"


# --- The connection -------------------------------------------------------------------------


@strikes(READ)
def too_long(_, reply):
    reply.connection.send(reply.encode() + bytes(100000))


@spoils(READ)
def other_version(reply):
    """Once a version is settled there is no other on that connection."""
    reply.version = 2


@strikes(READ)
def hang_up(peer, _):
    peer.hang_up("as told")


@strikes(READ)
def the_same_call(peer, reply):
    """Calls without a Reply are sent again on the next connection, unchanged."""
    if peer.struck == 1:
        peer.unanswered = reply.call
        peer.hang_up("as told")
        return "hung up"
    reply.send()
    first, again = peer.unanswered, reply.call
    same = (first.xid, first.payload) == (again.xid, again.payload)
    return "the same Call" if same else "another Call"


@strikes(READ)
def hang_up_afterwards(peer, reply):
    """When the client waits for nothing."""
    reply.send()
    for call in peer.calls(1):
        peer.answer(call)
    peer.hang_up("as told")


@strikes(READ)
def tell(peer, reply):
    """The client's private data, and the credits that it requests in a Call."""
    reply.send()
    return f"{reply.call.credits} credits asked for, {peer.connection.request}"


@strikes(READ)
def segments_of_reads(peer, reply):
    """No two uses of memory have the same name."""
    peer.segments = getattr(peer, "segments", []) if peer.struck > 1 else []
    peer.segments += reply.call.writes[0]
    reply.send()
    handles, offsets = ({getattr(segment, name) for segment in peer.segments}
                        for name in ("handle", "offset"))
    high = {offset >> 32 for offset in offsets}
    return f"{len(handles)} handles, {len(high)} upper halves of offsets"


def hang_up_and_announce(peer, private_data):
    peer.private_data = private_data
    peer.hang_up("as told")


@strikes(READ)
def no_private_data(peer, _):
    hang_up_and_announce(peer, b"")


@strikes(READ)
def private_data_of_others(peer, _):
    hang_up_and_announce(peer, bytes(range(180)))


@strikes(READ)
def private_data_of_another_version(peer, _):
    hang_up_and_announce(peer, struct.pack(">IBBBB", 0xF6AB0E18, 2, 1, 3, 3))


@strikes(READ)
def private_data_cut_short(peer, _):
    hang_up_and_announce(peer, struct.pack(">IBBB", 0xF6AB0E18, 1, 1, 3))


@strikes(READ)
def private_data_of_the_smallest(peer, _):
    hang_up_and_announce(peer, struct.pack(">IBBBB", 0xF6AB0E18, 1, 0, 0, 0))


@strikes(READ)
def silence(_, _reply):
    pass


@strikes(READ)
def mutations(_, reply):
    """Some octets of the header are others."""
    message = bytearray(reply.encode())
    header = len(message) - len(reply.payload)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(header)
        message[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, message[at] ^ 1 << random.randrange(8)))
    if random.random() < 0.1:
        del message[random.randrange(len(message)):]
    reply.connection.send(bytes(message),
                          reply.call.writes[0][0].handle if random.random() < 0.1 else None)
