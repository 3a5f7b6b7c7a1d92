"""The sampler: token ids from the engine's open run, into the buffer and through the parser, batch by batch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Ids

import msgspec

from respserver.engines.base import SamplingParams, Sequence
from respserver.metrics import Metrics
from respserver.tokens.buffer import TokenBuffer
from respserver.tokens.parse import Delta, ItemBegan, ItemEnded, OutputParser
from respserver.tokens.special import Special
from respserver.turn.stopwatch import Stopwatch


class Sampler:
    """One sampling run. ``next`` until it gives None; then ``cut`` tells whether a limit ended it."""

    def __init__(
        self,
        sequence: Sequence,
        buffer: TokenBuffer,
        parser: OutputParser,
        params: SamplingParams,
        *,
        budget: int | None,
        single_call: bool,
        metrics: Metrics,
        watch: Stopwatch,
    ) -> None:
        self.cut = False
        self.has_ended = False
        """Whether the last batch was taken: ``next`` has nothing more to wait for."""
        self.tokens = 0
        """Ids taken so far."""
        self._sequence = sequence
        self._buffer = buffer
        self._parser = parser
        self._params = params
        self._budget = budget
        self._single_call = single_call
        self._metrics = metrics
        self._watch = watch
        self._in_call = False
        self._is_done = False
        """Whether the one call that may be made is whole."""
        self._unshown = array("I")
        """Sampled ids of a frame that the client has heard nothing of; they are the engine's alone so far."""

    async def next(self) -> list[Delta] | None:
        """The deltas of the next batch, or None at the end. Raises ``ModelFault``."""
        if self.has_ended:
            return None
        self._watch.begin("sample")
        batch = await self._sequence.next(self._next_params())
        self._watch.begin("emit")
        deltas, taken = self._take(batch.ids)
        self._keep(batch.ids[:taken])
        self.tokens += taken
        self._metrics.tokens_sampled += taken
        if taken < len(batch.ids) or batch.finished or self._is_done:
            self.has_ended = True
            await self._end(len(batch.ids) - taken)
            deltas += self._parser.finish()
        return deltas

    def _next_params(self) -> SamplingParams:
        if self._budget is None:
            return self._params
        return msgspec.structs.replace(self._params, max_tokens=self._budget - self.tokens)

    def _take(self, ids: Ids[int]) -> tuple[list[Delta], int]:
        """Parse what the limits leave of a batch: its deltas, and how many ids they used."""
        room = len(ids) if self._budget is None else min(len(ids), self._budget - self.tokens)
        self.cut = room < len(ids)
        if not self._single_call:
            return self._parser.feed(ids[:room]), room
        deltas: list[Delta] = []
        for index in range(room):
            fresh = self._parser.feed(ids[index : index + 1])
            deltas += fresh
            if self._ends_call(fresh):
                self.cut = False
                self._is_done = True
                return deltas, index + 1
        return deltas, room

    def _ends_call(self, deltas: list[Delta]) -> bool:
        """Whether the first call is whole: with ``parallel_tool_calls:false`` the run ends there."""
        for delta in deltas:
            if isinstance(delta, ItemBegan):
                self._in_call = delta.kind in ("function_call", "custom_tool_call")
            elif isinstance(delta, ItemEnded) and self._in_call:
                return True
        return False

    def _keep(self, ids: Ids[int]) -> None:
        """Let the buffer have what the client has been told of."""
        unshown = self._parser.unshown
        if not unshown and not self._unshown:
            self._buffer.extend_sampled(ids)
            return
        self._unshown.extend(ids)
        shown = len(self._unshown) - unshown
        self._buffer.extend_sampled(self._unshown[:shown])
        del self._unshown[:shown]

    async def _end(self, surplus: int) -> None:
        """Make the context whole items, one after another, that the client knows too: what was not shown, and
        ``surplus`` ids behind it, were never said, and an item that broke off is closed."""
        surplus += len(self._unshown)
        if surplus:
            self._watch.begin("sample")
            await self._sequence.discard(surplus)
            self._watch.begin("emit")
        if not self._parser.between_items and self._buffer.last not in (None, Special.END, Special.STOP):
            self._buffer.extend([Special.END])
