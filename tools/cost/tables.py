# SPDX-License-Identifier: GPL-2.0
"""The tables of the figures of both modules, in reStructuredText, and the file of recorded figures."""

import dataclasses
import json

from pathlib import Path

MODULES = ("ours", "stock")
# The figures of each table.
INSTRUCTIONS = ("own", "incl")
CALLS = ("locks", "locked", "post_send", "post_recv", "WRs", "completions")
WORK = ("CQ work", "work queued", "DMA maps", "MRs", "LOCAL_INV", "bytes copied")
MEMORY = ("allocations", "frees", "pages", "pages freed")
WITH_SUNRPC = tuple(f"{name}, sunrpc" for name in MEMORY)
WITH_MEMORY = "incl, memory"
# A lock that is taken in fewer RPCs is not on the way of the usual RPC.
LEAST_TAKEN = 0.05


def table(header: list[str], lines: list[list[str]]) -> str:
    """A table in reStructuredText."""
    widths = [max(len(line[i]) for line in (header, *lines)) for i in range(len(header))]
    rule = "  ".join("=" * width for width in widths)

    def text(line: list[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()

    header = [header[0] or "\\", *header[1:]]
    return "\n".join([rule, text(header), rule, *map(text, lines), rule, ""])


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


@dataclasses.dataclass
class Figures:
    """The figures of one side. All are per RPC, but the longest time of a lock, which is of one RPC."""
    titles: dict[str, str]                              # {row: title}
    figures: dict[str, dict[str, dict[str, float]]]     # {module: {row: {figure: value}}}
    # {module: {row: {lock: {taken, held, apart, longest}}}}
    locks: dict[str, dict[str, dict[str, dict[str, float]]]]

    def _both(self, row: str) -> tuple[dict[str, float], dict[str, float]]:
        return self.figures["ours"][row], self.figures["stock"][row]

    def _ratios(self, names: tuple[str, ...]) -> str:
        """Figures with their ratios."""
        header, lines = [""], [[title] for title in self.titles.values()]
        for name in names:
            header += [f"{name}: ours", "C", "ratio"]
            for line, row in zip(lines, self.titles):
                ours, stock = self._both(row)
                line += [number(ours[name]), number(stock[name]), f"{ours[name] / stock[name]:.2f}"]
        return table(header, lines)

    def _pairs(self, heading: str, names: tuple[str, ...]) -> str:
        """Figures of both modules in one column."""
        lines = []
        for row, title in self.titles.items():
            ours, stock = self._both(row)
            lines.append([title, *(f"{number(ours[name])} / {number(stock[name])}" for name in names)])
        return table([heading, *(name.removesuffix(", sunrpc") for name in names)], lines)

    def _locks(self) -> str:
        lines = []
        for row, title in self.titles.items():
            ours, stock = (self.locks[module].get(row, {}) for module in MODULES)
            held = {name: sum(of[name]["held"] for of in (ours, stock) if name in of) for name in {*ours, *stock}}
            for name in sorted(held, key=held.__getitem__, reverse=True):
                holds = [of.get(name) for of in (ours, stock)]
                if max(hold["taken"] if hold else 0 for hold in holds) < LEAST_TAKEN:
                    continue
                cells = [[number(hold[part]) for part in ("taken", "held", "apart", "longest")] if hold
                         else ["--"] * 4 for hold in holds]
                lines.append([title, name, *cells[0], *cells[1]])
                title = "\\"
        return table(["", "lock", "ours: taken", "held", "apart", "longest",
                      "C: taken", "held", "apart", "longest"], lines)

    def texts(self) -> dict[str, str]:
        """Returns all tables by name."""
        return {
            "instructions": self._ratios(INSTRUCTIONS),
            "calls": self._pairs("ours / C", CALLS),
            "work": self._pairs("ours / C", WORK),
            "memory": self._pairs("ours / C, module", MEMORY),
            "memory with sunrpc": self._pairs("ours / C, module and sunrpc", WITH_SUNRPC),
            "instructions with memory": self._ratios((WITH_MEMORY,)),
            "locks": self._locks(),
        }


def write(path: Path, sides: dict[str, Figures]) -> None:
    """Adds the figures of SIDES to the file PATH."""
    known = read(path) if path.exists() else {}
    rounded = {side: dataclasses.asdict(figures) for side, figures in (known | sides).items()}
    path.write_text(json.dumps(rounded, indent=1) + "\n")


def read(path: Path) -> dict[str, Figures]:
    """Returns the figures of each side in the file PATH."""
    return {side: Figures(**figures) for side, figures in json.loads(path.read_text()).items()}
