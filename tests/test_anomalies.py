"""One thing goes wrong, somewhere: the Nth call of the store, the engine, a classifier, the ledger or the socket, for
every N that there is. Each time the client hears of it once, nothing is left behind, and the same request sent again
does what it should have done: in the end the client has what it would have had without the fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from respserver.auth import KeyRing
from respserver.config import Config, Mode
from respserver.engines.sim import Script, Sim, call
from respserver.errors import ModelFault, ScreeningFailed
from respserver.ledger.base import LedgerError
from respserver.message_socket import SocketClosed
from respserver.services import build_services, bundled_template
from respserver.session import Session
from respserver.store.memory import MemoryStore
from respserver.transport.app import make_app
from respserver.transport.http import HttpTurns
from respserver.transport.lifetime import INTERNAL, NORMAL, run_to_close
from respserver.turn.kept import KeptContexts
from respserver.turn.postinference import PostInference
from respserver.turn.safety import Screening
from respserver.turn.services import Services
from tests.support.faults import (
    ERRORS,
    Departure,
    Faults,
    FaultyClassifier,
    FaultyEngine,
    FaultyLedger,
    FaultySocket,
    FaultyStore,
)
from tests.support.live import TERMINALS, Frame, calls_of, output, parse_sse, text_of, tool
from tests.support.replay import Replay

pytestmark = pytest.mark.slow

TOOLS = [tool("first"), tool("second")]
SCRIPT = Script.of(
    [call("first"), call("second")], call("second"), "word " * 80, [call("first"), call("second")], "bye"
)
"""The third answer takes several batches; of the second pair ``parallel_tool_calls:false`` cuts one call off."""
PATIENCE = 100.0
"""Seconds of the test's own clock."""
MOST = 300
"""More calls than any run makes: a loop that never gets past its last fault is broken."""
UNHEARD = {"run.aclose", "ledger.write", "store.load", "store.delete"}
"""What fails no turn: it is behind them, or not in one."""

Ask = Callable[..., Awaitable[Frame | None]]
"""Sends a create with these fields: its terminal Response, or None if it went wrong."""


class World:
    """The shared parts of a server, one of them with a fault in it, and what is left once everyone has gone."""

    def __init__(self, part: str, mode: Mode, faults: Faults) -> None:
        def of(*parts: str) -> Faults:
            return faults if part in parts else Faults(0, AssertionError)

        inner = MemoryStore(max_responses=100, max_bytes=1 << 20, max_idle_seconds=1e6, now=lambda: 0.0)
        self.faults = faults
        self.store = FaultyStore(inner, of("store", "late store"), late=part == "late store")
        self.engine = FaultyEngine(Sim(bundled_template(), script=SCRIPT), of("engine"))
        self.ledger = FaultyLedger(of("ledger"))
        self.socket_faults = of("socket")
        self.services: Services = build_services(Config(mode=mode), engine=self.engine, store=self.store)
        self.services.post = PostInference(100, self.ledger)
        self.services.kept = KeptContexts(1, 1 << 20, self.services.post.runs.close_soon)
        if part == "classifier":
            self.services.screening = Screening(
                [
                    FaultyClassifier(faults, "before"),
                    FaultyClassifier(faults, "before", "context"),
                    FaultyClassifier(faults, "beside", "context"),
                ]
            )
        self.creates = 0
        self.refused = 0
        """What the clients sent, and what went wrong with it."""

    def check(self) -> None:
        """Everyone has gone: nothing is open, and every create has left its one row."""
        assert self.engine.runs_open == len(self.services.kept)
        assert self.services.tokenise_limiter.borrowed_tokens == 0
        assert all(json.loads(state.response)["status"] == "completed" for state in self.store.saved)
        writer = self.services.post.writer
        assert (writer.waiting, writer.lost, writer.written) == (0, 0, self.creates)
        ids = [record.response_id for record in self.ledger.records if record.response_id]
        assert len(ids) == len(set(ids))
        statuses = Counter(record.status for record in self.ledger.records)
        metrics = self.services.metrics
        assert statuses["completed"] >= self.creates - self.refused
        assert (metrics.refused, metrics.failed) == (statuses["refused"], statuses["failed"])
        assert metrics.turns == len(ids)


async def work(ask: Ask) -> list[tuple[str, int, int]]:
    """Three tasks; every request that goes wrong is sent again, once. What the model said and what it was given."""
    first = await task(ask, input="go")
    second = await task(ask, input="another")
    third = await task(ask, input="go on", previous_response_id=first["id"], parallel_tool_calls=False)
    usages = [(each, each["usage"]) for each in (first, second, third)]
    return [(text_of(each), usage["input_tokens"], usage["output_tokens"]) for each, usage in usages]


async def task(ask: Ask, **fields: Any) -> Frame:
    """Creates until there is an answer, each with the outputs of the calls before it."""
    response = await insist(ask, **fields)
    while not text_of(response):
        answers = [output(made) for made in calls_of(response)]
        again = fields | {"previous_response_id": response["id"], "input": answers}
        response = await insist(ask, **again)
    return response


async def insist(ask: Ask, **fields: Any) -> Frame:
    fields = {"model": "sim", "store": True, "tools": TOOLS, **fields}
    await trio.sleep(1)  # what follows a turn has its time: rows are written, and the turn's end may break the socket
    response = await ask(**fields) or await ask(**fields)
    assert response is not None, "the same request failed twice"
    return response


class SocketClient:
    """Asks over a WebSocket; opens another one when it is closed. A pause is answered with what it asks for."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self.sockets: list[FaultySocket] = []
        self._world = world
        self._nursery = nursery
        self._over = trio.Event()
        self._over.set()
        self._has_left = False
        if isinstance(world.faults, Departure):
            world.faults.leave = self._leave

    async def ask(self, **fields: Any) -> Frame | None:
        if self._has_left:
            await self._over.wait()
        if self._over.is_set():
            self._connect()
        self._world.creates += 1
        last = await self._step(type="response.create", **fields)
        while last["type"] == "response.done":
            last = await self._step(type="response.append", input=[output(made) for made in calls_of(last["response"])])
        if last["type"] == "response.completed":
            return last["response"]
        self._world.refused += 1
        return None

    async def end(self) -> None:
        """Leave, as a client does; what was heard on each socket was whole turns, unless it broke off."""
        self._leave()
        await self._over.wait()
        for socket in self.sockets:
            assert socket.is_broken or socket.code in (NORMAL, INTERNAL)
            if socket.fault is None:
                check_frames(socket.frames, is_cut=socket.is_broken or socket is not self.sockets[-1])

    def _leave(self) -> None:
        self._has_left = True
        self.sockets[-1].leave()

    async def _step(self, **frame: Any) -> Frame:
        self.sockets[-1].say(frame)
        try:
            return (await self.sockets[-1].hear_step())[-1]
        except trio.EndOfChannel:
            await self._over.wait()
            return {"type": "the end"}

    def _connect(self) -> None:
        self._over = trio.Event()
        self._has_left = False
        self.sockets.append(FaultySocket(self._world.socket_faults))
        self._nursery.start_soon(self._serve, self.sockets[-1], self._over)

    async def _serve(self, socket: FaultySocket, over: trio.Event) -> None:
        async def run(_: Any, tenant: str) -> None:
            await Session(socket, self._world.services, tenant=tenant, stop=trio.Event()).run()

        await run_to_close(run, socket, "default")
        over.set()


def check_frames(frames: list[Frame], *, is_cut: bool) -> None:
    """Whole turns, each numbered from 0 to its one terminal, and error frames only between them."""
    turn: Replay | None = None
    for frame in frames:
        if frame["type"] == "error":
            assert turn is None, "an error frame inside a turn"
            assert frame["status"] >= 500
            continue
        turn = turn or Replay()
        turn.feed(frame)
        turn = None if turn.is_over else turn
    assert turn is None or is_cut, "a turn without a terminal"


class HttpClient:
    """Asks over HTTP, through the app and without a network."""

    def __init__(self, world: World, nursery: trio.Nursery, *, stream: bool) -> None:
        self._world = world
        self._app = make_app(world.services, HttpTurns(world.services, nursery), KeyRing({}))
        self._stream = stream

    async def ask(self, **fields: Any) -> Frame | None:
        self._world.creates += 1
        status, body = await self._send("POST", json={**fields, "stream": self._stream})
        response = json.loads(body) if status == 200 and not self._stream else None
        if status == 200 and self._stream:
            assert body.endswith("data: [DONE]\n\n")
            response = check_events(parse_sse(body))
        elif status != 200:
            assert json.loads(body)["error"]["code"], body
            assert status >= 500
        self._world.refused += response is None
        return response

    async def end(self) -> None:
        """Read and remove what was stored, asking twice if it must be."""
        for state in self._world.store.saved[-1:]:
            answers = [await self._send("GET", state.id) for _ in range(2)]
            assert state.response.decode() in [body for _, body in answers]
            assert {status for status, _ in answers} <= {200, 500}
            statuses = [(await self._send("DELETE", state.id))[0] for _ in range(2)]
            assert statuses in ([200, 404], [500, 200], [500, 404], [200, 500])

    async def _send(self, method: str, response_id: str = "", **options: Any) -> tuple[int, str]:
        path = f"/v1/responses/{response_id}".rstrip("/")
        answer = await self._app.test_client().open(path, method=method, **options)
        return answer.status_code, await answer.get_data(as_text=True)


def check_events(events: list[Frame]) -> Frame | None:
    """The completed Response of a stream; None if it failed, with an ``error`` event just before its terminal."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created"
    assert sum(kind in TERMINALS for kind in kinds) == 1
    if kinds[-1] == "response.completed":
        return events[-1]["response"]  # type: ignore[no-any-return]
    assert kinds[-2:] == ["error", "response.failed"]
    return None


CLIENTS: dict[str, tuple[Mode, Callable[[World, trio.Nursery], Any]]] = {
    "shipped": (Mode.SHIPPED, SocketClient),
    "prototype": (Mode.PROTOTYPE, SocketClient),
    "json": (Mode.SHIPPED, partial(HttpClient, stream=False)),
    "sse": (Mode.SHIPPED, partial(HttpClient, stream=True)),
}


async def one_run(part: str, way: str, faults: Faults) -> tuple[World, list[tuple[str, int, int]]]:
    """The whole story once, and the checks behind it."""
    mode, client_of = CLIENTS[way]
    world = World(part, mode, faults)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as behind:
            behind.start_soon(world.services.post.run)
            async with trio.open_nursery() as nursery:
                client = client_of(world, nursery)
                said = await work(client.ask)
                await client.end()
                await trio.testing.wait_all_tasks_blocked()
                assert not nursery.child_tasks
            world.services.post.close()
    world.check()
    return world, said


async def every_fault(part: str, way: str, fault_of: Callable[[int], Faults]) -> Counter[str]:
    """Let every single call of ``part`` go wrong, one in each run; how often each kind of call was hit."""
    _, undisturbed = await one_run(part, way, Faults(0, AssertionError))
    struck: Counter[str] = Counter()
    for nth in range(1, MOST):
        faults = fault_of(nth)
        world, said = await one_run(part, way, faults)
        assert said == undisturbed, faults.struck
        if faults.struck is None:
            assert world.refused == 0
            assert nth == faults.calls + 1
            return struck
        assert world.refused <= 1
        if part != "socket":
            assert world.refused == (faults.struck not in UNHEARD), faults.struck
        struck[faults.struck] += 1
    raise AssertionError(f"still a call to hit in run {MOST}")


def raising(*more: Callable[[], Exception]) -> Callable[[int], Faults]:
    """Faults that raise what parts of others may raise, each its own in turn."""
    errors = [*ERRORS, *more]
    return lambda nth: Faults(nth, errors[nth % len(errors)])


@pytest.mark.parametrize("way", CLIENTS)
async def test_whatever_the_engine_raises_costs_one_turn(autojump_clock: Any, way: str) -> None:
    struck = await every_fault("engine", way, raising(lambda: ModelFault("broke")))
    assert set(struck) == {"engine.open", "run.extend", "run.next", "run.discard", "run.aclose"}
    assert struck.total() > 25


@pytest.mark.parametrize("part", ["store", "late store"])
@pytest.mark.parametrize("way", CLIENTS)
async def test_whatever_the_store_raises_costs_one_turn(autojump_clock: Any, way: str, part: str) -> None:
    struck = await every_fault(part, way, raising())
    over_http = {"store.load", "store.delete", "store.touch"} if way in ("json", "sse") else set()
    assert set(struck) == {"store.load_chain", "store.save"} | over_http
    assert struck.total() >= (4 if way == "prototype" else 9)


@pytest.mark.parametrize("way", CLIENTS)
async def test_whatever_a_classifier_raises_costs_one_turn(autojump_clock: Any, way: str) -> None:
    struck = await every_fault("classifier", way, raising(ScreeningFailed))
    assert set(struck) == {"classifier.before", "classifier.beside"}
    assert struck.total() > 20


@pytest.mark.parametrize("way", CLIENTS)
async def test_a_ledger_that_cannot_be_written_disturbs_no_turn_and_gets_every_row(
    autojump_clock: Any, way: str
) -> None:
    struck = await every_fault("ledger", way, raising(lambda: LedgerError("ledger.db", "database is locked")))
    assert struck.total() >= 3


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_socket_may_break_at_any_write(autojump_clock: Any, mode: Mode) -> None:
    struck = await every_fault("socket", str(mode), lambda nth: Faults(nth, SocketClosed))
    assert set(struck) == {"socket.send_many", "socket.drain"}
    assert struck.total() > 30


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_socket_that_raises_what_no_socket_may_hurts_only_itself(autojump_clock: Any, mode: Mode) -> None:
    """A turn ends as failed where its end can be written; else the close code is 1011, and the log has the fault."""
    struck = await every_fault("socket", str(mode), raising())
    assert struck.total() > 30


@pytest.mark.parametrize("part", ["engine", "store", "classifier"])
@pytest.mark.parametrize("mode", list(Mode))
async def test_a_client_may_leave_while_the_server_waits_for_anything(
    autojump_clock: Any, mode: Mode, part: str
) -> None:
    assert (await every_fault(part, str(mode), Departure)).total() >= 4
