"""What follows a turn and must not hold up the next one: its log line, and its row in the ledger of usage.

Turns submit a record and go on; a worker handles records in order, behind the next turn's work (OpenAI overlaps
billing with the next request in the same way). The log line is written first and never waits for the ledger.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec
import trio

from respserver.ledger.base import Ledger, TurnRecord
from respserver.ledger.memory import MemoryLedger
from respserver.ledger.tally import Tally
from respserver.ledger.writer import LedgerWriter
from respserver.logger import get_logger
from respserver.turn.runs import RunCloser
from respserver.turn.stopwatch import Stopwatch

__all__ = ["PostInference", "TurnRecord"]

log = get_logger("respserver.turn")


_Entry = tuple[TurnRecord, Stopwatch | None]


class PostInference:
    """A bounded line of records and the worker that empties it into the log and the ledger; it closes runs, too.

    ``max_waiting`` bounds the line. ``ledger`` is the worker's to close; without one, as many rows are kept in memory.
    ``max_tallied`` is how many records the tally keeps, ``max_unwritten`` how many are kept while the ledger cannot be
    written, ``end_seconds`` how long the end may wait for it. ``now`` is the wall clock, in seconds since 1970.
    """

    def __init__(
        self,
        max_waiting: int,
        ledger: Ledger | None = None,
        *,
        max_tallied: int = 0,
        max_unwritten: int = 16_384,
        end_seconds: float = 5.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._send, self._receive = trio.open_memory_channel[_Entry](max_waiting)
        self.writer = LedgerWriter(ledger or MemoryLedger(max_waiting), max_unwritten)
        """Counts what was written and what was lost."""
        self.tally = Tally(max_tallied)
        """Has each turn as soon as it is submitted."""
        self.runs = RunCloser(end_seconds)
        """Closes the engine runs that nobody goes on from."""
        self._end_seconds = end_seconds
        self._now = now

    def submit(self, record: TurnRecord, watch: Stopwatch | None = None) -> None:
        """Hand a record over; returns at once. A full line is passed by: logged on the spot, and left to the writer.

        ``watch`` is read when the record is handled; without one its timings stay as they are.
        """
        if watch is not None:
            watch.begin("post")
        record.created_at = record.created_at or self._now()
        self.tally.add(record)
        try:
            self._send.send_nowait((record, watch))
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self._handle(record, watch)

    async def run(self) -> None:
        """Handle records until ``close`` or cancelled; what was submitted before is still logged and written."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.writer.run)
                nursery.start_soon(self.runs.run)
                async for entry in self._receive:
                    self._handle(*entry)
                nursery.cancel_scope.cancel()
        finally:
            self._handle_rest()
            await self.runs.finish()
            await self.writer.finish(self._end_seconds)

    def close(self) -> None:
        """Take no more records; the worker ends when it has handled the rest."""
        self._send.close()

    def _handle_rest(self) -> None:
        """Empty the line of a worker that was cancelled; later records find it closed."""
        try:
            while True:
                self._handle(*self._receive.receive_nowait())
        except (trio.WouldBlock, trio.EndOfChannel):
            self._receive.close()

    def _handle(self, record: TurnRecord, watch: Stopwatch | None) -> None:
        self.writer.add(record)
        if log.isEnabledFor(logging.INFO):  # making the line costs more than all else that follows a turn
            _take_timings(record, watch)
            _log_line(record)
        _take_timings(record, watch)  # the row, which is written later, tells what the line has taken


def _take_timings(record: TurnRecord, watch: Stopwatch | None) -> None:
    if watch is not None:
        record.timings_ms = watch.read()


def _log_line(record: TurnRecord) -> None:
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
    if record.param:
        fields["param"] = record.param
    if record.unknown:
        fields["unknown"] = ",".join(record.unknown)
    if record.verdict:
        fields["verdict"] = record.verdict
    fields.update({f"{stage}_ms": ms for stage, ms in msgspec.structs.asdict(record.timings_ms).items() if ms})
    log.info("turn", **fields)
