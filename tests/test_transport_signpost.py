"""Whoever comes without knowing where things are is told: at ``/``, and in the 404 of every other place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver import __version__
from respserver.config import Config, Mode
from respserver.errors import RouteNotFound
from respserver.transport import signpost
from tests.support.live import http

NOT_HERE = "This endpoint of the API is not served here; GET / lists those that are."


def shown(config: Config, *, needs_key: bool = False) -> Any:
    return json.loads(signpost.page(config, needs_key=needs_key))


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/?a=b"])
async def test_the_address_and_the_base_url_tell_what_is_here_without_a_key(serve: Any, path: str) -> None:
    server = await serve(mode=Mode.PROTOTYPE, api_key=("sk-nobody-may-know",))
    async with http(server) as client:
        answer = await client.get(f"{server.base_url.removesuffix('/v1')}{path}")
    assert answer.status_code == 200
    assert answer.json() == shown(Config(mode=Mode.PROTOTYPE), needs_key=True)
    assert (answer.json()["version"], answer.json()["mode"]) == (__version__, "prototype")
    assert "nobody" not in answer.text


async def test_every_endpoint_that_is_named_is_there(serve: Any) -> None:
    server = await serve()
    async with http(server) as client:
        for endpoint in shown(Config())["endpoints"]:
            method, path = endpoint.split(" ")
            if method != "WebSocket":
                answer = await client.request(method, server.base_url.removesuffix("/v1") + path)
                assert answer.json().get("error", {}).get("code") not in ("unknown_url", "method_not_allowed")


def test_a_server_without_websocket_or_keys_says_so() -> None:
    page = shown(Config(websocket=False))
    assert page["needs_key"] is False
    assert not [endpoint for endpoint in page["endpoints"] if "WebSocket" in endpoint]
    assert "WebSocket /v1/responses" in shown(Config())["endpoints"]


@pytest.mark.parametrize(
    ("method", "path", "hint"),
    [
        ("POST", "/v1/respones", "The nearest endpoint is POST /v1/responses; GET / lists all."),
        ("GET", "/V1/Responses", "The nearest endpoint is POST /v1/responses; GET / lists all."),
        ("POST", "/v1/v1/responses", "The nearest endpoint is POST /v1/responses; GET / lists all."),
        ("GET", "/models", "The nearest endpoint is GET /v1/models; GET / lists all."),
        ("GET", "/health", "The nearest endpoint is GET /healthz; GET / lists all."),
        ("POST", "/v1/chat/completions", "Responses are made with POST /v1/responses; GET / lists all endpoints."),
        ("POST", "/v1/responses/compact", NOT_HERE),
        ("POST", "/v1/responses/resp_x/cancel", NOT_HERE),
        ("GET", "/v1/responses/resp_x/input_items", NOT_HERE),
        ("POST", "/v1/conversations", NOT_HERE),
        ("GET", "/favicon.ico", "GET / lists the endpoints."),
    ],
)
async def test_an_unknown_path_is_answered_with_the_endpoint_that_was_meant(
    serve: Any, method: str, path: str, hint: str
) -> None:
    server = await serve()
    async with http(server) as client:
        answer = await client.request(method, server.base_url.removesuffix("/v1") + path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert answer.json()["error"]["message"] == f"Invalid URL ({method} {path}). {hint}"


@pytest.mark.parametrize(
    ("method", "path", "websocket", "message"),
    [
        ("GET", "/responses", True, "Method GET is not allowed for /v1/responses. POST it, or open a WebSocket here."),
        ("GET", "/responses", False, "Method GET is not allowed for /v1/responses. POST it."),
        ("PUT", "/responses", True, "Method PUT is not allowed for /v1/responses."),
        ("POST", "/models", True, "Method POST is not allowed for /v1/models."),
    ],
)
async def test_whoever_opens_the_endpoint_is_told_what_it_is_for(
    serve: Any, method: str, path: str, websocket: bool, message: str
) -> None:
    server = await serve(websocket=websocket)
    async with http(server) as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["message"]) == (405, message)


def test_an_upgrade_elsewhere_is_told_where_sockets_are() -> None:
    assert signpost.unknown_socket("/v1/realtime").message == (
        "Invalid URL (GET /v1/realtime). The endpoint is WebSocket /v1/responses."
    )


@pytest.mark.slow
@given(path=st.text())
def test_any_path_at_all_gives_an_error_that_begins_with_it(path: str) -> None:
    assert signpost.unknown("GET", path).message.startswith(RouteNotFound("GET", path).message[:900])
