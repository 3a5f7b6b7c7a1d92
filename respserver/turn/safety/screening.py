"""Asks the classifiers of a server, those that must speak first and those that run beside rendering.

A turn without classifiers passes through here without a wait or a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import trio

from respserver.schema.items import InputItem
from respserver.turn.safety.base import PASS, Classifier, Verdict

WholeContext = Callable[[], Awaitable[Sequence[InputItem]]]
"""Loads the items of the chain, the new ones included; called only if a classifier reads them all."""


class Screening:
    """The configured classifiers.

    ``before`` and ``beside`` give the verdict so far merged with what was said now. They ask at the same time; the
    first block ends the rest, and its verdict comes back for the turn to act on (``Verdict.raise_if_blocked``). What a
    classifier raises ends the rest too and is raised, unless there is a block.
    """

    def __init__(self, classifiers: Iterable[Classifier] = ()) -> None:
        self._classifiers = tuple(classifiers)
        self.is_on = bool(self._classifiers)
        """Whether anybody is ever asked."""
        self._before = tuple(one for one in self._classifiers if one.when == "before")
        self._beside = tuple(one for one in self._classifiers if one.when == "beside")

    @property
    def needs_context(self) -> bool:
        """Whether any classifier reads the whole context."""
        return any(one.reads == "context" for one in self._classifiers)

    async def before(self, new_items: Sequence[InputItem], context: WholeContext, verdict: Verdict) -> Verdict:
        """Ask those that must speak before ``response.created``."""
        if not self._before:
            return verdict
        return await _ask(await _questions(self._before, new_items, context, verdict), verdict)

    async def beside(
        self,
        rendering: Callable[[], Awaitable[None]],
        new_items: Sequence[InputItem],
        context: WholeContext,
        verdict: Verdict,
    ) -> Verdict:
        """Run ``rendering`` and ask the others meanwhile. A block cancels the rendering; what that raises is raised."""
        if not self._beside:
            await rendering()
            return verdict

        async def ask() -> Verdict:
            return await _ask(await _questions(self._beside, new_items, context, verdict), verdict)

        async def render() -> Verdict:
            await rendering()
            return PASS

        return await _ask([ask, render], verdict)

    async def aclose(self) -> None:
        """Close the classifiers, at the end of the server."""
        for one in self._classifiers:
            await one.aclose()


_Question = Callable[[], Awaitable[Verdict]]


async def _questions(
    classifiers: Sequence[Classifier], new_items: Sequence[InputItem], context: WholeContext, verdict: Verdict
) -> list[_Question]:
    reads_all = any(one.reads == "context" for one in classifiers)
    all_items = await context() if reads_all else ()
    return [partial(one.screen, new_items if one.reads == "new" else all_items, verdict) for one in classifiers]


async def _ask(questions: Sequence[_Question], verdict: Verdict) -> Verdict:
    if len(questions) == 1:
        return verdict.merged(await questions[0]())
    hearing = _Hearing(verdict)
    async with trio.open_nursery() as nursery:
        for question in questions:
            nursery.start_soon(hearing.listen, question, nursery.cancel_scope)
    return hearing.outcome()


class _Hearing:
    """Several speak at once; the first block or fault is the last word."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._fault: Exception | None = None

    async def listen(self, question: _Question, scope: trio.CancelScope) -> None:
        try:
            said = await question()
        except Exception as error:  # noqa: BLE001 - raised by ``outcome``, bare and not as a group of one
            self._fault = self._fault or error
            scope.cancel()
            return
        self._verdict = self._verdict.merged(said)
        if said.blocks:
            scope.cancel()

    def outcome(self) -> Verdict:
        if self._fault is not None and not self._verdict.blocks:
            raise self._fault
        return self._verdict
