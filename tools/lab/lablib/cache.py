# SPDX-License-Identifier: GPL-2.0
"""The cache: directories that are either complete or not there.

An entry is named after a hash of everything that went into it. It is built under a temporary
name while its lock is held, and renamed when it is complete; so a half-built entry is never used
and two labs never build the same one at once.
"""

import ast
import contextlib
import fcntl
import hashlib
import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from .progress import say

HOME = Path(os.environ.get("LAB_CACHE") or "/var/cache/rpcrdma-lab").absolute()
LAB = Path(__file__).resolve().parent.parent
PROJECT = LAB.parent.parent


def digest(inputs: object) -> str:
    """A short name for INPUTS: anything JSON can hold."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def text_of(*paths: str) -> list[str]:
    """The text of files of the lab, to be part of a key."""
    return [(LAB / path).read_text() for path in paths]


def source_of(function: Callable[..., object]) -> str:
    """The source of FUNCTION, to be part of a key. Annotations are left out, because the result is the same
    without them."""
    text = inspect.getsource(function)
    definition = ast.parse(text).body[0]
    assert isinstance(definition, ast.FunctionDef)
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def offset(line: int | None, column: int | None) -> int:
        return starts[(line or 1) - 1] + (column or 0)

    cuts = [(offset(arg.lineno, arg.col_offset) + len(arg.arg.encode()), arg.annotation)
            for arg in ast.walk(definition) if isinstance(arg, ast.arg) and arg.annotation]
    if definition.returns:
        cuts.append((offset(definition.returns.lineno, definition.returns.col_offset) - len(" -> "),
                     definition.returns))
    source = text.encode()
    for begin, cut in sorted(cuts, key=lambda cut: cut[0], reverse=True):
        source = source[:begin] + source[offset(cut.end_lineno, cut.end_col_offset):]
    return source.decode()


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds the lock NAME of the cache; says so when it has to wait."""
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / f"{name}.lock", "w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another lab is building {name}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(kind: str, inputs: object, build: Callable[[Path, Path], None]) -> Path:
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
