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


class Timings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a turn's time went, in milliseconds. Each moment belongs to one stage: all of them but ``post`` add up to
    ``total``. A stage that a turn did not pass is 0, and left out of JSON."""

    receive: float = 0.0
    """Making raw fields of the request's JSON, from its last byte on; over HTTP inflating it too."""
    validate: float = 0.0
    """Understanding and checking the fields."""
    queue: float = 0.0
    """Waiting behind other turns: of the same lane, and for one of the process's slots."""
    bind: float = 0.0
    """Finding route and parent, loading the parent from the store, pairing calls with outputs."""
    screen: float = 0.0
    """What the turn waited for classifiers; not what they took while it did something else."""
    render: float = 0.0
    """Making token ids of instructions, tools and items."""
    extend: float = 0.0
    """The engine takes the new ids, on a new run if need be."""
    sample: float = 0.0
    """Waiting for the engine's tokens."""
    hosted: float = 0.0
    """Waiting for tools that the server runs itself."""
    emit: float = 0.0
    """Making items and events of them, and the response's end."""
    write: float = 0.0
    """Encoding and writing events, and waiting for a client that is slow to take them."""
    save: float = 0.0
    """Waiting for the store."""
    suspended: float = 0.0
    """Prototype mode: the client's time, from ``response.done`` to the frame that brought the last output."""
    post: float = 0.0
    """Behind the end: waiting for the worker and, in a ledger's row, the making of the log line."""
    first_token: float | None = None
    """A moment, not a span: when the first event of the output was ready to be written, counted from the start."""
    total: float = 0.0
    """From the request's last byte to the terminal event's write, or to the refusal."""


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
    timings_ms: Timings = Timings()
    created_at: float = 0.0
    """Seconds since 1970. Zero, for turns that were never created, stands for when post-inference heard of them."""
    kind: Kind = "response"
    verdict: str | None = None
    """What safety screening said, if it said anything."""
    unknown: tuple[str, ...] = ()
    """Names of the first few fields of the request that the API does not have; in the log line only."""
    param: str = ""
    """Where in the request the fault is that it was refused for, as in ``input[0].call_id``; in the log line only."""


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
