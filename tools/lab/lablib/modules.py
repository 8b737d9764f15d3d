# SPDX-License-Identifier: GPL-2.0
"""Which rpcrdma.ko a node finds when its kernel asks for one: ours, or the kernel's own."""

import shutil

from collections.abc import Sequence
from pathlib import Path

from . import cache, progress, roots
from .cache import HOME, PROJECT
from .kernels import Kernel
from .progress import LabError
from .sandbox import Word


def _built(kernel: Kernel, variant: Sequence[str], objects: Path) -> Path:
    """Builds the project's module for KERNEL in OBJECTS, whose lock the caller holds, and returns its path."""
    make = [a for a in kernel.make if a.startswith(("ARCH=", "LLVM="))]
    command: list[Word] = ["make", "-C", PROJECT, "modules", f"KDIR={kernel.kdir}", f"MO={objects}",
                           *variant, *make]
    log = objects / "lab.log"
    log.unlink(missing_ok=True)
    progress.run(f"building rpcrdma.ko for {kernel.release}", roots.in_build_root(command), log)
    built = list(objects.rglob("rpcrdma.ko"))
    if len(built) != 1:
        raise LabError(f"`make modules MO={objects}` left {len(built)} files named rpcrdma.ko "
                       "there; the lab needs exactly one")
    return built[0]


def _objects(kernel: Kernel, variant: Sequence[str]) -> Path:
    """Makes the directory in the cache for the objects of one work tree, kernel and variant.

    The objects stay, so that the next build is incremental.
    """
    objects = HOME / "modules" / cache.digest([str(PROJECT), str(kernel.kdir), *variant])
    objects.mkdir(parents=True, exist_ok=True)
    return objects


def ours(kernel: Kernel, variant: Sequence[str] = ()) -> bytes:
    """Builds the project's module for KERNEL and returns the file's bytes. VARIANT are variables for make.

    The lock keeps two labs from building in one directory at once.
    """
    objects = _objects(kernel, variant)
    with cache.locked(f"modules/{objects.name}"):
        # Read under the lock: a build going on beside this run cannot change it any more.
        return _built(kernel, variant, objects).read_bytes()


def objects_of(kernel: Kernel) -> Path:
    """Builds the project's module for KERNEL and returns the directory of its objects."""
    objects = _objects(kernel, ())
    with cache.locked(f"modules/{objects.name}"):
        _built(kernel, (), objects)
    return objects


def install(kernel: Kernel, module: bytes | None, base: Path) -> None:
    """Fills BASE/lib/modules with KERNEL's modules, and MODULE in `updates`, which depmod prefers to others."""
    tree = base / "lib/modules" / kernel.release
    shutil.copytree(kernel.modules, tree, symlinks=True)
    if module:
        (tree / "updates").mkdir()
        (tree / "updates/rpcrdma.ko").write_bytes(module)
