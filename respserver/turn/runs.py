"""The engine run that hangs on a context, opaque to ``protocol/`` and a ``Sequence`` here; and how it ends."""

from __future__ import annotations

from collections import deque
from typing import cast

import trio

from respserver.engines.base import Sequence
from respserver.errors import ModelFault
from respserver.logger import get_logger
from respserver.protocol.chain import Context

log = get_logger("respserver.turn")


def run_of(context: Context) -> Sequence:
    """The context's open run."""
    return cast(Sequence, context.sequence)  # ``protocol/`` types it as an object


async def fork_run(source: Context, copy: Context, closer: RunCloser) -> None:
    """Give a copied context an engine run of its own that knows what the source's knows, so that nothing has to be
    read again. If the source goes its own way meanwhile, or its engine cannot, the copy is left without."""
    run = source.sequence
    if run is None:  # it has none, or a turn that goes on from the source has it (``Context.move``)
        return
    try:
        forked = await run_of(source).fork()
    except Exception as error:
        if source.sequence is run and not isinstance(error, ModelFault):  # else its lane has closed or moved it
            raise
        return
    copy.sequence = forked
    if source.sequence is run:
        copy.head_key, copy.head_tokens = source.head_key, source.head_tokens
        copy.buffer.seen = source.buffer.seen
    else:
        closer.close_soon(copy)


class RunCloser:
    """Closes engine runs behind the turns: an engine may take its time, and nobody's answer waits for that.

    ``seconds`` is how long one may take. A close that fails is logged and hurts nobody.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: deque[Sequence] = deque()
        self._more = trio.Event()

    def close_soon(self, context: Context) -> None:
        """Take a context's run from it, if it has one, and close it; returns at once."""
        if context.sequence is not None:
            self._waiting.append(run_of(context))
            context.sequence = None
            self._more.set()

    async def run(self) -> None:
        """Close what comes, several at a time, until cancelled; closes that have begun may end in their time."""
        async with trio.open_nursery() as nursery:
            while True:
                while self._waiting:
                    nursery.start_soon(self._close, self._waiting.popleft())
                self._more = trio.Event()
                await self._more.wait()

    async def finish(self) -> None:
        """Close what is left, when ``run`` has ended."""
        async with trio.open_nursery() as nursery:
            while self._waiting:
                nursery.start_soon(self._close, self._waiting.popleft())

    async def _close(self, sequence: Sequence) -> None:
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self._seconds
            try:
                await sequence.aclose()
            except Exception:
                log.exception("run_close_failed")
