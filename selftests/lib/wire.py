# SPDX-License-Identifier: GPL-2.0
"""RPC-over-RDMA version 1 (RFC 8166) and XDR (RFC 4506) for the scripted peers."""

import dataclasses
import struct

from typing import Self

INLINE = 4096
VERSION = 1
RDMA_MSG, RDMA_NOMSG, RDMA_MSGP, RDMA_DONE, RDMA_ERROR = range(5)
NFS = 100003
# RFC 8797: magic, version, R, and both sizes in units of 1024 bytes less one.
PRIVATE_DATA = struct.pack(">IBBBB", 0xF6AB0E18, 1, 1, INLINE // 1024 - 1, INLINE // 1024 - 1)
SECONDS = 20


def announcement(highest: int, version: int = 1) -> bytes:
    """Returns the announcement of the highest version of RPC-over-RDMA (Documentation/version2.rst)."""
    return struct.pack(">IBBH", 0xD8CC59E2, version, highest, 0)


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


class Lost(Exception):
    """The connection is unusable."""


@dataclasses.dataclass
class Segment:
    """Memory of the client."""
    handle: int
    length: int
    offset: int

    def encode(self) -> bytes:
        return struct.pack(">IIQ", self.handle, self.length, self.offset)


# A Write chunk or a Reply chunk.
Chunk = list[Segment]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def opaque(data: bytes) -> bytes:
    return words(len(data)) + padded(data)


class Decoder:
    """Reads XDR items from bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def word(self) -> int:
        value: int = struct.unpack_from(">I", self.data, self.at)[0]
        self.at += 4
        return value

    def segment(self) -> Segment:
        segment = Segment(*struct.unpack_from(">IIQ", self.data, self.at))
        self.at += 16
        return segment

    def segments(self) -> Chunk:
        return [self.segment() for _ in range(self.word())]

    def opaque(self) -> bytes:
        length = self.word()
        data = self.data[self.at:self.at + length]
        self.at += length + -length % 4
        return data

    def rest(self) -> bytes:
        return self.data[self.at:]

    def arguments(self) -> Self:
        """Positions the reader at the arguments of an RPC Call, behind credentials and verifier (RFC
        5531)."""
        self.at = 24
        for _ in "credentials", "verifier":
            self.word()
            self.opaque()
        return self


def encoded(chunk: Chunk) -> bytes:
    return struct.pack(">I", len(chunk)) + b"".join(segment.encode() for segment in chunk)
