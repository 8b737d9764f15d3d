# SPDX-License-Identifier: GPL-2.0
"""A run: measures our client, our server, or both, beside the C module, in turn. Another contender is first in each
round."""

import argparse
import datetime
import sys

from collections.abc import Callable
from pathlib import Path

import places
import results

STOCK = results.STOCK
K = 1024
GROUPS = ("data", "names", "latency", "memory", "crowd", "locks")


def contenders(options: argparse.Namespace) -> dict[str, tuple[str, str, tuple[object, ...]]]:
    """The measurements: {name: (client, server, arguments of on-node)}; the C module first."""
    if options.side == "client":
        return {STOCK: (STOCK, STOCK, ()), "ours": ("ours", STOCK, ())}
    if options.side == "server":
        return {STOCK: (STOCK, STOCK, ()), "ours": (STOCK, "ours", ())}
    versions: dict[str, tuple[str, str, tuple[object, ...]]] = {
        f"version {version}, {length // K} KiB": ("ours", "ours", ("--speak", version, length))
        for version in options.versions for length in options.inline}
    return {STOCK: (STOCK, STOCK, ())} | versions


def words(options: argparse.Namespace, speak: tuple[object, ...]) -> list[str]:
    """The arguments of on-node."""
    line = [options.mount, *map(str, speak)]
    for name in ("groups", "blocks", "only"):
        if values := getattr(options, name):
            line += [f"--{name}", *map(str, values)]
    return line


def parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options of each run."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--side", default="client", choices=("client", "server", "both"),
                      help="whose module is compared, in version 1, while the other side has the "
                      "kernel's; or both, in both versions; default: client")
    made.add_argument("--inline", type=int, nargs="+", default=[16 * K], metavar="BYTES",
                      help="with --side both: the longest messages; default: 16384")
    made.add_argument("--versions", type=int, nargs="+", default=(1, 2), choices=(1, 2),
                      help="with --side both; default: 1 2")
    made.add_argument("--groups", nargs="+", choices=GROUPS, default=["data"], metavar="GROUP",
                      help=f"of: {' '.join(GROUPS)}; default: data")
    made.add_argument("--blocks", type=int, nargs="+", metavar="KIB",
                      help="read and write blocks of these lengths, and nothing else")
    made.add_argument("--only", nargs="+", metavar="WORDS", help="only rows with such words in their title")
    made.add_argument("--mount", default="vers=4.2,rsize=1048576,wsize=1048576",
                      help="mount options; default: %(default)s")
    made.add_argument("--rounds", type=int, default=7, help="at least two; default: %(default)s")
    made.add_argument("--record", type=Path, metavar="FILE", help="write all figures to FILE")
    return made


def arguments(made: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the options of the command line."""
    options = made.parse_args()
    if options.rounds < 2:
        made.error("a spread needs two rounds")
    return options


def measure(options: argparse.Namespace, place: places.Place,
            keep: Callable[[str, str], None] = lambda name, text: None) -> results.Run:
    """Returns the figures of all rounds at PLACE. KEEP gets the name and the output of each measurement."""
    names = contenders(options)
    figures: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    better = {}
    for number in range(options.rounds):
        turn = number % len(names)
        for name in (*list(names)[turn:], *list(names)[:turn]):
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr)
            client, server, speak = names[name]
            text = place.measure(client, server, words(options, speak))
            keep(f"round {number + 1}, {name}", text)
            for title, (value, direction) in results.parse(text).items():
                figures[name].setdefault(title, []).append(value)
                better[title] = direction
    run = results.Run(datetime.date.today().isoformat(), place.name, options.side, options.rounds, better, figures)
    if options.record:
        run.write(options.record)
    return run
