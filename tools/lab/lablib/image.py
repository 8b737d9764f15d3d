# SPDX-License-Identifier: GPL-2.0
"""The nodes' file system: one read-only image for all of them."""

import shutil

from pathlib import Path

from . import cache, progress, roots
from .cache import LAB

SCRIPTS = ("node/init", "node/server", "node/client", "node/finish", "node/lab-server", "node/lab-krb5",
           "node/lab-speak", "../../selftests/lib/leaks")


def image() -> Path:
    """The image file, made of the node root and the scripts that play its roles."""
    root = roots.node_root()
    inputs = [root.parent.name, cache.text_of(*SCRIPTS)]

    def build(tmp: Path, _final: Path) -> None:
        # The scripts go in through a second layer, so that the root is not touched.
        layer = tmp / "layer"
        home = layer / "lab-node"
        home.mkdir(parents=True)
        for directory in ("overlay", "lab", "exchange", "share", "out"):
            (layer / directory).mkdir()
        for name in SCRIPTS:
            shutil.copy(LAB / name, home)
        script = ("set -e; mount -t overlay -o lowerdir=$1/layer:$2 overlay /mnt; "
                  "mkfs.erofs -T0 --quiet $1/image /mnt")
        progress.run("packing the nodes' file system", roots.in_build_root(
            ["sh", "-c", script, "sh", tmp, root]), tmp / "log")

    return cache.entry("node-image", inputs, build) / "image"
