"""Stands between the turns and a ledger: keeps records until they are written, and tries again if they cannot be.

A turn hands its record over and never waits. What waits is written in one transaction after another. While the ledger
fails (disk full, locked by another program) records stay here, up to a bound: a server that nobody looks at must not
fill its memory. Past that bound rows are given up; the turns' log lines still hold all that the rows would have.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import trio

from respserver.ledger.base import Ledger, TurnRecord
from respserver.logger import get_logger

log = get_logger("respserver.ledger")

BATCH = 512
"""Rows in one transaction: a few milliseconds, so that several servers can share a file."""
GATHER_SECONDS = 0.05
"""How long a record waits for company: a busy server pays for 20 transactions a second, not for one each turn."""
FIRST_DELAY = 0.1
LAST_DELAY = 30.0
"""Seconds between two attempts while the ledger fails; each delay is twice the one before."""
CLOSE_SECONDS = 1.0


class LedgerWriter:
    """The one writer of a ledger.

    ``max_waiting`` is how many records are kept while the ledger fails. While it works, a burst is kept whole: the
    next transactions take it away.
    """

    def __init__(self, ledger: Ledger, max_waiting: int) -> None:
        self.ledger = ledger
        self.written = 0
        """Rows written."""
        self.lost = 0
        """Records whose rows were given up."""
        self.failures = 0
        """Attempts that failed."""
        self._max_waiting = max_waiting
        self._waiting: deque[TurnRecord] = deque()
        self._work = trio.Event()
        self._outage: _Outage | None = None
        self._is_finished = False

    @property
    def waiting(self) -> int:
        """Records that have no row yet."""
        return len(self._waiting)

    def add(self, record: TurnRecord) -> None:
        """Take a record; returns at once. Past the bound of an outage, or after ``finish``, it is counted as lost."""
        if self._is_finished:
            self.lost += 1
            log.error("ledger_rows_lost", reason="the ledger is closed", count=1)
        elif self._outage is not None and len(self._waiting) >= self._max_waiting:
            self._give_up(self._outage)
        else:
            self._waiting.append(record)
            self._work.set()

    async def run(self) -> None:
        """Write what is added, until cancelled. Only one task may run this."""
        while True:
            await self._work.wait()
            await trio.sleep(GATHER_SECONDS)
            self._work = trio.Event()
            await self._write_all()

    async def finish(self, seconds: float) -> None:
        """Write the rest and close the ledger, also when cancelled. What cannot be written in time is logged as lost.

        Call it once, when ``run`` has ended.
        """
        with trio.move_on_after(seconds, shield=True):
            await self._write_all()
        self._is_finished = True
        if self._waiting:
            tokens = sum(record.usage.total_tokens for record in self._waiting)
            log.error("ledger_rows_lost", reason="not written in time", count=len(self._waiting), total_tokens=tokens)
            self.lost += len(self._waiting)
            self._waiting.clear()
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._close()

    async def _write_all(self) -> None:
        delay = FIRST_DELAY
        while self._waiting:
            batch = list(islice(self._waiting, BATCH))
            try:
                await self.ledger.write(batch)
            except Exception as error:  # noqa: BLE001 - whatever a ledger does, no turn is hurt; logged and retried
                self._note_failure(error)
                await trio.sleep(delay)
                delay = min(delay * 2, LAST_DELAY)
            else:
                delay = FIRST_DELAY
                self._note_success(len(batch))

    async def _close(self) -> None:
        try:
            await self.ledger.aclose()
        except Exception:
            log.exception("ledger_close_failed")

    def _note_success(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()
        self.written += count
        if self._outage is not None:
            log.warning("ledger_available", failures=self._outage.failures, lost=self._outage.lost)
            self._outage = None

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        if self._outage is None:
            self._outage = _Outage()
            log.error("ledger_unavailable", problem=error, waiting=len(self._waiting))
        self._outage.failures += 1

    def _give_up(self, outage: _Outage) -> None:
        self.lost += 1
        outage.lost += 1
        if outage.lost == 1:
            log.error("ledger_backlog_full", limit=self._max_waiting)


class _Outage:
    """From the first failed attempt to the next one that works; logged at both ends."""

    def __init__(self) -> None:
        self.failures = 0
        self.lost = 0
