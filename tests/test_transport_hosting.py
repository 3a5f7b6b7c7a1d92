"""Hypercorn as one connection's HTTP machine: its contract, what it serves and refuses, faults that stay with it."""

from __future__ import annotations

import inspect
import json
from typing import Any

import hypercorn
import pytest
import trio
import trio.testing
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol, H11WSConnection
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.utils import wrap_app
from quart_trio import QuartTrio

from respserver.transport.hosting import View
from respserver.transport.outbox import Outbox
from tests.support.http_host import GET, POST, app, ask, hosted, tls_contexts
from tests.support.raw_websocket import RawClient, client_frame, request

# Any in this file: ASGI scopes and messages are open dictionaries.


def test_the_internals_that_are_used_are_as_they_were() -> None:
    """If this fails, hypercorn has changed what ``hosting.py`` leans on: read its source before touching the pin."""
    assert hypercorn.__name__ == "hypercorn"
    parameters = {cls: list(inspect.signature(cls).parameters) for cls in (TCPServer, WorkerContext)}
    assert parameters == {
        TCPServer: ["app", "config", "context", "state", "stream"],
        WorkerContext: ["max_requests"],
    }
    parameters = {cls: list(inspect.signature(cls).parameters)[:10] for cls in (H11Protocol, ProtocolWrapper)}
    assert parameters[H11Protocol] == [
        "app", "config", "context", "task_group", "connection_state", "ssl", "client", "server", "send",
    ]  # fmt: skip
    assert parameters[ProtocolWrapper][:9] == [
        "app", "config", "context", "task_group", "state", "ssl", "client", "server", "send",
    ]  # fmt: skip
    assert list(inspect.signature(wrap_app).parameters) == ["app", "wsgi_max_body_size", "mode"]
    used = set(inspect.getsource(TCPServer).split("self.stream.")[1:])
    names = {part.split("(")[0].split(".")[0].split()[0] for part in used}
    assert names == {
        "aclose", "do_handshake", "receive_some", "selected_alpn_protocol", "send_all", "send_eof", "socket",
        "transport_stream",
    }  # fmt: skip


def test_hypercorn_changes_protocols_and_refuses_only_where_we_have_our_own() -> None:
    """The same: ``Http1`` takes the place of these methods, and of nothing else."""
    source = inspect.getsource(H11Protocol)
    offers = inspect.getsource(H11Protocol._check_protocol)
    for word in ("raise H2CProtocolRequiredError", "raise H2ProtocolAssumedError"):
        assert source.count(word) == offers.count(word) == 1
    assert source.count("await self._create_stream(event)") == source.count("await self._check_protocol(event)") == 1
    assert "await self._send_error_response(error.error_status_hint)" in source
    assert source.count("self.connection = H11WSConnection(") == 1
    assert H11WSConnection.our_state is H11WSConnection.their_state is None
    assert "self.connection.their_state is h11.DONE" in inspect.getsource(H11Protocol._maybe_recycle)
    assert "self.buffer = bytearray(h11_connection.trailing_data[0])" in inspect.getsource(H11WSConnection.__init__)
    assert "self.connection.receive_data(event.data)" in inspect.getsource(H11Protocol.handle)
    run = inspect.getsource(TCPServer.run)
    assert run.index("self.protocol = ProtocolWrapper(") < run.index("await self._read_data()")
    for word in ("self.app_put = await", "self.app_put({", "self.connection.receive_data(event.data)"):
        assert word in inspect.getsource(WSStream.handle)
    assert "except LocalProtocolError:\n            pass" in inspect.getsource(WSStream._send_wsproto_event)
    accept = inspect.getsource(WSStream._accept)
    assert accept.index("self.handshake.accept(") < accept.index("Response(stream_id")


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


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (GET[:-2] + b"X: " + b"x" * 90_000, 431),
        (POST.replace(b"Content-Length: 4", b"Transfer-Encoding: odd"), 501),
    ],
)
async def test_what_is_no_request_is_refused_in_the_apis_words(sent: bytes, status: int) -> None:
    async with hosted() as (_, stream):
        client = RawClient(stream)
        await stream.send_all(sent)
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert int(head.split()[1]) == status
        assert json.loads(body)["error"]["type"] == "invalid_request_error"


async def test_behind_a_last_word_nothing_is_written_that_was_begun_before() -> None:
    """Hypercorn makes bytes, waits for its lock, and only then writes."""
    theirs, ours = trio.testing.memory_stream_pair()
    outbox = Outbox(ours, limit_bytes=1 << 20, write_seconds=1)
    view = View(outbox)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        await view.send_all(b"words ")
        view.end_with(b"last word")
        view.end_with(b"another")
        await view.send_all(b"late words")
        await view.aclose()
    with trio.fail_after(1):
        assert await RawClient(theirs).rest() == b"words last word"


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


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("version", ["PRI * HTTP/2.0", "GET /x HTTP/3.0"])
async def test_other_versions_are_refused_in_http1_that_says_so(is_first: bool, version: str) -> None:
    async with hosted() as (_, stream):
        client = RawClient(stream)
        if not is_first:
            await ask(client)
            await client.take(len(b"http /x 127.0.0.1"))
        await stream.send_all(f"{version}\r\nHost: h\r\n\r\nSM\r\n\r\n".encode())
        with trio.fail_after(1):
            head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 505")
        assert json.loads(body)["error"]["message"] == "Only HTTP/1.1 is served."


async def test_an_offer_of_http2_is_ignored() -> None:
    offer = b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    async with hosted() as (_, stream):
        client = RawClient(stream)
        for _ in range(2):
            assert (await ask(client, GET[:-2] + offer)).startswith(b"HTTP/1.1 200")
            await client.take(len(b"http /x 127.0.0.1"))


@pytest.mark.parametrize(
    "upgrade", [request(), request(Sec_WebSocket_Key=None), request(Sec_WebSocket_Version="9"), request(target="/no")]
)
async def test_bytes_behind_a_late_upgrade_are_nothing_special(
    upgrade: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """One packet like this ends a whole process that trusts hypercorn."""
    async with hosted() as (_, stream):
        client = RawClient(stream)
        await ask(client)
        await client.take(len(b"http /x 127.0.0.1"))
        await stream.send_all(upgrade + client_frame(1, b"early"))
        with trio.fail_after(3):
            await client.rest()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


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
    server, trusting = tls_contexts()
    async with hosted(context=server) as (_, tcp):
        stream = trio.SSLStream(tcp, trusting, server_hostname="server.test")
        client = RawClient(stream)
        await ask(client)
        assert await client.take(len(b"https /x 127.0.0.1")) == b"https /x 127.0.0.1"
        await stream.aclose()
