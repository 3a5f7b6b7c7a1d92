"""The command with a stand-in for the server: what the tests of ``cli``, ``announce`` and ``signals`` share."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import structlog
import trio

from respserver import cli
from respserver.config import Config
from respserver.signals import Reloadable

ROOT = Path(__file__).parents[2]
FOREIGN = ("hypercorn.access", "hypercorn.error", "quart.app")
"""Loggers of libraries that bring handlers of their own."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What ``server.Address`` tells."""

    host: str = "127.0.0.1"
    is_everywhere: bool = False
    port: int = 40123
    base_url: str = "http://127.0.0.1:40123/v1"
    ws_url: str = "ws://127.0.0.1:40123/v1/responses"


class FakeServe:
    """Stands in for ``server.serve``: announces an address, does what it is told, and waits for ``stop``."""

    def __init__(self, then: Callable[[trio.Event], Awaitable[None]] | None = None, *, fails: Exception | None = None):
        self.config: Config | None = None
        self.ended: str | None = None
        self.reloads: list[Config] = []
        self.refuses: Exception | None = None
        self._then = then
        self._fails = fails

    async def __call__(
        self,
        config: Config,
        *,
        on_ready: Callable[[Address], None],
        stop: trio.Event,
        on_made: Callable[[Reloadable], None],
    ) -> None:
        self.config = config
        if self._fails is not None:
            raise self._fails
        on_made(self)
        on_ready(Address())
        try:
            if self._then is not None:
                await self._then(stop)
            self.ended = "in order"
        except trio.Cancelled:
            self.ended = "at once"
            raise

    def reload(self, config: Config) -> None:
        """Keep it, or fail as told: ``refuses`` is what stands in ``Server.reload``'s way."""
        if self.refuses is not None:
            raise self.refuses
        self.reloads.append(config)


def run(*argv: str, serve: FakeServe | None = None) -> int:
    """The exit code of the command; logging is left as it was."""
    with logging_as_before():
        return cli.main(argv, serve or FakeServe())


@contextlib.contextmanager
def logging_as_before() -> Iterator[None]:
    """Undo what ``log.configure`` did to the process."""
    loggers = [logging.getLogger(name) for name in ("", "respserver", *FOREIGN)]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    try:
        yield
    finally:
        structlog.reset_defaults()
        for logger, handlers, level, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
