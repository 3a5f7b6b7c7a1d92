"""Hypercorn as one connection's HTTP machine: its contract, keep-alive, shutdown, and faults that stay with a peer."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hypercorn
import pytest
import trio
import trio.testing
import trustme
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.utils import wrap_app
from quart_trio import QuartTrio

from respserver.config import Limits
from respserver.transport.hosting import KEEP_ALIVE_SECONDS, AsgiApp, HttpHost
from respserver.transport.outbox import Outbox
from tests.support.raw_websocket import RawClient, client_frame, request

LIMITS = Limits(head_bytes=40_000)
STALLED = Limits(write_seconds=0.1)
GET = b"GET /x?y=1 HTTP/1.1\r\nHost: h\r\n\r\n"

# Any in this file: ASGI scopes and messages are open dictionaries.


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it was asked; ``/flood`` never stops, ``/fault`` raises, websockets are accepted."""
    if scope["type"] == "lifespan":
        while True:
            stage = (await receive())["type"]
            await send({"type": f"{stage}.complete"})
            if stage == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        return
    if scope["path"] == "/fault":
        raise ValueError("a bug")
    if scope["path"] == "/flood":
        await flood(receive, send)
    body = f"{scope['scheme']} {scope['path']} {scope['client'][0]}".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def flood(receive: Any, send: Any) -> None:
    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})


@asynccontextmanager
async def hosted(
    app: AsgiApp = app,
    *,
    limits: Limits = LIMITS,
    context: ssl.SSLContext | None = None,
    cancel: bool = False,
    stop: bool = False,
) -> AsyncIterator[tuple[HttpHost, trio.SocketStream]]:
    """A started host and the client's end of a connection that it serves."""
    host = HttpHost(app, limits)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, host.started():
        client = await trio.testing.open_stream_to_socket_listener(listener)
        tcp = await listener.accept()
        stream = tcp if context is None else trio.SSLStream(tcp, context, server_side=True)
        outbox = Outbox(stream, limit_bytes=limits.outbox_bytes, write_seconds=limits.write_seconds)
        if stop:
            await host.stop()
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(serve, host, outbox)
            yield host, client
            if cancel:
                nursery.cancel_scope.cancel()
            elif limits is not STALLED:
                await client.aclose()


async def serve(host: HttpHost, outbox: Outbox) -> None:
    """What the listener does for one connection."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        try:
            await outbox.handshake()
            await host.serve(outbox)
        finally:
            await outbox.aclose()


async def ask(client: RawClient, sent: bytes = GET) -> bytes:
    await client.stream.send_all(sent)
    return await client.head()


def test_the_internals_that_are_used_are_as_they_were() -> None:
    """If this fails, hypercorn has changed what ``hosting.py`` leans on: read its source before touching the pin."""
    assert hypercorn.__name__ == "hypercorn"
    parameters = {cls: list(inspect.signature(cls).parameters) for cls in (TCPServer, WorkerContext)}
    assert parameters == {
        TCPServer: ["app", "config", "context", "state", "stream"],
        WorkerContext: ["max_requests"],
    }
    assert list(inspect.signature(wrap_app).parameters) == ["app", "wsgi_max_body_size", "mode"]
    used = set(inspect.getsource(TCPServer).split("self.stream.")[1:])
    names = {part.split("(")[0].split(".")[0].split()[0] for part in used}
    assert names == {
        "aclose", "do_handshake", "receive_some", "selected_alpn_protocol", "send_all", "send_eof", "socket",
        "transport_stream",
    }  # fmt: skip


async def test_requests_are_served_one_after_the_other_on_one_connection() -> None:
    async with hosted() as (_, stream):
        client = RawClient(stream)
        for _ in range(3):
            head = await ask(client)
            assert head.startswith(b"HTTP/1.1 200")
            assert b"server:" not in head.lower()
            assert await client.take(len(b"http /x 127.0.0.1")) == b"http /x 127.0.0.1"


async def test_a_head_of_almost_the_limit_in_pieces_is_served() -> None:
    async with hosted() as (_, stream):
        data = GET[:-2] + b"X: " + b"x" * 39_000 + b"\r\n\r\n"
        await stream.send_all(data[:20_000])
        await trio.testing.wait_all_tasks_blocked()
        assert (await ask(RawClient(stream), data[20_000:])).startswith(b"HTTP/1.1 200")


async def test_what_is_not_http_gets_400() -> None:
    async with hosted() as (_, stream):
        assert (await ask(RawClient(stream), b"hello\r\n\r\n")).startswith(b"HTTP/1.1 400")


async def test_an_answer_survives_the_upload_that_it_refuses() -> None:
    """F27: a 413 must not be lost to a reset because the rest of the body is still on its way."""

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    with trio.fail_after(5):
        async with hosted(refuse) as (_, stream):
            await stream.send_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n")
            await stream.send_all(bytes(3_000_000))
            assert (await RawClient(stream).head()).startswith(b"HTTP/1.1 413")


async def test_an_app_that_raises_answers_500_and_the_host_goes_on() -> None:
    async with hosted() as (_, stream):
        client = RawClient(stream)
        assert (await ask(client, GET.replace(b"/x", b"/fault"))).startswith(b"HTTP/1.1 500")


async def test_an_idle_connection_is_kept_longer_than_clients_keep_it(autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 0.01  # real sockets need real moments
    async with hosted() as (_, stream):
        client = RawClient(stream)
        await ask(client)
        began = trio.current_time()
        await client.rest()
        assert trio.current_time() - began == pytest.approx(KEEP_ALIVE_SECONDS, abs=3)


async def test_stop_closes_an_idle_connection_soon() -> None:
    async with hosted() as (host, stream):
        client = RawClient(stream)
        await ask(client)
        await host.stop()
        with trio.fail_after(1):
            await client.rest()


async def test_a_stalled_reader_cannot_hold_up_the_end() -> None:
    """Hypercorn shields its sends; only the outbox can free them."""
    with trio.fail_after(3):
        async with hosted(limits=STALLED) as (_, stream):
            await ask(RawClient(stream), GET.replace(b"/x", b"/flood"))


async def test_a_cancelled_connection_ends_although_its_send_is_shielded() -> None:
    with trio.fail_after(3):
        async with hosted(limits=Limits(write_seconds=60), cancel=True) as (_, stream):
            await ask(RawClient(stream), GET.replace(b"/x", b"/flood"))
            await trio.testing.wait_all_tasks_blocked(0.05)


async def test_a_client_that_leaves_takes_its_idle_timer_along() -> None:
    with trio.fail_after(3):
        async with hosted() as (_, stream):
            await ask(RawClient(stream))


async def test_a_connection_that_comes_after_stop_is_closed_soon() -> None:
    async with hosted(stop=True) as (_, stream):
        with trio.fail_after(1):
            await RawClient(stream).rest()


async def test_bytes_behind_a_late_upgrade_end_that_connection_only() -> None:
    """One packet like this ends a whole process that trusts hypercorn."""
    async with hosted() as (_, stream):
        client = RawClient(stream)
        await ask(client)
        await client.take(len(b"http /x 127.0.0.1"))
        await stream.send_all(request() + client_frame(1, b"early"))
        with trio.fail_after(3):
            await client.rest()


async def test_the_hooks_of_a_quart_app_run_around_the_block() -> None:
    quart = QuartTrio("hooks")
    seen: list[str] = []

    @quart.before_serving
    async def start() -> None:
        seen.append("start")

    @quart.after_serving
    async def end() -> None:
        seen.append("end")

    @quart.get("/x")
    async def get() -> str:
        seen.append("request")
        return "ok"

    async with hosted(quart) as (_, stream):
        assert (await ask(RawClient(stream))).startswith(b"HTTP/1.1 200")
    assert seen == ["start", "request", "end"]


async def test_tls_requests_are_served_as_https() -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("server.test").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with hosted(context=server) as (_, tcp):
        stream = trio.SSLStream(tcp, trusting, server_hostname="server.test")
        client = RawClient(stream)
        await ask(client)
        assert await client.take(len(b"https /x 127.0.0.1")) == b"https /x 127.0.0.1"
        await stream.aclose()


@pytest.mark.parametrize("request_line", ["GET /healthz HTTP/1.0", "GET /healthz HTTP/1.1\r\nConnection: close"])
async def test_a_last_answer_is_followed_by_the_end_of_the_connection(serve: Any, request_line: str) -> None:
    """With the real app, whose framework cancels the request's task while hypercorn closes in it."""
    server = await serve()
    async with await trio.open_tcp_stream("127.0.0.1", server.address.port) as stream:
        await stream.send_all(f"{request_line}\r\nHost: x\r\n\r\n".encode())
        received = b""
        with trio.fail_after(5):
            async for chunk in stream:
                received += chunk
    assert received.endswith(b'{"status":"ok","mode":"shipped"}')
