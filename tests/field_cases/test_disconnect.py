"""F29, F37: when the client leaves, work stops; a fault of ours hurts only its own turn."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed

from respserver.config import Config, Mode
from respserver.engines.sim import Script
from respserver.protocol import lane as lane_module
from respserver.state import ResponseState
from respserver.store.memory import MemoryStore
from tests.field_cases.conftest import DEFAULT_LANE
from tests.support.lane_wire import LaneWires, begun
from tests.support.live import PATIENCE, Wire, http, post, text_of
from tests.support.spy import Spy

LONG = Script.of("word " * 2000)


async def until(condition: Any) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.005)


@pytest.mark.parametrize("transport", ["websocket", "sse", "json"])
async def test_f29_when_the_client_leaves_work_stops(serve: Any, connect: Any, transport: str) -> None:
    spy = Spy(LONG, tps=200)
    server = await serve(engine=spy)
    response_id = ""
    if transport == "websocket":
        wire: Wire = await connect(server)
        for _ in range(3):
            await wire.create(input="go")
        frames = [await wire.frame() for _ in range(7)]
        response_id = frames[0]["response"]["id"]
        await wire.socket._stream.aclose()  # the wire is cut, no close frame
    elif transport == "sse":
        async with await raw_post(server, stream=True) as stream:
            received = b""
            with trio.fail_after(PATIENCE):
                while b"output_text.delta" not in received:
                    more = await stream.receive_some()
                    assert more, received
                    received += more
    else:
        async with await raw_post(server):
            await until(lambda: spy.sampled_tokens > 3)
    await until(lambda: spy.closed == 1)
    sampled = spy.sampled_tokens
    assert sampled < 1000
    await trio.testing.wait_all_tasks_blocked(0.02)
    assert spy.sampled_tokens == sampled
    assert len(spy.contexts) == 1
    if response_id:
        async with http(server) as client:
            assert (await client.get(f"/responses/{response_id}")).status_code == 404


@pytest.mark.parametrize("mode", list(Mode))
async def test_f29_when_the_client_leaves_the_work_of_all_its_lanes_stops(
    serve: Any, open_lanes: Any, mode: Mode
) -> None:
    spy = Spy(LONG, tps=200)
    server = await serve(engine=spy, mode=mode)
    wires: LaneWires = await open_lanes(server)
    lanes = wires.lanes(None, "plan", "risk", "cost")
    for lane in lanes:
        await lane.create(input="go")
        await lane.create(input="waits")
    await begun(lanes)
    await wires.wire.socket._stream.aclose()
    await until(lambda: spy.closed == len(lanes))
    await trio.testing.wait_all_tasks_blocked(0.02)
    assert server.metrics.turns == len(lanes)
    assert spy.sequences_open == 0


async def raw_post(server: Any, **fields: Any) -> trio.SocketStream:
    """A POST on a connection that the test can drop at any moment."""
    body = json.dumps({"model": "sim", "input": "go", **fields}).encode()
    stream = await trio.open_tcp_stream(server.address.host, server.address.port)
    head = f"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    await stream.send_all(head.encode() + b"\r\n\r\n" + body)
    return stream


class BrokenStore(MemoryStore):
    """A store whose saves or loads raise, once told to."""

    def __init__(self, broken: str) -> None:
        limits = Config().limits
        super().__init__(
            max_responses=limits.store_responses,
            max_bytes=limits.store_bytes,
            max_idle_seconds=limits.store_seconds,
            now=trio.current_time,
        )
        self.broken: str | None = broken

    async def save(self, state: ResponseState) -> None:
        if self.broken == "save":
            raise RuntimeError("the disk is on fire")
        await super().save(state)

    async def load_chain(self, response_id: str, tenant: str) -> list[ResponseState] | None:
        if self.broken == "load":
            raise RuntimeError("the disk is on fire")
        return await super().load_chain(response_id, tenant)


@pytest.mark.parametrize("transport", ["websocket", "sse", "json"])
async def test_f37_a_store_that_raises_hurts_only_its_turn(serve: Any, connect: Any, transport: str) -> None:
    store = BrokenStore("save")
    server = await serve(Script.of("fine", on_end="repeat"), store=store)
    wire: Wire = await connect(server)
    if transport == "websocket":
        frames = await wire.turn(input="go")
        assert frames[-1]["type"] == "response.failed"
        assert frames[-1]["response"]["error"]["code"] == "server_error"
        assert "fire" not in str(frames)
    else:
        answer = await post(server, input="go", stream=transport == "sse")
        assert "fire" not in answer.text
        if transport == "sse":
            assert [line for line in answer.text.split("\n") if line.startswith("event: ")][-2:] == [
                "event: error",
                "event: response.failed",
            ]
        else:
            assert answer.status_code == 500
            assert answer.json()["error"]["type"] == "server_error"
    store.broken = None
    assert text_of(await wire.completed(input="again")) == "fine"


async def test_f37_a_store_that_cannot_load_is_one_error_frame(serve: Any, connect: Any) -> None:
    store = BrokenStore("load")
    wire: Wire = await connect(await serve(Script.of("fine"), store=store))
    error = await wire.refused(previous_response_id="resp_x", input="go")
    assert (error["status"], error["error"]["code"]) == (500, "server_error")
    await wire.completed(input="next")


@DEFAULT_LANE
async def test_f37_resets_in_mid_turn_leave_the_others_alone(serve: Any, connect: Any, capfd: Any) -> None:
    spy = Spy(LONG, tps=2000)
    server = await serve(engine=spy)
    steady: Wire = await connect(server)
    await steady.create(input="go")
    for _ in range(20):
        victim: Wire = await connect(server)
        await victim.create(input="go")
        await victim.frame()
        await victim.socket._stream.aclose()
    frames = await steady.frames()
    assert frames[-1]["type"] == "response.completed"
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    await (await connect(server)).create(input="still accepting")
    assert "Traceback" not in capfd.readouterr().err


async def failure_or_close_code(wire: Wire) -> str | int:
    try:
        while (frame := await wire.frame())["type"] != "response.failed":
            pass
    except ConnectionClosed as closed:
        return int(closed.reason.code)
    return str(frame["type"])


@pytest.mark.parametrize("transport", ["websocket", "sse", "json"])
@pytest.mark.parametrize("at", ["created", "delta", "completed"])
async def test_f37_an_encoder_that_raises_hurts_only_its_connection(
    serve: Any, connect: Any, transport: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Script.of("some words", on_end="repeat"))
    other: Wire = await connect(server)
    wire: Wire = await connect(server)
    broken = {"created": "response.created", "delta": "response.output_text.delta", "completed": "response.completed"}
    whole = lane_module.encode

    def encode(value: Any) -> bytes:
        if getattr(value, "__struct_config__", None) and value.__struct_config__.tag == broken[at]:
            raise RuntimeError("no words for this")
        return whole(value)

    monkeypatch.setattr(lane_module, "encode", encode)
    if transport == "websocket":
        await wire.create(input="go")
        assert await failure_or_close_code(wire) in ("response.failed", 1011)
    else:
        answer = await post(server, input="go", stream=transport == "sse")
        assert answer.status_code in (200, 500)
        assert "no words" not in answer.text
    monkeypatch.undo()
    assert text_of(await other.completed(input="still here")) == "some words"
    assert text_of((await post(server, input="me too")).json()) == "some words"
