"""What turns have cost so far, in memory: for programs that embed a server and ask it."""

from __future__ import annotations

from collections import deque

from respserver.ledger.base import TurnRecord
from respserver.ledger.totals import Totals


class Tally:
    """The sums of all turns, and the records of the ``max_records`` latest, whatever ledger there is beside it."""

    def __init__(self, max_records: int) -> None:
        self.total = Totals()
        self._latest: deque[TurnRecord] = deque(maxlen=max_records)

    @property
    def latest(self) -> list[TurnRecord]:
        """The latest records, oldest first. Stage times come a moment after the rest of a record."""
        return list(self._latest)

    def add(self, record: TurnRecord) -> None:
        """Count a turn that is over."""
        self.total = self.total.plus(record)
        self._latest.append(record)
