"""What every bench shares: its options, the figures' median and 95th percentile, what they were taken on, the table.

A bench collects ``Figures`` (rows, columns, a value for each round or turn), interleaves its rounds so that a busy
moment of the machine hits all rows alike, and hands the figures to ``report``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

Figures = dict[str, dict[str, list[float]]]
"""Values by row and column; a column's name ends with its unit."""

PACKAGES = ("trio", "trio-websocket", "hypercorn", "quart", "msgspec", "tokenizers")


class Goal(NamedTuple):
    """What a figure must not pass, or must at least reach."""

    text: str
    figure: float
    limit: float
    is_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.figure >= self.limit if self.is_least else self.figure <= self.limit


def arguments(question: str | None, **sizes: int) -> argparse.Namespace:
    """The command line: an integer option for each size, with its default, and ``--json``."""
    parser = argparse.ArgumentParser(description=question, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"(default: {default})")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


def add(figures: Figures, row: str, column: str, *values: float) -> None:
    """Note values of a cell."""
    figures.setdefault(row, {}).setdefault(column, []).extend(values)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile of one value or more."""
    p95 = statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
    return {"median": statistics.median(values), "p95": p95}


def about() -> dict[str, str]:
    """What the figures were taken on: Python, the packages that matter, the machine and how busy it was."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, load {load}"
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **versions, "machine": machine}


def report(figures: Figures, options: argparse.Namespace, goals: Sequence[Goal] = ()) -> None:
    """Print the figures as a table, and whether they meet the goals; or as JSON if the options ask for it."""
    rows = {name: {column: summary(values) for column, values in row.items()} for name, row in figures.items()}
    sizes = {name: value for name, value in vars(options).items() if name != "json"}
    if options.json:
        told = [{**goal._asdict(), "is_met": goal.is_met} for goal in goals]
        print(json.dumps({"about": about(), "sizes": sizes, "rows": rows, "goals": told}))
    else:
        print(_table(rows))
        for goal in goals:
            print(_judged(goal))
        print(", ".join(f"{name} {value}" for name, value in {**about(), **sizes}.items()))


def _table(rows: dict[str, dict[str, Any]]) -> str:
    """Rows and columns, each cell ``median (p95)``; a row may lack a column."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = [["", *columns]] + [[name, *(_cell(row.get(column)) for column in columns)] for name, row in rows.items()]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns) + 1)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in cells
    )


def _cell(figure: dict[str, float] | None) -> str:
    return "" if figure is None else f"{_shown(figure['median'])} ({_shown(figure['p95'])})"


def _shown(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _judged(goal: Goal) -> str:
    bound = "at least" if goal.is_least else "at most"
    verdict = "met" if goal.is_met else "NOT MET"
    return f"{verdict:8}{goal.text}: {_shown(goal.figure)}, {bound} {_shown(goal.limit)}"
