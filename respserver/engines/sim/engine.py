"""``Sim``, the embedded model: an engine without weights that speaks the tokens of the bundled tokenizer.

A run is decided at once (``plan.py``) and then played out here, by its schedule (``pace.py``). Ids become part of the
context in the moment in which they are returned, after the last ``await``: a cancelled run leaves no half batch behind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Ids

import msgspec
import trio

from respserver.engines.base import Batch, SamplingParams
from respserver.engines.sim.context import Context
from respserver.engines.sim.pace import TICK, Pace, Schedule
from respserver.engines.sim.plan import Plan, Planner, ScriptReader
from respserver.engines.sim.script import Script
from respserver.errors import ModelFault
from respserver.tokens.logprobs import TokenLogprob
from respserver.tokens.render import Template
from respserver.tokens.roles import role_table

BATCH = 64
"""Most ids in a batch of an unpaced run: one checkpoint each, so that a long answer does not hold up the others."""


class Sim:
    """The default engine. It plays ``script``; without one it rehearses, or only answers if ``rehearse`` is off.

    ``tps`` is tokens a second (0: at once), ``ttft`` seconds to the first token, ``jitter`` the share of a token's time
    by which it may be late (0 to 1). ``script``, ``rehearse`` and ``pace`` may be replaced at any time; runs that have
    begun go on as they began. The other attributes count what happened since the start. Raises ``ValueError`` for a
    number that is negative or not finite.
    """

    name = "sim"
    gives_logprobs = True

    def __init__(
        self,
        template: Template,
        *,
        script: Script | None = None,
        rehearse: bool = True,
        tps: float = 0.0,
        ttft: float = 0.0,
        jitter: float = 0.0,
    ) -> None:
        self.script = script
        self.rehearse = rehearse
        self.pace = Pace(tps=tps, ttft=ttft, jitter=jitter)
        self.sequences_open = 0
        self.extends = 0
        self.extended_tokens = 0
        self.sampled_tokens = 0
        self.runs = 0
        self._template = template
        self._roles = role_table(template.tokenise)
        self._planner = Planner(template)

    async def open(self) -> SimSequence:
        """Start an empty sequence."""
        await trio.lowlevel.checkpoint()
        return SimSequence(self, Context(self._template, self._roles), None)

    async def aclose(self) -> None:
        """Nothing is held beside the sequences."""
        await trio.lowlevel.checkpoint()

    def plan(self, context: Context, reader: ScriptReader | None, params: SamplingParams) -> Plan:
        """Decide a run and count it. Raises ``ModelFault``."""
        self.runs += 1
        return self._planner.plan(context, reader, params, self.rehearse)


class SimSequence:
    """One context of ``Sim`` and the run that is being played, if any."""

    def __init__(self, engine: Sim, context: Context, reader: ScriptReader | None) -> None:
        self._engine = engine
        self._context = context
        self._reader = reader
        self._run: _Run | None = None
        self._sampled = 0
        """Ids since the last extend that came from sampling: those that may be discarded."""
        self._closed = False
        engine.sequences_open += 1

    async def extend(self, ids: Ids[int]) -> None:
        """Append context; a run that was stopped early is over."""
        self._check_open()
        await trio.lowlevel.checkpoint_if_cancelled()
        self._end_run()
        self._context.extend(ids)
        self._engine.extends += 1
        self._engine.extended_tokens += len(ids)

    async def next(self, params: SamplingParams) -> Batch:
        """The ids that are due, after waiting for the first of them. The first call after an extend decides the whole
        run. Raises ``ModelFault`` where the script says so, or if the script has nothing to say."""
        self._check_open()
        if self._run is None:
            self._run = self._begin(params)
        try:
            batch = await self._run.next(params.max_tokens)
        except ModelFault:
            self._run = None
            raise
        if batch.finished:
            self._run = None
        self._context.extend(batch.ids)
        self._sampled += len(batch.ids)
        self._engine.sampled_tokens += len(batch.ids)
        if params.top_logprobs is not None:
            return msgspec.structs.replace(batch, logprobs=_certain(batch.ids, params.top_logprobs))
        return batch

    async def discard(self, count: int) -> None:
        """Forget the last ``count`` sampled ids and end the run. Raises ``ValueError`` if fewer were sampled."""
        self._check_open()
        if not 0 <= count <= self._sampled:
            raise ValueError(f"{self._sampled} ids were sampled since the last extend, {count} cannot be discarded")
        self._context.forget(count)
        self._end_run()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def fork(self) -> SimSequence:
        """A second sequence with the same ids; a run that is being played stays with the first."""
        self._check_open()
        await trio.lowlevel.checkpoint_if_cancelled()
        reader = self._reader.copy() if self._reader is not None else None
        return SimSequence(self._engine, self._context.copy(), reader)

    async def aclose(self) -> None:
        """Drop the context. Never waits, so that it works in a cancelled scope."""
        if not self._closed:
            self._closed = True
            self._run = None
            self._engine.sequences_open -= 1

    def _begin(self, params: SamplingParams) -> _Run:
        script = self._engine.script
        if script is None or self._reader is None or self._reader.script is not script:
            self._reader = ScriptReader(script) if script is not None else None
        self._sampled = 0
        plan = self._engine.plan(self._context, self._reader, params)
        pace = self._engine.pace
        if plan.tps is not None or plan.ttft is not None:
            pace = Pace(
                tps=pace.tps if plan.tps is None else plan.tps,
                ttft=pace.ttft if plan.ttft is None else plan.ttft,
                jitter=pace.jitter,
            )
        return _Run(plan, pace, seed=len(self._context.ids))

    def _end_run(self) -> None:
        self._run = None
        self._sampled = 0

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("the sequence is closed")


def _certain(ids: Ids[int], most: int) -> list[TokenLogprob]:
    """The truth about a model that plays what was decided: it could have said nothing else."""
    return [TokenLogprob(0.0, ((token, 0.0),) if most else ()) for token in ids]


class _Run:
    """Plays a plan: hands out its ids as they fall due, and breaks where the plan says so."""

    def __init__(self, plan: Plan, pace: Pace, seed: int) -> None:
        self._plan = plan
        self._is_paced = pace.tps > 0
        self._schedule = Schedule(pace, trio.current_time(), seed)
        self._at = 0
        self._delays = 0
        self._not_before = -math.inf

    async def next(self, limit: int | None) -> Batch:
        """What is due next: at most ``limit`` ids, at least one unless the run ends here. Raises ``ModelFault``."""
        stop = self._next_stop()
        if limit is not None:
            stop = min(stop, self._at + max(1, limit))
        now = await self._wait()
        if stop == self._at:
            return self._end()
        start, self._at = self._at, min(stop, self._reached(now, stop))
        if self._is_paced:
            self._not_before = now + TICK
        return Batch(ids=self._plan.ids[start : self._at], finished=self._is_over())

    def _next_stop(self) -> int:
        """Take the silences that stand here into the schedule; the place of the next one, of the fault, or the end."""
        delays = self._plan.delays
        while self._delays < len(delays) and delays[self._delays][0] <= self._at:
            self._schedule.shift(delays[self._delays][1])
            self._delays += 1
        stops = [len(self._plan.ids)]
        if self._delays < len(delays):
            stops.append(delays[self._delays][0])
        if self._plan.fault is not None:
            stops.append(self._plan.fault[0])
        return min(stops)

    async def _wait(self) -> float:
        """Sleep until the next id is due, always with a checkpoint; the time then."""
        due = max(self._schedule.due(self._at), self._not_before)
        if due > trio.current_time():
            await trio.sleep_until(due)
        else:
            await trio.lowlevel.checkpoint()
        return trio.current_time()

    def _reached(self, now: float, stop: int) -> int:
        if not self._is_paced:
            return self._at + BATCH
        return max(self._schedule.due_count(now, stop), self._at + 1)

    def _is_over(self) -> bool:
        return self._at == len(self._plan.ids) and self._plan.fault is None and self._delays == len(self._plan.delays)

    def _end(self) -> Batch:
        if self._plan.fault is not None:
            fault = self._plan.fault[1]
            raise ModelFault(fault.message, fault.code)
        return Batch(ids=[], finished=True)
