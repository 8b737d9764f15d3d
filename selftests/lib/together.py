#!/usr/bin/env -S python3 -S
# SPDX-License-Identifier: GPL-2.0
"""Writers and readers at once: each reader sees the versions of its file and nothing else.

usage: together.py DIR COUNT SIZE [torn]

There are COUNT writers and COUNT readers of files of SIZE bytes in DIR, a writer and a reader for each file. All
bytes of a group have one version, as a device reads them at once. With "torn", a group may begin with one version and
end with another.
"""

import os
import sys

from collections.abc import Sequence

from fileio import check, pattern, read_once, write_once

VERSIONS = 6
# The length of a group, in bytes.
GROUP = 64


def version_of(number: int, version: int, size: int) -> bytes:
    """Returns the data of a version of the file NUMBER. No other file has them at the same place."""
    return pattern(size, number * VERSIONS + version)


def work_all(names: Sequence[str], length: int, torn: bool) -> None:
    """Lets each writer change its file in a loop, while a reader reads it."""
    for number, name in enumerate(names):
        write_once(name, version_of(number, 0, length))
    children = []
    for number, name in enumerate(names):
        for writes in (True, False):
            child = os.fork()
            if not child:
                try:
                    if writes:
                        write_versions(name, length, number)
                    else:
                        read_versions(name, length, number, torn)
                    os._exit(0)
                # The child never returns from here.
                except BaseException as error:  # pylint: disable=broad-exception-caught
                    print(f"{name}: {error}", flush=True)
                    os._exit(1)
            children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        sys.exit("a writer or a reader has failed")
    for number, name in enumerate(names):
        check(read_once(name, length), version_of(number, VERSIONS - 1, length), name)


def write_versions(name: str, size: int, number: int) -> None:
    for version in range(1, VERSIONS):
        data = version_of(number, version, size)
        if number % 2:
            write_once(name, data)
        else:
            with open(name, "r+b") as file:
                file.write(data)
                os.fsync(file.fileno())


def read_versions(name: str, size: int, number: int, torn: bool) -> None:
    """Checks each group of bytes: it is of one version, or with `torn` begins with one and ends with another.

    A WRITE changes a page while a READ sends it. A provider that sends a page in several segments of TCP, without a
    copy, may send the bytes before the WRITE in a segment, and the bytes after it in the next.
    """
    versions = [version_of(number, version, size) for version in range(VERSIONS)]
    for _ in range(VERSIONS):
        if number % 2:
            data = read_once(name, size)
        else:
            with open(name, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                data = file.read()
        for at in range(0, size, GROUP):
            group = data[at:at + GROUP]
            groups = [version[at:at + GROUP] for version in versions]
            if group not in groups and not (torn and is_torn(group, groups)):
                raise ValueError(f"the bytes at {at} are of no version: {group.hex()}")


def is_torn(group: bytes, groups: Sequence[bytes]) -> bool:
    """Whether a group begins with one of the groups and ends with one of them."""
    return any(any(group[:cut] == first[:cut] for first in groups)
               and any(group[cut:] == last[cut:] for last in groups) for cut in range(1, len(group)))


def main(directory: str, count: str, size: str, form: str = "whole") -> None:
    if form not in ("whole", "torn"):
        sys.exit(__doc__)
    work_all([f"{directory}/together{number}" for number in range(int(count))], int(size), form == "torn")


if __name__ == "__main__":
    main(*sys.argv[1:])
