"""Where a turn's time goes: every station of a slow world finds its seconds in its own stage, in both modes, and the
log, the ledger and the terminal Response tell of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import pytest
import trio
import trio.testing

from respserver.config import Config, Mode
from respserver.engines.base import Batch, SamplingParams
from respserver.engines.base import Sequence as Run
from respserver.engines.sim import Script, Sim, call
from respserver.ledger.base import Timings
from respserver.protocol import connection
from respserver.schema.items import InputItem
from respserver.services import build_services, bundled_template
from respserver.state import ResponseState
from respserver.store.memory import MemoryStore
from respserver.tokens.render import Pieces, Template
from respserver.turn.routing import Route
from respserver.turn.safety import Screening, Verdict
from respserver.turn.stopwatch import STAGES
from tests.support.fake_socket import FakeSocket
from tests.support.live import Frame, calls_of, output, tool
from tests.support.talk import Talk

TOOLS = [tool("first")]
KEY = "respserver_timings"


class World:
    """A clock that only what is slow moves on, and a book of what was slow for how long."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.spent: Counter[str] = Counter()

    def clock(self) -> float:
        return self.now

    def spend(self, stage: str, seconds: int) -> None:
        self.now += seconds
        self.spent[stage] += seconds

    def slowly(self, stage: str, seconds: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, but it takes so long."""

        def call(*args: Any, **options: Any) -> Any:
            self.spend(stage, seconds)
            return function(*args, **options)

        return call

    def book(self) -> dict[str, float]:
        """What was slow since the last look, in milliseconds."""
        spent, self.spent = self.spent, Counter()
        return {stage: seconds * 1000.0 for stage, seconds in spent.items()}


class SlowStore(MemoryStore):
    def __init__(self, world: World) -> None:
        super().__init__(max_responses=10, max_bytes=1 << 20, max_idle_seconds=60, now=lambda: 0.0)
        self._world = world

    async def load_chain(self, response_id: str, tenant: str) -> list[ResponseState] | None:
        self._world.spend("bind", 7)
        return await super().load_chain(response_id, tenant)

    async def save(self, state: ResponseState) -> None:
        self._world.spend("save", 11)
        await super().save(state)


class SlowClassifier:
    name = "slow"
    gives_logprobs = False
    reads: Literal["new", "context"] = "new"
    when: Literal["before", "beside"] = "before"

    def __init__(self, world: World) -> None:
        self._world = world

    async def screen(self, items: Sequence[InputItem], verdict: Verdict) -> Verdict:
        self._world.spend("screen", 13)
        return Verdict()

    async def aclose(self) -> None:
        pass


class SlowTemplate(Template):
    def __init__(self, world: World, fingerprint: str = "") -> None:
        super().__init__(bundled_template().tokenizer)
        self.fingerprint = fingerprint or self.fingerprint
        self._world = world

    def tokenise_each(self, items: Sequence[Pieces], **options: Any) -> Any:
        self._world.spend("render", 17)
        return super().tokenise_each(items, **options)


class SlowEngine(Sim):
    def __init__(self, world: World, script: Script) -> None:
        super().__init__(bundled_template(), script=script)
        self._world = world

    async def open(self) -> Any:
        self._world.spend("extend", 19)
        return SlowRun(self._world, await super().open())


class SlowRun:
    def __init__(self, world: World, inner: Run) -> None:
        self._world = world
        self._inner = inner

    async def extend(self, ids: Sequence[int]) -> None:
        self._world.spend("extend", 23)
        await self._inner.extend(ids)

    async def next(self, params: SamplingParams) -> Batch:
        self._world.spend("sample", 29)
        return await self._inner.next(params)

    async def discard(self, count: int) -> None:
        self._world.spend("sample", 31)
        await self._inner.discard(count)

    async def aclose(self) -> None:
        await self._inner.aclose()


class SlowSocket(FakeSocket):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def send_many(self, messages: Sequence[bytes]) -> None:
        self._world.spend("write", 37)
        super().send_many(messages)


def talk_in(world: World, nursery: trio.Nursery, script: Script, **fields: Any) -> Talk:
    """A client of the slow world."""
    asked: list[str] = []

    def new_id(prefix: str) -> str:
        if prefix in ("msg", "fc"):  # of an output item, so it is the emitter that asks
            world.spend("emit", 43)
        asked.append(prefix)
        return f"{prefix}_{len(asked)}"

    def now() -> float:
        world.spend("bind" if asked[-1] == "resp" else "emit", 47)  # of the response's beginning, or of its end
        return 0.0

    engine = SlowEngine(world, script)
    parts = build_services(Config(**fields), engine=engine, store=SlowStore(world))
    parts.clock = world.clock
    parts.new_id = new_id
    parts.now = now
    templates = {"*": SlowTemplate(world), "other": SlowTemplate(world, "another tokenizer")}
    parts.router.replace([Route(pattern=name, engine=engine, template=templates[name]) for name in ("other", "*")])
    parts.screening = Screening([SlowClassifier(world)])
    return Talk(nursery, parts, SlowSocket(world))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A slow world, in which reading messages is slow too."""
    world = World()
    for name, stage, seconds in (
        ("read_object", "receive", 2),
        ("read_create", "validate", 3),
        ("read_append", "validate", 5),
    ):
        monkeypatch.setattr(connection, name, world.slowly(stage, seconds, getattr(connection, name)))
    return world


def spans(timings: Timings) -> dict[str, float]:
    """The stages that a turn passed before its end."""
    fields = msgspec.structs.asdict(timings)
    return {stage: fields[stage] for stage in STAGES if fields[stage] and stage != "post"}


async def latest(talk: Talk) -> list[Timings]:
    """Of the turns so far, once all is done behind them."""
    await trio.testing.wait_all_tasks_blocked()
    return [record.timings_ms for record in talk.services.post.tally.latest]


async def test_a_shipped_turn_finds_all_its_time_in_the_stages_that_took_it(
    nursery: trio.Nursery, world: World
) -> None:
    two_calls = (call("first"), call("first"))  # the second one is discarded if only one is wanted
    talk = talk_in(world, nursery, Script.of(call("first"), two_calls))
    books: list[dict[str, float]] = []

    async def turn(**fields: Any) -> Frame:
        last = await talk.turn(tools=TOOLS, **fields)
        await trio.testing.wait_all_tasks_blocked()
        books.append(world.book())
        response: Frame = last["response"]
        return response

    first = await turn(input="go")
    go_on = {"input": [output(calls_of(first)[0])], "previous_response_id": first["id"]}
    await turn(**go_on, store=False, instructions="Be brief.")  # another head: another run
    await turn(**go_on, model="other", parallel_tool_calls=False)  # from the store, where ids of another tokenizer are
    timings = await latest(talk)
    assert [spans(each) for each in timings] == books
    assert [each.total for each in timings] == [sum(book.values()) for book in books]
    always = {"receive", "validate", "bind", "screen", "render", "extend", "sample", "emit", "write"}
    assert [set(book) - always for book in books] == [{"save"}, set(), {"save"}]
    assert [book["bind"] for book in books] == [47_000, 47_000, 54_000]
    assert books[2]["sample"] == 60_000


async def test_a_rollout_finds_its_time_in_the_same_stages_and_the_clients_apart(
    nursery: trio.Nursery, world: World
) -> None:
    script = Script.of([call("first"), call("first")], "Done.")
    talk = talk_in(world, nursery, script, mode=Mode.PROTOTYPE)
    calls = calls_of((await talk.turn(input="go", tools=TOOLS))["response"])
    world.spend("suspended", 1000)
    talk.socket.say({"type": "response.append", "input": [output(calls[0])]})
    await trio.testing.wait_all_tasks_blocked()
    # A frame that does not wake the turn is still the client's time: it is the other output that is waited for.
    world.spent.subtract({"receive": 2, "validate": 5})
    world.spent["suspended"] += 7
    world.spend("suspended", 500)
    talk.socket.say({"type": "response.append", "input": [output(calls[1])]})
    assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
    (timings,) = await latest(talk)
    assert spans(timings) == (book := world.book())
    assert timings.total == sum(book.values())
    assert timings.suspended == 1_507_000
