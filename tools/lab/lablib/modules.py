# SPDX-License-Identifier: GPL-2.0
"""Which rpcrdma.ko a node finds when its kernel asks for one: ours, or the kernel's own."""

import contextlib
import shutil

from collections.abc import Iterator, Sequence
from pathlib import Path

from . import cache, progress, roots
from .cache import HOME, PROJECT
from .kernels import Kernel
from .progress import LabError
from .sandbox import Word


@contextlib.contextmanager
def _built(kernel: Kernel, variant: Sequence[str]) -> Iterator[Path]:
    """Builds the project's module for KERNEL and yields its path. VARIANT are variables for make.

    The objects stay in the cache, one directory per work tree, kernel and variant, so that the next
    build is incremental; the lock keeps two labs from building there at once.
    """
    objects = HOME / "modules" / cache.digest([str(PROJECT), str(kernel.kdir), *variant])
    objects.mkdir(parents=True, exist_ok=True)
    make = [a for a in kernel.make if a.startswith(("ARCH=", "LLVM="))]
    command: list[Word] = ["make", "-C", PROJECT, "modules", f"KDIR={kernel.kdir}", f"MO={objects}",
                           *variant, *make]
    with cache.locked(f"modules/{objects.name}"):
        log = objects / "lab.log"
        log.unlink(missing_ok=True)
        progress.run(f"building rpcrdma.ko for {kernel.release}", roots.in_build_root(command), log)
        built = list(objects.rglob("rpcrdma.ko"))
        if len(built) != 1:
            raise LabError(f"`make modules MO={objects}` left {len(built)} files named rpcrdma.ko "
                           "there; the lab needs exactly one")
        yield built[0]


def ours(kernel: Kernel, variant: Sequence[str] = ()) -> bytes:
    """Builds the project's module for KERNEL and returns the file's bytes. VARIANT are variables for make."""
    with _built(kernel, variant) as module:
        # Read under the lock: a build going on beside this run cannot change it any more.
        return module.read_bytes()


def objects_of(kernel: Kernel) -> Path:
    """Builds the project's module for KERNEL and returns the directory of its objects."""
    with _built(kernel, ()) as module:
        # The module is rust/rpcrdma.ko.
        return module.parents[1]


def install(kernel: Kernel, module: bytes | None, base: Path) -> None:
    """Fills BASE/lib/modules with KERNEL's modules, and MODULE in `updates`, which depmod prefers to others."""
    tree = base / "lib/modules" / kernel.release
    shutil.copytree(kernel.modules, tree, symlinks=True)
    if module:
        (tree / "updates").mkdir()
        (tree / "updates/rpcrdma.ko").write_bytes(module)
