"""F38: the server is stopped, by a signal or from code, with one client of each kind connected."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from trio_websocket import ConnectionClosed

from respserver.config import Config, Limits, Mode
from respserver.embed import make_server, running_server, start_server
from respserver.engines.sim import Script, call
from tests.field_cases.conftest import DEFAULT_LANE
from tests.support.lane_wire import LaneWires, begun
from tests.support.live import PATIENCE, TERMINALS, Frame, Wire, calls_of, http, open_wire, parse_sse, tool
from tests.support.process import Process
from tests.support.roads import LATE, raw_wire
from tests.support.sdk import check_frame

pytestmark = pytest.mark.slow

GRACE = 0.8
LONG = "word " * 5000
"""At 100 tokens a second, far longer than any grace time."""
TOLERANCE = 0.4
"""What a loaded machine may take to do a thing "at once"."""


class Place(NamedTuple):
    """Where a server listens, whoever runs it."""

    base_url: str
    ws_url: str
    port: int


class Stopped(NamedTuple):
    """When the server was told to stop and when it had ended, by the test's clock."""

    at: float
    ended: float


class Seen:
    """What the clients saw, and when."""

    def __init__(self) -> None:
        self.frames: dict[str, list[tuple[float, Frame]]] = {}
        self.closed: dict[str, tuple[float, int]] = {}
        self.sse: list[Frame] = []
        self.sse_end = 0.0

    def since(self, name: str, moment: float) -> list[Frame]:
        return [frame for at, frame in self.frames[name] if at >= moment]


Stop = Callable[[], Awaitable[Stopped]]


async def crowd(place: Place, stop: Stop, lane: str | None) -> tuple[Seen, Stopped]:
    """An idle socket, a streaming one with a create that waits behind it, a streaming response over SSE: then stop."""
    seen = Seen()
    async with trio.open_nursery() as nursery:
        streams = await nursery.start(socket_client, place, seen, "streaming", 2, lane)
        await nursery.start(socket_client, place, seen, "idle", 0, lane)
        with trio.fail_after(PATIENCE):
            await nursery.start(sse_client, place, seen)
            await streams.wait()
        stopped = await stop()
    return seen, stopped


async def socket_client(
    place: Place,
    seen: Seen,
    name: str,
    creates: int,
    lane: str | None,
    task_status: trio.TaskStatus[trio.Event],
) -> None:
    """Create, then note every frame until the close."""
    streams = trio.Event()
    async with open_wire(place.ws_url, lane=lane) as wire:
        seen.frames[name] = []
        for _ in range(creates):
            await wire.create(input="go")
        task_status.started(streams)
        try:
            while True:
                frame = await wire.frame()
                seen.frames[name].append((trio.current_time(), frame))
                if frame["type"] == "response.output_text.delta":
                    streams.set()
        except ConnectionClosed as closed:
            seen.closed[name] = trio.current_time(), closed.reason.code


async def sse_client(place: Place, seen: Seen, task_status: trio.TaskStatus[None]) -> None:
    """A stream, read to its end; it counts as started with its first piece of text."""
    text = ""
    request = {"model": "sim", "input": "go", "stream": True}
    async with http(place) as client, client.stream("POST", "/responses", json=request) as answer:
        async for chunk in answer.aiter_text():
            if "output_text.delta" not in text and "output_text.delta" in text + chunk:
                task_status.started()
            text += chunk
    assert text.endswith("data: [DONE]\n\n")
    seen.sse, seen.sse_end = parse_sse(text), trio.current_time()


async def refused(place: Place) -> None:
    """New connections are refused: by nobody listening."""
    with pytest.raises(OSError):
        await trio.open_tcp_stream("127.0.0.1", place.port)


def judge(seen: Seen, stopped: Stopped) -> None:
    """What F38 asks of everybody."""
    at, ended = stopped
    assert ended - at < GRACE + 1

    assert seen.frames["idle"] == []
    closed_at, code = seen.closed["idle"]
    assert code == 1001
    assert closed_at - at < TOLERANCE < GRACE  # it has nothing to wait for

    frames = [frame for _, frame in seen.frames["streaming"]]
    for frame in frames:
        if frame["type"] != "response.failed":  # its code is one of ours, which the SDK's types do not list
            check_frame(frame)
    later = seen.since("streaming", at + GRACE / 2)
    assert "response.output_text.delta" in [frame["type"] for frame in later]  # it goes on in its grace time
    turn = [frame for frame in frames if frame["type"] != "error"]
    assert [frame["sequence_number"] for frame in turn] == list(range(len(turn)))
    assert [frame["type"] for frame in turn if frame["type"] in TERMINALS] == [turn[-1]["type"]] == ["response.failed"]
    assert turn[-1]["response"]["error"]["code"] == "server_shutting_down"
    assert [item["status"] for item in turn[-1]["response"]["output"]] == ["incomplete"]
    (error,) = [frame for frame in frames if frame["type"] == "error"]  # the create that waited
    assert (error["status"], error["error"]["code"]) == (503, "server_shutting_down")
    closed_at, code = seen.closed["streaming"]
    assert code == 1001
    assert GRACE <= closed_at - at < GRACE + 1

    assert [frame["type"] for frame in seen.sse[-2:]] == ["error", "response.failed"]
    assert seen.sse[-1]["response"]["error"]["code"] == "server_shutting_down"
    assert [frame["sequence_number"] for frame in seen.sse] == list(range(len(seen.sse)))
    assert GRACE <= seen.sse_end - at < GRACE + 1


@pytest.mark.parametrize("mode", list(Mode))
async def test_f38_stopped_from_code_everybody_is_told_in_order(mode: Mode, lane: str | None) -> None:
    config = Config(port=0, mode=mode, tps=100.0, limits=Limits(grace_seconds=GRACE))
    server = make_server(config, script=Script.of(LONG))
    ended = trio.Event()

    async def serve(task_status: trio.TaskStatus[Any]) -> None:
        await server.serve(task_status.started)
        ended.set()

    async def stop() -> Stopped:
        at = trio.current_time()
        server.stop.set()
        await trio.sleep(0.02)
        await refused(place)
        with trio.fail_after(PATIENCE):
            await ended.wait()
        return Stopped(at, trio.current_time())

    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve)
        place = Place(address.base_url, address.ws_url, address.port)
        judge(*await crowd(place, stop, lane))


@DEFAULT_LANE
async def test_f38_stopped_by_a_signal_everybody_is_told_in_order(tmp_path: Path, lane: str | None) -> None:
    script = tmp_path / "script.toml"
    script.write_text(f'[[step]]\ntext = "{LONG}"\n', "utf-8")
    options = ("--grace-seconds", str(GRACE), "--tps", "100", "--script", str(script))
    server = await trio.to_thread.run_sync(partial(Process, tmp_path, *options))
    place = Place(server.ready["base_url"], server.ready["ws_url"], server.ready["port"])

    async def stop() -> Stopped:
        at = trio.current_time()
        server.process.send_signal(signal.SIGTERM)
        await trio.sleep(TOLERANCE)
        await refused(place)
        assert await trio.to_thread.run_sync(server.process.wait, PATIENCE) == 0
        return Stopped(at, trio.current_time())

    try:
        judge(*await crowd(place, stop, lane))
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()


@DEFAULT_LANE
async def test_f38_a_server_in_a_thread_tells_everybody_too(lane: str | None) -> None:
    config = Config(port=0, tps=100.0, limits=Limits(grace_seconds=GRACE))
    opened = start_server(config, script=Script.of(LONG))
    running = opened.__enter__()
    place = Place(running.base_url, running.ws_url, running.address.port)

    async def stop() -> Stopped:
        at = trio.current_time()
        await trio.to_thread.run_sync(opened.__exit__, None, None, None)
        await refused(place)
        return Stopped(at, trio.current_time())

    judge(*await crowd(place, stop, lane))


async def test_f38_a_suspended_rollout_has_its_grace_for_the_outputs_and_then_a_terminal(lane: str | None) -> None:
    config = Config(port=0, mode=Mode.PROTOTYPE, limits=Limits(grace_seconds=GRACE))
    server = make_server(config, script=Script.of(call("lookup_tide"), "High water."))
    tools = [tool("lookup_tide")]
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_until_stopped, server)
        async with open_wire(address.ws_url, lane=lane) as answers, open_wire(address.ws_url, lane=lane) as is_silent:
            pauses = [(await wire.turn(input="tide?", tools=tools))[-1] for wire in (answers, is_silent)]
            assert [pause["type"] for pause in pauses] == ["response.done"] * 2
            stopped = trio.current_time()
            server.stop.set()
            await trio.sleep(GRACE / 5)
            (made,) = calls_of(pauses[0]["response"])
            await answers.append([{"type": "function_call_output", "call_id": made["call_id"], "output": "06:00"}])
            assert (await answers.frames())[-1]["type"] == "response.completed"
            assert await close_code(answers) == 1001
            assert trio.current_time() - stopped < GRACE
            failed = (await is_silent.frames())[-1]
            assert failed["response"]["error"]["code"] == "server_shutting_down"
            assert await close_code(is_silent) == 1001


@pytest.mark.parametrize("mode", list(Mode))
async def test_f38_every_lane_is_told(mode: Mode) -> None:
    config = Config(port=0, mode=mode, tps=5.0, limits=Limits(grace_seconds=GRACE))
    server = make_server(config, script=Script.of(LONG))
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_until_stopped, server)
        async with open_wire(address.ws_url) as wire:
            wires = LaneWires(wire)
            lanes = wires.lanes(None, *(f"lane-{number}" for number in range(20)))
            running = lanes[: config.limits.connection_active_turns]
            for lane in running:
                await lane.create(input="go")
            await begun(running)
            for lane in [*lanes, *lanes[len(running) :]]:
                await lane.create(input="waits")
            await lanes[0].send({"type": "are.you.there"})
            while (await lanes[0].frame())["type"] != "error":  # until the server has read them all
                pass
            server.stop.set()
            for lane in lanes:
                ends = 1 if lane in running else 2  # the others wait for a place with both
                told = [frame for frame in await until_closed(lane) if frame["type"] in {"error", *TERMINALS}]
                assert [frame["type"] for frame in told].count("error") == ends
                codes = {(frame.get("error") or frame["response"]["error"])["code"] for frame in told}
                assert (len(told), codes) == (2, {"server_shutting_down"})


async def until_closed(lane: Wire) -> list[Frame]:
    """The rest of a lane's frames, when the server has closed the socket with 1001."""
    frames, code = [], 0
    try:
        while not code:
            frames.append(await lane.frame())
    except ConnectionClosed as closed:
        code = closed.reason.code
    assert code == 1001
    return frames


async def test_f38_sockets_behind_a_request_on_their_connection_are_told_like_the_others(lane: str | None) -> None:
    config = Config(port=0, tps=100.0, limits=Limits(grace_seconds=GRACE))
    server = make_server(config, script=Script.of(LONG))
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_until_stopped, server)
        running = running_server(server, address)
        async with raw_wire(running, LATE, lane) as idle, raw_wire(running, LATE, lane) as busy:
            await busy.create(input="go")
            await busy.until("response.output_text.delta")
            stopped = trio.current_time()
            server.stop.set()
            assert await idle.close_code() == 1001
            assert trio.current_time() - stopped < TOLERANCE
            failed = (await busy.until(*TERMINALS))[-1]
            assert failed["response"]["error"]["code"] == "server_shutting_down"
            assert await busy.close_code() == 1001
    assert GRACE <= trio.current_time() - stopped < GRACE + 1


async def serve_until_stopped(server: Any, task_status: trio.TaskStatus[Any]) -> None:
    await server.serve(task_status.started)


async def close_code(wire: Wire) -> int:
    with trio.fail_after(PATIENCE), pytest.raises(ConnectionClosed) as caught:
        await wire.socket.get_message()
    code: int = caught.value.reason.code
    return code
