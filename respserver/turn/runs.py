"""The engine run that hangs on a context: opaque to ``protocol/``, a ``Sequence`` here."""

from __future__ import annotations

from typing import cast

import trio

from respserver.engines.base import Sequence
from respserver.logger import get_logger
from respserver.protocol.chain import Context

log = get_logger("respserver.turn")


def run_of(context: Context) -> Sequence:
    """The context's open run."""
    return cast(Sequence, context.sequence)  # ``protocol/`` types it as an object


async def close_run(context: Context, seconds: float) -> None:
    """Close a context's run if it has one, also while cancelled, within a deadline. No turn is hurt by a close that
    fails."""
    if context.sequence is None:
        return
    sequence = run_of(context)
    context.sequence = None
    with trio.CancelScope(shield=True) as scope:
        scope.deadline = trio.current_time() + seconds
        try:
            await sequence.aclose()
        except Exception:
            log.exception("run_close_failed")
