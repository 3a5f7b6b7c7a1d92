"""Who gets how much of the event loop when every model always has tokens ready. Counted in batches, never timed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence as Ids

import pytest
import trio
import trio.testing

from respserver.config import Config, Limits, Mode
from respserver.engines.base import Batch, SamplingParams
from respserver.protocol.lane import Lane
from respserver.services import build_services, bundled_template
from respserver.session.gate import Gate
from respserver.tokens.special import Special
from respserver.turn.services import Services
from tests.support.fake_socket import FakeSocket
from tests.support.talk import Talk

TEMPLATE = bundled_template()
MESSAGE = [int(token) for token in (Special.START, *TEMPLATE.tokenise(["assistant"]), Special.SEP)]
WORDS = TEMPLATE.tokenise(["one two three four"])
ENOUGH = 40
NAMES = [f"a{number}" for number in range(16)]


class Endless:
    """A model that always has a batch ready. ``said`` counts them by the name that it is called by, from when so many
    ``speakers`` are speaking."""

    name = "sim"
    gives_logprobs = False

    def __init__(self, awaited: str, *, speakers: int = 1, count: int = ENOUGH) -> None:
        self.said: Counter[str] = Counter()
        self.enough = trio.Event()
        """Set as soon as ``awaited`` has said so many; from then on nobody says anything."""
        self._heard: set[str] = set()
        self._speakers = speakers
        self._awaited = awaited
        self._count = count

    async def open(self) -> EndlessRun:
        return EndlessRun(self)

    async def aclose(self) -> None:
        pass

    async def say(self, model: str) -> None:
        """Count a batch."""
        await trio.lowlevel.checkpoint()
        if self.enough.is_set():
            await trio.sleep_forever()
        self._heard.add(model)
        if len(self._heard) < self._speakers:
            return
        self.said[model] += 1
        if self.said[self._awaited] == self._count:
            self.enough.set()


class EndlessRun:
    def __init__(self, engine: Endless) -> None:
        self._engine = engine
        self._ids = itertools.chain([MESSAGE], itertools.repeat(WORDS))

    async def extend(self, ids: Ids[int]) -> None:
        pass

    async def next(self, params: SamplingParams) -> Batch:
        await self._engine.say(params.model)
        return Batch(ids=next(self._ids))

    async def discard(self, count: int) -> None:
        raise AssertionError("no limit cuts these turns")

    async def fork(self) -> EndlessRun:
        raise AssertionError("nothing forks these turns")

    async def aclose(self) -> None:
        pass


class ReadySocket(FakeSocket):
    """A socket whose peer keeps up: as on a real one, a turn does not wait there at all."""

    async def drain(self) -> None:
        pass


def serve(engine: Endless, **limits: float) -> Services:
    return build_services(Config(mode=Mode.SHIPPED, limits=Limits(**limits)), engine=engine)  # type: ignore[arg-type]  # by name


async def shares(*lanes: int) -> list[list[int]]:
    """What each lane says while the last connection's first lane says enough, if the connections have so many lanes."""
    connections = [[f"{number}-{lane}" for lane in range(count)] for number, count in enumerate(lanes)]
    engine = Endless(connections[-1][0], speakers=sum(lanes))
    services = serve(engine)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            first: Talk | None = None
            for names in connections:
                talk = Talk(nursery, services, ReadySocket(), beside=first)
                first = first or talk
                for name in names:
                    talk.create(model=name, stream_id=name, input="go", store=False)
            await engine.enough.wait()
            nursery.cancel_scope.cancel()
    return [[engine.said[name] for name in names] for names in connections]


@pytest.mark.parametrize("lanes", [2, 3, 16])
async def test_the_lanes_of_a_connection_go_on_alike(lanes: int) -> None:
    (said,) = await shares(lanes)
    assert max(said) - min(said) <= 1


@pytest.mark.parametrize("lanes", [1, 2, 3, 16])
async def test_many_lanes_get_no_more_than_a_neighbours_one(lanes: int) -> None:
    many, (one,) = await shares(lanes, 1)
    assert sum(many) == pytest.approx(one, abs=2)
    assert max(many) - min(many) <= 1


async def test_each_of_several_connections_gets_the_same_whatever_lanes_it_has() -> None:
    said = await shares(16, 2, 5, 1)
    assert [sum(lanes) for lanes in said] == pytest.approx([ENOUGH] * 4, abs=2)


async def test_a_lane_that_comes_later_gets_its_share_at_once() -> None:
    engine = Endless("late", count=3)
    services = serve(engine)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            talk = Talk(nursery, services, ReadySocket())
            for name in NAMES[:15]:
                talk.create(model=name, stream_id=name, input="go")
            while engine.said["a0"] < 10:
                await trio.lowlevel.checkpoint()
            before = engine.said.copy()
            talk.create(model="late", stream_id="late", input="go")
            await engine.enough.wait()
            fresh = engine.said - before
            assert max(fresh[name] for name in NAMES) <= 5
            nursery.cancel_scope.cancel()


async def test_turns_that_are_ended_while_they_stand_in_line_hold_up_nobody() -> None:
    """At a shutdown each lane still gets its terminal event, and the connection its close."""
    engine = Endless("a0", speakers=16)
    services = serve(engine, grace_seconds=0.0)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            talk = Talk(nursery, services, ReadySocket())
            for name in NAMES:
                talk.create(model=name, stream_id=name, input="go")
            while engine.said["a0"] < 5:
                await trio.lowlevel.checkpoint()
            talk.stop.set()
            await talk.over.wait()
            frames = [await talk.socket.hear() for _ in range(talk.socket.unheard)]
            nursery.cancel_scope.cancel()
    ended = [frame["stream_id"] for frame in frames if frame["type"] == "response.failed"]
    assert sorted(ended) == sorted(NAMES)


class Passes(trio.abc.Instrument):
    """Counts the passes of Trio's scheduler."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def pass_by(gate: Gate, name: str, log: list[str]) -> None:
    await gate.enter(Lane(Mode.SHIPPED, name))
    log.append(name)


async def test_a_lane_alone_passes_without_a_checkpoint() -> None:
    gate, lane = Gate(), Lane(Mode.SHIPPED)
    await gate.enter(lane)
    with trio.testing.assert_no_checkpoints():
        await gate.enter(lane)


async def test_one_lane_passes_in_each_pass_in_the_order_in_which_they_came() -> None:
    gate, came, went = Gate(), list[str](), list[tuple[str, int]]()
    passes = Passes()

    async def lane(name: str) -> None:
        came.append(name)
        await gate.enter(Lane(Mode.SHIPPED, name))
        went.append((name, passes.count))

    trio.lowlevel.add_instrument(passes)
    try:
        async with trio.open_nursery() as nursery:
            for name in "abcdef":
                nursery.start_soon(lane, name)
    finally:
        trio.lowlevel.remove_instrument(passes)
    assert [name for name, _ in went] == came
    numbers = [number for _, number in went]
    assert numbers == list(range(numbers[0], numbers[0] + 6))


async def test_nobody_waits_for_a_lane_that_does_not_come_again() -> None:
    gate, log = Gate(), list[str]()
    with trio.fail_after(1):
        for name in "abcd":
            await pass_by(gate, name, log)


@pytest.mark.parametrize("gone", ["a", "b", "c", "abc", "abcde"])
async def test_who_is_cancelled_takes_no_other_lanes_place(gone: str) -> None:
    gate, log = Gate(), list[str]()
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery, trio.open_nursery() as leaving:
            for name in "abcde":
                (leaving if name in gone else nursery).start_soon(pass_by, gate, name, log)
            await trio.lowlevel.checkpoint()
            leaving.cancel_scope.cancel()
        await pass_by(gate, "last", log)
    assert set("abcde") - set(gone) < set(log)
