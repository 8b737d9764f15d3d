# SPDX-License-Identifier: GPL-2.0
"""Faults of a server, by name. peer.py causes them; peer2.py causes the faults of version2.py.

The arguments of a fault are the peer and the Reply. The fault sends the Reply, changed, or another message.
The test gets the return value of the fault, or "sent".
"""

from . import callbacks, connections, grants, memory, messages, replies, unusual
from .base import FAULTS, Fault

__all__ = ["FAULTS", "Fault", "callbacks", "connections", "grants", "memory", "messages", "replies",
           "unusual"]
