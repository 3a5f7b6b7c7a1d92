"""Rollouts that outlive the loss of their connection, or of their server: the model sees what it would have seen."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing

from respserver.client import Client
from respserver.config import Config, Limits, Mode
from respserver.embed import open_server
from respserver.engines.sim import Script, call, custom, reasoning
from tests.support.client_servers import collect, listening
from tests.support.live import tool
from tests.support.losses import Weather
from tests.support.spy import Spy

STEPS = [
    [reasoning("Look."), call("weather", city="Oslo"), custom("weather", "raw")],
    call("weather"),
    "Sunny.",
]
TOOLS = [tool("weather"), {"type": "custom", "name": "weather"}]
KEY = "k" * 32
AGE = 60.0


async def play(url, weather):
    async with Client(url) as client:
        rollout = client.rollout("go", model="sim", tools={"weather": weather}, tool_definitions=TOOLS, store=False)
        return rollout, await collect(rollout)


@asynccontextmanager
async def relaying(server, on_stream):
    """A way to the server whose connections can be cut: ``on_stream`` is given the client's end of each."""

    async def pump(source, target):
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await target.send_all(data)
        await trio.aclose_forcefully(target)

    async def relay(stream):
        await on_stream(stream)
        behind = await trio.open_tcp_stream(server.address.host, server.address.port)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump, stream, behind)
            nursery.start_soon(pump, behind, stream)

    async with listening(relay) as url:
        yield url


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("loss", ["age limit", "cut"])
async def test_the_model_sees_the_same_context_as_if_nothing_had_been_lost(serve, mode, loss, mock_clock):
    """The socket is lost beside the second pause's tool, with calls, thoughts and outputs behind it."""
    spy = Spy(Script.of(*STEPS))
    server = await serve(engine=spy, mode=mode, limits={"connection_seconds": AGE})
    sockets = []

    async def lose():
        if weather.runs == 3 and loss == "age limit":
            mock_clock.jump(AGE + 1)
        elif weather.runs == 3:
            await trio.aclose_forcefully(sockets[0])
        await trio.testing.wait_all_tasks_blocked()

    async def keep(stream):
        sockets.append(stream)

    weather = Weather(lose)
    async with relaying(server, keep) as url:
        rollout, events = await play(url, weather)
    assert events[-1].response.output[-1].content[0].text == "Sunny."
    assert (weather.runs, rollout.renewals) == (3, 1)
    plain = Spy(Script.of(*STEPS))
    await play((await serve(engine=plain, mode=mode)).base_url, Weather())
    assert spy.context_ids == plain.context_ids


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Mode))
async def test_a_rollout_goes_on_at_the_server_that_comes_after_one_that_was_shut_down(mode):
    """Both have the key that seals thoughts, as servers behind one address must."""
    spies = [Spy(Script.of(*STEPS)), Spy(Script.of(*STEPS))]
    over, is_gone = trio.Event(), trio.Event()

    async def host(port, spy, task_status):
        config = Config(port=port, mode=mode, encryption_key=KEY, limits=Limits(grace_seconds=0.0))
        async with open_server(config, engine=spy) as server:
            task_status.started(server)
            await over.wait()
        is_gone.set()

    async def restart():
        nonlocal over
        if weather.runs == 3:
            over.set()
            await is_gone.wait()
            over = trio.Event()
            await nursery.start(host, server.address.port, spies[1])

    weather = Weather(restart)
    async with trio.open_nursery() as nursery:
        server = await nursery.start(host, 0, spies[0])
        _, events = await play(server.base_url, weather)
        over.set()
    assert events[-1].response.output[-1].content[0].text == "Sunny."
    assert weather.runs == 3
    assert [len(spy.contexts) for spy in spies] == [2, 1]
    assert spies[1].contexts[0].startswith(spies[0].contexts[1])
