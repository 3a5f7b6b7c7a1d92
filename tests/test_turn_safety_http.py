"""Asking a classifier over HTTP: the contract, the time limit, and what happens without an answer."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing
import trustme

from respserver.config import HttpClassifierConfig
from respserver.errors import ScreeningFailed
from respserver.schema.codec import encode
from respserver.schema.input import read_input, user_message
from respserver.turn.safety.base import PASS, Verdict
from respserver.turn.safety.http import ANSWER_BYTES, HttpClassifier
from tests.support.client_servers import Page

ITEMS = [user_message("hello")]


@asynccontextmanager
async def asking(serve, **fields):
    """A classifier that asks the server whose connections ``serve`` handles."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/screen"
        classifier = HttpClassifier(HttpClassifierConfig(**{"url": url, **fields}))
        try:
            yield classifier
        finally:
            await classifier.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (b'{"action":"pass"}', PASS),
        (b'{"action":"pass","categories":["violence"]}', PASS),
        (b'{"action":"flag","categories":["violence","self-harm"]}', Verdict("flag", ("violence", "self-harm"))),
        (b'{"action":"block"}', Verdict("block")),
        (b'{"action":"block","categories":["a/b"],"score":0.98}', Verdict("block", ("a/b",))),
    ],
)
async def test_the_answer_is_the_verdict(answer, verdict):
    async with asking(Page(200, answer).serve) as classifier:
        assert await classifier.screen(ITEMS, PASS) == verdict


async def test_the_question_holds_the_items_as_they_came_and_the_verdict_so_far():
    sent = [{"role": "user", "content": "hello", "x": 1}, {"type": "item_of_tomorrow"}]
    page = Page(200, b'{"action":"pass"}')
    async with asking(page.serve, name="moderator", api_key="k1", reads="context") as classifier:
        await classifier.screen(read_input(encode(sent)), Verdict("flag", ("spam",)))
    head, question = page.requests[0]
    assert head.startswith("post /screen http/1.1")
    assert "authorization: bearer k1" in head
    assert "content-type: application/json" in head
    assert question == {
        "version": 1,
        "classifier": "moderator",
        "reads": "context",
        "items": sent,
        "verdict": {"action": "flag", "categories": ["spam"]},
    }


async def test_without_a_key_no_key_is_sent():
    page = Page(200, b'{"action":"pass"}')
    async with asking(page.serve) as classifier:
        await classifier.screen(ITEMS, PASS)
    assert "authorization" not in page.requests[0][0]


async def test_questions_one_after_the_other_share_a_connection_and_those_at_once_do_not():
    page = Page(200, b'{"action":"pass"}')
    async with asking(page.serve) as classifier:
        for _ in range(3):
            await classifier.screen(ITEMS, PASS)
        assert page.connections == 1
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(classifier.screen, ITEMS, PASS)
    assert (page.connections, len(page.requests)) == (3, 6)


async def test_a_connection_that_is_lost_under_a_question_is_asked_again_on_another():
    page = Page(200, b'{"action":"block"}')
    lost = []

    async def serve(stream):
        if not lost:
            lost.append(await stream.receive_some())
            await stream.aclose()
        else:
            await page.serve(stream)

    async with asking(serve) as classifier:
        assert (await classifier.screen(ITEMS, PASS)).blocks
    assert len(page.requests) == 1


NO_ANSWERS = {
    "another status": (Page(500, b'{"action":"pass"}'), "status 500"),
    "a redirect": (Page(307, headers="location: http://127.0.0.1:1/\r\n"), "status 307"),
    "no JSON": (Page(200, b"fine"), "breaks the contract"),
    "another action": (Page(200, b'{"action":"allow"}'), "breaks the contract"),
    "no action": (Page(200, b"{}"), "breaks the contract"),
    "a category that is no word": (Page(200, b'{"action":"flag","categories":["so bad\\n"]}'), "breaks the contract"),
    "too many categories": (
        Page(200, msgspec.json.encode({"action": "flag", "categories": ["a"] * 33})),
        "breaks the contract",
    ),
    "too long": (Page(200, b" " * ANSWER_BYTES, b'{"action":"pass"}'), "larger than"),
    "a cut answer": (Page(200, b"{", ending=b"", keeps=False), "connection broke"),
}


@pytest.mark.parametrize("kind", NO_ANSWERS)
@pytest.mark.parametrize("failure", ["closed", "open"])
async def test_no_answer_is_a_refusal_or_a_pass_as_configured_and_is_logged(kind, failure, caplog):
    page, problem = NO_ANSWERS[kind]
    async with asking(page.serve, failure=failure, name="moderator") as classifier:
        if failure == "open":
            assert await classifier.screen(ITEMS, PASS) == PASS
        else:
            with pytest.raises(ScreeningFailed) as caught:
                await classifier.screen(ITEMS, PASS)
            assert (caught.value.status, caught.value.code) == (503, "screening_failed")
            assert caught.value.headers == {"retry-after": "1"}
    (record,) = [record for record in caplog.records if record.getMessage() == "screening_failed"]
    assert (record.classifier, record.failure) == ("moderator", failure)
    assert problem in record.problem
    assert "hello" not in record.problem


async def test_nobody_there_is_no_answer():
    classifier = HttpClassifier(HttpClassifierConfig(url="http://127.0.0.1:9/"))
    with pytest.raises(ScreeningFailed):
        await classifier.screen(ITEMS, PASS)


async def test_the_time_limit_covers_the_whole_answer(autojump_clock, caplog):
    async def serve(stream):
        await stream.receive_some()
        await trio.sleep(1.5)
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n")
        await trio.sleep(1.5)
        await stream.send_all(b'{"action":"pass"}')

    async with asking(serve, seconds=2.0, failure="open") as classifier:
        started = trio.current_time()
        assert await classifier.screen(ITEMS, PASS) == PASS
        assert trio.current_time() - started == pytest.approx(2.0)
    assert caplog.records[0].problem == "no answer within 2 seconds"
    async with asking(serve, seconds=4.0, failure="closed") as classifier:
        assert await classifier.screen(ITEMS, PASS) == PASS


async def test_a_question_that_is_cancelled_closes_its_connection():
    page = Page(200, ending=b"")
    async with asking(page.serve) as classifier:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(classifier.screen, ITEMS, PASS)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        await page.left.wait()


async def test_https_is_asked_over_tls():
    authority = trustme.CA()
    server, trusting = (ssl.SSLContext(role) for role in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(trusting)
    page = Page(200, b'{"action":"block"}')
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_ssl_over_tcp, page.serve, 0, server)
        port = listeners[0].transport_listener.socket.getsockname()[1]
        config = HttpClassifierConfig(url=f"https://localhost:{port}", seconds=30)
        classifier = HttpClassifier(config, ssl_context=trusting)
        assert (await classifier.screen(ITEMS, PASS)).blocks
        await classifier.aclose()
        nursery.cancel_scope.cancel()
    assert page.requests[0][0].startswith("post / http/1.1")
