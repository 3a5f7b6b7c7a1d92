"""An engine that writes down what the model is given: the context, in words, at each sampling run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence as Ids

import trio

from respserver.engines.base import Batch, SamplingParams
from respserver.engines.sim import Script, Sim
from respserver.engines.sim.engine import SimSequence
from respserver.schema.tools import parse_tools
from respserver.services import bundled_template
from respserver.tokens.roles import OUTPUT_ROLES
from respserver.tokens.special import SPECIAL_COUNT, Special

TEMPLATE = bundled_template()
_NO_ARGUMENTS = re.compile(r"call \S+: ")
_WORDS = {Special.SEP: ": ", Special.CALL: "call ", Special.CUSTOM: "custom ", Special.THINK: "think: "}


class Spy(Sim):
    """The sim, with eyes: ``contexts`` has one text per sampling run, ``context_ids`` the same as ids, ``given`` the
    ids of each extend.

    While ``gate`` holds an event that is not set, the model is silent: it neither reads nor speaks. ``held`` does the
    same for the contexts in which a text stands.
    """

    def __init__(self, script: Script | None = None, **options: float) -> None:
        super().__init__(TEMPLATE, script=script, **options)
        self.contexts: list[str] = []
        self.context_ids: list[list[int]] = []
        self.given: list[list[int]] = []
        self.closed = 0
        self.gate: trio.Event | None = None
        self.held: dict[str, trio.Event] = {}

    def hold(self, *texts: str) -> None:
        """Be silent about each of these until it is let go."""
        self.held.update((text, trio.Event()) for text in texts)

    def let_go(self, text: str) -> None:
        """Go on where this text stands."""
        self.held.pop(text).set()

    async def pass_gate(self, ids: list[int]) -> None:
        """Wait as long as the model is silent."""
        if self.gate is not None:
            await self.gate.wait()
        for gate in [gate for text, gate in self.held.items() if text in in_words(ids)]:
            await gate.wait()

    async def open(self) -> SpySequence:
        return SpySequence(self, await super().open())


class SpySequence:
    def __init__(self, spy: Spy, inner: SimSequence) -> None:
        self._spy = spy
        self._inner = inner
        self._ids: list[int] = []
        self._running = False
        self._closed = False

    async def extend(self, ids: Ids[int]) -> None:
        self._spy.given.append(list(ids))
        self._ids += ids
        self._running = False
        await self._spy.pass_gate(self._ids)
        await self._inner.extend(ids)

    async def next(self, params: SamplingParams) -> Batch:
        if not self._running:
            self._running = True
            self._spy.contexts.append(in_words(self._ids))
            self._spy.context_ids.append(list(self._ids))
        await self._spy.pass_gate(self._ids)
        batch = await self._inner.next(params)
        self._ids += batch.ids
        return batch

    async def discard(self, count: int) -> None:
        del self._ids[len(self._ids) - count :]
        await self._inner.discard(count)

    async def fork(self) -> SpySequence:
        copy = SpySequence(self._spy, await self._inner.fork())
        copy._ids = list(self._ids)
        return copy

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._spy.closed += 1
        await self._inner.aclose()


def in_words(ids: list[int]) -> str:
    """A context as lines: ``user: hi``, ``call name: {…}``, ``tool name: output`` (or ``hosted``), ``tools: names``.

    A function call without arguments reads ``{}``, which the template leaves out.
    """
    lines: list[str] = []
    for is_text, group in itertools.groupby(ids, lambda token: token >= SPECIAL_COUNT):
        if is_text:
            lines[-1] += TEMPLATE.tokenizer.decode(list(group))
            continue
        for token in group:
            if token == Special.START:
                lines.append("")
            elif token in _WORDS:
                line, word = lines[-1], _WORDS[Special(token)]
                if token in (Special.CALL, Special.CUSTOM):
                    lines[-1] = f"{line} " if line in OUTPUT_ROLES else word
                else:
                    lines[-1] = line + word
            elif token not in (Special.END, Special.REFUSAL, Special.STOP):
                lines[-1] += TEMPLATE.tokenizer.decode([token])
    return "\n".join(_short_tools(f"{line}{{}}" if _NO_ARGUMENTS.fullmatch(line) else line) for line in lines)


def _short_tools(line: str) -> str:
    if not line.startswith("tools: "):
        return line
    return "tools: " + ", ".join(parse_tools(line.removeprefix("tools: ").encode()).by_name)
