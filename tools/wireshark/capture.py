# SPDX-License-Identifier: GPL-2.0
"""Makes captures of RoCE frames, and reads captures by tshark with the dissector."""

import os
import shutil
import struct
import subprocess
import tempfile

from pathlib import Path

HERE = Path(__file__).resolve().parent
DISSECTOR = HERE / "rpcrdma2.lua"

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0, 1, 2, 4
UD_SEND_ONLY = 100
PSNS = 1 << 24
ROCE_PORT = 4791


class Capture:
    """A capture to be written. Every connection has a queue pair of its own."""

    def __init__(self):
        self.frames = []
        self.psns = {}

    def frame(self, opcode, queue, psn, payload, extended=b""):
        """Adds one frame; returns its number."""
        padding = -len(payload) % 4
        transport = struct.pack(">BBHII", opcode, padding << 4, 0xffff, queue, psn)
        roce = transport + extended + payload + bytes(padding + 4)
        udp = struct.pack(">HHHH", 0xc000, ROCE_PORT, 8 + len(roce), 0) + roce
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0,
                         bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))) + udp
        self.frames.append(bytes.fromhex("020000000002020000000001") + b"\x08\0" + ip)
        return len(self.frames)

    def send(self, queue, message, mtu=4096):
        """Adds the frames of one Send; returns the number of the last."""
        pieces = [message[at:at + mtu] for at in range(0, len(message), mtu)]
        number = None
        for index, piece in enumerate(pieces):
            last = index == len(pieces) - 1
            if len(pieces) == 1:
                opcode = SEND_ONLY
            elif index == 0:
                opcode = SEND_FIRST
            else:
                opcode = SEND_LAST if last else SEND_MIDDLE
            psn = self.psns.get(queue, 0)
            self.psns[queue] = psn + 1
            number = self.frame(opcode, queue, psn, piece)
        return number

    def connect(self, private_data, reply=False, through_ip=False, at_end=False):
        """Adds the ConnectRequest or ConnectReply with this private data, behind zeros if it is
        AT_END and before them otherwise; returns its number."""
        fill = bytes.rjust if at_end else bytes.ljust
        attribute = 0x13 if reply else 0x10
        if reply:
            data = bytes(36) + fill(private_data, 196, b"\0")
        elif through_ip:
            # The service of TCP port 20049 of RDMA-CM, and its header before the private data.
            service = bytes.fromhex("0000000001064e51")
            header = bytes((0x00, 0x40, 0xc0, 0x00)) + bytes(32)
            data = bytes(8) + service + bytes(124) + header + fill(private_data, 56, b"\0")
        else:
            data = bytes(140) + fill(private_data, 92, b"\0")
        mad = struct.pack(">BBBBHHQHHI", 1, 7, 2, 3, 0, 0, len(self.frames) + 1, attribute, 0, 0)
        return self.frame(UD_SEND_ONLY, 1, 0, mad + data, struct.pack(">II", 0x80010000, 1))

    def write(self, path):
        with open(path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
            for number, frame in enumerate(self.frames):
                file.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)


def read(path, fields, wanted="", twice=False):
    """Has tshark read a capture, perhaps TWICE, as Wireshark does; returns of each frame that
    WANTED lets through, by its number, a dictionary of the FIELDS that it has, each a list of
    strings."""
    names = ["frame.number", *fields]
    arguments = ["-n", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=;"]
    for name in names:
        arguments += ["-e", name]
    if wanted:
        arguments += ["-Y", wanted]
    if twice:
        arguments.append("-2")
    with tempfile.TemporaryDirectory() as directory:
        # For root, tshark loads no scripts. Another user may not have access to the project.
        os.chmod(directory, 0o755)
        script, capture = (shutil.copyfile(file, Path(directory, Path(file).name))
                           for file in (DISSECTOR, path))
        for file in script, capture:
            os.chmod(file, 0o644)
        user = NOBODY if os.geteuid() == 0 else ()
        ended = subprocess.run(
            [*user, "tshark", "-X", f"lua_script:{script}", "-r", capture, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env=os.environ | {"HOME": directory})
    if ended.returncode or ended.stderr:
        raise RuntimeError(f"tshark ended with {ended.returncode}: {ended.stderr}")
    found = {}
    for line in ended.stdout.splitlines():
        columns = line.split("\t")
        found[int(columns[0])] = {name: text.split(";")
                                  for name, text in zip(names, columns, strict=True) if text}
    return found


def numbers(values):
    """Strings of tshark as numbers, truth values among them."""
    words = {"True": 1, "False": 0}
    return [words[value] if value in words else int(value, 0) for value in values or ()]
