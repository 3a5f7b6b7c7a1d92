"""How HTTP connections end: idle ones, those of a stopping server, and those whose peer is stuck or gone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Limits
from respserver.transport.hosting import KEEP_ALIVE_SECONDS, AsgiApp
from tests.support.http_host import APPS, GET, POST, STALLED, ask, hosted, quart_app, tls_contexts
from tests.support.http_host import app as plain_app
from tests.support.raw_websocket import RawClient


@pytest.mark.parametrize("app", APPS)
async def test_an_idle_connection_is_kept_longer_than_clients_keep_it(
    app: AsgiApp, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.01  # real sockets need real moments
    async with hosted(app) as (_, stream):
        client = RawClient(stream)
        await ask(client)
        began = trio.current_time()
        await client.rest()
        assert trio.current_time() - began == pytest.approx(KEEP_ALIVE_SECONDS, abs=3)


@pytest.mark.parametrize("behind", [b"", GET[:9]])
@pytest.mark.parametrize("app", APPS)
async def test_stop_closes_an_idle_connection_soon_and_in_order(app: AsgiApp, behind: bytes) -> None:
    async with hosted(app) as (host, stream):
        client = RawClient(stream)
        await ask(client)
        await stream.send_all(behind)
        await trio.testing.wait_all_tasks_blocked()
        await host.stop()
        with trio.fail_after(1):
            await client.rest()


async def test_stop_answers_half_a_request_with_503_at_once() -> None:
    async with hosted(quart_app()) as (host, stream):
        client = RawClient(stream)
        await stream.send_all(POST[:-1])
        await trio.testing.wait_all_tasks_blocked(0.01)
        await host.stop()
        with trio.fail_after(1):
            answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"server_shutting_down"' in answer


async def test_a_body_that_stalls_is_answered_408_before_the_end(autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 0.01  # real sockets need real moments
    async with hosted(quart_app()) as (_, stream):
        await stream.send_all(POST[:-1])
        head, _, body = (await RawClient(stream).rest()).partition(b"\r\n\r\n")
        assert trio.current_time() == pytest.approx(KEEP_ALIVE_SECONDS, abs=3)
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == "request_timeout"


@pytest.mark.parametrize("stops", [False, True])
async def test_a_body_that_breaks_http_is_answered_once_however_long_its_app_stays(
    stops: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "respserver.transport")
    over = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await plain_app(scope, receive, send)
        while (await receive())["type"] != "http.disconnect":
            pass
        await over.wait()

    with trio.fail_after(3):
        async with hosted(app) as (host, stream):
            chunked = POST.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked")[:-4]
            await stream.send_all(chunked + b"1\r\nx\r\n")
            await trio.testing.wait_all_tasks_blocked(0.01)
            await stream.send_all(b"no chunk\r\n")
            if stops:
                await host.stop()
            answers = (await RawClient(stream).rest()).split(b"HTTP/1.1 ")[1:]
            over.set()
    assert len(answers) == 1
    assert answers[0][:3] in ([b"400", b"503"] if stops else [b"400"])
    assert [record.getMessage() for record in caplog.records].count("refused") == 1


@pytest.mark.parametrize("path", [b"/nowhere", b"/x"], ids=["unknown", "wrong-method"])
async def test_an_answer_that_does_not_wait_for_the_body_says_that_the_connection_ends(path: bytes) -> None:
    """Else a client would send its next request there, and get no answer."""
    head, _, body = POST.replace(b"POST /x", b"PUT " + path).partition(b"\r\n\r\n")
    async with hosted(quart_app()) as (_, stream):
        client = RawClient(stream)
        await stream.send_all(head + b"\r\n\r\n")
        with trio.fail_after(3):
            answer = await client.head()
            await stream.send_all(body)
            await client.rest()
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405"))
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("path", [b"/nowhere", b"/x"], ids=["unknown", "wrong-method"])
async def test_an_answer_to_a_body_that_came_with_its_head_keeps_the_connection(path: bytes) -> None:
    async with hosted(quart_app()) as (_, stream):
        client = RawClient(stream)
        for _ in range(3):
            answer = await ask(client, POST.replace(b"POST /x", b"PUT " + path))
            assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405"))
            assert b"connection: close" not in answer.lower()
            (size,) = re.findall(rb"content-length: (\d+)", answer.lower())
            await client.take(int(size))


async def test_stop_lets_a_request_end_and_begins_no_other() -> None:
    gate = trio.Event()
    async with hosted(quart_app(gate=gate)) as (host, stream):
        client = RawClient(stream)
        await stream.send_all(POST + POST)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await host.stop()
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate.set()
        with trio.fail_after(1):
            head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in head.lower()
        assert body == b"body"


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_a_stalled_reader_cannot_hold_up_the_end(is_tls: bool) -> None:
    """Hypercorn shields its sends; only the outbox can free them."""
    server, trusting = tls_contexts()
    with trio.fail_after(3):
        async with hosted(limits=STALLED, context=server if is_tls else None) as (_, tcp):
            stream = trio.SSLStream(tcp, trusting, server_hostname="server.test") if is_tls else tcp
            await ask(RawClient(stream), GET.replace(b"/x", b"/flood"))


async def test_no_further_request_is_begun_for_a_client_that_was_given_up() -> None:
    begun = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun
        if scope["type"] == "lifespan":
            await plain_app(scope, receive, send)
            return
        begun += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(8 << 20)})

    with trio.fail_after(3):
        async with hosted(app, limits=STALLED) as (_, stream):
            await stream.send_all(GET * 3)
    assert begun == 1


async def test_a_cancelled_connection_ends_although_its_send_is_shielded() -> None:
    with trio.fail_after(3):
        async with hosted(limits=Limits(write_seconds=60), cancel=True) as (_, stream):
            await ask(RawClient(stream), GET.replace(b"/x", b"/flood"))
            await trio.testing.wait_all_tasks_blocked(0.05)


async def test_a_client_that_leaves_takes_its_idle_timer_along() -> None:
    with trio.fail_after(3):
        async with hosted() as (_, stream):
            await ask(RawClient(stream))


async def test_a_connection_that_comes_after_stop_gets_503() -> None:
    async with hosted(stop=True) as (_, stream):
        with trio.fail_after(1):
            assert (await RawClient(stream).rest()).startswith(b"HTTP/1.1 503 ")


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
