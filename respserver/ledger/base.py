"""What a ledger of usage is, and what it is told of a turn. It holds no text of a request or an answer.

``writer.py`` stands between the turns and a ledger, so that no turn waits for one or is hurt by one that fails.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from respserver.errors import RespserverError
from respserver.schema.response import Usage

Kind = Literal["response", "rollout"]
"""``response`` is one create answered; ``rollout`` one create with all its pauses (prototype mode)."""


class TurnRecord(msgspec.Struct, kw_only=True):
    """What is known of a turn once it is over. Holds no text of the request or the answer."""

    response_id: str
    """Empty if the turn was refused before it had one."""
    previous_response_id: str | None
    connection_id: str
    transport: str
    tenant: str
    """The name of the key that asked."""
    model: str
    status: str
    error_code: str | None = None
    usage: Usage = Usage()
    pauses: int = 0
    items_in: int = 0
    items_out: int = 0
    timings_ms: dict[str, float] = {}
    created_at: float = 0.0
    """Seconds since 1970. Zero, for turns that were never created, stands for when post-inference heard of them."""
    kind: Kind = "response"
    verdict: str | None = None
    """What safety screening said, if it said anything."""


class LedgerError(RespserverError):
    """A ledger cannot be written or read now; ``problem`` says why."""

    def __init__(self, ledger: str, problem: str) -> None:
        self.ledger = ledger
        self.problem = problem
        super().__init__(f"{ledger}: {problem}")


class Ledger(Protocol):
    """Keeps one row for each turn. It has one writer: calls never overlap."""

    async def write(self, records: list[TurnRecord]) -> None:
        """Add a row for each record: all of them, or none if anything at all is raised, ``trio.Cancelled`` included.

        Raises ``LedgerError`` if it cannot be done now; the caller tries again.
        """
        ...

    async def aclose(self) -> None:
        """Free the ledger; what was written stays. Safe to call twice."""
        ...
