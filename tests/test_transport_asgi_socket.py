"""WebSocket over ASGI: the same promises to the session."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Limits
from respserver.errors import ApiError, QueueFull
from respserver.message_socket import Socket, SocketClosed
from respserver.transport.asgi_socket import serve_asgi_websocket
from respserver.transport.lifetime import CLOSE_SECONDS, ECHOES, OUTBOX_MULTIPLE, Run

# Any in this file: ASGI scopes and messages are open dictionaries.

LIMITS = Limits(message_bytes=1024, outbox_bytes=4096)
SCOPE = {
    "type": "websocket",
    "raw_path": b"/v1/responses",
    "query_string": b"model=m",
    "headers": [(b"host", b"server.test"), (b"authorization", b"Bearer k")],
}


def welcome(target: str, headers: list[tuple[str, str]]) -> ApiError | str:
    return f"{target} {dict(headers)['host']}"


class Server:
    """The ASGI server's side: what it received, and what it gives; ``stalled`` holds its sends."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.sent: list[dict[str, Any]] = []
        self.stalled = trio.Event()
        self.stalled.set()
        self.give, self._given = trio.open_memory_channel[dict[str, Any]](100)
        for message in ({"type": "websocket.connect"}, *messages):
            self.give.send_nowait(message)

    async def receive(self) -> dict[str, Any]:
        return await self._given.receive()

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.send":
            await self.stalled.wait()
        self.sent.append(message)

    async def serve(self, run: Run[str], *, limits: Limits = LIMITS, admit: Any = welcome) -> list[dict[str, Any]]:
        await serve_asgi_websocket(SCOPE, self.receive, self.send, limits=limits, admit=admit, run=run)
        return self.sent


def text(value: str) -> dict[str, Any]:
    return {"type": "websocket.receive", "text": value, "bytes": None}


LEFT = {"type": "websocket.disconnect", "code": 1006}


def send_while_taken(socket: Socket, size: int) -> int:
    """How many messages of a size can be sent to a client that reads nothing, without waiting for it."""
    sent = 0
    with contextlib.suppress(SocketClosed):
        for sent in range(1000):  # noqa: B007 - what was sent before the one that is refused
            socket.send_many([b"x" * size])
    return sent


async def test_the_session_gets_what_admission_made_and_messages_go_both_ways_in_order() -> None:
    async def run(socket: Socket, admitted: str) -> None:
        assert await socket.receive() == "hello"
        socket.send_many([admitted.encode(), b"two"])
        socket.send_many([b"three"])

    assert await Server(text("hello")).serve(run) == [
        {"type": "websocket.accept"},
        {"type": "websocket.send", "text": "/v1/responses?model=m server.test"},
        {"type": "websocket.send", "text": "two"},
        {"type": "websocket.send", "text": "three"},
        {"type": "websocket.close", "code": 1000, "reason": ""},
    ]


async def test_a_refusal_is_plain_http() -> None:
    async def run(socket: Socket, admitted: str) -> None:
        raise AssertionError("a refused connection has no session")

    start, body = await Server().serve(run, admit=lambda target, headers: QueueFull(3))
    assert start["status"] == 429
    assert {(b"content-type", b"application/json"), (b"retry-after", b"1")} <= set(start["headers"])
    assert json.loads(body["body"])["error"]["code"] == "queue_full"


async def test_a_binary_message_closes_with_1003() -> None:
    async def run(socket: Socket, admitted: str) -> None:
        for _ in range(2):
            with pytest.raises(SocketClosed) as caught:
                await socket.receive()
            assert caught.value.code == 1003
        with pytest.raises(SocketClosed):
            socket.send_many([b"late"])

    sent = await Server({"type": "websocket.receive", "bytes": b"{}", "text": None}).serve(run)
    assert [message.get("code") for message in sent] == [None, 1003]


@pytest.mark.parametrize(("told", "code"), [(1006, None), (1001, 1001)])
async def test_a_client_that_leaves_is_told_to_the_session(told: int, code: int | None) -> None:
    async def run(socket: Socket, admitted: str) -> None:
        with pytest.raises(SocketClosed) as caught:
            await socket.receive()
        assert caught.value.code == code
        with pytest.raises(SocketClosed):
            await socket.drain()

    sent = await Server({"type": "websocket.disconnect", "code": told}).serve(run)
    assert sent == [{"type": "websocket.accept"}]


async def test_others_have_their_turn_between_messages_although_the_server_waits_for_nothing() -> None:
    """Such a server is hypercorn once the client has gone."""
    turns = 0
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def run(socket: Socket, admitted: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            socket.send_many([b"x"] * 100)
            await socket.close(1000)
            nursery.cancel_scope.cancel()

    await serve_asgi_websocket(SCOPE, Server().receive, send, limits=LIMITS, admit=welcome, run=run)
    assert len(sent) == 102
    assert turns > 50


async def test_drain_waits_while_too_much_is_pending(autojump_clock: trio.testing.MockClock) -> None:
    server = Server()

    async def run(socket: Socket, admitted: str) -> None:
        server.stalled = trio.Event()
        socket.send_many([b"x" * 2048] * 3)
        with trio.move_on_after(1) as scope:
            await socket.drain()
        assert scope.cancelled_caught
        server.stalled.set()
        await socket.drain()

    assert len(await server.serve(run)) == 5


async def test_a_client_that_leaves_frees_a_session_that_drains(autojump_clock: trio.testing.MockClock) -> None:
    server = Server()

    async def run(socket: Socket, admitted: str) -> None:
        async def drain() -> None:
            with pytest.raises(SocketClosed):
                await socket.drain()

        server.stalled = trio.Event()
        socket.send_many([b"x" * 5000, b"never sent"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            await trio.testing.wait_all_tasks_blocked()
            server.give.send_nowait(LEFT)
            with pytest.raises(SocketClosed):
                await socket.receive()

    with trio.fail_after(1):
        await server.serve(run)


async def test_a_client_that_is_far_behind_is_given_up_and_whoever_receives_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server()

    async def run(socket: Socket, admitted: str) -> None:
        async def send_on() -> None:
            bound = OUTBOX_MULTIPLE * LIMITS.outbox_bytes + ECHOES * LIMITS.message_bytes
            assert send_while_taken(socket, 1024) == bound // 1024 + 1

        server.stalled = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_on)
            with pytest.raises(SocketClosed) as caught:
                await socket.receive()
            assert caught.value.code is None

    with trio.fail_after(1):
        assert await server.serve(run) == [{"type": "websocket.accept"}]


async def test_a_close_frees_whoever_receives_although_the_client_never_answers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def run(socket: Socket, admitted: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket.close, 1001, "going away")
            with pytest.raises(SocketClosed) as caught:
                await socket.receive()
            assert caught.value.code == 1001

    with trio.fail_after(1):
        sent = await Server().serve(run)
    assert sent[-1] == {"type": "websocket.close", "code": 1001, "reason": "going away"}


async def test_a_stalled_client_delays_the_close_only_for_its_deadline(autojump_clock: trio.testing.MockClock) -> None:
    server = Server()

    async def run(socket: Socket, admitted: str) -> None:
        server.stalled = trio.Event()
        socket.send_many([b"x"])

    await server.serve(run)
    assert trio.current_time() == pytest.approx(CLOSE_SECONDS)


async def test_a_session_that_raises_closes_with_1011() -> None:
    async def run(socket: Socket, admitted: str) -> None:
        raise ValueError("a bug")

    assert (await Server().serve(run))[-1]["code"] == 1011
