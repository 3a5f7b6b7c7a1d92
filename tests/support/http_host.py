"""An HTTP connection served as the listener would serve it, over a real socket pair, with apps to be served."""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
import trustme
from quart import request as quart_request
from quart_trio import QuartTrio

from respserver.config import Limits
from respserver.transport.hosting import KEEP_ALIVE_SECONDS, AsgiApp, HttpHost
from respserver.transport.outbox import Outbox
from tests.support.raw_websocket import RawClient

LIMITS = Limits(head_bytes=40_000)
STALLED = Limits(write_seconds=0.1)
GET = b"GET /x?y=1 HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"

# Any in this file: ASGI scopes and messages are open dictionaries.


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it was asked; ``/flood`` never stops, ``/fault`` raises; a WebSocket takes one message."""
    if scope["type"] == "lifespan":
        while True:
            stage = (await receive())["type"]
            await send({"type": f"{stage}.complete"})
            if stage == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()
        if scope["path"] == "/no":
            await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"no"})
            return
        await send({"type": "websocket.accept"})
        assert (await receive())["text"] == "early"
        await send({"type": "websocket.close"})
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


def quart_app(*, gate: trio.Event | None = None) -> QuartTrio:
    """An app of the framework that cancels a request's task once its answer is written; POST waits for ``gate``."""
    quart = QuartTrio("quart")
    quart.config["BODY_TIMEOUT"] = None  # as ours

    @quart.get("/x")
    async def get() -> str:
        return "ok"

    @quart.post("/x")
    async def post() -> bytes:
        sent: bytes = await quart_request.get_data(as_text=False)
        if gate is not None:
            await gate.wait()
        return sent

    return quart


APPS = [pytest.param(app, id="plain"), pytest.param(quart_app(), id="quart")]


@functools.cache
def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's, for ``server.test``, and that of a client which trusts it."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("server.test").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return server, trusting


@asynccontextmanager
async def hosted(
    app: AsgiApp = app,
    *,
    limits: Limits = LIMITS,
    context: ssl.SSLContext | None = None,
    cancel: bool = False,
    stop: bool = False,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
) -> AsyncIterator[tuple[HttpHost, trio.SocketStream]]:
    """A started host and the client's end of a connection that it serves."""
    host = HttpHost(app, limits, keep_alive_seconds=keep_alive_seconds)
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
