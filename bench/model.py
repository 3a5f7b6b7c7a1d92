"""The embedded model as benches want it: it tells its own CPU time, and under one name it never stops talking."""

from __future__ import annotations

import time
from collections.abc import Sequence as Ids

import trio

from bench.texts import tool_output
from respserver.engines.base import Batch, SamplingParams
from respserver.engines.sim import Script, Sim
from respserver.engines.sim.context import Context
from respserver.engines.sim.engine import BATCH, SimSequence
from respserver.engines.sim.plan import Plan, ScriptReader
from respserver.services import bundled_template
from respserver.tokens.special import Special

TALKER = "talker"
"""The model name whose turns have no end."""


class Model(Sim):
    """``Sim`` with a script, which counts what it spends on reading its context and on deciding what to say."""

    spent = 0.0

    def __init__(self, script: Script) -> None:
        template = bundled_template()
        super().__init__(template, script=script)
        begin = [Special.START, *template.tokenise(["assistant"]), Special.SEP]
        self.opening = [int(token) for token in begin]
        self.talk = template.tokenise([tool_output(8 * BATCH, seed=1)])[:BATCH]

    async def open(self) -> Run:  # type: ignore[override]  # it is a Sequence, which is all that is asked of it
        return Run(self, await super().open())

    def plan(self, context: Context, reader: ScriptReader | None, params: SamplingParams) -> Plan:
        began = time.thread_time()
        try:
            return super().plan(context, reader, params)
        finally:
            self.spent += time.thread_time() - began


class Run:
    """A run of ``Sim``. What it is given to read is counted; that does not wait for anything."""

    def __init__(self, model: Model, sequence: SimSequence) -> None:
        self._model = model
        self._sequence = sequence
        self._is_talking = False
        self.aclose = sequence.aclose
        self.discard = sequence.discard
        self.fork = sequence.fork

    async def extend(self, ids: Ids[int]) -> None:
        began = time.thread_time()
        await self._sequence.extend(ids)
        self._model.spent += time.thread_time() - began

    async def next(self, params: SamplingParams) -> Batch:
        if params.model == TALKER:
            return await self._talk()
        return await self._sequence.next(params)

    async def _talk(self) -> Batch:
        await trio.lowlevel.checkpoint()
        ids = self._model.talk if self._is_talking else self._model.opening
        self._is_talking = True
        return Batch(ids=ids)
