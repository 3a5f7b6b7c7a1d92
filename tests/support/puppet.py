"""A model that speaks only when it is told to, so that a test decides in which order turns go on."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence as Ids

import trio

from respserver.engines.base import Batch, SamplingParams
from respserver.errors import ModelFault
from respserver.services import bundled_template
from respserver.tokens.special import Special
from tests.support.lane_model import CUT, FAULTY, FREE, HELD
from tests.support.spy import in_words

TEMPLATE = bundled_template()
OPENING = [int(token) for token in (Special.START, *TEMPLATE.tokenise(["assistant"]), Special.SEP)]
CALL = [*OPENING[:-1], Special.CALL, *TEMPLATE.tokenise(["look"]), Special.SEP, *TEMPLATE.tokenise(["{}"]), Special.END]
CHATTER = 16
"""Words of a turn that has no end: as many tokens at least, so that ``max_output_tokens`` may cut it there."""


class Puppet:
    """A model that speaks when told to: turn number n calls it by the name ``n``. ``heard`` has each turn's context."""

    name = "sim"
    gives_logprobs = False

    def __init__(self) -> None:
        self.runs_open = 0
        self.heard: dict[int, list[str]] = {}
        self.kinds: dict[int, str] = {}
        self._orders: dict[int, trio.MemorySendChannel[str]] = {}
        self._taken: dict[int, trio.MemoryReceiveChannel[str]] = {}

    async def open(self) -> PuppetRun:
        await trio.lowlevel.checkpoint()
        return PuppetRun(self, [])

    async def aclose(self) -> None:
        pass

    def tell(self, number: int, order: str) -> None:
        """What a held turn does next: ``say``, ``end``, ``break`` or ``call``."""
        self._channel(number)
        self._orders[number].send_nowait(order)

    async def order(self, number: int) -> str:
        if self.kinds[number] != HELD:
            await trio.lowlevel.checkpoint()
            return {FREE: "end", FAULTY: "break", CUT: "chatter"}[self.kinds[number]]
        return await self._channel(number).receive()

    def _channel(self, number: int) -> trio.MemoryReceiveChannel[str]:
        if number not in self._taken:
            self._orders[number], self._taken[number] = trio.open_memory_channel[str](math.inf)
        return self._taken[number]


class PuppetRun:
    def __init__(self, puppet: Puppet, ids: list[int]) -> None:
        self._puppet = puppet
        self._ids = ids
        self._is_speaking = False
        self._is_closed = False
        puppet.runs_open += 1

    async def extend(self, ids: Ids[int]) -> None:
        await trio.lowlevel.checkpoint()
        self._ids += ids
        self._is_speaking = False

    async def next(self, params: SamplingParams) -> Batch:
        number = int(params.model)
        if not self._is_speaking:
            self._puppet.heard[number] = [
                found[0] for line in in_words(self._ids).split("\n") if (found := re.match(r"\w+: [qa]\d+", line))
            ]
        order = await self._puppet.order(number)
        if order == "break":
            raise ModelFault("The model broke.")
        if order == "call":
            ids = [*([Special.END] if self._is_speaking else []), *CALL]
            self._is_speaking = False
            self._ids += ids
            return Batch(ids=ids, finished=True)
        ids = [] if self._is_speaking else list(OPENING)
        if order != "end" or not self._is_speaking:
            ids += TEMPLATE.tokenise([f"a{number} " * (CHATTER if order == "chatter" else 1)])
        self._is_speaking = order != "end"
        ids += [Special.END] if order == "end" else []
        self._ids += ids
        return Batch(ids=ids, finished=order == "end")

    async def discard(self, count: int) -> None:
        await trio.lowlevel.checkpoint()
        del self._ids[len(self._ids) - count :]

    async def fork(self) -> PuppetRun:
        await trio.lowlevel.checkpoint()
        return PuppetRun(self._puppet, list(self._ids))

    async def aclose(self) -> None:
        self._puppet.runs_open -= not self._is_closed
        self._is_closed = True
