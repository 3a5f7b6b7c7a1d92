"""The methods of HTTP beside those that do the work: HEAD and OPTIONS everywhere, and what a 405 says."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.live import http, post
from tests.support.roads import raw_connection

PATHS = {
    "/": "GET, HEAD, OPTIONS",
    "/v1": "GET, HEAD, OPTIONS",
    "/healthz": "GET, HEAD, OPTIONS",
    "/v1/models": "GET, HEAD, OPTIONS",
    "/v1/models/sim": "GET, HEAD, OPTIONS",
    "/v1/responses": "OPTIONS, POST",
    "/openai/v1/responses": "OPTIONS, POST",
    "/v1/responses/resp_1": "DELETE, GET, HEAD, OPTIONS",
}
"""Each path and its methods."""
READABLE = [path for path, methods in PATHS.items() if "GET" in methods]
QUERIES = ["?", "?x=1&x=2", "?api-version=2026-01-01", "?=&&;%zz%ff", "?x=" + "y" * 5000, "?//../", "?stream=false"]
OWN_TIME = {"date", "x-request-id", "openai-processing-ms"}
"""Headers that two answers never share."""


def root(server: Any, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.base_url.removesuffix("/v1"), timeout=10, **options)


def same(answer: httpx.Response) -> tuple[int, dict[str, str]]:
    return answer.status_code, {name: value for name, value in answer.headers.items() if name not in OWN_TIME}


@pytest.mark.parametrize("key", ["Bearer k", "Bearer wrong"])
async def test_head_is_get_without_its_body_on_every_path_whatever_the_answer(serve: Any, key: str) -> None:
    server = await serve(api_key=("k",), cors_origin=("*",), limits={"requests_per_minute": 3})
    async with root(server, headers={"Authorization": key, "Origin": "https://app.example"}) as client:
        for path in [*PATHS, "/nowhere", "/v1/models/sim/", "/v1/models?x=1", "/v1/responses/x?stream=true"]:
            got, head = await client.get(path), await client.head(path)
            assert same(head) == same(got), path
            assert "openai-processing-ms" in head.headers
            assert head.content == b""
            assert got.content


async def test_head_of_a_stored_response_has_its_size_and_the_connection_goes_on(serve: Any) -> None:
    server = await serve()
    response_id = (await post(server, input="hi")).json()["id"]
    async with raw_connection(server) as client:
        for method in (b"HEAD", b"GET"):
            await client.stream.send_all(
                method + f" /v1/responses/{response_id} HTTP/1.1\r\nHost: server.test\r\n\r\n".encode()
            )
            head = await client.head()
            assert head.startswith(b"HTTP/1.1 200 ")
            (length,) = [line[16:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")]
        assert len(await client.take(int(length))) > 100  # of the GET alone: nothing came in between


@pytest.mark.parametrize("path", PATHS)
async def test_options_tells_the_methods_of_a_path_to_anybody(serve: Any, path: str) -> None:
    server = await serve(api_key=("k",))
    async with root(server) as client:
        answer = await client.options(path)
        assert (answer.status_code, answer.headers["allow"], answer.content) == (204, PATHS[path], b"")
        assert not {"content-type", "content-length", "transfer-encoding"} & set(answer.headers)
        assert answer.headers["x-request-id"]
        assert (await client.options(path + "/?x=1")).headers["allow"] == PATHS[path]


async def test_options_of_an_unknown_path_is_a_404_with_the_envelope(serve: Any) -> None:
    async with root(await serve()) as client:
        answer = await client.options("/v1/nowhere")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


@pytest.mark.parametrize("path", PATHS)
async def test_a_405_has_the_envelope_and_names_the_methods_that_there_are(serve: Any, path: str) -> None:
    async with root(await serve()) as client:
        for method in {"PUT", "PATCH", "GET", "BREW"} - set(PATHS[path].split(", ")):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
            assert answer.headers["allow"] == PATHS[path]


@pytest.mark.parametrize("query", QUERIES)
async def test_any_query_string_is_tolerated_everywhere(serve: Any, query: str) -> None:
    server = await serve()
    async with root(server) as client:
        for path in READABLE:
            if path != "/v1/responses/resp_1":
                assert (await client.get(path + query)).status_code == 200
        made = await client.post("/v1/responses" + query, json={"model": "sim", "input": "hi"})
        assert made.status_code == 200
        stored = f"/v1/responses/{made.json()['id']}"
        assert (await client.get(stored + query)).json()["id"] == made.json()["id"]
        assert (await client.delete(stored + query)).json()["deleted"] is True


async def test_http_1_0_may_ask_with_head_and_options_too(serve: Any) -> None:
    server = await serve()
    for method, status in ((b"HEAD", b"200"), (b"OPTIONS", b"204")):
        async with raw_connection(server) as client:
            await client.stream.send_all(method + b" / HTTP/1.0\r\n\r\n")
            answer = await client.rest()
        assert answer.split()[1] == status
        assert answer.endswith(b"\r\n\r\n")


async def test_the_url_keeps_its_query_over_a_socket_too(serve: Any) -> None:
    async with http(await serve()) as client:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        answer = await client.get("/responses?x=%zz&model=%ff&;", headers=upgrade)
    assert answer.json()["error"]["code"] == "invalid_handshake"  # not a 404: the path was understood
