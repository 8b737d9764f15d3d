# SPDX-License-Identifier: GPL-2.0
"""The two Debian root directories: one to build in, one the nodes run."""

import shutil
import subprocess

from collections.abc import Iterable, Mapping
from pathlib import Path

from . import cache, host, progress, sandbox
from .cache import HOME, LAB, PROJECT
from .sandbox import Bind, Word

SUITE = "trixie"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
COMPILERS = ("rustc", "bindgen", "gcc-14", "clang-19", "lld-19", "binutils", "dwarves")


def packages(name: str) -> list[str]:
    lines = (LAB / f"roots/{name}.packages").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def debian(name: str, options: list[str]) -> Path:
    """The root directory made of the packages of roots/NAME.packages."""
    inputs = [SUITE, packages(name), options, cache.text_of("roots/sources.list")]

    def build(tmp: Path, _final: Path) -> None:
        host.need("mmdebstrap", "unshare")
        sources = tmp / "sources.list"
        shutil.copy(LAB / "roots/sources.list", sources)
        # In namespaces, so that the processes and mounts of mmdebstrap end with it; its temporary files are
        # in the entry.
        progress.run(f"making the {name} root", [
            "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
            "env", f"TMPDIR={tmp}", "mmdebstrap", "--variant=apt", *options,
            "--include=" + ",".join(packages(name)), SUITE, tmp / "root", sources], tmp / "log")

    return cache.entry(f"{name}-root", inputs, build)


def build_root() -> Path:
    """The root directory with the compilers; apt works in it, to fetch kernel packages."""
    return debian("build", ["--skip=cleanup/apt"]) / "root"


def node_root() -> Path:
    """The root directory that the nodes run."""
    return debian("node", []) / "root"


def compilers() -> list[str]:
    """The versions of the compilers of a kernel, to be part of the kernel's key."""
    shown = subprocess.run(["dpkg-query", "--admindir", build_root() / "var/lib/dpkg", "-W",
                            "-f", "${Package} ${Version}\n", *COMPILERS],
                           check=True, capture_output=True, text=True)
    return sorted(shown.stdout.split("\n"))


def in_build_root(argv: Iterable[Word], binds: Iterable[Bind] = (), cwd: Word = "/",
                  env: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs ARGV in the build root.

    The project and the cache are at their own paths there; cargo keeps its state in the cache.
    """
    host.need("unshare", "mount", "chroot")
    root = build_root()
    cargo = HOME / "cargo"
    target = HOME / f"target-{cache.digest(str(PROJECT))}"
    for directory in (cargo, target):
        directory.mkdir(parents=True, exist_ok=True)
    # The registries are reached as the host reaches them, with the authorities that it trusts.
    trust = [(path, path) for path in (CERTIFICATES,) if path.exists()]
    variables = {"RPCRDMA_BUILD_ROOT": "1", "CARGO_HOME": str(cargo),
                 "CARGO_TARGET_DIR": str(target), **(env or {})}
    return sandbox.command(root, argv, cwd=cwd, env=variables,
                           binds=[(HOME, HOME), (PROJECT, PROJECT), *trust, *binds])
