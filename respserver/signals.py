"""Serving until the process is told to stop: what SIGTERM, Ctrl-C and SIGHUP do to the command's server.

The server knows nothing of signals; it is given an event. Only the command uses this file: whoever embeds the server
keeps their own signal handling.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import trio

from respserver.config import Config
from respserver.errors import ConfigError
from respserver.logger import get_logger

if TYPE_CHECKING:
    from respserver.server import Address

log = get_logger("respserver.cli")

HINT_SECONDS = 0.5
"""How long an end may take before whoever pressed Ctrl-C is told what it waits for, and how not to."""

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""Windows has none."""


class Reloadable(Protocol):
    """What a running ``respserver.server.Server`` is to the command."""

    def reload(self, config: Config) -> None:
        """Take new settings while serving. Raises ``ConfigError``, and then nothing has changed."""
        ...


class Serve(Protocol):
    """What ``respserver.server.serve`` is to the command."""

    async def __call__(
        self,
        config: Config,
        *,
        on_ready: Callable[[Address], None],
        stop: trio.Event,
        on_made: Callable[[Reloadable], None],
    ) -> None:
        """Serve until ``stop`` is set and all has ended in order. Raises ``OSError`` if it cannot listen."""
        ...


def run_until_signal(
    serve: Serve, config: Config, on_ready: Callable[[Address], None], load: Callable[[], Config]
) -> None:
    """Run a server in a Trio loop; the first SIGINT or SIGTERM ends it in order, a SIGINT after that at once.

    A SIGHUP has it take the settings that ``load`` reads then.

    Returns when the server has ended, also when it was cut off. Raises what the server raises, outside of groups.
    """
    hangups = _Hangups(load)
    with hangups.held():
        trio.run(_serve, serve, config, on_ready, hangups)


async def _serve(serve: Serve, config: Config, on_ready: Callable[[Address], None], hangups: _Hangups) -> None:
    stop = trio.Event()
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(_obey_signals, stop, nursery, config.limits.grace_seconds)
        if HANGUP is not None:
            await nursery.start(hangups.obey, HANGUP, stop)
        try:
            await serve(config, on_ready=on_ready, stop=stop, on_made=hangups.serve)
        except Exception as error:  # noqa: BLE001 - raised below, out of reach of the nursery's exception group
            failure = _alone(error)
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _obey_signals(
    stop: trio.Event, nursery: trio.Nursery, grace: float, task_status: trio.TaskStatus[None]
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            if not stop.is_set():
                log.info("stopping", signal=name, grace_seconds=grace)
                stop.set()
                if number == signal.SIGINT:
                    nursery.start_soon(_say_what_takes_long, grace)
            elif number == signal.SIGINT:
                log.warning("stopping at once", signal=name)
                nursery.cancel_scope.cancel()
                return  # a third one does what it does everywhere


async def _say_what_takes_long(grace: float) -> None:
    await trio.sleep(HINT_SECONDS)
    # A warning: at that level, too, somebody who waits at the terminal wants to know.
    log.warning(f"running turns get {grace:g} seconds to end; a second Ctrl-C stops at once")


class _Hangups:
    """What SIGHUP does: by custom a server reads its settings again; but it is also what a terminal sends that closes,
    and a server in a window should not outlive it unseen (unless ``nohup``, which ignores the signal, says so)."""

    def __init__(self, load: Callable[[], Config]) -> None:
        self._load = load
        self._server: Reloadable | None = None
        self._terminal_counts = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For the length of a Trio run, what nothing listens for is ignored.

        Trio hands signals that came too late to whoever had them before: by default that would end the process in the
        middle of its own end, and a terminal that closes often tells it twice.
        """
        if HANGUP is None:
            yield
            return
        before = signal.signal(HANGUP, signal.SIG_IGN)
        self._terminal_counts = before is not signal.SIG_IGN and _has_terminal()
        try:
            yield
        finally:
            signal.signal(HANGUP, before)

    def serve(self, server: Reloadable) -> None:
        """This is the server to reload."""
        self._server = server

    async def obey(self, number: signal.Signals, stop: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled; ``stop`` is set when the terminal closes."""
        with trio.open_signal_receiver(number) as hangups:
            task_status.started()
            async for _ in hangups:
                if stop.is_set():
                    continue
                if self._terminal_counts and not _has_terminal():
                    log.info("stopping", signal=number.name)
                    stop.set()
                elif self._server is not None:  # it is made before anything is awaited
                    await self._reload(self._server)

    async def _reload(self, server: Reloadable) -> None:
        try:
            # In a thread, so that files do not hold up running turns; left behind there if the server ends.
            config = await trio.to_thread.run_sync(self._load, abandon_on_cancel=True)
            server.reload(config)
        except ConfigError as error:
            log.error("reload_failed", setting=error.option, problem=error.problem)
        except Exception:  # whatever is wrong with new settings, the old ones go on serving
            log.exception("reload_failed")


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return True
    except OSError:
        return False


def _alone(error: Exception) -> Exception:
    """The one error inside nested groups of one, which nurseries make of it on its way up."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
