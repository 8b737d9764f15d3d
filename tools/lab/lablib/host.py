# SPDX-License-Identifier: GPL-2.0
"""Programs the host must have. Root on Debian gets the missing ones from apt-get."""

import os
import shutil
import subprocess
from pathlib import Path

from .progress import LabError, say

PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "unshare": "util-linux",
    "mount": "mount",
    "chroot": "coreutils",
}


def need(*programs: str) -> None:
    """Makes sure that PROGRAMS are there, or says which command installs them."""
    if os.geteuid() != 0:
        raise LabError("the lab mounts file systems and enters root directories: run it as root")
    missing = [p for p in programs if not shutil.which(p)]
    if not missing:
        return
    packages = sorted({PACKAGES[p] for p in missing})
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if not Path("/etc/debian_version").exists():
        raise LabError(f"{', '.join(missing)} not found: install the packages {' '.join(packages)}")
    say(f"{', '.join(missing)} not found; running {' '.join(install)}")
    subprocess.run(["apt-get", "update", "-qq"], stdout=subprocess.DEVNULL, check=False)
    done = subprocess.run(install, stdout=subprocess.DEVNULL, check=False,
                          env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if done.returncode or any(not shutil.which(p) for p in missing):
        raise LabError(f"{', '.join(missing)} not found: apt-get update && {' '.join(install)}")
