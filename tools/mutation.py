# SPDX-License-Identifier: GPL-2.0
"""Mistakes to make in a copy of the project, as a list describes them: see the top of the lists."""

import shutil

from testlib import TOOLS

PROJECT = TOOLS.parent


class Mutation:
    """A mistake in a file below TOP, as a paragraph of the list describes it."""

    def __init__(self, top, paragraph):
        what, where, *change = paragraph.splitlines()
        self.what = what.rstrip(".")
        self.file, *self.finder = where.split()
        self.file = f"{top}/{self.file}"
        self.old = "".join(f"{line[1:]}\n" for line in change if line.startswith("-"))
        self.new = "".join(f"{line[1:]}\n" for line in change if line.startswith("+"))

    def misfit(self):
        """Says so if there is no such place, or are several."""
        path = PROJECT / self.file
        fits = path.exists() and path.read_text().count(self.old) == 1
        return None if fits else f"{self.file} has not exactly one such place"

    def apply(self, tree):
        """Changes the copy and returns a function that restores it."""
        path = tree / self.file
        text = path.read_text()
        path.write_text(text.replace(self.old, self.new))
        return lambda: path.write_text(text)


def mutations(path, top, words):
    """The mistakes of a list, or the mistakes with one of the words in the description."""
    every = [Mutation(top, paragraph) for paragraph in path.read_text().split("\n\n")
             if not paragraph.startswith("#")]
    return [m for m in every if not words or any(word in m.what for word in words)]


def copy(parts, tree):
    """Copies parts of the project afresh; files that did not change keep their time."""
    wanted = set()
    for part in parts:
        top = PROJECT / part
        for source in top.rglob("*") if top.is_dir() else [top]:
            name = source.relative_to(PROJECT)
            if source.is_dir() or "__pycache__" in name.parts:
                continue
            wanted.add(name)
            target = tree / name
            if not target.exists() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    for found in list(tree.rglob("*")):
        if not found.is_dir() and found.relative_to(tree) not in wanted:
            found.unlink()
