"""Long runs, in ``.ci/run --full`` only: thousands of turns, and clients that die at any moment, leave nothing."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from trio_websocket import ConnectionClosed, HandshakeError

from tests.support.live import Wire, calls_of, open_wire, output, post, tool
from tests.test_process import Process

pytestmark = [pytest.mark.full, pytest.mark.slow]

CONNECTIONS = 50
ROLLOUTS = 2500
"""Each is two turns, or one rollout with a pause: 10,000 turns in both modes together."""
WARM = 500
"""Rollouts after which caches and allocators have their size."""
GROWTH_BYTES = 15e6
TOOLS = [tool("get_tide")]


@pytest.mark.parametrize("mode", ["shipped", "prototype"])
async def test_thousands_of_turns_and_dying_clients_leave_memory_and_descriptors_as_they_were(
    tmp_path: Path, mode: str
) -> None:
    limits = ("--store-bytes", "2000000", "--token-cache-bytes", "2000000", "--grace-seconds", "2")
    server = await trio.to_thread.run_sync(lambda: Process(tmp_path, "--mode", mode, *limits))
    try:
        process = psutil.Process(server.process.pid)
        fresh = process.num_fds()
        await soak(server, WARM, seed=1)
        warm = process.memory_info().rss
        await soak(server, ROLLOUTS - WARM, seed=2)
        grown = process.memory_info().rss - warm
        with trio.fail_after(20):
            while process.num_fds() > fresh:
                await trio.sleep(0.05)
        assert grown < GROWTH_BYTES, f"{grown / 1e6:.1f} MB more than after {WARM} rollouts"
        assert await trio.to_thread.run_sync(server.end, signal.SIGTERM) == 0
        assert "Traceback" not in server.log.read_text()
    finally:
        server.process.kill()
        server.process.wait()


async def soak(server: Process, rollouts: int, seed: int) -> None:
    """``CONNECTIONS`` clients at once, until so many rollouts were begun."""
    chance = random.Random(seed)
    left = iter(range(rollouts))

    async def client() -> None:
        for _ in left:
            try:
                async with open_wire(server.ready["ws_url"]) as wire:
                    await live(wire, left, chance)
            except (ConnectionClosed, HandshakeError):
                pass  # it died, as it was meant to

    with trio.fail_after(1200):
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(client)
            nursery.start_soon(over_http, server, rollouts // 50)


async def live(wire: Wire, left: Any, chance: random.Random) -> None:
    """Some rollouts on one socket; one time in ten the client dies somewhere in them."""
    for _ in range(chance.randint(1, 20)):
        dies = chance.random() < 0.1
        await wire.create(input=f"tide? {chance.random()}", tools=TOOLS, store=chance.random() < 0.5)
        if dies and chance.random() < 0.5:
            await wire.frame()
            await wire.socket._stream.aclose()
            return
        last = (await wire.frames())[-1]
        if dies:
            await wire.socket._stream.aclose()
            return
        answers = [output(made, "06:00") for made in calls_of(last["response"])]
        if last["type"] == "response.done":
            await wire.append(answers)
        else:
            await wire.create(previous_response_id=last["response"]["id"], input=answers, tools=TOOLS)
        assert (await wire.frames())[-1]["type"] == "response.completed"
        if next(left, None) is None:
            return


async def over_http(server: Process, requests: int) -> None:
    """The other transport beside them."""
    for number in range(requests):
        running = _Address(server.ready["base_url"])
        assert (await post(running, input="hi", stream=number % 2 == 0)).status_code == 200


class _Address:
    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
