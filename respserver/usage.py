"""``respserver usage``: what a ledger's file adds up to, as a table or as JSON.

Takes the subcommand's arguments apart and makes the text; ``ledger/totals.py`` does the sums, ``cli.py`` prints. Model
names were chosen by clients: what a terminal could take for a command is escaped.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from collections.abc import Mapping, Sequence

import msgspec

from respserver.errors import ConfigError
from respserver.ledger.base import LedgerError
from respserver.ledger.totals import GROUPS, Totals, read_totals
from respserver.mistakes import closest

LEDGER_VARIABLE = "RESPSERVER_LEDGER"
"""The variable that names the server's ledger names this command's too."""
DEFAULT_BY = "day,key,model"

_SUMS = ("turns", "failed", "input", "cached", "output", "reasoning")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the arguments ask for."""

    ledger: str
    by: tuple[str, ...]
    since: datetime.date | None
    as_json: bool


def report(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """The text that answers the subcommand's arguments (without ``usage``), its last line ended.

    Raises ``ConfigError`` for a wrong argument and for a file that is missing, unreadable or no ledger.
    """
    parser = build_parser()
    try:
        given, rest = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise ConfigError(error.argument_name or "options", error.message) from error
    if given.help:
        return parser.format_help()
    if rest and not rest[0].startswith("-"):
        raise ConfigError("argument", f"{rest[0]!r} is no option; a ledger is named with --ledger")
    if rest:
        name = rest[0].partition("=")[0]
        options = [action.option_strings[-1] for action in parser._actions]
        raise ConfigError(name, f"unknown option of respserver usage{closest(name, options)}")
    question = _question(given, environment)
    since = 0.0 if question.since is None else _start_of(question.since)
    try:
        groups, total = read_totals(question.ledger, question.by, since)
    except LedgerError as error:
        raise ConfigError("--ledger", f"cannot read {error.ledger}: {error.problem}") from error
    return _json(question, groups, total) if question.as_json else _table(question.by, groups, total)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the subcommand's options; it only takes texts apart."""
    parser = argparse.ArgumentParser(
        prog="respserver usage",
        usage="respserver usage --ledger FILE [options]",
        description="Totals of a ledger that servers write with --ledger; they may be running.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="Show this text and exit.")
    parser.add_argument("--ledger", metavar="FILE", help=f"SQLite file to read (default: what {LEDGER_VARIABLE} names)")
    parser.add_argument(
        "--by",
        default=DEFAULT_BY,
        metavar="NAMES",
        help=f"What to add up by, in this order: some of {', '.join(GROUPS)} (default: {DEFAULT_BY})",
    )
    parser.add_argument("--since", metavar="DATE", help="First day to count, as in 2025-01-31 (UTC).")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    return parser


def _question(given: argparse.Namespace, environment: Mapping[str, str]) -> Question:
    ledger: str | None = environment.get(LEDGER_VARIABLE) if given.ledger is None else given.ledger
    if not ledger or "\0" in ledger:
        raise ConfigError("--ledger", "expected a file name; it says which ledger to read")
    if not os.path.exists(ledger):
        raise ConfigError("--ledger", f"there is no file {ledger}")
    return Question(ledger=ledger, by=_groups(given.by), since=_date(given.since), as_json=given.json)


def _groups(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in GROUPS:
            raise ConfigError("--by", f"expected some of {', '.join(GROUPS)}, with commas between them, got {name!r}")
    if len(set(names)) < len(names):
        raise ConfigError("--by", f"a name stands twice in {text!r}")
    return names


def _date(text: str | None) -> datetime.date | None:
    if text is None:
        return None
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError as error:
        raise ConfigError("--since", f"expected a date such as 2025-01-31, got {text!r}") from error


def _start_of(day: datetime.date) -> float:
    return datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp()


def _json(question: Question, groups: list[Totals], total: Totals) -> str:
    answer = {
        "by": list(question.by),
        "since": None if question.since is None else question.since.isoformat(),
        "groups": [dict(zip(question.by, group.group, strict=True)) | _sums(group) for group in groups],
        "total": _sums(total),
    }
    return json.dumps(answer, indent=2) + "\n"


def _sums(totals: Totals) -> dict[str, int]:
    fields = msgspec.structs.asdict(totals)
    del fields["group"]
    return fields


def _table(by: tuple[str, ...], groups: list[Totals], total: Totals) -> str:
    """Columns as wide as their widest cell: names to the left, numbers to the right."""
    lines = [[*by, *_SUMS]]
    lines += [[*map(_shown, group.group), *_numbers(group)] for group in groups]
    lines.append(["total", *[""] * (len(by) - 1), *_numbers(total)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(_line(cells, widths, len(by)) for cells in lines)


def _line(cells: list[str], widths: list[int], names: int) -> str:
    padded = [
        cell.ljust(width) if place < names else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip() + "\n"


def _numbers(totals: Totals) -> list[str]:
    return [f"{number:,}" for number in _sums(totals).values()]


def _shown(text: str) -> str:
    """A name as one visible cell; turns that were refused before they were understood have no model."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) or "-"
