"""What follows a turn and must not hold up the next one: for now its log line.

Turns submit a record and go on; a worker handles records in order, behind the next turn's work (OpenAI overlaps
billing with the next request in the same way).
"""

from __future__ import annotations

import msgspec
import trio

from respserver.logger import get_logger
from respserver.schema.response import Usage

log = get_logger("respserver.turn")


class TurnRecord(msgspec.Struct, kw_only=True):
    """What is known of a turn once it is over. Holds no text of the request or the answer."""

    response_id: str
    previous_response_id: str | None
    connection_id: str
    transport: str
    tenant: str
    model: str
    status: str
    error_code: str | None = None
    usage: Usage = Usage()
    pauses: int = 0
    items_in: int = 0
    items_out: int = 0
    timings_ms: dict[str, float] = {}


class PostInference:
    """A bounded line of records and the worker that empties it."""

    def __init__(self, max_waiting: int) -> None:
        self._send, self._receive = trio.open_memory_channel[TurnRecord](max_waiting)

    def submit(self, record: TurnRecord) -> None:
        """Hand a record over; returns at once. A full line is worked on the spot, so that nothing is lost."""
        try:
            self._send.send_nowait(record)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self._handle(record)

    async def run(self) -> None:
        """Handle records until ``close``; what was submitted before is still handled."""
        async with self._receive:
            async for record in self._receive:
                self._handle(record)

    def close(self) -> None:
        """Take no more records; the worker ends when it has handled the rest."""
        self._send.close()

    def _handle(self, record: TurnRecord) -> None:
        usage = record.usage
        fields: dict[str, object] = {
            "response_id": record.response_id,
            "connection_id": record.connection_id,
            "transport": record.transport,
            "tenant": record.tenant,
            "model": record.model,
            "status": record.status,
            "input_tokens": usage.input_tokens,
            "cached_tokens": usage.input_tokens_details.cached_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
            "items_in": record.items_in,
            "items_out": record.items_out,
        }
        if record.previous_response_id:
            fields["previous_response_id"] = record.previous_response_id
        if record.pauses:
            fields["pauses"] = record.pauses
        if record.error_code:
            fields["error_code"] = record.error_code
        fields.update({f"{stage}_ms": round(ms, 2) for stage, ms in record.timings_ms.items()})
        log.info("turn", **fields)
