"""The HTTP client below everything: bounds of its own; the rest is proved through ``client/`` (test_client_http)."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest
import trio

from respserver.errors import ConnectionLost
from respserver.http11 import AnswerTooLarge, Links, target_of
from tests.support.client_servers import Page


@asynccontextmanager
async def linked(page):
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, page.serve, 0)
        links = Links(urlsplit(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/x"), {})
        try:
            yield links
        finally:
            await links.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("url", "target"),
    [("http://h", "/"), ("http://h/a/b", "/a/b"), ("http://h/a?b=c", "/a?b=c"), ("http://h?b", "/?b")],
)
def test_a_request_line_names_path_and_query(url, target):
    assert target_of(urlsplit(url)) == target


async def test_an_answer_may_be_as_large_as_the_limit_and_no_larger():
    page = Page(200, b"12345", b"67890")
    async with linked(page) as links:
        async with links.post(b"{}") as (head, link):
            assert (head.status_code, await link.read(10)) == (200, b"1234567890")
        with pytest.raises(AnswerTooLarge, match="larger than 9 bytes"):
            async with links.post(b"{}") as (_, link):
                await link.read(9)
        await page.left.wait()  # the connection in whose answer we stopped is closed
        async with links.post(b"{}") as (_, link):
            assert await link.read() == b"1234567890"
    assert page.connections == 2


async def test_after_a_burst_only_so_many_connections_are_kept(monkeypatch):
    monkeypatch.setattr("respserver.http11.KEPT_LINKS", 2)
    page = Page(200, b"x")
    async with linked(page) as links:
        for _ in range(2):
            async with AsyncExitStack() as stack:
                for _ in range(4):
                    _, link = await stack.enter_async_context(links.post(b"{}"))
                    await link.read()
    assert page.connections == 6


async def test_a_server_that_hangs_up_without_an_answer_is_a_lost_connection():
    async def hang_up(stream):
        await stream.receive_some()
        await stream.aclose()

    page = Page(200)
    page.serve = hang_up
    async with linked(page) as links:
        with pytest.raises(ConnectionLost, match="the HTTP connection broke"):
            async with links.post(b"{}"):
                pass
