"""One thing goes wrong on one of many lanes: the Nth call of the engine or the store, for every N that there is, while
the other lanes run. It costs the turn whose call it was; its lane goes on, and the others never hear of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Mode
from respserver.errors import ModelFault
from respserver.session import Session
from respserver.transport.lifetime import run_to_close
from tests.support.faults import Departure, Faults, FaultySocket
from tests.support.live import ENDS, Frame, text_of
from tests.test_anomalies import MOST, PATIENCE, UNHEARD, World, check_frames, raising, task

pytestmark = pytest.mark.slow

Said = dict[str | None, tuple[str, int, int]]
FORKS = ("one", "two", "three")
HARMLESS = UNHEARD | {"run.fork"}
"""What need not fail a turn: a fork that gets no run of its engine reads its context anew."""


class LaneClient:
    """Asks on the lanes of one socket. What comes is sorted by lane, and each lane's must be whole turns."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self.over = trio.Event()
        self._has_left = False
        self._world = world
        self._socket = FaultySocket(world.socket_faults)
        self._frames: defaultdict[str | None, list[Frame]] = defaultdict(list)
        self._ends: defaultdict[str | None, Any] = defaultdict(lambda: trio.open_memory_channel[Frame](math.inf))
        nursery.start_soon(self._serve)
        nursery.start_soon(self._hear)

    async def ask(self, lane: str | None, **fields: Any) -> Frame | None:
        """The terminal Response of a create on this lane, or None if it went wrong; never, once the client has left."""
        if self._has_left:
            await trio.sleep_forever()
        self._world.creates += 1
        named = {} if lane is None else {"stream_id": lane}
        self._socket.say({"type": "response.create", **named, **fields})
        last: Frame = await self._ends[lane][1].receive()
        if last["type"] == "response.completed":
            return last["response"]  # type: ignore[no-any-return]
        self._world.refused += 1
        return None

    def leave(self) -> None:
        self._has_left = True
        self._socket.leave()

    async def end(self) -> None:
        """Leave; no lane has a turn that runs."""
        self.leave()
        await self.over.wait()
        for frames in self._frames.values():
            check_frames(frames, is_cut=False)

    async def _hear(self) -> None:
        while True:
            try:
                frame = await self._socket.hear()
            except trio.EndOfChannel:
                return
            lane = frame.pop("stream_id", None)
            self._frames[lane].append(frame)
            if frame["type"] in ENDS:
                self._ends[lane][0].send_nowait(frame)

    async def _serve(self) -> None:
        async def run(_: Any, tenant: str) -> None:
            await Session(self._socket, self._world.services, tenant=tenant, stop=trio.Event()).run()

        await run_to_close(run, self._socket, "default")
        self.over.set()


async def work(client: LaneClient) -> Said:
    """A task; then three lanes fork it at once while another one begins anew, and, when they have, it goes on itself
    beside them. What they said."""
    said: Said = {}
    trunk = await task(partial(client.ask, None), input="go")

    async def on(lane: str | None, **fields: Any) -> None:
        response = await task(partial(client.ask, lane), **fields)
        said[lane] = text_of(response), response["usage"]["input_tokens"], response["usage"]["output_tokens"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(on, "anew", input="another"))
        for lane in FORKS:
            nursery.start_soon(partial(on, lane, input="go on", previous_response_id=trunk["id"]))
        await trio.sleep(1)
        nursery.start_soon(partial(on, None, input="go on", previous_response_id=trunk["id"]))
    return said


async def one_run(part: str, faults: Faults) -> tuple[World, Said]:
    world = World(part, Mode.SHIPPED, faults)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as behind:
            behind.start_soon(world.services.post.run)
            async with trio.open_nursery() as nursery:
                client = LaneClient(world, nursery)
                said = await work(client)
                await client.end()
                await trio.testing.wait_all_tasks_blocked()
                assert not nursery.child_tasks
            world.services.post.close()
    world.check()
    assert world.services.slots.active == 0
    return world, said


async def every_fault(part: str, fault_of: Callable[[int], Faults]) -> Counter[str]:
    """Let every single call of ``part`` go wrong, one in each run; how often each kind of call was hit."""
    _, undisturbed = await one_run(part, Faults(0, AssertionError))
    struck: Counter[str] = Counter()
    for nth in range(1, MOST):
        faults = fault_of(nth)
        world, said = await one_run(part, faults)
        assert said == undisturbed, faults.struck
        if faults.struck is None:
            assert world.refused == 0
            return struck
        assert world.refused <= 1
        assert world.refused or faults.struck in HARMLESS, faults.struck
        struck[faults.struck] += 1
    raise AssertionError(f"still a call to hit in run {MOST}")


async def test_whatever_the_engine_raises_costs_one_turn_of_one_lane(autojump_clock: Any) -> None:
    wanted = {"engine.open", "run.extend", "run.next", "run.fork", "run.aclose"}
    struck: Counter[str] = Counter()
    for _ in range(5):  # lanes take turns by chance, and so may each kind of call at some place be missed once
        struck += await every_fault("engine", raising(lambda: ModelFault("broke")))
        if set(struck) >= wanted:
            break
    assert set(struck) >= wanted
    assert struck.total() > 35


@pytest.mark.parametrize("part", ["store", "late store"])
async def test_whatever_the_store_raises_costs_one_turn_of_one_lane(autojump_clock: Any, part: str) -> None:
    struck = await every_fault(part, raising())
    assert "store.save" in struck
    assert struck.total() > 10


@pytest.mark.parametrize("part", ["engine", "store"])
async def test_a_client_may_leave_all_its_lanes_while_the_server_waits_for_anything(
    autojump_clock: Any, part: str
) -> None:
    """Nothing of any lane is left, and what was stored can be gone on from."""
    for nth in range(1, MOST):
        faults = Departure(nth)
        world = World(part, Mode.SHIPPED, faults)
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as behind:
                behind.start_soon(world.services.post.run)
                async with trio.open_nursery() as nursery:
                    client = LaneClient(world, nursery)
                    faults.leave = client.leave
                    nursery.start_soon(work, client)
                    await trio.testing.wait_all_tasks_blocked()
                    while faults.struck is None and len(nursery.child_tasks) > 2:
                        await trio.sleep(1)
                    client.leave()
                    await client.over.wait()
                    nursery.cancel_scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
                if faults.struck is not None:
                    async with trio.open_nursery() as nursery:
                        again = LaneClient(world, nursery)
                        assert await task(partial(again.ask, "one"), input="go")
                        await again.end()
                world.services.post.close()
        assert world.engine.runs_open == len(world.services.kept)
        assert (world.services.slots.active, world.services.slots.waiting) == (0, 0)
        if faults.struck is None:
            assert nth > 10
            return
    raise AssertionError(f"still a call to hit in run {MOST}")
