# SPDX-License-Identifier: GPL-2.0
"""The figures of a run of compare: their file, their ratios, and their table."""

import dataclasses
import json
import statistics

from collections.abc import Iterator
from pathlib import Path

STOCK = "stock"
# The direction of a better figure; or the figure explains another.
MORE, LESS, EXPLAINS = "more", "less", "-"
def parse(text: str) -> dict[str, tuple[float, str]]:
    """Returns the figures that on-node has printed, with the direction of a better figure, by title."""
    words = (line.split("\t") for line in text.splitlines() if line.count("\t") == 2)
    return {title: (float(value), better) for title, value, better in words}


@dataclasses.dataclass
class Row:
    """A figure of one of our contenders beside the C module."""
    title: str
    name: str       # of the contender
    better: str
    stock: list[float]
    ours: list[float]

    @property
    def ratios(self) -> list[float]:
        """The ratios of the rounds. There is none without a figure of both, or if a figure of the C module is 0."""
        return [mine / its for mine, its in zip(self.ours, self.stock) if its]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def behind(self) -> bool:
        """Whether the C module was better in each round."""
        if not self.ratios:
            return False
        return (self.better == MORE and max(self.ratios) < 1) or (self.better == LESS and min(self.ratios) > 1)

    def text(self) -> str:
        """Returns the line of the table."""
        which = self.title if self.name == "ours" else f"{self.title}: {self.name}"
        line = f"{which:60}"
        for figures in self.stock, self.ours:
            line += f"{statistics.median(figures):10.1f}" if figures else f"{'--':>10}"
        if self.ratios:
            line += f"{self.ratio:8.2f}{min(self.ratios):8.2f}-{max(self.ratios):.2f}"
        return line + ("   behind" if self.behind else "")


@dataclasses.dataclass
class Run:
    """All figures of a run: {contender: {title: [the figure of each round]}}."""
    date: str
    kernel: str
    side: str
    rounds: int
    better: dict[str, str]      # by title
    figures: dict[str, dict[str, list[float]]]

    def rows(self) -> list[Row]:
        """Returns the rows of each title. A contender may lack a row, such as more connections than memory."""
        return [Row(title, name, better, self.figures[STOCK].get(title, []), figures.get(title, []))
                for title, better in self.better.items()
                for name, figures in self.figures.items() if name != STOCK]

    def text(self) -> str:
        """Returns the table."""
        heading = f"{'':60}{STOCK:>10}{'ours':>10}{'ratio':>8}{'spread':>14}   (medians of {self.rounds})"
        return "\n".join([heading, *(row.text() for row in self.rows())])

    def worse_than(self, recorded: "Run") -> Iterator[str]:
        """Yields a line for each row whose ratios are all worse than all ratios of the RECORDED run."""
        known = {(row.title, row.name): row for row in recorded.rows()}
        for row in self.rows():
            before = known.get((row.title, row.name))
            if not before or not before.ratios or not row.ratios:
                continue
            if ((row.better == MORE and max(row.ratios) < min(before.ratios)) or
                    (row.better == LESS and min(row.ratios) > max(before.ratios))):
                yield (f"{row.title}: {row.name}: {row.ratio:.2f} ({min(row.ratios):.2f}-{max(row.ratios):.2f}), "
                       f"recorded {before.ratio:.2f} ({min(before.ratios):.2f}-{max(before.ratios):.2f})")

    def write(self, path: Path) -> None:
        """Writes the figures to PATH."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Returns the figures of the file PATH."""
        return cls(**json.loads(path.read_text()))
