"""Thousands of turns, and clients that die at any moment, leave nothing behind; a signal in the midst of them ends the
server in time. What runs with every change is short; ``--full`` has the long runs."""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from respserver.client import Client
from respserver.config import Mode
from respserver.engines.sim import Sim
from respserver.errors import ApiError, ConnectionLost
from respserver.services import bundled_template
from tests.support.live import calls_of, output, tool
from tests.support.peer import HOWS, Gone, Peer
from tests.support.process import Process

pytestmark = pytest.mark.slow

WARM = 2000
"""Turns after which caches and allocators have their size."""
GROWTH_BYTES = 6e6
"""What the process may hold more after 10,000 turns than after the first 2,000. It is 3 to 4 MB: the allocator's rest,
and small caches on their way to their bounds. The context of a chain that is kept by mistake is 2.5 KB more each."""
GRACE = 2.0
KEPT = {"store_bytes": 2_000_000, "token_cache_bytes": 2_000_000, "ledger_records": 100, "grace_seconds": GRACE}
"""Small, so that what is bounded is soon at its bound."""
PACE = {"tps": 4000.0, "ttft": 0.002}
"""Answers take some milliseconds, so that clients do die in the middle of them."""
OPTIONS = [text for name, value in (KEPT | PACE).items() for text in ("--" + name.replace("_", "-"), str(value))]
PIERS = 1000
"""Different questions. Were each a new one, caches of words would grow for longer than the run, to their bounds."""
TOOLS = [tool("get_tide")]
GOING_AWAY = 1001
IN_A_TURN = "in a turn"
DEATHS = [(where, how) for how in HOWS for where in (IN_A_TURN, "at a tool call")]


class Crowd:
    """Clients that run rollouts of two turns, or of one with a pause, until so many turns were asked for.

    The dice are seeded; in every eighth rollout its client dies. ``deaths`` counts how, ``ends`` the close codes that
    the server ended sockets with.
    """

    def __init__(self, port: int, *, turns: int, seed: int) -> None:
        self.deaths: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[int | None] = Counter()
        self.completed = 0
        self.requests = 0
        self._rollouts = 0
        self._next_death = itertools.cycle(DEATHS)
        self._port = port
        self._left = turns
        self._dice = random.Random(seed)

    async def run(self, connections: int) -> None:
        """So many sockets at a time, and HTTP beside them."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._over_http)
            async with trio.open_nursery() as crowd:
                for _ in range(connections):
                    crowd.start_soon(self._client)
            nursery.cancel_scope.cancel()

    async def _over_http(self) -> None:
        """One request after the other; every second stream is left at its first event."""
        async with Client(f"http://127.0.0.1:{self._port}/v1") as client:
            while True:
                try:
                    await client.create(model="sim", input="hi")
                    for leaves in (True, False):
                        async with client.stream(model="sim", input="hi") as events:
                            async for _ in events:
                                if leaves:
                                    break
                except (ApiError, ConnectionLost, OSError):
                    return  # the server is going down
                self.requests += 3

    async def _client(self) -> None:
        while self._left > 0:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", self._port)
            except OSError:
                return  # nobody listens any more
            async with stream:
                await self._live(Peer(stream))

    async def _live(self, peer: Peer) -> None:
        """Some rollouts on one socket."""
        try:
            await peer.shake_hands()
        except Gone:
            return
        try:
            for _ in range(self._dice.randint(1, 20)):
                if self._left <= 0:
                    return
                self._left -= 2
                self._rollouts += 1
                death = next(self._next_death) if self._rollouts % 8 == 0 else None
                if death is None:
                    await self._rollout(peer)
                else:
                    await self._last_rollout(peer, *death)
                    return
        except Gone as gone:
            self.ends[gone.code] += 1

    async def _rollout(self, peer: Peer) -> None:
        await self._begin(peer)
        last = await peer.hear_step()
        if last["type"] in ("response.completed", "response.done"):
            answers = [output(made, "06:00") for made in calls_of(last["response"])]
            if last["type"] == "response.done":
                await peer.say("response.append", input=answers)
            else:
                parent = last["response"]["id"]
                await peer.say("response.create", previous_response_id=parent, input=answers, tools=TOOLS)
            last = await peer.hear_step()
        if last["type"] == "response.completed":
            self.completed += 1
            return
        error = last["error"] if last["type"] == "error" else last["response"]["error"]
        assert error["code"] == "server_shutting_down", last  # the one thing that may go wrong; 1001 is still to come

    async def _last_rollout(self, peer: Peer, where: str, how: str) -> None:
        await self._begin(peer)
        if where == IN_A_TURN:
            for _ in range(self._dice.randint(1, 5)):
                await peer.hear()
        else:
            await peer.hear_step()
        await peer.die(how)
        self.deaths[where, how] += 1

    async def _begin(self, peer: Peer) -> None:
        text, store = f"tide at pier {self._dice.randrange(PIERS)}?", self._dice.random() < 0.5
        await peer.say("response.create", input=text, tools=TOOLS, store=store)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_crowd_of_dying_clients_leaves_no_task_no_descriptor_and_no_run(serve: Any, mode: Mode) -> None:
    engine = Sim(bundled_template(), **PACE)
    server = await serve(mode=mode, engine=engine, limits={"kept_contexts": 0})
    port = server.address.port
    await Crowd(port, turns=20, seed=0).run(2)
    tasks, files = trio.lowlevel.current_statistics().tasks_living, open_files()
    crowd = Crowd(port, turns=200, seed=1)
    with trio.fail_after(60):
        await crowd.run(10)
        while engine.sequences_open or trio.lowlevel.current_statistics().tasks_living > tasks:
            await trio.sleep(0.01)
        gc.collect()
        while open_files() > files:
            await trio.sleep(0.01)
    check_crowd(crowd, turns=200)


def check_crowd(crowd: Crowd, turns: int) -> None:
    """They did live, and die in every way; the server has ended nobody's socket."""
    assert crowd.completed > turns / 4
    assert crowd.requests > 0
    assert set(crowd.deaths) == set(DEATHS)
    assert not crowd.ends


@pytest.mark.full
@pytest.mark.parametrize("mode", list(Mode))
async def test_ten_thousand_turns_and_dying_clients_leave_memory_and_descriptors_as_they_were(
    tmp_path: Path, mode: Mode
) -> None:
    server = await trio.to_thread.run_sync(lambda: Process(tmp_path, "--mode", str(mode), *OPTIONS))
    try:
        process = psutil.Process(server.process.pid)
        fresh = process.num_fds()
        port = server.ready["port"]
        with trio.fail_after(1200):
            await Crowd(port, turns=WARM, seed=1).run(50)
            warm = process.memory_info().rss
            crowd = Crowd(port, turns=10_000 - WARM, seed=2)
            await crowd.run(50)
        grown = process.memory_info().rss - warm
        with trio.fail_after(20):
            while process.num_fds() > fresh:
                await trio.sleep(0.05)
        check_crowd(crowd, turns=10_000 - WARM)
        assert grown < GROWTH_BYTES, f"{grown / 1e6:.1f} MB more than after {WARM} turns"
        assert await trio.to_thread.run_sync(server.end, signal.SIGTERM) == 0
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()


@pytest.mark.parametrize("connections", [10, pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.parametrize("mode", list(Mode))
async def test_a_signal_in_the_midst_of_a_crowd_ends_the_server_in_time(
    tmp_path: Path, mode: Mode, connections: int
) -> None:
    """Whoever is connected hears 1001, and the process is gone within the grace time and a second."""
    server = await trio.to_thread.run_sync(lambda: Process(tmp_path, "--mode", str(mode), *OPTIONS))
    try:
        crowd = Crowd(server.ready["port"], turns=1_000_000, seed=3)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(crowd.run, connections)
                while crowd.completed < 10 * connections:
                    await trio.sleep(0.01)
                began = time.monotonic()
                assert await trio.to_thread.run_sync(server.end, signal.SIGTERM) == 0
                took = time.monotonic() - began
        assert took < GRACE + 1
        assert set(crowd.ends) == {GOING_AWAY}
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()
