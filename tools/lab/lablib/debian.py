# SPDX-License-Identifier: GPL-2.0
"""Debian's kernel packages: their versions and their files."""

import re
import shutil
import subprocess

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from . import cache, progress, roots
from .cache import LAB
from .progress import LabError, say

# The versions for the development of the project, and a day on which the mirrors had them. Backports move on;
# the snapshot archive keeps old versions.
PINNED = {"6.12": "6.12.107", "7.2": "7.2.12", "7.3": "7.3.4"}
# A kernel that Debian builds without Rust: it is only booted, with its own rpcrdma.
WITHOUT_RUST = ("6.12",)
SNAPSHOT = "http://snapshot.debian.org/archive/debian/20261120T000000Z/"
# The modules that a node needs to access its image and its channels.
IN_INITRD = ("virtio_pci", "virtio_blk", "erofs", "overlay", "virtio_console", "virtio_net",
             "9p", "9pnet_virtio")

# Modules that the crypto API finds by the name that a module requests: depmod does not know them. The first
# two are of 6.12.
ASKED_FOR = {"libcrc32c": "crc32c_generic", "rdma_rxe": "crc32_generic", "krb5": "krb5enc"}


def release(version: str) -> str:
    """The output of `uname -r` under Debian's kernel VERSION."""
    return f"{version}+deb13-amd64"


def series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _in_root(*argv: str) -> str:
    done = subprocess.run(roots.in_build_root(argv), capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(argv)} failed in the build root: {done.stderr.strip()}")
    return done.stdout


def _offered() -> dict[str, list[str]]:
    """All kernel packages that apt offers, with their versions, newest first."""
    names = [n for n in _in_root("apt-cache", "pkgnames", "linux-").split()
             if re.match(r"linux-(source|binary|binary-unsigned|base|modules|headers)-7\.", n)
             or re.fullmatch(r"linux-image-6\.12\.\d+\+deb13-amd64(-unsigned)?", n)]
    offered: dict[str, list[str]] = {}
    for line in _in_root("apt-cache", "madison", *names).splitlines():
        name, version, _ = (field.strip() for field in line.split("|", 2))
        offered.setdefault(name, []).append(version)
    return offered


def has_rust(version: str) -> bool:
    return series(version) not in WITHOUT_RUST


def _packages(version: str, offered: dict[str, list[str]]) -> dict[str, str] | None:
    """The packages of kernel VERSION as apt-get names them; None unless all are there."""
    of = release(version)
    # A new kernel is first there unsigned, which boots as well.
    wanted = {
        "source": (f"linux-source-{series(version)}",),
        "image": (f"linux-binary-{of}", f"linux-binary-unsigned-{of}"),
        "base": (f"linux-base-{of}",),
        "modules": (f"linux-modules-{of}",),
        "headers": (f"linux-headers-{of}",),
    } if has_rust(version) else {"image": (f"linux-image-{of}", f"linux-image-{of}-unsigned")}
    found = {kind: [f"{name}={v}" for name in names for v in offered.get(name, ())
                    if v.startswith(f"{version}-")] for kind, names in wanted.items()}
    if not all(found.values()):
        return None
    return {kind: names[0] for kind, names in found.items()}


def _version_key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _newest(offered: dict[str, list[str]], wanted: str) -> str | None:
    """The newest complete version of the same series as WANTED."""
    versions = {v.split("-")[0] for all_ in offered.values() for v in all_}
    complete = [v for v in versions
                if has_rust(v) == has_rust(wanted) and _packages(v, offered)]
    return max(complete, key=_version_key) if complete else None


def _use_snapshot() -> None:
    """Adds the snapshot archive to apt's sources, if it can be reached."""
    source = "\n".join(f"deb [check-valid-until=no] {SNAPSHOT} {suite} main"
                       for suite in ("trixie", "trixie-backports"))
    script = ('list=/etc/apt/sources.list.d/snapshot.list; echo "$1" >$list; '
              "apt-get update -qq -o Acquire::Retries=0 -o APT::Update::Error-Mode=any "
              "|| { rm $list; apt-get update -qq; }")
    _in_root("sh", "-c", script, "sh", source)


def _find(version: str, exactly: bool) -> tuple[str, dict[str, str]]:
    """The version to use and its packages: VERSION, else unless EXACTLY the newest complete one."""
    offered = _offered()
    if not _packages(version, offered):
        say(f"Debian's kernel {version} is not in the package lists; refreshing them")
        _in_root("apt-get", "update", "-qq")
        offered = _offered()
    if not _packages(version, offered) and not exactly:
        newest = _newest(offered, version)
        if newest:
            say(f"Debian's kernel {version} is not on the mirror; using {newest}")
            version = newest
    if not _packages(version, offered):
        say(f"looking for Debian's kernel {version} in the snapshot archive")
        _use_snapshot()
        offered = _offered()
    found = _packages(version, offered)
    if not found:
        needed = ("linux-source, linux-binary, linux-base, linux-modules and linux-headers"
                  if has_rust(version) else "linux-image")
        raise LabError(f"no Debian kernel {version}: there must be {needed} of it; choose another "
                       "with LAB_KERNEL_VERSION (`apt-cache search linux-binary-7` in "
                       "tools/lab/buildroot lists them)")
    return version, found


def fetch(version: str, exactly: bool) -> tuple[str, Path]:
    """The cache entry with the packages of kernel VERSION, and the version it really has."""
    def build_for(names: dict[str, str]) -> Callable[[Path, Path], None]:
        def build(tmp: Path, _final: Path) -> None:
            script = "set -e; umask 022; cd $1; chown _apt .; shift; apt-get download -qq \"$@\""
            progress.run(f"fetching Debian's kernel {version}", roots.in_build_root(
                ["sh", "-c", script, "sh", tmp, *names.values()]), tmp / "log")
            for kind, name in names.items():
                stem = name.split("=")[0]
                next(tmp.glob(f"{stem}_*.deb")).rename(tmp / f"{kind}.deb")
        return build

    def inputs() -> list[str]:
        return [version, cache.source_of(_packages)]

    known = cache.HOME / f"packages-{version}-{cache.digest(inputs())}"
    if known.is_dir():
        return version, known
    with cache.locked("apt"):
        version, names = _find(version, exactly)
    return version, cache.entry(f"packages-{version}", inputs(), build_for(names))


def unpack(package: Path, target: Path) -> None:
    """Unpacks the .deb PACKAGE into TARGET."""
    done = subprocess.run(roots.in_build_root(["dpkg-deb", "-x", package, target]),
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"cannot unpack {package}: {done.stderr.strip()}")


def _module(path: str) -> str:
    return path.split("/")[-1].split(".")[0].replace("-", "_")


def _with_dependencies(tree: Path, names: Iterable[str]) -> list[str]:
    """The files of modules NAMES and of their dependencies, each after its dependencies."""
    needs = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    paths = {_module(path): path for path in needs}
    built_in = {_module(line) for line in (tree / "modules.builtin").read_text().splitlines()}
    for path, needed in needs.items():
        needed += [paths[asked] for asker, asked in ASKED_FOR.items()
                   if asked in paths and asker in map(_module, (path, *needed))]
    ordered: list[str] = []
    for name in names:
        if name not in paths and name not in built_in:
            raise LabError(f"Debian's kernel has no module {name}")
        if name in paths:
            ordered += [p for p in (*reversed(needs[paths[name]]), paths[name]) if p not in ordered]
    return ordered


def pack_initrd(boot_files: Path, modules: Iterable[Path], log: Path) -> None:
    """Makes BOOT_FILES/initrd.cpio, which loads MODULES in this order and starts the node's init."""
    initrd = boot_files / "initrd"
    for directory in ("bin", "dev", "root", "modules"):
        (initrd / directory).mkdir(parents=True)
    shutil.copy(roots.build_root() / "usr/bin/busybox", initrd / "bin")
    shutil.copy(LAB / "node/initrd-init", initrd / "init")
    order = []
    for path in modules:
        shutil.copy(path, initrd / "modules")
        order.append(f"{path.name}\n")
    (initrd / "order").write_text("".join(order))
    progress.run("packing the initrd", roots.in_build_root(
        ["sh", "-c", "find . | cpio -o -H newc >../initrd.cpio"], cwd=initrd), log)
    shutil.rmtree(initrd)


def _build_boot(version: str, packages: Path, listed: list[str], tmp: Path, _final: Path) -> None:
    log = tmp / "log"
    full = tmp / "full"
    full.mkdir()
    for part in ("image", "base", "modules"):
        # 6.12 has all of it in its image's.
        if (packages / f"{part}.deb").exists():
            unpack(packages / f"{part}.deb", full)
    tree = full / "usr/lib/modules" / release(version)
    kept = tmp / "lib/modules" / release(version)
    kept.mkdir(parents=True)
    progress.run(f"reading the modules of Debian's kernel {version}", roots.in_build_root(
        ["depmod", "-b", full / "usr", "-m", "/lib/modules", release(version)]), log)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(tree / name, kept)
    for path in _with_dependencies(tree, listed):
        (kept / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / path, kept / path)
    # May be vmlinuz.unsigned.
    shutil.copy(next(chain(tree.glob("vmlinuz*"), full.glob("boot/vmlinuz*"))), tmp / "vmlinuz")
    # Once here instead of slowly at every boot.
    progress.run("unpacking modules", roots.in_build_root(
        ["sh", "-c", 'find "$1" -name "*.ko.xz" -exec xz -d {} +', "sh", kept]), log)
    pack_initrd(tmp, [kept / path.removesuffix(".xz") for path in _with_dependencies(tree, IN_INITRD)], log)
    shutil.rmtree(full)


def boot(version: str, packages: Path) -> Path:
    """The files that a node boots: vmlinuz, initrd.cpio, and the modules that a node may use."""
    listed = [line for line in cache.text_of("kernels/debian.modules")[0].splitlines()
              if not line.startswith("#")]
    inputs = [version, listed, IN_INITRD, ASKED_FOR, cache.text_of("node/initrd-init"),
              cache.source_of(_build_boot), cache.source_of(pack_initrd)]
    return cache.entry(f"boot-{version}", inputs, lambda tmp, final: _build_boot(
        version, packages, listed, tmp, final))
