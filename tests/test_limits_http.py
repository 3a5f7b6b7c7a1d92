"""Turns over HTTP that wait for one of the process's slots: served in their turn, refused as JSON, forgotten."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from respserver.engines.sim import Script
from respserver.errors import ApiError, ShuttingDown
from respserver.schema.codec import read_object
from respserver.transport.http import HttpTurns, SsePort
from respserver.turn.run import TurnResult
from respserver.turn.stopwatch import Stopwatch
from tests.support.live import Wire, post
from tests.support.spy import Spy
from tests.support.talk import services, settled, spy_of


@pytest.fixture
async def turns(nursery: trio.Nursery) -> HttpTurns:
    return HttpTurns(services(Script.of("fine", on_end="repeat"), active_turns=1, grace_seconds=10.0), nursery)


class Request:
    """One request of a client, and what came of it. A stream is read to its end."""

    def __init__(self, nursery: trio.Nursery, turns: HttpTurns, *, stream: bool) -> None:
        self.outcome: TurnResult | SsePort | ApiError | None = None
        self.events = b""
        self.scope = trio.CancelScope()
        body = msgspec.json.encode({"model": "sim", "input": "go", "stream": stream})
        nursery.start_soon(self._run, turns, body)

    async def _run(self, turns: HttpTurns, body: bytes) -> None:
        with self.scope:
            try:
                watch = Stopwatch(trio.current_time)
                outcome = await turns.run(read_object(body), tenant="", request_id=f"req_{id(self)}", watch=watch)
                failed = isinstance(outcome, TurnResult) and outcome.error
                self.outcome = failed or outcome
                while isinstance(outcome, SsePort) and (chunk := await outcome.next_chunk()) is not None:
                    self.events += chunk
            except ApiError as error:
                self.outcome = error


@pytest.fixture(params=[False, True], ids=["json", "sse"])
async def line(request: Any, nursery: trio.Nursery, turns: HttpTurns) -> tuple[Request, Request, trio.Event]:
    """A request that runs, one that waits for its slot, and the gate that holds the model back."""
    parts = turns._services
    spy_of(parts).gate = gate = trio.Event()
    nursery.start_soon(parts.post.run)
    runs = Request(nursery, turns, stream=request.param)
    await settled()
    waits = Request(nursery, turns, stream=request.param)
    await settled()
    assert (parts.slots.active, parts.slots.waiting, waits.outcome) == (1, 1, None)
    return runs, waits, gate


async def test_a_request_waits_for_its_slot_without_an_answer(line: Any, turns: HttpTurns) -> None:
    runs, waits, gate = line
    gate.set()
    await settled()
    for request in (runs, waits):
        if isinstance(request.outcome, SsePort):
            assert b"event: response.completed" in request.events
        else:
            assert request.outcome.response.status == "completed"
    assert turns._services.slots.active == 0


async def test_a_client_that_hangs_up_while_it_waits_is_forgotten(line: Any, turns: HttpTurns) -> None:
    _, waits, gate = line
    waits.scope.cancel()
    await settled()
    assert (turns._services.slots.active, turns._services.slots.waiting) == (1, 0)
    gate.set()
    await settled()
    assert (turns._services.slots.active, waits.outcome) == (0, None)


async def test_a_shutdown_refuses_a_request_that_waits_for_its_slot_at_once(
    line: Any, turns: HttpTurns, nursery: trio.Nursery
) -> None:
    runs, waits, gate = line
    nursery.start_soon(turns.shut_down, ShuttingDown(), 1000.0)
    await settled()
    assert isinstance(waits.outcome, ShuttingDown)
    gate.set()
    await settled()
    assert not isinstance(runs.outcome, ApiError)
    assert turns._services.slots.active == 0


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_too_many_gets_429_and_json_with_a_retry_hint(serve: Any, connect: Any, stream: bool) -> None:
    spy = Spy(Script.of("fine", on_end="repeat"))
    spy.gate = trio.Event()
    server = await serve(engine=spy, limits={"active_turns": 1, "waiting_turns": 0})
    wire: Wire = await connect(server)
    await wire.create(input="first")
    assert (await wire.frame())["type"] == "response.created"
    refused = await post(server, input="second", stream=stream)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["code"] == "server_busy"
    spy.gate.set()
    await wire.frames()
    assert (await post(server, input="third")).status_code == 200
