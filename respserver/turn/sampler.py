"""The sampler: token ids from the engine's open run, into the buffer and through the parser, batch by batch."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from collections.abc import Sequence as Ids

import msgspec
import trio

from respserver.engines.base import Batch, SamplingParams, Sequence
from respserver.errors import ModelFault
from respserver.metrics import Metrics
from respserver.protocol.steering import Steering
from respserver.tokens.buffer import TokenBuffer
from respserver.tokens.logprobs import ScoredParser, TokenLogprob
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
        steering: Steering,
        should_stop: Callable[[], bool],
        metrics: Metrics,
        watch: Stopwatch,
        scored: ScoredParser | None = None,
        is_hosted: Callable[[str], bool] | None = None,
    ) -> None:
        """``should_stop`` tells whether the run is to end as soon as no item is open, unless a call has been made;
        ``steering`` says when to ask. ``is_hosted`` tells the names of calls that the server runs itself, if it runs
        any. ``scored`` is ``parser`` once more if the turn wants log probabilities; nothing else asks for them."""
        self.cut = False
        self.is_steered = False
        """Whether ``should_stop`` ended the run."""
        self.has_ended = False
        """Whether the last batch was taken: ``next`` has nothing more to wait for."""
        self.tokens = 0
        """Ids taken so far."""
        self.behind: list[array[int]] = []
        """What was sampled behind each call that the server runs, up to the next one: it is not in the buffer, since
        the call's output comes first, and at the end of the run the engine has forgotten it."""
        self._is_hosted = is_hosted
        self._start = parser.position
        self._calls = len(parser.calls)
        self._sequence = sequence
        self._buffer = buffer
        self._parser = parser
        self._scored = scored
        self._params = params
        self._budget = budget
        self._single_call = single_call
        self._steering = steering
        self._should_stop = should_stop
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
        may_stop = self._steering.is_supported and self._is_at_boundary
        batch = await (self._next_or_stop() if may_stop else self._sequence.next(self._next_params()))
        self._watch.begin("emit")
        if batch is None:
            self.has_ended = self.is_steered = True
            await self._end(0)
            return (self._scored or self._parser).finish()
        deltas, taken = self._take(batch.ids, _scores(batch) if self._scored is not None else ())
        self._keep(batch.ids[:taken])
        self.tokens += taken
        self._metrics.tokens_sampled += taken
        if taken < len(batch.ids) or batch.finished or self._is_done:
            self.has_ended = True
            await self._end(len(batch.ids) - taken)
            deltas += (self._scored or self._parser).finish()
        return deltas

    async def _next_or_stop(self) -> Batch | None:
        """The next batch where no item is open; None if the run is to stop before it comes."""
        if self._should_stop():
            return None
        with trio.CancelScope() as scope:
            self._steering.on_queued = lambda: scope.cancel() if self._should_stop() else None
            try:
                return await self._sequence.next(self._next_params())
            finally:
                self._steering.on_queued = None
        return None

    def _next_params(self) -> SamplingParams:
        if self._budget is None:
            return self._params
        return msgspec.structs.replace(self._params, max_tokens=self._budget - self.tokens)

    def _take(self, ids: Ids[int], scores: Ids[TokenLogprob]) -> tuple[list[Delta], int]:
        """Parse what the limits leave of a batch: its deltas, and how many ids they used."""
        room = len(ids) if self._budget is None else min(len(ids), self._budget - self.tokens)
        self.cut = room < len(ids)
        stops = self._should_stop()
        if not self._single_call and not stops:
            return self._parse(ids[:room], scores[:room]), room
        deltas: list[Delta] = []
        for index in range(room):
            if stops and self._is_at_boundary:
                self.cut, self.is_steered = False, True
                return deltas, index
            fresh = self._parse(ids[index : index + 1], scores[index : index + 1])
            deltas += fresh
            if not self._ends_call(fresh):
                continue
            stops = False  # its output comes first
            if self._single_call:
                self.cut = False
                self._is_done = True
                return deltas, index + 1
        return deltas, room

    @property
    def _is_at_boundary(self) -> bool:
        """Whether all items that the client knows of are whole."""
        return self._parser.between_items or self._parser.unshown > 0

    def _parse(self, ids: Ids[int], scores: Ids[TokenLogprob]) -> list[Delta]:
        return self._parser.feed(ids) if self._scored is None else self._scored.feed(ids, scores)

    def _ends_call(self, deltas: list[Delta]) -> bool:
        """Whether the first call is whole: with ``parallel_tool_calls:false`` the run ends there."""
        for delta in deltas:
            if isinstance(delta, ItemBegan):
                self._in_call = delta.kind in ("function_call", "custom_tool_call")
            elif isinstance(delta, ItemEnded) and self._in_call:
                return True
        return False

    def _keep(self, ids: Ids[int]) -> None:
        """Let the buffer have what the client has been told of, up to the end of the first call that the server runs;
        what comes behind that stays here."""
        if self._is_hosted is None or len(self._parser.calls) == self._calls:  # nearly always
            self._keep_piece(ids, self._parser.unshown)
            return
        start = self._start + self.tokens
        calls, self._calls = self._parser.calls[self._calls :], len(self._parser.calls)
        done = 0
        for end in [end - start for name, end in calls if self._is_hosted(name)]:
            self._keep_piece(ids[done:end], 0)
            self.behind.append(array("I"))
            done = end
        self._keep_piece(ids[done:], self._parser.unshown)

    def _keep_piece(self, ids: Ids[int], unshown: int) -> None:
        if self.behind:
            self.behind[-1].extend(ids)
            return
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
        unshown = self._parser.unshown if self.behind else 0
        if unshown:
            del self.behind[-1][-unshown:]
        held = sum(map(len, self.behind))
        surplus += len(self._unshown) + unshown + held
        if surplus:
            self._watch.begin("sample")
            await self._sequence.discard(surplus)
            self._watch.begin("emit")
        if self._parser.between_items:
            return
        last = next((ids[-1] for ids in reversed(self.behind) if ids), self._buffer.last)
        if last not in (None, Special.END, Special.STOP):
            (self.behind[-1] if self.behind else self._buffer).extend([Special.END])


def _scores(batch: Batch) -> Ids[TokenLogprob]:
    """The log probabilities of a batch. Raises ``ModelFault`` if the engine did not give one for each id."""
    scores = batch.logprobs or ()
    if len(scores) != len(batch.ids):
        raise ModelFault(f"The engine gave {len(scores)} log probabilities for {len(batch.ids)} tokens.")
    return scores
