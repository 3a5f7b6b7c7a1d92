"""Records, and a ledger that fails when it is told to: what the tests of the ledger share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from respserver.ledger.base import LedgerError, TurnRecord
from respserver.ledger.memory import MemoryLedger
from respserver.schema.response import InputTokensDetails, OutputTokensDetails, Usage


def usage(input_tokens: int = 0, cached: int = 0, output_tokens: int = 0, reasoning: int = 0) -> Usage:
    return Usage(
        input_tokens=input_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=cached),
        output_tokens=output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning),
        total_tokens=input_tokens + output_tokens,
    )


def record(number: int = 0, **fields: Any) -> TurnRecord:
    defaults: dict[str, Any] = {
        "response_id": f"resp_{number}",
        "previous_response_id": None,
        "connection_id": "conn_1",
        "transport": "websocket",
        "tenant": "alice",
        "model": "sim",
        "status": "completed",
        "created_at": 1_700_000_000.0 + number,
    }
    return TurnRecord(**(defaults | fields))


class FlakyLedger(MemoryLedger):
    """Fails at the writes whose number, from 1, ``fails`` holds for; ``busy`` is how long each write takes."""

    def __init__(self, fails: Callable[[int], bool] = lambda number: False, busy: float = 0.0) -> None:
        super().__init__(1_000_000)
        self.attempts = 0
        self.batches: list[int] = []
        self.is_closed = False
        self._fails = fails
        self._busy = busy

    @property
    def ids(self) -> list[str]:
        return [record.response_id for record in self.records]

    async def write(self, records: list[TurnRecord]) -> None:
        self.attempts += 1
        await trio.sleep(self._busy)
        if self._fails(self.attempts):
            raise LedgerError("ledger.db", "database or disk is full")
        await super().write(records)
        self.batches.append(len(records))

    async def aclose(self) -> None:
        await super().aclose()
        self.is_closed = True
