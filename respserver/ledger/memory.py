"""The ledger of a server that was given no file: the latest turns, in memory, gone with the process."""

from __future__ import annotations

from collections import deque

import trio

from respserver.ledger.base import TurnRecord


class MemoryLedger:
    """Fulfils ``ledger.base.Ledger``; keeps the ``max_records`` latest records."""

    def __init__(self, max_records: int) -> None:
        self._records: deque[TurnRecord] = deque(maxlen=max_records)

    @property
    def records(self) -> list[TurnRecord]:
        """What is kept, oldest first; also after ``aclose``."""
        return list(self._records)

    async def write(self, records: list[TurnRecord]) -> None:
        """Keep the records; the oldest go if there are too many. Never fails."""
        await trio.lowlevel.checkpoint()
        self._records.extend(records)

    async def aclose(self) -> None:
        """Nothing needs to be freed."""
        await trio.lowlevel.checkpoint()
