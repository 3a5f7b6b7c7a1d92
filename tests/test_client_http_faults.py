"""HTTP with a server that breaks off, babbles or never ends: a typed error, and then a new connection."""

from __future__ import annotations

import msgspec
import pytest
import trio
import trio.testing

from respserver.client import Client, ConnectionLost
from respserver.errors import ApiError, InvalidJson, InvalidRequest
from respserver.http11 import AnswerTooLarge
from tests.support.client_servers import ANSWER, Page, collect, completed, created, paging, peering, response, sse

BODY = msgspec.json.encode(response(output=[ANSWER]))
CUT = {
    "nothing": b"",
    "half-a-head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "only-a-head": b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n",
    "in-a-length": b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + BODY[:80],
    "in-a-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n384\r\n" + BODY[:80],
    "between-chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n: \r\n",
}


async def _request(client, method):
    if method == "create":
        return await client.create(model="sim")
    async with client.stream(model="sim") as events:
        return await collect(events)


def _saying(sent, leaves="end"):
    """A server that answers the first request with these bytes and goes, and any later one well."""
    answers = [sent]

    async def answer(peer):
        await peer.head()
        if not answers:
            await peer.stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
            return
        await peer.stream.send_all(answers.pop())
        await trio.testing.wait_all_tasks_blocked()
        if leaves == "reset":
            await peer.reset()
        if leaves == "never":
            await peer.until_gone()

    return peering(answer)


@pytest.mark.parametrize("method", ["create", "stream"])
@pytest.mark.parametrize("leaves", ["end", "reset"])
@pytest.mark.parametrize("sent", CUT.values(), ids=CUT)
async def test_an_answer_that_breaks_off_is_a_lost_connection_and_the_next_request_a_new_one(sent, leaves, method):
    async with _saying(sent, leaves) as url, Client(url) as client:
        with pytest.raises(ConnectionLost, match="the HTTP connection broke"):
            await _request(client, method)
        assert (await client.create(model="sim")).output == [ANSWER]


@pytest.mark.parametrize("method", ["create", "stream"])
@pytest.mark.parametrize(
    "sent",
    [
        b"220 mail.test ESMTP\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
    ],
    ids=["another-protocol", "upgrade-unasked", "endless-head", "bad-chunk"],
)
async def test_an_answer_that_is_no_http_is_a_lost_connection(sent, method):
    async with _saying(sent, "never") as url, Client(url) as client:
        with pytest.raises(ConnectionLost, match="the HTTP connection broke"):
            await _request(client, method)


@pytest.mark.parametrize("method", ["create", "stream"])
@pytest.mark.parametrize("leaves", ["end", "reset", "never"])
async def test_an_error_whose_body_does_not_end_well_is_still_the_error(leaves, method, autojump_clock):
    sent = b"HTTP/1.1 503 X\r\nRetry-After: 7\r\nContent-Length: 900\r\n\r\nComing so"
    async with _saying(sent, leaves) as url, Client(url) as client:
        with pytest.raises(ApiError, match="Coming so") as caught:
            await _request(client, method)
    assert (caught.value.status, caught.value.headers["retry-after"]) == (503, "7")


async def test_an_answer_may_be_waited_for_as_long_as_one_likes_and_be_cancelled():
    async with _saying(CUT["in-a-length"], "never") as url, Client(url) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_request, client, "create")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        assert (await client.create(model="sim")).output == [ANSWER]


@pytest.mark.parametrize("rest", [b"", b"data: {"], ids=["whole", "with-half-an-event-behind"])
async def test_a_stream_that_has_ended_without_done_stays_ended(rest):
    async with paging(Page(200, sse(completed()), rest or b"\n")) as client, client.stream(model="sim") as events:
        assert await collect(events) == [completed()]
        with trio.fail_after(5):
            assert await collect(events) == []


async def test_an_event_that_is_no_json_is_an_error_and_the_stream_goes_on():
    page = Page(200, b"data: {\n\ndata: []\n\n", sse(completed()), b"data: [DONE]\n\n")
    async with paging(page) as client, client.stream(model="sim") as events:
        for error in (InvalidJson, InvalidRequest):
            with pytest.raises(error):
                await anext(events)
        assert await collect(events) == [completed()]


@pytest.mark.parametrize(
    "body", [b"data: " + b"x" * 3000, b"data: xxxxx\n" * 300, b"x" * 3000], ids=["a-line", "many-lines", "no-event"]
)
async def test_an_event_without_end_is_given_up(body, monkeypatch):
    monkeypatch.setattr("respserver.client.http.MESSAGE_BYTES", 1000)
    page = Page(200, sse(created()), *(body[at : at + 120] for at in range(0, len(body), 120)), ending=b"")
    async with paging(page) as client:
        async with client.stream(model="sim") as events:
            assert await anext(events) == created()
            with pytest.raises(AnswerTooLarge):
                await anext(events)
        with trio.fail_after(5):
            await page.left.wait()


async def test_many_events_may_be_larger_together_than_one_may_be(monkeypatch):
    monkeypatch.setattr("respserver.client.http.MESSAGE_BYTES", 1000)
    page = Page(200, sse(*[created()] * 9), b"data: [DONE]\n\n")
    async with paging(page) as client, client.stream(model="sim") as events:
        assert await collect(events) == [created()] * 9


async def test_a_response_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr("respserver.client.http.MESSAGE_BYTES", 1000)
    async with paging(Page(200, *[b" " * 300] * 5, ending=b"")) as client:
        with pytest.raises(AnswerTooLarge):
            await client.create(model="sim")
