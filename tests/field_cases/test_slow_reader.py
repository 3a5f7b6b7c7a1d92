"""F35: a client that stops reading costs a bounded amount of memory for a bounded time, and nobody else anything."""

from __future__ import annotations

import json
import socket
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
import trio

from respserver.config import Mode
from respserver.embed import RunningServer
from respserver.engines.sim import Script, conversation
from tests.field_cases.conftest import DEFAULT_LANE
from tests.support.live import PATIENCE, Wire, addressed, text_of
from tests.support.raw_websocket import TEXT, client_frame, request
from tests.support.spy import Spy

pytestmark = pytest.mark.slow

EVENT_BYTES = 200
"""The least that one token's event takes on the wire."""
REQUEST = {"type": "response.create", "model": "sim", "input": "flood", "stream": True}
KERNEL_BYTES = 1 << 20
"""What the sockets' own buffers may take beside ours, when the client's is small."""
MIB = 1 << 20


def flood(words: int) -> Spy:
    """A model that floods whoever asks for it, and greets everybody else."""
    return Spy(Script(conversations=(conversation("word " * words, user="flood"), conversation("Hello."))))


@asynccontextmanager
async def flooded(
    server: RunningServer, transport: str, lane: str | None, read: int
) -> AsyncIterator[trio.SocketStream]:
    """A client that asks for the flood, reads so many bytes of it and then reads no more."""
    raw = trio.socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await raw.connect(("127.0.0.1", server.address.port))
    async with trio.SocketStream(raw) as stream:
        if transport == "websocket":
            await stream.send_all(request() + frame_of(lane))
        else:
            body = json.dumps(REQUEST).encode()
            head = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            await stream.send_all(head + body)
        seen = 0
        while seen < read:
            data = await stream.receive_some(1 << 20)
            assert data
            seen += len(data)
        yield stream


def frame_of(lane: str | None) -> bytes:
    return client_frame(TEXT, json.dumps(addressed(REQUEST, lane)).encode())


class Neighbour:
    """Client B: ordinary turns one after the other, and how long each took."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.seconds: list[float] = []
        self.tokens = 0

    async def turn(self) -> None:
        began = trio.current_time()
        response = await self.wire.completed(input="hi")
        self.seconds.append(trio.current_time() - began)
        self.tokens += response["usage"]["output_tokens"]
        assert text_of(response) == "Hello."

    def median(self, start: int = 0) -> float:
        return statistics.median(self.seconds[start:])


async def read_to_the_end(stream: trio.SocketStream) -> tuple[bytes, bool]:
    """What still comes, and whether the connection was reset behind it."""
    received = b""
    try:
        while data := await stream.receive_some(1 << 20):
            received += data
    except trio.BrokenResourceError:
        return received, True
    return received, False


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_f35_a_client_that_stops_reading_is_waited_for_within_bounds_and_then_dropped(
    serve: Any, connect: Any, transport: str, lane: str | None
) -> None:
    words, stall, limit = 20_000, 0.4, 64 << 10
    spy = flood(words)
    server = await serve(engine=spy, limits={"outbox_bytes": limit, "write_seconds": stall})
    neighbour = Neighbour(await connect(server))
    for _ in range(20):
        await neighbour.turn()
    with trio.fail_after(10):
        async with flooded(server, transport, lane, read=32 << 10) as stream:
            stopped, before = trio.current_time(), len(neighbour.seconds)
            assert spy.sequences_open == 2
            while spy.sequences_open == 2:
                await neighbour.turn()
                await trio.sleep(0.005)
            assert stall <= trio.current_time() - stopped < stall + 1  # dropped in its time, and the turn cancelled
            made = (spy.sampled_tokens - neighbour.tokens) * EVENT_BYTES
            assert made < 4 * limit + KERNEL_BYTES < words * EVENT_BYTES / 2
            assert neighbour.median(before) < 5 * neighbour.median() + 0.01
            rest, was_reset = await read_to_the_end(stream)
    assert was_reset
    assert b"response.completed" not in rest
    assert b"[DONE]" not in rest
    assert server.metrics.turns == len(neighbour.seconds) + 1
    await neighbour.turn()


@pytest.mark.parametrize("mode", list(Mode))
async def test_f35_creates_that_wait_behind_a_flood_that_nobody_reads_go_with_it(
    serve: Any, connect: Any, mode: Mode, lane: str | None
) -> None:
    spy = flood(20_000)
    server = await serve(engine=spy, mode=mode, limits={"outbox_bytes": 64 << 10, "write_seconds": 0.3})
    neighbour = Neighbour(await connect(server))
    await neighbour.turn()
    with trio.fail_after(10):
        async with flooded(server, "websocket", lane, read=0) as stream:
            await stream.send_all(frame_of(lane) * 5)
            while spy.sequences_open < 2:
                await trio.sleep(0.001)
            while spy.sequences_open == 2:
                await trio.sleep(0.005)
    await neighbour.turn()
    assert server.metrics.turns == 3


@DEFAULT_LANE
async def test_f35_floods_on_many_lanes_that_nobody_reads_share_the_bound_of_their_socket(
    serve: Any, connect: Any
) -> None:
    words, lanes, limit = 20_000, 8, 64 << 10
    spy = flood(words)
    server = await serve(engine=spy, limits={"outbox_bytes": limit, "write_seconds": 0.4})
    neighbour = Neighbour(await connect(server))
    await neighbour.turn()
    with trio.fail_after(PATIENCE):
        async with flooded(server, "websocket", "lane-0", read=0) as stream:
            for number in range(1, lanes):
                await stream.send_all(frame_of(f"lane-{number}"))
            while server.metrics.turns < 1 + lanes or spy.sampled_tokens == neighbour.tokens:
                await trio.sleep(0.001)
            while spy.sequences_open > 1:
                await neighbour.turn()
                await trio.sleep(0.005)
            made = (spy.sampled_tokens - neighbour.tokens) * EVENT_BYTES
            assert made < 4 * limit + KERNEL_BYTES < words * EVENT_BYTES / 2
    await neighbour.turn()


@pytest.mark.full
@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_f35_in_a_turn_of_200_mb_memory_does_not_grow_for_a_client_that_stopped(
    serve: Any, connect: Any, transport: str, lane: str | None
) -> None:
    """With the default bounds, and in bytes of this process, which the client reads in as well."""
    words = 200_000_000 // EVENT_BYTES
    spy = flood(words)
    server = await serve(engine=spy, limits={"write_seconds": 3.0})
    neighbour = Neighbour(await connect(server))
    for _ in range(20):
        await neighbour.turn()
    process = psutil.Process()
    with trio.fail_after(300):
        async with flooded(server, transport, lane, read=20_000_000):
            stopped, before = process.memory_info().rss, len(neighbour.seconds)
            grown = 0
            while spy.sequences_open == 2:
                await neighbour.turn()
                await trio.sleep(0.005)
                grown = max(grown, process.memory_info().rss - stopped)
    assert grown < 16 * MIB, f"{grown / MIB:.1f} MiB"
    assert spy.sampled_tokens < words / 2
    assert neighbour.median(before) < 5 * neighbour.median() + 0.01
    assert max(neighbour.seconds[before:]) < 0.25
