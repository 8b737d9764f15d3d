# SPDX-License-Identifier: GPL-2.0
"""Host authentication by a shared key, as Documentation/version2.rst describes it."""

import hmac
import ipaddress

from collections.abc import Iterable
from typing import NamedTuple

from wire import words

HOSTAUTH = 6
MECHANISM, HELLO, SERVER, CLIENT = 0x50534B32, 1, 2, 3


class End(NamedTuple):
    """One end of a connection: address and port in text and number, and the queue pair's number."""
    address: str
    port: int
    queue_pair: int

    def octets(self) -> bytes:
        address = ipaddress.ip_address(self.address.split("%")[0])
        if address.version == 4:
            address = ipaddress.ip_address(f"::ffff:{address}")
        return address.packed + words(self.port, self.queue_pair & 0xFFFFFF)


def said(which: int, *octets: bytes) -> bytes:
    """Returns a message of the exchange."""
    return words(MECHANISM, which) + b"".join(octets)


def proven(which: int, nonces: Iterable[bytes], ends: Iterable[End]) -> bytes:
    """Returns the bytes whose keyed hash is a proof. NONCES and ENDS are the client's and the server's."""
    return said(which, *nonces, *(end.octets() for end in ends))


def proof(key: bytes, which: int, nonces: Iterable[bytes], ends: Iterable[End]) -> bytes:
    """Returns the proof that the sender of message WHICH has the KEY."""
    return hmac.digest(key, proven(which, nonces, ends), "sha256")


def material(octets: bytes) -> bytes:
    """Returns the property HOSTAUTH with OCTETS, whose length is a multiple of four."""
    return words(HOSTAUTH, 4 + len(octets), len(octets)) + octets


def property_set(octets: bytes) -> bytes:
    """Returns a set of properties whose only property is OCTETS as authentication material."""
    return words(1) + material(octets)
