# SPDX-License-Identifier: GPL-2.0
"""The kernels: their source, and for each flavour a tree to build modules against and to boot.

A flavour is a kernel configuration of one source: Debian's own, a virtual machine with a configuration of
kernels/, or User Mode Linux with one or more fragments of kernels/. A version number as flavour means Debian's
kernel of that version.
"""

import dataclasses
import os
import re
import shutil
import subprocess

from collections.abc import Iterable
from pathlib import Path

from . import cache, debian, progress, roots
from .cache import LAB
from .progress import LabError

# Fragments of kernels/.
UML = {"uml": ("uml",), "uml-checkers": ("uml", "checkers")}
# A virtual machine with a configuration of kernels/.
REAL_TIME = "real-time"
# The kernels that the lab builds.
BUILT = (*UML, REAL_TIME)
# All checkers are in one kernel, with these names.
SAME = {"uml-kasan": "uml-checkers", "uml-lockdep": "uml-checkers"}
# The patches of kernels/, for the kernels that the lab builds; their nodes need them.
PATCHES = ("vector", "yield", "secondary", "ipi", "stack", "kasan", "rxe", "cma")
FLAVOURS = (*BUILT, *SAME, "debian", "debian-7.3", "debian-6.12")
# The largest number of processors of the kernels that the lab builds.
MOST_CPUS = 4
# The arguments of every make that builds for a flavour. Debian's own compiler has the name that its
# configuration records.
UML_MAKE = ("ARCH=um",)
DEBIAN_MAKE = ("CC=x86_64-linux-gnu-gcc-14",)


@dataclasses.dataclass
class Kernel:
    """A kernel that is ready: KDIR to build modules against, BOOT with the files that a node needs.

    No module is built for a kernel without KDIR: `refuse_ours` says so.
    """
    flavour: str
    release: str
    kdir: Path | None
    boot: Path
    make: tuple[str, ...]

    @property
    def is_uml(self) -> bool:
        return self.flavour in UML

    @property
    def image(self) -> Path:
        return self.boot / ("linux" if self.is_uml else "vmlinuz")

    @property
    def modules(self) -> Path:
        return self.boot / "lib/modules" / self.release


def _wanted(flavour: str) -> tuple[str, bool]:
    """The Debian version a flavour is made from, and whether it must be exactly that."""
    chosen = os.environ.get("LAB_KERNEL_VERSION")
    if re.fullmatch(r"7\.\d+\.\d+", flavour):
        return flavour, True
    if flavour not in FLAVOURS:
        raise LabError(f"no kernel flavour {flavour}: it is one of {', '.join(FLAVOURS)}, "
                       "or a Debian kernel version such as 7.2.12")
    if flavour.startswith("debian-"):
        return debian.PINNED[flavour.removeprefix("debian-")], False
    if chosen:
        return chosen.removesuffix("+deb13-amd64"), True
    return debian.PINNED["7.2"], False


def refuse_ours(flavour: str) -> None:
    """Says of a flavour that our module is not built for it, if that is so."""
    if flavour.removeprefix("debian-") in debian.WITHOUT_RUST:
        raise LabError(f"our module is not built for {flavour}: Debian builds that kernel without Rust")


def _source(version: str, packages: Path) -> Path:
    """The source tree of a kernel version, as Debian patches it."""
    def build(tmp: Path, _final: Path) -> None:
        name = f"linux-source-{debian.series(version)}"
        script = ('dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/src/$2.tar.xz" | xz -dcT2 '
                  '| tar -x -C "$3" --strip-components=1')
        progress.run(f"unpacking the source of Linux {version}", roots.in_build_root(
            ["sh", "-c", script, "sh", packages / "source.deb", name, tmp]), tmp / ".log")
        (tmp / ".log").unlink()

    return cache.entry(f"source-{version}", version, build)


def _patches() -> list[str]:
    return cache.text_of(*(f"kernels/{name}.patch" for name in PATCHES))


def _uml_source(version: str, packages: Path) -> Path:
    """The same with PATCHES, and the same files except for the files that these change."""
    def build(tmp: Path, _final: Path) -> None:
        shutil.copytree(_source(version, packages), tmp, copy_function=os.link, symlinks=True,
                        dirs_exist_ok=True)
        for patch in PATCHES:
            # It writes a file anew instead of changing it, so the other tree stays as it is.
            progress.run(f"applying {patch}.patch", roots.in_build_root(
                ["patch", "-d", tmp, "-p1", "-i", LAB / f"kernels/{patch}.patch"]), tmp / ".log")
        (tmp / ".log").unlink()

    return cache.entry(f"source-uml-{version}", [version, *_patches()], build)


def _make(tree: Path, output: Path, arguments: Iterable[str]) -> list[str]:
    return roots.in_build_root(["make", f"-j{os.cpu_count()}", "-C", tree, f"O={output}",
                                *arguments])


def _settle(tmp: Path, final: Path) -> None:
    """Makes a tree that was built under a temporary name good under its final one."""
    makefile = tmp / "kdir/Makefile"
    makefile.write_text(makefile.read_text().replace(str(tmp), str(final)))


def _check_config(config: Path, fragment: str) -> None:
    """A symbol the kernel's Kconfig did not take would be missed much later and elsewhere."""
    taken = set(config.read_text().splitlines())
    last = {line.split("=")[0]: line for line in fragment.splitlines() if line.startswith("CONFIG_")}
    lost = [line for line in last.values() if line not in taken]
    if lost:
        raise LabError("the kernel configuration did not take " + ", ".join(lost))


def _build_uml(name: str, tree: Path, fragment: str, arguments: Iterable[str], tmp: Path, final: Path) -> None:
    kdir = tmp / "kdir"
    kdir.mkdir()
    (tmp / "fragment").write_text(fragment)
    log = tmp / "log"
    progress.run(f"configuring {name}", _make(
        tree, kdir, [*arguments, f"KCONFIG_ALLCONFIG={tmp}/fragment", "allnoconfig"]), log)
    _check_config(kdir / ".config", fragment)
    progress.run(f"building {name}", _make(tree, kdir, [*arguments, "linux", "modules"]), log)
    progress.run(f"installing the modules of {name}", _make(
        tree, kdir, [*arguments, f"INSTALL_MOD_PATH={tmp}/boot", "modules_install"]), log)
    shutil.copy(kdir / "linux", tmp / "boot")
    for link in (tmp / "boot").glob("lib/modules/*/build"):
        link.unlink()
    # The kernel's objects are only of use to rebuild the kernel itself.
    subprocess.run(["find", kdir, "-name", "*.o", "-not", "-path", "*/scripts/*",
                    "-not", "-path", "*/tools/*", "-delete"], check=True)
    _settle(tmp, final)


def _build_real_time(name: str, tree: Path, config: str, tmp: Path, final: Path) -> None:
    kdir = tmp / "kdir"
    kdir.mkdir()
    (tmp / "config").write_text(config)
    log = tmp / "log"
    progress.run(f"configuring {name}", _make(
        tree, kdir, [*DEBIAN_MAKE, f"KCONFIG_ALLCONFIG={tmp}/config", "allnoconfig"]), log)
    _check_config(kdir / ".config", config)
    progress.run(f"building {name}", _make(tree, kdir, [*DEBIAN_MAKE, "bzImage", "modules"]), log)
    progress.run(f"installing the modules of {name}", _make(
        tree, kdir, [*DEBIAN_MAKE, f"INSTALL_MOD_PATH={tmp}/boot", "modules_install"]), log)
    shutil.copy(kdir / "arch/x86/boot/bzImage", tmp / "boot/vmlinuz")
    # Its drivers are built in.
    debian.pack_initrd(tmp / "boot", (), log)
    _settle(tmp, final)


def _real_time() -> Kernel:
    version, packages = debian.fetch(*_wanted(REAL_TIME))
    config, = cache.text_of(f"kernels/{REAL_TIME}.config")
    inputs = [version, config, *_patches(), DEBIAN_MAKE, roots.compilers(),
              [cache.source_of(step) for step in (_build_real_time, _make, _settle, debian.pack_initrd)]]
    home = cache.entry(f"{REAL_TIME}-{version}", inputs, lambda tmp, final: _build_real_time(
        f"the {REAL_TIME} kernel {version}", _uml_source(version, packages), config, tmp, final))
    release = (home / "kdir/include/config/kernel.release").read_text().strip()
    return Kernel(REAL_TIME, release, home / "kdir", home / "boot", DEBIAN_MAKE)


def _uml(flavour: str) -> Kernel:
    version, packages = debian.fetch(*_wanted(flavour))
    fragment = "\n".join(cache.text_of(*(f"kernels/{name}.config" for name in UML[flavour])))
    inputs = [version, fragment, *_patches(), UML_MAKE, roots.compilers(),
              [cache.source_of(step) for step in (_build_uml, _make, _settle)]]
    home = cache.entry(f"{flavour}-{version}", inputs, lambda tmp, final: _build_uml(
        f"the {flavour} kernel {version}", _uml_source(version, packages), fragment, UML_MAKE,
        tmp, final))
    release = (home / "kdir/include/config/kernel.release").read_text().strip()
    return Kernel(flavour, release, home / "kdir", home / "boot", UML_MAKE)


def _build_debian(version: str, release: str, tree: Path, packages: Path, tmp: Path, final: Path) -> None:
    """Debian's headers lack the Rust metadata: it is made again from the source."""
    debian.unpack(packages / "headers.deb", tmp)
    headers = tmp / f"usr/src/linux-headers-{release}"
    kdir = tmp / "kdir"
    kdir.mkdir()
    shutil.copy(headers / ".config", kdir / ".config")
    arguments = ["LOCALVERSION=+deb13-amd64", *DEBIAN_MAKE]
    progress.run(f"preparing Debian's kernel {version} for modules", _make(
        tree, kdir, [*arguments, "olddefconfig", "modules_prepare"]), tmp / "log")
    shutil.copy(headers / "Module.symvers", kdir / "Module.symvers")
    shutil.rmtree(tmp / "usr")
    _settle(tmp, final)


def _debian(flavour: str) -> Kernel:
    version, packages = debian.fetch(*_wanted(flavour))
    release = debian.release(version)
    if not debian.has_rust(version):
        return Kernel(flavour, release, None, debian.boot(version, packages), ())
    inputs = [version, roots.compilers(),
              [cache.source_of(step) for step in (_build_debian, _make, _settle)]]
    home = cache.entry(f"debian-{version}", inputs, lambda tmp, final: _build_debian(
        version, release, _source(version, packages), packages, tmp, final))
    return Kernel(flavour, release, home / "kdir", debian.boot(version, packages), DEBIAN_MAKE)


def kernel(flavour: str) -> Kernel:
    """The kernel of FLAVOUR, built if need be."""
    flavour = SAME.get(flavour, flavour)
    if flavour == REAL_TIME:
        return _real_time()
    return _uml(flavour) if flavour in UML else _debian(flavour)
