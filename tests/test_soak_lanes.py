"""Sixteen lanes a connection, all of them busy: forks, faults, refusals, and sockets that die in the midst of it. On
every lane each create is answered once and in order, and in the end nothing is left. ``--full`` has the long run."""

from __future__ import annotations

import gc
import itertools
import random
import signal
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from respserver.engines.sim import Script, Sim, conversation, fault, step
from respserver.services import bundled_template
from tests.support.live import TERMINALS, Frame, output
from tests.support.peer import HOWS, Peer
from tests.support.process import Process
from tests.support.replay import Replay
from tests.test_soak import GROWTH_BYTES, OPTIONS, PACE, PIERS, WARM, open_files

pytestmark = pytest.mark.slow

LANES: list[str | None] = [None, *(f"lane-{number}" for number in range(1, 16))]
GO, BREAK, MALFORMED, UNPAIRED, WARM_UP, ORPHAN = "go", "break", "malformed", "unpaired", "warm-up", "orphan"
SORTS = [*[GO] * 12, BREAK, MALFORMED, UNPAIRED, WARM_UP, ORPHAN]
TURNS_A_LANE = 40
"""Creates of a lane at most before its socket is closed: so chains have a length that they do not pass."""
BROKEN = step("It goes well for a while, and then it", fault=fault("overloaded"), fault_after_tokens=8)
SCRIPT = Script(conversations=(conversation(BROKEN, user=BREAK), conversation("word " * 12)), on_end="repeat")
SCRIPT_FILE = """
on_end = "repeat"
[[conversation]]
when = { user = "break" }
[[conversation.step]]
text = "It goes well for a while, and then it"
fault = "overloaded"
fault_after_tokens = 8
[[conversation]]
[[conversation.step]]
text = "word word word word word word word word word word word word"
"""


@dataclass
class Asked:
    """A create that was sent and what it may come to. ``answer`` is what it did come to."""

    number: int
    sort: str
    parent: str | None
    is_sure: bool
    """Whether the parent cannot have gone meanwhile."""
    answer: str = ""
    answered: trio.Event = field(default_factory=trio.Event)

    def check(self) -> None:
        """It came to what it had to."""
        lawful = {
            GO: {"completed"},
            BREAK: {"failed"},
            MALFORMED: {"invalid_type"},
            UNPAIRED: {"no_tool_call_found"},
            WARM_UP: {"completed"},
            ORPHAN: {"previous_response_not_found"},
        }[self.sort]
        if not self.is_sure and self.sort != MALFORMED:
            lawful = lawful | {"previous_response_not_found"}
        assert self.answer in lawful, self


class ManyLanes:
    """One socket's lanes, as their client sees them."""

    def __init__(self, crowd: Crowd, peer: Peer, dice: random.Random) -> None:
        self._crowd = crowd
        self._peer = peer
        self._dice = dice
        self._latest: dict[str | None, str | None] = dict.fromkeys(LANES)
        self._asked: dict[str | None, deque[Asked]] = {lane: deque() for lane in LANES}
        self._replays: dict[str | None, Replay] = {}

    async def live(self, death: str | None) -> None:
        """Turns on all lanes, until each has had enough; or until the socket dies in the middle of them."""
        with trio.CancelScope() as life:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear)
                async with trio.open_nursery() as lanes:
                    for lane in LANES:
                        lanes.start_soon(self._lane, lane)
                    if death is not None:
                        await trio.sleep(self._dice.uniform(0.01, 0.1))
                        life.cancel()
                nursery.cancel_scope.cancel()
        if death is not None:
            await self._peer.die(death)
            self._crowd.deaths[death] += 1

    async def _lane(self, lane: str | None) -> None:
        """One create after the other, or two at once."""
        for _ in range(self._dice.randint(1, TURNS_A_LANE)):
            if self._crowd.left <= 0:
                return
            asked = [await self._ask(lane, is_first=not number) for number in range(self._dice.choice([1, 1, 2]))]
            for each in asked:
                await each.answered.wait()
                each.check()
                self._crowd.answers[each.answer] += 1

    async def _ask(self, lane: str | None, *, is_first: bool) -> Asked:
        self._crowd.left -= 1
        sort, own = self._dice.choice(SORTS), self._latest[lane]
        parent = self._dice.choice([own, own, own, self._latest[self._dice.choice(LANES)], None])
        if sort == ORPHAN:
            parent = "resp_nowhere"
        asked = Asked(next(self._crowd.numbers), sort, parent, parent is None or (is_first and parent == own))
        self._asked[lane].append(asked)
        text = sort if sort == BREAK else f"tide at pier {self._dice.randrange(PIERS)}?"
        fields: dict[str, Any] = {"input": text, "store": self._dice.random() < 0.5}
        fields |= {"metadata": {"number": str(asked.number)}, "previous_response_id": parent}
        fields |= {} if lane is None else {"stream_id": lane}
        if sort == MALFORMED:
            fields["input"] = 42
        elif sort == UNPAIRED:
            fields["input"] = [output({"type": "function_call", "call_id": "call_0"}, "")]
        elif sort == WARM_UP:
            fields["generate"] = False
        await self._peer.say("response.create", **fields)
        return asked

    async def _hear(self) -> None:
        """Whatever comes belongs to the oldest create of its lane that has no answer yet."""
        while True:
            frame = await self._peer.hear()
            lane = frame.get("stream_id")
            asked = self._asked[lane][0]
            if frame["type"] == "error":
                assert lane not in self._replays, "an error frame inside a turn"
                self._answered(lane, asked, frame["error"]["code"], None)
                continue
            replay = self._replays.setdefault(lane, Replay())
            replay.feed(frame)
            if "response" in frame:
                assert frame["response"]["metadata"]["number"] == str(asked.number)
            assert len(self._replays) <= 16
            if frame["type"] in TERMINALS:
                del self._replays[lane]
                self._answered(lane, asked, frame["response"]["status"], frame)

    def _answered(self, lane: str | None, asked: Asked, answer: str, frame: Frame | None) -> None:
        self._asked[lane].popleft()
        if answer == "completed":
            assert frame is not None
            self._latest[lane] = frame["response"]["id"]
        elif asked.parent == self._latest[lane]:
            self._latest[lane] = None
        asked.answer = answer
        asked.answered.set()


class Crowd:
    """Such clients, a socket after the other, until so many turns were asked for. Every other socket dies."""

    def __init__(self, port: int, *, turns: int, seed: int) -> None:
        self.left = turns
        self.numbers = itertools.count(1)
        self.answers: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        self._port = port
        self._seeds = itertools.count(1000 * seed)
        self._ends = itertools.cycle([None, *itertools.chain.from_iterable((how, None) for how in HOWS)])

    async def run(self, connections: int) -> None:
        """So many sockets at a time."""
        async with trio.open_nursery() as nursery:
            for _ in range(connections):
                nursery.start_soon(self._client)

    async def _client(self) -> None:
        while self.left > 0:
            async with await trio.open_tcp_stream("127.0.0.1", self._port) as stream:
                peer = Peer(stream)
                await peer.shake_hands()
                await ManyLanes(self, peer, random.Random(next(self._seeds))).live(next(self._ends))

    def check(self, turns: int) -> None:
        """They did live, in every way; and died in every way."""
        assert self.answers["completed"] > turns / 4
        assert set(self.answers) == {
            "completed", "failed", "invalid_type", "no_tool_call_found", "previous_response_not_found",
        }  # fmt: skip
        assert set(self.deaths) == set(HOWS)


async def test_lanes_of_dying_sockets_leave_no_task_no_descriptor_and_no_run(serve: Any) -> None:
    engine = Sim(bundled_template(), script=SCRIPT, **PACE)
    server = await serve(engine=engine, limits={"kept_contexts": 0})
    port = server.address.port
    with trio.fail_after(60):
        await Crowd(port, turns=60, seed=0).run(1)
        tasks, files = trio.lowlevel.current_statistics().tasks_living, open_files()
        crowd = Crowd(port, turns=1000, seed=1)
        await crowd.run(2)
        while engine.sequences_open or trio.lowlevel.current_statistics().tasks_living > tasks:
            await trio.sleep(0.01)
        gc.collect()
        while open_files() > files:
            await trio.sleep(0.01)
    crowd.check(turns=1000)


@pytest.mark.full
async def test_twenty_thousand_turns_on_many_lanes_leave_memory_and_descriptors_as_they_were(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text(SCRIPT_FILE)
    options = [*OPTIONS, "--script", str(script)]
    server = await trio.to_thread.run_sync(lambda: Process(tmp_path, *options))
    try:
        process = psutil.Process(server.process.pid)
        fresh = process.num_fds()
        port = server.ready["port"]
        with trio.fail_after(1200):
            await Crowd(port, turns=2 * WARM, seed=1).run(8)
            warm = process.memory_info().rss
            crowd = Crowd(port, turns=20_000 - 2 * WARM, seed=2)
            await crowd.run(8)
        grown = process.memory_info().rss - warm
        with trio.fail_after(20):
            while process.num_fds() > fresh:
                await trio.sleep(0.05)
        crowd.check(turns=20_000 - 2 * WARM)
        assert grown < GROWTH_BYTES, f"{grown / 1e6:.1f} MB more than after {2 * WARM} turns"
        assert await trio.to_thread.run_sync(server.end, signal.SIGTERM) == 0
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()
