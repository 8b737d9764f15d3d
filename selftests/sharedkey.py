# SPDX-License-Identifier: GPL-2.0
"""Host authentication by a shared key, as Documentation/version2.rst describes it."""

import hmac

from wire import words

HOSTAUTH = 6
MECHANISM, HELLO, SERVER, CLIENT = 0x50534B31, 1, 2, 3


def said(which, *octets):
    """A message of the exchange."""
    return words(MECHANISM, which) + b"".join(octets)


def proof(key, which, client, server):
    """What shows that WHICH has the KEY, by the nonces of both sides."""
    return hmac.digest(key, said(which, client, server), "sha256")


def property_set(material):
    """A set of properties with nothing but MATERIAL, whose length is a multiple of four."""
    return words(1, HOSTAUTH, 4 + len(material), len(material)) + material
