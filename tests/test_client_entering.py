"""How rollouts are entered and left: as a context manager, by plain iteration in a client's block, early, never."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from respserver.client import Client, ConnectionLost, event_type
from respserver.config import Mode
from respserver.engines.sim import Script, call, delay
from respserver.errors import ConfigError
from tests.support.client_servers import collect
from tests.support.talk import settled

TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "http"])
SCRIPT = Script.of(call("look"), "done")
SLOW = Script.of(["one moment", delay(1000)])


async def look(_: dict[str, Any]) -> str:
    return "seen"


def options(transport: str = "websocket") -> dict[str, Any]:
    return {"model": "sim", "tools": {"look": look}, "transport": transport}


async def until(server: Any, turns: int) -> None:
    """So many turns have begun, and all that can be done is done."""
    with trio.fail_after(5):
        while server.metrics.turns < turns:
            await settled()
    await settled()


@TRANSPORTS
async def test_a_rollout_is_iterated_in_a_clients_block(serve: Any, transport: str) -> None:
    server = await serve(SCRIPT)
    async with Client(server.base_url) as client:
        kinds = [event_type(event) async for event in client.rollout("go", **options(transport))]
        assert kinds.count("response.completed") == 2
        assert not client._roads  # at its end it has closed what it had opened
    assert server.metrics.turns == 2


@TRANSPORTS
async def test_a_rollout_may_be_entered_itself_and_then_the_client_need_not(serve: Any, transport: str) -> None:
    server = await serve(SCRIPT)
    client = Client(server.base_url)
    async with client.rollout("go", **options(transport)) as rollout:
        kinds = [event_type(event) async for event in rollout]
    assert kinds.count("response.completed") == 2
    await client.aclose()


async def test_a_socket_needs_a_block_to_live_in(serve: Any) -> None:
    server = await serve(SCRIPT)
    rollout = Client(server.base_url).rollout("go", **options())
    with pytest.raises(RuntimeError, match="enter the client or the rollout"):
        await anext(rollout)
    assert server.metrics.turns == 0


@TRANSPORTS
@pytest.mark.parametrize("entered", [True, False], ids=["entered", "plain"])
async def test_a_rollout_that_is_left_early_ends_with_its_block_and_its_turn_with_it(
    serve: Any, transport: str, entered: bool
) -> None:
    server = await serve(SLOW)
    async with Client(server.base_url) as client:
        if entered:
            async with client.rollout("go", **options(transport)) as rollout:
                async for event in rollout:
                    if event_type(event) == "response.output_text.delta":
                        break
            assert not client._roads
        else:
            async for event in client.rollout("go", **options(transport)):
                if event_type(event) == "response.output_text.delta":
                    break
            assert len(client._roads) == 1
    with trio.fail_after(5):
        while not server.turns():
            await settled()
    assert server.turns()[-1].status == "cancelled"


@TRANSPORTS
async def test_a_rollout_that_was_closed_gives_nothing_more(serve: Any, transport: str) -> None:
    server = await serve(SCRIPT)
    async with Client(server.base_url) as client:
        rollout = client.rollout("go", **options(transport))
        await anext(rollout)
        await rollout.aclose()
        await rollout.aclose()
        assert await collect(rollout) == []


@TRANSPORTS
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_a_rollout_may_be_closed_by_another_task(serve: Any, transport: str, where: str) -> None:
    """Its tools finish, and nothing is sent for them."""
    server = await serve(SLOW if where == "model" else SCRIPT)
    closed = trio.Event()

    async def wait(_: dict[str, Any]) -> str:
        await closed.wait()
        return "seen"

    async def iterate() -> None:
        with suppress(ConnectionLost):
            await collect(rollout)

    async with Client(server.base_url) as client, trio.open_nursery() as nursery:
        rollout = client.rollout("go", **{**options(transport), "tools": {"look": wait}})
        nursery.start_soon(iterate)
        await until(server, turns=1)
        await rollout.aclose()
        closed.set()
    assert not client._roads
    assert server.metrics.turns == 1


@TRANSPORTS
async def test_a_step_that_was_cancelled_may_be_waited_for_again(serve: Any, transport: str, mock_clock: Any) -> None:
    server = await serve(Script.of([delay(10), "late"]))
    async with Client(server.base_url) as client:
        rollout = client.rollout("go", **options(transport))
        for _ in range(3):  # created, in_progress, and nothing
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(anext, rollout)
                    await settled()
                    scope.cancel()
        mock_clock.jump(11)
        assert event_type((await collect(rollout))[-1]) == "response.completed"


@pytest.mark.parametrize("mode", list(Mode))
async def test_rollouts_of_one_client_run_side_by_side(serve: Any, mode: Mode) -> None:
    server = await serve(SCRIPT, mode=mode)
    ends: list[str] = []

    async def drive(transport: str) -> None:
        ends.append(event_type((await collect(client.rollout("go", **options(transport))))[-1]))

    async with Client(server.base_url) as client, trio.open_nursery() as nursery:
        for transport in ["websocket", "http"] * 3:
            nursery.start_soon(drive, transport)
    assert ends == ["response.completed"] * 6


async def test_an_exception_in_a_clients_block_comes_out_as_it_is(serve: Any) -> None:
    server = await serve(SCRIPT)
    with pytest.raises(LookupError):  # noqa: PT012 - of the loop inside the block
        async with Client(server.base_url) as client:
            async for _ in client.rollout("go", **options()):
                raise LookupError
    with pytest.raises(LookupError):  # noqa: PT012 - as above
        async with Client(server.base_url).rollout("go", **options()) as rollout:
            async for _ in rollout:
                raise LookupError


async def test_a_server_that_is_not_there_is_told_on_entering_and_at_the_first_step() -> None:
    client = Client("http://127.0.0.1:9/v1")
    with pytest.raises(ConnectionLost):
        async with client.rollout("go", **options()):
            pass
    for transport in ("websocket", "http"):
        async with client:
            with pytest.raises(ConnectionLost):
                await anext(client.rollout("go", **options(transport)))


def test_another_transport_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="transport: expected 'websocket' or 'http', got 'sse'"):
        Client("http://127.0.0.1:9/v1").rollout("go", **options("sse"))
