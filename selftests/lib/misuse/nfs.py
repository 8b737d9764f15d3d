# SPDX-License-Identifier: GPL-2.0
"""RPC Calls and NFS operations."""

import struct

from collections.abc import Callable
from typing import TYPE_CHECKING

from wire import NFS, Decoder, opaque, words

from .base import FILE, Skip, expect

if TYPE_CHECKING:
    from .client import Client

NULL, GETATTR, ACCESS, READ, WRITE, COMPOUND = 0, 1, 4, 6, 7, 1
# AUTH_NONE, and AUTH_SYS of root.
NOBODY, ROOT = words(0, 0), words(1, 20, 0, 0, 0, 0, 0)
ANONYMOUS = bytes(16)

# Returns a Call with the given XID.
Rpc = Callable[[int], bytes]


def rpc(procedure: int = NULL, arguments: bytes = b"", version: int = 3,
        credentials: bytes = NOBODY) -> Rpc:
    """An NFS Call, which gets its XID when it is sent."""
    return lambda xid: (words(xid, 0, 2, NFS, version, procedure) + credentials + words(0, 0)
                        + arguments)


def compound(*operations: bytes) -> Rpc:
    return rpc(COMPOUND, words(0, 0, len(operations)) + b"".join(operations), 4, ROOT)


def compound_41(*operations: bytes) -> Rpc:
    return rpc(COMPOUND, words(0, 1, len(operations)) + b"".join(operations), 4, ROOT)


PUTROOTFH, GETFH, READLINK = words(24), words(10), words(27)
# GETATTR of the size.
GETSIZE = words(9, 1, 1 << 4)


def lookup(name: str) -> bytes:
    return words(15) + opaque(name.encode())


def path(name: str) -> list[bytes]:
    """Returns the operations that look up a file."""
    if not FILE:
        raise Skip("FILE is not set")
    parts = [part for part in FILE.split("/") if part] + ([name] if name else [])
    return [PUTROOTFH, *map(lookup, parts)]


def read_file(offset: int, length: int) -> bytes:
    """Returns a READ with the stateid of a client without an open file."""
    return words(25) + ANONYMOUS + struct.pack(">QI", offset, length)


def write_file(length: int) -> bytes:
    """Returns a WRITE without its data."""
    return words(38) + ANONYMOUS + words(0, 0, 2, length)


def reads(*ranges: tuple[int, int], name: str = "content") -> Rpc:
    return compound(*path(name), *(read_file(*part) for part in ranges))


def writes(length: int, *behind: bytes, data: bytes = b"", name: str = "written") -> Rpc:
    return compound(*path(name), write_file(length) + data, *behind)


def accepted(payload: bytes) -> tuple[Decoder, int]:
    """Returns a decoder behind the verifier of an RPC Reply, and the accept status."""
    at = Decoder(payload)
    expect([at.word(), at.word(), at.word()][1:] == [1, 0], "denied:", payload[:80].hex())
    at.word()
    at.opaque()
    return at, at.word()


def good(payload: bytes) -> Decoder:
    """Returns a decoder behind the status of a COMPOUND that has succeeded."""
    at, verdict = accepted(payload)
    expect(verdict == 0, "not executed:", payload[:80].hex())
    status = at.word()
    expect(status == 0, "NFS error", status)
    at.opaque()
    at.word()
    return at


def file_handle(c: "Client", name: str) -> bytes:
    at = good(c.replies(compound(*path(name), GETFH)).payload)
    for _ in path(name):
        at.at += 8
    at.at += 8
    return at.opaque()
