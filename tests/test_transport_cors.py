"""Which browser pages may use HTTP: nothing is told while CORS is off, and each browser is told enough when it is on.

A browser sends a preflight, without the key, ahead of a request with one; then it lets the page read an answer, an
error too, only if the answer names the page's origin.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from werkzeug.datastructures import Headers

from respserver.transport.cors import EXPOSED, PREFLIGHT_SECONDS, Cors
from tests.support.live import http, parse_sse
from tests.support.raw_websocket import request
from tests.support.roads import raw_connection

PAGE = "https://app.example"
FOREIGN = "https://evil.example"
KEY = {"Authorization": "Bearer k"}
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
}


def told(answer: httpx.Response) -> dict[str, str]:
    """What an answer says of CORS."""
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


async def requests(client: httpx.AsyncClient, origin: str | None) -> dict[int, httpx.Response]:
    """An answer of each kind that a page may get, by its status; 200 is a stream's."""
    headers = {} if origin is None else {"Origin": origin}
    body = {"model": "sim", "input": "hi"}
    answers = [
        await client.post("/responses", json={**body, "stream": True}, headers=headers | KEY),
        await client.post("/responses", json=body, headers=headers | KEY),
        await client.post("/responses", json=body, headers=headers),
        await client.post("/responses", content=b"{", headers=headers | KEY),
        await client.get("/responses/resp_no", headers=headers | KEY),
        await client.put("/responses", headers=headers | KEY),
        await client.post("/responses", content=b"x" * 2000, headers=headers | KEY),
        await client.options("/responses", headers=headers | PREFLIGHT),
    ]
    return {answer.status_code: answer for answer in answers}


STATUSES = {200, 204, 429, 401, 400, 404, 405, 413}
LIMITS = {"requests_per_minute": 1, "message_bytes": 1024}


@pytest.mark.parametrize("origin", [None, PAGE, "null"])
async def test_off_is_the_default_and_says_nothing_to_anybody(serve: Any, origin: str | None) -> None:
    server = await serve(api_key=("k",), limits=LIMITS)
    async with http(server) as client:
        answers = await requests(client, origin)
    assert set(answers) == STATUSES
    for answer in answers.values():
        assert told(answer) == {}
        assert "vary" not in answer.headers


async def test_an_allowed_page_may_read_every_answer_errors_and_streams_too(serve: Any) -> None:
    server = await serve(api_key=("k",), limits=LIMITS, cors_origin=(PAGE, "http://localhost:5173"))
    async with http(server) as client:
        answers = await requests(client, PAGE)
    assert set(answers) == STATUSES
    preflight = answers.pop(204)
    for answer in answers.values():
        assert told(answer) == {"access-control-allow-origin": PAGE, "access-control-expose-headers": EXPOSED}
        assert answer.headers["vary"] == "Origin"
    assert parse_sse(answers[200].text)[-1]["type"] == "response.completed"
    assert told(preflight) == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "OPTIONS, POST",
        "access-control-allow-headers": PREFLIGHT["Access-Control-Request-Headers"],
        "access-control-max-age": str(PREFLIGHT_SECONDS),
    }
    assert preflight.content == b""


async def test_what_a_page_may_read_has_the_names_that_clients_look_for(serve: Any) -> None:
    server = await serve(limits={"requests_per_minute": 1, "tokens_per_minute": 100}, cors_origin=(PAGE,))
    async with http(server, headers={"Origin": PAGE}) as client:
        await client.post("/responses", json={"model": "sim", "input": "hi"})
        answer = await client.post("/responses", json={"model": "sim", "input": "hi"})
    assert answer.status_code == 429
    own = {name for name in answer.headers if name.startswith(("x-", "openai-", "retry-"))}
    assert "retry-after-ms" in own
    assert own <= set(EXPOSED.split(", "))


async def test_a_foreign_page_is_not_named_and_caches_know_that_it_depends(serve: Any) -> None:
    server = await serve(api_key=("k",), limits=LIMITS, cors_origin=(PAGE,))
    async with http(server) as client:
        for origin in (FOREIGN, "null", PAGE + ".evil.example", None):
            for answer in (await requests(client, origin)).values():
                assert told(answer) == {}
                assert answer.headers["vary"] == "Origin"


async def test_a_preflight_needs_no_key_and_no_unknown_path_has_one(serve: Any) -> None:
    server = await serve(api_key=("k",), cors_origin=(PAGE,))
    async with http(server, headers={"Origin": PAGE, **PREFLIGHT}) as client:
        for path in ("/responses", "/responses/", "/responses/resp_1", "/models", "/models/a/b", "/", "/responses?x=1"):
            assert (await client.options(path)).status_code == 204, path
        assert (await client.options("/nowhere")).status_code == 404


@pytest.mark.parametrize("origin", [PAGE, FOREIGN, "null"])
async def test_a_star_stands_for_every_page(serve: Any, origin: str) -> None:
    server = await serve(cors_origin=("*",))
    async with http(server, headers={"Origin": origin}) as client:
        answer = await client.get("/models")
        preflight = await client.options("/responses", headers=PREFLIGHT)
    assert told(answer)["access-control-allow-origin"] == told(preflight)["access-control-allow-origin"] == "*"
    assert "vary" not in answer.headers


@pytest.mark.parametrize(
    ("allowed", "origin", "readable"),
    [
        ("https://app.example:443", PAGE, True),
        ("HTTPS://APP.example", PAGE, True),
        (PAGE, "https://APP.example:443", True),
        ("http://localhost:5173", "http://localhost:5174", False),
        (PAGE, "http://app.example", False),
        (PAGE, "https://app.example/", False),
        ("null", "null", True),
    ],
)
def test_origins_are_compared_whole_and_echoed_as_they_came(allowed: str, origin: str, readable: bool) -> None:
    fields = Cors((allowed,)).fields(Headers({"Origin": origin}), None)
    assert fields.get("Access-Control-Allow-Origin") == (origin if readable else None)


async def test_http_and_sockets_are_two_permissions(serve: Any) -> None:
    """Neither implies the other: each option is about one thing."""
    server = await serve(cors_origin=("https://reads.example",), allow_origin=("https://talks.example",))
    for origin, reads, talks in [
        ("https://reads.example", True, False),
        ("https://talks.example", False, True),
        (FOREIGN, False, False),
    ]:
        async with http(server, headers={"Origin": origin}) as client:
            answer = await client.post("/responses", json={"model": "sim", "input": "hi"})
        assert ("access-control-allow-origin" in answer.headers) is reads
        async with raw_connection(server) as wire:
            await wire.stream.send_all(request(Origin=origin))
            assert (await wire.head()).startswith(b"HTTP/1.1 101 " if talks else b"HTTP/1.1 403 ")
