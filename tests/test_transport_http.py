"""The turns of HTTP requests: what a shutdown waits for, and readers that leave or lag."""

from __future__ import annotations

import json
from typing import Any

import trio
import trio.testing

from respserver.config import Config, Limits
from respserver.embed import make_server
from respserver.engines.sim import Script, delay
from respserver.errors import ShuttingDown
from respserver.schema.codec import read_object
from respserver.transport.http import HttpTurns, SsePort
from respserver.turn.run import TurnResult
from respserver.turn.services import Services
from respserver.turn.stopwatch import Stopwatch

STREAM = json.dumps({"model": "sim", "input": "go", "stream": True}).encode()


class HeldNursery:
    """Stands in for the server's nursery: its tasks are started when the test says so."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._held: list[tuple[Any, ...]] = []

    def start_soon(self, *task: Any) -> None:
        self._held.append(task)

    def release(self) -> None:
        for task in self._held:
            self._nursery.start_soon(*task)


def services(script: Script, **limits: Any) -> Services:
    return make_server(Config(port=0, limits=Limits(**limits)), script=script).services


async def ask(turns: HttpTurns) -> TurnResult | SsePort:
    return await turns.run(read_object(STREAM), tenant="", request_id="req_1", watch=Stopwatch(trio.current_time))


async def test_a_shutdown_waits_for_a_stream_whose_task_has_not_run_yet(nursery: trio.Nursery) -> None:
    held = HeldNursery(nursery)
    turns = HttpTurns(services(Script.of("fine")), held)  # type: ignore[arg-type]  # only start_soon is used
    nursery.start_soon(ask, turns)
    await trio.testing.wait_all_tasks_blocked()
    over = trio.Event()

    async def shut_down() -> None:
        await turns.shut_down(ShuttingDown(), grace=0.0)
        over.set()

    nursery.start_soon(shut_down)
    await trio.testing.wait_all_tasks_blocked()
    assert not over.is_set()
    held.release()
    with trio.fail_after(5):
        await over.wait()


async def test_a_client_that_leaves_before_the_first_event_ends_its_turn(nursery: trio.Nursery) -> None:
    held = HeldNursery(nursery)
    turns = HttpTurns(services(Script.of("never seen")), held)  # type: ignore[arg-type]  # only start_soon is used
    with trio.CancelScope() as client:
        nursery.start_soon(_leave, client)
        await ask(turns)
    assert client.cancelled_caught
    held.release()
    with trio.fail_after(5):
        await turns.shut_down(ShuttingDown(), grace=5.0)


async def test_a_lagging_reader_holds_its_turn_and_gets_everything(nursery: trio.Nursery) -> None:
    turns = HttpTurns(services(Script.of("word " * 3000), outbox_bytes=4096), nursery)
    stream = await ask(turns)
    assert isinstance(stream, SsePort)
    assert await stream.next_chunk() is not None
    await trio.testing.wait_all_tasks_blocked()
    held = await stream.next_chunk()
    assert held is not None
    assert 4096 < len(held) < 20_000
    rest = b""
    while (chunk := await stream.next_chunk()) is not None:
        rest += chunk
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b"event: response.completed" in rest


async def test_the_first_events_leave_before_anything_is_tokenised(nursery: trio.Nursery) -> None:
    parts = services(Script.of("at once"))
    stream = await ask(HttpTurns(parts, nursery))
    assert isinstance(stream, SsePort)
    await trio.testing.wait_all_tasks_blocked()
    assert parts.metrics.bytes_tokenised == 0
    first = await stream.next_chunk()
    assert first is not None
    assert first.count(b"event: ") == 2
    rest = b""
    while (chunk := await stream.next_chunk()) is not None:
        rest += chunk
    assert rest.startswith(b"event: response.output_item.added\n")


async def test_silence_is_filled_with_comment_lines(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        made = make_server(Config(port=0, sse_keepalive_seconds=5.0), script=Script.of([delay(12.0), "late"]))
        stream = await ask(HttpTurns(made.services, nursery))
        assert isinstance(stream, SsePort)
        chunks = []
        while (chunk := await stream.next_chunk()) is not None:
            chunks.append(chunk)
    assert chunks.count(b": keep-alive\n\n") == 2


async def _leave(client: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    client.cancel()
