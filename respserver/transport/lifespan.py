"""An ASGI app's lifespan around a block: its start-up hooks before, its shutdown hooks after.

Our own few lines of the public protocol, so that a hook that fails stops the start for certain. No HTTP here.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import trio

from respserver.errors import RespserverError

AsgiApp: TypeAlias = Callable[..., Awaitable[None]]
Message: TypeAlias = dict[str, Any]  # Any: ASGI messages and scopes are open dictionaries

SHUTDOWN_SECONDS = 10.0
"""How long the shutdown hooks may take."""


class LifespanFailed(RespserverError):
    """A start-up hook of the app failed; the message is the app's."""


@contextlib.asynccontextmanager
async def lifespan(app: AsgiApp, state: Message) -> AsyncIterator[None]:
    """Run the app's hooks around the block; ``state`` is the lifespan's, for the scopes of requests.

    Raises ``LifespanFailed`` (in an exception group) instead of entering the block.
    """
    to_app, app_receives = trio.open_memory_channel[Message](1)
    app_sends, from_app = trio.open_memory_channel[Message](1)
    app_scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}

    life = trio.CancelScope(shield=True)  # so that a cancelled block still gets its shutdown hooks

    async def live() -> None:
        with life, app_receives, app_sends:
            await app(app_scope, app_receives.receive, app_sends.send)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        try:
            await _start_up(to_app, from_app)
            try:
                yield
            finally:
                with trio.move_on_after(SHUTDOWN_SECONDS, shield=True):
                    await _shut_down(to_app, from_app)
        finally:
            life.cancel()


async def _start_up(to_app: trio.MemorySendChannel[Message], from_app: trio.MemoryReceiveChannel[Message]) -> None:
    try:
        await to_app.send({"type": "lifespan.startup"})
        answer = await from_app.receive()
    except (trio.BrokenResourceError, trio.EndOfChannel):
        raise LifespanFailed("the app ended during its start") from None
    if answer["type"] != "lifespan.startup.complete":
        raise LifespanFailed(answer.get("message", ""))


async def _shut_down(to_app: trio.MemorySendChannel[Message], from_app: trio.MemoryReceiveChannel[Message]) -> None:
    # The app may be gone by then: that is an end as well.
    with contextlib.suppress(trio.BrokenResourceError, trio.EndOfChannel):
        await to_app.send({"type": "lifespan.shutdown"})
        await from_app.receive()
