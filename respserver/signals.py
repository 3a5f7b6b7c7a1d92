"""Serving until the process is told to stop: what SIGTERM and Ctrl-C do to the command's server.

The server knows nothing of signals; it is given an event. Only the command uses this file: whoever embeds the server
keeps their own signal handling.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import trio

from respserver.config import Config
from respserver.logger import get_logger

if TYPE_CHECKING:
    from respserver.server import Address

log = get_logger("respserver.cli")


class Serve(Protocol):
    """What ``respserver.server.serve`` is to the command."""

    async def __call__(self, config: Config, *, on_ready: Callable[[Address], None], stop: trio.Event) -> None:
        """Serve until ``stop`` is set and all has ended in order. Raises ``OSError`` if it cannot listen."""
        ...


async def serve_until_signal(serve: Serve, config: Config, on_ready: Callable[[Address], None]) -> None:
    """Run a server; the first SIGINT or SIGTERM ends it in order, a SIGINT after that at once.

    Returns when the server has ended, also when it was cut off. Raises what the server raises, outside of groups.
    """
    stop = trio.Event()
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(_obey_signals, stop, nursery.cancel_scope)
        try:
            await serve(config, on_ready=on_ready, stop=stop)
        except Exception as error:  # noqa: BLE001 - raised below, out of reach of the nursery's exception group
            failure = _alone(error)
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _obey_signals(stop: trio.Event, scope: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            if not stop.is_set():
                log.info("stopping", signal=name)
                stop.set()
            elif number == signal.SIGINT:
                log.warning("stopping at once", signal=name)
                scope.cancel()
                return  # a third one does what it does everywhere


def _alone(error: Exception) -> Exception:
    """The one error inside nested groups of one, which nurseries make of it on its way up."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
