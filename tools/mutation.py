# SPDX-License-Identifier: GPL-2.0
"""Mistakes to make in a copy of the project, as a list describes them: see the top of the lists."""

import shutil

from testlib import TOOLS

PROJECT = TOOLS.parent


class Change:
    """The replacement of lines in a file."""

    def __init__(self, file):
        self.file = file
        self.old = self.new = ""

    def add(self, line):
        """Adds a line that is replaced, or a line of the replacement."""
        if line.startswith("-"):
            self.old += f"{line[1:]}\n"
        elif line.startswith("+"):
            self.new += f"{line[1:]}\n"

    def fits(self):
        """Returns whether the file has exactly one such place."""
        path = PROJECT / self.file
        return path.exists() and path.read_text().count(self.old) == 1


class Mutation:
    """A mistake in files below TOP, as a paragraph of the list describes it."""

    def __init__(self, top, paragraph):
        what, where, *lines = paragraph.splitlines()
        self.what = what.rstrip(".")
        file, *self.finder = where.split()
        self.changes = [Change(f"{top}/{file}")]
        for line in lines:
            if line.startswith("= "):
                self.changes.append(Change(f"{top}/{line[2:]}"))
            else:
                self.changes[-1].add(line)

    def misfit(self):
        """Says so if there is no such place, or are several."""
        misfits = [change.file for change in self.changes if not change.fits()]
        return f"{misfits[0]} has not exactly one such place" if misfits else None

    def apply(self, tree):
        """Changes the copy and returns a function that restores it."""
        texts = [(tree / change.file, (tree / change.file).read_text()) for change in self.changes]
        for change, (path, text) in zip(self.changes, texts):
            path.write_text(text.replace(change.old, change.new))

        def undo():
            for path, text in texts:
                path.write_text(text)
        return undo


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
