#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Counts the outstanding RDMA Reads of a peer, by the RoCE frames of an interface.

reads.py INTERFACE PEER     runs until SIGTERM; then it prints the largest number of outstanding RDMA Reads,
                            and the number of all RDMA Reads

PEER is an IPv4 address. There may be one connection with RDMA Reads at a time.
"""

import signal
import socket
import struct
import sys

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
ROCE = 4791
READ_REQUEST, LAST_RESPONSE, ONLY_RESPONSE = 0x0C, 0x0F, 0x10
# The bytes of a response's data in a frame, on a link with an MTU of this size.
MTU = 4096


class Reads:
    def __init__(self, peer: str) -> None:
        self.peer = socket.inet_aton(peer)
        # The sequence number of each request, and of the request that would follow.
        self.under_way: list[int] = []
        self.next: int | None = None
        self.most = self.total = 0

    def frame(self, frame: bytes) -> None:
        """Counts an Ethernet frame."""
        if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_UDP:
            return
        udp = 14 + 4 * (frame[14] & 15)
        if struct.unpack_from(">H", frame, udp + 2)[0] != ROCE:
            return
        header = udp + 8
        opcode = frame[header]
        number = struct.unpack_from(">I", frame, header + 8)[0] & 0xFFFFFF
        if opcode == READ_REQUEST and frame[26:30] == self.peer:
            length, = struct.unpack_from(">I", frame, header + 24)
            self._request(number, length)
        elif opcode in (LAST_RESPONSE, ONLY_RESPONSE) and frame[30:34] == self.peer:
            self.under_way = [first for first in self.under_way if self._behind(first, number) > 0]

    def _request(self, number: int, length: int) -> None:
        # The request, or its rest, is sent again.
        if self.next is not None and self._behind(number, self.next) < 0:
            return
        self.next = (number + max(1, -(-length // MTU))) & 0xFFFFFF
        self.under_way.append(number)
        self.total += 1
        self.most = max(self.most, len(self.under_way))

    @staticmethod
    def _behind(number: int, other: int) -> int:
        """Returns how far the sequence number is behind the other one; negative if it is before."""
        return (number - other + (1 << 23)) % (1 << 24) - (1 << 23)


def main(interface: str, peer: str) -> None:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
    tap.bind((interface, 0))
    reads = Reads(peer)
    ended: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    print("listening", flush=True)
    tap.settimeout(0.2)
    while True:
        try:
            reads.frame(tap.recv(128))
        except TimeoutError:
            if ended:
                break
    print(f"most={reads.most} total={reads.total}")


if __name__ == "__main__":
    main(*sys.argv[1:])
