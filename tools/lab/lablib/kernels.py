# SPDX-License-Identifier: GPL-2.0
"""The kernels: their source, and for each flavour a tree to build modules against and to boot.

A flavour is a kernel configuration of one source: Debian's own, or User Mode Linux with one or
more fragments of kernels/. A version number as flavour means Debian's kernel of that version.
"""

import dataclasses
import inspect
import os
import re
import shutil
import subprocess

from pathlib import Path

from . import cache, debian, progress, roots
from .progress import LabError

GCC = ("CC=x86_64-linux-gnu-gcc-14",)
LLVM = ("LLVM=1",)
UML = {
    "uml": (("uml",), ()),
    "uml-kasan": (("uml", "kasan"), LLVM),
    "uml-lockdep": (("uml", "lockdep"), ()),
}
FLAVOURS = (*UML, "debian", "debian-7.3")


@dataclasses.dataclass
class Kernel:
    """A kernel that is ready: KDIR to build modules against, IMAGE to boot, MODULES to load."""
    flavour: str
    home: Path
    release: str
    image: Path
    modules: Path
    make: tuple

    @property
    def kdir(self):
        return self.home / "kdir"

    @property
    def is_uml(self):
        return self.flavour in UML


def _version(flavour):
    """The Debian version a flavour is made from, and whether it must be exactly that."""
    chosen = os.environ.get("LAB_KERNEL_VERSION")
    if re.fullmatch(r"7\.\d+\.\d+", flavour):
        return flavour, True
    if flavour == "debian-7.3":
        return debian.PINNED["7.3"], False
    if flavour not in FLAVOURS:
        raise LabError(f"no kernel flavour {flavour}: it is one of {', '.join(FLAVOURS)}, "
                       "or a Debian kernel version such as 7.2.12")
    if chosen:
        return re.sub(r"\+deb13-amd64$", "", chosen), True
    return debian.PINNED["7.2"], False


def source(flavour):
    """The kernel's source tree and its version."""
    version, packages = debian.packages(*_version(flavour))

    def build(tmp, _final):
        name = f"linux-source-{debian.series(version)}"
        script = ('dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/src/$2.tar.xz" | xz -dcT2 '
                  '| tar -x -C "$3" --strip-components=1')
        progress.run(f"unpacking the source of Linux {version}", roots.in_build_root(
            ["sh", "-c", script, "sh", packages / "source.deb", name, tmp]), tmp / ".log")
        (tmp / ".log").unlink()

    return version, packages, cache.entry(f"source-{version}", version, build)


def _make(tree, output, arguments, targets):
    return roots.in_build_root(["make", f"-j{os.cpu_count()}", "-C", tree, f"O={output}",
                                *arguments, *targets])


def _settle(tmp, final):
    """Makes a tree that was built under a temporary name good under its final one."""
    makefile = tmp / "kdir/Makefile"
    makefile.write_text(makefile.read_text().replace(str(tmp), str(final)))


def _recipe(build):
    """The text of what builds a kernel, to be part of its key."""
    return [inspect.getsource(function) for function in (build, _make, _settle)]


def _check_config(config, fragment):
    """A symbol the kernel's Kconfig did not take would be missed much later and elsewhere."""
    taken = set(config.read_text().splitlines())
    lost = [line for line in fragment.splitlines() if line.startswith("CONFIG_") and line not in taken
            and not line.endswith("=n")]
    if lost:
        raise LabError("the kernel configuration did not take " + ", ".join(lost))


def _uml(flavour):
    version, _, tree = source(flavour)
    names, compiler = UML[flavour]
    fragment = "\n".join(cache.text_of(*(f"kernels/{name}.config" for name in names)))
    arguments = ["ARCH=um", *compiler]
    inputs = [version, fragment, arguments, roots.compilers(), _recipe(_uml)]

    def build(tmp, final):
        kdir = tmp / "kdir"
        kdir.mkdir()
        (tmp / "fragment").write_text(fragment)
        log = tmp / "log"
        progress.run(f"configuring the {flavour} kernel {version}", _make(
            tree, kdir, [*arguments, f"KCONFIG_ALLCONFIG={tmp}/fragment"], ["allnoconfig"]), log)
        _check_config(kdir / ".config", fragment)
        progress.run(f"building the {flavour} kernel {version}", _make(
            tree, kdir, arguments, ["linux", "modules"]), log)
        progress.run(f"installing the modules of {flavour}", _make(
            tree, kdir, [*arguments, f"INSTALL_MOD_PATH={tmp}/root"], ["modules_install"]), log)
        # kbuild's objects are only of use to rebuild the kernel itself.
        subprocess.run(["find", kdir, "-name", "*.o", "-not", "-path", "*/scripts/*",
                        "-not", "-path", "*/tools/*", "-delete"], check=True)
        _settle(tmp, final)

    home = cache.entry(f"{flavour}-{version}", inputs, build)
    release = (home / "kdir/include/config/kernel.release").read_text().strip()
    return Kernel(flavour, home, release, home / "kdir/linux",
                  home / f"root/lib/modules/{release}", tuple(arguments))


def _debian(flavour):
    """Debian's kernel with the Rust metadata that its headers lack, rebuilt from its source."""
    version, packages, tree = source(flavour)
    release = debian.release(version)
    inputs = [version, roots.compilers(), _recipe(_debian)]

    def build(tmp, final):
        debian.unpack(packages / "headers.deb", tmp)
        debian.unpack(packages / "modules.deb", tmp)
        debian.unpack(packages / "image.deb", tmp)
        headers = tmp / f"usr/src/linux-headers-{release}"
        kdir = tmp / "kdir"
        kdir.mkdir()
        shutil.copy(headers / ".config", kdir / ".config")
        arguments = ["LOCALVERSION=+deb13-amd64", *GCC]
        progress.run(f"preparing Debian's kernel {version} for modules", _make(
            tree, kdir, arguments, ["olddefconfig", "modules_prepare"]), tmp / "log")
        shutil.copy(headers / "Module.symvers", kdir / "Module.symvers")
        _settle(tmp, final)

    home = cache.entry(f"{flavour}-{version}", inputs, build)
    modules = home / f"usr/lib/modules/{release}"
    return Kernel(flavour, home, release, modules / "vmlinuz", modules, GCC)


def kernel(flavour):
    """The kernel of FLAVOUR, built if need be."""
    return _uml(flavour) if flavour in UML else _debian(flavour)
