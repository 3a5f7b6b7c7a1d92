"""The lifespan: hooks around the block, a failing start, an app that is gone or slow at the end."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from respserver.transport.lifespan import SHUTDOWN_SECONDS, LifespanFailed, lifespan

# Any in this file: ASGI scopes and messages are open dictionaries.


async def test_the_block_runs_between_start_up_and_shutdown_and_sees_the_state() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["key"] = "value"
        for stage in ("lifespan.startup", "lifespan.shutdown"):
            assert (await receive())["type"] == stage
            seen.append(stage)
            await send({"type": f"{stage}.complete"})

    state: dict[str, Any] = {}
    async with lifespan(app, state):
        seen.append("block")
        assert state == {"key": "value"}
    assert seen == ["lifespan.startup", "block", "lifespan.shutdown"]


async def test_a_start_that_fails_never_enters_the_block() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no disk"})

    with pytest.raises(ExceptionGroup) as caught:
        async with lifespan(app, {}):
            raise AssertionError("the block was entered")
    assert caught.group_contains(LifespanFailed, match="no disk")
    assert not caught.group_contains(AssertionError)


async def test_an_app_that_raises_at_the_start_is_raised() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("a bug")

    with pytest.raises(ExceptionGroup) as caught:
        async with lifespan(app, {}):
            raise AssertionError("the block was entered")
    assert caught.group_contains(ValueError)


async def test_an_app_that_has_ended_by_itself_does_not_hold_up_the_end() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})

    async with lifespan(app, {}):
        await trio.testing.wait_all_tasks_blocked()


async def test_shutdown_hooks_that_hang_are_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await trio.sleep_forever()

    async with lifespan(app, {}):
        pass
    assert trio.current_time() == pytest.approx(SHUTDOWN_SECONDS)


async def test_shutdown_hooks_run_also_when_the_block_is_cancelled() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        seen.append((await receive())["type"])
        await send({"type": "lifespan.shutdown.complete"})

    with trio.CancelScope() as scope:
        async with lifespan(app, {}):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert seen == ["lifespan.shutdown"]
