# SPDX-License-Identifier: GPL-2.0
"""The commands of the documents for administrators.

A block of commands is a `.. code-block:: console`. A line of it is one of these:

    # COMMAND           typed by root on any machine; the client's node runs it
    client# COMMAND     typed by root on the client, `server#` on the server
    $ COMMAND           typed by a user, also with `client` or `server` in front
    > TEXT              the next line of the command, as of a here-document
    ^C                  the administrator ends the command by Ctrl-C
    TEXT                output: a line of the output of the command above; `...` stands for any text

The comment `.. untried: REASON` directly above a block keeps `make check-docs` from running it. The comment
`.. lab: WORD...` of a page selects its nodes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
INDEX = PROJECT / "Documentation/index.rst"
PROMPT = re.compile(r"(client|server|)([#$]) (.*)")
# Languages of blocks without commands.
SHOWN = ("text", "ini", "json", "c", "xdr")
INTERRUPT = "^C"


class Wrong(Exception):
    """A mistake in a page."""


@dataclass
class Command:
    """A command, the number of its line in the page, and the lines of its output that the page shows."""
    line: int
    node: str
    is_user: bool
    text: str
    output: list[str] = field(default_factory=list)
    is_interrupted: bool = False


@dataclass
class Block:
    """The commands of a block. REASON says why they cannot be tried in the lab."""
    line: int
    commands: list[Command]
    reason: str | None = None


@dataclass
class Page:
    path: Path
    blocks: list[Block]
    lab: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    def tried(self) -> list[Command]:
        return [command for block in self.blocks if block.reason is None for command in block.commands]

    def untried(self) -> list[Command]:
        return [command for block in self.blocks if block.reason is not None for command in block.commands]


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def body(lines: list[str], begin: int, indent: int) -> Iterator[tuple[int, str]]:
    """Yields (number, text) for the indented lines of a block whose first line may be at BEGIN."""
    inner = None
    for number in range(begin, len(lines)):
        line = lines[number]
        if line and indent_of(line) <= indent:
            return
        if line:
            inner = indent_of(line) if inner is None else inner
            yield number + 1, line[inner:]


def commands(page: Path, lines: list[str], begin: int, indent: int) -> list[Command]:
    """The commands of a block of the type `console`."""
    found: list[Command] = []
    for number, text in body(lines, begin, indent):
        prompt = PROMPT.fullmatch(text)
        if prompt:
            found.append(Command(number, prompt[1] or "client", prompt[2] == "$", prompt[3]))
        elif not found:
            raise Wrong(f"{page.name}:{number}: the first line of a block has no prompt: {text}")
        elif text.startswith("> "):
            found[-1].text += f"\n{text[2:]}"
        elif text == INTERRUPT:
            found[-1].is_interrupted = True
        else:
            found[-1].output.append(text)
    if not found:
        raise Wrong(f"{page.name}:{begin}: the block has no command")
    return found


def read(path: Path) -> Page:
    """Reads a page. Raises Wrong if a block of it could hold commands that are not tried."""
    lines = path.read_text(encoding="utf-8").splitlines()
    page, reason = Page(path, [], ()), None
    literal = -1
    for number, line in enumerate(lines, 1):
        if literal >= 0 and (not line or indent_of(line) > literal):
            continue
        literal = -1
        comment = re.fullmatch(r"\s*\.\. (untried|lab): (.+)", line)
        block = re.fullmatch(r"\s*\.\. code(?:-block)?:: ?(\w*)", line)
        if comment and comment[1] == "lab":
            page.lab = tuple(comment[2].split())
        elif comment:
            reason = comment[2]
            continue
        elif block and block[1] == "console":
            page.blocks.append(Block(number, commands(path, lines, number, indent_of(line)), reason))
            literal = indent_of(line)
        elif block and block[1] in SHOWN:
            literal = indent_of(line)
        elif block or re.search(r"(^|[^.:])::$|^\s*::$", line):
            raise Wrong(f"{path.name}:{number}: a block of commands is a `code-block:: console`, and a block of "
                        f"another kind has one of the languages {', '.join(SHOWN)}")
        if reason and line:
            if not block:
                raise Wrong(f"{path.name}:{number}: no block follows the comment `untried`")
            reason = None
    return page


def pages() -> list[Path]:
    """The pages for administrators, in the order of the index."""
    part = INDEX.read_text(encoding="utf-8").partition("For administrators")[2].partition("For developers")[0]
    return [INDEX.parent / name for name in re.findall(r"<([a-z0-9-]+\.rst)>", part)]
