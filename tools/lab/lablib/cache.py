# SPDX-License-Identifier: GPL-2.0
"""The cache: directories that are either complete or not there.

An entry is named after a hash of everything that went into it. It is built under a temporary
name while its lock is held, and renamed when it is complete; so a half-built entry is never used
and two labs never build the same one at once.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path

from .progress import say

HOME = Path(os.environ.get("LAB_CACHE") or "/var/cache/rpcrdma-lab").absolute()
LAB = Path(__file__).resolve().parent.parent
PROJECT = LAB.parent.parent


def digest(inputs):
    """A short name for INPUTS: anything JSON can hold."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def text_of(*paths):
    """The text of files of the lab, to be part of a key."""
    return [(LAB / path).read_text() for path in paths]


@contextlib.contextmanager
def locked(name):
    """Holds the lock NAME of the cache; says so when it has to wait."""
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / f"{name}.lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another lab is building {name}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(kind, inputs, build):
    """The directory of entry KIND made from INPUTS; BUILD(tmp, final) fills it if need be."""
    final = HOME / f"{kind}-{digest(inputs)}"
    if final.is_dir():
        return final
    with locked(final.name):
        if final.is_dir():
            return final
        tmp = HOME / f"{final.name}.tmp"
        if tmp.exists():
            shutil.rmtree(tmp)
        tmp.mkdir()
        build(tmp, final)
        tmp.rename(final)
    return final
