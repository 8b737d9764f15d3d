#!/usr/bin/env -S python3 -IS
# SPDX-License-Identifier: GPL-2.0
"""Reads and writes in ways that shell tools lack; every command fails if a byte differs.

put LOCAL FILE SIZE     writes SIZE bytes of LOCAL at the start of FILE in one direct write
get LOCAL FILE SIZE     reads SIZE bytes of FILE in one direct read and compares them with LOCAL
sizes LOCAL DIR SIZE... puts and gets SIZE bytes of LOCAL in DIR/file.SIZE, one size after the other
limit MOUNT FILE WAY    finds the largest size that goes inline (WAY: put or get)
write LOCAL DIR HOW SIZE...     changes files the same way in both directories (HOW: a writer below)
compare LOCAL DIR HOW SIZE... [direct|skewed]   compares the files of `write`, read directly and
                        then into memory that does not start at a page
populate DIR COUNT      makes COUNT entries with names of many lengths and prints the names
list DIR                prints the names in DIR
list_when_told DIR READY TOLD     opens DIR, makes READY, and prints the names in DIR when TOLD exists
list_each_when_told, list_at_once DIR READY TOLD      the same with all directories in DIR at once
churn DIR COUNT STOP    COUNT processes change, read and compare files of their own until STOP exists
settled DIR             compares the files of churn with their expected content
fill FILE MIB           writes a file of this size and syncs it
filled FILE MIB         compares the file
exceed MIB ROUNDS       uses MIB of memory, changes all of it ROUNDS times, and compares each page twice each time
swap MIB                swaps out MIB of memory, and compares it after it is swapped in
ask DESCRIPTOR COUNT    requests the attributes of an open file, once with success and COUNT times without
setxattr FILE SIZE      sets the attribute user.test to a pattern of SIZE bytes
checkxattr FILE SIZE    compares it with the pattern
"""

import errno
import functools
import math
import mmap
import os
import struct
import sys
import threading
import time

from collections.abc import Callable, Iterable, Iterator

MADV_PAGEOUT = 21
READ_SEGMENTS, WRITE_SEGMENTS = 13, 14     # words of the transport's line
LINE, LINES = 251, 261
STEPS = bytes(i * 7 & 0xFF for i in range(2 * 256))

# Writes the file PATH of SIZE bytes, which is local or not.
Writer = Callable[[str, int, bool], None]


def pattern(size: int, seed: int = 1) -> bytes:
    """Bytes that differ from page to page and from one seed to the next: each is 7 more than the one
    before it, and each line begins elsewhere."""
    starts = ((seed * 31 + line * (LINE * 7 + 1)) * pow(7, -1, 256) & 0xFF for line in range(LINES))
    block = b"".join(STEPS[start:start + LINE] for start in starts)
    return (block * (size // len(block) + 1))[:size]


def page_buffer(size: int) -> memoryview:
    """Returns memory that starts at a page, as direct I/O requires."""
    return memoryview(mmap.mmap(-1, max(size, 1)))[:size]


def check(got: bytes | mmap.mmap, wanted: bytes | bytearray, what: str) -> None:
    if bytes(got) == bytes(wanted):
        return
    if len(got) != len(wanted):
        sys.exit(f"{what}: {len(got)} bytes instead of {len(wanted)}")
    first = next(i for i, (a, b) in enumerate(zip(got, wanted)) if a != b)
    count = sum(a != b for a, b in zip(got, wanted))
    sys.exit(f"{what}: {count} of {len(wanted)} bytes differ, the first at {first}: "
             f"{got[first]:#04x} instead of {wanted[first]:#04x}")


def direct(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_DIRECT)


def write_once(path: str, data: bytes) -> None:
    buffer = page_buffer(len(data))
    buffer[:] = data
    descriptor = direct(path, os.O_WRONLY | os.O_CREAT)
    try:
        if os.pwrite(descriptor, buffer, 0) != len(data):
            sys.exit(f"{path}: short write")
    finally:
        os.close(descriptor)


def read_once(path: str, size: int, skew: int = 0) -> bytes:
    buffer = page_buffer(size + skew)[skew:]
    descriptor = direct(path, os.O_RDONLY)
    try:
        return bytes(buffer[:os.preadv(descriptor, [buffer], 0)])
    finally:
        os.close(descriptor)


def put(local: str, path: str, size: str) -> None:
    with open(local, "rb") as source:
        write_once(path, source.read(int(size)))


def get(local: str, path: str, size: str) -> None:
    with open(local, "rb") as source:
        check(read_once(path, int(size)), source.read(int(size)), path)


def put_and_get(local: str, path: str, *sizes_: str) -> None:
    for size in sizes_:
        put(local, f"{path}/file.{size}", size)
        get(local, f"{path}/file.{size}", size)


def ask(descriptor: str, count: str) -> None:
    os.fstat(int(descriptor))
    for number in range(int(count)):
        try:
            os.fstat(int(descriptor))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        else:
            sys.exit(f"{number} were in vain, and the next was not")


def counter(mount: str, word: int) -> int:
    """Returns a word of the transport's lines of a mount, summed over its connections."""
    here = False
    total = 0
    with open("/proc/self/mountstats", encoding="ascii") as stats:
        for line in stats:
            words = line.split()
            if words[:1] == ["device"]:
                here = words[4] == mount
            elif here and words[:2] == ["xprt:", "rdma"]:
                total += int(words[word - 1])
    return total


def limit(mount: str, path: str, way: str) -> None:
    """Compares data of sizes around the limit. The counters show whether a size was sent inline."""
    def inline(size: int) -> bool:
        data = pattern(size, size)
        before = counter(mount, word)
        if way == "put":
            write_once(path, data)
        else:
            data = whole[:size]
            check(read_once(path, size), data, f"{size} bytes read")
        chunked = counter(mount, word) != before
        if way == "put":
            check(read_once(path, size), data, f"{size} bytes written")
        return not chunked

    word = READ_SEGMENTS if way == "put" else WRITE_SEGMENTS
    low, high = 1, 8192
    whole = pattern(high)
    write_once(path, whole)
    if not inline(low) or inline(high):
        sys.exit("either 1 byte goes in a chunk or 8192 bytes go inline")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if inline(middle) else (low, middle)
    for size in range(low - 5, low + 1):
        if not inline(size):
            sys.exit(f"{low} bytes go inline but {size} do not")
    for size in range(high, high + 5):
        if inline(size):
            sys.exit(f"{high} bytes go in a chunk but {size} do not")
    print(f"# up to {low} bytes go inline")


def write_all(descriptor: int, data: memoryview, offset: int = 0) -> None:
    while data:
        done = os.pwrite(descriptor, data, offset)
        data, offset = data[done:], offset + done


def buffered(path: str, size: int, _local: bool) -> None:
    with open(path, "wb") as file:
        file.write(pattern(size))


def direct_writer(path: str, size: int, local: bool, skew: int = 0) -> None:
    """Writes the whole file and then parts of it by direct I/O, and does the same to a local copy."""
    if local:
        buffered(path, size, local)
    else:
        buffer = page_buffer(size + skew)
        buffer[skew:] = pattern(size)
        descriptor = direct(path, os.O_WRONLY | os.O_CREAT)
        write_all(descriptor, buffer[skew:])
        os.close(descriptor)
    at = size // 3
    part = page_buffer(skew + size // 2)
    part[skew:] = pattern(size // 2, 2)
    descriptor = os.open(path, os.O_WRONLY | (0 if local else os.O_DIRECT))
    write_all(descriptor, part[skew:], at)
    os.close(descriptor)


def unaligned(path: str, size: int, local: bool) -> None:
    direct_writer(path, size, local, skew=size % 61 + 1)


def mapped(path: str, size: int, _local: bool) -> None:
    with open(path, "w+b") as file:
        file.truncate(size)
        if size:
            with mmap.mmap(file.fileno(), size) as memory:
                memory[:] = pattern(size)
                memory[size // 2:size // 2 + 1] = b"!"


def sparse(path: str, size: int, _local: bool) -> None:
    with open(path, "wb") as file:
        for offset in range(0, size, 200003):
            file.seek(offset)
            file.write(pattern(4099, offset))
        file.truncate(size)


def overwrite(path: str, size: int, local: bool) -> None:
    buffered(path, size, local)
    with open(path, "r+b", buffering=0) as file:
        for seed, offset in enumerate(range(0, size, size // 7 + 1)):
            file.seek(offset)
            file.write(pattern(min(3001, size - offset), seed))


def append(path: str, size: int, _local: bool) -> None:
    for seed in range(9):
        with open(path, "ab") as file:
            file.write(pattern(size, seed))


def truncate(path: str, size: int, local: bool) -> None:
    """Makes the file shorter and longer again, whose end reads as zeros, and writes past its end."""
    buffered(path, size, local)
    os.truncate(path, size // 2 + 1)
    os.truncate(path, size)
    with open(path, "r+b") as file:
        file.seek(size + 5000)
        file.write(b"the end")


def vectored(path: str, size: int, _local: bool) -> None:
    data = pattern(size)
    parts, at, step = [], 0, 1
    while at < size:
        parts.append(data[at:at + step])
        at, step = at + step, step * 3 % 40009 + 1
    with open(path, "wb", buffering=0) as file:
        for first in range(0, len(parts), 500):
            os.writev(file.fileno(), parts[first:first + 500])


def offsets(path: str, size: int, local: bool) -> None:
    buffered(path, size, local)
    with open(path, "r+b", buffering=0) as file:
        for page in range(0, size - 4096, 4096):
            for skew in (-3, -1, 1, 2):
                if page + skew >= 0:
                    file.seek(page + skew)
                    file.write(pattern(page // 4096 % 9 + 1, skew + page))
                    os.fsync(file.fileno())


WRITERS: dict[str, Writer] = {f.__name__: f for f in (buffered, unaligned, mapped, sparse, overwrite, append,
                                                      truncate, vectored, offsets)}
WRITERS |= {"direct": direct_writer}


def sizes(words: Iterable[str]) -> Iterator[int]:
    """Returns sizes as numbers. A-B is a range, of which about 20 sizes are taken with both ends."""
    for word in words:
        first, _, last = word.partition("-")
        if last:
            yield from range(int(first), int(last), (int(last) - int(first)) // 20)
        yield int(last or first)


def write(local: str, path: str, how: str, *words: str) -> None:
    for size in sizes(words):
        WRITERS[how](f"{local}/{how}{size}", size, True)
        WRITERS[how](f"{path}/{how}{size}", size, False)


def compare(local: str, path: str, how: str, *words: str) -> None:
    straight = words[-1] in ("direct", "skewed")
    for size in sizes(words[:-1] if straight else words):
        with open(f"{local}/{how}{size}", "rb") as file:
            wanted = file.read()
        name = f"{path}/{how}{size}"
        if os.path.getsize(name) != len(wanted):
            sys.exit(f"{name}: is {os.path.getsize(name)} bytes, not {len(wanted)}")
        if straight:
            skew = len(wanted) % 61 * 64 + 4 if words[-1] == "skewed" else 0
            check(read_once(name, len(wanted) + 3, skew), wanted, name + " read directly")
        else:
            with open(name, "rb") as file:
                check(file.read(), wanted, name)


CHURNED = (600, 3500, 5000, 70000, 300001)


def churn(path: str, count: str, stop: str) -> None:
    """Prints the number of rounds in which each process has changed all its files."""
    children = {}
    for number in range(int(count)):
        child = os.fork()
        if not child:
            try:
                print(f"process {number}: {churn_files(path, number, stop)} rounds", flush=True)
                os._exit(0)
            # The child never returns from here.
            except BaseException as error:  # pylint: disable=broad-exception-caught
                print(f"process {number}: {error!r}", flush=True)
                os._exit(1)
        children[child] = number
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        sys.exit("a process has failed")


def churn_files(path: str, number: int, stop: str) -> int:
    """Writes new files in each round and removes the old files. The name of a file determines its content."""
    seed = 0
    while not os.path.exists(stop):
        seed += 1
        for size in CHURNED:
            while not churn_file(path, number, size, seed):
                pass
    return seed


@functools.cache
def repeats(path: str) -> bool:
    """Tells whether the mount of PATH is of version 3, whose server may execute a request twice.

    The duplicate reply cache compares ports, and a new connection over RDMA has a new port.
    """
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        options = max((line.split()[1:4] for line in mounts
                       if os.path.realpath(path).startswith(line.split()[1])), key=lambda mount: len(mount[0]))[2]
    return "vers=3" in options.split(",")


def churn_file(path: str, number: int, size: int, seed: int) -> bool:
    """Writes a file anew. The caller tries again if memory is short."""
    old, new = (f"{path}/{number}-{size}-{seed}" for seed in (seed - 1, seed))
    data = pattern(size, seed * 16 + number)
    try:
        if (seed + number) % 2:
            write_once(new, data)
        else:
            with open(new, "wb") as file:
                file.write(data)
                os.fsync(file.fileno())
        check(read_once(new, size), data, new)
        if seed > 1:
            check(read_once(old, size), pattern(size, (seed - 1) * 16 + number), old)
            try:
                os.unlink(old)
            except FileNotFoundError:
                if not repeats(path):
                    raise
    except OSError as error:
        # tmpfs has no other error for an inode that it has no memory for (shmem_get_inode()).
        is_short = error.errno == errno.ENOSPC and os.statvfs(path).f_bavail
        if error.errno != errno.ENOMEM and not is_short:
            raise
        return False
    return True


def fill(path: str, mib: str) -> None:
    with open(path, "wb") as file:
        for part in range(int(mib)):
            file.write(pattern(1 << 20, part))
        os.fsync(file.fileno())


def filled(path: str, mib: str) -> None:
    with open(path, "rb") as file:
        for part in range(int(mib)):
            check(file.read(1 << 20), pattern(1 << 20, part), f"{path} at {part} MiB")
        check(file.read(), b"", path)


def settled(path: str) -> None:
    """Checks that each process has left one file of each size, and no other file."""
    found = [name.split("-") for name in os.listdir(path)]
    for number, size, seed in found:
        name, length = f"{path}/{number}-{size}-{seed}", int(size)
        check(read_once(name, length + 1), pattern(length, int(seed) * 16 + int(number)), name)
    processes = {number for number, _, _ in found}
    wanted = sorted((number, str(size)) for number in processes for size in CHURNED)
    if not found or sorted((number, size) for number, size, _ in found) != wanted:
        sys.exit(f"{path} holds {sorted(os.listdir(path))}")


def swapped() -> int:
    """Returns the swapped memory of this process in KiB."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmSwap:"))


def swap(mib: str) -> None:
    size = int(mib) << 20
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for seed in range(3):
        memory[:] = pattern(size, seed)
        # Pages under I/O stay until the next round.
        for _ in range(100):
            memory.madvise(MADV_PAGEOUT)
            if swapped() >= size >> 11:
                break
            time.sleep(0.1)
        else:
            sys.exit(f"no more than {swapped()} KiB has been swapped out")
        check(memory, pattern(size, seed), "memory that was swapped out")


def page_by_page(part: int, seed: int) -> bytearray:
    """Returns a MiB whose pages contain their place and the round, so that all pages differ."""
    block = bytearray(pattern(1 << 20, seed + part))
    for page in range(0, len(block), mmap.PAGESIZE):
        struct.pack_into("<3Q", block, page, part, page, seed)
    return block


def exceed(mib: str, rounds: str) -> None:
    """Compares the pages in the order of the writes, and then in another order."""
    count = int(mib)
    memory = mmap.mmap(-1, count << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    step = next(n for n in range(count * 5 // 8, count) if math.gcd(n, count) == 1)
    for seed in range(1, int(rounds) + 1):
        for part in range(count):
            memory[part << 20:part + 1 << 20] = page_by_page(part, seed)
        for order in (1, step):
            for number in range(count):
                part = number * order % count
                check(memory[part << 20:part + 1 << 20], page_by_page(part, seed),
                      f"MiB {part} in round {seed}")


def populate(path: str, count: str) -> None:
    """Makes COUNT entries of a directory: files, directories, symbolic links, and links, which are the fastest."""
    names = [f"{n}" + "x" * (n * 37 % 190) for n in range(int(count))]
    with open(f"{path}/{names[0]}", "wb"):
        pass
    for n, name in enumerate(names[1:], 1):
        name = f"{path}/{name}"
        if n % 10 == 0:
            with open(name, "wb"):
                pass
        elif n % 10 == 1:
            os.mkdir(name)
        elif n % 10 < 4:
            os.symlink(f"target of {n}", name)
        else:
            os.link(f"{path}/{names[0]}", name)
    print("\n".join(sorted(names)))


def list_names(path: str) -> None:
    print("\n".join(sorted(os.listdir(path))))


def list_when_told(path: str, ready: str, told: str) -> None:
    """Opens the directory first, so that its first RPC lists it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    with open(ready, "wb"):
        pass
    while not os.path.exists(told):
        time.sleep(0.1)
    print("\n".join(sorted(os.listdir(descriptor))))


def list_each_when_told(path: str, ready: str, told: str) -> None:
    """Lists each directory in a thread. All directories are opened first."""
    descriptors = [os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY) for entry in os.scandir(path)]
    names: list[str] = []

    def list_one(descriptor: int) -> None:
        while not os.path.exists(told):
            time.sleep(0.1)
        names.extend(os.listdir(descriptor))

    threads = [threading.Thread(target=list_one, args=(d,)) for d in descriptors]
    for thread in threads:
        thread.start()
    with open(ready, "wb"):
        pass
    for thread in threads:
        thread.join()
    print("\n".join(sorted(names)))


def list_at_once(path: str, count: str) -> None:
    """Lists all directories of a directory at the same time. Each must have COUNT entries."""
    paths = [entry.path for entry in os.scandir(path)]
    barrier = threading.Barrier(len(paths))
    found: list[int] = []

    def list_one(name: str) -> None:
        barrier.wait()
        found.append(len(os.listdir(name)))

    threads = [threading.Thread(target=list_one, args=(name,)) for name in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if found != [int(count)] * len(paths):
        sys.exit(f"there are {found} entries, not {count} in each of {len(paths)} directories")


def setxattr(path: str, size: str) -> None:
    try:
        os.setxattr(path, "user.test", pattern(int(size)))
    except OSError as error:
        name = error.errno and errno.errorcode[error.errno]
        sys.exit(f"user.test of {size} bytes: {error.strerror} ({name})")


def checkxattr(path: str, size: str) -> None:
    """Asks with room for the largest value at once: the NFS client offers the server no more memory
    than it is given, and over RDMA a reply that does not fit is an error where TCP truncates it."""
    # getxattr() of os begins with less. The other commands have no memory to spare for this module.
    import ctypes  # pylint: disable=import-outside-toplevel
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(65536)
    length = libc.getxattr(os.fsencode(path), b"user.test", room, len(room))
    if length < 0:
        sys.exit(f"user.test: {os.strerror(ctypes.get_errno())}")
    check(room.raw[:length], pattern(int(size)), "user.test")


# Each takes the words behind its name.
NAMED: tuple[Callable[..., None], ...] = (
    put, get, ask, limit, write, compare, churn, settled, fill, filled, exceed, swap, populate, list_when_told,
    list_each_when_told, list_at_once, setxattr, checkxattr)
COMMANDS = {f.__name__: f for f in NAMED} | {"list": list_names, "sizes": put_and_get}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
