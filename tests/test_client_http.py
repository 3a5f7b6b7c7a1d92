"""The HTTP half: whole answers, streams, kept connections, and TLS for both transports."""

from __future__ import annotations

import ssl
from functools import partial

import msgspec
import pytest
import trio
import trio.testing
import trio_websocket
import trustme

from respserver.client import Client, ConnectionLost
from respserver.errors import ApiError, InvalidRequest
from tests.support.client_servers import (
    ANSWER,
    PATIENCE,
    Page,
    Peer,
    Script,
    collect,
    completed,
    created,
    delta,
    paging,
    response,
    sse,
)


async def test_create_gives_the_whole_response():
    whole = response(output=[ANSWER], status="completed")
    body = msgspec.json.encode(whole)
    page = Page(200, body[:100], body[100:], interim=b"HTTP/1.1 103 Early\r\n\r\n")
    async with paging(page, api_key="k1") as client:
        assert await client.create(model="sim", input="hello") == whole
    head, body = page.requests[0]
    assert head.startswith("post /v1/responses http/1.1")
    assert "host: 127.0.0.1:" in head
    assert "authorization: bearer k1" in head
    assert "content-type: application/json" in head
    assert body == {"model": "sim", "input": "hello"}


async def test_requests_one_after_the_other_share_a_connection():
    page = Page(200, sse(completed()), b"data: [DONE]\n\n")
    async with paging(page) as client:
        for _ in range(3):
            async with client.stream(model="sim") as events:
                await collect(events)
    assert (page.connections, len(page.requests)) == (1, 3)


async def test_requests_side_by_side_have_a_connection_each():
    page = Page(200, sse(completed()))
    async with paging(page) as client, client.stream(model="sim") as first, client.stream(model="sim") as second:
        assert await collect(first) == await collect(second) == [completed()]
    assert page.connections == 2


async def test_a_kept_connection_that_the_server_has_closed_is_not_used_again():
    page = Page(200, msgspec.json.encode(response()), keeps=False)
    async with paging(page) as client:
        await client.create(model="sim")
        await page.left.wait()
        await trio.testing.wait_all_tasks_blocked()
        await client.create(model="sim")
    assert page.connections == 2


async def test_stream_gives_the_events_and_ends_at_done():
    page = Page(200, sse(created(), delta("Hi"), completed(ANSWER)), b"data: [DONE]\n\ndata: {}\n\n")
    async with paging(page) as client, client.stream(model="sim", input="hello") as events:
        assert await collect(events) == [created(), delta("Hi"), completed(ANSWER)]
        assert await collect(events) == []
    assert page.requests[0][1]["stream"] is True


async def test_a_stream_that_goes_on_after_done_is_not_waited_for_long(autojump_clock):
    page = Page(200, b"data: [DONE]\n\n", ending=b"")
    async with paging(page) as client:
        async with client.stream(model="sim") as events:
            assert await collect(events) == []
        await page.left.wait()


async def test_a_stream_without_done_ends_with_its_last_byte():
    async with paging(Page(200, sse(completed()), b"data: {")) as client, client.stream(model="sim") as events:
        assert await collect(events) == [completed()]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_events_come_whole_however_the_bytes_are_cut_and_whatever_ends_the_lines(end):
    block = end.join([b": comment", b"event: x", b'data: {"type":', b'data:"response.hummed"}', b"", b""])
    pieces = [block[index : index + 7] for index in range(0, len(block), 7)]
    async with paging(Page(200, *pieces)) as client, client.stream(model="sim") as events:
        assert await collect(events) == [{"type": "response.hummed"}]


async def test_a_cut_stream_is_a_lost_connection():
    page = Page(200, sse(created()), ending=b"", keeps=False)
    async with paging(page) as client, client.stream(model="sim") as events:
        assert await anext(events) == created()
        with pytest.raises(ConnectionLost, match="HTTP connection broke"):
            await anext(events)


async def test_leaving_a_stream_early_closes_its_connection():
    page = Page(200, sse(created(), delta("Hi")), ending=b"")
    async with paging(page) as client:
        async with client.stream(model="sim") as events:
            await anext(events)
        await page.left.wait()


async def test_a_cancelled_stream_closes_its_connection():
    page = Page(200, sse(created()), ending=b"")
    async with paging(page) as client:
        with trio.CancelScope() as scope:
            async with client.stream(model="sim") as events:
                async for _ in events:
                    scope.cancel()
        await page.left.wait()


@pytest.mark.parametrize("method", ["create", "stream"])
async def test_an_error_answer_is_raised_with_its_facts_and_the_connection_goes_on(method):
    body = b'{"error":{"message":"Slow down.","type":"rate_limit_error","code":"queue_full","param":null}}'
    page = Page(429, body, headers="retry-after: 7\r\n")
    async with paging(page) as client:
        for _ in range(2):
            with pytest.raises(ApiError, match="Slow down") as caught:
                await _request(client, method)
    assert (caught.value.status, caught.value.code, caught.value.type) == (429, "queue_full", "rate_limit_error")
    assert caught.value.headers["retry-after"] == "7"
    assert page.connections == 1


async def _request(client, method):
    if method == "create":
        await client.create(model="sim")
    else:
        async with client.stream(model="sim"):
            pass


@pytest.mark.parametrize("method", ["create", "stream"])
async def test_no_http_server_is_a_lost_connection(method):
    async with Client("http://127.0.0.1:9/v1") as client:
        with pytest.raises(ConnectionLost, match=r"cannot connect to 127\.0\.0\.1:9"):
            await _request(client, method)


async def test_an_answer_that_is_no_response_is_an_error():
    async with paging(Page(200, b'{"object":"list"}')) as client:
        with pytest.raises(InvalidRequest):
            await client.create(model="sim")


async def test_a_client_may_be_closed_twice_and_used_again():
    whole = response()
    page = Page(200, msgspec.json.encode(whole))
    async with paging(page, ssl_context=ssl.create_default_context()) as client:
        assert await client.create(model="sim") == whole
        await client.aclose()
        await client.aclose()
        assert await client.create(model="sim") == whole
    assert page.connections == 2


async def _open_and_close(client):
    async with client.connect():
        pass


@pytest.fixture(scope="module")
def certificates():
    authority = trustme.CA()
    server, client = (ssl.SSLContext(role) for role in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


async def test_an_https_base_url_means_tls_for_both_transports(certificates):
    server, trusting = certificates
    page, script = Page(200, msgspec.json.encode(response())), Script([completed(ANSWER)])
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_ssl_over_tcp, https_compatible=True)
        listeners = await nursery.start(serve, page.serve, 0, server)
        url = f"https://localhost:{listeners[0].transport_listener.socket.getsockname()[1]}/v1"
        async with Client(url, ssl_context=trusting) as client:
            for _ in range(2):
                assert await client.create(model="sim") == response()
        sockets = await nursery.start(trio_websocket.serve_websocket, script.serve, "localhost", 0, server)
        url = f"https://localhost:{sockets.listeners[0].port}/v1"
        async with Client(url, ssl_context=trusting).connect() as ws:
            assert await collect(ws.turn(model="sim")) == [completed(ANSWER)]
        nursery.cancel_scope.cancel()
    assert page.connections == 1


@pytest.mark.parametrize("cut", ["theirs", "ours"])
async def test_a_tls_connection_that_is_cut_in_a_frame_is_lost(certificates, cut):
    """Without a goodbye of TLS: theirs, or ours after a send that was cancelled."""

    async def play(stream):
        peer = Peer(stream)
        await peer.accept()
        await stream.send_all(b"\x81\x7f\x00")
        if cut == "ours":
            await lost.wait()
        await trio.aclose_forcefully(stream)

    lost = trio.Event()
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_ssl_over_tcp, https_compatible=True)
        listeners = await nursery.start(serve, play, 0, certificates[0])
        url = f"https://localhost:{listeners[0].transport_listener.socket.getsockname()[1]}/v1"
        with trio.fail_after(PATIENCE):
            async with Client(url, ssl_context=certificates[1]).connect() as ws:
                if cut == "ours":
                    with trio.CancelScope() as scope:
                        async with trio.open_nursery() as sending:
                            sending.start_soon(ws.send_text, "x" * (1 << 23))
                            await trio.testing.wait_all_tasks_blocked()
                            scope.cancel()
                with pytest.raises(ConnectionLost, match="1006"):
                    await ws.receive()
                with pytest.raises(ConnectionLost):
                    await ws.send({})
        lost.set()
        nursery.cancel_scope.cancel()


async def test_a_certificate_that_is_not_trusted_is_a_lost_connection(certificates):
    async def never(stream):
        with pytest.raises(trio.BrokenResourceError):
            await stream.do_handshake()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_ssl_over_tcp, never, 0, certificates[0])
        port = listeners[0].transport_listener.socket.getsockname()[1]
        with pytest.raises(ConnectionLost, match="cannot connect to localhost"):
            await _open_and_close(Client(f"https://localhost:{port}/v1"))
        nursery.cancel_scope.cancel()
