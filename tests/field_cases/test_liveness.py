"""F28: silence of the model is not the death of the connection. F36: a server that writes goes on reading."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Config, Limits, Mode
from respserver.engines.sim import Script, call, delay
from respserver.message_socket import Socket
from respserver.services import build_services
from respserver.session import Session
from tests.support.live import Wire, http, text_of, tool
from tests.support.raw_websocket import CLOSE, PING, PONG, TEXT, RawClient, client_frame, close_frame
from tests.support.roads import ROADS, RawWire, raw_wire
from tests.support.spy import Spy
from tests.support.websocket_host import client_of

ONE_SECOND = 1.0
"""In which a life sign must be answered, whatever the server is doing."""
TOOLS = [tool("lookup_tide")]


async def until_closed(spy: Spy, count: int = 1) -> None:
    """Wait until the engine's runs are freed, which is what the end of a turn or of a connection comes to."""
    while spy.closed < count:
        await trio.sleep(0.001)


# ------------------------------------------------------------------------------------------------------------ F28


@pytest.mark.parametrize("mode", list(Mode))
async def test_f28_a_silent_model_is_announced_at_once_and_the_silence_holds_pings_alone(
    serve: Any, mode: Mode, lane: str | None
) -> None:
    spy = Spy(Script.of("At last."))
    spy.gate = trio.Event()
    server = await serve(engine=spy, mode=mode, limits={"ping_seconds": 0.02})
    async with raw_wire(server, lane=lane) as client:
        with trio.fail_after(ONE_SECOND):
            await client.create(input="x" * 10_000)  # would be tokenised in a thread
            begun = [await client.message(), await client.message()]
        assert [frame["type"] for frame in begun] == ["response.created", "response.in_progress"]
        theirs = 0
        for number in range(3):
            await client.stream.send_all(client_frame(PING, b"ours %d" % number))
            with trio.fail_after(ONE_SECOND):
                theirs += await pings_until_pong(client, b"ours %d" % number)
        with trio.fail_after(ONE_SECOND):
            while theirs < 3:
                theirs += await answer_a_ping(client)
        spy.gate.set()
        frames = begun + await client.until("response.completed")
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert text_of(frames[-1]["response"]) == "At last."


async def pings_until_pong(client: RawWire, payload: bytes) -> int:
    """How many of the server's pings came before our pong. Nothing else may come."""
    pings = 0
    while (frame := await client.frame()).opcode != PONG:
        assert frame.opcode == PING, frame
        await client.stream.send_all(client_frame(PONG, frame.payload))
        pings += 1
    assert frame.payload == payload
    return pings


async def answer_a_ping(client: RawWire) -> int:
    frame = await client.frame()
    assert frame.opcode == PING, frame
    await client.stream.send_all(client_frame(PONG, frame.payload))
    return 1


async def test_f28_a_silent_model_is_announced_at_once_over_sse_too(serve: Any) -> None:
    spy = Spy(Script.of("At last."))
    spy.gate = trio.Event()
    server = await serve(engine=spy, sse_keepalive_seconds=0.02)
    request = {"model": "sim", "input": "x" * 10_000, "stream": True}
    async with http(server) as client, client.stream("POST", "/responses", json=request) as answer:
        lines = answer.aiter_lines()
        with trio.fail_after(ONE_SECOND):
            seen = [await anext(lines) for _ in range(6)]
        assert seen[0::3] == ["event: response.created", "event: response.in_progress"]
        with trio.fail_after(ONE_SECOND):
            silence = {await anext(lines) for _ in range(6)}
        assert silence == {": keep-alive", ""}  # comments, which no parser makes an event of
        spy.gate.set()
        rest = [line async for line in lines]
    assert "event: response.completed" in rest


# ------------------------------------------------------------------------------------------------------------ F36

BUSY = ["streaming", "silent", "suspended"]


@asynccontextmanager
async def busy_wire(serve: Any, road: str, state: str, lane: str | None) -> AsyncIterator[tuple[RawWire, Spy, Any]]:
    """A connection whose turn would go on for ten seconds or more."""
    mode = Mode.PROTOTYPE if state == "suspended" else Mode.SHIPPED
    step = call("lookup_tide") if state == "suspended" else "word " * 2000
    spy = Spy(Script.of(step), tps=0.0 if state == "suspended" else 200.0)
    if state == "silent":
        spy.gate = trio.Event()
    server = await serve(engine=spy, mode=mode)
    async with raw_wire(server, road, lane) as client:
        await client.create(input="go", tools=TOOLS, store=True)
        last = {"streaming": "response.output_text.delta", "silent": "response.in_progress"}
        begun = await client.until(last.get(state, "response.done"))
        yield client, spy, (server, begun[0]["response"]["id"])


@pytest.mark.parametrize("state", BUSY)
@pytest.mark.parametrize("road", ROADS)
async def test_f36_a_busy_server_takes_forty_frames_a_ping_and_a_close(
    serve: Any, road: str, state: str, lane: str | None
) -> None:
    async with busy_wire(serve, road, state, lane) as (client, spy, (server, response_id)):
        for number in range(40):
            await client.send(json.dumps({"type": f"unknown.{number}"}))
        await client.stream.send_all(client_frame(PING, b"still there?"))
        errors = []
        with trio.fail_after(ONE_SECOND):
            pong = None
            while pong is None or len(errors) < 40:
                frame = await client.frame()
                if frame.opcode == PONG:
                    pong = frame.payload
                elif b'"type":"error"' in frame.payload:
                    errors.append(json.loads(frame.payload)["error"]["message"])
        assert pong == b"still there?"
        assert all(f"'unknown.{number}'" in message for number, message in enumerate(errors)), errors
        await client.stream.send_all(close_frame(1000))
        with trio.fail_after(ONE_SECOND):
            frame = await client.frame()
            while frame.opcode != CLOSE:
                assert frame.opcode == TEXT  # what was on its way
                frame = await client.frame()
            assert frame.payload[:2] == (1000).to_bytes(2, "big")
            await until_closed(spy)
        sampled = spy.sampled_tokens
        async with http(server) as requests:
            assert (await requests.get(f"/responses/{response_id}")).status_code == 404
        assert spy.sampled_tokens == sampled < 1000


async def test_f36_an_idle_peer_that_vanished_is_dropped_after_the_time_for_ping_and_pong(
    serve: Any, connect: Any
) -> None:
    spy = Spy(Script.of("Hello.", on_end="repeat"))
    server = await serve(engine=spy, limits={"ping_seconds": 0.05, "pong_seconds": 0.1, "kept_contexts": 0})
    other: Wire = await connect(server)  # its library answers pings
    async with raw_wire(server, lane=other.lane) as client:
        await client.create(input="go")
        await client.until("response.completed")
        began = trio.current_time()
        assert await client.closed() is None  # it answers no ping, and is dropped without a word
        assert 0.1 <= trio.current_time() - began < 0.15 + ONE_SECOND
        with trio.fail_after(ONE_SECOND):
            await until_closed(spy)  # what its connection kept is freed
    assert text_of(await other.completed(input="still here")) == "Hello."


@asynccontextmanager
async def session_of(script: Script, lane: str | None) -> AsyncIterator[RawWire]:
    """A session behind a real WebSocket on a stream without a network, so that its hours can pass at once."""
    services = build_services(Config(limits=Limits()), script=script)

    async def run(socket: Socket, admitted: str) -> None:
        await Session(socket, services, tenant=admitted, stop=trio.Event()).run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(services.post.run)
        async with client_of(run, limits=services.config.limits) as client:
            await client.open()
            wire = RawWire(client.stream)
            wire.lane = lane
            yield wire
        nursery.cancel_scope.cancel()


async def test_f36_a_keep_alive_of_20_seconds_never_trips_in_a_turn_of_half_an_hour(
    autojump_clock: trio.testing.MockClock, lane: str | None
) -> None:
    """As client libraries do it: a ping every 20 s, and 20 s for the answer; the server's own pings go on beside."""
    script = Script.of([delay(1800), "At last."])
    async with session_of(script, lane) as client:
        pongs, texts = trio.open_memory_channel[bytes](1), []

        async def read() -> None:
            while not texts or texts[-1]["type"] != "response.completed":
                frame = await client.frame()
                if frame.opcode == PING:
                    await client.stream.send_all(client_frame(PONG, frame.payload))
                elif frame.opcode == PONG:
                    await pongs[0].send(frame.payload)
                else:
                    assert frame.opcode == TEXT
                    texts.append(json.loads(frame.payload))
            nursery.cancel_scope.cancel()

        await client.create(input="go")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for number in range(1000):
                await client.stream.send_all(client_frame(PING, b"%d" % number))
                with trio.fail_after(20):
                    assert await pongs[1].receive() == b"%d" % number
                await trio.sleep(20)
    assert number >= 80
    assert text_of(texts[-1]["response"]) == "At last."


async def test_f36_a_peer_that_vanishes_in_the_silence_of_a_turn_is_dropped_in_40_seconds(
    autojump_clock: trio.testing.MockClock, lane: str | None
) -> None:
    async with session_of(Script.of([delay(1800), "Nobody hears this."]), lane) as client:
        await client.create(input="go")
        began = trio.current_time()
        assert await RawClient(client.stream).closed() is None
        assert trio.current_time() - began == pytest.approx(40, abs=1)
