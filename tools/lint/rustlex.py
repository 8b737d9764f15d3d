# SPDX-License-Identifier: GPL-2.0
"""Just enough of Rust's lexical structure for the lints."""

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
RUST = PROJECT / "rust"

_SKIPPED = re.compile(
    r"""//[^\n]*                          # line comment
      | b?r(?P<hashes>\#*)".*?"(?P=hashes)# raw string
      | [bc]?"(?:\\.|[^"\\])*"            # string
      | b?'(?:\\(?:x..|u\{.*?\}|.)|[^'\\])' # character; a lifetime has no closing quote
    """, re.VERBOSE | re.DOTALL)
_TOKEN = re.compile(r"::|=>|->|r?#?[A-Za-z_][A-Za-z0-9_]*|[0-9][A-Za-z0-9_.]*|\S")


class Token(str):
    """A token that knows the line it is on."""
    line = 0


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def _end_of_block_comment(text, start):
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def code(text):
    """The text with comments and literals blanked; lines stay where they are."""
    out, at = [], 0
    start_of_skipped = re.compile(r"/[/*]|\b(?:b?r#*\"|[bc]\"|b')|[\"']")
    while found := start_of_skipped.search(text, at):
        begin = found.start()
        out.append(text[at:begin])
        if found.group() == "/*":
            at = _end_of_block_comment(text, begin)
            out.append(_blank(text[begin:at]))
            continue
        skipped = _SKIPPED.match(text, begin)
        at = skipped.end() if skipped else begin + 1
        out.append(_blank(text[begin:at]))
    return "".join(out) + text[at:]


def tokens(text):
    """The tokens of the text without comments and literals."""
    found, line, at = [], 1, 0
    blanked = code(text)
    for match in _TOKEN.finditer(blanked):
        line += blanked.count("\n", at, match.start())
        at = match.start()
        token = Token(match.group())
        token.line = line
        found.append(token)
    return found


def sources(root=RUST):
    """The Rust files below ROOT, without generated files."""
    return sorted(p for p in root.rglob("*.rs") if not p.name.endswith("_generated.rs"))


def layer(path, root=RUST):
    """The folder of ROOT that PATH is in; the crate root is the layer `main`."""
    inside = path.relative_to(root)
    return inside.parts[0] if len(inside.parts) > 1 else "main"
