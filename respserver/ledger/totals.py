"""Sums over turns: what they are, and how a ledger's file is added up, by day, key and what else tells its rows apart.

Only reads; no trio here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import msgspec

from respserver.ledger.base import LedgerError, TurnRecord
from respserver.ledger.table import open_for_reading

GROUPS = {
    "day": "date(created_at, 'unixepoch')",
    "key": "tenant",
    "model": "model",
    "kind": "kind",
    "status": "status",
}
"""What totals can be taken by, and the expression for it. Days are UTC."""
READ_SECONDS = 5.0
"""How long reading waits for a lock; writers hold one against readers only while they recover a file."""

ENDED_WELL = ("completed", "incomplete")
"""Statuses of turns that did not fail."""

_SUMS = f"""
    count(*),
    coalesce(sum(status NOT IN {ENDED_WELL}), 0),
    coalesce(sum(input_tokens), 0),
    coalesce(sum(cached_tokens), 0),
    coalesce(sum(output_tokens), 0),
    coalesce(sum(reasoning_tokens), 0)
"""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over some turns."""

    group: tuple[str, ...] = ()
    """What the turns have in common, in the order that was asked for."""
    turns: int = 0
    failed: int = 0
    """Turns that failed, were refused, or whose client left before the end."""
    input_tokens: int = 0
    """Cached ones included."""
    cached_tokens: int = 0
    output_tokens: int = 0
    """Reasoning included."""
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def plus(self, record: TurnRecord) -> Totals:
        """The same with one more turn."""
        usage = record.usage
        return Totals(
            group=self.group,
            turns=self.turns + 1,
            failed=self.failed + (record.status not in ENDED_WELL),
            input_tokens=self.input_tokens + usage.input_tokens,
            cached_tokens=self.cached_tokens + usage.input_tokens_details.cached_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            reasoning_tokens=self.reasoning_tokens + usage.output_tokens_details.reasoning_tokens,
        )


def read_totals(file: str, by: Sequence[str], since: float = 0.0) -> tuple[list[Totals], Totals]:
    """Totals for each group, in the groups' order, and over everything; both of one moment.

    ``by`` are keys of ``GROUPS``, ``since`` is in seconds since 1970. Raises ``LedgerError``.
    """
    columns = [GROUPS[name] for name in by]
    with closing(open_for_reading(file, READ_SECONDS)) as connection:
        try:
            connection.execute("BEGIN")  # both queries see the same rows, whatever is written meanwhile
            groups = _sums(connection, columns, since) if columns else []
            return groups, _sums(connection, [], since)[0]
        except sqlite3.Error as error:
            raise LedgerError(file, str(error)) from error


def _sums(connection: sqlite3.Connection, columns: list[str], since: float) -> list[Totals]:
    grouping = f" GROUP BY {', '.join(columns)} ORDER BY {', '.join(columns)}" if columns else ""
    query = f"SELECT {', '.join([*columns, _SUMS])} FROM turns WHERE created_at >= ?{grouping}"
    return [_totals(row, len(columns)) for row in connection.execute(query, (since,))]


def _totals(row: Sequence[str | int], groups: int) -> Totals:
    turns, failed, input_tokens, cached_tokens, output_tokens, reasoning_tokens = map(int, row[groups:])
    return Totals(
        group=tuple(map(str, row[:groups])),
        turns=turns,
        failed=failed,
        input_tokens=input_tokens,
        cached_tokens=cached_tokens,
        output_tokens=output_tokens,
        reasoning_tokens=reasoning_tokens,
    )
