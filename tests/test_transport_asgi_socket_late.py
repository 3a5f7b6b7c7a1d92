"""Real late upgrades through hypercorn: the same session, the same limits, and how each side learns of the end."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Limits
from respserver.message_socket import Socket, SocketClosed
from respserver.transport.asgi_socket import serve_asgi_websocket
from respserver.transport.frame_meter import MAX_FRAGMENTS, TOO_MANY_FRAGMENTS, too_big
from respserver.transport.lifetime import CLOSE_SECONDS, Run
from tests.support import http_host
from tests.support.raw_websocket import (
    CLOSE,
    CONTINUATION,
    TEXT,
    Frame,
    RawClient,
    client_frame,
    close_frame,
    request,
)
from tests.support.websocket_host import echo, ends, welcome

LIMITS = Limits(message_bytes=1024, outbox_bytes=4096)

# Any in this file: ASGI scopes and messages are open dictionaries.


@contextlib.asynccontextmanager
async def late(run: Run[str] = echo) -> AsyncIterator[RawClient]:
    """A client whose connection has carried a request and is ready for an upgrade. Leaving waits for the server."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await serve_asgi_websocket(scope, receive, send, limits=LIMITS, admit=welcome, run=run)
        else:
            await http_host.app(scope, receive, send)

    mocked = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    with trio.fail_after(10_000 if mocked else 5):
        async with http_host.hosted(app, limits=LIMITS) as (_, stream):
            client = RawClient(stream)
            await http_host.ask(client)
            await client.take(len(b"http /x 127.0.0.1"))
            yield client


async def test_an_upgrade_on_a_used_connection_is_served_by_the_same_session() -> None:
    async with late() as client:
        await client.open(behind=client_frame(TEXT, b"early"))
        assert await client.frame() == Frame(TEXT, b"early")
        await client.stream.send_all(client_frame(TEXT, b"late but welcome"))
        assert await client.frame() == Frame(TEXT, b"late but welcome")
        await client.stream.send_all(close_frame(1000))
        assert (await client.frame()).opcode == CLOSE


async def test_a_session_whose_client_has_left_is_told_and_may_end_in_its_own_way() -> None:
    """It is not cancelled, as it would not be on a connection of our own."""
    ended = False

    async def run(socket: Socket, admitted: str) -> None:
        nonlocal ended
        with pytest.raises(SocketClosed):
            await socket.receive()
        await trio.testing.wait_all_tasks_blocked(0.01)
        ended = True

    async with late(run) as client:
        await client.open()
    assert ended


@pytest.mark.parametrize("offer", ["permessage-deflate", "permessage-deflate; client_max_window_bits, x-other"])
@pytest.mark.parametrize("target", ["/v1/responses", "http://server.test/v1/responses"])
async def test_no_extension_is_accepted_so_that_nothing_inflates(offer: str, target: str) -> None:
    seen: list[SocketClosed] = []
    async with late(ends(seen)) as client:
        await client.stream.send_all(request(target=target, Sec_WebSocket_Extensions=offer))
        head = await client.head()
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"extensions" not in head.lower()
        compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        payload = compressor.compress(b"x" * 2000) + compressor.flush(zlib.Z_SYNC_FLUSH)
        frame = bytearray(client_frame(TEXT, payload[:-4]))
        frame[0] |= 0x40  # RSV1: compressed
        await client.stream.send_all(frame)
        await client.closed()
    assert len(seen) == 1


@pytest.mark.parametrize("fragmented", [False, True])
async def test_a_message_of_exactly_the_limit_in_bytes_is_taken(fragmented: bool) -> None:
    payload = "é".encode() * 512
    whole = client_frame(TEXT, payload)
    cut = client_frame(TEXT, payload[:401], final=False) + client_frame(CONTINUATION, payload[401:])
    async with late() as client:
        await client.open()
        await client.stream.send_all((cut if fragmented else whole) * 2)
        received = b""
        while len(received) < 2 * len(payload):
            received += (await client.frame()).payload
        assert received == payload * 2


@pytest.mark.parametrize("is_behind", [False, True], ids=["later", "behind the upgrade"])
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (client_frame(TEXT, b"x" * 1025), too_big(1024)),
        (client_frame(TEXT, b"x" * (1 << 16))[:14], too_big(1024)),
        (client_frame(TEXT, b"x" * 600, final=False) + client_frame(CONTINUATION, b"x" * 600)[:10], too_big(1024)),
        pytest.param(
            client_frame(TEXT, final=False) + client_frame(CONTINUATION, final=False) * MAX_FRAGMENTS,
            TOO_MANY_FRAGMENTS,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["one frame", "announced", "two frames", "fragments"],
)
async def test_a_message_over_a_limit_closes_with_1009_and_its_session_is_told(
    sent: bytes, reason: str, is_behind: bool
) -> None:
    """Although the client stays, and sends nothing more."""
    seen: list[SocketClosed] = []
    async with late(ends(seen)) as client:
        await client.open(behind=sent if is_behind else b"")
        if not is_behind:
            await client.stream.send_all(sent)
        frame = await client.frame()
        assert (frame.opcode, frame.payload) == (CLOSE, (1009).to_bytes(2, "big") + reason.encode())
        assert await client.rest() == b""
        assert [(closed.code, closed.reason) for closed in seen] == [(1009, reason)]


async def test_after_a_1009_nothing_of_the_sessions_follows() -> None:
    async def run(socket: Socket, admitted: str) -> None:
        async def talk() -> None:
            with contextlib.suppress(SocketClosed):
                while True:
                    socket.send_many([b"still talking"])
                    await socket.drain()
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            with pytest.raises(SocketClosed):
                await socket.receive()

    async with late(run) as client:
        await client.open()
        await client.stream.send_all(client_frame(TEXT, b"x" * 1025))
        assert await client.closed() == 1009


async def test_a_client_that_takes_nothing_either_is_gone_soon_after_its_1009(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = 0.01  # real sockets need real moments
    seen: list[SocketClosed] = []

    async def run(socket: Socket, admitted: str) -> None:
        async def talk() -> None:
            with contextlib.suppress(SocketClosed):
                while True:
                    socket.send_many([b"x" * 4000])
                    await socket.drain()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            await ends(seen)(socket, admitted)

    async with late(run) as client:
        await client.open()
        await trio.testing.wait_all_tasks_blocked(0.02)
        began = trio.current_time()
        await client.stream.send_all(client_frame(TEXT, b"x" * 1025))
        with contextlib.suppress(trio.BrokenResourceError):
            while True:
                await client.stream.send_all(b"x")
                await trio.sleep(0.5)
        assert trio.current_time() - began == pytest.approx(CLOSE_SECONDS, abs=1)
    assert [closed.code for closed in seen] == [1009]
